"""The largest eigenpairs of a small positive semi-definite matrix, which dominate the cost of a shrink step.

A shrink step needs fewer than half of the eigenvectors of a matrix with ten to two hundred rows. LAPACK's fastest
driver (dsyevd) computes all of them, and its drivers for a subset (dsyevr, dsyevx) are slower at this size. The four
steps here:

1. Householder reduction to tridiagonal form T, 4/3 n^3 flops (2 n^3 in the compiled loop).
2. The k + 1 largest eigenvalues of T, O(n k) flops per sweep.
3. The k eigenvectors of T by one step of inverse iteration with a twisted factorisation (Dhillon and Parlett 2004),
   O(n k) flops, vectorised over the eigenvalues.
4. Back-transformation by the reflectors, 2 n^2 k flops.

Inverse iteration does not guarantee orthogonal vectors when eigenvalues nearly coincide. So the residuals (at most n
eps) and the orthogonality defect are checked, a small defect is removed by Newton-Schulz iteration, and
LAPACK's divide and conquer is used whenever a check fails. The result is as accurate as LAPACK's in every case.
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
from robustfd.linalg.tridiagonal import LANES, back_transform, largest_values, tridiagonalise, twisted_vectors

Floats = NDArray[np.float64]

TRIDIAGONALISE, VALUES, VECTORS, BACK_TRANSFORM, ITERATION, EIGENPAIRS, GRADED = range(lapack.COUNT, lapack.COUNT + 7)

MIN_ROWS_TO_COMPILE = 2000  # length of a stream from which compiling all steps pays off
MAX_ROWS_FOR_LAPACK = 30  # up to this size LAPACK's driver, called from Python, is as fast
MIN_ROWS_FOR_SYTRD = 128  # from this size LAPACK's blocked reduction is faster than the compiled loop
MIN_ROWS_FOR_SELECTION = 200  # from this size it pays to compile the loop that finds only the wanted eigenvalues
MAX_SHARE_OF_VECTORS = 0.7  # if more of the eigenvectors are wanted, it is faster to compute all
INDEPENDENT = 1e-11  # a row is independent if more than this share of its squared length is outside the others' span


def compiled_eigenpairs(a: Floats, k: int) -> tuple[Floats, Floats]:
    """Do the same as `largest_eigenpairs` with all four steps compiled, for long streams.

    Compiling takes seconds, once.
    """
    n = len(a)
    values, vectors, sizes = np.empty(n), np.empty((k, n)), np.array([n, k, n])
    _call_eigenpairs(routines(True), sizes, np.ascontiguousarray(a), values, vectors)
    return (values[: k + 1], vectors.T) if sizes[2] == 1 else all_eigenpairs(a)


def largest_eigenpairs(a: Floats, k: int) -> tuple[Floats, Floats]:
    """Return at least k + 1 eigenvalues (descending, nonnegative) and at least k eigenvectors (as columns).

    `a` is positive semi-definite. Only its lower triangle is read. Step 3 of the module docstring, which LAPACK does
    not offer, is a compiled loop, and for large matrices step 2 as well. Compiling the others takes longer than most
    streams.
    """
    largest = float(a.diagonal().max())
    if len(a) > MAX_ROWS_FOR_LAPACK and k < MAX_SHARE_OF_VECTORS * len(a) and largest > 0:
        pairs = _by_inverse_iteration(np.divide(a, largest, order="F"), k)
        if pairs is not None:
            return np.maximum(largest * pairs[0], 0.0), pairs[1]
    return all_eigenpairs(a)


def all_eigenpairs(a: Floats) -> tuple[Floats, Floats]:
    """Return all eigenvalues (descending, nonnegative) and the eigenvectors (as columns), from LAPACK alone."""
    try:
        values, v = np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        # LAPACK can fail on entries that differ by more than 1e300. After scaling the smallest underflow to zero.
        largest = float(a.diagonal().max())
        values, v = np.linalg.eigh(a / largest)
        values = largest * values
    return np.maximum(values[::-1], 0.0), v[:, ::-1]


def _by_inverse_iteration(a: Floats, k: int) -> tuple[Floats, Floats] | None:
    """Return the eigenpairs, or None if they are not accurate enough. Overwrites `a`, which is in Fortran order."""
    n = len(a)
    reflectors, diagonal, off_diagonal, tau = unlocked.tridiagonalise(a)
    form, z = np.vstack([diagonal, np.append(off_diagonal, 0.0)]), np.empty((n, k))
    values = _form_values(form, k + 1)
    if values is None:
        return None
    residual = _twisted_vectors(form, np.ascontiguousarray(values[:k]), z, np.empty((3 * n + 4) * k))
    if residual > n * EPS:
        return None
    for _ in range(3):  # Newton-Schulz iteration: each step squares the defect (Higham 2008, ch. 8)
        overlap = z.T @ z
        overlap.flat[:: k + 1] -= 1.0
        defect = max(overlap.max(), -overlap.min())
        if not defect <= 1e-5:  # also true for NaN
            return None
        z = z - z @ (overlap / 2)
        if k * defect * defect <= EPS:
            break
    vectors = np.asfortranarray(z)
    vectors[1:], _, _ = dormqr("L", "N", reflectors[1:, :-1], tau, vectors[1:], 64 * n)
    return values, vectors


def _form_values(form: Floats, count: int) -> Floats | None:
    """Return at least the `count` largest eigenvalues of a tridiagonal matrix, descending; None if the search fails."""
    n = form.shape[1]
    if n >= MIN_ROWS_FOR_SELECTION:
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
    """Return the addresses of LAPACK's routines, then of those compiled here, in the order of the constants.

    The steps of tridiagonal.py take seconds to compile, which pays off only for long streams. Without `compile_all`
    their addresses are 0 and LAPACK's routines are used instead.
    """
    steps: list[tuple[Any, str]] = [
        (_tridiagonalise, "ldd"),
        (_values, "lddd"),
        (_vectors, "ldddd"),
        (_back_transform, "ldddd"),
    ]
    steps += [(_inverse_iteration, "llddd")]
    addresses = [compiled_routine(step, arguments).address if compile_all else 0 for step, arguments in steps]
    addresses += [compiled_routine(driver, "llddd").address for driver in (_eigenpairs, _graded_eigenpairs)]
    return np.append(lapack.routines(), addresses)


def _tridiagonalise(sizes: Any, matrix: Any, form: Any) -> None:
    n = sizes[0]
    tridiagonalise(carray(matrix, (n, n)), carray(form, (6, n)))


def _values(sizes: Any, form: Any, values: Any, scratch: Any) -> None:
    """Fill `values` and set sizes[2] to 1 if all were found, else to 0; sizes = n, k."""
    n, k = sizes[0], sizes[1]
    sizes[2] = largest_values(carray(form, (2, n)), carray(values, k), carray(scratch, n + 9 * (k + LANES)))


def _vectors(sizes: Any, form: Any, values: Any, z: Any, scratch: Any) -> None:
    """Fill `z` and set scratch[0] to the largest residual; sizes = n, k."""
    n, k = sizes[0], sizes[1]
    scratch[0] = twisted_vectors(
        carray(form, (2, n)), carray(values, k), carray(z, (n, k)), carray(scratch, (3 * n + 4) * k)
    )


def _back_transform(sizes: Any, matrix: Any, form: Any, z: Any, scratch: Any) -> None:
    n, k = sizes[0], sizes[1]
    back_transform(carray(matrix, (n, n)), carray(form, (3, n)), carray(z, (n, k)), carray(scratch, k))


def _eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Fill the first k + 1 of `values` (n) and all eigenvectors (k, n); sizes = n, k and, on return, 1 for success.

    The matrix is symmetric positive semi-definite and not changed. Only its lower triangle is read.
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
    # One array for all scratch memory, because every allocation adds compile time. numba frees an array after the last
    # use of its name, so views of it must not be used after that.
    scratch = np.empty(3 * n * n + 12 * n + 8)
    inverse, scaled = 1.0 / scale, view(scratch, 0, (n, n))
    _scaled_copy(a, inverse, scaled)
    sizes[2] = 0
    if routines[ITERATION] != 0 and n >= 3 and k < MAX_SHARE_OF_VECTORS * n:
        call(routines[ITERATION], (addresses, sizes, scaled, lam, vectors))
        if sizes[2] == 0:
            _scaled_copy(a, inverse, scaled)
    if sizes[2] == 0:
        sizes[2] = _divide_and_conquer(routines, scaled, k, lam, vectors, scratch[n * n :], carray(sizes, 3)[2:])
    for i in range(n):
        lam[i] = max(scale * lam[i], 0.0)


@loops
def _scaled_copy(a: Any, scale: float, out: Any) -> None:
    for i in range(len(a)):
        for j in range(i + 1):
            out[i, j] = out[j, i] = scale * a[i, j]


@loops
def _divide_and_conquer(routines: Any, a: Any, k: int, values: Any, vectors: Any, scratch: Any, info: Any) -> bool:
    """Compute all eigenvalues and the first k eigenvectors with LAPACK; return whether it succeeded. Overwrites `a`."""
    n = len(a)
    length, integers_length = 1 + 6 * n + 2 * n * n, 3 + 5 * n
    info[0] = 0
    call(routines[SYEVD], (V, U, n, a, n, values, scratch, length, at(scratch, length), integers_length, info))
    for j in range(k):
        for i in range(n):
            vectors[j, i] = a[n - 1 - j, i]
    for i in range(n // 2):
        values[i], values[n - 1 - i] = values[n - 1 - i], values[i]
    return info[0] == 0


def _inverse_iteration(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do the same as `_eigenpairs` for a matrix of norm about 1, by the four steps of the module docstring.

    sizes[2] must be 0 and becomes 1 on success. The matrix is overwritten.
    """
    n, k = sizes[0], sizes[1]
    routines, a, vectors = carray(addresses, EIGENPAIRS), carray(matrix, (n, n)), carray(rows, (k, n))
    form, info, step = np.empty((6, n)), np.zeros(1, np.int64), np.zeros(3, np.int64)
    step[0], step[1] = n, min(k + 1, n)
    scratch = np.empty(max((3 * n + 4) * k, n + 9 * (k + 1 + LANES), 32 * n))
    if n < MIN_ROWS_FOR_SYTRD:
        call(routines[TRIDIAGONALISE], (step, a, form))
    else:
        call(routines[SYTRD], (L, n, a, n, form, at(form, n), at(form, 2 * n), scratch, 32 * n, info))
    for i in range(n):
        values[i] = 0.0
    call(routines[VALUES], (step, form, values, scratch))
    if step[2] == 0:
        return
    step[1] = k
    z, refined, overlap = np.empty((n, k)), np.empty((n, k)), np.empty((k, k))
    call(routines[VECTORS], (step, form, values, z, scratch))
    gemm(routines, True, False, k, k, n, 1.0, at(z, 0), k, at(z, 0), k, 0.0, at(overlap, 0), k)
    defect = 0.0
    for p in range(k):
        overlap[p, p] -= 1.0
        for q in range(k):
            defect = max(defect, abs(overlap[p, q]))
    if not (scratch[0] <= n * EPS and defect <= 1e-8):  # also true for NaN
        return
    for i in range(n):
        for j in range(k):
            refined[i, j] = z[i, j]
    # One step of the Newton-Schulz iteration for the polar factor squares the defect.
    gemm(routines, False, False, n, k, k, -0.5, at(z, 0), k, at(overlap, 0), k, 1.0, at(refined, 0), k)
    if n < MIN_ROWS_FOR_SYTRD:
        call(routines[BACK_TRANSFORM], (step, a, form, refined, scratch))
    for i in range(n):
        for j in range(k):
            vectors[j, i] = refined[i, j]
    if n >= MIN_ROWS_FOR_SYTRD:
        call(routines[ORMTR], (L, L, N, n, k, a, n, at(form, 2 * n), vectors, n, scratch, 32 * n, info))
    sizes[2] = 1


