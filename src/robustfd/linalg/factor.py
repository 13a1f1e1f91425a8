"""The factors behind the inverse of M = B'B + D, where B has few rows and D is diagonal.

A factor describes M as R (W' diag(top)^2 W + tail^2 (I - W'W)) R, with R = diag(root) and orthonormal rows W. Every
function of the middle matrix acts separately on the coordinates c = W y of a vector y and on its residual y - W' c. The
shorter Woodbury form (y - W' diag(1 - tail^2 / top^2) W y) / tail^2 suffers from cancellation when tail is small: its
error grows like eps / tail^2.

If D = alpha I, the rows of B are orthogonal and R is the identity. Otherwise R = D^1/2 and B D^-1/2 = P diag(s) W gives
top = (1 + s^2)^1/2 and tail = 1. This is accurate as long as no entry of D is much smaller than the same entry of
diag(M). Columns where D is much smaller, or zero, are eliminated first: a block Schur complement, computed by QR or SVD
of B and not from B'B, which would square the condition number. With B = Q C on the eliminated columns Z and Q' Q = I,

    y' M^-1 y = ||h||^2 + e' (D + B' (I - Q Q') B)^-1 e,   h = C^-T y_Z,   e = y - B' Q h  on the other columns.

The matrix in the second term has the same form and fewer columns.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from robustfd.linalg.decompose import EPS, Floats, svd

Array = NDArray[Any]

SMALL = 1e-2  # eliminate columns where D / diag(M) is below this factor times the (r+1)-th smallest ratio
LARGEST = 1e300  # entries of B D^-1/2 are clipped to this; larger ones would give the same results


def dense(X: Any) -> Array:
    """Return X as an array."""
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X)


def squared_norms(rows: Array) -> Floats:
    """Return the squared lengths of the rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


@dataclass(frozen=True)
class Pivot:
    """The elimination of columns Z from M, where B = Q C on these columns."""

    columns: NDArray[np.intp]
    inverse: Floats  # C^-1, or C^+ if C is rank-deficient
    basis: Floats  # orthonormal rows that map the whitened coordinates h back to the columns Z
    coupling: Floats  # Q' B, set to zero on the columns Z
    logdet: float  # of C' C


