"""The exact Hessian, for few features: H = diag(P) + the sum of c^2 x x', and its inverse.

The inverse is checked each time the number of rows has grown by an eighth, or more often if the Hessian forgets
(hessian_choice.py). It is recomputed if an entry of the diagonal of H^-1 H differs from 1 by more than 1/32. In
between it stays fixed: the steps differ little from those with an up-to-date Hessian, and a row costs one matrix-vector
product.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from robustfd._compile import loops
from robustfd.online.diagonal import INTERCEPT
from robustfd.online.feature_stats import aligned
from robustfd.online.lanes import add_outers, add_square, padded, sum_rows
from robustfd.online.mixture import Mixture
from robustfd.online.scratch import Row, Work, set_kappa

Floats = NDArray[np.float64]

CHANGE = 1 / 32  # the largest change of H, relative to its inverse, for which the inverse stays


class Exact(NamedTuple):
    """The Hessian with one or two memories, slow and fast; empty arrays if it is not in use.

    D is d + 1, and W is D rounded up to a whole number of vectors. Columns D to W - 1 are 0.
    """

    inverse: Floats  # (memories, D, W): the inverse of H when it was last recomputed
    past: Floats  # (memories, D, D): the sum of c^2 x x' up to the last `renew`
    block: Floats  # (D, W): the sum since then; only the lower triangle is read
    weights: Floats  # (D, memories outputs L)


def start(size: int, memories: int, outputs: int, count: int) -> Exact:
    """Return the Hessian before the first row; `size` counts the intercept, 0 memories mean that it is not in use."""
    size = size if memories else 0
    wide, lanes = padded(size), memories * outputs * count
    return Exact(
        inverse=aligned(memories * size, np.float64, wide).reshape(memories, size, wide),
        past=np.zeros((memories, size, size)),
        block=aligned(size, np.float64, wide).reshape(size, wide),
        weights=aligned(size, np.float64, lanes).reshape(size, lanes),
    )


def without_padding(exact: Exact) -> Exact:
    """Return views of the arrays without their additional columns."""
    size = len(exact.block)
    return exact._replace(inverse=exact.inverse[..., :size], block=exact.block[:, :size])


def with_features(exact: Exact, more: int) -> Exact:
    """Return the Hessian with `more` new features."""
    size = len(exact.block)
    return with_features_at(exact, np.arange(size), size + more)


def with_features_at(exact: Exact, at: NDArray[np.int64], size: int) -> Exact:
    """Return the Hessian of `size` features in which feature j becomes feature at[j]; the others have not occurred."""
    memories, n = len(exact.past), len(at)
    new = start(size, memories, 1, exact.weights.shape[1] // memories)
    new.inverse[:, np.arange(size), np.arange(size)] = 1.0
    new.past[:, at[:, None], at], new.inverse[:, at[:, None], at] = exact.past[:, :n, :n], exact.inverse[:, :n, :n]
    new.block[at[:, None], at] = _symmetric(exact.block[:n, :n], _above(n))
    new.weights[at] = exact.weights[:n]
    return new


def renew(exact: Exact, prior: Floats, faded: float) -> None:
    """Multiply the fast memory by `faded`, add the rows of the block to H, and invert it if it changed enough."""
    size = len(exact.block)
    exact.past[1:] *= faded
    exact.past[:] += _symmetric(exact.block[:, :size], _above(size))
    exact.block[:] = 0.0
    h = exact.past.copy()
    # A feature that has not occurred has no prior yet.
    h.reshape(len(h), -1)[:, :: size + 1] += np.where(prior > 0, prior, 1.0)
    change = np.einsum("mij,mij->mi", exact.inverse[..., :size], h) - 1.0
    for memory in np.flatnonzero(~(np.abs(change).max(axis=1) <= CHANGE)):
        # LAPACK is column-major and sees the transpose, so the lower triangle is its upper one.
        factor, failed = dpotrf(h[memory].T, lower=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("The Hessian is not positive definite.")
        inverse = dpotri(factor, lower=0, overwrite_c=1)[0].T
        exact.inverse[memory, :, :size] = _symmetric(inverse, _above(size))


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
    weights, wide, count, after = exact.weights, exact.block.shape[1], mix.plain.shape[1] // 2, mix.plain.shape[1]
    sums, width = work.better[0], exact.weights.shape[1]
    sum_rows(sums, weights, width, work.feature, work.value, row.size, width)
    for memory in range(len(exact.inverse)):
        inverse, g = exact.inverse[memory], work.direction[memory]
        sum_rows(g, inverse, wide, work.feature, work.value, row.size, wide)
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
        add_outers(weights, start, work.direction[memory], scaled, exact.inverse[memory, 0], steps, width)
    x = work.direction[2]  # the row as a dense vector
    for i in range(size):
        x[i] = 0.0
    x[0] = INTERCEPT
    for e in range(row.size):
        x[work.feature[e]] = row.curve * work.value[e]
    add_square(exact.block, c2, x, size)


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
