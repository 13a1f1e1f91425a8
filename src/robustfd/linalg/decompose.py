"""The shrink step, which dominates the cost of every sketch: reduce a stack of n rows to m - 1 orthogonal rows.

The stack is [s B; diag(t) X]. B is the current sketch, with orthogonal rows of known squared norms, and X holds new
rows. Three methods give the same result up to rounding:

- rows: eigenpairs of the n x n Gram matrix of the stack. Only X B' and X X' are computed, because B B' is diagonal
  and known. Costs O(n^2 d) flops, all in matrix products, plus O(n^3). The absolute error of a squared singular value
  is O(n eps lambda_1), so smaller values are noise.
- columns: eigenpairs of the d x d matrix, for stacks with more rows than columns. Costs O(n d^2 + d^3), with the same
  error.
- svd: an SVD of the stack. Several times slower. Backward stable: the error of a singular value is O(eps sigma_1), so
  squared values are meaningful down to (eps sigma_1)^2.

When the Gram matrix of the rows does not resolve the small values, its eigenvectors still map the stack to rows that
are nearly orthogonal and sorted by length. Divide each row by its length. The Gram matrix of the result is well
conditioned, so its Cholesky factor is accurate, and the SVD of that small factor, with the lengths multiplied back
in, is as accurate as an SVD of the stack (the scaling argument is that of Demmel and Veselic 1992). This costs two Gram
matrices instead of one.

All sketches share one shrink rule. They differ in a single number: j, how many of the m largest squared singular values
a shrink step reduces by delta = lambda_m, counted from the smallest of them:

- FD, RFD, CFD: j = m (Luo et al. 2019, Alg. 1 and 2, line 5),
- PFD: j = max(1, floor(beta m)) (Desai et al. 2016),
- greedy, also known as iSVD: j = 1, so only lambda_m itself is removed (Luo et al. 2019, Alg. 8).
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import robustfd._core as _core
from robustfd._scipy import scipy_linalg

Floats = NDArray[np.float64]
Solver = Literal["auto", "svd"]

EPS = float(np.finfo(np.float64).eps)
RESOLVED = 1e-9  # smallest lambda_m / lambda_1 for which the Gram matrix gives lambda_m enough correct digits
LEAST_ROWS = 4  # smaller stacks have no smaller rounding errors, because their rows come from earlier shrink steps


@dataclass(frozen=True)
class Shrunk:
    """Orthogonal rows, their squared norms (positive, descending) and the delta that the shrink step subtracted."""

    rows: Floats
    lam: Floats
    delta: float


@dataclass(frozen=True)
class SmallShrink:
    """A shrink step in the coordinates of the stack: the new rows are `weights` times the stack."""

    weights: Floats
    lam: Floats
    delta: float
    resolved: bool


def stack_gram(lam: Floats, xb: Floats, xx: Floats, s: float, t: Floats) -> Floats:
    """Return the lower triangle of the Gram matrix of [s B; diag(t) X] from lam, X B' and X X'."""
    r, size = len(lam), len(lam) + len(xx)
    gram = np.zeros((size, size))
    gram[np.arange(r), np.arange(r)] = s * s * lam
    gram[r:, :r], gram[r:, r:] = xb, xx
    if s < 1.0 or t.min() < 1.0:
        gram[r:, :r] *= (s * t)[:, None]
        gram[r:, r:] *= t[:, None] * t
    return gram


def shrink_gram(gram: Floats, m: int, j: int, rank: int) -> SmallShrink:
    """Return the shrink step of a stack, given its Gram matrix. Only the lower triangle is read.

    `rank` is an upper bound on the rank of the stack. The field `resolved` of the result reports whether the Gram
    matrix determines lambda_m accurately enough.
    """
    lam, q = largest_eigenpairs(gram, min(m - 1, len(gram)))
    kept, delta = shrink(lam, m, j, noise=gram_noise(len(gram), lam[0]))
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
    """Return the shrink step of [s B; diag(t) X], where B has orthogonal rows of squared norms lam."""
    t = np.ones(len(x)) if t is None else t
    size, d = len(b) + len(x), x.shape[1]
    if size == 0:
        return Shrunk(b, lam, 0.0)
    if solver != "svd":
        shrunk, resolved = (_by_rows if size <= d else _by_columns)(b, lam, x, m, j, s, t)
        if resolved:
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
    """Return the shrink step of [s B; X], which has `size` rows, given product = X'X, and whether it is resolved."""
    values, v = largest_eigenpairs(s * s * (b.T @ b) + product, min(m - 1, len(product)))
    kept, delta = shrink(values, m, j, noise=gram_noise(size, values[0]))
    rows = np.sqrt(kept)[:, None] * v[:, : len(kept)].T
    resolved = bool(values[min(m, len(values)) - 1] >= RESOLVED * values[0])
    return Shrunk(rows, kept, delta), resolved


