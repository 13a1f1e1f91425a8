"""A second pass over all rows: the exact variances along the directions of a sketch (Rayleigh and Ritz)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.linalg.eigen import EPS
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import BLOCK
from robustfd.sketch.two_sided import TwoSidedView

Floats = NDArray[np.float64]
LEAST_DIGITS = 1e-6  # of ||A||_F^2: with rounding errors above that the pass could tell less than the sketch

LEAST_ANGLE = 1e-4  # the squared sine below which a direction is no new one


@dataclass(frozen=True)
class Ritz:
    """The best directions in the span of those of a sketch, and the exact scatter along them, descending.

    The rows of `rotation` times the directions of the sketch are orthonormal. No value is above the eigenvalue of A'A
    that it stands for (Cauchy's interlacing theorem).
    """

    values: Floats
    rotation: Floats
    rounding: float  # a bound on what rounding has changed of the values

    def directions(self, view: TwoSidedView, k: int) -> Floats:
        """Return the first k directions."""
        return np.asarray(self.rotation[:k] @ _basis(view, both=self.rotation.shape[1] > len(view.lam)))


def _basis(view: TwoSidedView, *, both: bool) -> Floats:
    """Return the directions of the first rule, or those of both."""
    return np.concatenate([view.components, view.upper_form()]) if both else view.components


@one_blas_thread()
def ritz_pass(view: TwoSidedView, x: Any, weight: Floats, decay: float, *, both: bool) -> Ritz | None:
    """Return what rows say about the directions of their sketch; None if it has none or if rounding hides it.

    The rows are those that the sketch has seen, with their weights and decay; with `both`, the directions are those of
    both rules.
    """
    mean, sparse = view.mean, sp.issparse(x)
    if not len(view.lam) or mean is None:
        return None
    # A sparse row is not centred before it is multiplied: its rounding errors are relative to what it was.
    spread = view.squared_norm + (2.0 * view.weight * float(mean @ mean) if sparse else 0.0)
    v = _basis(view, both=both)
    off = float(8.0 * (len(v) + np.sqrt(x.shape[1])) * EPS * spread / (LEAST_ANGLE if both else 1.0))
    if not off <= LEAST_DIGITS * view.squared_norm:
        return None
    if not weight.all():
        x, weight = x[weight > 0], weight[weight > 0]
    if decay < 1.0:
        weight = weight * decay ** np.arange(len(weight) - 1.0, -1.0, -1.0)
    gram = _gram(x, weight, mean, np.ascontiguousarray(v.T))
    straight = np.eye(len(v))
    if both:  # orthonormal combinations; what the second rule adds almost nothing to is left out
        lengths, u = np.linalg.eigh(v @ v.T)
        new = lengths > LEAST_ANGLE
        straight = (u[:, new] / np.sqrt(lengths[new])).T
    values, rotation = np.linalg.eigh(straight @ gram @ straight.T)
    return Ritz(np.maximum(values[::-1], 0.0), np.ascontiguousarray(rotation[:, ::-1].T @ straight), off)


def _gram(x: Any, weight: Floats, mean: Floats, vt: Floats) -> Floats:
    """Return V A'A V' for the centred rows, a block of them at a time."""
    sparse = sp.issparse(x)
    gram, step = np.zeros((vt.shape[1], vt.shape[1])), max(1, BLOCK // vt.shape[1 if sparse else 0])
    shift = mean @ vt
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        block = x[rows].astype(np.float64, copy=False)
        z = np.asarray(block @ vt) - shift if sparse else (block - mean) @ vt
        z *= np.sqrt(weight[rows])[:, None]
        gram += z.T @ z
    return gram
