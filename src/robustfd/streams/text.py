"""LIBSVM and Vowpal Wabbit text, one row per line. Features are numbered, or named and hashed."""

import re
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from robustfd._core import Problem, murmur3, parse_libsvm, parse_vw, scan_libsvm
from robustfd.learners.rows import CsrRows
from robustfd.streams.base import Block, Options, Stream, Survey
from robustfd.streams.inputs import Chunk, Input, Position, chunks, last_line_end, shown
from robustfd.streams.layout import DEFAULT_BITS, Feature, is_bits, read_layout
from robustfd.streams.scan import MOST_LABELS, Scanned, scan_file

_TOO_MANY = (
    "there is the index {}, above max_columns={}. If it is right, raise that limit (--max-columns) or give n_features "
    "(--features), or use hash_bits (--hash-bits) to hash indices"
)
Result = TypeVar("Result")
Settings = tuple[bool, int, int, int, bool]  # labelled, smallest index, width or -1, hash_bits or -1, drop the unknown


class Parsed(NamedTuple):
    """The rows of a chunk, as the core parses them."""

    rows: tuple[Any, Any, Any]  # the arrays of a CSR matrix
    labels: Any
    bad: list[tuple[int, int, Problem]]  # offset and number of a line, and why it is not a row
    dropped: int  # entries without a column
    weights: Any = None
    tags: Any = None  # start and end of each tag in the text
    parts: Sequence[tuple[Any, Any, Any]] = ()  # the entries of each group


