"""Common parts of the operators V' diag(lam) V + alpha I and V' diag(lam) V + D: products and argument checks."""

from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

Floats = NDArray[np.float64]
Array = NDArray[Any]


class LowRankPlus(LinearOperator):
    """A symmetric linear operator V' diag(lam) V plus a diagonal matrix."""

    components: Array
    low_rank_eigenvalues: Floats
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    _added: float | Floats  # the diagonal matrix: one number or d numbers

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
        return f"<{type(self).__name__} {d}x{d}: rank {r}{spread}, plus {self._describe_added()}, {self.dtype}>"

    def _describe_added(self) -> str:
        raise NotImplementedError

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

    def _transpose(self) -> Self:
        return self

    def diagonal(self) -> Array:
        """Return the diagonal of M, of shape (d,)."""
        v, lam = self.components, self.low_rank_eigenvalues
        squares = np.einsum("i,ij,ij->j", lam, v, v, dtype=np.float64)
        return np.asarray(squares + self._added).astype(self.dtype, copy=False)

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

    def _columns(self, b: Any) -> Any:
        """Return b as an array or sparse matrix with columns of length d, or as one vector of length d."""
        columns = real(b, "b")
        if columns.ndim not in (1, 2) or columns.shape[0] != self.shape[0]:
            raise ValueError(f"b has shape {columns.shape}, expected ({self.shape[0]},) or ({self.shape[0]}, k)")
        return columns

    def _rows(self, X: Any) -> Any:
        """Return X as an array or CSR matrix with rows of length d, or as one vector of length d."""
        rows = real(X, "X")
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.shape[0]:
            raise ValueError(f"X has shape {rows.shape}, expected (n, {self.shape[0]}) or ({self.shape[0]},)")
        return rows

    def _mean(self, mean: ArrayLike | None) -> Array | None:
        """Return the mean as an array of length d."""
        mu = None if mean is None else np.asarray(real(mean, "mean"))
        if mu is not None and mu.shape != self.shape[:1]:
            raise ValueError(f"mean has shape {mu.shape}, expected {self.shape[:1]}")
        return mu


def check_low_rank(components: ArrayLike, eigenvalues: ArrayLike) -> tuple[Array, Floats]:
    """Return V and lam as arrays, after checking that their shapes match."""
    v = real(components, "components")
    v = v if v.dtype == np.float32 else v.astype(np.float64, copy=False)
    lam = real(eigenvalues, "eigenvalues").astype(np.float64)
    if v.ndim != 2 or v.shape[1] == 0 or v.shape[0] > v.shape[1]:
        raise ValueError(f"components has shape {v.shape}, expected (r, d) with 0 <= r <= d and d >= 1")
    if lam.shape != v.shape[:1]:
        raise ValueError(f"eigenvalues has shape {lam.shape}, expected {v.shape[:1]}, one for each of the components")
    return v, lam


def real(values: Any, name: str) -> Any:
    """Return `values` as an array or sparse matrix, after checking that it is real."""
    if not scipy.sparse.issparse(values):
        values = np.asarray(values)
    elif values.ndim == 1:
        values = values.toarray()
    if values.dtype.kind not in "buif":
        raise ValueError(f"{name} is of type {values.dtype}, expected real numbers")
    return values


def dense(X: Any) -> Array:
    """Return X as an array."""
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X)


def squared_norms(rows: Array) -> Floats:
    """Return the squared lengths of the rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


def sparse_distances(v: Array, X: Any, mean: Array | None, top: Floats, tail: float) -> Floats:
    """Return the squared lengths of sparse rows minus the mean, after a scaling.

    The coordinates along the rows of v are divided by `top`, the residual is divided by `tail`. The rows stay sparse,
    so the squared residual is ||x||^2 - ||V x||^2, floored at 0. Its absolute error is O(eps (||x||^2 + ||mean||^2)).
    Costs 2 r flops per stored value, for r rows of v.
    """
    X = scipy.sparse.csr_array(X, dtype=np.float64, copy=True)
    X.sum_duplicates()
    mu = np.zeros(v.shape[1]) if mean is None else mean.astype(np.float64)
    size, row = float(np.abs(mu).max()), np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    # Scale each row by its largest entry, so that squares neither overflow nor underflow.
    scale = np.full(X.shape[0], size)
    np.fmax.at(scale, row, np.abs(X.data))
    scale[scale == 0.0] = 1.0
    X.data /= scale[row]
    c = X @ v.T - np.divide.outer(v @ mu, scale).T
    squared = squared_norms(c * scale[:, None] / top)
    if tail < np.inf:
        norms = np.bincount(row, X.data**2, minlength=len(scale)).astype(np.float64)
        if size > 0.0:
            norms += (size / scale) ** 2 * np.sum((mu / size) ** 2) - 2.0 * (X @ mu) / scale
        residual = np.sqrt(np.maximum(norms - squared_norms(c), 0.0))
        squared += (residual * (scale / tail)) ** 2
    return squared


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