def _graded_eigenpairs(addresses: Any, sizes: Any, matrix: Any, values: Any, rows: Any) -> None:
    """Do the same as `_eigenpairs` to high relative accuracy, for rows of very different lengths; sizes = n, k, rank.

    Write a = D S D, where S has a unit diagonal. Pivoted Cholesky of S (dpstrf) gives the rank. One-sided Jacobi
    (dgejsv) then computes the singular values of D times that factor with a relative error of about eps cond(S),
    independent of D (Demmel and Veselic 1992; Drmac and Veselic 2008). On entry sizes[2] is an upper bound on the rank;
    on return it is the rank, or -1 on failure. The matrix is overwritten.
    """
    n, k = sizes[0], sizes[1]
    routines, a, vectors = carray(addresses, EIGENPAIRS), carray(matrix, (n, n)), carray(rows, (k, n))
    # Two arrays for all scratch memory, as in `_eigenpairs`.
    scratch, integers = np.empty(n * (5 * n + 11) + 7), np.empty(5 * n + 10, np.int32)
    length, info, count, pivots = scratch[:n], integers[:1], integers[1:2], integers[2 : n + 2]
    max_rank, sizes[2] = sizes[2], -1
    for i in range(n):
        length[i] = np.sqrt(a[i, i])
        if not length[i] < np.inf:
            return
    for i in range(n):
        for j in range(n):
            divisor = length[i] * length[j]
            a[i, j] = a[i, j] / divisor if divisor > 0 else 0.0
    call(routines[PSTRF], (U, n, a, n, pivots, count, INDEPENDENT, scratch[n:], info))
    rank = sizes[2] = min(count[0], max_rank)
    for i in range(n):
        values[i] = 0.0
    if rank == 0:
        return
    # Fortran stores the upper factor of S[piv, piv] = U'U by columns. In C order that is the lower triangle of `a`.
    factor, left, right, rest = scratch[n:], scratch[n + n * n :], scratch[n + 2 * n * n :], scratch[n + 3 * n * n :]
    for i in range(rank * n):
        factor[i] = 0.0
    for i in range(n):
        p = pivots[i] - 1
        for j in range(min(i + 1, rank)):
            factor[j * n + p] = length[p] * a[i, j]
    size = max(2 * n + rank, 6 * rank + 2 * rank * rank, 4 * rank + rank * rank) + 7 + n
    sva, svd_work = rest[:n], rest[n:]
    call(
        routines[GEJSV],
        (F, U, N, N, N, N, n, rank, factor, n, sva, left, n, right, rank, svd_work, size, integers[n + 2 :], info),
    )
    if info[0] != 0:
        sizes[2] = -1
        return
    for j in range(rank):
        sigma = sva[j] * (svd_work[0] / svd_work[1])
        values[j] = sigma * sigma
        if j < k:
            for i in range(n):
                vectors[j, i] = left[j * n + i]
