"""The one expensive step of every sketch: cut a stack of rows down to m - 1 orthogonal ones.

The stack is [s B; diag(t) X], B the sketch so far, with orthogonal rows of known squared norms, and X new
rows. Three routes give the same result up to rounding:

- rows: the Gram matrix of the stack, which needs only X B' and X X' because B B' is known. Everything of
  length d is a matrix product. Squared singular values below about eps * lambda_1 are noise.
- columns: the d x d matrix, when the stack has more rows than columns.
- svd: of the stack itself; several times slower, squared singular values are good down to
  (eps * sigma_1)^2.

Where the first is too coarse its eigenvectors are still good enough to turn the stack into rows that are
nearly orthogonal and sorted by length. The Gram matrix of those rows, each divided by its length, hides nothing,
and a small SVD finishes the work, as accurately as the SVD of the stack.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from robustfd.linalg import unlocked
from robustfd.linalg.eigen import largest_eigenpairs
from robustfd.linalg.rules import gram_noise, shrink, svd_noise

Floats = NDArray[np.float64]
Solver = Literal["auto", "gram", "svd"]

RESOLVED = 1e-9  # lambda_m / lambda_1 below this: the Gram matrix no longer sees the small rows well


@dataclass(frozen=True)
class Shrunk:
    """Rows that are orthogonal, their squared norms (all positive, descending) and the delta that was taken."""

    rows: Floats
    lam: Floats
    delta: float


@dataclass(frozen=True)
class SmallShrink:
    """A shrink in coordinates: the new rows are `weights` times the old stack."""

    weights: Floats
    lam: Floats
    delta: float
    resolved: bool


def stack_gram(lam: Floats, xb: Floats, xx: Floats, s: float, t: Floats) -> Floats:
    """Return the lower triangle of the Gram matrix of [s B; diag(t) X] from lam, X B' and X X'."""
    r, size = len(lam), len(lam) + len(xx)
    gram = np.zeros((size, size), order="F")  # as LAPACK wants it
    gram[np.arange(r), np.arange(r)] = s * s * lam
    gram[r:, :r], gram[r:, r:] = xb, xx
    if s < 1.0 or t.min() < 1.0:
        gram[r:, :r] *= (s * t)[:, None]
        gram[r:, r:] *= t[:, None] * t
    return gram


def shrink_gram(gram: Floats, m: int, j: int, rank: int) -> SmallShrink:
    """Return the shrink of a stack given its Gram matrix, of which the lower triangle is read.

    `rank` bounds the rank of the stack; whether its smallest relevant value is above the noise is reported.
    """
    lam, q = largest_eigenpairs(gram, min(m - 1, len(gram)))
    kept, delta = shrink(lam, m, j, noise=gram_noise.py_func(len(gram), lam[0]))
    r = len(kept)
    weights = np.sqrt(kept / lam[:r])[:, None] * q[:, :r].T
    resolved = bool(lam[min(m, rank) - 1] >= RESOLVED * lam[0])
    return SmallShrink(weights, kept, delta, resolved)


def shrink_stack(
    b: Floats,
    lam: Floats,
    x: Floats,
    m: int,
    j: int,
    *,
    s: float = 1.0,
    t: Floats | None = None,
    solver: Solver = "auto",
) -> Shrunk:
    """Return the shrink of [s B; diag(t) X], the rows of B orthogonal with squared norms lam."""
    t = np.ones(len(x)) if t is None else t
    size, d = len(b) + len(x), x.shape[1]
    if size == 0:
        return Shrunk(b, lam, 0.0)
    if solver != "svd":
        shrunk, resolved = (_by_rows if size <= d else _by_columns)(b, lam, x, m, j, s, t)
        if resolved or solver == "gram":
            return shrunk
    refined = _refined(_stack(b, x, s, t), m, j) if solver == "auto" and size <= d else None
    return refined or _by_svd(b, x, m, j, s, t)


def _by_rows(b: Floats, lam: Floats, x: Floats, m: int, j: int, s: float, t: Floats) -> tuple[Shrunk, bool]:
    b, x = np.ascontiguousarray(b), np.ascontiguousarray(x)
    r = len(b)
    gram = stack_gram(lam, x @ b.T, x @ x.T, s, t)
    small = shrink_gram(gram, m, j, rank=min(len(gram), x.shape[1]))
    rows = combine(small.weights[:, r:] * t, x, s * small.weights[:, :r], b)
    return Shrunk(rows, small.lam, small.delta), small.resolved


def _by_columns(b: Floats, lam: Floats, x: Floats, m: int, j: int, s: float, t: Floats) -> tuple[Shrunk, bool]:
    x = x if t.min(initial=1.0) == 1.0 else t[:, None] * x
    return shrink_columns(b, x.T @ x, m, j, s=s, size=len(b) + len(x))


def shrink_columns(b: Floats, product: Floats, m: int, j: int, *, s: float, size: int) -> tuple[Shrunk, bool]:
    """Return the shrink of a stack of s B and rows with X'X = product, `size` in all, and whether it is resolved."""
    values, v = largest_eigenpairs(s * s * (b.T @ b) + product, min(m - 1, len(product)))
    kept, delta = shrink(values, m, j, noise=gram_noise.py_func(size, values[0]))
    rows = np.sqrt(kept)[:, None] * v[:, : len(kept)].T
    resolved = bool(values[min(m, len(values)) - 1] >= RESOLVED * values[0])
    return Shrunk(rows, kept, delta), resolved


