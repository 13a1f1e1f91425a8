"""The learners that `robustfd compare` runs and the settings that it tries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import robustfd
from robustfd.comparison.problem import Problem
from robustfd.comparison.runners import Batches, Estimator, Linear, Runner

MOST_BYTES = 500_000_000  # a learner is left out if the models of all its settings take more memory
SKETCH_SIZE = 20


@dataclass(frozen=True)
class Contender:
    """A learner and the values of its setting to try, if it has a setting."""

    name: str
    begin: Callable[[Problem, float], Runner]
    setting: str = ""
    values: tuple[float, ...] = (0.0,)
    default: float = 0.0
    width: int = 1  # numbers that the model stores per feature and output

    @property
    def quick(self) -> "Contender":
        """The same learner with every second value, including the default."""
        return replace(self, values=self.values[self.values.index(self.default) % 2 :: 2])

    def bytes_for(self, problem: Problem) -> int:
        """Return the approximate memory of the models."""
        return 8 * len(self.values) * self.width * problem.outputs * problem.features


def contenders(problem: Problem, *, quick: bool) -> tuple[list[Contender], dict[str, str]]:
    """Return the learners of a comparison, the main one first, and the reasons why others are left out."""
    everyone = [*_untuned(problem), *_tuned(problem)]
    if quick:
        everyone = [each.quick for each in everyone]
    out = {
        each.name: f"its {len(each.values)} models would take {each.bytes_for(problem) / 1e6:,.0f} MB"
        for each in everyone[1:]
        if each.bytes_for(problem) > MOST_BYTES
    }
    return [each for each in everyone if each.name not in out], out


def _untuned(problem: Problem) -> list[Contender]:
    """Return the learners of this library as `robustfd train` creates them, and the constant prediction."""

    def own(kind: str) -> Contender:
        name = f"{kind}{'Classifier' if problem.classes else 'Regressor'}"
        return Contender(name, lambda p, _: Estimator(p, getattr(robustfd, name)()), width=SKETCH_SIZE)

    constant = "most frequent label" if problem.classes else "mean of labels"
    return [
        own("SketchedNewton"), own("RFDSON"),
        Contender(constant, lambda p, _: Batches(p, Constant()), width=0),
    ]  # fmt: skip


def _tuned(problem: Problem) -> list[Contender]:
    """Return the other learners with their best losses. The grids are centred on the defaults, for rows of norm 1."""
    scikit = "SGDClassifier" if problem.classes else "SGDRegressor"
    grid = ("alpha", _decades(-6, -2), 1e-4) if problem.classes else ("eta0", _decades(-4, 0), 1e-2)
    rates = _decades(-1, 3) if problem.classes else _decades(-2, 2)
    return [
        Contender("FD-SON", _fd_son, "alpha0", _decades(-2, 2), 1.0, width=SKETCH_SIZE),
        Contender("AdaGrad", _adagrad, "rate", _decades(-2, 2), 1.0, width=2),
        Contender("gradient descent", _descent, "rate", rates, 1.0),
        Contender(scikit, _stochastic, *grid),
    ]


def _decades(first: int, last: int) -> tuple[float, ...]:
    return tuple(float(f"1e{k}") for k in range(first, last + 1))


def _fd_son(problem: Problem, alpha0: float) -> Runner:
    """Return the paper's FD-SON. Regression targets are bounded by twice the largest of the first targets."""
    bound = 1.0 if problem.classes else 2 * problem.reach
    reach = float("inf") if problem.classes else bound  # predictions are clipped to it, as in RFDSONRegressor
    return Linear(problem, lambda: robustfd.OnlineNewton("fd", SKETCH_SIZE, alpha0=alpha0, bound=bound), reach=reach)


def _adagrad(problem: Problem, rate: float) -> Runner:
    """Return AdaGrad. Without alpha0 its steps do not depend on the scale of rows, so rate c means rows times c."""
    return Linear(problem, lambda: robustfd.AdaGrad(0.0, **_plain(problem)), factor=rate)


def _descent(problem: Problem, rate: float) -> Runner:
    """Return gradient descent with a learning rate proportional to 1/sqrt(t)."""
    return Linear(problem, lambda: robustfd.OnlineGradientDescent("1/sqrt(t)", scale=rate, **_plain(problem)))


def _plain(problem: Problem) -> dict[str, Any]:
    """Return the usual options of first-order methods: logistic loss for classes, and no projection."""
    return {"loss": "logistic" if problem.classes else "squared", "projection": None}


def _stochastic(problem: Problem, value: float) -> Runner:
    """Return scikit-learn's stochastic gradient descent without shuffling."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    same: dict[str, Any] = {"shuffle": False, "random_state": problem.seed}
    if problem.classes:
        return Batches(problem, SGDClassifier(loss="log_loss", alpha=value, **same))
    return Batches(problem, SGDRegressor(eta0=value, **same))


class Constant:
    """Constant prediction: the most frequent label so far, or the mean of the targets so far."""

    def __init__(self) -> None:
        self.rows, self.total = 0, 0.0
        self.counts: Any = None

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "Constant":
        """Update the counts or the mean."""
        if classes is not None:
            new = np.bincount(y, minlength=len(classes))
            self.counts = new if self.counts is None else self.counts + new
        self.rows, self.total = self.rows + len(y), self.total + float(np.sum(y))
        return self

    def predict(self, X: Any) -> Any:
        """Return the same prediction for every row."""
        return np.full(X.shape[0], self.total / self.rows if self.counts is None else self.counts.argmax())
