"""What both engines do: a model for every partition, and a tree of merges. All of it is pure functions of a plan.

A task that is lost or run again makes the same model of the same rows once more, and its result takes the place of the
first one. So no row counts twice.
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
from robustfd.sketch.interface import BaseSketch

FAN_IN = 8  # models that one task merges, unless it is said


class Plan:
    """How an estimator learns k partitions: what each begins with, and who merges what.

    Nodes of the tree are counted from the left in every level. Level 0 has a node for each partition, and node j of the
    next level merges nodes j f, ..., j f + f - 1 of the one below, f being `fan_in`.
    """

    def __init__(self, estimator: Any, partitions: int, *, fan_in: int = FAN_IN, anew: bool = True):
        check_estimator(estimator)
        self.partitions = check_integer("partitions", partitions, 1)
        self.fan_in = check_integer("fan_in", fan_in, 2)
        self.before = None if anew or not estimator.__sklearn_is_fitted__() else copy.copy(estimator)
        self._splits = hasattr(estimator, "split")
        if self._splits and self.before is not None:
            self._begin = self.before
        else:
            self._begin = clone(estimator)
        if self._splits and self.before is None:
            self._begin = self._begin._some_parts(self.partitions, [0])[0]  # all are the same
        self._seed: int | None = None
        if isinstance(estimator, BaseSketch) and hasattr(estimator, "random_state"):
            self._seed = _seed_of(estimator.random_state)

    @property
    def levels(self) -> list[int]:
        """The numbers of nodes, from the partitions to the root."""
        sizes = [self.partitions]
        while sizes[-1] > 1:
            sizes.append(math.ceil(sizes[-1] / self.fan_in))
        return sizes

    def part(self, i: int) -> Any:
        """Return the model that partition i begins with."""
        if self._splits and self.before is not None:
            return self._begin._some_parts(self.partitions, [i])[0]
        model = copy.copy(self._begin)
        if self._seed is not None:  # random numbers of its own
            model.random_state = seed_of_part(self._seed, i)
        return model

    def learn(self, i: int, blocks: Iterable[tuple[Any, Any, Any]], classes: Any = None) -> Any:
        """Return the model of partition i after its blocks of rows, targets and weights, in this order.

        Without any row it is a model that has seen none, which is neutral in merges.
        """
        model = self.part(i)
        more = {} if classes is None else {"classes": classes}
        for x, y, weight in blocks:
            if weight is not None:  # zeros are left out here: the first rows need one that counts
                weight = np.asarray(weight)
                _check_lengths(x, y, weight)
                live = weight != 0
                x, y, weight = x[live], None if y is None else np.asarray(y)[live], weight[live]
            if x.shape[0]:
                model.partial_fit(x, y, sample_weight=weight, **more)
        return model

    def merge(self, level: int, node: int, models: Mapping[int, Any]) -> Any:
        """Return the model of a node above the partitions, of those below it by their numbers.

        One that is not there has seen no rows. With a fan-in of 2, 4, 8, ... the tree is that of `robustfd.merge`.
        """
        below = range(node * self.fan_in, min((node + 1) * self.fan_in, self.levels[level - 1]))
        return merge([models[j] if j in models else self._nothing(level - 1, j) for j in below])

    def _nothing(self, level: int, node: int) -> Any:
        """Return the model of a node whose partitions have no rows."""
        span = self.fan_in**level
        first, last = node * span, min((node + 1) * span, self.partitions)
        parts = range(first, last) if self._splits else range(first, first + 1)
        return merge([self.part(i) for i in parts])

    def finish(self, model: Any) -> Any:
        """Return the model of the root as the user gets it."""
        if not model.__sklearn_is_fitted__():
            raise ValueError(f"There are no rows to learn: all {self.partitions} partitions are empty.")
        model = copy.copy(model)
        if self._seed is not None:
            model.random_state = self._begin.random_state
        if self.before is not None and not self._splits:
            model = copy.copy(self.before).merge(model)
        return model


def check_estimator(estimator: Any) -> None:
    """Raise unless the estimator can learn partitions that are merged."""
    if isinstance(estimator, type):
        raise TypeError(f"estimator must be an object, got the class {estimator.__name__}: call it first.")
    for name in ("partial_fit", "merge", "to_bytes", "__sklearn_is_fitted__"):
        if not hasattr(estimator, name):
            raise TypeError(
                f"estimator must be a sketch or an estimator of robustfd that has {name}, got {estimator!r:.100}."
            )
    if isinstance(estimator, SlidingFrequentDirections) or getattr(estimator, "window", None) is not None:
        raise ValueError(f"A window needs all rows in their order, and partitions have none: {estimator!r}.")


def check_targets(estimator: Any, y: Any, classes: Any) -> None:
    """Raise unless this is an estimator that has the targets it needs, and classes only if it is a classifier."""
    check_estimator(estimator)
    tags = estimator.__sklearn_tags__()
    if tags.target_tags.required and y is None:
        raise ValueError(f"{type(estimator).__name__} needs targets, got none.")
    if classes is not None and not is_classifier(estimator):
        raise ValueError(f"classes are for classifiers, and {type(estimator).__name__} is none.")


def as_sketch(kind: Any) -> BaseSketch:
    """Return a sketch: a number is the size of one of robust frequent directions."""
    if isinstance(kind, BaseSketch):
        return kind
    return RobustFrequentDirections(check_integer("sketch", kind, 2))


def known_classes(estimator: Any, classes: Any, *, anew: bool) -> Any:
    """Return the classes if they are given or were learnt before."""
    if classes is None and not anew and hasattr(estimator, "classes_"):
        return estimator.classes_
    return None if classes is None else np.unique(np.asarray(classes))


def output_of(model: Any, method: str) -> Any:
    """Return what a method of a fitted model gives for one row of zeros: how wide it is, and its type."""
    if not hasattr(model, method):
        raise TypeError(f"{type(model).__name__} has no {method}.")
    if not model.__sklearn_is_fitted__():
        raise ValueError(f"This {type(model).__name__} has seen no rows yet: fit it first.")
    row: Any = np.zeros((1, model.n_features_in_))
    if hasattr(model, "feature_names_in_"):
        import pandas as pd

        row = pd.DataFrame(row, columns=model.feature_names_in_)
    return np.asarray(getattr(model, method)(row))


def _check_lengths(x: Any, y: Any, weight: Any) -> None:
    for name, value in (("y", y), ("sample_weight", weight)):
        if value is not None and len(value) != x.shape[0]:
            raise ValueError(f"{name} has {len(value)} rows in a partition where X has {x.shape[0]}.")


def _seed_of(random_state: Any) -> int:
    """Return a whole number for a seed, drawn now if there is none, so that a task that is run again does the same."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    random = np.random.RandomState() if random_state is None else check_random_state(copy.deepcopy(random_state))
    return int(random.randint(2**31))
