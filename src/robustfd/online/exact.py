"""The exact Hessian, for few features: H = diag(P) + the sum of c^2 x x', and its inverse.

The inverse is recomputed each time the number of rows has grown by an eighth. In between it stays fixed: the steps
differ little from those with an up-to-date Hessian, and a row costs one matrix-vector product.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from robustfd._compile import loops
from robustfd.online.diagonal import INTERCEPT
from robustfd.online.lanes import add_outer, sum_rows
from robustfd.online.mixture import Mixture
from robustfd.online.scratch import Row, Work, set_kappa

Floats = NDArray[np.float64]


class Exact(NamedTuple):
    """The Hessian with one or two memories, slow and fast; empty arrays if it is not in use. D is d + 1."""

    inverse: Floats  # (memories, D, D): the inverse of H when it was last recomputed
    past: Floats  # (memories, D, D): the sum of c^2 x x' up to then
    block: Floats  # (D, D): the sum since then; only the lower triangle is read
    weights: Floats  # (D, memories outputs L)


def start(size: int, memories: int, outputs: int, count: int) -> Exact:
    """Return the Hessian before the first row; `size` counts the intercept, 0 memories mean that it is not in use."""
    size = size if memories else 0
    return Exact(
        inverse=np.zeros((memories, size, size)),
        past=np.zeros((memories, size, size)),
        block=np.zeros((size, size)),
        weights=np.zeros((size, memories * outputs * count)),
    )


def with_features(exact: Exact, more: int) -> Exact:
    """Return the Hessian with `more` new features."""
    wide = ((0, 0), (0, more), (0, more))
    new = exact._replace(
        inverse=np.pad(exact.inverse, wide),
        past=np.pad(exact.past, wide),
        block=np.pad(exact.block, wide[1:]),
        weights=np.pad(exact.weights, ((0, more), (0, 0))),
    )
    for j in range(len(exact.block), len(new.block)):
        new.inverse[:, j, j] = 1.0
    return new


def renew(exact: Exact, prior: Floats, faded: float) -> None:
    """Multiply the fast memory by `faded`, add the rows of the block to H, and invert it."""
    size = len(exact.block)
    block = _symmetric(exact.block, _above(size))
    prior = np.where(prior > 0, prior, 1.0)  # a feature that has not occurred has no prior yet
    for memory in range(len(exact.past)):
        past, inverse = exact.past[memory], exact.inverse[memory]
        if memory == 1:
            past *= faded
        past += block
        inverse[:] = past
        inverse.reshape(-1)[:: size + 1] += prior
        # LAPACK is column-major and sees the transpose, so the lower triangle is its upper one.
        factor, failed = dpotrf(inverse.T, lower=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("The Hessian is not positive definite.")
        inverse[:] = _symmetric(dpotri(factor, lower=0, overwrite_c=1)[0].T, _above(size))
    exact.block[:] = 0.0


@lru_cache(maxsize=4)
def _above(size: int) -> NDArray[np.bool_]:
    """Return a mask of the entries above the diagonal of a square matrix."""
    return ~np.tri(size, dtype=bool)


def _symmetric(lower: Floats, above: NDArray[np.bool_]) -> Floats:
    """Return the symmetric matrix with this lower triangle."""
    return np.where(above, lower.T, lower)


@loops
def fill_margins(exact: Exact, mix: Mixture, row: Row, work: Work) -> None:
    """Fill the kappa and the margins of the exact experts, and for each memory the direction H^-1 zeta."""
    weights, size, count, after = exact.weights, len(exact.block), mix.plain.shape[1] // 2, mix.plain.shape[1]
    sums, width = work.better[0], exact.weights.shape[1]
    sum_rows(sums, weights, width, work.feature, work.value, row.size, width)
    for memory in range(len(exact.inverse)):
        inverse, g = exact.inverse[memory], work.direction[memory]
        sum_rows(g, inverse, size, work.feature, work.value, row.size, size)
        kappa, cross, own = 0.0, 2.0 * INTERCEPT * g[0], INTERCEPT * INTERCEPT * inverse[0, 0]
        for e in range(row.size):
            kappa += work.value[e] * g[work.feature[e]]
        first = after + memory * count
        norm, length = row.norm * (cross + row.norm * kappa), row.length * (cross + row.length * kappa)
        set_kappa(mix, work, first, first + count, own + norm, own + length)
        for c in range(len(work.margin)):
            start = (memory * len(work.margin) + c) * count
            for k in range(count):
                f = row.length if mix.linear[first + k] > 0 else row.norm
                work.margin[c, first + k] = f * sums[start + k] + INTERCEPT * weights[0, start + k]


@loops
def take_steps(exact: Exact, mix: Mixture, row: Row, work: Work, c2: float) -> None:
    """Take the steps of the exact experts, and add the curvature c2 of the row to the block."""
    weights, size, count, after = exact.weights, len(exact.block), mix.plain.shape[1] // 2, mix.plain.shape[1]
    outputs, steps, scaled = len(work.margin), work.better[1], work.better[2]
    for memory in range(len(exact.inverse)):
        first = after + memory * count
        for c in range(outputs):
            start = (memory * outputs + c) * count
            for k in range(count):
                steps[start + k] = INTERCEPT * work.step[c, first + k]
                f = row.length if mix.linear[first + k] > 0 else row.norm
                scaled[start + k] = f * work.step[c, first + k]
        start, width = memory * outputs * count, outputs * count
        add_outer(weights, start, 1.0, work.direction[memory], scaled, size, width)
        add_outer(weights, start, 1.0, exact.inverse[memory, 0], steps, size, width)
    x = work.direction[2]  # the row as a dense vector
    for i in range(size):
        x[i] = 0.0
    x[0] = INTERCEPT
    for e in range(row.size):
        x[work.feature[e]] = row.curve * work.value[e]
    add_outer(exact.block, 0, c2, x, x, size, size)


@loops
def rescale(exact: Exact, j: int, change: float) -> None:
    """Multiply the weights of feature j by `change`, and divide its entries in the Hessian accordingly."""
    size = len(exact.block)
    for i in range(size):
        exact.block[j, i] /= change
        exact.block[i, j] /= change
        for memory in range(len(exact.inverse)):
            exact.past[memory, j, i] /= change
            exact.past[memory, i, j] /= change
            exact.inverse[memory, j, i] *= change
            exact.inverse[memory, i, j] *= change
    for k in range(exact.weights.shape[1]):
        exact.weights[j, k] *= change


@loops
def move_centre(exact: Exact, mix: Mixture, j: int, norm: float, length: float) -> None:
    """Add the weights of feature j to the intercepts, times `length` for linear experts and `norm` for others."""
    count, outputs = mix.plain.shape[1] // 2, len(mix.share)
    for i in range(exact.weights.shape[1]):
        memory = i // (outputs * count)
        linear = mix.linear[mix.plain.shape[1] + memory * count + i % count] > 0
        exact.weights[0, i] += (length if linear else norm) * exact.weights[j, i]
