"""BLAS and LAPACK routines, called with the global interpreter lock (GIL) released.

scipy's wrappers hold the GIL, so threads that sketch different rows would run one at a time. `ctypes` releases it. The
routines and their arguments are the same, so the results are identical bit for bit.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

from robustfd.linalg.lapack import address_of

Floats = NDArray[np.float64]

_NO, _LOWER, _UPPER = (ctypes.c_char(letter) for letter in (b"N", b"L", b"U"))


@cache
def _routine(name: str) -> Callable[..., None]:
    """Return a Fortran routine as a function of pointers."""
    module, count = {
        "dgemm": (cython_blas, 13),
        "dsyrk": (cython_blas, 10),
        "dsytrd": (cython_lapack, 10),
        "dsterf": (cython_lapack, 4),
    }[name]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address_of(module, name))


def _call(name: str, *arguments: Any) -> None:
    """Call a routine. Arrays pass their data pointer, integers and floats the address of a copy."""
    _routine(name)(*map(_pointer, arguments))


def _pointer(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.__array_interface__["data"][0]
    if isinstance(value, int):
        return ctypes.byref(ctypes.c_int(value))
    return ctypes.byref(ctypes.c_double(value) if isinstance(value, float) else value)


def add_product(c: Floats, a: Any, b: Any, keep: float = 1.0) -> None:
    """Set c, in C order, to a b + keep c. The arrays must not be empty. With keep = 0, c may be uninitialised."""
    a, b = np.ascontiguousarray(a, np.float64), np.ascontiguousarray(b, np.float64)
    (rows, inner), columns = a.shape, b.shape[1]
    # Fortran reads C-ordered arrays as transposes, so this computes c' = b' a'.
    _call("dgemm", _NO, _NO, columns, rows, inner, 1.0, b, columns, a, inner, float(keep), c, columns)


def gram(a: Any) -> Floats:
    """Return the lower triangle of a a', with zeros above it."""
    a = np.asfortranarray(a, np.float64)
    rows, columns = a.shape
    out = np.zeros((rows, rows))
    # The upper triangle in Fortran order is the lower one in C order.
    _call("dsyrk", _UPPER, _NO, rows, columns, 1.0, a, rows, 0.0, out, rows)
    return out


def tridiagonalise(a: Any) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the reflectors, the diagonal, the off-diagonal and tau of a symmetric matrix (LAPACK's dsytrd).

    Only the lower triangle is read. A matrix in Fortran order is overwritten.
    """
    n, a = len(a), np.asfortranarray(a, np.float64)
    diagonal, off_diagonal, tau, work = np.empty(n), np.empty(n - 1), np.empty(n - 1), np.empty(64 * n)
    _call("dsytrd", _LOWER, n, a, n, diagonal, off_diagonal, tau, work, 64 * n, np.empty(1, np.int32))
    return a, diagonal, off_diagonal, tau


def tridiagonal_values(diagonal: Floats, off_diagonal: Floats) -> Floats | None:
    """Return all eigenvalues of a symmetric tridiagonal matrix, ascending; None if LAPACK's dsterf fails."""
    values, info = diagonal.copy(), np.zeros(1, np.int32)
    _call("dsterf", len(values), values, off_diagonal.copy(), info)
    return values if info[0] == 0 else None
