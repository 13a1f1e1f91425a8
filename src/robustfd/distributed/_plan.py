"""Plan of a distributed fit, shared by Dask and Spark: one model per partition and a tree of merges.

Tasks are pure functions of the plan. A task that runs again computes the same model from the same rows and replaces the
first result, so no row counts twice.
"""

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from robustfd._jobs import seed_of_part
from robustfd._validation import check_integer
from robustfd.sketch import RobustFrequentDirections, SlidingFrequentDirections, merge
from robustfd.sketch.base import BaseSketch

FAN_IN = 8  # default number of models that one task merges


class Plan:
    """Plan for learning k partitions: the initial model of each, and the tree of merges.

    Nodes are numbered from the left in each level. Level 0 has one node per partition. Node j of the next level merges
    nodes j f, ..., j f + f - 1 of the level below, where f is `fan_in`.
    """

    def __init__(self, estimator: Any, partitions: int, *, fan_in: int = FAN_IN, reset: bool = True):
        check_estimator(estimator)
        self.partitions = check_integer("partitions", partitions, 1)
        self.fan_in = check_integer("fan_in", fan_in, 2)
        self.before = None if reset or not estimator.__sklearn_is_fitted__() else copy.copy(estimator)
        self._splits = hasattr(estimator, "split")
        self._begin = self.before if self._splits and self.before is not None else clone(estimator)
        if self._splits and self.before is None:
            self._begin = self._begin._some_parts(self.partitions, [0])[0]  # all parts are equal
        self._seed: int | None = None
        if is_bandit(self._begin):
            self._begin._prepare()  # one seed for all partitions, also if tasks run again
        if isinstance(estimator, BaseSketch) and hasattr(estimator, "random_state"):
            self._seed = _seed_of(estimator.random_state)

    @property
    def levels(self) -> list[int]:
        """The number of nodes in each level, from the partitions to the root."""
        sizes = [self.partitions]
        while sizes[-1] > 1:
            sizes.append(math.ceil(sizes[-1] / self.fan_in))
        return sizes

    def part(self, i: int) -> Any:
        """Return the initial model of partition i."""
        if self._splits and self.before is not None:
            return self._begin._some_parts(self.partitions, [i])[0]
        model = copy.copy(self._begin)
        if self._seed is not None:  # each partition needs its own random numbers
            model.random_state = seed_of_part(self._seed, i)
        return model

    def learn(self, i: int, blocks: Iterable[tuple[Any, ...]], classes: Any = None) -> Any:
        """Return the model of partition i after learning its blocks (rows, targets, weights) in order.

        Those of bandits go on with arms and probabilities, and rewards are the targets. Without rows, the result is
        an unfitted model, which does not change the result of a merge.
        """
        model = self.part(i)
        more = {} if classes is None else {"classes": classes}
        for x, y, weight, *decisions in blocks:
            arms, probabilities = decisions or (None, None)
            if arms is not None:
                for name, values in (("y", y), ("arms", arms)):
                    if len(values) != x.shape[0]:
                        raise ValueError(f"{name} has {len(values)} rows in a partition where X has {x.shape[0]}.")
                if x.shape[0]:
                    model.partial_fit(x, arms, y, probabilities)
                continue
            if weight is not None:  # drop zero weights here, because the first rows need a positive weight
                weight = np.asarray(weight)
                for name, values in (("y", y), ("sample_weight", weight)):
                    if values is not None and len(values) != x.shape[0]:
                        raise ValueError(f"{name} has {len(values)} rows in a partition where X has {x.shape[0]}.")
                live = weight != 0
                x, y, weight = x[live], None if y is None else np.asarray(y)[live], weight[live]
            if x.shape[0]:
                model.partial_fit(x, y, sample_weight=weight, **more)
        return model

    def merge(self, level: int, node: int, models: Mapping[int, Any]) -> Any:
        """Merge the models below a node, given by node number.

        A missing model has seen no rows. With a fan-in of 2, 4, 8, ... the tree is that of `robustfd.merge`.
        """
        below = range(node * self.fan_in, min((node + 1) * self.fan_in, self.levels[level - 1]))
        return merge([models[j] if j in models else self._nothing(level - 1, j) for j in below])

    def _nothing(self, level: int, node: int) -> Any:
        """Return the model of a node whose partitions are all empty."""
        span = self.fan_in**level
        first, last = node * span, min((node + 1) * span, self.partitions)
        parts = range(first, last) if self._splits else range(first, first + 1)
        return merge([self.part(i) for i in parts])

    def finish(self, model: Any) -> Any:
        """Return the final model for the user, given the model of the root."""
        if not model.__sklearn_is_fitted__():
            raise ValueError(f"X must have at least one row: all {self.partitions} partitions are empty.")
        model = copy.copy(model)
        if self._seed is not None:
            model.random_state = self._begin.random_state
        if self.before is not None and not self._splits:
            model = copy.copy(self.before).merge(model)
        return model


