"""Where files are looked for, under which names, and what to tell a user who has none of them."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from robustfd.datasets._errors import DatasetError
from robustfd.datasets.registry import File

COMPRESSED = (".xz", ".bz2", ".gz")


def cache_folder() -> Path:
    """Return the folder that downloads go to, by the convention of the platform; it need not exist yet."""
    if sys.platform == "win32":
        return _base("LOCALAPPDATA", "AppData/Local") / "robustfd" / "Cache" / "datasets"
    if sys.platform == "darwin":
        return _base("", "Library/Caches") / "robustfd" / "datasets"
    return _base("XDG_CACHE_HOME", ".cache") / "robustfd" / "datasets"


def _base(variable: str, below_home: str) -> Path:
    """Return the folder that an environment variable names, or one below the user's home."""
    if os.path.isabs(value := os.environ.get(variable, "")):  # XDG: a relative path is to be ignored
        return Path(value)
    try:
        return Path.home() / below_home
    except RuntimeError as error:
        raise DatasetError(f"There is no place for a cache: {error} Say where the files are with folder=.") from error


def folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders to look into, in this order; downloads go to the last."""
    if folder is not None:
        return [Path(folder).expanduser()]
    data = os.environ.get("ROBUSTFD_DATA")
    return [*([Path(data).expanduser()] if data else []), cache_folder()]


def stored_name(file: File, address: str) -> str:
    """Return the name under which what an address leads to is kept; nothing is unpacked."""
    published = PurePosixPath(unquote(urlsplit(address).path))
    if published.suffix == ".zip":
        return published.name
    return file.name + (published.suffix if published.suffix in COMPRESSED else "")


def accepted_names(file: File) -> list[str]:
    """Return the names under which a copy of a file is looked for, in this order."""
    stored = [stored_name(file, address) for address in file.addresses]
    archives = dict.fromkeys(name for name in stored if name.endswith(".zip"))
    return [file.name, *(file.name + suffix for suffix in COMPRESSED), *archives]


def find(file: File, places: Sequence[Path]) -> Path | None:
    """Return the first copy of a file that the folders have, or None."""
    paths = (place / name for place in places for name in accepted_names(file))
    return next((path for path in paths if os.path.isfile(path)), None)


def how_to_get(file: File, places: Sequence[Path]) -> str:
    """Return which file to put where."""
    *most, last = accepted_names(file)
    return (
        f"To use a copy of your own, put {', '.join(most)} or {last} into the folder {places[-1]}, or into one that "
        f"the environment variable ROBUSTFD_DATA names. Published at: {', '.join(file.addresses)}"
    )
