"""Files that were written before: sketches and learners, and how their columns are called."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from robustfd._container import SnapshotError, load_with_notes
from robustfd.cli._parameters import Reading
from robustfd.streams import Stream


def load_model(path: Path, wanted: Literal["sketch", "learner", "any"] = "any") -> tuple[Any, dict[str, Any] | None]:
    """Return what is in a file, and the layout of its columns if it was made by the command line."""
    model, layout, _ = load_model_and_notes(path)
    found = "sketch" if is_sketch(model) else "learner"
    if wanted not in ("any", found):
        made_by = {"sketch": "sketch", "learner": "train"}[wanted]
        raise ValueError(f"{path} holds a {type(model).__name__}; a file that `robustfd {made_by}` wrote is needed.")
    return model, layout


def is_sketch(model: Any) -> bool:
    """Return whether this is a sketch, and not a learner."""
    return hasattr(model, "second_moment")


def load_model_and_notes(path: Path) -> tuple[Any, dict[str, Any] | None, dict[str, Any]]:
    """Return what is in a file, the layout of its columns if there is one, and all that was noted beside."""
    try:
        model, notes = load_with_notes(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error
    layout = notes.get("layout")
    return model, layout if isinstance(layout, dict) else None, notes


def open_like(files: list[str], reading: Reading, model: Any, layout: dict[str, Any] | None, **more: Any) -> Stream:
    """Return the stream of files whose columns are to be those of a model; what it does not know is left out."""
    from robustfd.cli._pass import open_files

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
