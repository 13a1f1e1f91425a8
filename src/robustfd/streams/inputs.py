"""Sources of bytes, compressed or not, their text in chunks of whole lines, and positions in them."""

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from robustfd._core import count_letter

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 26  # bytes, the default of max_line_bytes
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8, at the start of a file

_MAGIC: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lambda file: _Xz(file),
}
_BUFFER_BYTES = 1 << 20
_XZ_BYTES = 1 << 27  # memory of the decompressor; `xz -9` needs half of it


class StreamError(ValueError):
    """Rows that cannot be read. The message names the file, the line and the problem."""


@dataclass(frozen=True)
class Position:
    """A position in a stream, between two rows."""

    file: int = 0  # index of the input
    offset: int = 0  # bytes of its uncompressed text, or rows, read so far
    line: int = 0  # lines of this input read so far
    rows: int = 0  # rows of all inputs so far
    stored: int = 0  # stored bytes of all inputs so far, for progress bars
    skipped: int = 0  # bad rows of all inputs so far
    dropped: int = 0  # dropped entries (unknown features) of all inputs so far
    checksum: str = ""  # of all rows so far

    def to_json(self) -> dict[str, int | str]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> "Position":
        """Return the position in a JSON object; raise `StreamError` if it is invalid."""
        names = cls.__dataclass_fields__
        if not isinstance(document, dict) or any(
            name not in names or type(value) is not type(names[name].default) or (type(value) is int and value < 0)
            for name, value in document.items()
        ):
            raise StreamError(f"{document!r:.100} is not a position of a stream.")
        return cls(**document)


class Input:
    """One source of bytes: a path, "-" for standard input, or a binary file that is open for reading."""

    def __init__(self, source: Any):
        self.path: Path | None = None
        self._file: Any = None
        self._raw: Any = None
        self.size: int | None = None  # stored bytes, when the file was opened
        self._owned = False  # whether this object opened a file that can be read only once
        if isinstance(source, str) and source == "-":
            if sys.stdin is None:
                raise OSError("Standard input is closed.")
            self.name, self._file = "standard input", sys.stdin.buffer
        elif hasattr(source, "read"):
            self.name, self._file = str(getattr(source, "name", "<file object>")), source
            if isinstance(source, io.TextIOBase):
                raise TypeError(f"{self.name} is open in text mode. Open it in binary mode: open(path, 'rb').")
        else:
            path = Path(os.fsdecode(source))
            self.name, status = str(path), path.stat()  # raises if the file does not exist
            if stat.S_ISREG(status.st_mode):
                self.path, self.size = path, status.st_size
            elif stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(f"{self.name} is a directory.")
            else:  # a named pipe, which can be opened only once
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

    def head(self, count: int, *, line: bool = False) -> bytes:
        """Return the first bytes of the uncompressed content without consuming them.

        With `line`, stop after the first line: more data may arrive late in a pipe.
        """
        with self.opened() as file:
            found = bytearray()
            try:
                while len(found) < count and (piece := file.read1(min(count - len(found), _BUFFER_BYTES))):
                    found += piece
                    if line and b"\n" in piece:
                        break
            except Exception as error:
                if not found or not is_damage(error):  # otherwise the error is raised when the damaged part is read
                    raise
        if self.path is None:
            self._raw = io.BufferedReader(_Joined(bytes(found), file, owned=True), _BUFFER_BYTES)
        return bytes(found)

    @contextmanager
    def opened(self) -> Iterator[io.BufferedReader]:
        """Yield the uncompressed content from the start. Input that can be read only once continues where it was.

        Errors of a decompressor, also those raised in the context, become `StreamError`.
        """
        try:
            if self.path is None:
                if self._raw is None:
                    self._raw = _plain(io.BufferedReader(_Joined(b"", self._file, owned=self._owned), _BUFFER_BYTES))
                yield self._raw
            else:
                with open(self.path, "rb", buffering=_BUFFER_BYTES) as self._file, _plain(self._file) as plain:
                    yield plain
        except Exception as error:
            if isinstance(error, lzma.LZMAError) and "limit" in str(error):
                raise StreamError(
                    f"{self.name} takes more than {_XZ_BYTES} bytes of memory to decompress. Decompress it with xz."
                ) from error
            if is_damage(error):
                raise StreamError(f"{self.name} is damaged or truncated: {error}") from error
            raise

    def stored_position(self) -> int:
        """Return the number of stored bytes read so far."""
        try:
            return int(self._file.tell())
        except (OSError, AttributeError, ValueError):
            return 0