def _refined(stack: Floats, m: int, j: int) -> Shrunk | None:
    """Return the shrink by two Gram matrices, the second of rows made nearly orthogonal by the first, or None."""
    _, q = largest_eigenpairs(stack @ stack.T, len(stack))
    y = q.T @ stack
    length = np.sqrt(np.einsum("ij,ij->i", y, y))
    live = length > svd_noise(len(stack), length.max())
    y, length = y[live] / length[live, None], length[live]
    try:
        r = scipy.linalg.cholesky(y @ y.T, check_finite=False)  # y y' = r' r
        _, sigma, vt = scipy.linalg.svd(r * length, check_finite=False)
    except np.linalg.LinAlgError:  # rows of nearly the same length can be nearly parallel
        return None
    kept, delta = shrink(sigma * sigma, m, j, svd_noise(len(stack), sigma.max(initial=0.0)) ** 2)
    r = len(kept)
    weights = (np.sqrt(kept) / sigma[:r])[:, None] * vt[:r] * length
    return Shrunk(weights @ y, kept, delta)


def _by_svd(b: Floats, x: Floats, m: int, j: int, s: float, t: Floats) -> Shrunk:
    stack = _stack(b, x, s, t)
    _, sigma, vt = svd(stack)
    noise = svd_noise(len(stack), sigma[0]) ** 2
    kept, delta = shrink(sigma * sigma, m, j, noise)  # sigma**2 of a scalar rounds differently: never mix them
    return Shrunk(np.sqrt(kept)[:, None] * vt[: len(kept)], kept, delta)


def svd(a: Floats) -> tuple[Floats, Floats, Floats]:
    """Return U, the singular values and V' of a, as many as its shorter side."""
    if not a.size:  # scipy refused that until 1.14
        return np.zeros((len(a), 0)), np.zeros(0), np.zeros((0, a.shape[1]))
    try:
        u, sigma, vt = scipy.linalg.svd(a, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:  # divide and conquer can fail to converge where QR iteration does not
        u, sigma, vt = scipy.linalg.svd(a, full_matrices=False, check_finite=False, lapack_driver="gesvd")
    return u, sigma, vt


def _stack(b: Floats, x: Floats, s: float, t: Floats) -> Floats:
    return np.concatenate([s * b, t[:, None] * x])


def combine(wx: Floats, x: Floats, wb: Floats, b: Floats) -> Floats:
    """Return wx x + wb b for C-ordered x and b, with one result array and no temporary of its size."""
    if len(wx) == 0:
        return np.zeros((0, x.shape[1]))
    out = np.empty((len(wx), x.shape[1]))
    unlocked.add_product(out, wx, x, keep=0.0)
    if len(b):
        unlocked.add_product(out, wb, b)
    return out