def _refined(stack: Floats, m: int, j: int) -> Shrunk | None:
    """Return the shrink step from two Gram matrices, or None if the second is not positive definite.

    The eigenvectors of the first make the rows nearly orthogonal; the second corrects them (see the module docstring).
    """
    _, q = largest_eigenpairs(stack @ stack.T, len(stack))
    y = q.T @ stack
    length = np.sqrt(np.einsum("ij,ij->i", y, y))
    significant = length > svd_noise(len(stack), length.max())
    y, length = y[significant] / length[significant, None], length[significant]
    try:
        r = scipy_linalg.cholesky(y @ y.T, check_finite=False)  # y y' = r' r
        _, sigma, vt = scipy_linalg.svd(r * length, check_finite=False)
    except np.linalg.LinAlgError:  # rows of nearly equal length may still be almost parallel
        return None
    kept, delta = shrink(sigma * sigma, m, j, svd_noise(len(stack), sigma.max(initial=0.0)) ** 2)
    r = len(kept)
    weights = (np.sqrt(kept) / sigma[:r])[:, None] * vt[:r] * length
    return Shrunk(weights @ y, kept, delta)


def _by_svd(b: Floats, x: Floats, m: int, j: int, s: float, t: Floats) -> Shrunk:
    stack = _stack(b, x, s, t)
    _, sigma, vt = svd(stack)
    noise = svd_noise(len(stack), sigma[0]) ** 2
    kept, delta = shrink(sigma * sigma, m, j, noise)  # not sigma**2, which can round differently for scalars
    return Shrunk(np.sqrt(kept)[:, None] * vt[: len(kept)], kept, delta)


def svd(a: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the thin SVD of `a`: U, the singular values and V'."""
    if not a.size:  # scipy < 1.14 rejects empty arrays
        return np.zeros((len(a), 0)), np.zeros(0), np.zeros((0, a.shape[1]))
    try:
        u, sigma, vt = scipy_linalg.svd(a, full_matrices=False, check_finite=False)
    except np.linalg.LinAlgError:  # divide and conquer failed to converge; QR iteration is slower but more robust
        u, sigma, vt = scipy_linalg.svd(a, full_matrices=False, check_finite=False, lapack_driver="gesvd")
    return u, sigma, vt


def _stack(b: Floats, x: Floats, s: float, t: Floats) -> Floats:
    return np.concatenate([s * b, t[:, None] * x])


def combine(wx: Floats, x: Floats, wb: Floats, b: Floats) -> Floats:
    """Return wx x + wb b. Allocates the result and, if x and b are C-ordered, no other array of its size.

    The core's products release the global interpreter lock, which scipy's wrappers hold.
    """
    out = np.empty((len(wx), x.shape[1]))
    if len(wx):
        _core.add_product(out, np.ascontiguousarray(wx, np.float64), np.ascontiguousarray(x, np.float64), 0.0)
        if len(b):
            _core.add_product(out, np.ascontiguousarray(wb, np.float64), np.ascontiguousarray(b, np.float64), 1.0)
    return out


# -- rules and thresholds


def largest_eigenpairs(a: Any, k: int) -> tuple[Floats, Floats]:
    """Return the k + 1 largest eigenvalues (descending, nonnegative) and k eigenvectors (as columns).

    `a` is positive semi-definite. Only its lower triangle is read. The core has its own solver (src/core/eigen.hpp),
    since LAPACK's drivers are slower at this size.
    """
    try:
        values, rows = _core.largest_eigenpairs(np.ascontiguousarray(a, np.float64), k)
    except RuntimeError as error:
        raise np.linalg.LinAlgError(str(error)) from None
    return values, rows.T


def shrunk_count(m: int, beta: float) -> int:
    """Return j, the number of values that a shrink step of PFD reduces."""
    # 0.29 * 100 is 28.999999999999996 in floating point; adding 1e-9 restores the intended integer.
    return max(1, math.floor(beta * m + 1e-9))


def shrink(lam: Floats, m: int, j: int, noise: float) -> tuple[Floats, float]:
    """Return (kept, delta): at most m - 1 positive squared singular values, and the amount that was subtracted.

    `lam` is descending. A delta up to `noise` is rounding error and is set to exactly zero.
    """
    kept, delta = _core.shrink_values(np.ascontiguousarray(lam, np.float64), m, j, noise)
    return kept, delta


def gram_noise(size: int, largest: float) -> float:
    """Return the threshold below which eigenvalues of the Gram matrix of `size` rows are rounding error."""
    return 4.0 * EPS * max(size, LEAST_ROWS) * largest


def svd_noise(size: int, sigma: float) -> float:
    """Return the threshold below which singular values of a stack of `size` rows are rounding error."""
    # Rounding in earlier shrink steps moves rows of B out of their span by about 20 eps sigma_1, whatever their number.
    return max(size, 32 * LEAST_ROWS) * EPS * sigma


def rounding(size: int, d: int, s: float, lam: Floats, noise: float) -> float:
    """Return a bound on the rounding errors of B'B and delta in a shrink step of `size` rows, in the spectral norm.

    B has squared lengths `lam` before it is scaled by s. `noise` is eps times the sum of squares of the other rows, or
    of the terms that they are sums of.
    """
    # Relative errors: about sqrt(d) eps for inner products of length d (Higham and Mary 2019), size * eps for
    # eigenpairs. s is a product of many decays, so its error grows with -log(s). The constant 8 is a safety factor.
    fades = -2.0 * math.log(max(s, 1e-300))
    return 8.0 * (size + math.sqrt(d) + fades) * (EPS * s * s * float(lam.sum()) + noise)
