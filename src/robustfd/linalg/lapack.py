"""BLAS and LAPACK for compiled loops: scipy's own routines, called by address.

numba has wrappers of its own for a few of them, which take long to compile and only whole contiguous arrays. Here
a compiled function is handed the addresses of `routines()` as an argument. Were they a global, their values would be
frozen into the compiled code on disk, and they differ from process to process.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

from robustfd.linalg._compile import compiled_routine, inner
from robustfd.linalg.eigen import _twisted_vectors

GEMM, SYTRD, STERF, ORMTR, SYEVD, PSTRF, GEJSV, EIGENPAIRS, GRADED = range(9)
F, L, N, T, U, V = (np.uint8(ord(letter)) for letter in "FLNTUV")

EPS = 2.220446049250313e-16
LARGE = 100  # rows from which on LAPACK's divide and conquer is faster than inverse iteration
INDEPENDENT = 1e-11  # of its squared length that a row must have outside the span of others to count as independent


@intrinsic
def call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call a Fortran routine: arrays by their data, what `at` returns as it is, numbers by the address of a copy."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointers = []
        for i, kind in enumerate(signature.args[1]):
            value = builder.extract_value(values[1], i)
            if kind == types.uint64:
                pointers.append(builder.inttoptr(value, cgutils.voidptr_t))
                continue
            if isinstance(kind, types.Array):
                pointer = context.make_array(kind)(context, builder, value).data
            else:
                # The low half of a 64-bit integer comes first, so its address serves for a 32-bit one as well.
                pointer = cgutils.alloca_once_value(builder, value)
            pointers.append(builder.bitcast(pointer, cgutils.voidptr_t))
        routine = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t] * len(pointers))
        builder.call(builder.inttoptr(values[0], routine.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


@intrinsic
def at(typing_context: Any, array: Any, offset: Any) -> Any:
    """Return the address of a contiguous array's entry, counted from its first: what `call` takes as it is."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(builder.gep(data, [values[1]]), context.get_value_type(types.uint64))

    return types.uint64(array, types.int64), generate


@inner
def gemm(
    routines: Any, ta: bool, tb: bool, n: int, m: int, k: int,
    scale: float, a: Any, lda: int, b: Any, ldb: int, keep: float, c: Any, ldc: int,
) -> None:  # fmt: skip
    """Set the n x m matrix at c to scale a b + keep c, k the inner length; a and b transposed if said so.

    a, b and c are addresses, their rows contiguous and lda, ldb and ldc numbers apart.
    """
    if n > 0 and m > 0:
        call(routines[GEMM], (T if tb else N, T if ta else N, m, n, k, scale, b, ldb, a, lda, keep, c, ldc))


