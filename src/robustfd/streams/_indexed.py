"""The common base of LIBSVM and Vowpal Wabbit text: features are numbered, or named and hashed."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from robustfd._core import Problem
from robustfd.learners.rows import CsrRows
from robustfd.streams._base import Block, Position, Stream, Survey
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._text import Chunk, chunks, shown
from robustfd.streams.limits import DEFAULT_BITS, MOST_BITS

Result = TypeVar("Result")


class Parsed(NamedTuple):
    """The rows of a chunk, as the core parses them."""

    rows: tuple[Any, Any, Any]  # the arrays of a CSR matrix
    labels: Any
    bad: list[tuple[int, int, Problem]]  # offset and number of a line, and why it is not a row
    dropped: int  # entries without a column
    weights: Any = None
    tags: Any = None  # start and end of each tag in the text
    parts: Sequence[tuple[Any, Any, Any]] = ()  # the entries of each group


class Settings(NamedTuple):
    """How the core parses a chunk."""

    labelled: bool
    first: int  # the smallest index
    width: int  # -1: any
    bits: int  # -1: features are not hashed
    drop: bool


class IndexedTextStream(Stream):
    """Rows of text as CSR matrices with n_features or 2^hash_bits columns."""

    KIND: ClassVar[str]
    MARK: ClassVar[bytes]  # the byte that may end a number, in addition to blanks
    WRONG: ClassVar[dict[Problem, str]]
    HARMLESS: ClassVar[tuple[Problem, ...]] = ()  # problems for which a line is skipped without an error

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
    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        """Parse a chunk. Threads may call it at the same time."""

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
            block = self._rows_of(chunk, parsed)
            rows += block.X.shape[0]
            skipped += len(parsed.bad)
            dropped += parsed.dropped
            line = chunk.first + chunk.lines
            yield block, Position(chunk.file, chunk.offset, line, rows, chunk.stored, skipped, dropped)

    def _parsed_chunks(self, start: Position) -> Iterator[tuple[Chunk, Parsed]]:
        """Yield the chunks after a position in order, each with its rows."""
        source = chunks(self.inputs, start, self.block_bytes)
        if self.parse_threads == 1:
            for chunk in source:
                yield chunk, self._parsed(chunk, self._settings(chunk))
        else:
            yield from self._ahead(source, lambda chunk: partial(self._parsed, chunk, self._settings(chunk)))

    def _ahead(
        self, source: Iterator[Chunk], task_of: Callable[[Chunk], Callable[[], Result]]
    ) -> Iterator[tuple[Chunk, Result]]:
        """Yield chunks in order, each with the result of its task, while `parse_threads` threads work on the next ones.

        An error of the source is raised after the chunks before it.
        """
        waiting: deque[tuple[Chunk, Future[Result]]] = deque()
        failure = None
        with ThreadPoolExecutor(self.parse_threads, thread_name_prefix="robustfd-parse") as pool:
            while True:
                try:
                    chunk = next(source, None)
                except Exception as error:
                    failure = error
                    break
                if chunk is None:
                    break
                chunk = chunk._replace(text=memoryview(bytes(chunk.text)))  # the reader reuses its buffer
                waiting.append((chunk, pool.submit(task_of(chunk))))
                if len(waiting) > self.parse_threads:
                    first, done = waiting.popleft()
                    yield first, done.result()
            for first, done in waiting:
                yield first, done.result()
        if failure is not None:
            raise failure

    def _settings(self, chunk: Chunk) -> Settings:
        """Return how to parse a chunk. Earlier chunks must have passed through here before."""
        bits = -1 if self._hash_bits is None else self._hash_bits
        return Settings(self._has_labels(chunk), self._first, self._width, bits, self._drop)

    def _parse(self, chunk: Chunk) -> tuple[Block, Parsed]:
        """Return the rows of a chunk, as a block and as the core parses them."""
        parsed = self._parsed(chunk, self._settings(chunk))
        return self._rows_of(chunk, parsed), parsed

    def _rows_of(self, chunk: Chunk, parsed: Parsed) -> Block:
        """Return the block of a parsed chunk; report its bad lines."""
        for begin, line, problem in parsed.bad:
            self._bad_line(chunk, line, problem, begin)
        if self.seen_names is not None and self._hash_bits is not None:
            self.seen_names.add_text(chunk.text, self.MARK, self._hash_bits)
        return self._block(parsed, chunk)

    def _block(self, parsed: Parsed, chunk: Chunk) -> Block:
        """Return the block of the parsed rows."""
        return Block(self._matrix(parsed.rows), parsed.labels if self._labelled else None)

    def _matrix(self, rows: tuple[Any, Any, Any]) -> Any:
        """Return rows as a CSR matrix."""
        width = self._width if self._width >= 0 else int(rows[1].max(initial=0)) + 1
        if self.plain_rows:
            return CsrRows(rows[0], rows[1], rows[2].astype(np.int64), width)
        from scipy.sparse import csr_matrix

        x = csr_matrix(rows, shape=(len(rows[2]) - 1, width))
        x.has_canonical_format = True
        return x

    def _bad_line(self, chunk: Chunk, line: int, problem: Problem, begin: int) -> None:
        """Raise, or record the message, about a line of a chunk."""
        reason = self.WRONG[problem].format(n_features=self.n_features if problem == Problem.BEYOND_LAST else 0)
        where = f"{self.inputs[chunk.file].name}, line {chunk.first + line + 1}"
        self._bad_row(f"{where}: {reason}: {shown(chunk.text[begin:])}", harmless=problem in self.HARMLESS)


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
