"""Arrays in numpy's file format, read sequentially from any binary file."""

import math
from typing import Any

import numpy as np

from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import is_damage

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_READ_BYTES = 1 << 22


class ArrayReader:
    """Sequential access to the items of an array. The header of the file is untrusted."""

    def __init__(self, file: Any, name: str):
        self._file, self.name = file, name
        try:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:  # 3.0 is for structured arrays only
                raise ValueError(f"version {version} of the format")
            self.shape, self.fortran, self.dtype = _HEADERS[version](file)
            self.count = math.prod(self.shape)
        except Exception as error:  # a header is parsed as Python, so any error is possible
            if is_damage(error):
                raise
            raise StreamError(f"{name} is not an array of numbers in numpy's format: {str(error)[:200]}") from error
        if self.dtype.kind not in "biuf":
            raise StreamError(
                f"{name} must have numbers, got an array of {self.dtype!s:.100}"
                + (". Save the columns of its records as a two-dimensional array." if self.dtype.names else ".")
            )

    def take(self, count: int) -> Any:
        """Return the next items."""
        pieces, left = [], count * self.dtype.itemsize
        while left:
            piece = self._file.read(min(left, _READ_BYTES))
            if not piece:
                raise StreamError(f"{self.name} is truncated: it should have {self.count} numbers.")
            pieces.append(piece)
            left -= len(piece)
        return np.frombuffer(b"".join(pieces), self.dtype)

    def skip(self, count: int) -> None:
        """Skip the next items."""
        left = count * self.dtype.itemsize
        if self._file.seekable():
            self._file.seek(left, 1)
            return
        while left:
            got = len(self._file.read(min(left, _READ_BYTES)))
            if not got:
                raise StreamError(f"{self.name} is truncated: it should have {self.count} numbers.")
            left -= got


def as_floats(values: Any) -> Any:
    """Return numbers as float64; float32 stays float32."""
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4  # in any byte order
    return values.astype(np.float32 if single else np.float64, copy=False)
