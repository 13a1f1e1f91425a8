"""Text inputs in chunks of whole lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from robustfd._core import count_letter
from robustfd.streams._base import Position
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input, is_damage

LONGEST_LINE = 1 << 28
MARK = b"\xef\xbb\xbf"  # the UTF-8 byte order mark at the start of a file


class Chunk(NamedTuple):
    """Whole lines, each with its line feed. The text is valid only until the next chunk is read."""

    file: int
    text: memoryview
    first: int  # the number of lines before it
    lines: int
    offset: int  # end of the text in the uncompressed content
    stored: int  # stored bytes of all inputs up to here


def last_line_end(text: bytearray, size: int) -> int:
    """Return the end of the last whole line of text[:size], 0 if there is none."""
    return text.rfind(b"\n", 0, size) + 1


Cut = Callable[[bytearray, int], int]


def chunks(inputs: Sequence[Input], start: Position, size: int, cut: Cut = last_line_end) -> Iterator[Chunk]:
    """Yield the lines of inputs after a position, about `size` bytes at a time; `cut` finds the end of a chunk."""
    stored = sum(each.size or 0 for each in inputs[: start.file])
    for k in range(start.file, len(inputs)):
        offset, line = (start.offset, start.line) if k == start.file else (0, 0)
        with undamaged(inputs[k]), inputs[k].opened() as file:
            _skip(file, offset, inputs[k].name)
            for text, end, added in _lines_of(file, inputs[k].name, line, size, cut):
                begin = len(MARK) if offset == 0 and text[:3] == MARK else 0
                offset += end - added
                view = memoryview(text)[begin:end]
                lines = count_letter(view, ord("\n"))
                yield Chunk(k, view, line, lines, offset, stored + inputs[k].stored_position())
                view.release()
                line += lines
        stored += inputs[k].size or 0


@contextmanager
def undamaged(source: Input) -> Iterator[None]:
    """Raise `StreamError` for errors of a decompressor about truncated or damaged data."""
    try:
        yield
    except Exception as error:
        if is_damage(error):
            raise StreamError(f"{source.name} is damaged or truncated: {error}") from error
        raise


def _lines_of(file: Any, name: str, line: int, size: int, cut: Cut) -> Iterator[tuple[bytearray, int, int]]:
    """Yield whole lines of one file: a reused buffer, the end of the lines in it, and the number of added bytes."""
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
                    f"{name}, line {line + 1}: no line feed in {held} bytes, so this is not text. "
                    f"It starts with {shown(buffer)}."
                )
            buffer.extend(bytes(len(buffer)))
    if held:  # the last line may lack a line feed
        buffer[held] = 10
        yield buffer, held + 1, 1


def _skip(file: Any, offset: int, name: str) -> None:
    """Move to an offset in the uncompressed content."""
    if not offset:
        return
    changed = StreamError(f"{name} ends before byte {offset}, where reading should continue: it was changed.")
    left = offset
    if file.seekable():
        try:
            file.seek(offset - 1)
        except (OSError, ValueError) as error:
            if is_damage(error):
                raise
            raise changed from error  # larger than any file
        left = 1
    while left:
        got = file.read(min(left, 1 << 22))
        if not got:
            raise changed
        left -= len(got)
    if got[-1:] not in (b"\n", b"\r") and file.peek(1):  # only the last line of a file may lack a line feed
        raise StreamError(
            f"{name} has no line that starts at byte {offset}, where reading should continue: it was changed."
        )


def shown(text: Any, most: int = 80) -> str:
    """Return the start of a line as printable text."""
    line = bytes(text[: 4 * most]).split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
    return repr(line[:most]) + ("..." if len(line) > most else "")
