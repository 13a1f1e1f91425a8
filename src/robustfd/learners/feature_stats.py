"""Statistics of each feature: how often it occurs, its centre, its scale and its curvature so far.

The core updates them (src/core/hot/features.hpp). This module computes those of the first rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import ROUND_OFF
from robustfd.learners.rows import CsrRows

Floats = NDArray[np.float64]

CENTRE = 0.75  # a feature that is non-zero in more than this share of the first rows is centred

# One cache line each. `slow` and `fast` are the sums of c^2 f^2 zeta^2, where c^2 is the curvature of the loss: over
# all rows, and over recent rows, divided by `fade` in TOTALS. `number` is 1, 2, ... for a centred feature, else 0.
FEATURE = np.dtype(
    [
        ("count", "f8"), ("square", "f8"), ("reference", "f8"), ("inverse", "f8"), ("prior", "f8"),
        ("slow", "f8"), ("fast", "f8"), ("number", "i8"),
    ]
)  # fmt: skip
# Totals over all rows: their number; gamma^rows; the weighted sum of log V and the sum of weights, for g; the common
# factor of rows for linear experts; the mean factor of rows that are divided by their own length; the mean sample
# weight; a0; whether the prior depends on the density.
TOTALS = np.dtype(
    [
        ("rows", "f8"), ("fade", "f8"), ("logarithms", "f8"), ("log_weight", "f8"), ("length", "f8"),
        ("norm", "f8"), ("weight", "f8"), ("prior", "f8"), ("by_density", "f8"),
    ]
)  # fmt: skip


class Features(NamedTuple):
    """The statistics of features, and the list of centred ones."""

    table: Any  # (d + 1,) of FEATURE
    totals: Any  # (1,) of TOTALS
    centred: NDArray[np.int64]  # the centred features
    centre: Floats  # (2, centred): the centre of each, and its mean over recent rows, the next centre


def start(d: int, *, prior: float, by_density: bool) -> Features:
    """Return the statistics of d features before the first row."""
    table, totals = np.zeros(d + 1, FEATURE), np.zeros(1, TOTALS)
    totals["prior"], totals["by_density"], totals["fade"] = prior, float(by_density), 1.0
    totals["norm"] = totals["length"] = totals["weight"] = 1.0
    table["inverse"][0], table["prior"][0] = 1.0, prior
    return Features(table, totals, np.zeros(0, np.int64), np.zeros((2, 0)))


def with_features(features: Features, d: int) -> Features:
    """Return the statistics of d features, of which the new ones have none yet."""
    table = np.zeros(d + 1, FEATURE)
    table[: len(features.table)] = features.table
    return features._replace(table=table)


def learn_first(features: Features, x: Any, n: int) -> Features:
    """Return the statistics of the first n rows x of the stream, sparse or dense, without scales and priors.

    The values of centred features are clipped at ten robust standard deviations from the median. Missing values (NaN)
    are ignored.
    """
    table, totals = features.table, features.totals.copy()
    seen, count, known, square, columns = _columns_of(x, n)
    chosen = (count > CENTRE * known) & (n > 1)
    mean, off = robust_mean(np.ascontiguousarray(columns(chosen)))  # numpy's sums depend on the memory order
    off[np.abs(off) <= ROUND_OFF * np.abs(mean)] = 0.0
    square = np.divide(square, count, out=np.zeros(len(seen)), where=count > 0)
    square[chosen] = np.square(off).sum(axis=0) / np.maximum(known[chosen] - 1, 1)
    rows = np.zeros(len(seen), FEATURE)
    rows["count"], rows["square"] = np.where(chosen, known, count), square
    rows["number"][chosen] = np.arange(1, np.count_nonzero(chosen) + 1)
    table[seen + 1] = rows
    table[0] = np.zeros(1, FEATURE)[0]
    table["inverse"][0], table["prior"][0], table["count"][0] = 1.0, totals["prior"][0], n
    rest = ~chosen & (square > 0)
    totals["rows"], totals["fade"] = n, 1.0
    totals["logarithms"], totals["log_weight"] = count[rest] @ np.log(square[rest]), count[rest].sum()
    entries = rows["count"].sum()
    totals["length"] = totals["norm"] = math.sqrt(n / entries) if entries > 0 else 1.0
    return Features(table, totals, seen[chosen] + 1, np.vstack([mean, mean]))


def _columns_of(x: Any, n: int) -> tuple[NDArray[np.int64], Floats, Floats, Floats, Any]:
    """Return the features that occur, their counts of non-zeros and of present values, sums of squares, and a function.

    The function returns selected columns as a dense array, with NaN where a value is missing.
    """
    if not isinstance(x, CsrRows):
        missing = np.isnan(x)
        count, known = np.count_nonzero(x, axis=0), n - np.count_nonzero(missing, axis=0)
        squares = np.square(np.where(missing, 0.0, x)).sum(axis=0)
        seen = np.arange(x.shape[1])
        return seen, (count - n + known).astype(np.float64), known.astype(np.float64), squares, lambda some: x[:, some]
    seen, place = np.unique(x.indices, return_inverse=True)

    def columns(some: Any) -> Floats:
        out, which, inside = np.zeros((n, np.count_nonzero(some))), np.cumsum(some) - 1, some[place]
        row = np.repeat(np.arange(n), np.diff(x.indptr))
        out[row[inside], which[place[inside]]] = x.data[inside]
        return out

    missing = np.isnan(x.data)
    data = np.where(missing, 0.0, x.data)
    count, gaps, squares = (np.bincount(place, each, len(seen)) for each in (data != 0.0, missing, data * data))
    count, known, squares = (each.astype(np.float64) for each in (count, n - gaps, squares))
    return seen.astype(np.int64), count, known, squares, columns


def robust_mean(values: Floats) -> tuple[Floats, Floats]:
    """Return the mean of each column of values (n, k), and the differences from it, 0 where a value is missing.

    Outliers are clipped. The mean of a column without any value is 0.
    """
    missing = np.isnan(values)
    if not missing.any():
        values = robust_cut(values)
        return (mean := values.mean(axis=0)), values - mean
    means, off = np.zeros(values.shape[1]), np.zeros(values.shape)
    for j in range(values.shape[1]):
        known = ~missing[:, j]
        if known.any():
            cut = robust_cut(values[known, j : j + 1])[:, 0]
            means[j] = cut.mean()
            off[known, j] = cut - means[j]
    return means, off


def robust_cut(values: Floats) -> Floats:
    """Return values (n, k) clipped at ten robust standard deviations from the column median, if there are 9 or more."""
    if len(values) < 9:
        return values
    median = np.median(values, axis=0)
    spread = 10.0 * 1.4826 * np.median(np.abs(values - median), axis=0)
    spread = np.where(spread > 0, spread, np.inf)  # a mostly constant column has no usable spread
    return np.clip(values, median - spread, median + spread)
