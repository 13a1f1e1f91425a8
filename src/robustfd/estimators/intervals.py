"""Intervals of regressors and sets of classifiers, whose coverage a tracker keeps at any level."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd._core import (
    FARTHEST,
    GRID_LEVELS,
    JUDGED_PLACES,
    QUANTILES,
    TRACE,
    interval_ends,
    track_labels,
    track_numbers,
)
from robustfd.estimators._rows import kind_of, single_row
from robustfd.estimators._targets import OnlineClassifier, OnlineRegressor
from robustfd.estimators._untuned import UntunedEstimator, size_check
from robustfd.learners import progress
from robustfd.learners.experts import NumberLoss
from robustfd.learners.rows import CsrRows, Floats
from robustfd.learners.snapshot import Parts
from robustfd.learners.untuned import UntunedState

LEVELS = np.array(GRID_LEVELS)
JUDGED = [GRID_LEVELS[place] for place in JUDGED_PLACES]  # levels whose coverage and width are recorded
SCALE = NumberLoss(counts=True, few=True)  # of the learner that predicts the sizes of residuals
ENDS = NumberLoss(levels=tuple(QUANTILES), few=True)  # of the learner that predicts quantiles
FEWEST = 100  # rows in a window of `coverage_`
# Quantiles (1 + level) / 2 of a normal variable of mean size 1, at the levels of the grid: the first thresholds.
NORMAL = np.array([
    0, 0.1575, 0.3175, 0.4829, 0.6572, 0.8453, 1.0548, 1.2990, 1.6062, 2.0615, 2.4565, 2.9156, 3.2283,
    3.5181, 3.8730, 4.1241,
])  # fmt: skip


class Tracker(NamedTuple):
    """Thresholds and records, as in src/core/tracker.hpp. Learning copies the arrays, except in `OneRow`."""

    thresholds: Floats  # (2, GRID) of lower and upper sides, or (1, GRID) of sets
    leans: Floats  # (4, 3), or (0, 3): weight, squares and usual value of each quantile, by side
    totals: Floats  # rows, weight, judged, residuals, recent, stride
    trace: Floats  # (TRACE, 1 + 2 JUDGED): weight, covered and width

    def copy(self) -> "Tracker":
        """Return an independent copy."""
        return Tracker(*(array.copy() for array in self))


def start(*, numbers: bool) -> Tracker:
    """Return the tracker of a regressor or a classifier before the first row."""
    thresholds = np.tile(NORMAL, (2, 1)) if numbers else np.where(LEVELS > 0, 0.5, 0.0)[None]
    leans = np.zeros((len(QUANTILES) if numbers else 0, 3))
    return Tracker(thresholds, leans, np.array([0.0, 0, 0, 0, 0, 1]), np.zeros((TRACE, 1 + 2 * len(JUDGED))))


def merged(one: Tracker, two: Tracker) -> Tracker:
    """Return the tracker of both streams of rows: means of thresholds, and of weights in leans; and sums."""
    vote = progress.vote([one.totals[2], two.totals[2]])
    thresholds = vote[0] * one.thresholds + vote[1] * two.thresholds
    leans = vote[0] * one.leans + vote[1] * two.leans
    leans[:, 1] = one.leans[:, 1] + two.leans[:, 1]
    totals = one.totals + two.totals
    return _with_trace(one._replace(thresholds=thresholds, leans=leans, totals=totals), [one, two])


def part_of(tracker: Tracker, k: int, i: int) -> Tracker:
    """Return the tracker of part i of k."""
    totals = tracker.totals / k
    totals[0] = (tracker.totals[0] + k - 1 - i) // k
    whole = _with_trace(tracker.copy()._replace(totals=totals), [tracker])
    whole.leans[:, 1] /= k
    return whole._replace(trace=whole.trace / k)


def _with_trace(whole: Tracker, trackers: list[Tracker]) -> Tracker:
    """Return a tracker whose trace is the sum of others, as if their rows had been interleaved evenly."""
    totals, rows = whole.totals, int(whole.totals[0])
    totals[-1] = 1 << max(-(-rows // TRACE) - 1, 0).bit_length()
    ends = np.minimum(np.arange(TRACE + 1) * totals[-1], rows)
    sums = np.zeros((TRACE + 1, whole.trace.shape[1]))
    for each in trackers:
        mine = np.minimum(np.arange(TRACE + 1) * each.totals[-1], each.totals[0])
        known = np.vstack([np.zeros(sums.shape[1]), np.cumsum(each.trace, axis=0)])
        at = ends * (each.totals[0] / max(rows, 1))
        sums += np.column_stack([np.interp(at, mine, column) for column in known.T])
    return whole._replace(trace=np.diff(sums, axis=0))


def check_levels(level: Any) -> tuple[Floats, bool]:
    """Return levels as an array, and whether a single one was given."""
    levels = np.asarray(level)
    if levels.dtype.kind not in "iuf" or levels.ndim > 1 or not levels.size:
        raise TypeError(f"level must be a number between 0 and 1, or several of them, got {level!r:.60}.")
    levels = levels.astype(np.float64)
    if (wrong := levels[~((levels > 0) & (levels < 1))]).size:
        raise ValueError(f"level must be between 0 and 1, both excluded, got {wrong[0]:g}.")
    return np.atleast_1d(levels), levels.ndim == 0


class Tracking(UntunedEstimator):
    """What intervals and sets share."""

    _readers = UntunedEstimator._readers | {
        "predict_interval", "predict_interval_one", "predict_set", "predict_set_one", "progressive_coverage_",
        "progressive_width_", "coverage_",
    }  # fmt: skip
    _tracker: Tracker

    def _begin(self, x: Any) -> None:
        super()._begin(x)
        if self.intervals:
            self._tracker = start(numbers=not self._has_classes)

    def _watching(self) -> tuple[Any, ...] | None:
        if not self._tracks():
            return None
        self._tracker = self._tracker.copy()  # the arrays change in place
        states = self._all_states()
        cores = (states[name].core if name in states else None for name in ("_scale", "_ends"))
        return *cores, self._tracker, self._floor()

    def _floor(self) -> float:
        """Return the least possible target."""
        return -np.inf

    def _tracks(self) -> bool:
        return hasattr(self, "_tracker")

    def _tracked(self) -> Tracker:
        """Return the tracker, or raise if the model has none."""
        self._require_intervals()
        return self._require_rows()._tracker

    def _require_intervals(self) -> None:
        if not self.intervals or (self.__sklearn_is_fitted__() and not self._tracks()):
            raise AttributeError(
                f"This {type(self).__name__} learned without intervals. Set intervals=True before fit."
            )

    @property
    def progressive_coverage_(self) -> dict[float, float]:
        """The share of rows so far that their interval or set covered, by level: 0.5, 0.8, 0.9, 0.95 and 0.99.

        Each interval is made before its row is learned. The first two rows of a regressor have none.
        """
        return self._means()[0]

    @property
    def progressive_width_(self) -> dict[float, float]:
        """The mean width of these intervals, or the mean number of classes in these sets, by level."""
        return self._means()[1]

    def _means(self) -> list[dict[float, float]]:
        sums = self._tracked().trace.sum(axis=0)
        means = sums[1:] / sums[0] if sums[0] > 0 else np.full(len(sums) - 1, np.nan)
        return [dict(zip(JUDGED, some.tolist(), strict=True)) for some in np.split(means, 2)]

    @property
    def coverage_(self) -> dict[str, NDArray[Any]]:
        """Coverage over time: arrays "level" (k,), "rows" (n,), "coverage" and "width" (n, k) of n windows of rows.

        "rows" are the ends of the windows, each of which has at least 100 rows, except the last.
        """
        tracker = self._tracked()
        rows, stride = int(tracker.totals[0]), int(tracker.totals[-1])
        ends = np.minimum(np.arange(1, -(-rows // stride) + 1) * stride, rows)
        group = -(-FEWEST // stride)
        ends = np.append(ends[group - 1 :: group], ends[len(ends) // group * group :][-1:])
        sums = np.add.reduceat(tracker.trace, np.arange(0, TRACE, group))[: len(ends)]
        known = sums[:, 0] > 0
        coverage, width = np.split(sums[known, 1:] / sums[known, :1], 2, axis=1)
        return {"level": np.array(JUDGED), "rows": ends[known], "coverage": coverage, "width": width}

    def plot_coverage(self, ax: Any = None) -> Any:
        """Plot `coverage_` with one line for each level, and return the axes."""
        return progress.plot_coverage(self.coverage_, ax)

    # -- merging and snapshots

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        parts = super()._split_states(k, which)
        if self._tracks():
            parts = [part | {"_tracker": part_of(self._tracker, k, i)} for i, part in zip(which, parts, strict=True)]
        return parts

    def _merge_states(self, other: Any) -> None:
        super()._merge_states(other)
        if self._tracks():
            self._tracker = merged(self._tracker, other._tracker)

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        (numbers, arrays), *others = super()._pack_states()
        own = {f"tracker.{name}": array for name, array in self._tracker._asdict().items()} if self._tracks() else {}
        return [(numbers, arrays | own), *others]

    def _unpack_states(self, states: list[Parts]) -> None:
        if self.intervals:
            fresh = start(numbers=not self._has_classes)
            arrays = {name: states[0].array(f"tracker.{name}", *like.shape) for name, like in fresh._asdict().items()}
            self._tracker = Tracker(**arrays)
            rows, *rest, stride = self._tracker.totals.tolist()
            whole = rows == int(rows) and stride >= 1 and stride == int(stride) and rows <= TRACE * stride
            if not whole or min(rows, *rest) < 0 or (self._tracker.trace[:, : 1 + len(JUDGED)] < 0).any():
                raise ValueError("the tracker is inconsistent")
            leans, far = self._tracker.leans, np.abs(self._tracker.thresholds) > FARTHEST
            if far.any() or (leans[:, :2] < 0).any() or (leans[:, 0] > 1).any():
                raise ValueError("a threshold or a weight is out of range")
        super()._unpack_states(states)


class IntervalRegressor(OnlineRegressor, Tracking):
    """Intervals of a regressor. A second learner predicts the sizes of residuals, and a third one quantiles."""

    _scale: UntunedState
    _ends: UntunedState
    loss: str

    def _begin(self, x: Any) -> None:
        super()._begin(x)
        if self.intervals:
            d, share = x.shape[1], getattr(self, "_share", 1.0)
            self._scale = UntunedState(d, 1, share=share, sketch=0, loss=SCALE)
            self._ends = UntunedState(d, len(QUANTILES), share=share, sketch=0, loss=ENDS, few=True)

    def _all_states(self) -> dict[str, UntunedState]:
        own = {"_scale": self._scale, "_ends": self._ends} if self._tracks() else {}
        return super()._all_states() | own

    def _floor(self) -> float:
        return 0.0 if self.loss == "poisson" else -np.inf

    def _learn_part(self, x: Any, codes: Any, y: Any, weight: Floats, margins: Floats, *, new: bool) -> None:
        if not new or not self._tracks():
            return super()._learn_part(x, codes, y, weight, margins, new=new)
        # The ends that are tracked are those that `predict_interval` would have returned before each row.
        readings, sizes, ends = np.empty_like(margins), np.zeros((len(y), 1)), np.empty((len(y), len(QUANTILES)))
        self._learn_some(x, codes, y, weight, margins, new=True, readings=readings)
        self._ends.learn(x, y, weight, np.empty_like(ends), ends)
        tracker, predicted = self._tracker.copy(), np.ascontiguousarray(readings[:, 0])
        if first := int(tracker.totals[0] == 0):  # nothing predicted the first row
            x = x.take(np.arange(len(y)) > 0) if isinstance(x, CsrRows) else x[1:]
        with np.errstate(over="ignore"):
            rest = np.abs(y - predicted)[first:], weight[first:]
            self._scale.learn(x, *rest, np.empty((len(y) - first, 1)), sizes[first:])
        y, weight = np.ascontiguousarray(y, np.float64), np.ascontiguousarray(weight)
        track_numbers(y, predicted, np.ascontiguousarray(sizes[:, 0]), ends, weight, self._floor(), tracker)
        self._tracker = tracker

    def _unpack_states(self, states: list[Parts]) -> None:
        super()._unpack_states(states[:1] if self.intervals else states)
        if self.intervals:
            if len(states) != 3:
                raise ValueError(f"{len(states)} states")
            self._scale = UntunedState.unpack(states[1], size_check(self), sketch=0, loss=SCALE)
            self._ends = UntunedState.unpack(
                states[2], size_check(self, outputs=len(QUANTILES)), sketch=0, loss=ENDS, few=True
            )

    def predict_interval(self, X: Any, level: Any = 0.9) -> Floats:
        """Return an interval for the target of each row.

        Of the rows that follow, about the share `level` is in its interval, whatever the stream does. Intervals of
        higher levels contain those of lower ones. The model needs `intervals=True`. Until it has learned two rows,
        intervals are infinite.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, d)
            The rows.
        level : float or sequence of k floats, default=0.9
            The share of targets to cover, between 0 and 1, or several of them.

        Returns
        -------
        array of shape (n, 2) or (n, 2, k)
            The low and the high ends, for each level if several were given.
        """
        levels, single = check_levels(level)
        self._tracked()
        found = self._intervals(self._checked(X), levels)
        return found[:, :, 0] if single else found

    def predict_interval_one(self, x: Any, level: Any = 0.9) -> Any:
        """Return the interval (low, high) of one row in any format of `learn_one`.

        For several levels, return a list of them. Before the first rows they are infinite.
        """
        levels, single = check_levels(level)
        self._require_intervals()
        if not self.__sklearn_is_fitted__():
            found = np.tile([[-np.inf], [np.inf]], len(levels))
        else:
            found = self._intervals(single_row(self, x, kind_of(self, x), known_only=True)[0], levels)[0]
        ends = [(low, high) for low, high in found.T.tolist()]
        return ends[0] if single else ends

    def _intervals(self, x: Any, levels: Floats) -> Floats:
        found = np.empty((x.shape[0], 2, len(levels)))
        if self._tracker.totals[4] == 0:  # no residual is known
            found[:, 0], found[:, 1] = -np.inf, np.inf
            return found
        margins = self._finite_margins(x), self._margins_of(self._scale, x)
        centre, sizes = (np.ascontiguousarray(each[:, 0]) for each in margins)
        ends = self._margins_of(self._ends, x)
        interval_ends(centre, sizes, ends, levels, self._floor(), self._tracker, found.ravel())
        return found


class SetClassifier(OnlineClassifier, Tracking):
    """Sets of a classifier."""

    def _track_labels(self, chances: Floats, y: Any, weight: Floats) -> None:
        """Learn from the probabilities (n, classes) that rows had before they were learned."""
        if self._tracks():
            tracker = self._tracker.copy()
            track_labels(np.ascontiguousarray(y, np.int64), np.ascontiguousarray(chances), weight, tracker)
            self._tracker = tracker

    def predict_set(self, X: Any, level: Any = 0.9) -> NDArray[np.bool_]:
        """Return which classes are in the set of each row.

        Of the rows that follow, at least about the share `level` has its label in its set, whatever the stream does.
        A set always has the most probable class, so a model that is right more often covers more. Sets of higher levels
        contain those of lower ones. The model needs `intervals=True`.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, d)
            The rows.
        level : float or sequence of k floats, default=0.9
            The share of labels to cover, between 0 and 1, or several of them.

        Returns
        -------
        array of shape (n, classes) or (n, classes, k)
            Whether each class is in the set, in the order of `classes_`, for each level if several were given.
        """
        levels, single = check_levels(level)
        self._tracked()
        found = self._sets(self.predict_proba(X), levels)
        return found[:, :, 0] if single else found

    def predict_set_one(self, x: Any, level: Any = 0.9) -> Any:
        """Return the set of one row in any format of `learn_one`: a list of labels, the most probable first.

        For several levels, return a list of lists. It is empty before the first row.
        """
        levels, single = check_levels(level)
        self._require_intervals()
        chances = self.predict_proba_one(x)
        labels, values = list(chances), np.array([list(chances.values())])
        order = np.argsort(-values[0], kind="stable").tolist()
        inside = self._sets(values, levels)[0] if labels else np.zeros((0, len(levels)), bool)
        found = [[labels[k] for k in order if inside[k, j]] for j in range(len(levels))]
        return found[0] if single else found

    def _sets(self, chances: Floats, levels: Floats) -> NDArray[np.bool_]:
        known = np.maximum.accumulate(self._tracker.thresholds[0])
        at = np.interp(levels, np.append(LEVELS, 1.0), np.append(known, max(known[-1], 1.0)))
        inside = 1.0 - chances[:, :, None] <= at
        inside[np.arange(len(chances)), chances.argmax(axis=1)] = True
        return np.asarray(inside)
