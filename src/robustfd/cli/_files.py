"""Files that commands read: rows as streams, and saved sketches and models."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from robustfd._container import SnapshotError, load_with_notes
from robustfd.cli._console import Table, log, text_table
from robustfd.cli._options import ConsoleOptions, LogOptions, RowOptions
from robustfd.streams import Block, Position, Stream, namer, open_stream

Options = TypeVar("Options", bound=RowOptions)
TARGETS = ("target", "label", "class", "y")  # columns that hold the labels if --target is not given
# Options that a layout of columns already decides.
LAYOUT_OPTIONS = ("columns", "drop", "categories", "hash_bits", "n_features", "zero_based", "interactions")
# Options that decide the columns. They cannot change while a pass is resumed.
ROLES = ("target", "weight", "id", "arm", "cost", "probability")
COLUMN_OPTIONS = (*ROLES, "header", "delimiter", "decimal", "missing", *LAYOUT_OPTIONS)


# -- rows


def open_files(
    files: list[str],
    inputs: RowOptions,
    *,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
    accepts_nan: bool = False,
    **more: Any,
) -> Stream:
    """Return the stream of a command's input files. Rows have NaN for missing values only if `accepts_nan`."""
    if inputs.missing == "nan" and not accepts_nan:
        raise ValueError(
            "--missing nan needs the learner newton, which learns from missing values. Use --missing zero, --drop to "
            "ignore columns, or --on-error skip to skip rows."
        )
    decided = () if layout is None else LAYOUT_OPTIONS
    options = {name: value for name, value in vars(inputs).items() if value is not None and name not in decided}
    if accepts_nan:
        options.setdefault("missing", "nan")
    for name in ("columns", "drop"):
        if name in options:
            options[name] = [_column(each) for each in options[name].split(",")]
    for name in ROLES:
        if name in options:
            more[name] = _column(options[name])
    if "interactions" in options:
        options["interactions"] = [pair.strip(" ") or pair for pair in options["interactions"].split(",")]
    source = files[0] if len(files) == 1 else files
    stream = open_stream(source, layout=layout, start=start, **{**options, **more})
    if stream.layout.get("kind") in ("cb", "adf") and not isinstance(inputs, LogOptions):
        raise ValueError(f"{files[0]} is the log of a contextual bandit. Use robustfd bandit train.")
    return stream


def _column(name: str) -> str | int:
    name = name.strip()
    return int(name) if name.lstrip("-").isdigit() else name


def open_labelled(
    files: list[str],
    inputs: RowOptions,
    *,
    layout: dict[str, Any] | None = None,
    accepts_nan: bool = True,
    **more: Any,
) -> Stream:
    """Return a stream of labelled rows. In tables the labels are in the target column, or in one of `TARGETS`."""
    more |= {"target": None if layout else TARGETS, "unlabelled": "skip", "accepts_nan": accepts_nan}
    return open_files(files, inputs, layout=layout, **more)


def open_for_model(
    files: list[str], inputs: RowOptions, model: Any, layout: dict[str, Any] | None, **more: Any
) -> Stream:
    """Return a stream with the columns of a model. Features that the model does not have are dropped."""
    if layout is None:
        inputs = replace(inputs, n_features=model.n_features_in_)
    stream = open_files(files, inputs, layout=layout, accepts_nan=accepts_nan(model), unseen="drop", **more)
    stream.wants_codes = getattr(model, "expand", None) is not None
    return stream


def accepts_nan(model: Any) -> bool:
    """Return whether the rows of a model may have NaN."""
    return bool(getattr(model, "_takes_missing", False))


def column_options(inputs: RowOptions) -> dict[str, Any]:
    """Return the input options that decide the columns."""
    return {name: getattr(inputs, name, None) for name in COLUMN_OPTIONS}


def require_labels(block: Block, files: list[str], stream: Stream) -> None:
    """Raise if the rows of a block have no labels."""
    if block.y is None:
        names = [stream.feature_name(column) for column in range(min(stream.n_features, 20))]
        raise ValueError(f"{files[0]} has no labels. Name their column with --target: {', '.join(names)}, ...")


def report_remarks(stream: Stream, console: ConsoleOptions) -> None:
    """Print each remark of a stream once: what it detected and could have decided otherwise."""
    while stream.remarks:
        log(console, stream.remarks.pop(0))


def report_skipped(stream: Stream, console: ConsoleOptions) -> None:
    """Print the remarks of a stream, the rows that it skipped and the entries that it dropped."""
    report_remarks(stream, console)
    if stream.position.skipped:
        log(console, f"skipped {stream.position.skipped:,} rows that could not be read:")
        for message in stream.skipped:
            log(console, f"  {message}")
        if stream.position.skipped > len(stream.skipped):
            log(console, f"  ... and {stream.position.skipped - len(stream.skipped):,} more")
    if stream.position.dropped:
        log(console, f"dropped {stream.position.dropped:,} entries of features that the model does not have")