class _Joined(io.RawIOBase):
    """Some bytes, followed by those of a file. Closing it closes the file only if it is `owned`."""

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


class _Xz(io.RawIOBase):
    """The uncompressed content of a file of xz. `lzma.LZMAFile` would use as much memory as the file asks for."""

    def __init__(self, file: Any):
        self._file, self._decoder = file, lzma.LZMADecompressor(memlimit=_XZ_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = b""
        while not piece:
            data = b""
            if self._decoder.eof or self._decoder.needs_input:
                data = (self._decoder.eof and self._decoder.unused_data) or self._file.read1(_BUFFER_BYTES)
                if self._decoder.eof:
                    if not data.startswith(b"\xfd7zXZ"):  # not another stream
                        return 0
                    self._decoder = lzma.LZMADecompressor(memlimit=_XZ_BYTES)
                if not data:
                    raise EOFError("the compressed data ends too early")
            piece = self._decoder.decompress(data, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def is_damage(error: Exception) -> bool:
    """Return whether this is the error of a decompressor about truncated or damaged data."""
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError | gzip.BadGzipFile) or (
        isinstance(error, OSError) and error.errno is None
    )


def _plain(file: Any) -> Any:
    """Return a file of the uncompressed content. The first bytes decide whether it is compressed."""
    head = file.peek(6)
    for magic, opener in _MAGIC.items():
        if head.startswith(magic):
            return io.BufferedReader(opener(file), _BUFFER_BYTES)
    return file


class Chunk(NamedTuple):
    """Whole lines, each with its line feed. The text is valid only until the next chunk is read."""

    file: int
    text: memoryview
    first: int  # the number of lines before it
    end: Position  # of the text: file, offset, line and stored bytes


def last_line_end(text: bytearray, size: int) -> int:
    """Return the end of the last whole line of text[:size], 0 if there is none."""
    return text.rfind(b"\n", 0, size) + 1


Cut = Callable[[bytearray, int], int]


def chunks(inputs: Sequence[Input], size: int, longest: int, cut: Cut = last_line_end) -> Generator[Chunk, None, None]:
    """Yield the lines of all inputs, about `size` bytes at a time; raise if one has more than `longest` bytes."""
    for file in range(len(inputs)):
        yield from chunks_of(inputs, file, size, longest, cut)


def chunks_of(inputs: Sequence[Input], file: int, size: int, longest: int, cut: Cut = last_line_end) -> Iterator[Chunk]:
    """Yield the lines of one of the inputs; `cut` finds the end of a chunk."""
    source, before = inputs[file], stored_before(inputs, file)
    buffer, held = bytearray(size), 0
    offset = line = 0
    with source.opened() as opened:
        while True:
            with memoryview(buffer) as free:
                got = opened.readinto(free[held:-1])
            held += got
            end = cut(buffer, held) if got else held
            if not got and held and buffer[held - 1] != ord("\n"):  # the last line may lack a line feed
                buffer[held] = ord("\n")
                end += 1
            if end:
                begin = len(BYTE_ORDER_MARK) if offset == 0 and buffer.startswith(BYTE_ORDER_MARK) else 0
                offset += min(end, held)
                text = memoryview(buffer)[begin:end]
                after = line + count_letter(text, ord("\n"))
                yield Chunk(file, text, line, Position(file, offset, after, stored=before + source.stored_position()))
                text.release()
            if not got:
                return
            if end:
                buffer[: held - end] = buffer[end:held]
                held, line = held - end, after
            elif held == len(buffer) - 1:
                if held >= longest:
                    raise endless(source.name, line, buffer, longest)
                buffer.extend(bytes(min(len(buffer), longest + 1 - held)))


def endless(name: str, line: int, text: Any, longest: int) -> StreamError:
    """Return the error about a line that is too long, after so many lines."""
    return StreamError(
        f"{name}, line {line + 1}: no line feed in {longest} bytes, so this may not be text. It starts with "
        f"{shown(text)}. If it is a line, raise max_line_bytes (--max-line-bytes), which is {longest}."
    )


def stored_before(inputs: Sequence[Input], file: int) -> int:
    """Return the number of stored bytes of the inputs before this one."""
    return sum(each.size or 0 for each in inputs[:file])


def shown(text: Any, most: int = 80) -> str:
    """Return the start of a line as printable text."""
    line = bytes(text[: 4 * most]).split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
    return repr(line[:most]) + ("..." if len(line) > most else "")