class IndexedTextStream(Stream):
    """Rows of text as CSR matrices with n_features or 2^hash_bits columns."""

    KIND: ClassVar[str]
    WRONG: ClassVar[dict[Problem, str]]

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__(inputs, **common)
        n_features, zero_based, hash_bits = options.n_features, options.zero_based, options.hash_bits
        if layout is not None:
            n_features, zero_based, hash_bits = _read_layout(layout, self.KIND)
        elif n_features is None and hash_bits is None and not self.can_be_reread:
            hash_bits = DEFAULT_BITS
        if n_features is not None and hash_bits is not None:
            raise ValueError(f"n_features={n_features} and hash_bits={hash_bits}: give one of them only.")
        self._labelled: bool | None = None
        self._finding = False  # whether the width is being found
        self._hash_bits, self._drop = hash_bits, options.unseen == "drop"
        self._first = int(hash_bits is None and not zero_based)
        self._width = 2**hash_bits if hash_bits is not None else -1 if n_features is None else n_features
        if self._width < 0:
            self._require_rereading()
            self._find_width(zero_based)
        self.n_features = self._width

    @abstractmethod
    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether lines must have labels; set `_labelled`, whether blocks have labels, from the first line."""

    @abstractmethod
    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        """Parse a chunk. Threads may call it at the same time."""

    @staticmethod
    @abstractmethod
    def _features_of(lines: list[bytes]) -> Iterator[Feature]:
        """Yield namespace and name of the features of lines."""

    def _find_width(self, zero_based: bool | None, *, only_numbers: bool = False) -> None:
        """Read all rows once for the smallest and the largest index, and for a survey."""
        self._first, self._width, self._finding = 0, self.max_columns + 1, True
        self._surveyed, least, largest = self._survey_indices(only_numbers=only_numbers)
        self._first = int(least > 0 if zero_based is None else not zero_based)
        self._width, self._finding = max(largest + 1 - self._first, 1), False

    def _survey_indices(self, *, only_numbers: bool = False) -> tuple[Survey | None, int, int]:
        """Return a survey, and the smallest (at most 1) and the largest index; None if names are not `only_numbers`."""
        survey, least, largest = Survey(), 1, 0
        for chunk, scanned in self._scanned_chunks():
            if scanned is not None and self._in_range(*scanned[2:]):
                survey.add_labels(*scanned[:2])
                lowest, highest = scanned[2:]
            else:
                parsed = self._parsed(chunk, self._settings(chunk))
                block = self._block(chunk, parsed)
                if only_numbers and parsed.dropped:
                    return None, 0, 0
                survey.add(block)
                columns = block.X.indices + self._first
                lowest, highest = columns.min(initial=1), columns.max(initial=0)
            least, largest = min(least, int(lowest)), max(largest, int(highest))
        return survey, least, largest

    @staticmethod
    def _cut(text: bytearray, size: int) -> int:
        """Return where the last whole rows of text[:size] end."""
        return last_line_end(text, size)

    def _chunks(self) -> Generator[Chunk, None, None]:
        return chunks(self.inputs, self.block_bytes, self.max_line_bytes, self._cut)

    def _scanned_chunks(self) -> Iterator[tuple[Chunk, Scanned | None]]:
        """Yield all chunks, each with the result of a fast scan, None if there is none."""
        return ((chunk, None) for chunk in self._chunks())

    def _in_range(self, least: int, largest: int) -> bool:
        """Return whether the smallest and the largest index have columns."""
        return least >= self._first and (self._width < 0 or self._drop or largest < self._width + self._first)

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns, and how an index becomes a column."""
        if self._hash_bits is not None:
            return {"kind": self.KIND, "hash_bits": self._hash_bits}
        return {"kind": self.KIND, "n_features": self.n_features, "zero_based": self._first == 0}

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        with closing(self._chunks()) as source:  # a traceback keeps what a variable holds
            ahead = self._ahead(source, lambda chunk: partial(self._parsed, chunk, self._settings(chunk)))
            alone = ((chunk, self._parsed(chunk, self._settings(chunk))) for chunk in source)
            for chunk, parsed in alone if self.parse_threads == 1 else ahead:
                block = self._block(chunk, parsed)
                self._counts.dropped += parsed.dropped
                yield block, chunk.end

    def _ahead(
        self, source: Generator[Chunk, None, None], task_of: Callable[[Chunk], Callable[[], Result]]
    ) -> Iterator[tuple[Chunk, Result]]:
        """Yield chunks in order, each with the result of its task, while `parse_threads` threads work on the next ones.

        An error of the source is raised after the chunks before it.
        """
        from concurrent.futures import ThreadPoolExecutor

        waiting: deque[tuple[Chunk, Any]] = deque()
        failure = None
        with closing(source), ThreadPoolExecutor(self.parse_threads, thread_name_prefix="robustfd-parse") as pool:
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
        return self._has_labels(chunk), self._first, self._width, bits, self._drop

    def _block(self, chunk: Chunk, parsed: Parsed) -> Block:
        """Return the block of a parsed chunk; report its bad lines."""
        for begin, line, problem in parsed.bad:
            reason = self._reason(problem, bytes(chunk.text[begin : begin + 1000])).format(width=self._width)
            if problem == Problem.BEYOND_LAST and self._finding:
                reason = _TOO_MANY.format(_largest(chunk.text[begin:]), self.max_columns)
            where = f"{self.inputs[chunk.file].name}, line {chunk.first + line + 1}"
            self._bad_row(f"{where}: {reason}: {shown(chunk.text[begin:])}", harmless=problem == Problem.UNLABELLED)
        if self.seen_names is not None and self._hash_bits is not None:
            self.seen_names.add_text(chunk.text, self._features_of, self._hash_bits)
        y = parsed.labels if self._labelled else None
        return Block(self._matrix(parsed.rows), y, parsed.weights, parts=tuple(map(self._matrix, parsed.parts)))

    def _reason(self, problem: Problem, line: bytes) -> str:
        """Return what is wrong with a line."""
        return self.WRONG[problem]

    def _matrix(self, rows: tuple[Any, Any, Any]) -> Any:
        """Return rows as a CSR matrix."""
        width = self._width if self._width >= 0 else int(rows[1].max(initial=0)) + 1
        if self.plain_rows or self._finding:
            return CsrRows(rows[0], rows[1], rows[2].astype(np.int64), width)
        from scipy.sparse import csr_matrix

        x = csr_matrix(rows, shape=(len(rows[2]) - 1, width))
        x.has_canonical_format = True
        return x


def _largest(text: Any) -> int:
    """Return the largest index of the first line."""
    return max(map(int, re.findall(rb"\d+(?=:)", bytes(text).split(b"\n", 1)[0])), default=0)


def _read_layout(layout: dict[str, Any], kind: str) -> tuple[int | None, bool | None, int | None]:
    """Return n_features, zero_based and hash_bits of an untrusted layout."""
    if layout.get("hash_bits") is not None:
        return None, None, read_layout(layout, kind, hash_bits=is_bits)["hash_bits"]
    known = read_layout(
        layout, kind,
        n_features=lambda value: type(value) is int and 0 < value <= 2**31,
        zero_based=lambda value: isinstance(value, bool),
    )  # fmt: skip
    return known["n_features"], known["zero_based"], None


