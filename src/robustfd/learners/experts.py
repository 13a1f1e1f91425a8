"""The arrays of the untuned learner as views of the core: features, mixture and Hessians before and at the first rows.

src/core/experts.hpp has the algorithm. D is d + 1, with the intercept as feature 0, and L the number of experts of a
memory.
"""

import math
from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import CENTRE_ROWS, FOLLOW_SHARE, LARGEST_TARGET, OFFERED, ROUND_OFF, WINDOWS, Untuned
from robustfd.learners import line
from robustfd.learners.rows import CsrRows, Floats

CENTRE = 0.75  # a feature that is non-zero in more than this share of the first rows is centred

# Learning rates of the experts, and whether they are linear: first the slow experts, then the fast ones.
RATES = np.array([[0.25, 1, 4, 16, 64, 256, 1, 16], [0.25, 1, 4, 16, 1, 4, 16, 64]])
LINEAR = np.array([[0.0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]])
SOON = 384  # the age of mean shares when new experts join them: they follow within a few rows
FEW = [1, 2, 4, 6]  # with more than two classes, only one expert of each pair is used to save time
RATES_OF_NUMBERS = 4.0 ** np.array([np.arange(-2, 6), np.arange(-3, 5)])
FEW_OF_NUMBERS = [3, 4, 5, 6]  # the same with several quantiles
RATES_OF_SIZES = 4.0 ** np.array([[-2, 0, 1, 3], [-2, -1, 1, 3]])

# The records of the core, whose fields src/core/experts.hpp explains: Feature, Totals and Targets.
FEATURE = np.dtype(
    [
        ("count", "f8"), ("square", "f8"), ("reference", "f8"), ("inverse", "f8"), ("prior", "f8"),
        ("slow", "f8"), ("fast", "f8"), ("number", "i8"),
    ]
)  # fmt: skip
TOTALS = np.dtype(
    [
        ("rows", "f8"), ("fade", "f8"), ("logarithms", "f8"), ("log_weight", "f8"), ("length", "f8"),
        ("norm", "f8"), ("weight", "f8"), ("prior", "f8"), ("by_density", "f8"), ("bet_squares", "f8"),
        ("bet_rows", "f8"),
    ]
)  # fmt: skip
TARGETS = np.dtype(
    [
        ("numbers", "i8"), ("spread", "f8"), ("spread_weight", "f8"), ("huber", "f8"), ("offset", "f8"),
        ("unit", "f8"), ("low", "f8"), ("high", "f8"), ("loss", "f8"), ("plain_loss", "f8"), ("stride", "i8"),
        ("counts", "i8"), ("turn", "i8"), ("turns", "i8"), ("age", "f8"), ("lead", "f8"),
    ]
)  # fmt: skip
RECORDS = {"table": FEATURE, "totals": TOTALS, "targets": TARGETS}


class NumberLoss(NamedTuple):
    """The loss of regression."""

    huber: float = 8.0  # the loss is linear for residuals above this many root mean squares
    levels: tuple[float, ...] = ()  # levels of the quantiles to predict, ascending
    counts: bool = False  # Poisson loss with a logarithmic link
    few: bool = False  # saves time: half as many experts, or less frequent updates of shares of several quantiles


# Groups of arrays, as in src/core/experts.hpp, which has their shapes and meanings. Those of a Hessian that is not in
# use are empty.
Features = namedtuple("Features", "table totals centred centre")
Mixture = namedtuple("Mixture", "rate linear fast share steady plain earned follow trace targets level")
Exact = namedtuple("Exact", "ladder inverse past block weights")
LowRank = namedtuple("LowRank", "u diagonal weights along sketch lam buffer filled")


class Experts(NamedTuple):
    """Views of all arrays."""

    features: Features
    mix: Mixture
    weights: NDArray[np.float32]  # of the diagonal experts
    bets: NDArray[np.float32]  # of bettors and experts with a flat prior (learners/line.py)
    exact: Exact
    low_rank: LowRank


GROUPS: dict[str, Any] = {"features": Features, "mix": Mixture, "exact": Exact, "low_rank": LowRank}
RENAMED = {("exact", "weights"): "exact_weights", ("low_rank", "weights"): "low_weights"}  # names in the core
NAMES = {group: [RENAMED.get((group, field), field) for field in kind._fields] for group, kind in GROUPS.items()}
FEATURE_AXES = {"u": 0, "diagonal": 0, "weights": 0, "sketch": 1, "buffer": 1}  # of the arrays of LowRank


