"""A second pass over all rows: the exact variances along the directions of a sketch (Rayleigh and Ritz)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.linalg.eigen import EPS
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._base import BLOCK, View

Floats = NDArray[np.float64]
LEAST_DIGITS = 1e-6  # of ||A||_F^2: with rounding errors above that the pass could tell less than the sketch


@dataclass(frozen=True)
class Ritz:
    """With V the directions of a sketch, V A'A V' = rotation' diag(values) rotation, values descending.

    The rows of rotation V are the best directions in the span of V. No value is above the eigenvalue of A'A that it
    stands for (Cauchy's interlacing theorem).
    """

    values: Floats
    rotation: Floats
    rounding: float  # a bound on what rounding has changed of the values


@one_blas_thread()
def ritz_pass(view: View, x: Any, weight: Floats, decay: float) -> Ritz | None:
    """Return what the rows say about the directions of their sketch; None if it has none or if rounding hides it.

    The rows are those that the sketch has seen, with their weights, before it was multiplied by `decay` with each.
    """
    v, mean = view.components, view.mean
    if not len(v) or mean is None:
        return None
    sparse, size = sp.issparse(x), len(v) + np.sqrt(x.shape[1])
    # A sparse row is not centred before it is multiplied: its rounding errors are relative to what it was.
    spread = view.squared_norm + (2.0 * view.weight * float(mean @ mean) if sparse else 0.0)
    off = float(8.0 * size * EPS * spread)
    if not off <= LEAST_DIGITS * view.squared_norm:
        return None
    if not weight.all():
        x, weight = x[weight > 0], weight[weight > 0]
    if decay < 1.0:
        weight = weight * decay ** np.arange(len(weight) - 1.0, -1.0, -1.0)
    vt, gram, step = np.ascontiguousarray(v.T), np.zeros((len(v), len(v))), max(1, BLOCK // x.shape[1])
    step = max(step, BLOCK // len(v)) if sparse else step
    shift = mean @ vt
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        block = x[rows].astype(np.float64, copy=False)
        z = np.asarray(block @ vt) - shift if sparse else (block - mean) @ vt
        z *= np.sqrt(weight[rows])[:, None]
        gram += z.T @ z
    values, rotation = np.linalg.eigh(gram)
    return Ritz(np.maximum(values[::-1], 0.0), np.ascontiguousarray(rotation[:, ::-1].T), off)
