"""The Hessian as diagonal plus sketch, H = D + B'B, for many features that are correlated.

B is a Frequent Directions sketch of the rows c x. D holds the prior plus the part of the exact diagonal that B misses.
H is updated each time the number of rows has grown by a quarter, and stays fixed in between. With U = (I + B D^-1
B')^-1/2 B D^-1

    H^-1 = D^-1 - U'U,   x'H^-1 x = x'D^-1 x - |U x|^2

A step moves the weights along D^-1 x, which has the non-zeros of x, and along U'U x. The latter is stored as
coefficients of the rows of U: w = a + U'b. So a row costs O(m) for each of its non-zeros. On a long stream only a
random sample of the rows is added to the sketch, weighted to stand for the skipped rows, so the sketch costs little.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from robustfd._compile import loops
from robustfd.linalg.decompose import shrink_stack
from robustfd.online.diagonal import INTERCEPT
from robustfd.online.feature_stats import Features
from robustfd.online.lanes import add_multiple, sum_rows
from robustfd.online.mixture import Mixture
from robustfd.online.scratch import Row, Work, set_kappa

Floats = NDArray[np.float64]

ALL = 256  # all of the first rows up to this number are sketched, and about as many of each doubling after them


class LowRank(NamedTuple):
    """The Hessian as arrays, which are empty if it is not in use. D is d + 1."""

    u: Floats  # (D, m - 1)
    diagonal: Floats  # (D,): at the last update; 0 before a feature occurs
    weights: Floats  # (D, outputs L): a
    along: Floats  # (m - 1, outputs L): b
    sketch: Floats  # (m - 1, D): B, with zero rows last
    lam: Floats  # (m - 1,): their squared lengths
    buffer: Floats  # (2 m, D): rows since the last shrink
    filled: NDArray[np.int64]  # (1,): the number of these rows


def start(size: int, m: int, outputs: int, count: int) -> LowRank:
    """Return the Hessian before the first row; `size` counts the intercept, m = 0 means that it is not in use."""
    size = size if m else 0
    rows = max(m - 1, 0)
    return LowRank(
        u=np.zeros((size, rows)),
        diagonal=np.zeros(size),
        weights=np.zeros((size, outputs * count if m else 0)),
        along=np.zeros((rows, outputs * count)),
        sketch=np.zeros((rows, size)),
        lam=np.zeros(rows),
        buffer=np.zeros((2 * m, size)),
        filled=np.zeros(1, np.int64),
    )


def with_size(low: LowRank, m: int) -> LowRank:
    """Return the Hessian with m - 1 rows in the sketch; if there are fewer than before, drop the smallest."""
    fold(low)
    shrink(low)
    keep = min(m - 1, len(low.lam))
    new = start(len(low.diagonal), m, 1, low.weights.shape[1])
    new.sketch[:keep], new.lam[:keep] = low.sketch[:keep], low.lam[:keep]
    return new._replace(diagonal=low.diagonal, weights=low.weights)


def with_features(low: LowRank, more: int) -> LowRank:
    """Return the Hessian with `more` new features."""
    of_rows = {name: np.pad(getattr(low, name), ((0, more), (0, 0))) for name in ("u", "weights")}
    of_columns = {name: np.pad(getattr(low, name), ((0, 0), (0, more))) for name in ("sketch", "buffer")}
    return low._replace(diagonal=np.pad(low.diagonal, (0, more)), **of_rows, **of_columns)


def pack(low: LowRank, which: NDArray[np.int32]) -> dict[str, Any]:
    """Return the arrays for a snapshot, restricted to the features that have occurred."""
    arrays = {name: getattr(low, name)[which] for name in ("u", "diagonal", "weights")}
    filled = int(low.filled[0])
    return arrays | {
        "along": low.along,
        "sketch": low.sketch[:, which],
        "lam": low.lam,
        "buffer": low.buffer[:filled, which],
    }


def unpack(parts: Any, which: NDArray[np.int32], size: int, m: int, width: int) -> LowRank:
    """Return the Hessian in a snapshot."""
    n, filled = len(which), parts.shape("sketch.buffer", 2)[0]
    if filled > 2 * m:
        raise ValueError(f"the buffer of the sketch has {filled} rows, expected at most {2 * m}")
    rows = m - 1
    lam, along = parts.array("sketch.lam", rows, least=0.0), parts.array("sketch.along", rows, width)
    small = {
        "u": parts.array("sketch.u", n, rows),
        "diagonal": parts.array("sketch.diagonal", n, least=0.0),
        "weights": parts.array("sketch.weights", n, width),
    }
    low = start(size, m, 1, width)._replace(lam=lam, along=along)
    for name, array in small.items():
        getattr(low, name)[which] = array
    low.sketch[:, which] = parts.array("sketch.sketch", rows, n)
    low.buffer[:filled, which] = parts.array("sketch.buffer", filled, n)
    low.filled[0] = filled
    return low


def fold(low: LowRank) -> None:
    """Add U'b to a and reset b to 0."""
    low.weights[:] += low.u @ low.along
    low.along[:] = 0.0


def shrink(low: LowRank) -> None:
    """Shrink the rows of the buffer into the sketch."""
    n, m = int(low.filled[0]), len(low.lam) + 1
    if n:
        have = int(np.count_nonzero(low.lam))
        # Features rescaled since the last shrink leave the rows of B not quite orthogonal, so B counts as plain rows.
        rows = np.vstack([low.sketch[:have], low.buffer[:n]])
        shrunk = shrink_stack(rows[:0], low.lam[:0], rows, m, m)
        low.sketch[:], low.lam[:] = 0.0, 0.0
        low.sketch[: len(shrunk.lam)], low.lam[: len(shrunk.lam)] = shrunk.rows, shrunk.lam
        low.buffer[:n] = 0.0
        low.filled[0] = 0


