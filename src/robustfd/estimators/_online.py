"""Base class of the online estimators: learning from batches and single rows, progressive evaluation."""

import copy
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._core import OneRow
from robustfd._guard import guards_itself, shared_guard
from robustfd._jobs import count_jobs, side_by_side
from robustfd._scipy import scipy_sparse as sp
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import check_rows, check_weights
from robustfd.estimators import _tables as tables
from robustfd.estimators._merging import MergingEstimator
from robustfd.estimators._single_rows import Kind, entries_of_dict, entries_of_pair, kind_of
from robustfd.estimators._snapshot import SavedEstimator
from robustfd.learners import progress
from robustfd.learners.progress import plot_progress, tally_judged
from robustfd.learners.rows import CHUNK, CsrRows, check_numbers, writable
from robustfd.sketch.merging import merge

Floats = NDArray[np.float64]
UNWEIGHTED, ONE = 1.0, np.array([1.0])  # the default weight of a single row, and the same as a shared read-only array

FEWEST_ROWS = 4096  # per thread; merging models of fewer rows loses accuracy
LEAST_WORK = 2**20  # entries times outputs per thread; with less, merging takes longer than the threads save


class OnlineEstimator(MergingEstimator, SavedEstimator, BaseEstimator, metaclass=ABCMeta):
    """A linear model that learns from batches, from single rows, or from any mix of both.

    Learning works on a copy that replaces the model at the end, so an error leaves the model unchanged. The copy shares
    the arrays that the core writes to; `_all_or_nothing` restores them after an error or an interrupt.
    """

    # fmt: off
    _readers: ClassVar[frozenset[str]] = frozenset({
        "predict", "predict_proba", "predict_log_proba", "decision_function", "predict_one", "predict_proba_one",
        "score", "contributions", "coef_", "intercept_", "effects_", "hessian_", "sketch_size_", "singular_values_",
        "drift_", "missing_columns_", "share_", "vocabulary_", "n_samples_seen_", "progressive_", "progressive_loss_",
        "progressive_error_", "get_params", "__getstate__",
    })
    # fmt: on

    # Learned attributes, in addition to those whose names end in "_".
    _learned: ClassVar[tuple[str, ...]] = ("_progress", "_kind", "_vocabulary", "_classes_open", "_seen_parameters")

    _has_classes: ClassVar[bool] = False
    _takes_missing: ClassVar[bool] = False  # whether NaN in X is allowed as a missing value
    _takes_tables: ClassVar[bool] = False  # whether tables may have columns of text, dates or times
    _encoder: Any  # encoder of such a table; not set for numeric rows

    # -- for subclasses

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
    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        """Create the model before its first row. With `growing`, more than d features may appear."""

    @abstractmethod
    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        """Learn rows. Return the loss of each and whether its prediction was wrong (NaN for regression)."""

    @abstractmethod
    def _margins(self, x: Any) -> Floats:
        """Return the margins (n, outputs) of rows."""

    def _quick_rows(self) -> OneRow | None:
        """Return what learns and reads the next dicts without a detour through Python, or None."""
        return None

    def _all_or_nothing(self, x: Any) -> AbstractContextManager[None]:
        """Return a context in which an error while learning rows leaves the model unchanged."""
        return nullcontext()

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Extend the model to d features."""

    @abstractmethod
    def _loss_name(self) -> str:
        """Return the name of the loss that `progressive_loss_` averages."""

    # -- batches

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        reset: bool,
        classes: Any = None,
        whole: bool = False,
        n_jobs: int | None = None,
    ) -> Self:
        """Check rows and learn them. With `whole`, they are the whole data set and may be shuffled and repeated."""
        jobs = count_jobs("n_jobs", n_jobs)
        after = self._working_copy(reset=reset)
        if not reset and self._kind != "rows":
            raise ValueError(
                f"This model was started with {self._kind}. Continue with learn_one, or call fit to start over."
            )
        x = check_rows(after, after._encoded(X, reset=reset), reset=reset)
        check_numbers(x, missing=self._takes_missing)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        if not (type(y) is np.ndarray and y.ndim == 1):
            from sklearn.utils.validation import column_or_1d

            y = column_or_1d(y, warn=True)
        if len(y) != x.shape[0]:
            raise ValueError(f"y has {len(y)} rows, but X has {x.shape[0]}: inconsistent numbers of samples.")
        y = after._check_targets(y, classes)
        weight = check_weights(sample_weight, x.shape[0])
        weight = after._weigh_classes(y, weight, whole=whole)
        if not weight.all():
            if reset and not weight.any():
                raise ValueError("sample_weight must be positive for at least one of the first rows, got only zeros.")
            live = weight > 0
            x, y, weight = x.take(live) if isinstance(x, CsrRows) else x[live], y[live], weight[live]
        orders = after._orders(len(y)) if whole else (None,)
        jobs = max(min(jobs, len(y) // FEWEST_ROWS, after._work(x) // LEAST_WORK), 1)
        return self._learn_on_copy(after, x, y, weight, fitted=not reset, orders=orders, jobs=jobs)

    def _work(self, x: Any) -> int:
        """Return the amount of work: the number of entries times the number of outputs."""
        classes = len(getattr(self, "classes_", ()))
        return int(x.size if isinstance(x, np.ndarray) else x.nnz) * (classes if classes > 2 else 1)

    def _weigh_classes(self, y: Any, weight: Floats, *, whole: bool) -> Floats:
        """Return the row weights, multiplied by the class weights if the estimator has any."""
        return weight

    def _orders(self, n: int) -> Iterable[NDArray[np.int64] | None]:
        """Return the row order of each pass over all n rows; None means the original order."""
        return (None,)

    def _working_copy(self, *, reset: bool) -> Self:
        """Return a copy to learn on after checking the parameters. With `reset`, drop everything learned so far."""
        after = self._shallow_copy()
        if reset:
            for name in [name for name in vars(after) if name.endswith("_") or name in self._learned]:
                delattr(after, name)
            after._check_parameters()
            after._seen_parameters = after._parameters()
        else:
            self._require_same_parameters()
        return after

    def _require_same_parameters(self) -> None:
        """Raise if a parameter was changed after the first row was learned."""
        seen = self._seen_parameters
        if tuple(seen.values()) != _reader(type(self))(self) and seen != (now := self._parameters()):
            self._check_parameters()
            raise ValueError(
                f"The parameters were changed after rows were learned: {seen} to {now}. "
                "Set them back, or call fit to start over."
            )

    def _shallow_copy(self) -> Self:
        """Return a shallow copy that shares all attributes with this model."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.__dict__.pop("_quick", None)
        return new

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _names(type(self))}

    def _learn_on_copy(
        self,
        after: Self,
        x: Any,
        y: Any,
        weight: Floats,
        *,
        fitted: bool,
        orders: Iterable[NDArray[np.int64] | None] = (None,),
        jobs: int = 1,
    ) -> Self:
        """Learn checked rows on the copy `after`, once per order, and then replace this model by the copy."""
        if not fitted:
            after._begin_for(x)
        with after._all_or_nothing(x):
            after._ensure_width(x, fitted=fitted)
            for number, order in enumerate(orders):
                judged = number == 0  # progressive losses count each row once, before it is first learned
                if jobs > 1:
                    after = after._learn_in_parts(x, y, weight, order, jobs, judged=judged)
                else:
                    after._learn_in_order(x, y, weight, order, judged=judged)
        self.__dict__ = after.__dict__
        return self

    def _begin_for(self, x: Any) -> None:
        """Create the model for its first rows x."""
        self._kind = getattr(self, "_kind", "rows")
        self._begin(x.shape[1], sparse=not isinstance(x, np.ndarray), growing=self._kind != "rows")
        self._progress = progress.start()

    def _ensure_width(self, x: Any, *, fitted: bool) -> None:
        """Extend the model if rows x have more features than it."""
        width = x.shape[1]
        if width > self.n_features_in_:
            self.n_features_in_ = width
            if fitted:
                self._widen(width)

    def _learn_in_order(self, x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None, *, judged: bool) -> None:
        """Learn rows in the given order."""
        for rows, targets, weights in in_order(x, y, weight, order):
            losses, wrong = self._learn_rows(rows, targets, weights)
            if judged:
                tally_judged(losses, wrong, weights, self._progress)

    def _learn_in_parts(
        self, x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None, jobs: int, *, judged: bool
    ) -> Self:
        """Learn parts of the rows in parallel threads and return the merged model."""
        order = np.arange(len(y)) if order is None else order
        parts = self.split(jobs)

        def learn(part: Any, some: NDArray[np.int64]) -> None:
            with part._all_or_nothing(x):
                part._learn_in_order(x, y, weight, some, judged=judged)

        side_by_side(learn, [(part, order[i::jobs]) for i, part in enumerate(parts)])
        merged: Self = merge(parts)
        if not judged:
            merged._progress = self._progress  # later passes do not change the progressive losses
        merged.__dict__.pop("_share", None)
        if hasattr(self, "_share"):
            merged._share = self._share
        return merged

    # -- single rows

    @guards_itself
    def learn_one(self, x: Any, y: Any, sample_weight: float = UNWEIGHTED) -> Self:
        """Learn one row.

        Parameters
        ----------
        x : dict, (indices, values) or array of shape (d,)
            The row. A dict maps feature names to values. A number or boolean is the value of the feature; a string
            creates a feature "name=value" of value 1. Absent features are 0. A model that was started with dicts or
            pairs accepts new features at any time. A model that supports missing values treats None as missing, and
            also treats a numeric feature as missing if most rows have it and this one does not.
        y : label or number
            The target. A classifier that was started with `learn_one` accepts new classes at any time.
        sample_weight : float, default=1.0
            Weight of the loss. A row of weight 0 is ignored.

        Returns
        -------
        self
            The fitted estimator.
        """
        quick = self.__dict__.get("_quick")
        if quick is not None and quick.learn(x, y, sample_weight):
            return self
        self._lock.acquire()
        before, learned = self.__dict__.copy(), False
        try:
            learned = self._learn_one(x, y, sample_weight)
        finally:
            if not learned:
                self.__dict__ = before
            elif (quick := self._quick_rows()) is not None:
                self.__dict__["_quick"] = quick
            else:
                self.__dict__.pop("_quick", None)
            self._lock.release()
        return self

    def _learn_one(self, x: Any, y: Any, sample_weight: float) -> bool:
        """Learn one row and return True. If this returns False or raises, the caller restores the model."""
        fitted, kind = self.__sklearn_is_fitted__(), self._kind_of(x)
        if fitted:
            self._require_same_parameters()
        else:
            self.__dict__ = self._working_copy(reset=True).__dict__
            self._classes_open = True
        weight = ONE if sample_weight is UNWEIGHTED else check_weights([sample_weight], 1)
        row, new = self._checked_row(x, kind, fitted=fitted)
        target = self._check_target(y)
        weight = self._weigh_classes(target, weight, whole=False)
        if weight[0] == 0:
            return False
        if not fitted:
            self._begin_for(row)
        with self._all_or_nothing(row):
            self._ensure_width(row, fitted=fitted)
            losses, wrong = self._learn_rows(row, target, weight)
            tally_judged(losses, wrong, weight, self._progress)
        if new:
            self._vocabulary.update(new)
        return True

    def _checked_row(self, x: Any, kind: Kind, *, fitted: bool) -> tuple[Any, dict[Any, int]]:
        """Return a checked single row and the indices of new feature names."""
        if kind == "rows":
            self._check_kind("rows")
            return self._row(x, reset=not fitted), {}
        if not fitted:
            self._kind, self.n_features_in_ = kind, 0
            if kind == "dicts":
                self._vocabulary = {}
        return self._row_of(x, kind)

    def _kind_of(self, x: Any) -> Kind:
        """Return the kind of row x. A dict is a row of fixed width if the model was fitted with named columns."""
        if type(x) is dict and getattr(self, "_kind", None) == "dicts":
            return "dicts"  # the usual case, without a slow check against abstract classes
        named = isinstance(x, Mapping) and (hasattr(self, "feature_names_in_") or hasattr(self, "_encoder"))
        return "rows" if named else kind_of(x)

    def _row(self, x: Any, *, reset: bool) -> Any:
        """Return a one-dimensional array, or a dict keyed by column names, as a checked row (1, d)."""
        if isinstance(x, Mapping) and hasattr(self, "_encoder"):
            row = self._encoder.encode([x])[0]
        elif isinstance(x, Mapping):
            nothing = np.nan if self._takes_missing else 0.0
            values = (x.get(name, nothing) for name in self.feature_names_in_)
            try:
                row = np.array([[nothing if value is None else value for value in values]], np.float64)
            except (TypeError, ValueError):
                raise ValueError(f"x must have a number for each column of the model, got {x!r:.60}.") from None
        else:
            row = check_rows(self, _flat(x)[None], reset=reset)
        check_numbers(row, missing=self._takes_missing)
        return row

    def _check_kind(self, kind: Kind) -> None:
        """Raise if the model does not accept this kind of single row."""
        mine = getattr(self, "_kind", kind)
        if mine != kind and not (mine == "rows" and kind == "pairs"):
            rows = {"dicts": "dicts", "pairs": "pairs (indices, values)", "rows": "rows of fixed width"}
            raise ValueError(f"This model was started with {rows[mine]} and does not accept {rows[kind]}.")

    def _row_of(self, x: Any, kind: Kind, *, known_only: bool = False) -> tuple[Any, dict[Any, int]]:
        """Return a dict or a pair as a sparse row, and the indices of new feature names.

        The row is wide enough for new features. With `known_only`, new features are dropped instead.
        """
        self._check_kind(kind)
        new: dict[Any, int] = {}
        if kind == "dicts":
            indices, values, new = entries_of_dict(x, self._vocabulary, missing=self._takes_missing)
        else:
            indices, values = entries_of_pair(x)
        width = max(self.n_features_in_, int(indices[-1]) + 1 if len(indices) else 1)
        if self._kind == "rows" and width > self.n_features_in_:
            raise ValueError(
                f"x has the index {indices[-1]}, but {type(self).__name__} is expecting {self.n_features_in_} features."
            )
        check_numbers(values, missing=self._takes_missing and kind == "dicts")
        if known_only and width > self.n_features_in_:
            width = self.n_features_in_
            known = int(np.searchsorted(indices, width))
            indices, values = indices[:known], values[:known]
        return self._single_row(values, indices, width), new

    def _single_row(self, values: Floats, indices: NDArray[np.int32], width: int) -> Any:
        """Return a single row in the form that `_learn_rows` and `_margins` expect."""
        return sp.csr_array((values, indices, np.array([0, len(indices)])), shape=(1, width))

    @shared_guard
    def _margins_of_one(self, x: Any) -> Floats:
        """Return the margins (outputs,) of one row. Unknown features are ignored."""
        kind = self._kind_of(x)
        if kind == "rows":
            self._check_kind(kind)
            row = self._row(x, reset=False)
        else:
            row, _ = self._row_of(x, kind, known_only=True)
        return self._finite_margins(row)[0]

    # -- predictions and attributes

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):  # a parameter: the next call must check it
            self.__dict__.pop("_quick", None)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_quick", None)
        return copy.deepcopy(state)  # learning may write to the arrays before they are pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: writable(value) for name, value in state.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_progress")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._takes_missing
        tags.target_tags.required = True
        return tags

    def _require_rows(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} has seen no rows yet. Call fit or partial_fit first.")

    def _checked_margins(self, X: Any) -> Floats:
        self._require_rows()
        return self._finite_margins(self._checked(X))

    def _checked(self, X: Any) -> Any:
        """Return checked rows for prediction."""
        x = check_rows(self, self._encoded(X, reset=False), reset=False)
        check_numbers(x, missing=self._takes_missing)
        return x

    def _encoded(self, X: Any, *, reset: bool) -> Any:
        """Return a table with non-numeric columns as numbers, and other rows unchanged.

        If the first table needed encoding, all later ones are encoded too.
        """
        if not self._takes_tables:
            return X
        if reset and tables.needs_encoding(X):
            self._encoder = tables.learn_encoder(X)
        if not hasattr(self, "_encoder"):
            return X
        if not tables.is_table(X):
            raise ValueError(
                f"X must be a table, as {type(self).__name__} was started with a table that has non-numeric columns, "
                f"got {type(X).__name__}."
            )
        return self._encoder.encode(X)[0]

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
        self._require_rows()
        return progress.rows_seen(self._progress)

    @property
    def vocabulary_(self) -> dict[Any, int]:
        """The column of each feature in `coef_`, by name. Only models that learn from dicts have it."""
        self._require_rows()
        if self._kind != "dicts":
            raise AttributeError("Only a model that learns from dicts has vocabulary_.")
        return dict(self._vocabulary)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss over all rows so far. Each row is predicted before it is learned."""
        self._require_rows()
        return progress.mean_loss(self._progress)

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows", "loss" and "error": progressive means after 1, 2, 4, ... rows and after the last."""
        self._require_rows()
        return progress.table(self._progress)

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Plot `progressive_` against the number of rows and return the axes."""
        return plot_progress(self.progressive_, ax=ax, label=label, loss=self._loss_name())


def blocks(x: Any, *, sparse: bool) -> Iterator[tuple[slice, Any]]:
    """Yield slices and blocks of rows of x that are small enough to convert to dense float64 arrays."""
    n, d = x.shape
    step = max(n if sparse and sp.issparse(x) else CHUNK // max(d, 1), 1)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        yield part, x if step >= n else x[part]


def in_order(x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None) -> Iterator[tuple[Any, Any, Floats]]:
    """Yield rows, targets and weights in the given order, in chunks, as a copy of all rows may not fit into memory."""
    if order is None:
        yield x, y, weight
        return
    step = max(CHUNK * (16 if sp.issparse(x) else 1) // max(x.shape[1], 1), 1024)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        yield x[some], y[some], weight[some]


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """Return the parameter names of an estimator class."""
    return tuple(kind._get_param_names())


@cache
def _reader(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that returns the parameters of an estimator of this class as a tuple."""
    return attrgetter(*kind._get_param_names())


def _flat(x: Any) -> NDArray[Any]:
    """Return a single row as a one-dimensional array."""
    row = np.asarray(x)
    if row.ndim != 1:
        raise ValueError(
            f"x must be a dict, a pair (indices, values) or a one-dimensional array, got shape {row.shape}."
        )
    return row
