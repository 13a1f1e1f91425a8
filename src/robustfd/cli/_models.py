"""Files that were written before: sketches and learners, and how their columns are called."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from robustfd._container import SnapshotError, load_with_notes
from robustfd.cli._parameters import Missing, Reading
from robustfd.streams import Stream


def load_model(path: Path, wanted: Literal["sketch", "learner", "any"] = "any") -> tuple[Any, dict[str, Any] | None]:
    """Return what is in a file, and the layout of its columns if it was made by the command line."""
    model, layout, _ = load_model_and_notes(path, wanted)
    return model, layout


def _require_kind(path: Path, model: Any, wanted: str) -> None:
    """Raise if this is a learner, and a sketch is wanted, or the other way round."""
    found = "sketch" if is_sketch(sketch_of(model)) else "learner"
    if wanted not in ("any", found):
        made_by = {"sketch": "sketch", "learner": "train"}[wanted]
        raise ValueError(f"{path} holds a {type(model).__name__}; a file that `robustfd {made_by}` wrote is needed.")


def is_sketch(model: Any) -> bool:
    """Return whether this is a sketch, and not a learner."""
    return hasattr(model, "second_moment")


def sketch_of(model: Any) -> Any:
    """Return the sketch that an estimator keeps of its rows; a model of another kind as it is."""
    return model.rfd_ if hasattr(type(model), "rfd_") else model


def load_model_and_notes(path: Path, wanted: str = "any") -> tuple[Any, dict[str, Any] | None, dict[str, Any]]:
    """Return what is in a file, the layout of its columns if there is one, and all that was noted beside."""
    try:
        model, notes = load_with_notes(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error
    _require_kind(path, model, wanted)
    layout = notes.get("layout")
    return model, layout if isinstance(layout, dict) else None, notes


def load_learner(path: Path, reading: Reading) -> tuple[Any, dict[str, Any] | None, Reading]:
    """Return a learner, the layout of its columns, and how files are read for it: as before, unless it is said."""
    model, layout, notes = load_model_and_notes(path, "learner")
    kept = notes.get("missing")
    if reading.missing is None and kept in tuple(Missing):
        reading = replace(reading, missing=Missing(kept))
    return model, layout, reading


def takes_missing(model: Any) -> bool:
    """Return whether rows of a model may have NaN."""
    return bool(model.__sklearn_tags__().input_tags.allow_nan)


def without_labels(layout: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the layout of a table that is read for its features and ids only, whatever its other columns hold."""
    if layout is not None and layout.get("kind") == "interactions" and isinstance(layout.get("of"), dict):
        return layout | {"of": without_labels(layout["of"])}
    if layout is None or layout.get("kind") != "table":
        return layout
    return {name: value for name, value in layout.items() if name not in ("target", "weight")}


def open_like(files: list[str], reading: Reading, model: Any, layout: dict[str, Any] | None, **more: Any) -> Stream:
    """Return the stream of files whose columns are to be those of a model; what it does not know is left out."""
    from robustfd.cli._pass import open_files

    more["takes_missing"] = takes_missing(model)
    if layout is not None:
        return open_files(files, reading, layout=layout, unseen="drop", **more)
    return open_files(files, replace(reading, n_features=model.n_features_in_), unseen="drop", **more)


def require_folder(path: Path) -> None:
    """Raise now rather than after hours if a file cannot be written there."""
    folder = Path(os.path.realpath(path)).parent
    if path.is_symlink() and not path.exists() and os.path.islink(os.path.realpath(path)):
        raise OSError(f"{path} is a link that leads back to itself.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; the name of a file is needed.")
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no directory {folder} to write {path.name} to.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"The directory {folder} cannot be written to.")


def column_names(model: Any, layout: dict[str, Any] | None) -> Any:
    """Return a function that returns what a column is called."""
    from robustfd.streams import namer

    names = getattr(model, "feature_names_in_", None)
    if layout is not None:
        return namer(layout)
    return lambda column: str(column if names is None else names[column])
