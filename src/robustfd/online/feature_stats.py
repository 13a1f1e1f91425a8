"""Statistics of each feature: how often it occurs, its centre, its scale and its curvature so far.

Feature 0 is the intercept; feature j of the rows is j + 1 here. A feature that is rarely zero in the first rows is
centred. A missing value, NaN, counts as the mean. The experts learn from scaled values: with z = x - centre for a
centred feature and z = x otherwise, they see zeta = z / S. With V the moving mean square of z and rho = count / rows
the density,

    S^2 = V for a centred feature, else g (V/g)^min(1, 2 rho), g the geometric mean of V over all non-zeros
    prior P = a0 for a centred feature, else a0 sqrt(max(rho, 1/64))

or, for regression, P = 16 a0 if not centred. S and P are updated when a feature has occurred 4, 16, 64, ... times, and
when V is more than 4 times larger or smaller than at the last update. If S^2 changes more than fourfold, the unit of
the feature has changed: its weights, which multiply zeta, stay. Otherwise the estimate of S has improved: the effect of
z stays, so the weights of zeta change. The centre moves to the mean of recent rows when S is updated and when that mean
is half a standard deviation away; the intercepts of the experts compensate for the move.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import entry, loops
from robustfd.online.rows import CsrRows

Floats = NDArray[np.float64]

RAREST = 1.0 / 64.0  # lower densities count as this
SPARSE = 16.0  # factor of the prior of a feature that is not centred, in regression
CENTRE = 0.75  # a feature that is non-zero in more than this share of the first rows is centred
ROUND_OFF = 1e-9  # largest relative difference between the values of a constant column and their mean
WINDOW = 1000.0  # rows over which the moving mean square and the moving mean average
MOVE = 0.5  # the centre moves when the mean over recent rows is this many standard deviations away
CUT = 4.0  # deviations above this many standard deviations are clipped before they update the mean
UNIT = 4.0  # a larger change of S^2 is a change of unit

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
    table, totals = aligned(d + 1, FEATURE), np.zeros(1, TOTALS)
    totals["prior"], totals["by_density"], totals["fade"] = prior, float(by_density), 1.0
    totals["norm"] = totals["length"] = totals["weight"] = 1.0
    table["inverse"][0], table["prior"][0] = 1.0, prior
    return Features(table, totals, np.zeros(0, np.int64), np.zeros((2, 0)))


def aligned(n: int, dtype: Any, width: int = 1) -> Any:
    """Return zeros of shape (n,), or (n, width), aligned to a cache line."""
    size = n * width * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    array = memory[begin : begin + size].view(dtype)
    return array if width == 1 else array.reshape(n, width)


def with_features(features: Features, d: int) -> Features:
    """Return the statistics of d features, of which the new ones have none yet."""
    table = aligned(d + 1, FEATURE)
    table[: len(features.table)] = features.table
    return features._replace(table=table)


def learn_first(features: Features, x: Any, n: int) -> Features:
    """Return the statistics of the first n rows x of the stream, sparse or dense.

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
    features = Features(table, totals, seen[chosen] + 1, np.vstack([mean, mean]))
    first_scales(features, seen + 1)
    return features


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


# ------------------------------------------------------------ compiled


@loops
def scale_square(row: Any, totals: Any) -> float:
    """Return S^2 of a feature from its statistics."""
    square = row["square"]
    if row["number"] > 0 or totals["log_weight"] <= 0 or square <= 0:
        return square
    power = 2.0 * row["count"] / max(totals["rows"], 1.0)
    if power >= 1.0:
        return square
    g = totals["logarithms"] / totals["log_weight"]
    return math.exp(g + power * (math.log(square) - g) if power > 0.0 else g)


@loops
def prior_of(row: Any, totals: Any) -> float:
    """Return P of a feature from its statistics."""
    if row["number"] > 0:
        return totals["prior"]
    if totals["by_density"] == 0.0:
        return SPARSE * totals["prior"]
    return totals["prior"] * math.sqrt(max(min(row["count"] / max(totals["rows"], 1.0), 1.0), RAREST))


@entry
@loops
def first_scales(features: Features, which: Any) -> None:
    """Set S and P of features from their statistics."""
    totals = features.totals[0]
    for k in range(len(which)):
        row = features.table[which[k]]
        if row["square"] > 0:
            row["inverse"] = 1.0 / math.sqrt(scale_square(row, totals))
            row["prior"] = prior_of(row, totals)
            row["reference"] = row["square"]


@loops
def init_feature(row: Any, totals: Any, square: float) -> None:
    """Initialize a feature from the square of its first value, which `totals` do not include yet."""
    row["square"] = row["reference"] = square
    row["count"] = 0.0
    row["inverse"] = 1.0 / math.sqrt(scale_square(row, totals))
    row["prior"] = prior_of(row, totals)


@loops
def record_value(features: Features, row: Any, x: float) -> bool:
    """Update the statistics of a known feature with a value; return whether its scale is due for an update."""
    row["count"] += 1.0
    count, square, number, off = row["count"], row["square"], row["number"], x
    part = 1.0 / min(count, WINDOW)
    if number > 0:
        mean = features.centre[1]
        off = x - mean[number - 1]
        far = off * off > CUT * CUT * square
        mean[number - 1] += part * (math.copysign(CUT * math.sqrt(square), off) if far else off)
    new = min(square + (off * off - square) * part, 2.0 * square)
    row["square"] = new
    return (is_regular(count) or new > UNIT * row["reference"] or UNIT * new < row["reference"]) and new > 0.0


@loops
def is_regular(count: float) -> bool:
    """Return whether a count is 4, 16, 64, ..."""
    whole = int(count)
    return whole & (whole - 1) == 0 and whole & 0x5555555555555554 != 0


@loops
def renew_scale(row: Any, totals: Any) -> float:
    """Update S and P; return the factor of the feature's weights, which is 1 if its unit has changed."""
    old, square = row["inverse"], scale_square(row, totals)
    row["reference"], row["prior"] = row["square"], prior_of(row, totals)
    row["inverse"] = 1.0 / math.sqrt(square)
    change = square * old * old
    if row["count"] > 4.0 and (change > UNIT or UNIT * change < 1.0):
        return 1.0
    row["slow"] /= change
    row["fast"] /= change
    return math.sqrt(change)
