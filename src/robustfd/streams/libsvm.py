"""LIBSVM text: `label index:value index:value ...`, a row a line."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from robustfd.streams import _parse, _scan
from robustfd.streams._base import (
    DEFAULT_BITS,
    MOST_BITS,
    MOST_LABELS,
    Block,
    Position,
    Stream,
    StreamError,
    Survey,
    finite_rows,
)
from robustfd.streams._decimal import POWERS
from robustfd.streams._inputs import Input
from robustfd.streams._text import Chunk, chunks, shown

_WRONG = {
    _parse.NO_LABEL: "it should begin with a label, a number",
    _parse.NO_INDEX: "a feature should be index:value with a whole number as index; names of features need hash_bits",
    _parse.BELOW_FIRST: "there is an index 0, but indices are taken to begin with 1 unless zero_based is true",
    _parse.BEYOND_LAST: "there is an index beyond the last feature ({n_features} features)",
    _parse.NO_VALUE: "the value of a feature should be a number",
    _parse.NOT_FINITE: "a number is not finite",
    _parse.TOO_LARGE: "there is an index above 2^31 - 1; hash_bits brings such into a fixed number of columns",
}


class LibsvmStream(Stream):
    """Rows of LIBSVM text as CSR matrices, and their labels if lines begin with one.

    Empty lines, comments (from # on) and qid:... are passed over. With `hash_bits` = b there are 2^b columns: a feature
    that is a number has the column that its last b bits say, any other name the column and the sign that scikit-learn's
    `FeatureHasher` gives it; without a value, it is 1.
    """

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
            n_features, zero_based, hash_bits = read_layout(layout)
        elif n_features is None and hash_bits is None and not self.can_be_reread:
            hash_bits = DEFAULT_BITS
        if n_features is not None and hash_bits is not None:
            raise ValueError(f"n_features={n_features} and hash_bits={hash_bits}: give one of them only.")
        self._labelled: bool | None = None
        self._hash_bits, self._drop = hash_bits, unseen == "drop"
        self._first = int(hash_bits is None and not zero_based)
        self._width = 2**hash_bits if hash_bits is not None else -1 if n_features is None else n_features
        if self._width < 0:
            self._learn_width(zero_based)
        self.n_features = self._width

    def _learn_width(self, zero_based: bool | None) -> None:
        """Read everything once for the least and the largest index, and whatever else a survey tells."""
        self._require_rereading()
        self._first = 0
        self._surveyed, least, largest = self._look_through()
        self._first = int(least > 0 if zero_based is None else not zero_based)
        self._width = max(largest + 1 - self._first, 1)

    def _survey(self) -> Survey:
        return self._look_through()[0]

    def _look_through(self) -> tuple[Survey, int, int]:
        """Return a survey of everything, and the least (at most 1) and the largest index that entries have.

        If bad lines are an error, they may be left to the pass over the rows to find, and the numbers need not be read.
        """
        survey, labels, found = Survey(), np.empty(MOST_LABELS + 1), np.array([0, 0, 1, 0], dtype=np.int64)
        for chunk in chunks(self.inputs, Position(), self.block_bytes):
            if self.on_error == "raise" and self._scan(chunk, labels, found):
                continue
            block, _ = self._parse(chunk)
            survey.add(block)
            if block.X.nnz:
                found[_scan.LEAST] = min(found[_scan.LEAST], block.X.indices.min() + self._first)
                found[_scan.LARGEST] = max(found[_scan.LARGEST], block.X.indices.max() + self._first)
        survey.add_labels(int(found[_scan.ROWS]), labels[: found[_scan.LABELS]].tolist())
        return survey, int(found[_scan.LEAST]), int(found[_scan.LARGEST])

    def _scan(self, chunk: Chunk, labels: Any, found: Any) -> bool:
        """Return whether labels and indices of a chunk tell all there is to know of it, and none of them is wrong."""
        labelled, named = self._has_labels(chunk), self._hash_bits is not None
        plain = _scan.scan_rows(np.frombuffer(chunk.text, np.uint8), labelled, named, POWERS, labels, found)
        above = self._width >= 0 and not self._drop and found[_scan.LARGEST] >= self._width + self._first
        return bool(plain and not above and found[_scan.LEAST] >= self._first)

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns, and how an index becomes one of them."""
        if self._hash_bits is not None:
            return {"kind": "libsvm", "hash_bits": self._hash_bits}
        return {"kind": "libsvm", "n_features": self.n_features, "zero_based": self._first == 0}

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        rows, skipped, dropped = start.rows, start.skipped, start.dropped
        for chunk in chunks(self.inputs, start, self.block_bytes):
            block, found = self._parse(chunk)
            rows += block.X.shape[0]
            skipped += int(found[_parse.BAD])
            dropped += int(found[_parse.DROPPED])
            line = chunk.first + chunk.lines
            yield block, Position(chunk.file, chunk.offset, line, rows, chunk.stored, skipped, dropped)

    def _parse(self, chunk: Chunk) -> tuple[Block, Any]:
        """Return the rows of a chunk, and what was found in it."""
        labelled = self._has_labels(chunk)
        text, lines = np.frombuffer(chunk.text, np.uint8), chunk.lines
        most = len(text) // (4 if self._hash_bits is None else 2) + 1
        labels, ends = np.empty(lines + 1), np.empty(lines, np.int32)
        columns, values = np.empty(most, np.int32), np.empty(most)
        bad, slow = np.empty((lines, 3), np.int64), np.empty((len(text) // _parse.LEAST_LONG + 1, 2), np.int64)
        settings = np.array(
            [labelled, self._first, self._width, -1 if self._hash_bits is None else self._hash_bits, self._drop],
            dtype=np.int64,
        )
        found = _parse.parse_rows(text, settings, POWERS, labels, ends, columns, values, bad, slow)
        for begin, line, wrong in bad[: found[_parse.BAD]].tolist():
            reason = _WRONG[wrong].format(n_features=self.n_features if wrong == _parse.BEYOND_LAST else 0)
            self._bad_line(chunk, line, reason, begin)
        for begin, entry in slow[: found[_parse.SLOW]].tolist():
            number = float(_token(chunk.text, begin))
            if entry < 0:
                labels[-1 - entry] = number
            else:
                values[entry] *= number
        n, k = int(found[_parse.ROWS]), int(found[_parse.ENTRIES])
        starts = np.concatenate((np.zeros(1, np.int32), ends[:n]))
        width = self._width if self._width >= 0 else int(columns[:k].max(initial=0)) + 1
        x = sp.csr_matrix((values[:k], columns[:k], starts), shape=(n, width))
        if found[_parse.UNSORTED]:
            x.sum_duplicates()
        else:
            x.has_canonical_format = True
        y = labels[:n] if labelled else None
        # Numbers of hundreds of digits may be infinite, and so may be the sum of two for one index.
        keep = finite_rows(x, y) if found[_parse.SLOW] or found[_parse.UNSORTED] else None
        if keep is None:
            return Block(x, y), found
        places = _places(bytes(chunk.text), set(bad[: found[_parse.BAD], 1].tolist()))
        for row in np.flatnonzero(~keep).tolist():
            self._bad_line(chunk, places[row][0], _WRONG[_parse.NOT_FINITE], places[row][1])
        found[_parse.BAD] += int((~keep).sum())
        return Block(x[keep], None if y is None else y[keep]), found

    def _has_labels(self, chunk: Chunk) -> bool:
        """Return whether lines begin with a label, which the first chunk tells."""
        if self._labelled is None:
            self._labelled = _begins_with_label(bytes(chunk.text), named=self._hash_bits is not None)
        return self._labelled

    def _bad_line(self, chunk: Chunk, line: int, reason: str, begin: int) -> None:
        """Raise, or keep the message, about a line of a chunk."""
        where = f"{self.inputs[chunk.file].name}, line {chunk.first + line + 1}"
        self._bad_row(f"{where}: {reason}: {shown(chunk.text[begin:])}")


def read_layout(layout: dict[str, Any]) -> tuple[int | None, bool | None, int | None]:
    """Return n_features, zero_based and hash_bits of a layout that comes from anybody."""
    width, zero_based, bits = (layout.get(name) for name in ("n_features", "zero_based", "hash_bits"))
    if layout.get("kind") != "libsvm":
        raise StreamError(f"The layout of columns is that of {layout.get('kind')!r:.30}, and these are rows of libsvm.")
    if bits is None and (type(width) is not int or not 0 < width <= 2**31 or type(zero_based) is not bool):
        raise StreamError(f"{layout!r:.100} is no layout of columns.")
    if bits is not None and (type(bits) is not int or not 0 < bits <= MOST_BITS):
        raise StreamError(f"{layout!r:.100} is no layout of columns.")
    return width if bits is None else None, zero_based, bits


def _places(text: bytes, bad: set[int]) -> list[tuple[int, int]]:
    """Return for each row of a text the number of its line, and where that begins; some lines are bad."""
    places, begin = [], 0
    for number, line in enumerate(text.split(b"\n")):
        if number not in bad and line.lstrip(b" \t\r")[:1] not in (b"", b"#"):
            places.append((number, begin))
        begin += len(line) + 1
    return places


def _token(text: memoryview, begin: int) -> bytes:
    """Return what begins here and ends at a blank or a comment."""
    for size in (64, 1024, len(text)):
        token = bytes(text[begin : begin + size]).split(maxsplit=1)[0].split(b"#")[0]
        if len(token) < size:
            break
    return token


def _begins_with_label(text: bytes, *, named: bool) -> bool:
    """Return whether lines like the first that is not empty begin with a label: a number, no entry and no name."""
    for line in text.split(b"\n"):
        tokens = line.split(b"#", 1)[0].split(maxsplit=1)
        if tokens:
            try:
                float(tokens[0])
            except ValueError:
                return not named and b":" not in tokens[0]
            return True
    return True
