"""The Hessian as diagonal plus sketch, H = D + B'B, for many features that are correlated.

B is a Frequent Directions sketch of the rows c x. D holds the prior plus the part of the exact diagonal that B misses.
H is updated each time the number of rows has grown by a quarter, and stays fixed in between. With U = (I + B D^-1
B')^-1/2 B D^-1

    H^-1 = D^-1 - U'U,   x'H^-1 x = x'D^-1 x - |U x|^2

The steps are in the core (src/core/hot/hessians.hpp), and weights are w = a + U'b.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._scipy import scipy_linalg
from robustfd.linalg.decompose import shrink_stack

Floats = NDArray[np.float64]


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
    values, vectors = scipy_linalg.eigh(scaled @ b.T, check_finite=False)
    low.u[:] = 0.0
    low.u[:, :have] = scaled.T @ (vectors / np.sqrt(1.0 + np.maximum(values, 0.0)))
