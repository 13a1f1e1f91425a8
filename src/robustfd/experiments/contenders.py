"""The learners that `robustfd compare` runs, the settings it tries, and one way to run all kinds of them."""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import robustfd
from robustfd.learners import progress
from robustfd.learners.progress import tally_judged

MOST_AT_ONCE = 128  # largest batch for learners that cannot report predictions row by row
SHARE_AT_ONCE = 16  # such a batch is at most 1/16 of the rows learned before
MOST_BYTES = 500_000_000  # a learner is left out if the models of all its settings take more memory
SKETCH_SIZE = 20

# ------------------------------------------------------------------ the problem and its rows


@dataclass(frozen=True)
class Problem:
    """A classification problem with labels 0, 1, ..., or a regression on standardised targets if classes is 0."""

    classes: int
    features: int
    reach: float = 1.0  # the largest absolute value among the first targets
    seed: int = 0

    @property
    def outputs(self) -> int:
        """The number of linear functions: one per class (one-vs-rest) for more than two classes, else 1."""
        return self.classes if self.classes > 2 else 1

    @property
    def fit_options(self) -> dict[str, Any]:
        """The labels, for `partial_fit` of classifiers."""
        return {"classes": np.arange(self.classes)} if self.classes else {}

    def error_of(self, predicted: Any, y: Any) -> Any:
        """Return the error of each row: 1 for a wrong class, or the squared residual."""
        return (predicted != y).astype(np.float64) if self.classes else np.square(predicted - y)

    def mean_error(self, total: Any) -> Any:
        """Return the error rate, or the root mean squared error, given the mean of `error_of`."""
        return total if self.classes else np.sqrt(total)


class Rows(NamedTuple):
    """Rows in several versions: raw, filled, scaled, and scaled with a constant feature of typical size."""

    X: Any
    filled: Any
    scaled: Any
    with_constant: Any
    y: Any


class Scaling:
    """Running scale of each column, for learners that need scaled features.

    Dense columns are standardised; sparse columns are divided by their largest absolute value. Missing values become
    the mean in dense rows and 0 in sparse rows. Then rows are divided by the typical norm of the first rows.
    """

    def __init__(self) -> None:
        self._scaler: Any = None
        self._norm = self._entry = 1.0  # root mean squares of the norms of rows and of their non-zero entries

    def update(self, X: Any) -> None:
        """Update the statistics of the columns with some rows. The first call fixes the typical norm."""
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        first = self._scaler is None
        if first:
            self._scaler = MaxAbsScaler() if sp.issparse(X) else StandardScaler()
        with np.errstate(all="ignore"):
            self._scaler.partial_fit(X)
        if first:
            scaled = self._scaled(self._filled(X))
            values = np.asarray(scaled.data if sp.issparse(X) else scaled, dtype=np.float64)
            if total := float(np.square(values).sum()):
                self._norm = float(np.sqrt(total / X.shape[0]))
                self._entry = float(np.sqrt(total / np.count_nonzero(values)))

    def rows(self, X: Any, y: Any) -> Rows:
        """Return rows X with targets y in all versions."""
        filled = self._filled(X)
        scaled = self._scaled(filled) / self._norm
        constant = np.full((X.shape[0], 1), self._entry / self._norm)
        if sp.issparse(X):
            with_constant = sp.hstack([scaled, sp.csr_array(constant)], format="csr")
        else:
            with_constant = np.hstack([scaled, constant])
        return Rows(X, filled, scaled, with_constant, y)

    def _filled(self, X: Any) -> Any:
        """Return rows with missing values filled in."""
        values = X.data if sp.issparse(X) else X
        if not (missing := np.isnan(values)).any():
            return X
        if sp.issparse(X):
            return type(X)((np.where(missing, 0.0, values), X.indices, X.indptr), shape=X.shape)
        return np.where(missing, np.nan_to_num(self._scaler.mean_), X)

    def _scaled(self, filled: Any) -> Any:
        with np.errstate(all="ignore"):
            return self._scaler.transform(filled)


# ------------------------------------------------------------------ runners: each row is predicted before it is learned


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

    def _tally(self, predicted: Any, y: Any) -> None:
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
        self.model.partial_fit(self._input(rows), rows.y, **self.problem.fit_options)

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
        found = [_learn_with_margins(model, x, labels) for model, labels in zip(self.models, np.atleast_2d(y.T))]
        count = min(map(len, found))
        margins = np.column_stack([each[:count] for each in found])
        fine = np.isfinite(margins).all(axis=1)
        self._tally(np.where(fine, self._decide(margins), np.nan), rows.y[:count])
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


def _learn_with_margins(model: Any, x: Any, labels: Any) -> Any:
    """Learn rows and return their margins before learning, up to the row that makes the weights overflow."""
    try:
        return model.learn(x, labels)
    except OverflowError:  # the call learned none of the rows
        if len(labels) == 1:
            return np.empty(0)
        half = len(labels) // 2
        first = _learn_with_margins(model, x[:half], labels[:half])
        if len(first) < half:
            return first
        return np.concatenate([first, _learn_with_margins(model, x[half:], labels[half:])])


