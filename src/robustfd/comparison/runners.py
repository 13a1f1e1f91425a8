"""Adapters that run all kinds of learners in a comparison. Each row is predicted before it is learned."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robustfd.comparison.problem import Problem, Rows
from robustfd.learners import progress
from robustfd.learners.progress import tally_judged

MOST_AT_ONCE = 128  # largest batch for learners that cannot report predictions row by row
SHARE_AT_ONCE = 16  # such a batch is at most 1/16 of the rows learned before


class Runner(ABC):
    """A learner with one setting. It records errors, training time and whether the learner has diverged."""

    def __init__(self, problem: Problem):
        self.problem, self.seconds, self.diverged = problem, 0.0, False
        self._progress = progress.start()

    @abstractmethod
    def _learn(self, rows: Rows) -> None:
        """Predict and learn rows. Raise OverflowError if predictions or weights are not finite."""

    @abstractmethod
    def _predict(self, rows: Rows) -> Any:
        """Return the predictions for rows."""

    def learn(self, rows: Rows) -> None:
        """Predict and learn rows, unless the learner has already diverged."""
        if not self.diverged:
            began = time.perf_counter()
            with _quiet():
                try:
                    self._learn(rows)
                except OverflowError:
                    self.diverged = True
            self.seconds += time.perf_counter() - began

    def tally(self, predicted: Any, y: Any) -> None:
        """Record predictions made before rows were learned, up to the first that is not finite."""
        errors = self.problem.error_of(predicted, y)
        fine = np.isfinite(predicted) & np.isfinite(errors)
        count = len(y) if fine.all() else int(np.argmin(fine))
        tally_judged(errors[:count], errors[:count], np.ones(count), self._progress)
        if count < len(y):
            raise OverflowError("Predictions are not finite.")

    def curve(self) -> tuple[Any, Any]:
        """Return row counts 1, 2, 4, ... and the last, and the progressive error after each."""
        table = progress.table(self._progress)
        return table["rows"], self.problem.mean_error(table["loss"])

    def progressive_error(self) -> float:
        """Return the progressive error over all rows, or infinity if the learner has diverged."""
        return float(np.inf if self.diverged else self.curve()[1][-1])

    def test_error(self, rows: Rows) -> float:
        """Return the test error of the current model, or infinity if the learner has diverged."""
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
    """Suppress warnings about non-finite numbers. Divergence is reported separately."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class Estimator(Runner):
    """An online estimator of this library, which records its own progressive error."""

    def __init__(self, problem: Problem, model: Any):
        super().__init__(problem)
        self.model = model

    def _learn(self, rows: Rows) -> None:
        more = {"classes": np.arange(self.problem.classes)} if self.problem.classes else {}
        self.model.partial_fit(self._input(rows), rows.y, **more)

    def _predict(self, rows: Rows) -> Any:
        return self.model.predict(self._input(rows))

    def _input(self, rows: Rows) -> Any:
        return rows.X if self.model.__sklearn_tags__().input_tags.allow_nan else rows.filled

    def curve(self) -> tuple[Any, Any]:
        """Return row counts and the progressive error after each."""
        table = self.model.progressive_
        return table["rows"], self.problem.mean_error(table["error" if self.problem.classes else "loss"])


class Linear(Runner):
    """One linear model per output, trained on labels -1 and +1 or on numbers. Rows are multiplied by a factor."""

    def __init__(self, problem: Problem, make: Callable[[], Any], *, factor: float = 1.0, reach: float = np.inf):
        super().__init__(problem)
        self.models, self.factor, self.reach = [make() for _ in range(problem.outputs)], factor, reach

    def _learn(self, rows: Rows) -> None:
        y, x = rows.y, self._input(rows)
        if self.problem.classes:
            y = np.where(y[:, None] == np.arange(self.problem.outputs) + (self.problem.outputs == 1), 1.0, -1.0)
        found = [learn_with_margins(model, x, labels) for model, labels in zip(self.models, np.atleast_2d(y.T))]
        count = min(map(len, found))
        margins = np.column_stack([each[:count] for each in found])
        fine = np.isfinite(margins).all(axis=1)
        self.tally(np.where(fine, self._decide(margins), np.nan), rows.y[:count])
        if count < len(rows.y):
            raise OverflowError("Weights are not finite.")

    def _predict(self, rows: Rows) -> Any:
        x = self._input(rows)
        return self._decide(np.column_stack([model.decision_function(x) for model in self.models]))

    def _input(self, rows: Rows) -> Any:
        return rows.with_constant if self.factor == 1.0 else rows.with_constant * self.factor

    def _decide(self, margins: Any) -> Any:
        if not self.problem.classes:
            return margins[:, 0].clip(-self.reach, self.reach)
        return margins[:, 0] > 0 if self.problem.outputs == 1 else margins.argmax(axis=1)


def learn_with_margins(model: Any, x: Any, labels: Any) -> Any:
    """Learn rows and return their margins before learning, up to the row that makes the weights overflow."""
    try:
        return model.learn(x, labels)
    except OverflowError:  # the call learned none of the rows
        if len(labels) == 1:
            return np.empty(0)
        half = len(labels) // 2
        first = learn_with_margins(model, x[:half], labels[:half])
        return (
            first if len(first) < half else np.concatenate([first, learn_with_margins(model, x[half:], labels[half:])])
        )


class Batches(Runner):
    """A learner that does not report progressive predictions: small batches are predicted, then learned."""

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
            except ValueError as error:  # scikit-learn raises this if the weights overflow
                raise OverflowError(str(error)) from error
            start, self.seen = start + count, self.seen + count

    def _predict(self, rows: Rows) -> Any:
        try:
            return self.model.predict(rows.scaled)
        except ValueError as error:
            raise OverflowError(str(error)) from error
