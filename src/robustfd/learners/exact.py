"""The exact Hessian, for few features, as arrays: H = diag(P) + the sum of c^2 x x', and its inverse."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def padded(n: int) -> int:
    """Return n rounded up to a whole number of vectors."""
    return -(-n // 8) * 8


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
        inverse=np.zeros((memories, size, wide)),
        past=np.zeros((memories, size, size)),
        block=np.zeros((size, wide)),
        weights=np.zeros((size, lanes)),
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


@lru_cache(maxsize=4)
def _above(size: int) -> NDArray[np.bool_]:
    """Return a mask of the entries above the diagonal of a square matrix."""
    return ~np.tri(size, dtype=bool)


def _symmetric(lower: Floats, above: NDArray[np.bool_]) -> Floats:
    """Return the symmetric matrix with this lower triangle."""
    return np.where(above, lower.T, lower)
