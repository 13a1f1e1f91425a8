"""The common base of LIBSVM and Vowpal Wabbit text: features are numbered, or named and hashed."""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd.streams import _parse
from robustfd.streams._base import Block, Position, Stream, Survey, finite_rows
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._text import Chunk, chunks, shown
from robustfd.streams.limits import DEFAULT_BITS, MOST_BITS


class Parsed(NamedTuple):
    """The output of a compiled loop for a chunk; `heads` has HEAD numbers per row, the first one the label."""

    found: Any
    heads: Any
    ends: Any
    columns: Any
    values: Any
    bad: Any
    slow: Any
    marks: Any = None  # for each entry, the bits of the groups it belongs to


class IndexedTextStream(Stream):
    """Rows of text as CSR matrices with n_features or 2^hash_bits columns."""

    KIND: ClassVar[str]
    MARK: ClassVar[int]  # the byte that may end a number, in addition to blanks
    HEAD: ClassVar[int] = 1  # numbers per row in `heads`
    WRONG: ClassVar[dict[int, str]]
    HARMLESS: ClassVar[tuple[int, ...]] = ()  # problems for which a line is skipped without an error

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        n_features: int | None = None,
        zero_based: bool | None = None,
        hash_bits: int | None = None,
        unseen: Literal["error", "drop"] = "error",
        layout: dict[str, Any] | None = None,
        **common: Any,
    ):
        super().__init__(inputs, **common)
        if layout is not None:
            n_features, zero_based, hash_bits = read_layout(layout, self.KIND)
        elif n_features is None and hash_bits is None and not self.can_be_reread:
            hash_bits = DEFAULT_BITS
        if n_features is not None and hash_bits is not None:
            raise ValueError(f"n_features={n_features} and hash_bits={hash_bits}: give one of them only.")
        self._labelled: bool | None = None
        self._hash_bits, self._drop = hash_bits, unseen == "drop"
        self._first = int(hash_bits is None and not zero_based)
        self._width = 2**hash_bits if hash_bits is not None else -1 if n_features is None else n_features
        if self._width < 0:
            self._find_width(zero_based)
        self.n_features = self._width

    @abstractmethod
    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether lines must have labels; set `_labelled`, whether blocks have labels, from the first line."""

    @abstractmethod
    def _is_row(self, line: bytes) -> bool:
        """Return whether a valid line is a row."""

    @abstractmethod
    def _loop(self, text: Any, lines: int, settings: Any) -> Parsed:
        """Run the compiled loop over a text."""

    def _find_width(self, zero_based: bool | None) -> None:
        """Read all rows once for the smallest and the largest index, and for a survey."""
        self._require_rereading()
        self._first = 0
        self._surveyed, least, largest = self._survey_indices()
        self._first = int(least > 0 if zero_based is None else not zero_based)
        self._width = max(largest + 1 - self._first, 1)

    @abstractmethod
    def _survey_indices(self) -> tuple[Survey | None, int, int]:
        """Return a survey, and the smallest (at most 1) and the largest index."""

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns, and how an index becomes a column."""
        if self._hash_bits is not None:
            return {"kind": self.KIND, "hash_bits": self._hash_bits}
        return {"kind": self.KIND, "n_features": self.n_features, "zero_based": self._first == 0}

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        rows, skipped, dropped = start.rows, start.skipped, start.dropped
        for chunk, parsed in self._parsed_chunks(start):
            block, found = self._rows_of(chunk, parsed)
            rows += block.X.shape[0]
            skipped += int(found[_parse.BAD])
            dropped += int(found[_parse.DROPPED])
            line = chunk.first + chunk.lines
            yield block, Position(chunk.file, chunk.offset, line, rows, chunk.stored, skipped, dropped)

    def _parsed_chunks(self, start: Position) -> Iterator[tuple[Chunk, Parsed]]:
        """Yield the chunks after a position in order, each with the output of the compiled loop."""
        source = chunks(self.inputs, start, self.block_bytes)
        if self.parse_threads == 1:
            for chunk in source:
                yield chunk, self._parsed(chunk, self._settings(chunk))
            return
        with ThreadPoolExecutor(self.parse_threads, thread_name_prefix="robustfd-parse") as pool:
            for chunk, parsed in self._submitted(source, pool):
                yield chunk, parsed.result()

    def _submitted(self, source: Iterator[Chunk], pool: ThreadPoolExecutor) -> Iterator[tuple[Chunk, Future[Parsed]]]:
        """Yield chunks in order, each with its future result, while the pool parses the next `parse_threads` chunks.

        An error of the source is raised after the chunks before it.
        """
        waiting: deque[tuple[Chunk, Future[Parsed]]] = deque()
        failure = None
        while True:
            try:
                chunk = next(source, None)
            except Exception as error:
                failure = error
                break
            if chunk is None:
                break
            chunk = chunk._replace(text=memoryview(bytes(chunk.text)))  # the reader reuses its buffer
            waiting.append((chunk, pool.submit(self._parsed, chunk, self._settings(chunk))))
            if len(waiting) > self.parse_threads:
                yield waiting.popleft()
        yield from waiting
        if failure is not None:
            raise failure

    def _settings(self, chunk: Chunk) -> Any:
        """Return the settings of the compiled loop. Earlier chunks must have passed through here before."""
        bits = -1 if self._hash_bits is None else self._hash_bits
        return np.array([self._has_labels(chunk), self._first, self._width, bits, self._drop], dtype=np.int64)

    def _parsed(self, chunk: Chunk, settings: Any) -> Parsed:
        """Return the output of the compiled loop for a chunk. Threads may call it at the same time."""
        return self._loop(np.frombuffer(chunk.text, np.uint8), chunk.lines, settings)

    def _parse(self, chunk: Chunk) -> tuple[Block, Any]:
        """Return the rows of a chunk, and the counts of the compiled loop."""
        return self._rows_of(chunk, self._parsed(chunk, self._settings(chunk)))

    def _rows_of(self, chunk: Chunk, parsed: Parsed) -> tuple[Block, Any]:
        """Return the rows of a chunk from the output of the compiled loop, and its counts."""
        found, heads, values = parsed.found, parsed.heads, parsed.values
        for begin, line, wrong in parsed.bad[: found[_parse.BAD]].tolist():
            self._bad_line(chunk, line, wrong, begin)
        for begin, entry in parsed.slow[: found[_parse.SLOW]].tolist():
            number = float(self._token(chunk.text, begin))
            if entry < 0:
                heads[-1 - entry] = number
            else:
                values[entry] *= number
        if self.seen_names is not None and self._hash_bits is not None:
            self.seen_names.add_text(chunk.text, bytes([self.MARK]), self._hash_bits)
        block = self._block(parsed, heads[: self.HEAD * int(found[_parse.ROWS])].reshape(-1, self.HEAD), chunk)
        # Numbers with hundreds of digits may be infinite, and so may the sum of two values for one index.
        keep = self._finite(block) if found[_parse.SLOW] or found[_parse.UNSORTED] else None
        if keep is None:
            return block, found
        places = self._places(bytes(chunk.text), set(parsed.bad[: found[_parse.BAD], 1].tolist()))
        for row in np.flatnonzero(~keep).tolist():
            self._bad_line(chunk, places[row][0], _parse.NOT_FINITE, places[row][1])
        found[_parse.BAD] += int((~keep).sum())
        return block.take(keep), found

    def _block(self, parsed: Parsed, heads: Any, chunk: Chunk) -> Block:
        """Return the block of the parsed rows; `heads` has one row for each of them."""
        labels = np.ascontiguousarray(heads[:, 0]) if self._labelled else None
        return Block(self._matrix(parsed), labels)

    def _matrix(self, parsed: Parsed) -> Any:
        """Return the rows X."""
        n, k = int(parsed.found[_parse.ROWS]), int(parsed.found[_parse.ENTRIES])
        starts = np.concatenate((np.zeros(1, np.int32), parsed.ends[:n]))
        width = self._width if self._width >= 0 else int(parsed.columns[:k].max(initial=0)) + 1
        x = sp.csr_matrix((parsed.values[:k], parsed.columns[:k], starts), shape=(n, width))
        if parsed.found[_parse.UNSORTED]:
            x.sum_duplicates()
        else:
            x.has_canonical_format = True
        return x

    def _finite(self, block: Block) -> Any:
        """Return a mask of the rows that are finite; None if all are."""
        return finite_rows(block.X, block.y)

    def _bad_line(self, chunk: Chunk, line: int, wrong: int, begin: int) -> None:
        """Raise, or record the message, about a line of a chunk."""
        reason = self.WRONG[wrong].format(n_features=self.n_features if wrong == _parse.BEYOND_LAST else 0)
        where = f"{self.inputs[chunk.file].name}, line {chunk.first + line + 1}"
        self._bad_row(f"{where}: {reason}: {shown(chunk.text[begin:])}", harmless=wrong in self.HARMLESS)

    def _places(self, text: bytes, bad: set[int]) -> list[tuple[int, int]]:
        """Return for each row of a text the number and the offset of its line, without bad lines."""
        places, begin = [], 0
        for number, line in enumerate(text.split(b"\n")):
            if number not in bad and self._is_row(line):
                places.append((number, begin))
            begin += len(line) + 1
        return places

    def _token(self, text: memoryview, begin: int) -> bytes:
        """Return the token that starts here and ends at a blank or a mark."""
        for size in (64, 1024, len(text)):
            token = bytes(text[begin : begin + size]).split(maxsplit=1)[0].split(bytes([self.MARK]))[0]
            if len(token) < size:
                break
        return token


def read_layout(layout: dict[str, Any], kind: str) -> tuple[int | None, bool | None, int | None]:
    """Return n_features, zero_based and hash_bits of an untrusted layout."""
    width, zero_based, bits = (layout.get(name) for name in ("n_features", "zero_based", "hash_bits"))
    if layout.get("kind") != kind:
        raise StreamError(f"The layout of columns is that of {layout.get('kind')!r:.30}, and these are rows of {kind}.")
    if bits is None and (type(width) is not int or not 0 < width <= 2**31 or type(zero_based) is not bool):
        raise StreamError(f"{layout!r:.100} is not a layout of columns.")
    if bits is not None and (type(bits) is not int or not 0 < bits <= MOST_BITS):
        raise StreamError(f"{layout!r:.100} is not a layout of columns.")
    return width if bits is None else None, zero_based, bits