@dataclass(frozen=True)
class Factor:
    """The factor of M, see above. Division by an infinite `top` or `tail` leaves directions out, as M^+ does."""

    w: Array
    top: Floats
    tail: float  # infinity also if the rows of W span all columns: a residual is then pure rounding error
    singular: bool
    root: Floats | None = None  # None for the identity; infinity for eliminated columns
    pivots: tuple[Pivot, ...] = ()

    @classmethod
    def with_identity(cls, v: Array, lam: Floats, alpha: float) -> "Factor":
        """Return the factor of V' diag(lam) V + alpha I."""
        (r, d), values = v.shape, lam + alpha
        if alpha == 0.0 and r:
            values[values <= d * EPS * values.max()] = np.inf
        tail = np.sqrt(alpha) if alpha > 0.0 and r < d else np.inf
        return cls(v, np.sqrt(values), float(tail), bool(np.isinf(values).any() or (alpha == 0.0 and r < d)))

    @classmethod
    def with_diagonal(cls, v: Array, lam: Floats, diagonal: Floats) -> "Factor":
        """Return the factor of V' diag(lam) V + D.

        On columns where D is zero, squared singular values of B up to d * eps * lam_1 count as zero.
        """
        b = (np.sqrt(lam)[:, None] * v.astype(np.float64))[lam > 0]
        (r, d), root, pivots = b.shape, np.sqrt(diagonal), []
        zero, covered = np.flatnonzero(diagonal == 0), 0
        if len(zero):
            pivot, b = _eliminate_zero(b, zero, negligible=d * EPS * lam.max(initial=0.0))
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
        tail = np.inf if len(w) == d - len(zero) - len(small) else 1.0
        return cls(w, np.hypot(1.0, s), tail, covered < len(zero), root, tuple(pivots))

    def solve(self, rows: Any) -> Array:
        """Return the rows of X M^-1."""
        eliminated, y = self._split(rows)
        solution = self._divide(y, twice=True)
        if self.root is not None:
            solution /= self.root
        for pivot, h in zip(self.pivots[::-1], eliminated[::-1], strict=True):
            solution[:, pivot.columns] = (h - solution @ pivot.coupling.T) @ pivot.inverse.T
        return solution

    def whiten(self, rows: Any) -> Array:
        """Return rows whose products are those of X M^-1 X'."""
        eliminated, y = self._split(rows)
        white = self._divide(y)
        for pivot, h in zip(self.pivots, eliminated, strict=True):
            white[:, pivot.columns] = h @ pivot.basis
        return white

    def distances(self, rows: Array) -> Floats:
        """Return the diagonal of X M^-1 X' for dense rows."""
        eliminated, y = self._split(rows)
        c = y @ self.w.T
        squared = squared_norms(c / self.top)  # divide first: squares alone may overflow even if the distance does not
        if self.tail < np.inf:
            squared += squared_norms(np.divide(y - c @ self.w, self.tail, dtype=np.float64))
        for h in eliminated:
            squared += squared_norms(h)
        return squared

    def sparse_distances(self, X: Any, mean: Array | None) -> Floats:
        """Return the same for sparse rows minus the mean, if there are no pivots. The rows stay sparse.

        The squared residual is ||x||^2 - ||W x||^2, floored at 0. Its absolute error is O(eps (||x||^2 + ||mean||^2)).
        Costs 2 r flops per stored value, for r rows of W.
        """
        X = scipy.sparse.csr_array(X, dtype=np.float64, copy=True)
        mu = np.zeros(X.shape[1]) if mean is None else mean.astype(np.float64)
        if self.root is not None:
            X.data /= self.root[X.indices]
            mu = mu / self.root
        X.sum_duplicates()
        size, row = float(np.abs(mu).max()), np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        # Scale each row by its largest entry, so that squares neither overflow nor underflow.
        scale = np.full(X.shape[0], size)
        np.fmax.at(scale, row, np.abs(X.data))
        scale[scale == 0.0] = 1.0
        X.data /= scale[row]
        c = X @ self.w.T - np.divide.outer(self.w @ mu, scale).T
        squared = squared_norms(c * scale[:, None] / self.top)
        if self.tail < np.inf:
            norms = np.bincount(row, X.data**2, minlength=len(scale)).astype(np.float64)
            if size > 0.0:
                norms += (size / scale) ** 2 * np.sum((mu / size) ** 2) - 2.0 * (X @ mu) / scale
            residual = np.sqrt(np.maximum(norms - squared_norms(c), 0.0))
            squared += (residual * (scale / self.tail)) ** 2
        return squared

    def logdet(self) -> float:
        """Return the logarithm of the determinant of M, or of its pseudo-determinant."""
        logs = np.log(self.top[self.top < np.inf]).sum()
        if self.tail < np.inf:
            logs += (self.w.shape[1] - len(self.top)) * np.log(self.tail)
        if self.root is not None:
            logs += np.log(self.root[self.root < np.inf]).sum()
        return float(2.0 * logs + sum(pivot.logdet for pivot in self.pivots))

    def _split(self, rows: Any) -> tuple[list[Floats], Any]:
        """Return the coordinates h that each pivot eliminates from the rows, and the remainder times R^-1."""
        if self.root is None:
            return [], rows
        rows, eliminated = dense(rows).astype(np.float64, copy=False), []
        for pivot in self.pivots:
            eliminated.append(rows[:, pivot.columns] @ pivot.inverse)
            rows = rows - eliminated[-1] @ pivot.coupling
        return eliminated, rows / self.root

    def _divide(self, y: Any, *, twice: bool = False) -> Array:
        """Return the rows of y with their coordinates divided by `top` and their residuals by `tail`, once or twice."""
        c = np.asarray(y @ self.w.T)
        divided = c / self.top / self.top if twice else c / self.top  # top**2 could overflow
        result = np.asarray(divided.astype(c.dtype, copy=False) @ self.w)
        if self.tail < np.inf:
            residual = dense(y) - c @ self.w
            for _ in range(1 + twice):  # in float64, because `tail` may be outside the range of float32
                np.divide(residual, self.tail, out=residual, dtype=np.float64, casting="same_kind")
            result += residual
        return result


def _eliminate_zero(b: Floats, columns: NDArray[np.intp], negligible: float) -> tuple[Pivot, Floats]:
    """Return the pivot for columns where D is zero, and the remaining B."""
    q, sigma, basis = svd(b[:, columns])
    kept = sigma**2 > negligible
    q, sigma, basis = q[:, kept], sigma[kept], basis[kept]
    rest, coupling = _project_out(b, q, columns)
    return Pivot(columns, basis.T / sigma, basis, coupling, 2.0 * float(np.log(sigma).sum())), rest


def _eliminate_small(b: Floats, columns: NDArray[np.intp], root: Floats) -> tuple[Pivot, Floats]:
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
    return Pivot(columns, inverse / length[:, None], np.eye(k), coupling, logdet), rest


def _project_out(b: Floats, q: Floats, columns: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return (I - Q Q') B and Q' B, both set to zero on these columns."""
    coupling = q.T @ b
    rest = b - q @ coupling
    coupling[:, columns] = rest[:, columns] = 0.0
    return rest, coupling
