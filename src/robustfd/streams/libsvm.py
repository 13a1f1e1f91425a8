"""LIBSVM text, one row per line: `label index:value index:value ...`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from robustfd._core import Problem, parse_libsvm, scan_libsvm
from robustfd.streams._base import Position, Survey
from robustfd.streams._indexed import IndexedTextStream, Parsed, Settings
from robustfd.streams._text import Chunk, chunks
from robustfd.streams.limits import MOST_LABELS

Scanned = tuple[int, Any, int, int]  # the number of rows, their labels, the smallest and the largest index


class LibsvmStream(IndexedTextStream):
    """Rows of LIBSVM text as CSR matrices, with labels if lines start with one.

    Empty lines, comments (after #) and qid:... are ignored. With `hash_bits` = b there are 2^b columns. A feature that
    is a number has the column of its last b bits. Any other name has the column and the sign of scikit-learn's
    `FeatureHasher`. A feature without a value has the value 1.
    """

    KIND = "libsvm"
    MARK = b"#"
    WRONG = {
        Problem.NO_LABEL: "it should start with a label, a number",
        Problem.NO_INDEX: "a feature should be index:value with a whole number as index; names of features need "
        "hash_bits",
        Problem.BELOW_FIRST: "there is an index 0, but indices start at 1 unless zero_based is true",
        Problem.BEYOND_LAST: "there is an index above the last feature ({n_features} features)",
        Problem.NO_VALUE: "the value of a feature should be a number",
        Problem.NOT_FINITE: "a number is not finite",
        Problem.TOO_LARGE: "there is an index above 2^31 - 1; use hash_bits to hash indices",
    }

    def _survey(self) -> Survey:
        return self._survey_indices()[0]

    def _survey_indices(self) -> tuple[Survey, int, int]:
        """Return a survey, and the smallest (at most 1) and the largest index.

        If bad lines are errors, a faster scan that does not parse values is enough: the pass over the rows finds them.
        """
        survey, least, largest = Survey(), 1, 0
        for chunk, scanned in self._scanned_chunks():
            found = self._indices_of(scanned, survey) if scanned is not None else None
            if found is None:
                block, _ = self._parse(chunk)
                survey.add(block)
                columns = block.X.indices + self._first
                found = columns.min(initial=1), columns.max(initial=0)
            least, largest = min(least, int(found[0])), max(largest, int(found[1]))
        return survey, least, largest

    def _scanned_chunks(self) -> Iterator[tuple[Chunk, Scanned | None]]:
        """Yield all chunks, each with the result of the fast scan, which is None for a chunk that it cannot read."""
        source = chunks(self.inputs, Position(), self.block_bytes)
        if self.on_error != "raise":
            return ((chunk, None) for chunk in source)
        names = self._hash_bits is not None
        return self._ahead(
            source, lambda chunk: partial(scan_libsvm, chunk.text, self._has_labels(chunk), names, MOST_LABELS + 1)
        )

    def _indices_of(self, scanned: Scanned, survey: Survey) -> tuple[int, int] | None:
        """Add a scanned chunk to a survey and return its smallest and largest index; None if they are out of range."""
        rows, labels, least, largest = scanned
        above = self._width >= 0 and not self._drop and largest >= self._width + self._first
        if above or least < self._first:
            return None
        survey.add_labels(rows, labels)
        return least, largest

    def _parsed(self, chunk: Chunk, settings: Settings) -> Parsed:
        return Parsed(*parse_libsvm(chunk.text, *settings))

    def _has_labels(self, chunk: Chunk) -> bool:
        if self._labelled is None:
            self._labelled = self._begins_with_label(bytes(chunk.text))
        return self._labelled

    def _begins_with_label(self, text: bytes) -> bool:
        """Return whether the first line that is not empty starts with a label, which is a number."""
        for line in text.split(b"\n"):
            tokens = line.split(b"#", 1)[0].split(maxsplit=1)
            if tokens:
                try:
                    float(tokens[0])
                except ValueError:
                    return self._hash_bits is None and b":" not in tokens[0]
                return True
        return True
