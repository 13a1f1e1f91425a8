"""From margins of classes to probabilities."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]


def one_against_rest(margins: Floats) -> Floats:
    """Return the probabilities (n, classes) of logistic margins: (n, 1) of the second of two, or of each class."""
    if margins.shape[1] == 1:
        return expit(np.column_stack([-margins[:, 0], margins[:, 0]]))
    chances = expit(margins)
    return chances / chances.sum(axis=1, keepdims=True)


def nearest_distribution(v: Floats) -> Floats:
    """Return for each row of v (n, classes) the distribution nearest to it: max(v - t, 0) with the t that sums to 1."""
    falling = -np.sort(-v, axis=1)
    count = np.arange(1, v.shape[1] + 1)
    t = (np.cumsum(falling, axis=1) - 1.0) / count
    last = (falling > t).sum(axis=1) - 1  # of the classes that keep something
    return np.maximum(v - t[np.arange(len(v)), last][:, None], 0.0)
