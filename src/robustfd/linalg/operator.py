"""The matrix M = V' diag(lam) V + alpha I, never formed: what a sketch hands out to be used.

Every function of M acts on two orthogonal parts of a vector: its coordinates c = V b along the components,
where M is lam_i + alpha, and its residual b - V' c, where M is alpha. All methods are written in that form.
The shorter (b - V' diag(lam / (lam + alpha)) V b) / alpha subtracts nearly equal numbers when alpha is small.
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

BLOCK = 2**20  # entries of a dense block of rows: 8 MB, so that distances of many rows need little memory


class LowRankPlusIdentity(LowRankPlus):
    r"""The d x d matrix M = V' diag(lam) V + alpha I as a linear operator.

    For alpha > 0, with coordinates c = V b and residual e = b - V' c,

    .. math::

        M^{-1} b = V' \frac{c}{\lambda + \alpha} + \frac{e}{\alpha}, \qquad
        M^{-1/2} b = V' \frac{c}{\sqrt{\lambda + \alpha}} + \frac{e}{\sqrt\alpha}, \qquad
        \log\det M = \sum_{i \le r} \log(\lambda_i + \alpha) + (d - r) \log \alpha.

    With alpha = 0 the matrix is singular unless r = d and no eigenvalue is negligible. The pseudo-inverse
    then takes the place of the inverse, keeping the lam_i above d * eps * lam_1, and the pseudo-determinant
    (the product of the kept lam_i) that of the determinant.

    Parameters
    ----------
    components : array of shape (r, d)
        V, orthonormal rows; r may be 0. Not copied. float32 stays float32, any other type becomes float64.
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
    dtype : float32 or float64, that of `components`

    Notes
    -----
    Flops a vector: 4 r d for a product and for `mahalanobis` (2 r z for a sparse row with z stored values),
    6 r d for `solve` and `whiten`. `diagonal` takes O(r d), `to_dense` O(r d^2), all else O(d) at most.

    Results have the common type of `components` and the argument: float32 for two float32. What concerns only
    the eigenvalues is float64 in any case. NaN and infinity in an argument go through to the result.

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
        """Return M^-1 b for b of shape (d,) or (d, k); with a singular M, the least-squares solution M^+ b.

        6 r d flops a column. M is singular when alpha = 0 unless all d eigenvalues are above the tolerance.
        """
        return self._divide(self._columns(b).T, *self._divisors()).T

    def whiten(self, X: Any) -> Array:
        """Return M^-1/2 x for a vector of shape (d,) or for each row of X, of shape (n, d), dense or sparse.

        Rows with second moment M become rows with second moment I. The result is dense. With a singular M it
        is the root of the pseudo-inverse: directions without variance become 0.
        """
        rows = self._rows(X)
        top, tail = self._divisors()
        return self._divide(rows, np.sqrt(top), math.sqrt(tail))

    def mahalanobis(self, X: Any, mean: ArrayLike | None = None) -> Any:
        """Return the squared distances (x - mean)' M^-1 (x - mean), one for each row of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or array of shape (d,)
            Sparse rows are not made dense, dense ones are handled in blocks.
        mean : array-like of shape (d,), optional
            Zero if not given.

        Returns
        -------
        distances : ndarray of shape (n,), or float

        Notes
        -----
        With a singular M the pseudo-inverse counts: what is outside its range adds nothing to the distance.
        With e = x - mean, the squared residual of a dense row is that of e - V' V e, good to (eps ||e||)^2.
        That of a sparse row is ||e||^2 - ||V e||^2, not below 0, good to eps (||x||^2 + ||mean||^2): for
        rows almost in the span of the components, and a small alpha, the distance has fewer correct digits.
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
            # Divided before they are squared: the squares alone may overflow where the distance does not.
            squared[start : start + step] = squared_norms(c / top)
            if residual is not None:
                squared[start : start + step] += squared_norms(np.divide(residual, tail, dtype=np.float64))
        return squared.astype(dtype, copy=False) if rows.ndim == 2 else float(squared[0])

    # ------------------------------------------------------------------ spectrum

    def eigenvalues(self) -> Floats:
        """Return all d eigenvalues, descending: lam_i + alpha and, d - r times, alpha."""
        values = np.full(self.shape[0], self.alpha)
        values[: len(self.components)] += np.sort(self.low_rank_eigenvalues)[::-1]
        return values

    def logdet(self) -> float:
        """Return log det M; with a singular M the log of the pseudo-determinant (0.0 for the zero matrix)."""
        top, tail = self._divisors()
        rest = 0.0 if tail == np.inf else (self.shape[0] - len(top)) * math.log(tail)
        return float(np.log(top[top < np.inf]).sum()) + rest

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(self.low_rank_eigenvalues.sum()) + self.shape[0] * self.alpha

    def condition_number(self) -> float:
        """Return the largest eigenvalue over the smallest; infinity when M is singular, as in `solve`."""
        top, tail = self._divisors()
        if np.isinf(top).any() or (tail == np.inf and len(top) < self.shape[0]):
            return float("inf")
        values = self.eigenvalues()
        return float(values[0]) / float(values[-1])  # of Python floats: too large is infinity, not a warning

    # ------------------------------------------------------------------ parts

    def _divisors(self) -> tuple[Floats, float]:
        """Return the eigenvalues along the components and off them; infinity for what is to be dropped.

        A number divided by infinity is zero, so the same division gives inverse and pseudo-inverse.
        """
        top = self.low_rank_eigenvalues + self.alpha
        r, d = self.components.shape
        if self.alpha == 0.0 and r:
            top[top <= d * EPS * top.max()] = np.inf
        # When r = d the components span everything and a residual would be rounding only.
        return top, self.alpha if self.alpha > 0.0 and r < d else np.inf

    def _split(self, X: Any, tail: float) -> tuple[Array, Array | None]:
        """Return the coordinates X V' and the residual X - X V' V of rows, None when it is to be dropped."""
        c = np.asarray(X @ self.components.T)
        return c, None if tail == np.inf else dense(X) - c @ self.components

    def _divide(self, X: Any, top: Floats, tail: float) -> Array:
        """Return the rows of X, their coordinates divided by `top` and their residuals by `tail`."""
        c, residual = self._split(X, tail)
        result = np.asarray((c / top).astype(c.dtype, copy=False) @ self.components)
        if residual is not None:
            # In float64, because `tail` may be beyond what float32 holds.
            result += np.divide(residual, tail, out=residual, dtype=np.float64, casting="same_kind")
        return result
