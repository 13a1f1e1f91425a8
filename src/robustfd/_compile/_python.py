"""Loops as the Python that they are written in, for `NUMBA_DISABLE_JIT=1`: slow, and open to a debugger."""

import ctypes
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

_FAR = 1 << 40  # entries of what a pointer points to: nobody knows how many


def part(function: Any) -> Any:
    """Return a function that compiled code would call."""
    function.py_func = function
    return function


def entry(function: Any) -> Any:
    """Return a function that Python calls: integers overflow in it and zero divides, as in compiled code."""
    return part(np.errstate(all="ignore")(function))


def array_at(address: int, letter: str) -> NDArray[Any]:
    """Return the memory at an address as numbers, of float64 ("d") or int64 ("l"); where it ends is not known."""
    memory = (ctypes.c_int64 * _FAR).from_address(int(address))
    return np.ctypeslib.as_array(memory).view(np.float64 if letter == "d" else np.int64)


def carray(pointer: NDArray[Any], shape: Any) -> NDArray[Any]:
    """Return what a pointer, an array without an end, points to, as an array of that shape."""
    return pointer[: math.prod(np.atleast_1d(shape).tolist())].reshape(shape)


class Routine:
    """A function that is called by an address that no other has."""

    known: ClassVar[dict[int, "Routine"]] = {}

    def __init__(self, function: Callable[..., None], arguments: str):
        self.function, self.arguments, self.address = function, arguments, -1 - len(self.known)
        self.known[self.address] = self


def call(address: int, arguments: tuple[Any, ...]) -> None:
    """Call a Fortran routine, or one of ours: arrays by their data, addresses as they are, numbers by their address."""
    copies = [_copy(value) for value in arguments]
    places = [
        int(value) if isinstance(value, np.uint64) else copy.ctypes.data for value, copy in zip(arguments, copies)
    ]
    routine = Routine.known.get(int(address))
    if routine is not None:
        routine.function(*(array_at(place, letter) for place, letter in zip(places, routine.arguments, strict=True)))
    else:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(places))
        kind(int(address))(*places)


def _copy(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    # The low half of a 64-bit integer comes first, so its address serves for a 32-bit one as well.
    return np.array(
        value if isinstance(value, np.generic) else float(value) if isinstance(value, float) else int(value)
    )
