"""Conversion of class margins to probabilities."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# One-vs-rest margins become probabilities proportional to p / (1 - p)^t, where p is the expit of the margin. With t = 0
# this is exact if each p is exact; with t = 1 it is the softmax of the margins. The log losses decide between them.
SHARPNESS = np.array([0.0, 0.5, 1.0])


def of_two(margins: Floats) -> Floats:
    """Return the probabilities (n, 2) for logistic margins (n, 1) of the second class."""
    p = margins[:, 0]
    e = np.exp(-np.abs(p))  # never overflows
    likely, unlikely = 1.0 / (1.0 + e), e / (1.0 + e)
    return np.column_stack([np.where(p > 0, unlikely, likely), np.where(p > 0, likely, unlikely)])


def sharpened(margins: Floats) -> Floats:
    """Return the log probabilities (3, n, classes) for margins (n, classes), one slice per sharpness."""
    top = margins.max(axis=1, keepdims=True)
    return np.asarray(_exponents(margins, top) - _log_sums(margins, top)[:, :, None])


def _exponents(margins: Floats, top: Floats) -> Floats:
    """Return log p - t log(1 - p) of margins for each sharpness t, up to terms that all classes of a row share.

    `top` is the largest margin of a row. Subtracting its share keeps the numbers small.
    """
    least, linear = -np.logaddexp(0.0, -margins) - np.minimum(top, 0.0), margins - top
    return np.stack([(1.0 - t) * least + t * linear for t in SHARPNESS])


def _log_sums(margins: Floats, top: Floats) -> Floats:
    """Return the logarithms (3, n) of the sums of the exponentials of `_exponents`, with two exponentials a margin."""
    grown, e = np.exp(margins - top), np.exp(-np.abs(margins))
    p = np.where(top > 0, np.where(margins > 0, 1.0, e), grown) / (1.0 + e)
    return np.log(np.stack([p.sum(axis=1), np.sqrt(p * grown).sum(axis=1), grown.sum(axis=1)]))


def mixed(chances: Floats, losses: Floats) -> Floats:
    """Return the mean of chances (3, ...) over the first axis, with exponential weights from losses (3,)."""
    share = np.exp(losses.min() - losses)
    return np.asarray(np.tensordot(share / share.sum(), chances, 1))


def progressive_losses(margins: Floats, y: NDArray[np.int64], weight: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Return the log loss of each row under the mixture weighted by the earlier rows, and the updated losses (3,)."""
    top = margins.max(axis=1, keepdims=True)
    each = _log_sums(margins, top) - _exponents(margins[np.arange(len(y)), y], top[:, 0])
    total = np.cumsum(np.column_stack([losses, weight * each]), axis=1)
    share = np.exp(total[:, :-1].min(axis=0) - total[:, :-1])
    least = each.min(axis=0)
    loss = least - np.log((share * np.exp(least - each)).sum(axis=0) / share.sum(axis=0))
    return loss, total[:, -1].copy()


def nearest_distribution(v: Floats) -> Floats:
    """Project each row of v (n, classes) to the simplex: return max(v - t, 0) with t such that it sums to 1."""
    v = np.maximum(v - v.max(axis=1, keepdims=True), -1.0)  # entries more than 1 below the largest become 0 anyway
    falling = -np.sort(-v, axis=1)
    count = np.arange(1, v.shape[1] + 1)
    t = (np.cumsum(falling, axis=1) - 1.0) / count
    last = (falling > t).sum(axis=1) - 1  # index of the last class with a positive probability
    return np.maximum(v - t[np.arange(len(v)), last][:, None], 0.0)
