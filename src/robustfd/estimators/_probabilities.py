"""From margins of classes to probabilities."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

Floats = NDArray[np.float64]

# Margins of several classes, each against the rest, become probabilities in proportion to p / (1 - p)^t, where p is the
# expit of the margin. With t = 0 that is right if each p is, with t = 1 it is the softmax of the margins. Which of them
# is better is for the rows to say.
SHARPNESS = np.array([0.0, 0.5, 1.0])


def of_two(margins: Floats) -> Floats:
    """Return the probabilities (n, 2) that go with logistic margins (n, 1) of the second class."""
    return expit(np.column_stack([-margins[:, 0], margins[:, 0]]))


def sharpened(margins: Floats) -> Floats:
    """Return logarithms of the probabilities (3, n, classes) that go with margins (n, classes), for each sharpness."""
    least = log_expit(margins)
    z = least + SHARPNESS[:, None, None] * (margins - least)
    z -= z.max(axis=2, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=2, keepdims=True)))


def mixed(chances: Floats, losses: Floats) -> Floats:
    """Return the mean over the first axis of chances (3, ...) by exponential weights of losses (3,)."""
    share = np.exp(losses.min() - losses)
    return np.asarray(np.tensordot(share / share.sum(), chances, 1))


def judge_in_turn(margins: Floats, y: NDArray[np.int64], weight: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Return the log loss of each row, by the mixture that the rows before it speak for, and the losses (3,) after."""
    each = -sharpened(margins)[:, np.arange(len(y)), y]
    total = np.cumsum(np.column_stack([losses, weight * each]), axis=1)
    share = np.exp(total[:, :-1].min(axis=0) - total[:, :-1])
    least = each.min(axis=0)
    loss = least - np.log((share * np.exp(least - each)).sum(axis=0) / share.sum(axis=0))
    return loss, total[:, -1].copy()


def nearest_distribution(v: Floats) -> Floats:
    """Return for each row of v (n, classes) the distribution nearest to it: max(v - t, 0) with the t that sums to 1."""
    v = np.maximum(v - v.max(axis=1, keepdims=True), -1.0)  # what is further below the largest gets nothing
    falling = -np.sort(-v, axis=1)
    count = np.arange(1, v.shape[1] + 1)
    t = (np.cumsum(falling, axis=1) - 1.0) / count
    last = (falling > t).sum(axis=1) - 1  # of the classes that keep something
    return np.maximum(v - t[np.arange(len(v)), last][:, None], 0.0)
