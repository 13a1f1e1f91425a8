"""Learners of all kinds in a comparison: rows go in, and each is judged before it is learnt."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robustfd._compile import compile_seconds
from robustfd.comparison.problem import Problem, Rows
from robustfd.online import progress
from robustfd.online.progress import tally_judged

MOST_AT_ONCE = 128  # rows that are judged together where they cannot be judged one by one,
SHARE_AT_ONCE = 16  # and at most one in so many of those learnt before


class Runner(ABC):
    """A learner with one setting: its errors and its time so far, and whether it has diverged."""

    def __init__(self, problem: Problem):
        self.problem, self.seconds, self.diverged = problem, 0.0, False
        self._progress = progress.start()

    @abstractmethod
    def _learn(self, rows: Rows) -> None:
        """Judge and learn rows; raise OverflowError when numbers cease to be finite."""

    @abstractmethod
    def _predict(self, rows: Rows) -> Any:
        """Return what the model says of rows."""

    def learn(self, rows: Rows) -> None:
        """Judge and learn rows, unless it has diverged before."""
        if not self.diverged:
            began = time.perf_counter() - compile_seconds()
            with _quiet():
                try:
                    self._learn(rows)
                except OverflowError:
                    self.diverged = True
            self.seconds += time.perf_counter() - compile_seconds() - began

    def tally(self, said: Any, y: Any) -> None:
        """Count what was said of rows before they were learnt, up to the first that is no number."""
        errors = self.problem.error_of(said, y)
        fine = np.isfinite(said) & np.isfinite(errors)
        count = len(y) if fine.all() else int(np.argmin(fine))
        tally_judged(errors[:count], errors[:count], np.ones(count), self._progress)
        if count < len(y):
            raise OverflowError("Predictions are not finite.")

    def curve(self) -> tuple[Any, Any]:
        """Return numbers of rows, 1, 2, 4, ... and the last, and the progressive error after each."""
        table = progress.table(self._progress)
        return table["rows"], self.problem.mean_error(table["loss"])

    def progressive_error(self) -> float:
        """Return the error over all rows, each judged before it was learnt; infinite if it has diverged."""
        return float(np.inf if self.diverged else self.curve()[1][-1])

    def test_error(self, rows: Rows) -> float:
        """Return the error of the model as it is; infinite if it has diverged."""
        if self.diverged:
            return np.inf
        with _quiet():
            try:
                error = self.problem.mean_error(self.problem.error_of(self._predict(rows), rows.y).mean())
            except OverflowError:
                return np.inf
        return float(error) if np.isfinite(error) else np.inf


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing about numbers that are not finite: who has them has diverged, which is reported."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class Estimator(Runner):
    """An online estimator of this library, which judges for itself."""

    def __init__(self, problem: Problem, model: Any):
        super().__init__(problem)
        self.model = model

    def _learn(self, rows: Rows) -> None:
        more = {"classes": np.arange(self.problem.classes)} if self.problem.classes else {}
        self.model.partial_fit(self._taken(rows), rows.y, **more)

    def _predict(self, rows: Rows) -> Any:
        return self.model.predict(self._taken(rows))

    def _taken(self, rows: Rows) -> Any:
        return rows.X if self.model.__sklearn_tags__().input_tags.allow_nan else rows.filled

    def curve(self) -> tuple[Any, Any]:
        """Return numbers of rows and the progressive error after each."""
        table = self.model.progressive_
        return table["rows"], self.problem.mean_error(table["error" if self.problem.classes else "loss"])


class Linear(Runner):
    """Linear models, one an output, that learn the labels -1 and +1, or numbers, of rows times a factor."""

    def __init__(self, problem: Problem, make: Callable[[], Any], *, factor: float = 1.0, reach: float = np.inf):
        super().__init__(problem)
        self.models, self.factor, self.reach = [make() for _ in range(problem.outputs)], factor, reach

    def _learn(self, rows: Rows) -> None:
        y, x = rows.y, self._taken(rows)
        if self.problem.classes:
            y = np.where(y[:, None] == np.arange(self.problem.outputs) + (self.problem.outputs == 1), 1.0, -1.0)
        found = [judged(model, x, labels) for model, labels in zip(self.models, np.atleast_2d(y.T))]
        count = min(map(len, found))
        margins = np.column_stack([each[:count] for each in found])
        fine = np.isfinite(margins).all(axis=1)
        self.tally(np.where(fine, self._decide(margins), np.nan), rows.y[:count])
        if count < len(rows.y):
            raise OverflowError("Weights are not finite.")

    def _predict(self, rows: Rows) -> Any:
        x = self._taken(rows)
        return self._decide(np.column_stack([model.decision_function(x) for model in self.models]))

    def _taken(self, rows: Rows) -> Any:
        return rows.with_constant if self.factor == 1.0 else rows.with_constant * self.factor

    def _decide(self, margins: Any) -> Any:
        if not self.problem.classes:
            return margins[:, 0].clip(-self.reach, self.reach)
        return margins[:, 0] > 0 if self.problem.outputs == 1 else margins.argmax(axis=1)


def judged(model: Any, x: Any, labels: Any) -> Any:
    """Return the margins of rows before they were learnt, up to the row that makes the weights overflow."""
    try:
        return model.learn(x, labels)
    except OverflowError:  # none of them was learnt
        if len(labels) == 1:
            return np.empty(0)
        half = len(labels) // 2
        first = judged(model, x[:half], labels[:half])
        return first if len(first) < half else np.concatenate([first, judged(model, x[half:], labels[half:])])


class Batches(Runner):
    """A learner that does not tell what it thought of a row before: a few rows are judged, then they are learnt."""

    def __init__(self, problem: Problem, model: Any):
        super().__init__(problem)
        self.model, self.seen = model, 0

    def _learn(self, rows: Rows) -> None:
        more = {"classes": np.arange(self.problem.classes)} if self.problem.classes else {}
        start = 0
        while start < len(rows.y):
            count = max(1, min(MOST_AT_ONCE, self.seen // SHARE_AT_ONCE, len(rows.y) - start))
            x, y = rows.scaled[start : start + count], rows.y[start : start + count]
            self.tally(self.model.predict(x) if self.seen else np.zeros(count), y)
            try:
                self.model.partial_fit(x, y, **more)
            except ValueError as error:  # which is how scikit-learn says that weights overflowed
                raise OverflowError(str(error)) from error
            start, self.seen = start + count, self.seen + count

    def _predict(self, rows: Rows) -> Any:
        try:
            return self.model.predict(rows.scaled)
        except ValueError as error:
            raise OverflowError(str(error)) from error
