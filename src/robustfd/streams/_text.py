"""Inputs of lines, cut into chunks of whole ones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from robustfd.streams._base import Position
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input, damage

LONGEST_LINE = 1 << 28
MARK = b"\xef\xbb\xbf"  # of UTF-8, in front of a file


class Chunk(NamedTuple):
    """Whole lines, each with its line feed. The text is there only until the next chunk is asked for."""

    file: int
    text: memoryview
    first: int  # the number of the line in front of it
    lines: int
    offset: int  # where the text ends in the plain content
    stored: int  # bytes of all inputs up to here, as stored


def last_line_end(text: bytearray, size: int) -> int:
    """Return where the last whole line of text[:size] ends, 0 if there is none."""
    return text.rfind(b"\n", 0, size) + 1


Cut = Callable[[bytearray, int], int]


def chunks(inputs: Sequence[Input], start: Position, size: int, cut: Cut = last_line_end) -> Iterator[Chunk]:
    """Yield the lines of inputs after a position, about so many bytes at a time; `cut` says where one may end."""
    stored = sum(each.size or 0 for each in inputs[: start.file])
    for k in range(start.file, len(inputs)):
        offset, line = (start.offset, start.line) if k == start.file else (0, 0)
        with undamaged(inputs[k]), inputs[k].opened() as file:
            _skip(file, offset, inputs[k].name)
            for text, end, added in _lines_of(file, inputs[k].name, line, size, cut):
                begin = len(MARK) if offset == 0 and text[:3] == MARK else 0
                lines = int(np.count_nonzero(np.frombuffer(text, np.uint8)[begin:end] == 10))  # much faster than count
                offset += end - added
                view = memoryview(text)[begin:end]
                yield Chunk(k, view, line, lines, offset, stored + inputs[k].stored_position())
                view.release()
                line += lines
        stored += inputs[k].size or 0


@contextmanager
def undamaged(source: Input) -> Iterator[None]:
    """Make a `StreamError` of what a decompressor raises for bytes that are cut short or changed."""
    try:
        yield
    except Exception as error:
        if damage(error):
            raise StreamError(f"{source.name} is damaged or cut short: {error}") from error
        raise


def _lines_of(file: Any, name: str, line: int, size: int, cut: Cut) -> Iterator[tuple[bytearray, int, int]]:
    """Yield whole lines of one file: a buffer, used again and again, how far it holds them, and bytes added to them."""
    buffer, held = bytearray(size), 0
    while True:
        with memoryview(buffer) as view:
            got = file.readinto(view[held:-1])
        held += got
        if not got:
            break
        end = cut(buffer, held)
        if end:
            yield buffer, end, 0
            buffer[: held - end] = buffer[end:held]
            held -= end
        elif held == len(buffer) - 1:
            if held > LONGEST_LINE:
                raise StreamError(
                    f"{name}, line {line + 1}: no line feed in {held} bytes, so this is no text of lines. "
                    f"It begins with {shown(buffer)}."
                )
            buffer.extend(bytes(len(buffer)))
    if held:  # the last line may have no line feed
        buffer[held] = 10
        yield buffer, held + 1, 1


def _skip(file: Any, offset: int, name: str) -> None:
    """Move to a place in the plain content."""
    if not offset:
        return
    changed = StreamError(f"{name} ends before byte {offset}, up to where it was read before: it was changed.")
    left = offset
    if file.seekable():
        try:
            file.seek(offset - 1)
        except (OSError, ValueError) as error:
            if damage(error):
                raise
            raise changed from error  # no file can be as long as that
        left = 1
    while left:
        got = file.read(min(left, 1 << 22))
        if not got:
            raise changed
        left -= len(got)
    if got[-1:] not in (b"\n", b"\r") and file.peek(1):  # only the last line of a file has no line feed
        raise StreamError(f"{name} has no line that begins at byte {offset}, up to where it was read: it was changed.")


def shown(text: Any, most: int = 80) -> str:
    """Return the beginning of a line as text that can be printed."""
    line = bytes(text[: 4 * most]).split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
    return repr(line[:most]) + ("..." if len(line) > most else "")