# -- sketches and models


class LoadedFile(NamedTuple):
    """A sketch or model from a file."""

    model: Any
    layout: dict[str, Any] | None  # of its columns, if the command line wrote the file
    missing: Any  # the --missing option of the command that wrote it, or None
    notes: dict[str, Any]


def load_file(path: Path, wanted: Literal["sketch", "learner", "bandit", "any"] = "any") -> LoadedFile:
    """Return the sketch or model in a file; raise if it is not of the wanted kind."""
    try:
        model, notes = load_with_notes(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error
    found = "sketch" if is_sketch(sketch_of(model)) else "bandit" if hasattr(model, "arms_") else "learner"
    if wanted not in ("any", found):
        made_by = {"sketch": "sketch", "learner": "train", "bandit": "bandit train"}[wanted]
        raise ValueError(f"{path} holds a {type(model).__name__}. Give a file that `robustfd {made_by}` wrote.")
    layout = notes.get("layout")
    return LoadedFile(model, layout if isinstance(layout, dict) else None, notes.get("missing"), notes)


def load_learner(
    path: Path, inputs: Options, wanted: Literal["learner", "bandit"] = "learner"
) -> tuple[LoadedFile, Options]:
    """Return a learner, and the input options with the --missing that it was trained with as the default."""
    loaded = load_file(path, wanted)
    if loaded.layout is None and (layout := layout_of_table(loaded.model)) is not None:
        loaded = loaded._replace(layout=layout)
        loaded.model._read_encoded()  # the stream encodes the rows
    if inputs.missing is None and loaded.missing in ("error", "zero", "nan"):
        inputs = replace(inputs, missing=loaded.missing)
    return loaded, inputs


def layout_of_table(model: Any) -> dict[str, Any] | None:
    """Return the layout of the table that a learner was fitted to in Python, None if it was fitted to other rows."""
    encoder = getattr(model, "_encoder", None)
    return None if encoder is None else dict(encoder.layout)


def is_sketch(model: Any) -> bool:
    """Return whether this is a sketch rather than a learner."""
    return hasattr(model, "second_moment")


def sketch_of(model: Any) -> Any:
    """Return the sketch inside an estimator; any other model unchanged."""
    return model.sketch_ if hasattr(model, "sketch_") and not is_sketch(model) else model


def column_names(model: Any, layout: dict[str, Any] | None) -> Callable[[int], str]:
    """Return a function from column numbers to names."""
    names = getattr(model, "feature_names_in_", None)
    if layout is not None:
        return namer(layout)
    return lambda column: str(column if names is None else names[column])


def coverage_tables(result: dict[str, Any]) -> list[Table]:
    """Return the coverage of a summary as a table, if it has any."""
    covered, width = result.get("progressive_coverage", {}), result.get("progressive_width", {})
    rows = [(level, share, width[level]) for level, share in covered.items()]
    what = ("Sets", "size") if "classes" in result else ("Intervals", "width")
    title = f"{what[0]}: share of rows covered before they were learned"
    return [text_table(title, rows, "level", "covered", f"mean {what[1]}")] if rows else []


def summary(model: Any) -> dict[str, Any]:
    """Return counts of a model: with the certified error of a sketch, or the progressive errors of a learner."""
    sketch = sketch_of(model)
    if is_sketch(sketch):
        window = {"window": sketch.window, "now": sketch.now_} if hasattr(sketch, "window") else {}
        return window | {
            "kind": type(sketch).__name__,
            "rows": sketch.n_samples_seen_,
            "features": sketch.n_features_in_,
            "rank": len(sketch.singular_values_),
            "alpha": sketch.alpha_,
            "error_bound": sketch.error_bound_,
            "relative_error_bound": sketch.relative_error_bound_,
            "squared_norm": sketch.squared_norm_,
        }
    result: dict[str, Any] = {"kind": type(model).__name__}
    if hasattr(model, "classes_"):
        result["classes"] = model.classes_.tolist()
    result |= {"rows": model.n_samples_seen_, "features": model.n_features_in_}
    if hasattr(model, "arms_"):
        return result | {"arms": len(model.arms_) or "by features", "progressive_reward": model.progressive_reward_}
    for name in ("progressive_loss", "progressive_error"):
        if hasattr(model, f"{name}_"):
            result[name] = float(getattr(model, f"{name}_"))
    if getattr(model, "intervals", False):
        for name in ("coverage", "width"):
            found = getattr(model, f"progressive_{name}_")
            result[f"progressive_{name}"] = {f"{level:g}": value for level, value in found.items()}
    if getattr(model, "expand", None) is not None:
        result["expansion"] = model.expansion_
    if hasattr(model, "hessian_"):
        result |= {"hessian": model.hessian_, "sketch_size": model.sketch_size_, "experts": model.experts_}
    return result
