"""Opening the files that a command reads and writes."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from robustfd._container import replacing
from robustfd.cli._console import log
from robustfd.cli._errors import write_errors
from robustfd.cli._options import ConsoleOptions, InputOptions, Missing
from robustfd.streams import Block, Position, Stream, open_stream

TARGETS = ("target", "label", "class", "y")  # columns that hold the labels if --target is not given
# Options that decide the columns. They cannot change while a pass is resumed.
COLUMN_OPTIONS = (
    "target", "weight", "id", "columns", "drop", "categories", "hash_bits", "n_features", "zero_based", "header",
    "delimiter", "missing", "interactions",
)  # fmt: skip
# Options that a layout of columns already decides.
LAYOUT_OPTIONS = ("columns", "drop", "categories", "hash_bits", "n_features", "zero_based", "interactions")


def open_files(
    files: list[str],
    inputs: InputOptions,
    *,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
    accepts_nan: bool = False,
    **more: Any,
) -> Stream:
    """Return the stream of a command's input files. Rows have NaN for missing values only if `accepts_nan`."""
    if inputs.missing == Missing.nan and not accepts_nan:
        raise ValueError(
            "--missing nan needs the learner newton, which learns from missing values. Use --missing zero, --drop to "
            "ignore columns, or --on-error skip to skip rows."
        )
    options = {name: value for name, value in vars(inputs).items() if value is not None}
    options["format"], options["on_error"] = str(inputs.format), str(inputs.on_error.value)
    if accepts_nan:
        options.setdefault("missing", Missing.nan)
    for name in ("categories", "missing"):
        if name in options:
            options[name] = str(options[name])
    for name in ("columns", "drop"):
        if name in options:
            options[name] = [_column(each) for each in options[name].split(",")]
    for name in ("target", "weight", "id"):
        if name in options:
            more[name] = _column(options[name])
    if inputs.interactions is not None:
        options["interactions"] = [pair.strip(" ") or pair for pair in inputs.interactions.split(",")]
    if layout is not None:
        for name in LAYOUT_OPTIONS:
            options.pop(name, None)
    source = files[0] if len(files) == 1 else files
    return open_stream(source, layout=layout, start=start, **{**options, **more})


def _column(name: str) -> str | int:
    name = name.strip()
    return int(name) if name.lstrip("-").isdigit() else name


def open_labelled(
    files: list[str],
    inputs: InputOptions,
    *,
    layout: dict[str, Any] | None = None,
    accepts_nan: bool = True,
    **more: Any,
) -> Stream:
    """Return a stream of labelled rows. In tables the labels are in the target column, or in one of `TARGETS`."""
    more |= {"target": None if layout else TARGETS, "unlabelled": "skip", "accepts_nan": accepts_nan}
    return open_files(files, inputs, layout=layout, **more)


def open_for_model(
    files: list[str], inputs: InputOptions, model: Any, layout: dict[str, Any] | None, **more: Any
) -> Stream:
    """Return a stream with the columns of a model. Features that the model does not have are dropped."""
    more |= {"accepts_nan": accepts_nan(model), "unseen": "drop"}
    if layout is None:
        inputs = replace(inputs, n_features=model.n_features_in_)
    return open_files(files, inputs, layout=layout, **more)


def accepts_nan(model: Any) -> bool:
    """Return whether the rows of a model may have NaN."""
    return bool(getattr(model, "_takes_missing", False))


def column_options(inputs: InputOptions) -> dict[str, Any]:
    """Return the input options that decide the columns."""
    return {name: getattr(inputs, name) for name in COLUMN_OPTIONS}


def require_labels(block: Block, files: list[str], stream: Stream) -> None:
    """Raise if the rows of a block have no labels."""
    if block.y is None:
        names = [stream.feature_name(column) for column in range(min(stream.n_features, 20))]
        raise ValueError(f"{files[0]} has no labels. Name their column with --target: {', '.join(names)}, ...")


def require_numeric_labels(block: Block) -> None:
    """Raise if labels are text, for a regression."""
    if block.y.dtype.kind not in "iuf":
        raise ValueError(f"A regression needs numbers as labels, got {block.y[0]!r}.")


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


def require_writable(path: Path) -> None:
    """Raise now, rather than after a long pass, if a file cannot be written."""
    folder = Path(os.path.realpath(path)).parent
    if path.is_symlink() and not path.exists() and os.path.islink(os.path.realpath(path)):
        raise OSError(f"{path} is a symbolic link to itself.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory. Name a file.")
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no directory {folder} to write {path.name} to.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"The directory {folder} is not writable.")


@contextlib.contextmanager
def open_output(path: Path | None) -> Iterator[Any]:
    """Yield a binary file that replaces `path` when it is complete; standard output if there is no path."""
    if path is None or str(path) == "-":
        if sys.stdout is None:
            raise OSError("Standard output is closed.")
        yield sys.stdout.buffer
        with write_errors("Standard output"):
            sys.stdout.buffer.flush()
        return
    with replacing(path) as file:
        yield file
        with write_errors(path):
            file.flush()
