"""Loops as plain Python, for `NUMBA_DISABLE_JIT=1`: slow, but accessible to a debugger."""

import ctypes
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

_UNKNOWN_LENGTH = 1 << 40  # length of the array behind a pointer, whose real length is unknown


def part(function: Any) -> Any:
    """Return a function as `inner` does, for calls from other loops."""
    function.py_func = function
    return function


def entry(function: Any) -> Any:
    """Return a function for calls from Python; as in compiled code, overflow and division by zero do not warn."""
    return part(np.errstate(all="ignore")(function))


def array_at(address: int, letter: str) -> NDArray[Any]:
    """Return the memory at an address as an array of float64 ("d") or int64 ("l") of unknown length."""
    memory = (ctypes.c_int64 * _UNKNOWN_LENGTH).from_address(int(address))
    return np.ctypeslib.as_array(memory).view(np.float64 if letter == "d" else np.int64)


def carray(pointer: NDArray[Any], shape: Any) -> NDArray[Any]:
    """Return the memory behind a pointer, which `array_at` returned, as an array of this shape."""
    return pointer[: math.prod(np.atleast_1d(shape).tolist())].reshape(shape)


class Routine:
    """A function with a unique address by which `call` finds it."""

    known: ClassVar[dict[int, "Routine"]] = {}

    def __init__(self, function: Callable[..., None], arguments: str):
        self.function, self.arguments, self.address = function, arguments, -1 - len(self.known)
        self.known[self.address] = self


def call(address: int, arguments: tuple[Any, ...]) -> None:
    """Call a Fortran routine or a `Routine`: arrays and numbers are passed by address, addresses unchanged."""
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
    # On little-endian machines the address of a 64-bit integer is valid for a 32-bit one as well.
    return np.array(
        value if isinstance(value, np.generic) else float(value) if isinstance(value, float) else int(value)
    )
