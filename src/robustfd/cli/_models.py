"""Sketches and models from files, and the names of their columns."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from robustfd._container import SnapshotError, load_with_notes
from robustfd.cli._options import InputOptions, Missing


class LoadedFile(NamedTuple):
    """A sketch or model from a file."""

    model: Any
    layout: dict[str, Any] | None  # of its columns, if the command line wrote the file
    missing: Any  # the --missing option of the command that wrote it, or None
    notes: dict[str, Any]


def load_file(path: Path, wanted: Literal["sketch", "learner", "any"] = "any") -> LoadedFile:
    """Return the sketch or model in a file; raise if it is not of the wanted kind."""
    try:
        model, notes = load_with_notes(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error
    found = "sketch" if is_sketch(sketch_of(model)) else "learner"
    if wanted not in ("any", found):
        made_by = {"sketch": "sketch", "learner": "train"}[wanted]
        raise ValueError(f"{path} holds a {type(model).__name__}. Give a file that `robustfd {made_by}` wrote.")
    layout = notes.get("layout")
    return LoadedFile(model, layout if isinstance(layout, dict) else None, notes.get("missing"), notes)


def load_learner(path: Path, inputs: InputOptions) -> tuple[LoadedFile, InputOptions]:
    """Return a learner, and the input options with the --missing that it was trained with as the default."""
    loaded = load_file(path, "learner")
    if inputs.missing is None and loaded.missing in tuple(Missing):
        inputs = replace(inputs, missing=Missing(loaded.missing))
    return loaded, inputs


def is_sketch(model: Any) -> bool:
    """Return whether this is a sketch rather than a learner."""
    return hasattr(model, "second_moment")


def sketch_of(model: Any) -> Any:
    """Return the sketch inside an estimator; any other model unchanged."""
    return model.sketch_ if hasattr(model, "sketch_") and not is_sketch(model) else model


def without_labels(layout: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a layout of a table that does not require the columns of labels and weights."""
    if layout is not None and layout.get("kind") == "interactions" and isinstance(layout.get("of"), dict):
        return layout | {"of": without_labels(layout["of"])}
    if layout is None or layout.get("kind") != "table":
        return layout
    return {name: value for name, value in layout.items() if name not in ("target", "weight")}


def column_names(model: Any, layout: dict[str, Any] | None) -> Callable[[int], str]:
    """Return a function from column numbers to names."""
    from robustfd.streams import namer

    names = getattr(model, "feature_names_in_", None)
    if layout is not None:
        return namer(layout)
    return lambda column: str(column if names is None else names[column])