def experts_of(core: Untuned) -> Experts:
    """Return views of the arrays of the core."""
    arrays = core.arrays()
    for name, record in RECORDS.items():
        arrays[name] = arrays[name].view(record)[:, 0]
    groups = {group: GROUPS[group](*(arrays[name] for name in names)) for group, names in NAMES.items()}
    return Experts(weights=arrays["weights"], bets=arrays["bets"], **groups)


def changed_arrays(old: Experts | None, new: Experts) -> dict[str, Any]:
    """Return the arrays of `new` that are not the same objects as those of `old`, by their names in the core.

    The shape of an array stands for `zeros`.
    """
    before = {} if old is None else _by_name(old)
    return {
        name: _plain(array, array.dtype.itemsize // 8 if name in RECORDS else 0)
        for name, array in _by_name(new).items()
        if before.get(name) is not array
    }


def _plain(array: Any, fields: int) -> Any:
    """Return an array, whose records have so many fields, as numbers in rows; or its shape if it is `zeros`."""
    if array.size and not any(array.strides):
        return (*array.shape, fields) if fields else array.shape
    array = np.ascontiguousarray(array)
    return array.view(np.float64).reshape(len(array), -1) if fields else array


def zeros(shape: Any, dtype: Any) -> Any:
    """Return an array of zeros that cannot be written to and takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def _by_name(e: Experts) -> dict[str, Any]:
    groups = (zip(names, getattr(e, group), strict=True) for group, names in NAMES.items())
    return {"weights": e.weights, "bets": e.bets} | {name: array for group in groups for name, array in group}


# -- before the first row


def padded(n: int) -> int:
    """Return n rounded up to a whole number of vectors."""
    return -(-n // 8) * 8


def start_experts(
    features: Features, outputs: int, loss: NumberLoss | None, weights: Any = None, bets: Any = None,
    *, few: bool = False,
) -> Experts:  # fmt: skip
    """Return new experts for these features; `weights` and `bets` are zeros to reuse if they have the right shape.

    If `few`, there are no bettors and no flat priors.
    """
    rates, linear, more = RATES, LINEAR, line.settings(outputs, loss)[:, : 0 if few else None]
    if loss is not None:
        rates = RATES_OF_NUMBERS if outputs == 1 else RATES_OF_NUMBERS[:, FEW_OF_NUMBERS]
        rates = RATES_OF_SIZES if loss.few and outputs == 1 else rates
        linear = np.ones_like(rates)
    elif outputs > 1:
        rates, linear = RATES[:, FEW], LINEAR[:, FEW]
    count = rates.shape[1]
    shape = len(features.table), 2 * padded(outputs * count)
    if weights is None or weights.shape != shape:
        weights = zeros(shape, np.float32)
    if bets is None or bets.shape != line.shape_of(shape[0], outputs, more.shape[1]):
        bets = zeros(line.shape_of(shape[0], outputs, more.shape[1]), np.float32)
    better = start_exact(0, (), 0, outputs * count), start_low_rank(0, 0, outputs * count)
    return Experts(features, _start_mixture(outputs, rates, linear, more, loss), weights, bets, *better)


def start_features(d: int, prior: float, *, by_density: bool) -> Features:
    """Return the statistics of d features before the first row. Those of single features are `zeros`."""
    totals = np.zeros(1, TOTALS)
    totals["prior"], totals["by_density"], totals["fade"] = prior, float(by_density), 1.0
    totals["norm"] = totals["length"] = totals["weight"] = 1.0
    return Features(zeros(d + 1, FEATURE), totals, np.zeros(0, np.int64), np.zeros((CENTRE_ROWS, 0)))


def _start_mixture(outputs: int, rates: Floats, linear: Floats, more: Floats, loss: NumberLoss | None) -> Mixture:
    """Return the mixture of plain experts.

    Rates (2, L) and linear (2, L) are those of slow and of fast experts, and `more` has both for `line.py`.
    """
    n, targets, level = rates.size, np.zeros(1, TARGETS), np.zeros(outputs)
    share = np.tile(line.even_shares(n, more.shape[1]), (outputs, 1))
    targets["turns"] = 1
    if loss is not None:
        targets["numbers"] = True
        targets["huber"], targets["counts"] = loss.huber, loss.counts
        level[:] = loss.levels or 0.0
        if outputs > 1:
            targets["turns"] = outputs if loss.few else 2
    targets["low"], targets["high"] = LARGEST_TARGET, -LARGEST_TARGET
    targets["stride"], targets["unit"] = 1, 1.0
    return Mixture(
        rate=np.append(rates, more[0]),
        linear=np.append(linear, more[1]),
        fast=np.repeat([0.0, 1.0, 0.0], [n // 2, n // 2, more.shape[1]]),
        share=share,
        steady=share.copy(),
        plain=share.copy(),
        earned=np.zeros(share.shape[1]),
        follow=np.tile(np.array([np.zeros(4), FOLLOW_SHARE]), (outputs, 1, 1)),
        trace=np.zeros(WINDOWS),
        targets=targets,
        level=level,
    )


def with_better(mix: Mixture, rungs: Sequence[int]) -> Mixture:
    """Return the mixture with experts of a better Hessian; `rungs` is the memory of each of its rungs, 0 or 1.

    The new experts copy the settings of the diagonal experts of these memories, and together start with the share
    OFFERED. They replace earlier experts with a better Hessian. The mean shares follow new experts soon.
    """
    n = mix.plain.shape[1]
    count = int(mix.fast[:n].sum())  # L
    some = [memory * count + k for memory in rungs for k in range(count)]
    better = np.full((len(mix.share), len(some)), OFFERED / max(len(some), 1))
    settings = {name: getattr(mix, name)[[*range(n), *some]] for name in Mixture._fields[:3]}
    steady, targets = mix.steady[:, :n], mix.targets.copy()
    each = mix.plain, steady / steady.sum(axis=1, keepdims=True)
    share, steady = (np.column_stack([(1.0 - OFFERED if some else 1.0) * part, better]) for part in each)
    targets["age"] = np.minimum(targets["age"], SOON if some else np.inf)
    return mix._replace(**settings, share=share, steady=steady, earned=np.zeros(share.shape[1]), targets=targets)


def start_exact(size: int, ladder: Sequence[float], memories: int, lanes: int) -> Exact:
    """Return the Hessian of D = size features with `lanes` weights a rung; without rungs it is not in use."""
    rungs = len(ladder)
    size = size if rungs else 0
    return Exact(
        ladder=np.array(ladder, np.float64),
        inverse=np.zeros((rungs, size, padded(size))),
        past=np.zeros((memories, size, size)),
        block=np.zeros((size, padded(size))),
        weights=np.zeros((size, rungs * lanes)),
    )


def memories_of(exact: Exact) -> list[int]:
    """Return the memory of each rung, 0 or 1."""
    fast = max(len(exact.past) - 1, 0)
    return [0] * (len(exact.ladder) - fast) + [1] * fast


def rungs_of(form: str, exact: Exact) -> list[int]:
    """Return the memory of each rung of a better Hessian; a sketch has one rung, of the slow memory."""
    return [0] if form == "sketch" else memories_of(exact)


def slow_rungs(exact: Exact) -> list[float]:
    """Return the factors of the prior of the rungs with the slow memory, in order."""
    return [float(f) for f, memory in zip(exact.ladder, memories_of(exact)) if memory == 0]


def with_rungs(e: Experts, slow: Sequence[float], *, fast: bool) -> Experts:
    """Return the experts with these rungs of the slow memory, and of the fast one if `fast`.

    A rung that is new has the weights of the rung with the nearest prior, and a share of 0.
    """
    mix, exact, known = e.mix, e.exact, np.array(slow_rungs(e.exact))
    near = [int(np.argmin(np.abs(np.log(known / f)))) for f in slow]
    chosen = [*near, len(known)] if fast else near
    new = [*(float(known[k]) != f for k, f in zip(near, slow, strict=True)), *([False] if fast else [])]
    n = mix.plain.shape[1]
    count = int(mix.fast[:n].sum())
    which = [*range(n), *(n + rung * count + k for rung in chosen for k in range(count))]
    settings = {name: getattr(mix, name)[which] for name in (*Mixture._fields[:3], "earned")}
    old = np.append(np.ones(n), np.repeat(np.where(new, 0.0, 1.0), count))
    for name in ("share", "steady"):
        share = getattr(mix, name)[:, which] * old
        settings[name] = share / share.sum(axis=1, keepdims=True)
    mix = mix._replace(**settings)
    weights = exact.weights.reshape(len(exact.weights), len(exact.ladder), -1)[:, chosen]
    exact = exact._replace(
        ladder=np.array([*slow, *([1.0] if fast else [])]),
        inverse=exact.inverse[chosen],
        past=exact.past[: 1 + fast],
        weights=weights.reshape(len(weights), -1),
    )
    return e._replace(mix=mix, exact=exact)


def start_low_rank(size: int, m: int, lanes: int) -> LowRank:
    """Return the Hessian of D = size features with `lanes` weights; m = 0 means that it is not in use."""
    size, rows = size if m else 0, max(m - 1, 0)
    return LowRank(
        u=np.zeros((size, rows)),
        diagonal=np.zeros(size),
        weights=np.zeros((size, lanes if m else 0)),
        along=np.zeros((rows, lanes)),
        sketch=np.zeros((rows, size)),
        lam=np.zeros(rows),
        buffer=np.zeros((2 * m, size)),
        filled=np.zeros(1, np.int64),
    )


# -- other numbers of features


def without_padding(exact: Exact) -> Exact:
    """Return views of the arrays without their additional columns."""
    size = len(exact.block)
    return exact._replace(inverse=exact.inverse[..., :size], block=exact.block[:, :size])


def spread(array: Any, at: NDArray[Any], size: int, axis: int = 0) -> Any:
    """Return an array of `size` features in which feature j of `array` becomes feature at[j]; the others are 0."""
    before: tuple[Any, ...] = (slice(None),) * axis
    new = np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    new[(*before, at)] = array[(*before, slice(len(at)))]
    return new


def with_features_at(e: Experts, at: NDArray[np.int64], size: int) -> Experts:
    """Return the experts of `size` features in which feature j becomes feature at[j]; the others have not occurred."""
    features = e.features._replace(table=spread(e.features.table, at, size), centred=at[e.features.centred])
    exact, low = e.exact, e.low_rank
    if len(exact.block):
        old, n = without_padding(exact), len(at)
        pairs, lanes = (at[:, None], at), old.weights.shape[1] // len(old.ladder)
        exact = start_exact(size, old.ladder, len(old.past), lanes)
        exact.inverse[:, np.arange(size), np.arange(size)] = 1.0
        exact.past[:, *pairs], exact.inverse[:, *pairs] = old.past[:, :n, :n], old.inverse[:, :n, :n]
        exact.block[pairs] = np.where(_above(n), old.block[:n, :n].T, old.block[:n, :n])  # symmetric
        exact.weights[at] = old.weights[:n]
    if len(low.diagonal):
        low = low._replace(**{name: spread(getattr(low, name), at, size, axis) for name, axis in FEATURE_AXES.items()})
    bets = spread(e.bets, at, size) if len(e.bets) else e.bets
    return Experts(features, e.mix, spread(e.weights, at, size), bets, exact, low)


@lru_cache(maxsize=4)
def _above(size: int) -> NDArray[np.bool_]:
    """Return a mask of the entries above the diagonal of a square matrix."""
    return ~np.tri(size, dtype=bool)


# -- the first rows


def learn_first(features: Features, x: Any, n: int) -> tuple[Features, NDArray[np.int64]]:
    """Return the statistics of the first n rows x of the stream, without scales and priors, and their features.

    The rows are sparse or dense. The values of centred features are clipped at ten robust standard deviations from the
    median. Missing values (NaN) are ignored.
    """
    table, totals = features.table, features.totals.copy()
    seen, count, known, square, columns = _columns_of(x, n)
    chosen = (count > CENTRE * known) & (n > 1)
    mean, off = _robust_mean(np.ascontiguousarray(columns(chosen)))  # numpy's sums depend on the memory order
    off[np.abs(off) <= ROUND_OFF * np.abs(mean)] = 0.0
    square = np.divide(square, count, out=np.zeros(len(seen)), where=count > 0)
    square[chosen] = np.square(off).sum(axis=0) / np.maximum(known[chosen] - 1, 1)
    rows = np.zeros(len(seen), FEATURE)
    rows["count"], rows["square"] = np.where(chosen, known, count), square
    rows["number"][chosen] = np.arange(1, np.count_nonzero(chosen) + 1)
    np.put(table, seen + 1, rows)  # faster than an index
    table[0] = np.zeros(1, FEATURE)[0]
    table["inverse"][0], table["prior"][0], table["count"][0] = 1.0, totals["prior"][0], n
    rest = ~chosen & (square > 0)
    totals["rows"], totals["fade"] = n, 1.0
    totals["bet_squares"] = totals["bet_rows"] = 0.0
    totals["logarithms"], totals["log_weight"] = count[rest] @ np.log(square[rest]), count[rest].sum()
    entries = rows["count"].sum()
    totals["length"] = totals["norm"] = math.sqrt(n / entries) if entries > 0 else 1.0
    centre = np.zeros((CENTRE_ROWS, len(mean)))
    centre[:3] = mean  # also the last value
    return Features(table, totals, seen[chosen] + 1, centre), seen + 1


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
    sums: Any = (np.bincount(place, each, len(seen)) for each in (data != 0.0, missing, data * data))
    count, gaps, squares = sums
    return seen.astype(np.int64), count, n - gaps, squares, columns


def _robust_mean(values: Floats) -> tuple[Floats, Floats]:
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
