"""The matrix M = V' diag(lam) V + D with D diagonal, never formed.

In the metric of D it is a low-rank matrix plus the identity: with B = diag(lam)^1/2 V,

    M = D^1/2 (I + Bs' Bs) D^1/2,   Bs = B D^-1/2 = P diag(s) W,

so that a scaled vector y = D^-1/2 b falls into its coordinates W y, where the middle factor is 1 + s^2, and its
residual, where it is 1. That is accurate as long as D is not much smaller than the diagonal of M. Where it is, or is
zero, columns are eliminated first: with B = Q C on the columns Z, Q' Q = I,

    y' M^-1 y = ||h||^2 + e' (D + B' (I - Q Q') B)^-1 e,   h = C^-T y_Z,   e = y - B' Q h  on the other columns,

the same kind of matrix with fewer columns.
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

BLOCK = 2**20  # entries of a dense block of rows: 8 MB, so that distances of many rows need little memory
SMALL = 1e-2  # an entry of D so much smaller, as a share of M, than r others is eliminated
LARGEST = 1e300  # of B in the metric of D; what is larger is infinite for all that it does
DENSE = 200  # columns up to which extreme eigenvalues come from the dense matrix


class LowRankPlusDiagonal(LowRankPlus):
    r"""The d x d matrix M = V' diag(lam) V + D, D diagonal, as a linear operator.

    Everything is done in the metric of D: with B D^{-1/2} = P diag(s) W (B = diag(lam)^{1/2} V, W of orthonormal rows)
    and y = D^{-1/2} b, c = W y, e = y - W' c,

    .. math::

        M^{-1} b = D^{-1/2} \Bigl(W' \frac{c}{1 + s^2} + e\Bigr), \qquad
        \log\det M = \sum_{i \le d} \log D_i + \sum_{i \le r} \log(1 + s_i^2).

    M^{-1/2} is not of this form. `whiten` multiplies by another W_M with W_M M W_M' = I instead, which is as good
    for whitening: squared lengths of whitened rows are Mahalanobis distances.

    With zeros in D the matrix may be singular. The pseudo-inverse then takes the place of the inverse, the
    pseudo-determinant that of the determinant. Columns of zero D are covered by the low-rank part alone; what it
    covers with less than d * eps * lam_1 counts as not covered.

    Parameters
    ----------
    components : array of shape (r, d)
        V, orthonormal rows; r may be 0. Not copied. float32 stays float32, any other type becomes float64.
    eigenvalues : array-like of shape (r,)
        lam, the nonnegative eigenvalues of the low-rank part, in the order of the components.
    diagonal : array-like of shape (d,)
        The entries of D, nonnegative.

    Attributes
    ----------
    components : ndarray of shape (r, d)
    low_rank_eigenvalues : ndarray of shape (r,), float64
    diagonal_part : ndarray of shape (d,), float64
        The entries of D; `diagonal()` is the diagonal of M.
    shape : (d, d)
    dtype : float32 or float64, that of `components`

    Notes
    -----
    Flops a vector: 4 r d for a product and for `mahalanobis` (2 r z for a sparse row with z stored values), 6 r d
    for `solve` and `whiten`. The first use of the inverse takes an SVD of an r x d matrix, about 10 r^2 d, and
    keeps r d numbers. `diagonal` takes O(r d), `to_dense` O(r d^2).

    Results have the common type of `components` and the argument: float32 for two float32; the arithmetic of the
    inverse is float64. NaN and infinity in an argument go through to the result.

    Relative errors are about eps times the condition number of M with its rows and columns scaled to a
    unit diagonal, which may be much less than `condition_number()`. Eigenvalues have no closed form: scipy's
    `eigsh` finds some, `to_dense()` helps to all.

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
        """Return M^-1 b for b of shape (d,) or (d, k); with a singular M, the least-squares solution M^+ b."""
        columns = self._columns(b)
        rows = np.atleast_2d(dense(columns).T.astype(np.float64, copy=False))
        f = self._factor
        taken, y = f.split(rows)
        solution = f.divide(y, twice=True) / f.root
        for pivot, h in zip(f.pivots[::-1], taken[::-1], strict=True):
            solution[:, pivot.columns] = (h - solution @ pivot.others.T) @ pivot.into.T
        return self._shaped(solution, columns).T

    def whiten(self, X: Any) -> Array:
        """Return W x with W M W' = I, for a vector of shape (d,) or for each row of X, of shape (n, d).

        Rows with second moment M become rows with second moment I. W is (I + Bs' Bs)^-1/2 D^-1/2, not the symmetric
        M^-1/2. The result is dense. With a singular M, W M W' is a projection: directions without variance become 0.
        """
        rows = self._rows(X)
        f = self._factor
        taken, y = f.split(np.atleast_2d(dense(rows).astype(np.float64, copy=False)))
        white = f.divide(y)
        for pivot, h in zip(f.pivots, taken, strict=True):
            white[:, pivot.columns] = h @ pivot.back
        return self._shaped(white, rows)

    def mahalanobis(self, X: Any, mean: ArrayLike | None = None) -> Any:
        """Return the squared distances (x - mean)' M^-1 (x - mean), one for each row of X.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or array of shape (d,)
            Sparse rows are not made dense, unless D is nearly zero for some of the columns and the low-rank part is
            not; dense ones are handled in blocks.
        mean : array-like of shape (d,), optional
            Zero if not given.

        Returns
        -------
        distances : ndarray of shape (n,), or float

        Notes
        -----
        With a singular M the pseudo-inverse counts: what is outside its range adds nothing to the distance.
        Sparse rows have fewer correct digits when they are almost in the span of the low-rank part and D is small,
        as with `LowRankPlusIdentity`.
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
            taken, y = f.split(block if mu is None else block - mu)
            for part in (*taken, f.divide(y)):
                squared[start : start + step] += squared_norms(part)
        return squared.astype(dtype, copy=False) if rows.ndim == 2 else float(squared[0])

    # ------------------------------------------------------------------ spectrum

    def logdet(self) -> float:
        """Return log det M; with a singular M the log of the pseudo-determinant (0.0 for the zero matrix)."""
        f = self._factor
        rest = np.log(self.diagonal_part[f.root < np.inf]).sum() + 2.0 * np.log(f.top).sum()
        return float(rest + sum(pivot.logdet for pivot in f.pivots))

    def trace(self) -> float:
        """Return the sum of the eigenvalues."""
        return float(self.low_rank_eigenvalues.sum() + self.diagonal_part.sum())

    def condition_number(self) -> float:
        """Return the largest eigenvalue over the smallest, to about nine digits; infinity when M is singular.

        By Lanczos iterations with M and with M^-1: some dozens of products and solves.
        """
        if self._factor.singular:
            return float("inf")
        squares = np.einsum("i,ij,ij->j", self.low_rank_eigenvalues, self.components, self.components, dtype=np.float64)
        m = squares + self.diagonal_part
        high, low = float(m.max()), float(m.min())  # between the extreme eigenvalues, so that nothing overflows
        largest = _largest_eigenvalue(lambda x: self.dot(x) / high, len(m))
        smallest = _largest_eigenvalue(lambda x: self.solve(low * x), len(m))
        return largest * smallest * (high / low)

    # ------------------------------------------------------------------ parts

    def _shaped(self, result: Floats, argument: Any) -> Array:
        """Return rows as one vector if the argument was one, in the common type."""
        result = result if argument.ndim == 2 else result[0]
        return result.astype(np.result_type(self.dtype, argument.dtype), copy=False)

    @cached_property
    def _factor(self) -> "_Factor":
        lam = self.low_rank_eigenvalues
        b = np.sqrt(lam)[:, None] * self.components.astype(np.float64)
        return _factorise(b[lam > 0], self.diagonal_part, negligible=b.shape[1] * EPS * lam.max(initial=0.0))


@dataclass(frozen=True)
class _Pivot:
    """Columns Z eliminated from M, with B = Q C on them."""

    columns: NDArray[np.intp]
    into: Floats  # C^-1, or C^+ if the columns of C depend on each other
    back: Floats  # orthonormal rows, along which whitened vectors are put back into the columns
    others: Floats  # Q' B on the other columns, 0 on these
    logdet: float  # of C' C


@dataclass(frozen=True)
class _Factor:
    """M with some columns eliminated and, for the others, the SVD of B in the metric of D."""

    pivots: tuple[_Pivot, ...]
    root: Floats  # of D; infinity for the columns that were eliminated
    w: Floats
    top: Floats  # sqrt(1 + s^2)
    spans: bool  # whether the rows of w span all columns that are left, so that a residual is rounding only
    singular: bool

    def split(self, rows: Floats) -> tuple[list[Floats], Floats]:
        """Return what each pivot takes of the rows, and the rest in the metric of D."""
        taken = []
        for pivot in self.pivots:
            taken.append(rows[:, pivot.columns] @ pivot.into)
            rows = rows - taken[-1] @ pivot.others
        return taken, rows / self.root

    def divide(self, y: Floats, *, twice: bool = False) -> Floats:
        """Return the rows of y multiplied by (I + W' diag(s)^2 W)^-1/2, once or twice."""
        c = y @ self.w.T
        divided = c / self.top / self.top if twice else c / self.top  # top^2 might overflow
        return np.asarray(divided @ self.w if self.spans else divided @ self.w + (y - c @ self.w))


def _factorise(b: Floats, diagonal: Floats, negligible: float) -> _Factor:
    """Return the factor of B'B + D; squared singular values up to `negligible` count as zero where D is."""
    (r, d), root, pivots = b.shape, np.sqrt(diagonal), []
    zero, covered = np.flatnonzero(diagonal == 0), 0
    if len(zero):
        pivot, b = _eliminate_zero(b, zero, negligible)
        covered = len(pivot.back)
        pivots += [pivot] if covered else []
    share = np.ones(d)
    np.divide(diagonal, diagonal + np.einsum("ij,ij->j", b, b), out=share, where=diagonal > 0)
    # With a unit diagonal M has an eigenvalue below the (r+1)-th smallest share, so entries that are smaller than
    # that are all that does harm, and they are r at most.
    r -= covered
    small = np.flatnonzero(share < SMALL * (np.partition(share, r)[r] if r < d else 1.0))
    if len(small):
        pivot, b = _eliminate_small(b, small, root[small])
        pivots.append(pivot)
    root[zero] = root[small] = np.inf
    with np.errstate(over="ignore"):
        _, s, w = svd(np.clip(b / root, -LARGEST, LARGEST))
    w, s = w[s > 1e-9], s[s > 1e-9]  # 1 + s^2 is 1 for the others
    spans = len(w) == d - len(zero) - len(small)
    return _Factor(tuple(pivots), root, w, np.hypot(1.0, s), spans, singular=covered < len(zero))


def _eliminate_zero(b: Floats, columns: NDArray[np.intp], negligible: float) -> tuple[_Pivot, Floats]:
    """Return the pivot of columns where D is zero, and what is left of B."""
    q, sigma, back = svd(b[:, columns])
    live = sigma**2 > negligible
    q, sigma, back = q[:, live], sigma[live], back[live]
    rest, others = _without(b, q, columns)
    return _Pivot(columns, back.T / sigma, back, others, 2.0 * float(np.log(sigma).sum())), rest


def _eliminate_small(b: Floats, columns: NDArray[np.intp], root: Floats) -> tuple[_Pivot, Floats]:
    """Return the pivot of columns where D is small, with these roots, and what is left of B."""
    k = len(columns)
    added = np.zeros((k, b.shape[1]))
    added[np.arange(k), columns] = root
    b = np.concatenate([b, added])  # rows of D^1/2 join those of B, and nothing is left on the diagonal
    length = np.linalg.norm(b[:, columns], axis=0)
    q, triangle, order = scipy.linalg.qr(b[:, columns] / length, mode="economic", pivoting=True)
    into = np.empty((k, k))
    into[order] = scipy.linalg.solve_triangular(triangle, np.eye(k))
    rest, others = _without(b, q, columns)
    logdet = 2.0 * float(np.log(np.abs(np.diag(triangle)) * length).sum())
    return _Pivot(columns, into / length[:, None], np.eye(k), others, logdet), rest


def _without(b: Floats, q: Floats, columns: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return (I - Q Q') B and Q' B, zero in these columns."""
    others = q.T @ b
    rest = b - q @ others
    others[:, columns] = rest[:, columns] = 0.0
    return rest, others


def _largest_eigenvalue(multiply: Any, d: int) -> float:
    """Return the largest eigenvalue of a positive definite matrix, given its products."""
    if d <= DENSE:
        m = multiply(np.eye(d))
        return float(np.linalg.eigvalsh((m + m.T) / 2)[-1])
    operator = LinearOperator((d, d), matvec=lambda x: multiply(x.ravel()), dtype=np.float64)
    start = 1.0 + (0.618 * np.arange(d)) % 1.0
    return float(eigsh(operator, 1, which="LA", v0=start, tol=1e-10, return_eigenvectors=False)[0])
