"""The operator M = V' diag(lam) V + alpha I, which sketches return. The d x d matrix is never formed.

Every function of M acts separately on two orthogonal parts of a vector b: on its coordinates c = V b, where M has the
eigenvalues lam_i + alpha, and on its residual b - V' c, where M is alpha I. All methods use this form. The shorter
Woodbury form (b - V' diag(lam / (lam + alpha)) V b) / alpha suffers from cancellation when alpha is small: its error
grows like eps / alpha.
"""

import math
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from robustfd.linalg.eigen import EPS
from robustfd.linalg.low_rank import (
    Array,
    Floats,
    LowRankPlus,
    check_low_rank,
    dense,
    sparse_distances,
    squared_norms,
)

BLOCK = 2**20  # entries in a dense block of rows (8 MB); limits the memory that distances of many rows need


class LowRankPlusIdentity(LowRankPlus):
    r"""The d x d matrix M = V' diag(lam) V + alpha I as a linear operator.

    For alpha > 0, with coordinates c = V b and residual e = b - V' c,

    .. math::

        M^{-1} b = V' \frac{c}{\lambda + \alpha} + \frac{e}{\alpha}, \qquad
        M^{-1/2} b = V' \frac{c}{\sqrt{\lambda + \alpha}} + \frac{e}{\sqrt\alpha}, \qquad
        \log\det M = \sum_{i \le r} \log(\lambda_i + \alpha) + (d - r) \log \alpha.

    If alpha = 0, M is singular unless r = d and no eigenvalue is negligible. The pseudo-inverse then replaces the
    inverse, with the lam_i above d * eps * lam_1, and the pseudo-determinant (the product of these lam_i) replaces the
    determinant.

    Parameters
    ----------
    components : array of shape (r, d)
        V, with orthonormal rows. r may be 0. The array is not copied. float32 stays float32, other types become
        float64.
    eigenvalues : array-like of shape (r,)
        lam, the nonnegative eigenvalues of the low-rank part, in the order of the components.
    alpha : float, default=0.0
        The nonnegative multiple of the identity.

    Attributes
    ----------
    components : ndarray of shape (r, d)
    low_rank_eigenvalues : ndarray of shape (r,), float64
    alpha : float
    shape : (d, d)
    dtype : float32 or float64, the type of `components`

    See Also
    --------
    LowRankPlusDiagonal : The same with a diagonal matrix in place of alpha I.
    spectral_optimum, frobenius_optimum : The best approximation of a known matrix in this form.
    RobustFrequentDirections : The sketch whose `second_moment()` is this operator.

    Notes
    -----
    Flops per vector: 4 r d for a product and for `mahalanobis` (2 r z for a sparse row with z stored values),
    6 r d for `solve` and `whiten`. `diagonal` costs O(r d), `to_dense` O(r d^2), all other methods at most O(d).

    The result has the common type of `components` and the argument, so float32 only if both are float32. Functions of
    the eigenvalues alone are always float64. NaN and infinity in an argument propagate to the result.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import LowRankPlusIdentity
    >>> M = LowRankPlusIdentity([[0.6, 0.8, 0.0]], [3.0], alpha=1.0)
    >>> M
    <LowRankPlusIdentity 3x3: rank 1, eigenvalues 3 to 3, plus 1 I, float64>
    >>> (M @ [0.6, 0.8, 1.0]).round(12)
    array([2.4, 3.2, 1. ])
    >>> M.solve([2.4, 3.2, 1.0]).round(12)
    array([0.6, 0.8, 1. ])
    >>> M.eigenvalues(), M.trace(), M.condition_number()
    (array([4., 1., 1.]), 6.0, 4.0)
    >>> bool(np.isclose(M.logdet(), np.log(4)))
    True
    >>> M.mahalanobis([[0.6, 0.8, 0.0], [0.0, 0.0, 2.0]]).round(12)
    array([0.25, 4.  ])
    """

    alpha: float

    def __init__(self, components: ArrayLike, eigenvalues: ArrayLike, alpha: float = 0.0) -> None:
        v, lam = check_low_rank(components, eigenvalues)
        if not isinstance(alpha, Real) or not 0.0 <= alpha < np.inf:
            raise ValueError(f"alpha is {alpha!r}, expected a finite number >= 0")
        super().__init__(v, lam, float(alpha), "alpha")
        self.alpha = float(alpha)

    def _describe_added(self) -> str:
        return f"{self.alpha:.6g} I"

    # ------------------------------------------------------------------ inverse

    def solve(self, b: Any) -> Array:
        """Return M^-1 b for b of shape (d,) or (d, k). If M is singular, return the least-squares solution M^+ b.

        Costs 6 r d flops per column. M is singular if alpha = 0, unless all d eigenvalues are above the tolerance.
        """
        return self._divide(self._columns(b).T, *self._divisors()).T

    def whiten(self, X: Any) -> Array:
        """Return M^-1/2 x for a vector of shape (d,) or for each row of X, of shape (n, d), dense or sparse.

        Rows with second moment M become rows with second moment I. The result is dense. If M is singular, the square
        root of the pseudo-inverse is used, and directions without variance become 0.
        """
        rows = self._rows(X)
        top, tail = self._divisors()
        return self._divide(rows, np.sqrt(top), math.sqrt(tail))

    def mahalanobis(self, X: Any, mean: ArrayLike | None = None) -> Any:
        """Return the squared distances (x - mean)' M^-1 (x - mean), one for each row of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or array of shape (d,)
            Dense rows are processed in blocks, sparse rows stay sparse.
        mean : array-like of shape (d,), optional
            Defaults to zero.

        Returns
        -------
        distances : ndarray of shape (n,), or float

        Notes
        -----
        If M is singular, the pseudo-inverse is used: the part of a row outside its range adds nothing to the distance.
        Let e = x - mean. For a dense row, the residual e - V' V e is formed explicitly, and its square has an error of
        about (eps ||e||)^2. For a sparse row, the squared residual is computed as ||e||^2 - ||V e||^2, floored at 0,
        with an error of about eps (||x||^2 + ||mean||^2). So the distance of a sparse row has fewer correct digits if
        the row is almost in the span of the components and alpha is small.
        """
        rows, mu = self._rows(X), self._mean(mean)
        dtype = np.result_type(self.dtype, rows.dtype)
        top, tail = self._divisors()
        top, tail = np.sqrt(top), math.sqrt(tail)
        if scipy.sparse.issparse(rows):
            return sparse_distances(self.components, rows, mu, top, tail).astype(dtype, copy=False)
        stack = np.atleast_2d(rows)
        squared = np.empty(len(stack))
        step = max(1, BLOCK // self.shape[0])
        for start in range(0, len(stack), step):
            block = stack[start : start + step]
            c, residual = self._split(block if mu is None else (block - mu).astype(dtype, copy=False), tail)
            # Divide before squaring: the squares alone may overflow even if the distance does not.
            squared[start : start + step] = squared_norms(c / top)
            if residual is not None:
                squared[start : start + step] += squared_norms(np.divide(residual, tail, dtype=np.float64))
        return squared.astype(dtype, copy=False) if rows.ndim == 2 else float(squared[0])

    # ------------------------------------------------------------------ spectrum

    def eigenvalues(self) -> Floats:
        """Return all d eigenvalues, descending: lam_i + alpha, then alpha d - r times."""
        values = np.full(self.shape[0], self.alpha)
        values[: len(self.components)] += np.sort(self.low_rank_eigenvalues)[::-1]
        return values

    def logdet(self) -> float:
        """Return log det M. If M is singular, return the log of the pseudo-determinant (0.0 for the zero matrix)."""
        top, tail = self._divisors()
        rest = 0.0 if tail == np.inf else (self.shape[0] - len(top)) * math.log(tail)
        return float(np.log(top[top < np.inf]).sum()) + rest

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(self.low_rank_eigenvalues.sum()) + self.shape[0] * self.alpha

    def condition_number(self) -> float:
        """Return the ratio of the largest to the smallest eigenvalue; infinity if M is singular, as in `solve`."""
        top, tail = self._divisors()
        if np.isinf(top).any() or (tail == np.inf and len(top) < self.shape[0]):
            return float("inf")
        values = self.eigenvalues()
        return float(values[0]) / float(values[-1])  # Python floats overflow to infinity without a warning

    # ------------------------------------------------------------------ parts

    def _divisors(self) -> tuple[Floats, float]:
        """Return the eigenvalues along the components and on their complement; infinity for negligible ones.

        Division by infinity gives zero, so the same code computes the inverse and the pseudo-inverse.
        """
        top = self.low_rank_eigenvalues + self.alpha
        r, d = self.components.shape
        if self.alpha == 0.0 and r:
            top[top <= d * EPS * top.max()] = np.inf
        # If r = d, the components span the whole space and a residual would be pure rounding error.
        return top, self.alpha if self.alpha > 0.0 and r < d else np.inf

    def _split(self, X: Any, tail: float) -> tuple[Array, Array | None]:
        """Return the coordinates X V' and the residual X - X V' V of rows; None if the residual is not needed."""
        c = np.asarray(X @ self.components.T)
        return c, None if tail == np.inf else dense(X) - c @ self.components

    def _divide(self, X: Any, top: Floats, tail: float) -> Array:
        """Return the rows of X with their coordinates divided by `top` and their residuals divided by `tail`."""
        c, residual = self._split(X, tail)
        result = np.asarray((c / top).astype(c.dtype, copy=False) @ self.components)
        if residual is not None:
            # In float64, because `tail` may be outside the range of float32.
            result += np.divide(residual, tail, out=residual, dtype=np.float64, casting="same_kind")
        return result