def check_estimator(estimator: Any) -> None:
    """Raise if the estimator cannot be merged and so cannot learn partitions."""
    if isinstance(estimator, type):
        raise TypeError(f"estimator must be an instance, got the class {estimator.__name__}. Call it first.")
    for name in ("partial_fit", "merge", "to_bytes", "__sklearn_is_fitted__"):
        if not hasattr(estimator, name):
            raise TypeError(
                f"estimator must be a sketch or an estimator of robustfd that has {name}, got {estimator!r:.100}."
            )
    if isinstance(estimator, SlidingFrequentDirections) or getattr(estimator, "window", None) is not None:
        raise ValueError(f"estimator must not have a window, because partitions have no order, got {estimator!r}.")


def is_bandit(estimator: Any) -> bool:
    """Return whether this is a `ContextualBandit`."""
    return hasattr(estimator, "arms_")


def check_targets(estimator: Any, y: Any, classes: Any, arms: Any = None, weight: Any = None) -> None:
    """Raise if the estimator lacks targets that it needs, or if others are given than it has."""
    check_estimator(estimator)
    if is_bandit(estimator) != (arms is not None):
        needs = "needs arms, got none" if arms is None else "has no arms; arms must be None"
        raise ValueError(f"{type(estimator).__name__} {needs}.")
    if is_bandit(estimator) and weight is not None:
        raise ValueError(f"{type(estimator).__name__} has no weights; give none.")
    tags = estimator.__sklearn_tags__()
    if tags.target_tags.required and y is None:
        raise ValueError(f"{type(estimator).__name__} needs targets, got none.")
    if classes is not None and not is_classifier(estimator):
        raise ValueError(f"classes must be None for {type(estimator).__name__}, which is not a classifier.")


def as_sketch(kind: Any) -> BaseSketch:
    """Return a sketch. A number is the size of a `RobustFrequentDirections`."""
    if isinstance(kind, BaseSketch):
        return kind
    return RobustFrequentDirections(check_integer("sketch", kind, 2))


def known_classes(estimator: Any, classes: Any, *, reset: bool) -> Any:
    """Return the classes if they are given or already learned, else None."""
    if classes is None and not reset and hasattr(estimator, "classes_"):
        return estimator.classes_
    return None if classes is None else np.unique(np.asarray(classes))


def known_columns(model: Any) -> list[str] | None:
    """Return the names of the columns that a model has learned, or None if it has learned none by name."""
    if hasattr(model, "_encoder"):
        return list(model._encoder.column_names)
    return list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None


def output_of(model: Any, method: str) -> Any:
    """Return the output of a method for one row of zeros, to find its width and dtype."""
    if not hasattr(model, method):
        raise TypeError(f"{type(model).__name__} has no {method}.")
    if not model.__sklearn_is_fitted__():
        raise ValueError(f"This {type(model).__name__} has seen no rows yet. Fit it first.")
    row: Any = [[None] * model.n_features_in_] if hasattr(model, "_encoder") else np.zeros((1, model.n_features_in_))
    if hasattr(model, "feature_names_in_"):
        import pandas as pd

        row = pd.DataFrame(row, columns=model.feature_names_in_)
    return np.asarray(getattr(model, method)(row))


def _seed_of(random_state: Any) -> int:
    """Return an integer seed. Without one, draw it now, so that tasks that run again give the same result."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    random = np.random.RandomState() if random_state is None else check_random_state(copy.deepcopy(random_state))
    return int(random.randint(2**31))
