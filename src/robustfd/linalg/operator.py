"""The operators V' diag(lam) V + alpha I and V' diag(lam) V + D that sketches return. No d x d matrix is formed.

Both are one implementation: products here, the inverse by a factor (factor.py).
"""

from functools import cached_property
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, eigsh

from robustfd.linalg.decompose import Floats
from robustfd.linalg.factor import Array, Factor, dense

BLOCK = 2**20  # entries in a dense block of rows (8 MB); limits the memory that distances of many rows need
DENSE = 200  # up to this many columns, extreme eigenvalues are computed from the dense matrix


class _LowRankPlus(LinearOperator):
    """A symmetric linear operator V' diag(lam) V plus a diagonal matrix."""

    components: Array
    low_rank_eigenvalues: Floats
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    _added: float | Floats  # the diagonal matrix: one number or d numbers
    _factor: Factor

    def __init__(self, v: Array, lam: Floats, added: float | Floats, name: str) -> None:
        with np.errstate(over="ignore"):
            wrong = np.flatnonzero(~((lam >= 0) & (lam + np.max(added) < np.inf)))
        if wrong.size:
            i = wrong[0]
            raise ValueError(f"eigenvalues[{i}] is {lam[i]}, expected >= 0 and finite, also with {name} added")
        _check_orthonormal(v)
        super().__init__(v.dtype, (v.shape[1], v.shape[1]))
        self.components = v
        self.low_rank_eigenvalues = lam
        self._added = added

    def __repr__(self) -> str:
        d, r, lam = self.shape[0], len(self.components), self.low_rank_eigenvalues
        spread = f", eigenvalues {lam.max():.6g} to {lam.min():.6g}" if r else ""
        if isinstance(self._added, float):
            added = f"{self._added:.6g} I"
        else:
            added = f"a diagonal of {self._added.min():.6g} to {self._added.max():.6g}"
        return f"<{type(self).__name__} {d}x{d}: rank {r}{spread}, plus {added}, {self.dtype}>"

    # -- products

    def matvec(self, x: Any) -> Array:
        """Return M x for a vector of shape (d,) or (d, 1). The result is dense, also for a sparse vector."""
        if scipy.sparse.issparse(x):  # the inherited method would make it an object array
            return np.asarray(self.matmat(x) if x.ndim == 2 else super().matvec(x.toarray()))
        return np.asarray(super().matvec(x))

    def _matvec(self, x: Array) -> Array:
        return self._matmat(x.reshape(-1, 1))

    def _matmat(self, X: Any) -> Array:
        rows = X.T if scipy.sparse.issparse(X) else np.asarray(X).T
        c = rows @ self.components.T
        product = (c * self.low_rank_eigenvalues).astype(c.dtype, copy=False) @ self.components
        if np.any(self._added):
            wide = np.result_type(c.dtype, np.float64)  # alpha may exceed the range of float32 even if alpha x does not
            product += np.multiply(dense(rows), self._added, dtype=wide).astype(c.dtype, copy=False)
        return np.asarray(product.T)

    def _adjoint(self) -> Self:
        return self

    _transpose = _adjoint

    def diagonal(self) -> Array:
        """Return the diagonal of M, of shape (d,)."""
        return self._wide_diagonal().astype(self.dtype, copy=False)

    def _wide_diagonal(self) -> Floats:
        v, lam = self.components, self.low_rank_eigenvalues
        return np.asarray(np.einsum("i,ij,ij->j", lam, v, v, dtype=np.float64) + self._added)

    def to_dense(self) -> Array:
        """Return M as a d x d array, exactly symmetric."""
        root = np.sqrt(self.low_rank_eigenvalues)[:, None] * self.components
        m = np.asarray(root.T @ root)
        m[np.diag_indices(self.shape[0])] += self._added
        return m.astype(self.dtype, copy=False)

    def scaled(self, c: float) -> Self:
        """Return the operator c M for c > 0. For example, c = 1 / n turns a scatter matrix into a covariance matrix."""
        if not isinstance(c, Real) or not 0.0 < c < np.inf:
            raise ValueError(f"c is {c!r}, expected a finite number > 0")
        c = float(c)
        return type(self)(self.components, c * self.low_rank_eigenvalues, c * self._added)

    # -- inverse

    def solve(self, b: Any) -> Array:
        """Return M^-1 b for b of shape (d,) or (d, k). If M is singular, return the least-squares solution M^+ b."""
        columns = _real(b, "b")
        if columns.ndim not in (1, 2) or columns.shape[0] != self.shape[0]:
            raise ValueError(f"b has shape {columns.shape}, expected ({self.shape[0]},) or ({self.shape[0]}, k)")
        return self._shaped(self._factor.solve(columns.T if columns.ndim == 2 else columns[None]), columns).T

    def whiten(self, X: Any) -> Array:
        """Return W x for a vector of shape (d,) or for each row of X, of shape (n, d), where W M W' = I.

        Rows with second moment M become rows with second moment I. For a multiple of the identity, W is the symmetric
        M^-1/2. The result is dense. If M is singular, W M W' is a projection, and directions without variance become 0.
        """
        rows = self._rows(X)
        return self._shaped(self._factor.whiten(rows if rows.ndim == 2 else rows[None]), rows)

    def mahalanobis(self, X: Any, mean: ArrayLike | None = None) -> Any:
        """Return the squared distances (x - mean)' M^-1 (x - mean), one for each row of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or array of shape (d,)
            Dense rows are processed in blocks. Sparse rows stay sparse, unless columns had to be eliminated because
            the diagonal matrix is nearly zero there and the low-rank part is not.
        mean : array-like of shape (d,), optional
            Defaults to zero.

        Returns
        -------
        distances : ndarray of shape (n,), or float

        Notes
        -----
        If M is singular, the pseudo-inverse is used: the part of a row outside its range adds nothing to the distance.
        Let e = x - mean. For a dense row, the residual of e outside the low-rank part is formed explicitly, and its
        square has an error of about (eps ||e||)^2. For a sparse row, the squared residual is the difference of two
        squares, floored at 0, with an error of about eps (||x||^2 + ||mean||^2). So the distance of a sparse row has
        fewer correct digits if the row is almost in the span of the low-rank part and the diagonal matrix is small.
        """
        rows, f = self._rows(X), self._factor
        mu = None if mean is None else np.asarray(_real(mean, "mean"))
        if mu is not None and mu.shape != self.shape[:1]:
            raise ValueError(f"mean has shape {mu.shape}, expected {self.shape[:1]}")
        dtype = np.result_type(self.dtype, rows.dtype)
        if scipy.sparse.issparse(rows) and not f.pivots:
            return f.sparse_distances(rows, mu).astype(dtype, copy=False)
        stack = rows.tocsr() if scipy.sparse.issparse(rows) else np.atleast_2d(rows)
        squared, step = np.empty(stack.shape[0]), max(1, BLOCK // self.shape[0])
        for start in range(0, len(squared), step):
            block = dense(stack[start : start + step])
            if mu is not None:
                block = (block - mu).astype(np.result_type(f.w.dtype, block.dtype), copy=False)
            squared[start : start + step] = f.distances(block)
        return squared.astype(dtype, copy=False) if rows.ndim == 2 else float(squared[0])

    def logdet(self) -> float:
        """Return log det M. If M is singular, return the log of the pseudo-determinant (0.0 for the zero matrix)."""
        return self._factor.logdet()

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        added = self.shape[0] * self._added if isinstance(self._added, float) else self._added.sum()
        return float(self.low_rank_eigenvalues.sum() + added)

    def _shaped(self, result: Array, argument: Any) -> Array:
        """Return the result with the number of dimensions of the argument and in the common type."""
        result = result if argument.ndim == 2 else result[0]
        return result.astype(np.result_type(self.dtype, argument.dtype), copy=False)

    def _rows(self, X: Any) -> Any:
        """Return X as an array or sparse matrix with rows of length d, or as one vector of length d."""
        rows = _real(X, "X")
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.shape[0]:
            raise ValueError(f"X has shape {rows.shape}, expected (n, {self.shape[0]}) or ({self.shape[0]},)")
        return rows


class LowRankPlusIdentity(_LowRankPlus):
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
        v, lam = _check_low_rank(components, eigenvalues)
        if not isinstance(alpha, Real) or not 0.0 <= alpha < np.inf:
            raise ValueError(f"alpha is {alpha!r}, expected a finite number >= 0")
        super().__init__(v, lam, float(alpha), "alpha")
        self.alpha = float(alpha)

    @cached_property
    def _factor(self) -> Factor:  # type: ignore[override]
        return Factor.with_identity(self.components, self.low_rank_eigenvalues, self.alpha)

    def eigenvalues(self) -> Floats:
        """Return all d eigenvalues, descending: lam_i + alpha, then alpha d - r times."""
        values = np.full(self.shape[0], self.alpha)
        values[: len(self.components)] += np.sort(self.low_rank_eigenvalues)[::-1]
        return values

    def condition_number(self) -> float:
        """Return the ratio of the largest to the smallest eigenvalue; infinity if M is singular, as in `solve`."""
        if self._factor.singular:
            return float("inf")
        values = self.eigenvalues()
        return float(values[0]) / float(values[-1])  # Python floats overflow to infinity without a warning


class LowRankPlusDiagonal(_LowRankPlus):
    r"""The d x d matrix M = V' diag(lam) V + D with D diagonal, as a linear operator.

    All methods scale by D^{-1/2} first. With the SVD B D^{-1/2} = P diag(s) W of B = diag(lam)^{1/2} V, and with
    y = D^{-1/2} b, c = W y, e = y - W' c,

    .. math::

        M^{-1} b = D^{-1/2} \Bigl(W' \frac{c}{1 + s^2} + e\Bigr), \qquad
        \log\det M = \sum_{i \le d} \log D_i + \sum_{i \le r} \log(1 + s_i^2).

    M^{-1/2} has no such form. `whiten` multiplies by another matrix W_M with W_M M W_M' = I, which serves the same
    purpose: squared lengths of whitened rows are Mahalanobis distances.

    If D has zeros, M may be singular. The pseudo-inverse then replaces the inverse, and the pseudo-determinant replaces
    the determinant. On columns where D is zero, squared singular values of B up to d * eps * lam_1 count as zero.

    Parameters
    ----------
    components, eigenvalues
        As for `LowRankPlusIdentity`.
    diagonal : array-like of shape (d,)
        The entries of D, nonnegative.

    Attributes
    ----------
    components : ndarray of shape (r, d)
    low_rank_eigenvalues : ndarray of shape (r,), float64
    diagonal_part : ndarray of shape (d,), float64
        The entries of D. The method `diagonal()` returns the diagonal of M.
    shape : (d, d)
    dtype : float32 or float64, the type of `components`

    See Also
    --------
    LowRankPlusIdentity : The same with a multiple of the identity in place of D.
    DiagonalFrequentDirections : The sketch that returns this operator.

    Notes
    -----
    Flops per vector: 4 r d for a product and for `mahalanobis` (2 r z for a sparse row with z stored values), 6 r d
    for `solve` and `whiten`. The first use of the inverse computes an SVD of an r x d matrix, about 10 r^2 d flops, and
    caches r d numbers. `diagonal` costs O(r d), `to_dense` O(r d^2).

    The result has the common type of `components` and the argument, so float32 only if both are float32. The
    inverse is always computed in float64. NaN and infinity in an argument propagate to the result.

    Relative errors are about eps times the condition number of M after scaling its rows and columns to a unit
    diagonal. That is within a factor d of the best diagonal scaling (van der Sluis 1969) and can be much smaller than
    `condition_number()`. Eigenvalues have no closed form. Use scipy's `eigsh` for a few and `to_dense()` for all.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import LowRankPlusDiagonal
    >>> M = LowRankPlusDiagonal([[0.6, 0.8, 0.0]], [25.0], diagonal=[1.0, 2.0, 4.0])
    >>> M
    <LowRankPlusDiagonal 3x3: rank 1, eigenvalues 25 to 25, plus a diagonal of 1 to 4, float64>
    >>> M @ [1.0, 1.0, 1.0]
    array([22., 30.,  4.])
    >>> M.solve([22.0, 30.0, 4.0]).round(12)
    array([1., 1., 1.])
    >>> M.diagonal(), M.trace()
    (array([10., 18.,  4.]), 32.0)
    >>> bool(np.isclose(M.logdet(), np.log(144)))
    True
    >>> M.mahalanobis([[22.0, 30.0, 4.0], [0.0, 0.0, 4.0]]).round(12)
    array([56.,  4.])
    """

    diagonal_part: Floats

    def __init__(self, components: ArrayLike, eigenvalues: ArrayLike, diagonal: ArrayLike) -> None:
        v, lam = _check_low_rank(components, eigenvalues)
        added = np.array(_real(diagonal, "diagonal"), dtype=np.float64)
        if added.shape != v.shape[1:]:
            raise ValueError(f"diagonal has shape {added.shape}, expected {v.shape[1:]}")
        wrong = np.flatnonzero(~((added >= 0) & (added < np.inf)))
        if wrong.size:
            raise ValueError(f"diagonal[{wrong[0]}] is {added[wrong[0]]}, expected >= 0 and finite")
        super().__init__(v, lam, added, "the diagonal")
        self.diagonal_part = added

    @cached_property
    def _factor(self) -> Factor:  # type: ignore[override]
        return Factor.with_diagonal(self.components, self.low_rank_eigenvalues, self.diagonal_part)

    def condition_number(self) -> float:
        """Return the ratio of the largest to the smallest eigenvalue, to about nine digits.

        The result is infinity if M is singular. Runs Lanczos iterations with M and with M^-1, typically a few dozen
        products and solves.
        """
        if self._factor.singular:
            return float("inf")
        m = self._wide_diagonal()
        high, low = float(m.max()), float(m.min())  # between the extreme eigenvalues: scaling by them avoids overflow
        largest = _largest_eigenvalue(lambda x: self.dot(x) / high, len(m))
        smallest = _largest_eigenvalue(lambda x: self.solve(low * x), len(m))
        return largest * smallest * (high / low)


def _check_low_rank(components: ArrayLike, eigenvalues: ArrayLike) -> tuple[Array, Floats]:
    """Return V and lam as arrays, after checking that their shapes match."""
    v = _real(components, "components")
    v = v if v.dtype == np.float32 else v.astype(np.float64, copy=False)
    lam = _real(eigenvalues, "eigenvalues").astype(np.float64)
    if v.ndim != 2 or v.shape[1] == 0 or v.shape[0] > v.shape[1]:
        raise ValueError(f"components has shape {v.shape}, expected (r, d) with 0 <= r <= d and d >= 1")
    if lam.shape != v.shape[:1]:
        raise ValueError(f"eigenvalues has shape {lam.shape}, expected {v.shape[:1]}, one for each of the components")
    return v, lam


def _real(values: Any, name: str) -> Any:
    """Return `values` as an array or sparse matrix, after checking that it is real."""
    if not scipy.sparse.issparse(values):
        values = np.asarray(values)
    elif values.ndim == 1:
        values = values.toarray()
    if values.dtype.kind not in "buif":
        raise ValueError(f"{name} is of type {values.dtype}, expected real numbers")
    return values


def _check_orthonormal(v: Array) -> None:
    """Raise a ValueError if the rows of v are clearly not orthonormal.

    Check V V' w = w for one vector w without structure. This costs O(r d), while all of V V' would cost O(r^2 d), and
    detects rows that are not normalised or not orthogonal.
    """
    w = (1.0 + (0.618 * np.arange(len(v))) % 1.0).astype(v.dtype)
    with np.errstate(all="ignore"):
        off = np.abs(v @ (w @ v) - w)
    if not np.all(off < 0.01):
        i = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        raise ValueError(
            f"components must be finite with orthonormal rows: row {i} has norm {np.linalg.norm(v[i]):.6g}"
            " or is not orthogonal to the others; pass orthogonal rows divided by their norms"
        )


def _largest_eigenvalue(multiply: Any, d: int) -> float:
    """Return the largest eigenvalue of a positive definite matrix, given the function that multiplies by it."""
    if d <= DENSE:
        m = multiply(np.eye(d))
        return float(np.linalg.eigvalsh((m + m.T) / 2)[-1])
    operator = LinearOperator((d, d), matvec=lambda x: multiply(x.ravel()), dtype=np.float64)
    start = 1.0 + (0.618 * np.arange(d)) % 1.0
    return float(eigsh(operator, 1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)[0])
