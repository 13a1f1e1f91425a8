"""Slow, plain transcriptions of intervals and sets: one row and one level at a time."""

import math
from typing import Any

LEVELS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999]
JUDGED = [0.5, 0.8, 0.9, 0.95, 0.99]


class Totals:
    """Coverage and widths by level."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.covered = dict.fromkeys(JUDGED, 0.0)
        self.width = dict.fromkeys(JUDGED, 0.0)


class Side:
    """One end of the intervals: how far it is from the prediction, in units of the scale."""

    def __init__(self, threshold: Any):
        self.threshold = dict(zip(LEVELS, threshold))
        self.w, self.squares, self.mean = ({0.5: 0.0, 0.9: 0.0} for _ in range(3))  # of the quantiles of two levels

    def unusual(self, q: dict[float, float]) -> dict[float, float]:
        """Return what the quantiles of a row are beyond their mean, within limits."""
        return {level: min(max(q[level] - self.mean[level], -most), most) for level, most in ((0.5, 2.0), (0.9, 4.0))}

    def wanted(self, unusual: dict[float, float]) -> dict[float, float]:
        """Return the reach of each level before levels are ordered."""
        more = {level: self.w[level] * unusual[level] for level in unusual}
        outer = {level: min(max((level - 0.5) / 0.4, 0.0), 1.0) for level in LEVELS}
        return {k: self.threshold[k] + (1 - outer[k]) * more[0.5] + outer[k] * more[0.9] for k in LEVELS}

    def learn(
        self, off: float, relative: float, judged: int, wanted: Any, reach: Any, unusual: Any, q: dict[float, float]
    ) -> None:
        """Learn from a residual in the direction of this side."""
        before = dict(zip(LEVELS[1:], self.threshold.values()))
        for level in LEVELS:
            tail = (1 - level) / 2
            usual = min(max(0.05, 0.05 * math.sqrt(0.1 / tail)), 0.2)
            step = min(relative * max(usual, 2 * (2 * tail) ** 0.25 / math.sqrt(judged)), 1.0)
            moved = 0.3 * math.sinh(math.asinh(self.threshold[level] / 0.3) + step * ((off > reach[level]) - tail))
            self.threshold[level] = max(moved, before.get(level, math.inf) - 2) if level else moved
        for level in self.w:
            slope = ((off > wanted[level]) - (1 - level) / 2) * unusual[level]
            self.squares[level] += slope**2
            self.w[level] += 0.3 * relative * slope / math.sqrt(1 + self.squares[level])
            self.w[level] = min(max(self.w[level], 0.0), 1.0)
            self.mean[level] += min(relative / min(judged, 50), 1.0) * (q[level] - self.mean[level])


class Intervals:
    """Quantiles of residuals, relative to predicted sizes of residuals, and the quantiles of another model."""

    def __init__(self, lower: Any, upper: Any, floor: float = -math.inf):
        self.sides = Side(lower), Side(upper)
        self.floor, self.rows, self.judged, self.weight = floor, 0, 0, 0.0
        self.residuals = self.recent = 0.0
        self.totals = Totals()

    def scale(self, size: float) -> float:
        """Return the scale of a row."""
        return max(size, 0.1 * self.residuals / self.recent, 1e-300) if self.residuals > 0 else 1e-300

    def look(self, predicted: float, size: float, quantiles: list[float]) -> Any:
        """Return q, what is unusual in it, and the reaches before and after levels are ordered, of both sides."""
        apart, unusual, wanted = [], [], []
        for sign, side, ends in ((-1, self.sides[0], quantiles[1::-1]), (1, self.sides[1], quantiles[2:])):
            q = [sign * (end - predicted) / self.scale(size) for end in ends]
            apart.append(dict(zip((0.5, 0.9), [min(max(v, -20.0), 20.0) if math.isfinite(v) else 0.0 for v in q])))
            unusual.append(side.unusual(apart[-1]) if self.judged else dict.fromkeys((0.5, 0.9), 0.0))
            wanted.append(side.wanted(unusual[-1]))
        middle = (wanted[1][0.0] - wanted[0][0.0]) / 2
        reach = [
            {level: max([first, *(mine[other] for other in LEVELS if 0 < other <= level)]) for level in LEVELS}
            for mine, first in zip(wanted, (-middle, middle))
        ]
        return apart, unusual, wanted, reach

    def interval(self, predicted: float, size: float, quantiles: list[float], level: float) -> tuple[float, float]:
        """Return the interval at a level of the grid."""
        reach = self.look(predicted, size, quantiles)[3]
        low, high = predicted - self.scale(size) * reach[0][level], predicted + self.scale(size) * reach[1][level]
        return max(low, self.floor), max(high, self.floor)

    def learn(self, y: float, predicted: float, size: float, quantiles: list[float], weight: float) -> None:
        """Judge a row and learn it."""
        self.rows += 1
        self.weight += weight
        if self.rows == 1:
            return
        relative = min(weight / (self.weight / self.rows), 10.0)
        residual = abs(y - predicted)
        if self.recent > 0:
            self.totals.weight += weight
            for level in JUDGED:
                low, high = self.interval(predicted, size, quantiles, level)
                self.totals.covered[level] += weight * (low <= y <= high)
                self.totals.width[level] += weight * (high - low)
            apart, unusual, wanted, reach = self.look(predicted, size, quantiles)
            self.judged += 1
            for i, sign in enumerate((-1, 1)):
                off = sign * (y - predicted) / self.scale(size)
                self.sides[i].learn(off, relative, self.judged, wanted[i], reach[i], unusual[i], apart[i])
            low, high = (side.threshold for side in self.sides)
            high[0.0] = (high[0.0] - low[0.0]) / 2
            low[0.0] = -high[0.0]
            if self.residuals > 0:
                residual = min(residual, 8 * self.residuals / self.recent)
        self.residuals = 0.98 * self.residuals + relative * residual
        self.recent = 0.98 * self.recent + relative


class Sets:
    """Quantiles of 1 - p, where p is the probability of the label."""

    def __init__(self) -> None:
        self.threshold = {level: 0.5 if level > 0 else 0.0 for level in LEVELS}
        self.rows, self.weight, self.totals = 0, 0.0, Totals()

    def set_of(self, chances: list[float], level: float) -> set[int]:
        """Return the classes in the set at a level of the grid."""
        most = max(self.threshold[other] for other in LEVELS if other <= level)
        return {k for k, p in enumerate(chances) if 1 - p <= most} | {chances.index(max(chances))}

    def learn(self, label: int, chances: list[float], weight: float) -> None:
        """Judge a row and learn it."""
        self.rows += 1
        self.weight += weight
        self.totals.weight += weight
        for level in JUDGED:
            inside = self.set_of(chances, level)
            self.totals.covered[level] += weight * (label in inside)
            self.totals.width[level] += weight * len(inside)
        step = min(weight / (self.weight / self.rows), 10.0) * max(0.01, 0.3 / math.sqrt(self.rows))
        for level in LEVELS[1:]:
            miss = 1 - chances[label] > self.threshold[level]
            self.threshold[level] += step * (miss - (1 - level))