class LibsvmStream(IndexedTextStream):
    """Rows of LIBSVM text, `label index:value index:value ...`, with labels if lines start with one.

    Empty lines, comments (after #) and qid:... are ignored. With `hash_bits` = b there are 2^b columns. A feature that
    is a number has the column of its last b bits. Any other name has the column and the sign of scikit-learn's
    `FeatureHasher`. A feature without a value has the value 1.
    """

    KIND = "libsvm"
    WRONG = {
        Problem.NO_LABEL: "it should start with a label, a number",
        Problem.NO_INDEX: "a feature should be index:value with a whole number as index; names of features need "
        "hash_bits",
        Problem.BELOW_FIRST: "there is an index 0, but indices start at 1 unless zero_based is true",
        Problem.BEYOND_LAST: "there is an index above the last feature ({width} features)",
        Problem.NO_VALUE: "the value of a feature should be a number",
        Problem.NOT_FINITE: "a number is not finite",
        Problem.TOO_LARGE: "there is an index above 2^31 - 1; use hash_bits to hash indices",
    }

    def _survey(self) -> Survey:
        return self._survey_indices()[0] or Survey()

    def _survey_indices(self, *, only_numbers: bool = False) -> tuple[Survey | None, int, int]:
        survey, least, largest = Survey(), 1, 0
        for each in self.inputs:
            if self.on_error != "raise" or self._hash_bits is not None or each.path is None:
                found = None
            else:
                found = scan_file(each.path)
            if found is None or not self._in_range(*found[2:]):
                return super()._survey_indices(only_numbers=only_numbers)  # which can read more than plain text
            survey.add_labels(*found[:2])
            least, largest = min(least, found[2]), max(largest, found[3])
        return survey, least, largest

    def _scanned_chunks(self) -> Iterator[tuple[Chunk, Scanned | None]]:
        """Yield all chunks, each with the result of a fast scan that does not parse values.

        It is enough if bad lines are errors, because the pass over the rows finds them. For a chunk that it cannot read
        the result is None.
        """
        if self.on_error != "raise":
            return super()._scanned_chunks()
        names = self._hash_bits is not None
        return self._ahead(
            self._chunks(),
            lambda chunk: partial(scan_libsvm, chunk.text, self._has_labels(chunk), names, MOST_LABELS + 1),
        )

    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        return Parsed(*parse_libsvm(chunk.text, *settings))

    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether the first line that is not empty starts with a label, which is a number."""
        if self._labelled is None:
            self._labelled = True
            for line in BytesIO(chunk.text):
                if tokens := line.split(b"#", 1)[0].split(maxsplit=1):
                    try:
                        float(tokens[0])
                    except ValueError:
                        self._labelled = self._hash_bits is None and b":" not in tokens[0]
                    break
        return self._labelled

    @staticmethod
    def _features_of(lines: list[bytes]) -> Iterator[Feature]:
        for line in lines:
            for k, token in enumerate(line.split(b"#", 1)[0].split()):
                name, colon, _ = token.partition(b":")
                if name != b"qid" and (colon or k):  # the first token is the label
                    yield b"", name


_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
# The head of a line: numbers, a tag that touches the bar or starts with a quote, and the bar.
_HEAD = re.compile(rb"[ \t\r]*(?P<numbers>(?:%b[ \t\r]+){0,3})(?P<tag>[^| \t\r]+|'[^| \t\r]*[ \t\r]+|)\|" % _NUMBER)
# Labels of other problems than classes and numbers, and what a user can do.
_OTHER_LABELS = {
    rb"shared\s": "this starts an example of several lines of a contextual bandit (ADF); robustfd bandit train reads "
    "it (format adf)",
    rb"(?:ccb|slates|ca)\s": "this is an example of a bandit with slots or continuous actions, which are not read",
    rb"N:N:N": "action:cost:probability is the label of a contextual bandit; robustfd bandit train reads it "
    "(format cb)",
    rb"\d+:N[\s|]": "class:cost is the label of cost-sensitive classes (csoaa, wap), which are not read; write the "
    "class of the lowest cost as the label",
    rb"\d+(?:,\d+)+[\s|]": "these are several labels, and a row has one here; train one model for each label, with "
    "the labels 1 and -1",
}


class VwStream(IndexedTextStream):
    """Rows of Vowpal Wabbit text, `label importance 'tag|namespace feature:value ...`.

    Importances become weights, and tags ids.

    If all features are numbers in the namespace without a name, they have the same columns as in LIBSVM text. Otherwise
    there are 2^hash_bits columns. A number has the column of the last bits of its sum with the hash of its namespace.
    Any other name has the column and the sign of `FeatureHasher`, with the hash of its namespace as seed. A feature
    without a value has the value 1. Values are multiplied by the weight of the namespace, and features that occur twice
    are added up. Empty lines are ignored.

    A line without a label has the label NaN; with `unlabelled="skip"` it is skipped and counted.
    """

    KIND = "vw"
    WRONG = {
        Problem.NO_LABEL: "before | there should be a label, its importance (both numbers) and a tag, or nothing",
        Problem.NO_INDEX: "a feature should be name:value or name, and a number without a namespace if names are not "
        "hashed (hash_bits)",
        Problem.BELOW_FIRST: "there is a feature 0, but numbers start at 1 unless zero_based is true",
        Problem.BEYOND_LAST: "there is a number above the last feature ({width} features)",
        Problem.NO_VALUE: "the value of a feature, or the weight of a namespace, should be a number",
        Problem.NOT_FINITE: "a number is not finite",
        Problem.TOO_LARGE: "there is a number above 2^31 - 1; use hash_bits to hash numbers",
        Problem.NO_BAR: "there is no | before the features",
        Problem.BAD_WEIGHT: "the importance, the second number, is below 0",
        Problem.HAS_BASE: "the third number, the base prediction, must be 0",
        Problem.NO_SPACE: "| should be followed by a blank, or by the name of a namespace",
        Problem.UNLABELLED: "it has no label (the word next to | is a tag)",
    }

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        self._labels_needed = options.unlabelled == "skip"
        self._tagged: bool | None = None
        super().__init__(inputs, options, layout, **common)

    def _find_width(self, zero_based: bool | None, *, only_numbers: bool = True) -> None:
        """Find the largest number. If a feature is not a number, all features are hashed."""
        drop, self._drop = self._drop, True
        super()._find_width(zero_based, only_numbers=only_numbers)
        self._drop = drop
        if self._surveyed is None:
            self._hash_bits, self._first, self._width = DEFAULT_BITS, 0, 2**DEFAULT_BITS

    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        return Parsed(*parse_vw(chunk.text, *settings, [_group(name) for name in self.groups]))

    def _block(self, chunk: Chunk, parsed: Parsed) -> Block:
        block = super()._block(chunk, parsed)
        if self.wants_ids and self._tagged:
            places = parsed.tags.tolist()
            tags = [bytes(chunk.text[begin:end]).decode("utf-8", "backslashreplace") for begin, end in places]
            block.id = np.array(tags, dtype=object)
        return block

    def _reason(self, problem: Problem, line: bytes) -> str:
        if problem != Problem.NO_LABEL or b"|" not in line.split(b"\n", 1)[0]:
            return self.WRONG[problem]
        found = (why for label, why in _OTHER_LABELS.items() if re.match(label.replace(b"N", _NUMBER), line.lstrip()))
        return next(found, self.WRONG[problem])

    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether lines need a label. The first line decides whether blocks have labels and tags."""
        if self._tagged is None:
            found = next(filter(None, map(_HEAD.match, BytesIO(chunk.text))), None)
            if found is not None:
                self._labelled = self._labels_needed or found["numbers"] != b""
                self._tagged = found["tag"] != b""
        return self._labels_needed

    @staticmethod
    def _features_of(lines: list[bytes]) -> Iterator[Feature]:
        for line in lines:
            for part in line.split(b"|")[1:]:
                tokens = part.split()
                space = tokens.pop(0).split(b":", 1)[0] if tokens and part[:1] not in b" \t" else b""
                for token in tokens:
                    yield space, token.split(b":", 1)[0]


def _group(name: str) -> tuple[int, int]:
    """Return the first letter and the hash of a namespace; a single letter stands for all that start with it."""
    encoded = name.encode()
    if len(encoded) < 2:
        return encoded[0] if encoded else 32, -1
    return encoded[0], murmur3(encoded)
