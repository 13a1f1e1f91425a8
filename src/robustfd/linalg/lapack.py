"""BLAS and LAPACK for compiled loops: scipy's routines, called by address.

numba wraps a few of them, but its wrappers compile slowly and accept only whole contiguous arrays. Here a compiled
function receives the addresses from `routines()` as an argument. A global would not work: numba would store its value
in the compiled code on disk, and the addresses differ between processes.
"""

import ctypes
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from scipy.linalg import cython_blas, cython_lapack

from robustfd._compile import JIT, call_plainly, in_llvm, loops
from robustfd._compile import view as view
from robustfd._compile import view_as as view_as

GEMM, SYTRD, ORMTR, SYEVD, PSTRF, GEJSV, COUNT = range(7)  # COUNT is the number of routines
F, L, N, T, U, V = (np.uint8(ord(letter)) for letter in "FLNTUV")

LINE = 8  # float64 numbers in a cache line


@intrinsic
def _call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call a Fortran routine. Arrays pass their data pointer, numbers the address of a copy, addresses themselves."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointers = []
        for i, kind in enumerate(signature.args[1]):
            value = builder.extract_value(values[1], i)
            if kind == types.uint64:
                pointers.append(builder.inttoptr(value, cgutils.voidptr_t))
                continue
            if isinstance(kind, types.CPointer):
                pointer = value
            elif isinstance(kind, types.Array):
                pointer = context.make_array(kind)(context, builder, value).data
            else:
                # Little-endian: the address of a 64-bit integer is also that of its low 32 bits.
                pointer = cgutils.alloca_once_value(builder, value)
            pointers.append(builder.bitcast(pointer, cgutils.voidptr_t))
        routine = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t] * len(pointers))
        builder.call(builder.inttoptr(values[0], routine.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


call = _call if JIT else call_plainly


def _address(array: Any, offset: int) -> Any:
    return np.uint64(array.ctypes.data + offset * array.itemsize)


@in_llvm(_address)
def at(typing_context: Any, array: Any, offset: Any) -> Any:
    """Return the address of entry `offset` of a contiguous array, which `call` passes on unchanged."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(builder.gep(data, [values[1]]), context.get_value_type(types.uint64))

    return types.uint64(array, types.int64), generate


def _fetch_nothing(array: Any, offset: int) -> None:
    pass


@in_llvm(_fetch_nothing)
def _fetch(typing_context: Any, array: Any, offset: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        address = builder.bitcast(builder.gep(data, [values[1]]), cgutils.voidptr_t)
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(prefetch, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@loops
def fetch_row(array: Any, i: int) -> None:
    """Prefetch row i of a contiguous array into the cache."""
    length = array.shape[1]
    for j in range(0, length, LINE):
        _fetch(array, i * length + j)
    _fetch(array, i * length + length - 1)


@loops
def further(address: Any, count: int) -> Any:
    """Return the address `count` float64 numbers after this one."""
    return address + np.uint64(8 * count)


@loops
def gemm(
    routines: Any, ta: bool, tb: bool, n: int, m: int, k: int,
    scale: float, a: Any, lda: int, b: Any, ldb: int, keep: float, c: Any, ldc: int,
) -> None:  # fmt: skip
    """Set the n x m matrix c to scale op(a) op(b) + keep c, with inner length k; ta and tb select the transposes.

    a, b and c are addresses of row-major matrices with row strides lda, ldb and ldc.
    """
    if n > 0 and m > 0:
        call(routines[GEMM], (T if tb else N, T if ta else N, m, n, k, scale, b, ldb, a, lda, keep, c, ldc))


@cache
def routines() -> NDArray[np.int64]:
    """Return the addresses of the routines, in the order of the constants above."""
    names = ("dsytrd", "dormtr", "dsyevd", "dpstrf", "dgejsv")
    addresses = [address_of(cython_blas, "dgemm"), *(address_of(cython_lapack, name) for name in names)]
    return np.array(addresses, dtype=np.int64)


def address_of(module: ModuleType, name: str) -> int:
    """Return the address of a routine that scipy exports to Cython."""
    capsule = ctypes.py_object(module.__pyx_capi__[name])
    kind = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))(capsule)
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return int(get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, kind))
