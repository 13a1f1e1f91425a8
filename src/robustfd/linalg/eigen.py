"""The largest eigenvalues and eigenvectors of a small positive semi-definite matrix: the inner loop of a shrink.

A shrink keeps fewer than half of the eigenvectors of a matrix of a hundred or two rows. LAPACK's fastest driver
computes all of them; its drivers for some are slower still. Here LAPACK reduces the matrix to tridiagonal form
and finds the eigenvalues, and the wanted vectors come from one step of inverse iteration by twisted
factorisation (Dhillon and Parlett 2004), for all of them side by side. Residuals and orthogonality are then
checked; where they are not as good as LAPACK's, and that is where eigenvalues nearly coincide, LAPACK's divide
and conquer takes over.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dormqr, dsterf, dsytrd

from robustfd.linalg._compile import compiled

Floats = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
SMALL = 30  # up to this size LAPACK is as fast
TINY = 1e-200  # stands for a pivot that vanishes; the matrix has norm about 1


def largest_eigenpairs(a: Floats, k: int) -> tuple[Floats, Floats]:
    """Return (all eigenvalues, descending and not below zero; the first k eigenvectors or more, as columns).

    `a` is positive semi-definite; its lower triangle is read.
    """
    largest = float(a.diagonal().max())
    if len(a) > SMALL and k < 0.7 * len(a) and largest > 0:
        pairs = _by_inverse_iteration(np.divide(a, largest, order="F"), k)
        if pairs is not None:
            return np.maximum(largest * pairs[0], 0.0), pairs[1]
    try:
        values, v = np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        # LAPACK can fail on numbers that differ by more than 1e300; in units of the largest the least are zero.
        values, v = np.linalg.eigh(a / largest)
        values = largest * values
    return np.maximum(values[::-1], 0.0), v[:, ::-1]


def _by_inverse_iteration(a: Floats, k: int) -> tuple[Floats, Floats] | None:
    """Return the pairs, or None if they are not good enough; `a`, in columns, is overwritten."""
    n = len(a)
    reflectors, diagonal, off_diagonal, tau, _ = dsytrd(a, lower=1, lwork=64 * n, overwrite_a=1)
    values, info = dsterf(diagonal, off_diagonal)
    if info != 0:
        return None
    values = values[::-1]
    z = np.empty((n, k))
    residual = _twisted_vectors(diagonal, off_diagonal, np.ascontiguousarray(values[:k]), np.empty((3, n, k)), z)
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


@compiled
def _twisted_vectors(a: Any, b: Any, shifts: Any, work: Any, z: Any) -> Any:
    """Fill the columns of z with unit vectors of the tridiagonal T = (a, b); return the largest |T z - shift z|.

    T - shift = L D L' from above and U D U' from below; where the two meet with the smallest gamma, z is 1 and
    the rest follows by substitution; gamma is then the only entry of T z - shift z that is not zero. Loops over
    the shifts are innermost, so that they run in vector registers.
    """
    n, k = z.shape
    below, above, pivot = work[0], work[1], work[2]
    up, where, gamma, squares = np.empty(k), np.empty(k), np.empty(k), np.zeros(k)
    for j in range(k):
        pivot[0, j] = a[0] - shifts[j]
    for i in range(n - 1):
        for j in range(k):
            d = pivot[i, j]
            d = d if abs(d) > TINY else TINY
            below[i, j] = b[i] / d
            pivot[i + 1, j] = (a[i + 1] - shifts[j]) - b[i] * below[i, j]
    for j in range(k):
        up[j] = a[n - 1] - shifts[j]
        gamma[j] = abs(pivot[n - 1, j])
        where[j] = n - 1.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            d = up[j]
            d = d if abs(d) > TINY else TINY
            above[i, j] = b[i] / d
            up[j] = (a[i] - shifts[j]) - b[i] * above[i, j]
            meeting = abs(pivot[i, j] - b[i] * above[i, j])
            where[j] = float(i) if meeting < gamma[j] else where[j]
            gamma[j] = meeting if meeting < gamma[j] else gamma[j]
    for j in range(k):
        z[n - 1, j] = 1.0 if where[j] == n - 1.0 else 0.0
    for i in range(n - 2, -1, -1):
        for j in range(k):
            follows = -below[i, j] * z[i + 1, j]
            follows = follows if abs(follows) > TINY else 0.0  # before it is a subnormal, which are slow
            z[i, j] = 1.0 if where[j] == i else (follows if where[j] > i else 0.0)
    for i in range(n - 1):
        for j in range(k):
            follows = -above[i, j] * z[i, j]
            follows = follows if abs(follows) > TINY else 0.0
            z[i + 1, j] = follows if where[j] <= i else z[i + 1, j]
    for i in range(n):
        for j in range(k):
            squares[j] += z[i, j] * z[i, j]
    residual = 0.0
    for j in range(k):
        squares[j] = 1.0 / np.sqrt(squares[j])
        residual = residual if gamma[j] * squares[j] <= residual else gamma[j] * squares[j]
    for i in range(n):
        for j in range(k):
            z[i, j] *= squares[j]
    return residual
