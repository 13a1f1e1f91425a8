"""Base class of the online estimators: learning from batches and single rows, merging, snapshots."""

import copy
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors
from robustfd._guard import guarded, guarded_pair, guards_itself
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import check_integer, check_rows
from robustfd.estimators._learning import UNWEIGHTED, learn_row, learn_rows
from robustfd.estimators._onnx import Exported
from robustfd.estimators._rows import Order, encoded, kind_of, single_row, width_of
from robustfd.estimators._transfer import merge_into, pack, some_parts, unpack
from robustfd.learners import progress
from robustfd.learners.progress import plot_progress
from robustfd.learners.rows import CsrRows, Floats, check_numbers, writable
from robustfd.learners.snapshot import Parts


class OnlineEstimator(Exported, Saved, BaseEstimator, metaclass=ABCMeta):
    """A linear model that learns from batches, from single rows, or from any mix of both.

    Learning works on a copy that replaces the model at the end, so an error leaves the model unchanged. The copy shares
    the arrays that the core writes to; `_keep` returns what restores them after an error or an interrupt. A signal
    handler may raise after any call, so the same `try` that learns also replaces the model.
    """

    # fmt: off
    _readers: ClassVar[frozenset[str]] = frozenset({
        "predict", "predict_proba", "predict_log_proba", "decision_function", "predict_one", "predict_proba_one",
        "score", "contributions", "contributions_one", "coef_", "intercept_", "effects_", "hessian_", "sketch_size_",
        "experts_", "singular_values_", "drift_", "missing_columns_", "share_", "vocabulary_", "n_samples_seen_",
        "progressive_", "progressive_loss_", "progressive_error_", "get_params", "__getstate__",
    })
    # fmt: on

    # Learned attributes, in addition to those whose names end in "_".
    _learned: ClassVar[tuple[str, ...]] = ("_progress", "_kind", "_vocabulary", "_classes_open", "_seen_parameters")
    _free_to_differ: ClassVar[tuple[str, ...]] = ("shuffle", "epochs", "random_state")  # they affect only row order
    _relearns = False  # whether the rows of `partial_fit` were learned before, as in later passes of a command
    _has_classes: ClassVar[bool] = False
    _takes_missing: ClassVar[bool] = False  # whether NaN is a missing value, and tables may have columns of text
    _encoder: Any  # encoder of such a table; not set for numeric rows
    _progress: Floats
    _vocabulary: dict[Any, int]  # only of models of dicts
    n_features_in_: int
    _width = property(width_of)  # the number of features that the learner sees

    # -- what subclasses define

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise if a parameter is invalid."""

    @abstractmethod
    def _check_targets(self, y: Any, classes: Any) -> Any:
        """Return y as numbers. The first call also sets attributes that depend on y, such as `classes_`."""

    @abstractmethod
    def _check_target(self, y: Any) -> Any:
        """Do the same as `_check_targets` for the target of a single row."""

    @abstractmethod
    def _begin(self, x: Any) -> None:
        """Create the model before its first rows x. More features may appear later unless `_kind` is "rows"."""

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Extend the model to d features."""

    @abstractmethod
    def _keep(self, x: Any) -> Callable[[], object]:
        """Return a function that restores what learning rows x will change in place."""

    @abstractmethod
    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        """Learn rows. Return the loss of each and whether its prediction was wrong (NaN for regression)."""

    def _learn_again(self, x: Any, y: Any, weight: Floats) -> None:
        """Learn rows that were learned before."""
        self._learn_rows(x, y, weight)

    @abstractmethod
    def _margins(self, x: Any) -> Floats:
        """Return the margins (n, outputs) of rows."""

    @abstractmethod
    def _merge_states(self, other: Any) -> None:
        """Merge the state of another model into this one without changing arrays in place."""

    @abstractmethod
    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        """Return the attributes, by name, of the parts `which` out of k parts."""

    @abstractmethod
    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        """Return the numbers and arrays of each learner state."""

    @abstractmethod
    def _unpack_states(self, states: list[Parts]) -> None:
        """Restore the learner states after checking their sizes with `_check_sizes`."""

    @abstractmethod
    def _loss_name(self) -> str:
        """Return the name of the loss that `progressive_loss_` averages."""

    def _check_learned(self) -> None:
        """Raise if the rows that were just learned made the state useless."""

    def _complete_fit(self) -> None:
        """Do what is due after the last row of `fit`."""

    def _forget_kept(self) -> None:
        """Drop what `_keep` stored in the state."""

    @property
    def _outputs(self) -> int:
        """The number of outputs: one per class if there are more than two."""
        return 1

    def _quick_rows(self) -> Any:
        """Return what learns and reads the next dicts without a detour through Python, or None."""
        return None

    def _weigh_classes(self, y: Any, weight: Floats, *, whole: bool) -> Floats:
        """Return the row weights, multiplied by the class weights if the estimator has any."""
        return weight

    def _orders(self, n: int) -> Iterator[Order]:
        """Yield the row order of each pass over all n rows."""
        yield None

    def _repeats(self, passes: int, n: int) -> bool:
        """Return whether `fit` makes another pass over its n rows after so many."""
        return False

    def _add_prior_share(self, share: float) -> None:
        """Add the share of the prior that a part without rows has."""

    # -- batches

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, n_jobs: int | None = None) -> Self:
        """Fit the model to X and y from scratch.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            The rows.
        y : array of shape (n,)
            The targets of a regressor, or the labels of a classifier: strings, integers, booleans, or floats that are
            whole numbers.
        sample_weight : array of shape (n,), optional
            Weights of the losses. A row of weight 3 counts about as much as three such rows at different times. Rows of
            weight 0 are ignored.
        n_jobs : int, optional
            Number of threads. Each learns a part of the rows, and the parts are merged. -1 uses all cores. A part has
            at least 4096 rows and 1,048,576 entries; with more than two classes, entries count once per class. The
            model is nearly as good as that of one thread, but not the same.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, reset=True, whole=True, n_jobs=n_jobs)

    def _working_copy(self, *, reset: bool) -> Self:
        """Return a copy to learn on after checking the parameters. With `reset`, drop everything learned so far."""
        after = self._shallow_copy()
        if reset:
            for name in self._learned_names():
                after.__dict__.pop(name, None)
            after._check_parameters()
            after._seen_parameters = after._parameters()
        else:
            self._require_same_parameters()
        return after

    def _shallow_copy(self) -> Self:
        """Return a shallow copy that shares all attributes with this model."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.__dict__.pop("_quick", None)
        return new

    def _learned_names(self) -> list[str]:
        return [name for name in vars(self) if name.endswith("_") or name in self._learned]

    def _parameters(self) -> dict[str, Any]:
        return dict(zip(self._get_param_names(), _reader(type(self))(self), strict=True))

    def _require_same_parameters(self) -> None:
        """Raise if a parameter was changed after the first row was learned."""
        seen = self._seen_parameters
        if tuple(seen.values()) != _reader(type(self))(self) and seen != (now := self._parameters()):
            self._check_parameters()
            raise ValueError(
                f"The parameters were changed after rows were learned: {seen} to {now}. "
                "Set them back, or call fit to start over."
            )

    # -- single rows

    @guards_itself
    def learn_one(self, x: Any, y: Any, sample_weight: float = UNWEIGHTED) -> Self:
        """Learn one row.

        Parameters
        ----------
        x : dict, (indices, values) or array of shape (d,)
            The row. A dict maps feature names to values. A number or boolean is the value of the feature; a string
            creates a feature "name=value" of value 1, and one of several words creates features of its words and pairs
            of words. Absent features are 0. A model that was started with dicts or
            pairs accepts new features at any time. A model that supports missing values treats None as missing, and
            also treats a numeric feature as missing if most rows have it and this one does not.
        y : label or number
            The target. A classifier that was started with `learn_one` accepts new classes at any time.
        sample_weight : float, default=1.0
            Weight of the loss. A row of weight 0 is ignored.

        Returns
        -------
        self
        """
        quick = self.__dict__.get("_quick")
        if quick is None or not quick.learn(x, y, sample_weight):
            self._learn_one(x, y, sample_weight)
        return self

    def _renew_quick(self) -> None:
        self.__dict__.pop("_quick", None)
        if (quick := self._quick_rows()) is not None:
            self.__dict__["_quick"] = quick

    def _begin_row(self, kind: Any) -> bool:
        """Prepare to learn a row of this kind, and return whether the model has rows already."""
        if self.__sklearn_is_fitted__():
            self._require_same_parameters()
            return True
        self.__dict__ = self._working_copy(reset=True).__dict__
        self._kind, self._classes_open = kind, True
        if kind != "rows":
            self.n_features_in_ = 0
        if kind == "dicts":
            self._vocabulary = {}
        return False

    @partial(guarded, shared=True)
    def _margins_of_one(self, x: Any) -> Floats:
        """Return the margins (outputs,) of one row. Unknown features are ignored."""
        return self._finite_margins(single_row(self, x, kind_of(self, x), known_only=True)[0])[0]

    # -- merging

    @guarded_pair
    def merge(self, other: Any) -> Self:
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
        """
        return merge_into(self, other)

    def __add__(self, other: Any) -> Any:
        """Return a new model that merges both."""
        return copy.copy(self).merge(other) if isinstance(other, OnlineEstimator) else NotImplemented

    def split(self, k: int) -> list[Self]:
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

    _learn, _learn_one, _some_parts, _pack, _unpack = learn_rows, guarded(learn_row), some_parts, pack, unpack

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_quick", None)
        return copy.deepcopy(state)  # learning may write to the arrays before they are pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: writable(value) for name, value in state.items()})

    # -- predictions and attributes

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):  # a parameter: the next call must check it
            self.__dict__.pop("_quick", None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_progress")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_missing
        tags.target_tags.required = True
        return tags

    def _require_rows(self) -> Self:
        """Return the model, or raise if it has seen no rows."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} has seen no rows yet. Call fit or partial_fit first.")
        return self

    def _checked(self, X: Any, *, reset: bool = False, learn: bool = False) -> Any:
        """Return checked rows."""
        x = encoded(self, X, reset=reset, learn=learn) if self._takes_missing else None
        if x is None:
            x = check_rows(self, X, reset=reset)
            if hasattr(X, "codes"):
                from robustfd.streams.coded import coded

                x = coded(x, X.codes, X.numbers)
        check_numbers(x, missing=self._takes_missing)
        return x

    def _checked_margins(self, X: Any) -> Floats:
        return self._require_rows()._finite_margins(self._checked(X))

    def _finite_margins(self, x: Any) -> Floats:
        if type(x) is CsrRows and len(x.indptr) == 2:  # ten times as fast as numpy's checks
            margins = self._margins(x)
            if all(map(math.isfinite, margins[0].tolist())):
                return margins
        with np.errstate(over="ignore", invalid="ignore"):
            margins = self._margins(x)
        if not np.isfinite(margins).all():
            raise OverflowError(f"The predictions of {type(self).__name__} overflow: weights or X are too large.")
        return margins

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows learned."""
        return progress.rows_seen(self._require_rows()._progress)

    @property
    def vocabulary_(self) -> dict[Any, int]:
        """The column of each feature in `coef_`, by name. Only models that learn from dicts have it."""
        if self._require_rows()._kind != "dicts":
            raise AttributeError("Only a model that learns from dicts has vocabulary_.")
        return dict(self._vocabulary)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss over all rows so far. Each row is predicted before it is learned."""
        return progress.mean_loss(self._require_rows()._progress)

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows", "loss" and "error": progressive means after 1, 2, 4, ... rows and after the last."""
        return progress.table(self._require_rows()._progress)

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Plot `progressive_` against the number of rows and return the axes."""
        return plot_progress(self.progressive_, ax=ax, label=label, loss=self._loss_name())


@cache
def _reader(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that returns the parameters of an estimator of this class as a tuple."""
    return attrgetter(*kind._get_param_names())
