"""The operator M = V' diag(lam) V + D with D diagonal. The d x d matrix is never formed.

Scaling by D^-1/2 reduces M to a low-rank matrix plus the identity. With B = diag(lam)^1/2 V,

    M = D^1/2 (I + Bs' Bs) D^1/2,   Bs = B D^-1/2 = P diag(s) W,

so the middle factor multiplies the coordinates W y of a scaled vector y = D^-1/2 b by 1 + s^2 and its residual
y - W' W y by 1. This is accurate as long as no entry of D is much smaller than the same entry of diag(M). Columns where
D is much smaller, or zero, are eliminated first: a block Schur complement, computed by QR or SVD of B and not from B'B,
which would square the condition number. With B = Q C on the eliminated columns Z and Q' Q = I,

    y' M^-1 y = ||h||^2 + e' (D + B' (I - Q Q') B)^-1 e,   h = C^-T y_Z,   e = y - B' Q h  on the other columns.

The matrix in the second term has the same form and fewer columns.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from robustfd.linalg.decompose import svd
from robustfd.linalg.eigen import EPS
from robustfd.linalg.low_rank import (
    Array,
    Floats,
    LowRankPlus,
    check_low_rank,
    dense,
    real,
    sparse_distances,
    squared_norms,
)

BLOCK = 2**20  # entries in a dense block of rows (8 MB); limits the memory that distances of many rows need
SMALL = 1e-2  # eliminate columns where D / diag(M) is below this factor times the (r+1)-th smallest ratio
LARGEST = 1e300  # entries of B D^-1/2 are clipped to this; larger ones would give the same results
DENSE = 200  # up to this many columns, extreme eigenvalues are computed from the dense matrix


class LowRankPlusDiagonal(LowRankPlus):
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
    components : array of shape (r, d)
        V, with orthonormal rows. r may be 0. The array is not copied. float32 stays float32, other types become
        float64.
    eigenvalues : array-like of shape (r,)
        lam, the nonnegative eigenvalues of the low-rank part, in the order of the components.
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
        v, lam = check_low_rank(components, eigenvalues)
        added = np.array(real(diagonal, "diagonal"), dtype=np.float64)
        if added.shape != v.shape[1:]:
            raise ValueError(f"diagonal has shape {added.shape}, expected {v.shape[1:]}")
        wrong = np.flatnonzero(~((added >= 0) & (added < np.inf)))
        if wrong.size:
            raise ValueError(f"diagonal[{wrong[0]}] is {added[wrong[0]]}, expected >= 0 and finite")
        super().__init__(v, lam, added, "the diagonal")
        self.diagonal_part = added

    def _describe_added(self) -> str:
        return f"a diagonal of {self.diagonal_part.min():.6g} to {self.diagonal_part.max():.6g}"

    # ------------------------------------------------------------------ inverse

    def solve(self, b: Any) -> Array:
        """Return M^-1 b for b of shape (d,) or (d, k). If M is singular, return the least-squares solution M^+ b."""
        columns = self._columns(b)
        rows = np.atleast_2d(dense(columns).T.astype(np.float64, copy=False))
        f = self._factor
        eliminated, y = f.split(rows)
        solution = f.divide(y, twice=True) / f.root
        for pivot, h in zip(f.pivots[::-1], eliminated[::-1], strict=True):
            solution[:, pivot.columns] = (h - solution @ pivot.coupling.T) @ pivot.inverse.T
        return self._shaped(solution, columns).T

    def whiten(self, X: Any) -> Array:
        """Return W x for a vector of shape (d,) or for each row of X, of shape (n, d), where W M W' = I.

        Rows with second moment M become rows with second moment I. W is (I + Bs' Bs)^-1/2 D^-1/2, not the symmetric
        M^-1/2. The result is dense. If M is singular, W M W' is a projection, and directions without variance become 0.
        """
        rows = self._rows(X)
        f = self._factor
        eliminated, y = f.split(np.atleast_2d(dense(rows).astype(np.float64, copy=False)))
        white = f.divide(y)
        for pivot, h in zip(f.pivots, eliminated, strict=True):
            white[:, pivot.columns] = h @ pivot.basis
        return self._shaped(white, rows)

    def mahalanobis(self, X: Any, mean: ArrayLike | None = None) -> Any:
        """Return the squared distances (x - mean)' M^-1 (x - mean), one for each row of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or array of shape (d,)
            Dense rows are processed in blocks. Sparse rows stay sparse, unless columns had to be eliminated because
            D is nearly zero there and the low-rank part is not.
        mean : array-like of shape (d,), optional
            Defaults to zero.

        Returns
        -------
        distances : ndarray of shape (n,), or float

        Notes
        -----
        If M is singular, the pseudo-inverse is used: the part of a row outside its range adds nothing to the distance.
        Distances of sparse rows have fewer correct digits if the rows are almost in the span of the low-rank part and D
        is small, as with `LowRankPlusIdentity`.
        """
        rows, mu = self._rows(X), self._mean(mean)
        dtype = np.result_type(self.dtype, rows.dtype)
        f = self._factor
        if scipy.sparse.issparse(rows) and not f.pivots:
            x = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
            x.data /= f.root[x.indices]
            squared = sparse_distances(f.w, x, None if mu is None else mu / f.root, f.top, np.inf if f.spans else 1.0)
            return squared.astype(dtype, copy=False)
        stack = rows.tocsr() if scipy.sparse.issparse(rows) else np.atleast_2d(rows)
        squared = np.zeros(stack.shape[0])
        step = max(1, BLOCK // self.shape[0])
        for start in range(0, len(squared), step):
            block = dense(stack[start : start + step]).astype(np.float64, copy=False)
            eliminated, y = f.split(block if mu is None else block - mu)
            for part in (*eliminated, f.divide(y)):
                squared[start : start + step] += squared_norms(part)
        return squared.astype(dtype, copy=False) if rows.ndim == 2 else float(squared[0])

    # ------------------------------------------------------------------ spectrum

    def logdet(self) -> float:
        """Return log det M. If M is singular, return the log of the pseudo-determinant (0.0 for the zero matrix)."""
        f = self._factor
        rest = np.log(self.diagonal_part[f.root < np.inf]).sum() + 2.0 * np.log(f.top).sum()
        return float(rest + sum(pivot.logdet for pivot in f.pivots))

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(self.low_rank_eigenvalues.sum() + self.diagonal_part.sum())

    def condition_number(self) -> float:
        """Return the ratio of the largest to the smallest eigenvalue, to about nine digits.

        The result is infinity if M is singular. Runs Lanczos iterations with M and with M^-1, typically a few dozen
        products and solves.
        """
        if self._factor.singular:
            return float("inf")
        squares = np.einsum("i,ij,ij->j", self.low_rank_eigenvalues, self.components, self.components, dtype=np.float64)
        m = squares + self.diagonal_part
        high, low = float(m.max()), float(m.min())  # between the extreme eigenvalues: scaling by them avoids overflow
        largest = _largest_eigenvalue(lambda x: self.dot(x) / high, len(m))
        smallest = _largest_eigenvalue(lambda x: self.solve(low * x), len(m))
        return largest * smallest * (high / low)

    # ------------------------------------------------------------------ parts

    def _shaped(self, result: Floats, argument: Any) -> Array:
        """Return the result with the number of dimensions of the argument and in the common type."""
        result = result if argument.ndim == 2 else result[0]
        return result.astype(np.result_type(self.dtype, argument.dtype), copy=False)

    @cached_property
    def _factor(self) -> "_Factor":
        lam = self.low_rank_eigenvalues
        b = np.sqrt(lam)[:, None] * self.components.astype(np.float64)
        return _factorise(b[lam > 0], self.diagonal_part, negligible=b.shape[1] * EPS * lam.max(initial=0.0))


@dataclass(frozen=True)
class _Pivot:
    """The elimination of columns Z from M, where B = Q C on these columns."""

    columns: NDArray[np.intp]
    inverse: Floats  # C^-1, or C^+ if C is rank-deficient
    basis: Floats  # orthonormal rows that map the whitened coordinates h back to the columns Z
    coupling: Floats  # Q' B, set to zero on the columns Z
    logdet: float  # of C' C


@dataclass(frozen=True)
class _Factor:
    """The eliminated columns of M and, for the remaining ones, the SVD of B D^-1/2."""

    pivots: tuple[_Pivot, ...]
    root: Floats  # D^1/2; infinity for eliminated columns
    w: Floats
    top: Floats  # sqrt(1 + s^2)
    spans: bool  # whether the rows of w span all remaining columns; a residual is then pure rounding error
    singular: bool

    def split(self, rows: Floats) -> tuple[list[Floats], Floats]:
        """Return the coordinates h that each pivot eliminates from the rows, and the remainder times D^-1/2."""
        eliminated = []
        for pivot in self.pivots:
            eliminated.append(rows[:, pivot.columns] @ pivot.inverse)
            rows = rows - eliminated[-1] @ pivot.coupling
        return eliminated, rows / self.root

    def divide(self, y: Floats, *, twice: bool = False) -> Floats:
        """Return the rows of y multiplied by (I + W' diag(s)^2 W)^-1/2, once or twice."""
        c = y @ self.w.T
        divided = c / self.top / self.top if twice else c / self.top  # top**2 could overflow
        return np.asarray(divided @ self.w if self.spans else divided @ self.w + (y - c @ self.w))


def _factorise(b: Floats, diagonal: Floats, negligible: float) -> _Factor:
    """Return the factor of B'B + D.

    On columns where D is zero, squared singular values of B up to `negligible` count as zero.
    """
    (r, d), root, pivots = b.shape, np.sqrt(diagonal), []
    zero, covered = np.flatnonzero(diagonal == 0), 0
    if len(zero):
        pivot, b = _eliminate_zero(b, zero, negligible)
        covered = len(pivot.basis)
        pivots += [pivot] if covered else []
    share = np.ones(d)
    np.divide(diagonal, diagonal + np.einsum("ij,ij->j", b, b), out=share, where=diagonal > 0)
    # Scaled to a unit diagonal, M has an eigenvalue below the (r+1)-th smallest share (Weyl). So only smaller
    # shares can cost digits that the conditioning of M does not, and there are at most r of them.
    r -= covered
    small = np.flatnonzero(share < SMALL * (np.partition(share, r)[r] if r < d else 1.0))
    if len(small):
        pivot, b = _eliminate_small(b, small, root[small])
        pivots.append(pivot)
    root[zero] = root[small] = np.inf
    with np.errstate(over="ignore"):
        _, s, w = svd(np.clip(b / root, -LARGEST, LARGEST))
    w, s = w[s > 1e-9], s[s > 1e-9]  # for the others 1 + s^2 rounds to 1
    spans = len(w) == d - len(zero) - len(small)
    return _Factor(tuple(pivots), root, w, np.hypot(1.0, s), spans, singular=covered < len(zero))


def _eliminate_zero(b: Floats, columns: NDArray[np.intp], negligible: float) -> tuple[_Pivot, Floats]:
    """Return the pivot for columns where D is zero, and the remaining B."""
    q, sigma, basis = svd(b[:, columns])
    kept = sigma**2 > negligible
    q, sigma, basis = q[:, kept], sigma[kept], basis[kept]
    rest, coupling = _project_out(b, q, columns)
    return _Pivot(columns, basis.T / sigma, basis, coupling, 2.0 * float(np.log(sigma).sum())), rest


def _eliminate_small(b: Floats, columns: NDArray[np.intp], root: Floats) -> tuple[_Pivot, Floats]:
    """Return the pivot for columns where D is small, with square roots `root`, and the remaining B.

    Column-pivoted QR of columns scaled to unit length: its error does not depend on the scaling of the columns
    (Higham 2002, Thm. 19.4).
    """
    k = len(columns)
    added = np.zeros((k, b.shape[1]))
    added[np.arange(k), columns] = root
    b = np.concatenate([b, added])  # rows of D^1/2 are appended to B, which leaves zeros on the diagonal
    length = np.linalg.norm(b[:, columns], axis=0)
    q, triangle, order = scipy.linalg.qr(b[:, columns] / length, mode="economic", pivoting=True)
    inverse = np.empty((k, k))
    inverse[order] = scipy.linalg.solve_triangular(triangle, np.eye(k))
    rest, coupling = _project_out(b, q, columns)
    logdet = 2.0 * float(np.log(np.abs(np.diag(triangle)) * length).sum())
    return _Pivot(columns, inverse / length[:, None], np.eye(k), coupling, logdet), rest


def _project_out(b: Floats, q: Floats, columns: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return (I - Q Q') B and Q' B, both set to zero on these columns."""
    coupling = q.T @ b
    rest = b - q @ coupling
    coupling[:, columns] = rest[:, columns] = 0.0
    return rest, coupling


def _largest_eigenvalue(multiply: Any, d: int) -> float:
    """Return the largest eigenvalue of a positive definite matrix, given the function that multiplies by it."""
    if d <= DENSE:
        m = multiply(np.eye(d))
        return float(np.linalg.eigvalsh((m + m.T) / 2)[-1])
    operator = LinearOperator((d, d), matvec=lambda x: multiply(x.ravel()), dtype=np.float64)
    start = 1.0 + (0.618 * np.arange(d)) % 1.0
    return float(eigsh(operator, 1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)[0])
