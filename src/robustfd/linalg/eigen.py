"""The largest eigenvalues and eigenvectors of a small positive semi-definite matrix: the inner loop of a shrink.

A shrink keeps fewer than half of the eigenvectors of a matrix of ten to two hundred rows. LAPACK's fastest driver
computes all of them; its drivers for some are slower still. Here the matrix is reduced to tridiagonal form, the wanted
eigenvalues and no others are found, and the vectors come from one step of inverse iteration by twisted factorisation,
for all of them side by side (tridiagonal.py). Residuals and orthogonality are then checked; where they are not as good
as LAPACK's, and that is where eigenvalues nearly coincide, LAPACK's divide and conquer takes over.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dormqr

from robustfd._compile import carray, compiled, compiled_routine, entry, loops
from robustfd.linalg import lapack, unlocked
from robustfd.linalg.lapack import GEJSV, ORMTR, PSTRF, SYEVD, SYTRD, F, L, N, U, V, at, call, gemm, view
from robustfd.linalg.tridiagonal import EPS as EPS
from robustfd.linalg.tridiagonal import LANES, largest_values, tridiagonalise, turn_back, twisted_vectors

Floats = NDArray[np.float64]

TRIDIAGONALISE, VALUES, VECTORS, BACK, ITERATION, EIGENPAIRS, GRADED = range(lapack.COUNT, lapack.COUNT + 7)  # more

LONG = 2000  # rows of a stream from which on it pays to compile all steps
SMALL = 30  # rows up to which LAPACK's driver is as fast, called from Python
LARGE = 128  # rows from which on LAPACK's reduction, of several columns at a time, is faster
SOME = 200  # rows from which on the time that LAPACK needs for all eigenvalues is worth compiling a loop for some
MANY = 0.7  # share of the eigenvectors from which on it is faster to compute all
INDEPENDENT = 1e-11  # of its squared length that a row must have outside the span of others to count as independent


def compiled_eigenpairs(a: Floats, k: int) -> tuple[Floats, Floats]:
    """Do as `largest_eigenpairs` with all four steps compiled, which takes seconds once: for long streams."""
    n = len(a)
    values, vectors, sizes = np.empty(n), np.empty((k, n)), np.array([n, k, n])
    _call_eigenpairs(routines(True), sizes, np.ascontiguousarray(a), values, vectors)
    return (values[: k + 1], vectors.T) if sizes[2] == 1 else all_eigenpairs(a)


def largest_eigenpairs(a: Floats, k: int) -> tuple[Floats, Floats]:
    """Return (k + 1 eigenvalues or more, descending and not below zero; k eigenvectors or more, as columns).

    `a` is positive semi-definite; its lower triangle is read. Of the four steps one, which LAPACK lacks, is a compiled
    loop, and for large matrices two are: to compile all takes longer than most streams.
    """
    largest = float(a.diagonal().max())
    if len(a) > SMALL and k < MANY * len(a) and largest > 0:
        pairs = _by_inverse_iteration(np.divide(a, largest, order="F"), k)
        if pairs is not None:
            return np.maximum(largest * pairs[0], 0.0), pairs[1]
    return all_eigenpairs(a)


def all_eigenpairs(a: Floats) -> tuple[Floats, Floats]:
    """Return all eigenvalues, descending and not below zero, and their vectors, as columns; nothing is compiled."""
    try:
        values, v = np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        # LAPACK can fail on numbers that differ by more than 1e300; in units of the largest the least are zero.
        largest = float(a.diagonal().max())
        values, v = np.linalg.eigh(a / largest)
        values = largest * values
    return np.maximum(values[::-1], 0.0), v[:, ::-1]


def _by_inverse_iteration(a: Floats, k: int) -> tuple[Floats, Floats] | None:
    """Return the pairs, or None if they are not good enough; `a`, in Fortran order, is overwritten."""
    n = len(a)
    reflectors, diagonal, off_diagonal, tau = unlocked.tridiagonalise(a)
    form, z = np.vstack([diagonal, np.append(off_diagonal, 0.0)]), np.empty((n, k))
    values = _form_values(form, k + 1)
    if values is None:
        return None
    residual = _twisted_vectors(form, np.ascontiguousarray(values[:k]), z, np.empty((3 * n + 4) * k))
    if residual > n * EPS:
        return None
    for _ in range(3):  # Newton's iteration for the nearest orthonormal vectors squares the defect
        overlap = z.T @ z
        overlap.flat[:: k + 1] -= 1.0
        defect = max(overlap.max(), -overlap.min())
        if not defect <= 1e-5:  # in this form it also catches NaN
            return None
        z = z - z @ (overlap / 2)
        if k * defect * defect <= EPS:
            break
    vectors = np.asfortranarray(z)
    vectors[1:], _, _ = dormqr("L", "N", reflectors[1:, :-1], tau, vectors[1:], 64 * n)
    return values, vectors


def _form_values(form: Floats, count: int) -> Floats | None:
    """Return the `count` largest eigenvalues of a tridiagonal form or more, descending; None if they are not found."""
    n = form.shape[1]
    if n >= SOME:
        values = np.empty(count)
        if _largest_values(form, values, np.empty(n + 9 * (count + LANES))):
            return values
    found = unlocked.tridiagonal_values(form[0], form[1, :-1])
    return None if found is None else found[::-1]


_twisted_vectors, _largest_values = entry(twisted_vectors), entry(largest_values)


@compiled
def _call_eigenpairs(routines: Any, sizes: Any, a: Any, values: Any, vectors: Any) -> None:
    call(routines[EIGENPAIRS], (at(routines, 0), at(sizes, 0), a, values, vectors))


@cache
def routines(compile_all: bool) -> NDArray[np.int64]:
    """Return the addresses of LAPACK's routines and of our own, in the order of their names.

    The steps of tridiagonal.py take seconds to compile, which pays for long streams only. Without `compile_all` their
    addresses are 0, and LAPACK's routines are used instead.
    """
    steps: list[tuple[Any, str]] = [(_tridiagonalise, "ldd"), (_values, "lddd"), (_vectors, "ldddd"), (_back, "ldddd")]
    steps += [(_inverse_iteration, "llddd")]
    addresses = [compiled_routine(step, arguments).address if compile_all else 0 for step, arguments in steps]
    addresses += [compiled_routine(driver, "llddd").address for driver in (_eigenpairs, _graded_eigenpairs)]
    return np.append(lapack.routines(), addresses)


def _tridiagonalise(sizes: Any, matrix: Any, form: Any) -> None:
    n = sizes[0]
    tridiagonalise(carray(matrix, (n, n)), carray(form, (6, n)))


def _values(sizes: Any, form: Any, values: Any, room: Any) -> None:
    """Set sizes[2] to whether they were found; sizes = n, k."""
    n, k = sizes[0], sizes[1]
    sizes[2] = largest_values(carray(form, (2, n)), carray(values, k), carray(room, n + 9 * (k + LANES)))


def _vectors(sizes: Any, form: Any, values: Any, z: Any, room: Any) -> None:
    """Set room[0] to the largest residual; sizes = n, k."""
    n, k = sizes[0], sizes[1]
    room[0] = twisted_vectors(carray(form, (2, n)), carray(values, k), carray(z, (n, k)), carray(room, (3 * n + 4) * k))


def _back(sizes: Any, matrix: Any, form: Any, z: Any, room: Any) -> None:
    n, k = sizes[0], sizes[1]
    turn_back(carray(matrix, (n, n)), carray(form, (3, n)), carray(z, (n, k)), carray(room, k))


def _eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Fill the first k + 1 `values` (n) and all vectors (k, n) of a matrix; sizes = n, k, then whether it worked.

    The matrix, symmetric and positive semi-definite, is left as it is; its lower triangle is read.
    """
    n, k = sizes[0], sizes[1]
    a, vectors, lam = carray(matrix, (n, n)), carray(rows, (k, n)), carray(values, n)
    routines = carray(addresses, EIGENPAIRS)
    scale = 0.0
    for i in range(n):
        scale = max(scale, a[i, i])
    if not 0.0 < scale < np.inf:
        for i in range(n):
            lam[i] = 0.0
            for j in range(k):
                vectors[j, i] = 1.0 if i == j else 0.0
        sizes[2] = scale == 0.0
        return
    # One array for all that is needed: each kind of array that is made takes a while to compile. numba lets it go after
    # it was last named, so what is a part of it must not be used later than that.
    room = np.empty(3 * n * n + 12 * n + 8)
    inverse, scaled = 1.0 / scale, view(room, 0, (n, n))
    _scaled_copy(a, inverse, scaled)
    sizes[2] = 0
    if routines[ITERATION] != 0 and n >= 3 and k < MANY * n:
        call(routines[ITERATION], (addresses, sizes, scaled, lam, vectors))
        if sizes[2] == 0:
            _scaled_copy(a, inverse, scaled)
    if sizes[2] == 0:
        sizes[2] = _divide_and_conquer(routines, scaled, k, lam, vectors, room[n * n :], carray(sizes, 3)[2:])
    for i in range(n):
        lam[i] = max(scale * lam[i], 0.0)


