"""What takes the place of compiled code where numba is switched off, as NUMBA_DISABLE_JIT=1 does: slow, to debug with.

Loops run as Python. Fortran routines are called through ctypes; routines of our own, which compiled loops call by
address, have a number in place of it.
"""

import ctypes
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np


class _Floats(ctypes._Pointer):  # type: ignore[type-arg]
    _type_ = ctypes.c_double


class _Integers(ctypes._Pointer):  # type: ignore[type-arg]
    """A pointer to integers that takes whatever compiled code would, such as numpy's True."""

    _type_ = ctypes.c_int64

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, int(value))


_POINTERS: dict[str, Any] = {"d": _Floats, "l": _Integers}


class Routine(NamedTuple):
    """A function of pointers that is known by a number, as a compiled one is by its address."""

    address: int
    function: Callable[..., None]
    arguments: str  # a letter for each, as in _POINTERS


_routines: list[Routine] = []


def plain(function: Callable[..., Any]) -> Any:
    """Return the function itself, with `py_func` as compiled ones have it."""
    function.py_func = function  # type: ignore[attr-defined]
    return function


def plain_entry(function: Callable[..., Any]) -> Any:
    """Return the function for Python to call: like a compiled one it says nothing of numbers that overflow."""

    @wraps(function)
    def quiet(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return plain(quiet)


def plain_routine(function: Callable[..., None], arguments: str) -> Routine:
    """Return the function as a routine that `call` finds by its address."""
    _routines.append(Routine(-1 - len(_routines), function, arguments))
    return _routines[-1]


def call(address: Any, arguments: tuple[Any, ...]) -> None:
    """Call a routine: arrays by their data, pointers and what `at` returns as they are, numbers by a copy's address."""
    copies: list[Any] = []  # which have to be there until the call is over
    places = [_place(each, copies) for each in arguments]
    if address < 0:
        routine = _routines[-1 - int(address)]
        routine.function(
            *(ctypes.cast(p, _POINTERS[letter]) for p, letter in zip(places, routine.arguments, strict=True))
        )
    else:
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(places))(int(address))(*places)


def _place(argument: Any, copies: list[Any]) -> ctypes.c_void_p:
    """Return the address that a routine gets for an argument."""
    if isinstance(argument, ctypes._Pointer):
        return ctypes.cast(argument, ctypes.c_void_p)
    if isinstance(argument, np.uint64):
        return ctypes.c_void_p(int(argument))
    if not isinstance(argument, np.ndarray):
        argument = np.array([argument])
        copies.append(argument)
    return ctypes.c_void_p(argument.ctypes.data)


def at(array: Any, offset: int) -> np.uint64:
    """Return the address of a contiguous array's entry, counted from its first."""
    return np.uint64(array.ctypes.data + int(offset) * array.itemsize)