class Batches(Runner):
    """A learner that does not report progressive predictions: small batches are predicted, then learned."""

    def __init__(self, problem: Problem, model: Any):
        super().__init__(problem)
        self.model, self.seen = model, 0

    def _learn(self, rows: Rows) -> None:
        start = 0
        while start < len(rows.y):
            count = max(1, min(MOST_AT_ONCE, self.seen // SHARE_AT_ONCE, len(rows.y) - start))
            x, y = rows.scaled[start : start + count], rows.y[start : start + count]
            self._tally(self.model.predict(x) if self.seen else np.zeros(count), y)
            try:
                self.model.partial_fit(x, y, **self.problem.fit_options)
            except ValueError as error:  # scikit-learn raises this if the weights overflow
                raise OverflowError(str(error)) from error
            start, self.seen = start + count, self.seen + count

    def _predict(self, rows: Rows) -> Any:
        try:
            return self.model.predict(rows.scaled)
        except ValueError as error:
            raise OverflowError(str(error)) from error


class Constant:
    """Constant prediction: the most frequent label so far, or the mean of the targets so far."""

    def __init__(self, classes: int) -> None:
        self.rows, self.total, self.counts = 0, 0.0, np.zeros(classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = ()) -> None:
        """Update the counts and the mean."""
        if len(classes):
            self.counts += np.bincount(y, minlength=len(classes))
        self.rows, self.total = self.rows + len(y), self.total + float(np.sum(y))

    def predict(self, X: Any) -> Any:
        """Return the same prediction for every row."""
        return np.full(X.shape[0], self.counts.argmax() if len(self.counts) else self.total / self.rows)


# ------------------------------------------------------------------ contenders


@dataclass(frozen=True)
class Contender:
    """A learner and the values of its setting to try, if it has a setting. `begin` makes a runner for a value."""

    name: str
    begin: Callable[[float], Runner]
    setting: str = ""
    values: tuple[float, ...] = (0.0,)
    default: float = 0.0
    width: int = 1  # numbers that the model stores per feature and output


def contenders(problem: Problem, *, quick: bool) -> tuple[list[Contender], dict[str, str]]:
    """Return the learners of a comparison, the main one first, and the reasons why others are left out.

    `quick` tries every second value, including the default.
    """
    chosen: list[Contender] = []
    out: dict[str, str] = {}
    for each in _everyone(problem):
        if quick:
            each = replace(each, values=each.values[each.values.index(each.default) % 2 :: 2])
        size = 8 * len(each.values) * each.width * problem.outputs * problem.features
        if chosen and size > MOST_BYTES:
            out[each.name] = f"its {len(each.values)} models would take {size / 1e6:,.0f} MB"
        else:
            chosen.append(each)
    return chosen, out


def _everyone(problem: Problem) -> list[Contender]:
    """Return the untuned learners as `robustfd train` creates them, a constant, and tuned ones with their best losses.

    The grids are centred on the defaults, for rows of norm 1.
    """
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    classes = bool(problem.classes)
    kind = "Classifier" if classes else "Regressor"
    plain: dict[str, Any] = {"loss": "logistic" if classes else "squared", "projection": None}
    same: dict[str, Any] = {"shuffle": False, "random_state": problem.seed}
    # Regression targets are bounded by twice the largest of the first targets; predictions are clipped to it, as in
    # RFDSONRegressor.
    bound, reach = (1.0, np.inf) if classes else (2 * problem.reach, 2 * problem.reach)

    def own(name: str) -> Contender:
        return Contender(name, lambda _: Estimator(problem, getattr(robustfd, name)()), width=SKETCH_SIZE)

    def fd_son(alpha0: float) -> Runner:
        make = partial(robustfd.OnlineNewton, "fd", SKETCH_SIZE, alpha0=alpha0, bound=bound)
        return Linear(problem, make, reach=reach)

    def adagrad(rate: float) -> Runner:  # without alpha0 its steps do not depend on the scale of rows
        return Linear(problem, partial(robustfd.AdaGrad, 0.0, **plain), factor=rate)

    def descent(rate: float) -> Runner:
        return Linear(problem, partial(robustfd.OnlineGradientDescent, "1/sqrt(t)", scale=rate, **plain))

    def scikit(value: float) -> Runner:
        if classes:
            return Batches(problem, SGDClassifier(loss="log_loss", alpha=value, **same))
        return Batches(problem, SGDRegressor(eta0=value, **same))

    constant = "most frequent label" if classes else "mean of labels"
    grid = ("alpha", _decades(-6, -2), 1e-4) if classes else ("eta0", _decades(-4, 0), 1e-2)
    return [
        own(f"SketchedNewton{kind}"),
        own(f"RFDSON{kind}"),
        Contender(constant, lambda _: Batches(problem, Constant(problem.classes)), width=0),
        Contender("FD-SON", fd_son, "alpha0", _decades(-2, 2), 1.0, width=SKETCH_SIZE),
        Contender("AdaGrad", adagrad, "rate", _decades(-2, 2), 1.0, width=2),
        Contender("gradient descent", descent, "rate", _decades(-1, 3) if classes else _decades(-2, 2), 1.0),
        Contender(f"SGD{kind}", scikit, *grid),
    ]


def _decades(first: int, last: int) -> tuple[float, ...]:
    return tuple(float(f"1e{k}") for k in range(first, last + 1))
