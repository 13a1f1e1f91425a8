"""Merging and splitting of online estimators."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from robustfd._guard import guarded_pair
from robustfd._validation import check_integer, check_same_features, check_same_params
from robustfd.learners import progress


class MergingEstimator:
    """Mixin with `merge`, `+` and `split`. Merging builds a new state and never changes arrays in place."""

    _free_to_differ: ClassVar[tuple[str, ...]] = ("shuffle", "epochs", "random_state")  # they affect only row order
    _learned: ClassVar[tuple[str, ...]]
    _kind: str
    _progress: Any
    n_features_in_: int

    @abstractmethod
    def _merge_states(self: Any, other: Any) -> None:
        """Merge the state of another model into this one without changing arrays in place."""

    @abstractmethod
    def _split_states(self: Any, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        """Return the attributes, by name, of the parts `which` out of k parts."""

    def _add_prior_share(self: Any, share: float) -> None:
        """Add the share of the prior that a part without rows has."""

    @guarded_pair
    def merge(self: Any, other: Any) -> Any:
        """Merge another model into this one, as if this model had also learned the other's rows.

        Both models must have the same parameters, features and classes. Use `split` to create the models. Give all
        classes to `partial_fit`, because one part may not contain every class. Merging with a model that has seen no
        rows changes nothing.

        Parameters
        ----------
        other : estimator of the same class
            It is not changed.

        Returns
        -------
        self
            The merged estimator.
        """
        self._check_mergeable(other)
        after = self._shallow_copy()  # an error leaves self unchanged
        if not other.__sklearn_is_fitted__():
            after._add_prior_share(getattr(other, "_share", 0.0))
        elif not self.__sklearn_is_fitted__():
            mine = {name: value for name, value in vars(other).items() if name.endswith("_") or name in self._learned}
            after.__dict__.update(mine)
            after._seen_parameters = after._parameters()
            after._add_prior_share(getattr(self, "_share", 0.0))
        else:
            after._merge_states(other)
            after._progress = progress.joined(self._progress, other._progress)
        if hasattr(self, "_share"):
            after._share = min(self._share + getattr(other, "_share", 0.0), 1.0)
        self.__dict__ = after.__dict__
        return self

    def __add__(self, other: Any) -> Any:
        """Return a new model that merges both."""
        if not isinstance(other, MergingEstimator):
            return NotImplemented
        return copy.copy(self).merge(other)

    def split(self: Any, k: int) -> list[Any]:
        """Split the model into k models to train in parallel and merge.

        Each part has the same weights as this model and a k-th of its row count and of its prior. Train each part on a
        random subset of the next rows, then merge the parts. Merging the parts without training gives this model back.
        A model that has seen no rows can also be split: each part starts with its share of the prior.
        (`sklearn.base.clone` drops the share.)

        Parameters
        ----------
        k : int
            Number of parts, at least 1.

        Returns
        -------
        list of k models
            The parts.
        """
        return self._some_parts(check_integer("k", k, 1), range(k))

    def _some_parts(self: Any, k: int, which: Sequence[int]) -> list[Any]:
        """Return the models of `split(k)` with the indices `which`, without computing the others."""
        parts = [copy.copy(self) for _ in which]
        if not self.__sklearn_is_fitted__():
            self._check_parameters()
            for part in parts:
                part._share = getattr(self, "_share", 1.0) / k
            return parts
        self._working_copy(reset=False)  # raises if parameters were changed
        for i, part, states in zip(which, parts, self._split_states(k, which), strict=True):
            part.__dict__.update(states)
            part._progress = progress.fraction(self._progress, k, i)
            part._share = getattr(self, "_share", 1.0) / k
        return parts

    def _check_mergeable(self: Any, other: Any) -> None:
        """Raise if the other model cannot be merged with this one."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a {type(self).__name__} with a {type(other).__name__}.")
        mine, theirs = self._parameters(), other._parameters()
        check_same_params("models", {name: mine[name] for name in mine if name not in self._free_to_differ}, theirs)
        for each in (self, other):
            each._working_copy(reset=not each.__sklearn_is_fitted__())  # raises if parameters are invalid or changed
        if not (self.__sklearn_is_fitted__() and other.__sklearn_is_fitted__()):
            return
        if self._kind != other._kind:
            raise ValueError(
                f"Cannot merge a model that was started with {self._kind} with one started with {other._kind}."
            )
        if hasattr(self, "classes_") and not np.array_equal(self.classes_, other.classes_):
            raise ValueError(
                f"Cannot merge models of different classes: {self.classes_} here, {other.classes_} there. "
                "Give all classes to the first call of partial_fit of both."
            )
        if self._kind == "rows":
            check_same_features("models", self, other)
        layouts = [getattr(getattr(each, "_encoder", None), "layout", None) for each in (self, other)]
        if layouts[0] != layouts[1]:
            raise ValueError(
                "Cannot merge models of tables whose columns were encoded differently. "
                "Fit one model to some rows of the table and split it."
            )