@inner
def _inverse_iteration(routines: Any, a: Any, k: int, values: Any, vectors: Any, info: Any) -> bool:
    """Return whether all eigenvalues and the first k vectors were found to full precision."""
    n = len(a)
    diagonal, off, tau, work, shifts = np.empty(n), np.empty(n), np.empty(n), np.empty(32 * n), np.empty(k)
    z, turned, overlap = np.empty((n, k)), np.empty((n, k)), np.empty((k, k))
    call(routines[SYTRD], (L, n, a, n, diagonal, off, tau, work, 32 * n, info))
    for i in range(n):
        values[i], work[i] = diagonal[i], off[i]
    call(routines[STERF], (n, values, work, info))
    if info[0] != 0:
        return False
    for i in range(n // 2):
        values[i], values[n - 1 - i] = values[n - 1 - i], values[i]
    for j in range(k):
        shifts[j] = values[j]
    residual = _twisted_vectors(diagonal, off, shifts, np.empty((3, n, k)), z)
    gemm(routines, True, False, k, k, n, 1.0, at(z, 0), k, at(z, 0), k, 0.0, at(overlap, 0), k)
    defect = 0.0
    for p in range(k):
        overlap[p, p] -= 1.0
        for q in range(k):
            defect = max(defect, abs(overlap[p, q]))
    if not (residual <= n * EPS and defect <= 1e-8):  # in this form it also catches NaN
        return False
    for i in range(n):
        for j in range(k):
            turned[i, j] = z[i, j]
    # One step of Newton's iteration for the nearest orthonormal vectors squares the defect.
    gemm(routines, False, False, n, k, k, -0.5, at(z, 0), k, at(overlap, 0), k, 1.0, at(turned, 0), k)
    for i in range(n):
        for j in range(k):
            vectors[j, i] = turned[i, j]
    call(routines[ORMTR], (L, L, N, n, k, a, n, tau, vectors, vectors.shape[1], work, 32 * n, info))
    return True


@inner
def eigenpairs(routines: Any, a: Any, k: int, values: Any, vectors: Any) -> bool:
    """Fill `values` (n, descending, at least 0) and `vectors` (k, n), the first of them; return whether it worked.

    The matrix, symmetric and positive semi-definite, is destroyed. The way is that of eigen.py.
    """
    n = len(a)
    scale = 0.0
    for i in range(n):
        scale = max(scale, a[i, i])
    if not 0.0 < scale < np.inf:
        for i in range(n):
            values[i] = 0.0
            for j in range(k):
                vectors[j, i] = 1.0 if i == j else 0.0
        return scale == 0.0
    diagonal, inverse = np.empty(n), 1.0 / scale
    for i in range(n):
        for j in range(n):
            a[i, j] *= inverse
        diagonal[i] = a[i, i]
    info = np.zeros(1, np.int64)
    if n >= LARGE or k >= 0.7 * n or n < 3 or not _inverse_iteration(routines, a, k, values, vectors, info):
        for i in range(n):  # the lower triangle is as it was, but for its diagonal
            a[i, i] = diagonal[i]
        length = 1 + 6 * n + 2 * n * n
        work, integers = np.empty(length), np.empty(3 + 5 * n, np.int64)
        call(routines[SYEVD], (V, U, n, a, n, values, work, length, integers, 3 + 5 * n, info))
        if info[0] != 0:
            return False
        for j in range(k):
            for i in range(n):
                vectors[j, i] = a[n - 1 - j, i]
        for i in range(n // 2):
            values[i], values[n - 1 - i] = values[n - 1 - i], values[i]
    for i in range(n):
        values[i] = max(scale * values[i], 0.0)
    return True


def _eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do as `eigenpairs`; sizes = n, k, whether it worked."""
    n, k = sizes[0], sizes[1]
    a, vectors = carray(matrix, (n, n)), carray(rows, (k, n))
    sizes[2] = eigenpairs(carray(addresses, EIGENPAIRS), a, k, carray(values, n), vectors)


def _graded_eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do as `_eigenpairs` for rows of very different lengths, to their own precision; sizes = n, k, the rank.

    a = D S D with a unit diagonal in S: S has a Cholesky factor with pivots, which tells the rank, and Jacobi's
    method finds the singular values of D times that factor to high relative precision (Demmel and Veselic
    1992; Drmac and Veselic 2008). The rank is at most what is handed in for it, and -1 if this did not work.
    """
    n, k = sizes[0], sizes[1]
    routines, a, vectors = carray(addresses, EIGENPAIRS), carray(matrix, (n, n)), carray(rows, (k, n))
    length, pivots, info = np.empty(n), np.zeros(n, np.int32), np.zeros(1, np.int64)
    most, sizes[2] = sizes[2], -1
    for i in range(n):
        length[i] = np.sqrt(a[i, i])
        if not length[i] < np.inf:
            return
    for i in range(n):
        for j in range(n):
            divisor = length[i] * length[j]
            a[i, j] = a[i, j] / divisor if divisor > 0 else 0.0
    count, work = np.zeros(1, np.int64), np.empty(2 * n)
    call(routines[PSTRF], (U, n, a, n, pivots, count, INDEPENDENT, work, info))
    rank = sizes[2] = min(count[0], most)
    for i in range(n):
        values[i] = 0.0
    if rank == 0:
        return
    # Fortran's upper factor with S[piv, piv] = U'U is, read by rows, the lower factor: row i of `a` up to i.
    factor, left, right = np.zeros((rank, n)), np.empty((rank, n)), np.empty((rank, rank))
    for i in range(n):
        p = pivots[i] - 1
        for j in range(min(i + 1, rank)):
            factor[j, p] = length[p] * a[i, j]
    size = max(2 * n + rank, 6 * rank + 2 * rank * rank, 4 * rank + rank * rank) + 7 + n
    sva, numbers, integers = np.empty(rank), np.zeros(size), np.empty(n + 3 * rank + 8, np.int64)
    call(
        routines[GEJSV],
        (F, U, N, N, N, N, n, rank, factor, n, sva, left, n, right, rank, numbers, size, integers, info),
    )
    if info[0] != 0:
        sizes[2] = -1
        return
    for j in range(rank):
        sigma = sva[j] * (numbers[0] / numbers[1])
        values[j] = sigma * sigma
        if j < k:
            for i in range(n):
                vectors[j, i] = left[j, i]


@cache
def routines(*, own: bool = False) -> NDArray[np.int64]:
    """Return the addresses, in the order of their names above; the last two, which must be compiled, if asked for."""
    names = ("dsytrd", "dsterf", "dormtr", "dsyevd", "dpstrf", "dgejsv")
    addresses = [get_cython_function_address("scipy.linalg.cython_blas", "dgemm")]
    addresses += [get_cython_function_address("scipy.linalg.cython_lapack", name) for name in names]
    if own:
        addresses += [compiled_routine(function, "llddd").address for function in (_eigenpairs, _graded_eigenpairs)]
    return np.array(addresses, dtype=np.int64)
