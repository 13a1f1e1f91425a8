"""The files that a command reads and writes: no output may replace an input or another output."""

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def refuse_overlaps(reads: Iterable[Any], writes: Mapping[str, Any]) -> None:
    """Raise if a file to write, given by option name, is also a file to read or another file to write.

    Two paths, symbolic links or hard links to one file are the same file. Standard input, output and error count if
    they are files. A directory to read stands for the files in it, including a file that the command would add.
    """
    inputs = {str(each): _identities(each) | _identities_in(each) for each in reads}
    for option, path in writes.items():
        for name, identities in inputs.items():
            if _identities(path) & identities:
                what = "standard input" if name == "-" else "a file to read"
                raise ValueError(f"{path} is {what}, and {option} would replace it. Name another file.")
            if os.path.isdir(name) and _would_be_in(path, name):
                raise ValueError(
                    f"{path} is inside the input directory {name}; the next run would read it. Name another place."
                )
    for stream, label in (("stdout", "standard output"), ("stderr", "standard error")):
        for name, identities in inputs.items():
            if _identities_of_stream(stream) & identities:
                raise ValueError(f"{name} is a file to read, and {label} goes to it. Name another file.")
    seen: dict[Any, str] = {}
    for option, path in writes.items():
        for identity in _identities(path):
            if seen.setdefault(identity, option) != option:
                raise ValueError(f"{seen[identity]} and {option} are the same file, {path}. Each needs its own.")


def _would_be_in(path: Any, folder: str) -> bool:
    """Return whether a stream over the folder would read a file of this name."""
    place = Path(os.path.realpath(path))
    return str(place.parent) == os.path.realpath(folder) and not place.name.startswith((".", "_"))


def _identities(path: Any) -> set[Any]:
    """Return what identifies a file: its real path, and its device and inode if it exists."""
    if str(path) == "-":
        return _identities_of_stream("stdin")
    place = os.path.realpath(path)
    found: set[Any] = {place}
    with suppress(OSError):
        status = os.stat(place)
        if stat.S_ISCHR(status.st_mode):  # /dev/null or a terminal: writing there replaces nothing
            return set()
        found.add((status.st_dev, status.st_ino))
    return found


def _identities_in(folder: Any) -> set[Any]:
    """Return what identifies the files in a directory; nothing if this is no directory."""
    if not os.path.isdir(folder):
        return set()
    return {identity for each in Path(folder).iterdir() if each.is_file() for identity in _identities(each)}


def _identities_of_stream(name: str) -> set[Any]:
    """Return the device and inode of a standard stream that is redirected to a regular file."""
    with suppress(OSError, ValueError, AttributeError):  # the stream may be closed or have no file descriptor
        status = os.fstat(getattr(sys, name).fileno())
        if stat.S_ISREG(status.st_mode):
            return {(status.st_dev, status.st_ino)}
    return set()
