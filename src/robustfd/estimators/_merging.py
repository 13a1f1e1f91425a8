"""Online estimators that merge: models of parts of the rows become one, and one becomes several."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from robustfd._guard import guarded_pair
from robustfd._validation import check_integer, check_same_features, check_same_params
from robustfd.online import progress


class MergingEstimator:
    """`merge`, `+` and `split` of an online estimator. A model that is merged is not changed in place, but replaced."""

    _free_to_differ: ClassVar[tuple[str, ...]] = ("shuffle", "epochs", "random_state")  # how rows come
    _learnt: ClassVar[tuple[str, ...]]
    _kind: str
    _progress: Any
    n_features_in_: int

    @abstractmethod
    def _merge_states(self: Any, other: Any) -> None:
        """Take in what another model, with as many features, has learnt, without changing arrays in place."""

    @abstractmethod
    def _split_states(self: Any, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        """Return the states of some of k parts, by the names of attributes."""

    def _take_share(self: Any, share: float) -> None:
        """Take over the share of the prior of a part that has seen no rows."""

    @guarded_pair
    def merge(self: Any, other: Any) -> Any:
        """Take in all that another model has learnt, as if its rows had come here; return self.

        Models that are to be merged are best begun by `split`. Both have the same parameters, features and classes:
        give all classes to `partial_fit`, since one model may not see rows of each. A model that has seen no rows is
        neutral.
        """
        self._check_mergeable(other)
        after = self._replica()  # an error leaves all as it was
        if not other.__sklearn_is_fitted__():
            after._take_share(getattr(other, "_share", 0.0))
        elif not self.__sklearn_is_fitted__():
            mine = {name: value for name, value in vars(other).items() if name.endswith("_") or name in self._learnt}
            after.__dict__.update(mine)
            after._seen_parameters = after._parameters()
            after._take_share(getattr(self, "_share", 0.0))
        else:
            after._merge_states(other)
            after._progress = progress.joined(self._progress, other._progress)
        if hasattr(self, "_share"):
            after._share = min(self._share + getattr(other, "_share", 0.0), 1.0)
        self.__dict__ = after.__dict__
        return self

    def __add__(self, other: Any) -> Any:
        """Return a new model of what both have learnt."""
        if not isinstance(other, MergingEstimator):
            return NotImplemented
        return copy.copy(self).merge(other)

    def split(self: Any, k: int) -> list[Any]:
        """Return k models that know what this one knows, each with the k-th part of the rows and of the prior.

        They are to learn parts of the rows to come, shuffled, each on its own, and to be merged. Nothing is lost:
        merged at once they are this model. A model that has seen no rows is split, too: its parts begin with their
        share of the prior, and so a model of k merged parts has all of it. (`sklearn.base.clone` does not keep the
        share.)

        Parameters
        ----------
        k : int
            How many, at least 1.

        Returns
        -------
        list of k models
        """
        return self._some_parts(check_integer("k", k, 1), range(k))

    def _some_parts(self: Any, k: int, which: Sequence[int]) -> list[Any]:
        """Return those of the models of `split(k)` that have these numbers, in time for these only."""
        parts = [copy.copy(self) for _ in which]
        if not self.__sklearn_is_fitted__():
            self._check_parameters()
            for part in parts:
                part._share = getattr(self, "_share", 1.0) / k
            return parts
        self._after(anew=False)  # raises if parameters were changed
        for i, part, states in zip(which, parts, self._split_states(k, which), strict=True):
            part.__dict__.update(states)
            part._progress = progress.fraction(self._progress, k, i)
            part._share = getattr(self, "_share", 1.0) / k
        return parts

    def _check_mergeable(self: Any, other: Any) -> None:
        """Raise unless the other model can be merged with this one."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a {type(self).__name__} with a {type(other).__name__}.")
        mine, theirs = self._parameters(), other._parameters()
        check_same_params("models", {name: mine[name] for name in mine if name not in self._free_to_differ}, theirs)
        for each in (self, other):
            each._after(anew=not each.__sklearn_is_fitted__())  # raises if parameters are impossible or were changed
        if not (self.__sklearn_is_fitted__() and other.__sklearn_is_fitted__()):
            return
        if self._kind != other._kind:
            raise ValueError(
                f"Cannot merge a model that was begun with {self._kind} with one begun with {other._kind}."
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
                "Cannot merge models of tables whose columns became different features. "
                "Let one model learn some rows of the table, and split it."
            )
