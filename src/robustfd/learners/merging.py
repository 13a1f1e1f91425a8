"""Merging of learners that learned from different rows, and splitting of one learner into several."""

import copy
from collections.abc import Sequence
from typing import Any

from robustfd._guard import guarded_pair
from robustfd._jobs import seed_of_part
from robustfd._validation import check_integer, check_same_features, check_same_params
from robustfd.learners import progress


class MergingLearner:
    """The methods `merge`, `+` and `split` of a learner."""

    @guarded_pair
    def merge(self: Any, other: Any) -> Any:
        """Merge another learner into this one and return self.

        The weights are averaged, weighted by numbers of rows. The Hessians are added. The shrink rule of the sketch is
        applied to the sum.

        Parameters
        ----------
        other : learner
            A learner of the same class with the same parameters and features. It does not change.

        Returns
        -------
        self : learner
        """
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a {type(self).__name__} with a {type(other).__name__}.")
        mine, theirs = (each.get_params(deep=False) for each in (self, other))
        check_same_params("learners", {name: mine[name] for name in mine if name != "random_state"}, theirs)
        self._check_parameters()
        if not other.__sklearn_is_fitted__():
            return self
        if not self.__sklearn_is_fitted__():
            fitted = ("_state", "_progress", "_frozen", "_numbers", "n_features_in_", "feature_names_in_")
            self.__dict__.update({name: value for name, value in vars(other).items() if name in fitted})
            self._frozen = self._parameters()
            return self
        check_same_features("learners", self, other)
        if self._state.sparse != other._state.sparse:
            raise ValueError("Cannot merge a learner of dense rows with one of sparse rows.")
        vote = progress.vote([self.n_samples_seen_, other.n_samples_seen_])
        self._state = self._state.merged(other._state, vote)
        self._progress = progress.joined(self._progress, other._progress)
        return self

    def __add__(self, other: Any) -> Any:
        """Return a new learner that merges both."""
        if not isinstance(other, MergingLearner):
            return NotImplemented
        return copy.copy(self).merge(other)

    def split(self: Any, k: int) -> list[Any]:
        """Return k learners with the same weights, each with a k-th of the rows.

        Merging them restores this learner.

        Parameters
        ----------
        k : int
            Number of parts, at least 1.

        Returns
        -------
        parts : list of learners
        """
        return self._some_parts(check_integer("k", k, 1), range(k))

    def _some_parts(self: Any, k: int, which: Sequence[int]) -> list[Any]:
        """Return the learners of `split(k)` with these indices, without computing the others."""
        parts = [copy.copy(self) for _ in which]
        for i, part in zip(which, parts, strict=True):
            if self.__sklearn_is_fitted__():
                part._state = self._state.fraction(k, i)
                part._progress = progress.fraction(self._progress, k, i)
            elif hasattr(self, "random_state"):
                part.random_state = seed_of_part(self.random_state, i)
        return parts
