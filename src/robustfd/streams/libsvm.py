"""LIBSVM text, one row per line: `label index:value index:value ...`."""

from typing import Any

import numpy as np

from robustfd.streams import _parse, _scan
from robustfd.streams._base import Position, Survey
from robustfd.streams._decimal import POWERS
from robustfd.streams._indexed import IndexedTextStream, Parsed
from robustfd.streams._text import Chunk, chunks
from robustfd.streams.limits import MOST_LABELS


class LibsvmStream(IndexedTextStream):
    """Rows of LIBSVM text as CSR matrices, with labels if lines start with one.

    Empty lines, comments (after #) and qid:... are ignored. With `hash_bits` = b there are 2^b columns. A feature that
    is a number has the column of its last b bits. Any other name has the column and the sign of scikit-learn's
    `FeatureHasher`. A feature without a value has the value 1.
    """

    KIND = "libsvm"
    MARK = _parse.COMMENT
    WRONG = {
        _parse.NO_LABEL: "it should start with a label, a number",
        _parse.NO_INDEX: "a feature should be index:value with a whole number as index; names of features need "
        "hash_bits",
        _parse.BELOW_FIRST: "there is an index 0, but indices start at 1 unless zero_based is true",
        _parse.BEYOND_LAST: "there is an index above the last feature ({n_features} features)",
        _parse.NO_VALUE: "the value of a feature should be a number",
        _parse.NOT_FINITE: "a number is not finite",
        _parse.TOO_LARGE: "there is an index above 2^31 - 1; use hash_bits to hash indices",
    }

    def _survey(self) -> Survey:
        return self._survey_indices()[0]

    def _survey_indices(self) -> tuple[Survey, int, int]:
        """Return a survey, and the smallest (at most 1) and the largest index.

        If bad lines are errors, a faster scan that does not parse values is enough: the pass over the rows finds them.
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
        """Return whether the fast scan could read a chunk and all its indices are valid."""
        labelled, named = self._has_labels(chunk), self._hash_bits is not None
        plain = _scan.scan_rows(np.frombuffer(chunk.text, np.uint8), labelled, named, POWERS, labels, found)
        above = self._width >= 0 and not self._drop and found[_scan.LARGEST] >= self._width + self._first
        return bool(plain and not above and found[_scan.LEAST] >= self._first)

    def _loop(self, text: Any, lines: int, settings: Any) -> Parsed:
        most = len(text) // (4 if self._hash_bits is None else 2) + 1
        labels, ends = np.empty(lines + 1), np.empty(lines, np.int32)
        columns, values = np.empty(most, np.int32), np.empty(most)
        bad, slow = np.empty((lines, 3), np.int64), np.empty((len(text) // _parse.LEAST_LONG + 1, 2), np.int64)
        found = _parse.parse_rows(text, settings, POWERS, labels, ends, columns, values, bad, slow)
        return Parsed(found, labels, ends, columns, values, bad, slow)

    def _is_row(self, line: bytes) -> bool:
        return line.lstrip(b" \t\r")[:1] not in (b"", b"#")

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
