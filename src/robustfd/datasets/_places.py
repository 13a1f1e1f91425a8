"""Where files are looked for, and how copies of them are opened: plain, compressed or in a zip archive."""

import bz2
import gzip
import lzma
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from robustfd.datasets._errors import DatasetError
from robustfd.datasets.registry import File

OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}


def cache_folder() -> Path:
    """Return the folder that downloads go to, by the convention of the platform; it need not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "robustfd" / "Cache" / "datasets"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "robustfd" / "datasets"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "robustfd" / "datasets"


def stored_name(file: File, address: str) -> str:
    """Return the name under which what an address leads to is kept: nothing is unpacked."""
    published = PurePosixPath(unquote(urlsplit(address).path)).name
    suffix = PurePosixPath(published).suffix
    if suffix == ".zip":
        return published
    return file.name + (suffix if suffix in OPENERS else "")


def accepted_names(file: File) -> list[str]:
    """Return the names under which a copy of a file is looked for, in this order."""
    archives = [stored_name(file, address) for address in file.addresses]
    return [file.name, *(file.name + suffix for suffix in OPENERS), *(a for a in archives if a.endswith(".zip"))]


def find(file: File, folder: Path) -> Path | None:
    """Return the copy of a file that a folder has, or None."""
    return next((path for name in accepted_names(file) if (path := folder / name).is_file()), None)


@contextmanager
def open_copy(path: Path, file: File) -> Iterator[IO[bytes]]:
    """Yield the plain content of a copy as a stream."""
    if path.suffix == ".zip" and path.name != file.name:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if PurePosixPath(m.filename).name == file.name and not m.is_dir()]
            if len(members) != 1:
                raise DatasetError(f"{path} has {len(members)} files named {file.name}; it should have one.")
            with archive.open(members[0]) as stream:
                yield stream
    else:
        opener = OPENERS.get(path.suffix, open) if path.name != file.name else open
        with opener(path, "rb") as stream:
            yield stream
