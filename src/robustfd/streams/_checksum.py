"""A checksum of rows that does not depend on how they are split into blocks."""

from typing import Any
from zlib import crc32

import numpy as np


class Checksum:
    """CRC-32 of the values of rows, of the indices and lengths of sparse rows, and of labels and weights.

    It detects changed files, not forged ones. It processes about a gigabyte per second.
    """

    def __init__(self) -> None:
        self._values = self._columns = self._lengths = self._labels = self._weights = self._rows = 0

    def add(self, x: Any, y: Any, weight: Any = None) -> None:
        """Add rows, with their labels and weights if there are any."""
        if not isinstance(x, np.ndarray):
            first, last = int(x.indptr[0]), int(x.indptr[-1])
            self._values = crc32(_bytes(x.data[first:last]), self._values)
            self._columns = crc32(_bytes(x.indices[first:last].astype("<i8")), self._columns)
            self._lengths = crc32(_bytes(np.diff(x.indptr).astype("<i8")), self._lengths)
        else:
            self._values = crc32(_bytes(x), self._values)
        if y is not None:
            self._labels = crc32(_bytes_of_labels(y), self._labels)
        if weight is not None:  # a block whose weights are all 1 may come without weights
            others = np.flatnonzero(weight != 1)
            self._weights = crc32(_bytes(np.column_stack((self._rows + others, weight[others]))), self._weights)
        self._rows += x.shape[0]

    def __str__(self) -> str:
        weights = f"{self._weights:08x}" if self._weights else ""
        return f"{self._values:08x}{self._columns:08x}{self._lengths:08x}{self._labels:08x}{weights}"


def _bytes(array: Any) -> Any:
    """Return the bytes of an array in row-major, little-endian order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def _bytes_of_labels(y: Any) -> Any:
    """Return the bytes of labels. Equal numbers of any type have the same bytes."""
    y = np.asarray(y)
    if y.dtype.kind in "biuf":
        return _bytes(y.astype(np.float64))
    return "".join(f"{len(str(label))}:{label}" for label in y.tolist()).encode("utf-8", "surrogatepass")
