"""Arrays as numpy stores them, read from a file of any kind one item after the other."""

import math
from typing import Any

import numpy as np

from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import damage

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_AT_ONCE = 1 << 22


class Items:
    """The items of an array: `take` returns the next ones. What a file says about itself need not be true."""

    def __init__(self, file: Any, name: str):
        self._file, self.name = file, name
        try:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:  # 3.0 is for structured arrays only
                raise ValueError(f"version {version} of the format")
            self.shape, self.fortran, self.dtype = _HEADERS[version](file)
            self.count = math.prod(self.shape)
        except Exception as error:  # headers are Python, and what is wrong with one may be anything
            if damage(error):
                raise
            raise StreamError(f"{name} is no array of numbers as numpy stores them: {str(error)[:200]}") from error
        if self.dtype.kind not in "biuf":
            raise StreamError(
                f"{name} is an array of {self.dtype!s:.100}, and should be one of numbers"
                + (", not of records: save its columns as an array of two dimensions." if self.dtype.names else ".")
            )

    def take(self, count: int) -> Any:
        """Return the next items."""
        pieces, left = [], count * self.dtype.itemsize
        while left:
            piece = self._file.read(min(left, _AT_ONCE))
            if not piece:
                raise StreamError(f"{self.name} is cut short: it should have {self.count} numbers.")
            pieces.append(piece)
            left -= len(piece)
        return np.frombuffer(b"".join(pieces), self.dtype)

    def skip(self, count: int) -> None:
        """Pass over the next items."""
        left = count * self.dtype.itemsize
        if self._file.seekable():
            self._file.seek(left, 1)
            return
        while left:
            got = len(self._file.read(min(left, _AT_ONCE)))
            if not got:
                raise StreamError(f"{self.name} is cut short: it should have {self.count} numbers.")
            left -= got


def as_floats(values: Any) -> Any:
    """Return numbers as float64, or float32 if they are that."""
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4  # in any order of bytes
    return values.astype(np.float32 if single else np.float64, copy=False)
