"""Folders and file names to search, and instructions for a user who has no copy."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from robustfd.datasets._errors import DatasetError
from robustfd.datasets.registry import File

COMPRESSED = (".xz", ".bz2", ".gz")


def cache_folder() -> Path:
    """Return the folder for downloads, by the convention of the platform. It may not exist yet.

    See Also
    --------
    load : Load a data set.

    Examples
    --------
    >>> from robustfd import datasets
    >>> datasets.cache_folder().is_absolute()
    True
    """
    if sys.platform == "win32":
        return _base("LOCALAPPDATA", "AppData/Local") / "robustfd" / "Cache" / "datasets"
    if sys.platform == "darwin":
        return _base("", "Library/Caches") / "robustfd" / "datasets"
    return _base("XDG_CACHE_HOME", ".cache") / "robustfd" / "datasets"


def _base(variable: str, below_home: str) -> Path:
    """Return the folder in an environment variable, or one below the user's home."""
    if os.path.isabs(value := os.environ.get(variable, "")):  # the XDG specification says to ignore relative paths
        return Path(value)
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise DatasetError(f"There is no place for a cache: {error} Give the folder with folder=.") from error


def folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders to search, in order. Downloads go to the last one."""
    if folder is not None:
        return [Path(folder).expanduser()]
    data = os.environ.get("ROBUSTFD_DATA")
    return [*([Path(data).expanduser()] if data else []), cache_folder()]


def stored_name(file: File, address: str) -> str:
    """Return the name under which the download from an address is stored. Nothing is unpacked."""
    published = PurePosixPath(unquote(urlsplit(address).path))
    if published.suffix == ".zip":
        return published.name
    return file.name + (published.suffix if published.suffix in COMPRESSED else "")


def accepted_names(file: File) -> list[str]:
    """Return the file names to search for, in order."""
    stored = [stored_name(file, address) for address in file.addresses]
    archives = dict.fromkeys(name for name in stored if name.endswith(".zip"))
    return [file.name, *(file.name + suffix for suffix in COMPRESSED), *archives]


def find(file: File, places: Sequence[Path]) -> Path | None:
    """Return the first copy of a file in the folders, or None."""
    paths = (place / name for place in places for name in accepted_names(file))
    return next((path for path in paths if os.path.isfile(path)), None)


def how_to_get(file: File, places: Sequence[Path]) -> str:
    """Return instructions: which file to put where."""
    *most, last = accepted_names(file)
    return (
        f"To use your own copy, put {', '.join(most)} or {last} into the folder {places[-1]}, or into the folder named "
        f"by the environment variable ROBUSTFD_DATA. Published at: {', '.join(file.addresses)}"
    )