@loops
def _scaled_copy(a: Any, scale: float, out: Any) -> None:
    for i in range(len(a)):
        for j in range(i + 1):
            out[i, j] = out[j, i] = scale * a[i, j]


@loops
def _divide_and_conquer(routines: Any, a: Any, k: int, values: Any, vectors: Any, room: Any, info: Any) -> bool:
    """Return whether LAPACK found all eigenvalues and the first k vectors; `a` is destroyed."""
    n = len(a)
    length, more = 1 + 6 * n + 2 * n * n, 3 + 5 * n
    info[0] = 0
    call(routines[SYEVD], (V, U, n, a, n, values, room, length, at(room, length), more, info))
    for j in range(k):
        for i in range(n):
            vectors[j, i] = a[n - 1 - j, i]
    for i in range(n // 2):
        values[i], values[n - 1 - i] = values[n - 1 - i], values[i]
    return info[0] == 0


def _inverse_iteration(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do as `_eigenpairs` for a matrix of norm about 1, which is destroyed; sizes[2], 0, becomes 1 if it worked."""
    n, k = sizes[0], sizes[1]
    routines, a, vectors = carray(addresses, EIGENPAIRS), carray(matrix, (n, n)), carray(rows, (k, n))
    form, info, step = np.empty((6, n)), np.zeros(1, np.int64), np.zeros(3, np.int64)
    step[0], step[1] = n, min(k + 1, n)
    room = np.empty(max((3 * n + 4) * k, n + 9 * (k + 1 + LANES), 32 * n))
    if n < LARGE:
        call(routines[TRIDIAGONALISE], (step, a, form))
    else:
        call(routines[SYTRD], (L, n, a, n, form, at(form, n), at(form, 2 * n), room, 32 * n, info))
    for i in range(n):
        values[i] = 0.0
    call(routines[VALUES], (step, form, values, room))
    if step[2] == 0:
        return
    step[1] = k
    z, turned, overlap = np.empty((n, k)), np.empty((n, k)), np.empty((k, k))
    call(routines[VECTORS], (step, form, values, z, room))
    gemm(routines, True, False, k, k, n, 1.0, at(z, 0), k, at(z, 0), k, 0.0, at(overlap, 0), k)
    defect = 0.0
    for p in range(k):
        overlap[p, p] -= 1.0
        for q in range(k):
            defect = max(defect, abs(overlap[p, q]))
    if not (room[0] <= n * EPS and defect <= 1e-8):  # in this form it also catches NaN
        return
    for i in range(n):
        for j in range(k):
            turned[i, j] = z[i, j]
    # One step of Newton's iteration for the nearest orthonormal vectors squares the defect.
    gemm(routines, False, False, n, k, k, -0.5, at(z, 0), k, at(overlap, 0), k, 1.0, at(turned, 0), k)
    if n < LARGE:
        call(routines[BACK], (step, a, form, turned, room))
    for i in range(n):
        for j in range(k):
            vectors[j, i] = turned[i, j]
    if n >= LARGE:
        call(routines[ORMTR], (L, L, N, n, k, a, n, at(form, 2 * n), vectors, n, room, 32 * n, info))
    sizes[2] = 1


def _graded_eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do as `_eigenpairs` for rows of very different lengths, to their own precision; sizes = n, k, the rank.

    a = D S D with a unit diagonal in S: S has a Cholesky factor with pivots, which tells the rank, and Jacobi's
    method finds the singular values of D times that factor to high relative precision (Demmel and Veselic
    1992; Drmac and Veselic 2008). The rank is at most what is handed in for it, and -1 if this did not work.
    The matrix is destroyed.
    """
    n, k = sizes[0], sizes[1]
    routines, a, vectors = carray(addresses, EIGENPAIRS), carray(matrix, (n, n)), carray(rows, (k, n))
    room, integers = np.empty(n * (5 * n + 11) + 7), np.empty(5 * n + 10, np.int32)  # two arrays: see above
    length, info, count, pivots = room[:n], integers[:1], integers[1:2], integers[2 : n + 2]
    most, sizes[2] = sizes[2], -1
    for i in range(n):
        length[i] = np.sqrt(a[i, i])
        if not length[i] < np.inf:
            return
    for i in range(n):
        for j in range(n):
            divisor = length[i] * length[j]
            a[i, j] = a[i, j] / divisor if divisor > 0 else 0.0
    call(routines[PSTRF], (U, n, a, n, pivots, count, INDEPENDENT, room[n:], info))
    rank = sizes[2] = min(count[0], most)
    for i in range(n):
        values[i] = 0.0
    if rank == 0:
        return
    # Fortran's upper factor with S[piv, piv] = U'U is, read by rows, the lower factor: row i of `a` up to i.
    factor, left, right, rest = room[n:], room[n + n * n :], room[n + 2 * n * n :], room[n + 3 * n * n :]
    for i in range(rank * n):
        factor[i] = 0.0
    for i in range(n):
        p = pivots[i] - 1
        for j in range(min(i + 1, rank)):
            factor[j * n + p] = length[p] * a[i, j]
    size = max(2 * n + rank, 6 * rank + 2 * rank * rank, 4 * rank + rank * rank) + 7 + n
    sva, numbers = rest[:n], rest[n:]
    call(
        routines[GEJSV],
        (F, U, N, N, N, N, n, rank, factor, n, sva, left, n, right, rank, numbers, size, integers[n + 2 :], info),
    )
    if info[0] != 0:
        sizes[2] = -1
        return
    for j in range(rank):
        sigma = sva[j] * (numbers[0] / numbers[1])
        values[j] = sigma * sigma
        if j < k:
            for i in range(n):
                vectors[j, i] = left[j * n + i]
