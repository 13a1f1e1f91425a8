"""The content of a copy: opened whether plain, compressed or in a zip archive, and read with its checksum taken."""

import bz2
import gzip
import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from robustfd.datasets._errors import DatasetError
from robustfd.datasets.registry import File

T = TypeVar("T")

BLOCK = 1 << 20
_OPEN: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".bz2": bz2.open, ".gz": gzip.open}
# What the four decompressors raise for bytes that are cut short or changed; RuntimeError: an encrypted archive.
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError)


def read(path: Path, file: File, parse: Callable[[IO[bytes]], T], *, name: str | None = None) -> tuple[T, str]:
    """Return what `parse` makes of the plain content of a copy, and the sha256 of all of that content.

    The kind of the copy follows from its name, or from `name` if it is not yet called what it will be. A checksum that
    is not the registry's is an error, and one that matters more than what `parse` has to complain about.
    """
    failure, result = None, None
    try:
        with _plain(path, name or path.name, file) as content:
            hashing = _Hashing(content, path, file)
            stream = io.BufferedReader(hashing, BLOCK)
            try:
                result = parse(stream)
            except (ValueError, OverflowError, IndexError) as error:
                if isinstance(error, OSError):
                    raise
                failure = error
            while stream.read(BLOCK):
                pass
    except DatasetError:
        raise
    except _DAMAGE as error:
        raise DatasetError(f"{path} cannot be read, or is damaged: {error}") from error
    found = hashing.sha256.hexdigest()
    if file.sha256 is not None and found != file.sha256:
        raise DatasetError(wrong_checksum(path, file, file.sha256, found))
    if failure is not None:
        raise DatasetError(f"{path} is not what it should be: {failure}") from failure
    return result, found  # type: ignore[return-value]


def wrong_checksum(path: Path, file: File, expected: str, found: str) -> str:
    """Return what there is to say about content that is not the expected."""
    return f"{path}: wrong checksum. The content of {file.name} has sha256 {found}, expected {expected}."


@contextmanager
def _plain(path: Path, name: str, file: File) -> Iterator[IO[bytes]]:
    """Yield the plain content of a copy as a stream. Nothing is unpacked, so no path in an archive is ever used."""
    if name == file.name or not name.endswith(".zip"):
        suffix = "" if name == file.name else PurePosixPath(name).suffix
        with _OPEN.get(suffix, open)(path, "rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if PurePosixPath(m.filename).name == file.name and not m.is_dir()]
        if len(members) != 1:
            raise DatasetError(f"{path} should have one file named {file.name}, and has {len(members)}.")
        with archive.open(members[0]) as stream:
            yield stream


class _Hashing(io.RawIOBase):
    """A stream that takes the sha256 of whatever is read from it, and ends when that is more than there should be."""

    def __init__(self, content: IO[bytes], path: Path, file: File) -> None:
        self.content, self.path, self.file = content, path, file
        self.sha256, self.count = hashlib.sha256(), 0
        self.name = file.name  # for messages of who reads it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.content.read(len(buffer))
        self.sha256.update(block)
        self.count += len(block)
        if self.file.size is not None and self.count > self.file.size:  # a few bytes may unpack to any number
            raise DatasetError(
                f"{self.path}: {self.file.name} has more than the {self.file.size} bytes it should have."
            )
        buffer[: len(block)] = block
        return len(block)
