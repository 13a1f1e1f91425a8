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


class Intervals:
    """Quantiles of residuals, relative to predicted sizes of residuals."""

    def __init__(self, lower: Any, upper: Any, floor: float = -math.inf):
        self.lower, self.upper = dict(zip(LEVELS, lower)), dict(zip(LEVELS, upper))
        self.floor, self.rows, self.judged, self.weight = floor, 0, 0, 0.0
        self.residuals = self.recent = 0.0
        self.totals = Totals()

    def interval(self, predicted: float, size: float, level: float) -> tuple[float, float]:
        """Return the interval at a level of the grid."""
        middle = (self.lower[0.0] + self.upper[0.0]) / 2
        low = min([middle, *(self.lower[other] for other in LEVELS if other <= level)])
        high = max([middle, *(self.upper[other] for other in LEVELS if other <= level)])
        scale = self.scale(size)
        ends = (predicted + scale * (0.3 * math.sinh(end)) for end in (low, high))
        low, high = (max(end, self.floor) for end in ends)
        return low, high

    def scale(self, size: float) -> float:
        """Return the scale of a row."""
        return max(size, 0.1 * self.residuals / self.recent, 1e-300) if self.residuals > 0 else 1e-300

    def learn(self, y: float, predicted: float, size: float, weight: float) -> None:
        """Judge a row and learn it."""
        self.rows += 1
        self.weight += weight
        if self.rows == 1:
            return
        relative = min(weight / (self.weight / self.rows), 10.0)
        residual = abs(y - predicted)
        if self.recent > 0:
            self.judged += 1
            self.totals.weight += weight
            for level in JUDGED:
                low, high = self.interval(predicted, size, level)
                self.totals.covered[level] += weight * (low <= y <= high)
                self.totals.width[level] += weight * (high - low)
            score = math.asinh((y - predicted) / self.scale(size) / 0.3)
            for level in LEVELS:
                tail = (1 - level) / 2
                step = max(0.05, 0.05 * math.sqrt(0.1 / tail))
                step = relative * max(min(step, 0.2), 2 * (2 * tail) ** 0.25 / math.sqrt(self.judged))
                self.lower[level] -= step * ((score < self.lower[level]) - tail)
                self.upper[level] += step * ((score > self.upper[level]) - tail)
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
