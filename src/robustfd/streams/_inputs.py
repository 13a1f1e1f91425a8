"""Files, standard input and open files: bytes, whether they are compressed or not."""

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MAGIC: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_AT_ONCE = 1 << 20


class Input:
    """One source of bytes: a path, "-" for standard input, or a file open for reading in binary."""

    def __init__(self, source: Any):
        self.path: Path | None = None
        self._file: Any = None
        self._raw: Any = None
        self.size: int | None = None  # in bytes, as stored, when it was found
        self._owned = False  # whether a file that can be read only once was opened here
        if isinstance(source, str) and source == "-":
            if sys.stdin is None:
                raise OSError("Standard input is closed.")
            self.name, self._file = "standard input", sys.stdin.buffer
        elif hasattr(source, "read"):
            self.name, self._file = str(getattr(source, "name", "<file object>")), source
            if isinstance(source, io.TextIOBase):
                raise TypeError(f"{self.name} is open for reading text; open it in binary: open(path, 'rb').")
        else:
            path = Path(os.fsdecode(source))
            self.name, status = str(path), path.stat()  # raises now if it is not there
            if stat.S_ISREG(status.st_mode):
                self.path, self.size = path, status.st_size
            elif stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(f"{self.name} is a directory.")
            else:  # a named pipe: it can be opened only once
                self._file, self._owned = open(path, "rb"), True  # noqa: SIM115

    @property
    def can_be_reread(self) -> bool:
        """Whether it is a regular file."""
        return self.path is not None

    @property
    def is_plain(self) -> bool:
        """Whether it is a regular file that is not compressed."""
        if self.path is None:
            return False
        with open(self.path, "rb") as file:
            return not file.read(6).startswith(tuple(_MAGIC))

    def require_rereading(self) -> None:
        """Raise unless it can be read more than once."""
        if not self.can_be_reread:
            raise ValueError(
                f"{self.name} can be read only once, and this needs a pass over it beforehand. "
                "Say what that would tell (n_features or hash_bits, classes), or read from a file."
            )

    def head(self, count: int, *, line: bool = False) -> bytes:
        """Return the first bytes of the plain content, and leave it as if they had not been read.

        With `line` the first line will do: whoever writes to a pipe may take a while for more.
        """
        with self.opened() as file:
            found = bytearray()
            try:
                while len(found) < count and (piece := file.read1(min(count - len(found), _AT_ONCE))):
                    found += piece
                    if line and b"\n" in piece:
                        break
            except Exception as error:
                if not found or not damage(error):  # else what is behind them is for the reader to complain about
                    raise
        if self.path is None:
            self._raw = io.BufferedReader(_Joined(bytes(found), file, owned=True), _AT_ONCE)
        return bytes(found)

    @contextmanager
    def opened(self) -> Iterator[io.BufferedReader]:
        """Yield its plain content, at the beginning; what can be read only once goes on where it was."""
        if self.path is None:
            if self._raw is None:
                self._raw = _plain(io.BufferedReader(_Joined(b"", self._file, owned=self._owned), _AT_ONCE))
            yield self._raw
        else:
            with open(self.path, "rb", buffering=_AT_ONCE) as self._file, _plain(self._file) as plain:
                yield plain

    def stored_position(self) -> int:
        """Return how many bytes were read of it, as stored."""
        try:
            return int(self._file.tell())
        except (OSError, AttributeError, ValueError):
            return 0


class _Joined(io.RawIOBase):
    """Some bytes, and then those of a file, which stays open when this is closed if it is somebody else's."""

    def __init__(self, head: bytes, file: Any, *, owned: bool):
        self._head, self._file, self._owned = memoryview(head), file, owned

    def close(self) -> None:
        if self._owned and not self.closed:
            self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count], self._head = self._head[:count], self._head[count:]
            return count
        piece = getattr(self._file, "read1", self._file.read)(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def damage(error: Exception) -> bool:
    """Return whether this is what a decompressor raises for bytes that are cut short or changed."""
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError | gzip.BadGzipFile) or (
        isinstance(error, OSError) and error.errno is None
    )


def _plain(file: Any) -> Any:
    """Return a file of the plain content of one that may be compressed, which its first bytes tell."""
    head = file.peek(6)
    for magic, opener in _MAGIC.items():
        if head.startswith(magic):
            return io.BufferedReader(opener(file), _AT_ONCE)
    return file
