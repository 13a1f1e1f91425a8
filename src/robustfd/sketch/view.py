"""What a sketch says when it is read: the approximation, its certificate and the bounds that follow from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy.linalg.blas import dtrsm

from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.rows import Floats, Matrix, Rows

BLOCK = 2**20  # entries in a dense block of rows


@dataclass(frozen=True)
class View:
    """A consistent read-out of a sketch that includes every row so far, queued ones too."""

    form: Callable[[], Floats]  # returns V, with orthonormal rows
    lam: Floats  # the approximation is V' diag(lam) V + alpha I
    alpha: float
    error_bound: float  # rounding included
    squared_norm: float
    weight: float
    mean: Floats | None
    # Up to rounding, V' diag(floor_lam) V + floor_alpha I <= A'A + alpha0 I <= V' diag(floor_lam) V + ceiling_alpha I.
    floor_lam: Floats
    floor_alpha: float
    ceiling_alpha: float
    rounding: float = 0.0  # bound on the rounding error of these inequalities, in the spectral norm
    diagonal: Floats | None = None  # diagonal matrix that is added to the approximation

    @property
    def eigenvalues(self) -> Floats:
        """The estimated eigenvalues along V."""
        return self.lam + self.alpha

    @property
    def certain(self) -> Floats:
        """A certified lower bound on A'A along each row of V, without alpha0."""
        return np.maximum(self.floor_lam - self.rounding, 0.0)

    @cached_property
    def components(self) -> Floats:
        """V, formed on first access, so that reading only numbers does not pay for it."""
        with one_blas_thread():
            v = self.form()
        object.__setattr__(self, "form", lambda: v)  # release the inputs
        return v

    def relative_error_bound(self, rank: int) -> float:
        """Return a bound on the error relative to ||A'A||_2, which a lower bound replaces, for rows of this rank."""
        largest = max(self.floor_lam.max(initial=0.0), self.squared_norm / rank) - self.rounding
        return float(self.error_bound / largest) if largest > 0 else 0.0

    def bracket_eigenvalues(self, count: int) -> tuple[Floats, Floats]:
        """Return bounds on the `count` largest eigenvalues of A'A + alpha0 I, even if the view has fewer."""
        lam, off = padded(np.sort(self.floor_lam)[::-1], count), self.rounding
        high = np.minimum(lam + self.ceiling_alpha, self.squared_norm + self.floor_alpha)
        return np.maximum(lam - off, 0.0) + self.floor_alpha, high + off

    def bracket_logdet(self, d: int) -> tuple[float, float]:
        """Return bounds on log det(A'A + alpha0 I) for d columns."""
        lam, left = self.floor_lam[self.floor_lam > 0], d - np.count_nonzero(self.floor_lam)
        floor = np.maximum(lam - self.rounding, 0.0), self.floor_alpha
        with np.errstate(divide="ignore"):
            low, high = (
                float(np.log(lam + alpha).sum() + (left * np.log(alpha) if left else 0.0))
                for lam, alpha in (floor, (lam, self.ceiling_alpha + self.rounding))
            )
        return low, high

    def bracket_distances(self, x: Matrix) -> tuple[Floats, Floats]:
        """Return bounds (lower, upper) on x'(A'A + alpha0 I)^-1 x for each row of x."""
        live = self.floor_lam > 0
        v, lam = self.components[live], self.floor_lam[live]
        bounds = np.zeros((2, x.shape[0]))
        step = max(1, BLOCK // x.shape[1])
        for start in range(0, x.shape[0], step):
            # Dense, one block at a time: only the explicit residual shows whether a row is in the span.
            rows = Rows(x[start : start + step], np.ones(0), np.ones(0)).dense()
            along = rows @ v.T
            size = np.abs(rows).max(axis=1, initial=0.0) + (rows == 0).all(axis=1)
            outside = np.square((rows - along @ v) / size[:, None]).sum(axis=1)
            off_span = outside > 1e-22 * np.square(rows / size[:, None]).sum(axis=1)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                for i, alpha in enumerate((self.ceiling_alpha + self.rounding, self.floor_alpha)):
                    beyond = np.where(off_span, outside * size / np.float64(alpha) * size, 0.0)
                    bounds[i, start : start + step] = np.square(along / np.sqrt(lam + alpha)).sum(axis=1) + beyond
        return bounds[0], bounds[1]


def padded(values: Floats, count: int) -> Floats:
    """Return the first `count` values, padded with zeros if there are fewer."""
    return np.pad(values[:count], (0, max(0, count - len(values))))


def unit_rows(b: Floats, lam: Floats, *, fresh: bool = False) -> Floats:
    """Return the rows of b divided by their lengths, which are about sqrt(lam). A `fresh` b is overwritten.

    Short rows are orthogonalised again, by Cholesky QR where it is accurate and by Householder QR otherwise.
    """
    scaled = np.divide(b, np.sqrt(lam)[:, None], out=b if fresh else None)
    if not len(lam) or lam[-1] >= 1e-6 * lam[0]:
        scaled /= np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        return np.asarray(scaled)
    # Short rows carry the rounding errors of long ones, so they are orthogonal only up to eps lambda_1 / lambda_r.
    gram = scaled @ scaled.T
    if np.linalg.norm(gram - np.eye(len(lam))) < 0.5:  # well conditioned, so Cholesky QR is accurate, and faster
        root = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
        return np.asarray(dtrsm(1.0, root, scaled.T, side=1, lower=1, trans_a=1, overwrite_b=1).T)
    q, r = np.linalg.qr(scaled.T)
    return np.ascontiguousarray((q * np.where(np.diag(r) < 0, -1.0, 1.0)).T)