def renew(low: LowRank, prior: Floats, squares: Floats) -> None:
    """Update H; `squares` is the exact diagonal of the sum of c^2 x x'."""
    fold(low)
    shrink(low)
    have = int(np.count_nonzero(low.lam))
    b = low.sketch[:have]
    low.diagonal[:] = prior + np.maximum(squares - np.einsum("ij,ij->j", b, b), 0.0)
    inverse = np.divide(1.0, low.diagonal, out=np.zeros_like(low.diagonal), where=low.diagonal > 0)
    scaled = b * inverse
    values, vectors = eigh(scaled @ b.T, check_finite=False)
    low.u[:] = 0.0
    low.u[:, :have] = scaled.T @ (vectors / np.sqrt(1.0 + np.maximum(values, 0.0)))


@loops
def is_sampled(row: int) -> int:
    """Return the weight with which row number `row` (from 0) is sketched, or 0 if it is skipped."""
    stride = row // ALL + 1
    mixed = (row * 2654435761) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    return stride if (mixed ^ (mixed >> 13)) % stride == 0 else 0


@loops
def fill_margins(low: LowRank, features: Features, mix: Mixture, row: Row, work: Work) -> None:
    """Fill the kappa and the margins of the experts with the sketch, and U x for both scalings of the row."""
    u, count, after, rows = low.u, mix.plain.shape[1] // 2, mix.plain.shape[1], len(low.lam)
    along, sums, outputs, width, inside = work.direction[2], work.better[0], len(work.margin), low.weights.shape[1], 0.0
    for e in range(row.size):
        j, zeta = work.feature[e], work.value[e]
        if zeta != 0.0:
            if low.diagonal[j] == 0.0:  # the first occurrence of this feature
                low.diagonal[j] = features.table[j]["prior"]
            inside += zeta * zeta / low.diagonal[j]
    sum_rows(along, u, rows, work.feature, work.value, row.size, rows)
    sum_rows(sums, low.weights, width, work.feature, work.value, row.size, width)
    intercept = INTERCEPT * INTERCEPT / low.diagonal[0] if low.diagonal[0] > 0 else 0.0
    norm, length = intercept + row.norm * row.norm * inside, intercept + row.length * row.length * inside
    for i in range(rows):
        work.direction[0, i] = INTERCEPT * u[0, i] + row.norm * along[i]
        work.direction[1, i] = INTERCEPT * u[0, i] + row.length * along[i]
        norm -= work.direction[0, i] * work.direction[0, i]
        length -= work.direction[1, i] * work.direction[1, i]
    set_kappa(mix, work, after, after + count, norm, length)
    for c in range(outputs):
        for k in range(count):
            linear = mix.linear[after + k] > 0
            p = (row.length if linear else row.norm) * sums[c * count + k]
            p += INTERCEPT * low.weights[0, c * count + k]
            direction = work.direction[1 if linear else 0]
            for i in range(rows):
                p += direction[i] * low.along[i, c * count + k]
            work.margin[c, after + k] = p


@loops
def take_steps(low: LowRank, mix: Mixture, row: Row, work: Work, c2: float, number: int) -> None:
    """Take the steps of the experts with the sketch, and buffer row `number` of curvature c2 if it is sampled."""
    count, after, rows, outputs = mix.plain.shape[1] // 2, mix.plain.shape[1], len(low.lam), len(work.margin)
    own, scaled, width = (
        INTERCEPT / low.diagonal[0] if low.diagonal[0] > 0 else 0.0,
        work.better[0],
        low.weights.shape[1],
    )
    for c in range(outputs):
        step = work.step[c, after:]
        for k in range(count):
            linear = mix.linear[after + k] > 0
            scaled[c * count + k] = step[k] * (row.length if linear else row.norm)
            low.weights[0, c * count + k] += own * step[k]
            direction = work.direction[1 if linear else 0]
            for i in range(rows):
                low.along[i, c * count + k] -= step[k] * direction[i]
    for e in range(row.size):
        j, zeta = work.feature[e], work.value[e]
        if zeta != 0.0 and low.diagonal[j] > 0.0:
            add_multiple(low.weights, j * width, scaled, 0, zeta / low.diagonal[j], width)
    times = is_sampled(number)
    if times > 0 and c2 > 0.0:
        target, x = low.buffer[low.filled[0]], math.sqrt(c2 * times)
        low.filled[0] += 1
        target[0] = INTERCEPT * x
        for e in range(row.size):
            target[work.feature[e]] = row.curve * x * work.value[e]


@loops
def rescale(low: LowRank, j: int, change: float) -> None:
    """Multiply the weights of feature j by `change`, and divide its entries in the Hessian accordingly."""
    low.diagonal[j] /= change * change
    for i in range(len(low.lam)):
        low.u[j, i] *= change
        low.sketch[i, j] /= change
    for i in range(low.filled[0]):
        low.buffer[i, j] /= change
    for k in range(low.weights.shape[1]):
        low.weights[j, k] *= change


@loops
def move_centre(low: LowRank, mix: Mixture, j: int, norm: float, length: float) -> None:
    """Add the weights of feature j to the intercepts, times `length` for linear experts and `norm` for others."""
    count = mix.plain.shape[1] // 2
    for i in range(low.weights.shape[1]):
        w = low.weights[j, i]
        for r in range(len(low.lam)):
            w += low.u[j, r] * low.along[r, i]
        low.weights[0, i] += (length if mix.linear[mix.plain.shape[1] + i % count] > 0 else norm) * w
