"""Reading of plain, compressed and zipped files with a checksum."""

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
# Errors that the four decompressors raise for truncated or damaged bytes. RuntimeError means an encrypted archive.
_DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError)


def read(path: Path, file: File, parse: Callable[[IO[bytes]], T], *, name: str | None = None) -> tuple[T, str]:
    """Return the result of `parse` for the uncompressed content of a file, and the sha256 of that content.

    The kind of compression follows from the file name, or from `name` while the file has a temporary name. A wrong
    checksum is an error and takes precedence over an error of `parse`.
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
        raise DatasetError(f"{path} is not valid: {failure}") from failure
    return result, found  # type: ignore[return-value]


def wrong_checksum(path: Path, file: File, expected: str, found: str) -> str:
    """Return the message for content with a wrong checksum."""
    return f"{path}: wrong checksum. The content of {file.name} has sha256 {found}, expected {expected}."


@contextmanager
def _plain(path: Path, name: str, file: File) -> Iterator[IO[bytes]]:
    """Yield the uncompressed content as a stream. Nothing is written to disk, so paths in an archive are never used."""
    if name == file.name or not name.endswith(".zip"):
        suffix = "" if name == file.name else PurePosixPath(name).suffix
        with _OPEN.get(suffix, open)(path, "rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if PurePosixPath(m.filename).name == file.name and not m.is_dir()]
        if len(members) != 1:
            raise DatasetError(f"{path} should have one file named {file.name}, got {len(members)}.")
        with archive.open(members[0]) as stream:
            yield stream


class _Hashing(io.RawIOBase):
    """A stream that computes the sha256 of the bytes read and raises if there are more than expected."""

    def __init__(self, content: IO[bytes], path: Path, file: File) -> None:
        self.content, self.path, self.file = content, path, file
        self.sha256, self.count = hashlib.sha256(), 0
        self.name = file.name  # for error messages of parsers

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.content.read(len(buffer))
        self.sha256.update(block)
        self.count += len(block)
        if self.file.size is not None and self.count > self.file.size:  # protects against decompression bombs
            raise DatasetError(
                f"{self.path}: {self.file.name} has more than the {self.file.size} bytes it should have."
            )
        buffer[: len(block)] = block
        return len(block)
