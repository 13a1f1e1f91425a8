"""Which files a command reads and which it writes: no result takes the place of what is read, or of another result."""

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any


class Use(Enum):
    """What a command does with the file that a parameter names: a part of the parameter's annotation."""

    READ = "read"
    WRITE = "write"


READ, WRITE = Use.READ, Use.WRITE


def refuse_overlaps(reads: Iterable[Any], writes: Mapping[str, Any]) -> None:
    """Raise if a file to write, by the name of its option, is one to read or another one to write.

    Names, symbolic links and hard links of one file are the same. Standard input, output and error count too where they
    are files. A directory to read stands for its files, and for what would be among them the next time.
    """
    known = {str(each): _identities(each) | _identities_in(each) for each in reads}
    for option, path in writes.items():
        for name, identities in known.items():
            if _identities(path) & identities:
                what = "standard input" if name == "-" else "a file to read"
                raise ValueError(f"{path} is {what}, and {option} would take its place. Name another file.")
            if os.path.isdir(name) and _would_be_in(path, name):
                raise ValueError(f"{path} would be one of the files to read in {name} next time. Name another place.")
    for stream, said in (("stdout", "standard output"), ("stderr", "standard error")):
        for name, identities in known.items():
            if _identities_of_stream(stream) & identities:
                raise ValueError(f"{name} is a file to read, and {said} goes to it. Name another file.")
    _refuse_equal(writes)


def _would_be_in(path: Any, folder: str) -> bool:
    """Return whether a stream of the folder would have a file of this name, once it is written."""
    place = Path(os.path.realpath(path))
    return str(place.parent) == os.path.realpath(folder) and not place.name.startswith((".", "_"))


def _refuse_equal(writes: Mapping[str, Any]) -> None:
    """Raise if two files to write are one."""
    seen: dict[Any, str] = {}
    for option, path in writes.items():
        for identity in _identities(path):
            if seen.setdefault(identity, option) != option:
                raise ValueError(f"{seen[identity]} and {option} are the same file, {path}. Each needs its own.")


def _identities(path: Any) -> set[Any]:
    """Return what tells a file from others: where its name leads to, and its inode."""
    if str(path) == "-":
        return _identities_of_stream("stdin")
    place = os.path.realpath(path)
    found: set[Any] = {place}
    with suppress(OSError):
        status = os.stat(place)
        if stat.S_ISCHR(status.st_mode):  # /dev/null, or a terminal: nothing there takes the place of anything
            return set()
        found.add((status.st_dev, status.st_ino))
    return found


def _identities_in(folder: Any) -> set[Any]:
    """Return the same of the files of a directory; nothing if it is none."""
    if not os.path.isdir(folder):
        return set()
    return {identity for each in Path(folder).iterdir() if each.is_file() for identity in _identities(each)}


def _identities_of_stream(name: str) -> set[Any]:
    """Return the inode of a standard stream, if it is a file."""
    with suppress(OSError, ValueError, AttributeError):  # it may be closed, or no file of the system's
        status = os.fstat(getattr(sys, name).fileno())
        if stat.S_ISREG(status.st_mode):
            return {(status.st_dev, status.st_ino)}
    return set()
