"""Rayleigh-Ritz step: a second pass over the rows that gives exact variances along the directions of a sketch.

Let the rows of V be orthonormal directions, Theta = V A'A V', and R = V A'A - Theta V the residual. If A'A is at most
h I outside the span of V, then A'A <= V' Theta V + R'V + V'R + h (I - V'V). The eigenvalues of the right side bound
those of A'A from above (Weyl), and those of Theta bound them from below (Cauchy). The sketch gives h.
docs/mathematics.md has the proof.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dger

from robustfd.linalg.eigen import EPS
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.interface import BLOCK
from robustfd.sketch.two_sided import TwoSidedView

Floats = NDArray[np.float64]
LEAST_DIGITS = 1e-6  # relative to ||A||_F^2: with larger rounding errors the pass is less accurate than the sketch
LEAST_ANGLE = 1e-4  # directions with a smaller squared sine count as dependent on the others
LEAST_SCATTER = 1e-200  # below this, products of residuals underflow


@dataclass(frozen=True)
class Ritz:
    """The best directions in the span of a sketch and the exact scatter along them, in descending order.

    `rotation` times the directions of the sketch has orthonormal rows. Each of `values` is a lower bound on the
    corresponding eigenvalue of A'A (Cauchy's interlacing theorem), and each of `upper` is an upper bound.
    """

    values: Floats
    rotation: Floats
    rounding: float  # bound on the rounding errors of `values`
    upper: Floats | None = None  # includes rounding errors; None if unknown

    def directions(self, view: TwoSidedView, k: int) -> Floats:
        """Return the first k directions."""
        return np.asarray(self.rotation[:k] @ _basis(view, both=self.rotation.shape[1] > len(view.lam)))


def _basis(view: TwoSidedView, *, both: bool) -> Floats:
    """Return the directions of the first sketch, or of both sketches."""
    return np.concatenate([view.components, view.upper_form()]) if both else view.components


@one_blas_thread()
def ritz_pass(view: TwoSidedView, x: Any, weight: Floats, decay: float, *, both: bool) -> Ritz | None:
    """Return the Ritz values of the rows, or None if the sketch has no directions or rounding errors are too large.

    Rows, weights and decay must be those that the sketch has seen. With `both`, use the directions of both sketches.
    """
    mean, sparse = view.mean, sp.issparse(x)
    if not len(view.lam) or mean is None:
        return None
    # Sparse rows are not centred before the multiplication, so their rounding errors are relative to their own norm.
    spread = view.squared_norm + (2.0 * view.weight * float(mean @ mean) if sparse else 0.0)
    v = _basis(view, both=both)
    off = float(8.0 * (len(v) + np.sqrt(sum(x.shape))) * EPS * spread / (LEAST_ANGLE if both else 1.0))
    if not off <= LEAST_DIGITS * view.squared_norm:
        return None
    if not weight.all():
        x, weight = x[weight > 0], weight[weight > 0]
    if decay < 1.0:
        weight = weight * decay ** np.arange(len(weight) - 1.0, -1.0, -1.0)
    vt = np.ascontiguousarray(v.T)
    gram, image = _products(x, weight, mean, vt)
    straight = np.eye(len(v))
    if both:  # orthonormalise, and drop directions that nearly depend on the others
        lengths, u = np.linalg.eigh(v @ v.T)
        new = lengths > LEAST_ANGLE
        straight = (u[:, new] / np.sqrt(lengths[new])).T
        gram, vt, image = straight @ gram @ straight.T, vt @ straight.T, image @ straight.T
    values, rotation = np.linalg.eigh(gram)
    upper = None
    if view.squared_norm > LEAST_SCATTER:
        outside = _most_outside(view, vt, both=both)
        upper = _upper_ends(gram, _residual(image, vt, gram), outside, view.squared_norm) + 4.0 * off
    return Ritz(np.maximum(values[::-1], 0.0), np.ascontiguousarray(rotation[:, ::-1].T @ straight), off, upper)


def _products(x: Any, weight: Floats, mean: Floats, vt: Floats) -> tuple[Floats, Floats]:
    """Return V A'A V' and A'A V' for the centred rows, computed block by block."""
    is_sparse = sp.issparse(x)
    if is_sparse:
        from robustfd.linalg import sparse  # imported here because it compiles loops that only sparse rows need

    gram, image = np.zeros((vt.shape[1], vt.shape[1])), np.zeros_like(vt)
    total, shift = np.zeros(vt.shape[1]), mean @ vt
    step = max(1, BLOCK // vt.shape[1 if is_sparse else 0])
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        block = x[rows].astype(np.float64, copy=False)
        if not is_sparse:
            block = block - mean
        z = np.asarray(block @ vt) - (shift if is_sparse else 0.0)
        weighted = weight[rows, None] * z
        gram += z.T @ weighted
        if is_sparse:
            sparse.add_product(image, block, weighted)
            total += weighted.sum(axis=0)
        else:  # image += block' weighted, in place
            dgemm(1.0, weighted.T, block.T, beta=1.0, c=image.T, trans_b=1, overwrite_c=1)
    if is_sparse:
        dger(-1.0, total, mean, a=image.T, overwrite_a=1)
    return (gram + gram.T) / 2, image


def _residual(image: Floats, vt: Floats, gram: Floats) -> Floats:
    """Return A'A V' - V' Theta, computed in place in `image`."""
    return np.asarray(dgemm(-1.0, gram, vt.T, beta=1.0, c=image.T, overwrite_c=1).T)


def _most_outside(view: TwoSidedView, vt: Floats, *, both: bool) -> float:
    """Return h such that A'A is at most h I outside the span of V."""

    def left(lam: Floats, unit: Floats) -> float:
        """Return the largest eigenvalue of B'B projected to the complement of the span."""
        inside = np.sqrt(lam)[:, None] * (unit @ vt)
        return max(0.0, float(np.linalg.eigvalsh(np.diag(lam) - inside @ inside.T)[-1]))

    # The directions of the first sketch are all in the span, unless some were dropped.
    first = left(view.floor_lam, view.components) if both else 0.0
    first += view.ceiling_alpha - view.floor_alpha + view.rounding
    if not len(view.upper_lam):
        return first
    second = left(view.upper_lam, view.upper_form()) + view.upper_delta + view.upper_rounding
    return min(first, second)


def _upper_ends(theta: Floats, residual: Floats, outside: float, unit: float) -> Floats:
    """Return the r largest eigenvalues of [[Theta, T'], [T, h I]], where T'T = R R' and Theta is r x r.

    They increase with T'T, so adding a bound on the rounding errors of T'T keeps them upper bounds.
    """
    r = len(theta)
    residual /= unit  # squares of the scatter could overflow
    squares, w = np.linalg.eigh(residual.T @ residual)
    squares = np.maximum(squares, 0.0) + (r + np.sqrt(len(residual))) * EPS * float(np.maximum(squares, 0.0).sum())
    whole = np.zeros((2 * r, 2 * r))
    whole[:r, :r] = theta / unit
    whole[r:, :r] = np.sqrt(squares)[:, None] * w.T
    whole[np.arange(r, 2 * r), np.arange(r, 2 * r)] = outside / unit
    return np.asarray(unit * np.linalg.eigvalsh(whole)[: r - 1 : -1])
