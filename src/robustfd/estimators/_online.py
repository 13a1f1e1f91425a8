"""What the online estimators share: batches and single rows in, each judged before it is learnt."""

import copy
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import column_or_1d

from robustfd._guard import guards_itself
from robustfd._jobs import count_jobs, side_by_side
from robustfd._validation import check_rows, check_weights
from robustfd.estimators import _tables as tables
from robustfd.estimators._merging import MergingEstimator
from robustfd.estimators._single_rows import Kind, SingleRow, entries_of_dict, entries_of_pair, kind_of
from robustfd.estimators._snapshot import SavedEstimator
from robustfd.online import progress
from robustfd.online.plots import plot_progress
from robustfd.online.progress import tally_judged
from robustfd.online.rows import CHUNK, check_numbers, writable
from robustfd.sketch.merging import merge

Floats = NDArray[np.float64]
UNWEIGHTED, ONE = 1.0, np.array([1.0])  # the weight of most single rows, and as an array that nobody writes to

FEWEST_ROWS = 4096  # of a part; models of fewer rows lose accuracy when they are merged
LEAST_WORK = 2**20  # entries times outputs of a part; with less, merging costs more time than is gained


class OnlineEstimator(MergingEstimator, SavedEstimator, BaseEstimator, metaclass=ABCMeta):
    """A linear model learnt row by row, in batches or one at a time, in any mixture of both.

    Learning happens on a copy that takes the place of the model at the end, so that after an error there is
    the model as it was. (Arrays that loops write to are shared, but all checks come before the loops.)
    """

    # What belongs to the rows seen so far, beside attributes whose names end in "_".
    _learnt: ClassVar[tuple[str, ...]] = ("_progress", "_kind", "_vocabulary", "_classes_open", "_seen_parameters")

    _takes_missing: ClassVar[bool] = False  # whether NaN in rows is a missing value
    _takes_tables: ClassVar[bool] = False  # whether columns of text, dates and the like become features
    _encoder: Any  # of such a table; there is none for rows of numbers

    # -- for subclasses

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise unless the parameters are possible."""

    @abstractmethod
    def _check_targets(self, y: Any, classes: Any) -> Any:
        """Return y as numbers that can be learnt, after setting what depends on the first of them."""

    @abstractmethod
    def _check_target(self, y: Any) -> Any:
        """Do as `_check_targets` for the target of a single row."""

    @abstractmethod
    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        """Make the model before its first row; with `growing` there will be more features than d."""

    @abstractmethod
    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        """Learn rows; return the loss of each and whether it was judged wrongly (nan if that makes no sense)."""

    @abstractmethod
    def _margins(self, x: Any) -> Floats:
        """Return the margins (n, outputs) of rows."""

    def _all_or_nothing(self, x: Any) -> AbstractContextManager[None]:
        """Return in which context rows are learnt so that an error leaves the model as it was; by default none."""
        return nullcontext()

    @abstractmethod
    def _widen(self, d: int) -> None:
        """Make room for d features."""

    @abstractmethod
    def _loss_name(self) -> str:
        """Return what `progressive_loss_` is the mean of."""

    # -- batches

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        anew: bool,
        classes: Any = None,
        whole: bool = False,
        n_jobs: int | None = None,
    ) -> Self:
        """Learn checked rows; with `whole` they are all there are, and may be learnt in another order and again."""
        jobs = count_jobs("n_jobs", n_jobs)
        after = self._after(anew=anew)
        if not anew and self._kind != "rows":
            raise ValueError(f"This model was begun with {self._kind} and goes on with learn_one; fit starts anew.")
        x = check_rows(after, after._encoded(X, reset=anew), reset=anew)
        check_numbers(x, missing=self._takes_missing)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        if len(y) != x.shape[0]:
            raise ValueError(f"y has {len(y)} rows, but X has {x.shape[0]}: inconsistent numbers of samples.")
        y = after._check_targets(y, classes)
        weight = check_weights(sample_weight, x.shape[0])
        weight = after._weigh_classes(y, weight, whole=whole)
        if not weight.all():
            if anew and not weight.any():
                raise ValueError(
                    "sample_weight is zero for every row; the first rows need one weight above 0 at least."
                )
            x, y, weight = x[weight > 0], y[weight > 0], weight[weight > 0]
        orders = after._orders(len(y)) if whole else (None,)
        jobs = max(min(jobs, len(y) // FEWEST_ROWS, after._work(x) // LEAST_WORK), 1)
        return self._become(after, x, y, weight, begun=not anew, orders=orders, jobs=jobs)

    def _work(self, x: Any) -> int:
        """Return how much work rows are: their entries, times the number of outputs that learn from them."""
        classes = len(getattr(self, "classes_", ()))
        return int(x.nnz if sp.issparse(x) else x.size) * (classes if classes > 2 else 1)

    def _weigh_classes(self, y: Any, weight: Floats, *, whole: bool) -> Floats:
        """Return the weights of rows, times those of their classes if the estimator has any."""
        return weight

    def _orders(self, n: int) -> Iterable[NDArray[np.int64] | None]:
        """Return for each pass over all n rows their order, None for that in which they came."""
        return (None,)

    def _after(self, *, anew: bool) -> Self:
        """Return a copy to learn on, its parameters checked; without what was learnt so far if anew."""
        after = self._replica()
        if anew:
            for name in [name for name in vars(after) if name.endswith("_") or name in self._learnt]:
                delattr(after, name)
            after._check_parameters()
            after._seen_parameters = after._parameters()
        else:
            self._require_same_parameters()
        return after

    def _require_same_parameters(self) -> None:
        """Raise if a parameter was changed after the first row."""
        seen = self._seen_parameters
        if tuple(seen.values()) != _reader(type(self))(self) and seen != (now := self._parameters()):
            self._check_parameters()
            raise ValueError(
                f"The parameters were changed after rows were learnt: {seen} to {now}. "
                "Set them back, or call fit to start anew."
            )

    def _replica(self) -> Self:
        """Return a copy that shares all with this model, to become what it will be."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def _parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _names(type(self))}

    def _become(
        self,
        after: Self,
        x: Any,
        y: Any,
        weight: Floats,
        *,
        begun: bool,
        orders: Iterable[NDArray[np.int64] | None] = (None,),
        jobs: int = 1,
    ) -> Self:
        """Learn checked rows on the copy `after`, once in each of the orders, and take its place."""
        if not begun:
            after._begin_for(x)
        with after._all_or_nothing(x):
            after._make_room(x, begun=begun)
            for number, order in enumerate(orders):
                judged = number == 0  # rows that were learnt before are not judged
                if jobs > 1:
                    after = after._learn_in_parts(x, y, weight, order, jobs, judged=judged)
                else:
                    after._learn_in_order(x, y, weight, order, judged=judged)
        self.__dict__ = after.__dict__
        return self

    def _begin_for(self, x: Any) -> None:
        """Make the model before its first rows x."""
        self._kind = getattr(self, "_kind", "rows")
        self._begin(x.shape[1], sparse=sp.issparse(x), growing=self._kind != "rows")
        self._progress = progress.start()

    def _make_room(self, x: Any, *, begun: bool) -> None:
        """Make room for the features of rows x."""
        width = x.shape[1]
        if width > self.n_features_in_:
            self.n_features_in_ = width
            if begun:
                self._widen(width)

    def _learn_in_order(self, x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None, *, judged: bool) -> None:
        """Learn rows in that order."""
        for rows, targets, weights in in_order(x, y, weight, order):
            losses, wrong = self._learn_rows(rows, targets, weights)
            if judged:
                tally_judged(losses, wrong, weights, self._progress)

    def _learn_in_parts(
        self, x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None, jobs: int, *, judged: bool
    ) -> Self:
        """Return the model after rows in that order, of which parts were learnt side by side and merged."""
        order = np.arange(len(y)) if order is None else order
        parts = self.split(jobs)

        def learn(part: Any, some: NDArray[np.int64]) -> None:
            with part._all_or_nothing(x):
                part._learn_in_order(x, y, weight, some, judged=judged)

        side_by_side(learn, [(part, order[i::jobs]) for i, part in enumerate(parts)])
        merged: Self = merge(parts)
        if not judged:
            merged._progress = self._progress  # nothing was added
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
            In a dict keys are the names of features: a number or boolean is the feature's value, a string makes a
            feature of its own, "name=value", of value 1. Features may appear at any time, in dicts and in pairs,
            if the model was begun with such; a feature that is not there is 0. A model that takes missing values
            takes None for one. It counts a number as missing that most rows have and this one has not.
        y : label or number
            Classes may appear at any time if the model was begun with `learn_one`.
        sample_weight : float, default=1.0

        Returns
        -------
        self
        """
        lock = self._lock
        lock.acquire()  # half the time of `with`
        before, learnt = self.__dict__.copy(), False
        try:
            learnt = self._learn_one(x, y, sample_weight)
        finally:
            if not learnt:
                self.__dict__ = before
            lock.release()
        return self

    def _learn_one(self, x: Any, y: Any, sample_weight: float) -> bool:
        """Learn one row and return True; if not, or after an error, the caller restores the model."""
        begun, kind = self.__sklearn_is_fitted__(), self._kind_of(x)
        if begun:
            self._require_same_parameters()
        else:
            self.__dict__ = self._after(anew=True).__dict__
            self._classes_open = True
        weight = ONE if sample_weight is UNWEIGHTED else check_weights([sample_weight], 1)
        row, new = self._checked_row(x, kind, begun=begun)
        target = self._check_target(y)
        weight = self._weigh_classes(target, weight, whole=False)
        if weight[0] == 0:
            return False
        if not begun:
            self._begin_for(row)
        with self._all_or_nothing(row):
            self._make_room(row, begun=begun)
            losses, wrong = self._learn_rows(row, target, weight)
            tally_judged(losses, wrong, weight, self._progress)
        if new:
            self._vocabulary.update(new)
        return True

    def _checked_row(self, x: Any, kind: Kind, *, begun: bool) -> tuple[Any, dict[Any, int]]:
        """Return a single row to learn, and the indices of names that are new."""
        if kind == "rows":
            self._check_kind("rows")
            return self._row(x, reset=not begun), {}
        if not begun:
            self._kind, self.n_features_in_ = kind, 0
            if kind == "dicts":
                self._vocabulary = {}
        return self._row_of(x, kind)

    def _kind_of(self, x: Any) -> Kind:
        """Return which kind of row x is; for a model begun with rows whose columns have names, a dict is one."""
        if type(x) is dict and getattr(self, "_kind", None) == "dicts":
            return "dicts"  # the usual case, without a look at abstract classes
        named = isinstance(x, Mapping) and (hasattr(self, "feature_names_in_") or hasattr(self, "_encoder"))
        return "rows" if named else kind_of(x)

    def _row(self, x: Any, *, reset: bool) -> Any:
        """Return a checked row (1, d) of an array of one dimension, or of a dict with the names of the columns."""
        if isinstance(x, Mapping) and hasattr(self, "_encoder"):
            row = self._encoder.encode([x])[0]
        elif isinstance(x, Mapping):
            nothing = np.nan if self._takes_missing else 0.0
            values = (x.get(name, nothing) for name in self.feature_names_in_)
            try:
                row = np.array([[nothing if value is None else value for value in values]], np.float64)
            except (TypeError, ValueError):
                raise ValueError(f"x must have numbers for the columns that were learnt, got {x!r:.60}.") from None
        else:
            row = check_rows(self, _flat(x)[None], reset=reset)
        check_numbers(row, missing=self._takes_missing)
        return row

    def _check_kind(self, kind: Kind) -> None:
        """Raise unless the model takes such single rows."""
        mine = getattr(self, "_kind", kind)
        if mine != kind and not (mine == "rows" and kind == "pairs"):
            rows = {"dicts": "dicts", "pairs": "pairs (indices, values)", "rows": "rows of fixed width"}
            raise ValueError(f"This model was begun with {rows[mine]} and cannot take {rows[kind]}.")

    def _row_of(self, x: Any, kind: Kind, *, known_only: bool = False) -> tuple[Any, dict[Any, int]]:
        """Return a dict or a pair as a sparse row, as wide as it takes, and the names that are new.

        With `known_only`, features that were never seen are left out.
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
        """Return a single row with these entries as `_learn_rows` and `_margins` take it."""
        return sp.csr_array((values, indices, np.array([0, len(indices)])), shape=(1, width))

    def _margins_of_one(self, x: Any) -> Floats:
        """Return the margins (outputs,) of a row that is only to be judged; features never seen do not count."""
        kind = self._kind_of(x)
        if kind == "rows":
            self._check_kind(kind)
            row = self._row(x, reset=False)
        else:
            row, _ = self._row_of(x, kind, known_only=True)
        return self._finite_margins(row)[0]

    # -- reading

    def __getstate__(self) -> dict[str, Any]:
        return copy.deepcopy(super().__getstate__())  # loops write to arrays, perhaps before they are pickled

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

    def _judge(self, X: Any) -> Floats:
        self._require_rows()
        return self._finite_margins(self._checked(X))

    def _checked(self, X: Any) -> Any:
        """Return rows that are only to be judged, checked."""
        x = check_rows(self, self._encoded(X, reset=False), reset=False)
        check_numbers(x, missing=self._takes_missing)
        return x

    def _encoded(self, X: Any, *, reset: bool) -> Any:
        """Return a table as numbers if it has columns of other types, or the first one had; other rows as they are."""
        if not self._takes_tables:
            return X
        if reset and tables.needs_encoding(X):
            self._encoder = tables.learn_encoder(X)
        if not hasattr(self, "_encoder"):
            return X
        if not tables.is_table(X):
            raise ValueError(
                f"{type(self).__name__} was begun with a table that has columns of text, dates or the like. "
                f"It goes on with such tables, got {type(X).__name__}."
            )
        return self._encoder.encode(X)[0]

    def _finite_margins(self, x: Any) -> Floats:
        if type(x) is SingleRow:  # numpy's way takes ten times as long
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
        """How many rows were learnt."""
        self._require_rows()
        return progress.rows_seen(self._progress)

    @property
    def vocabulary_(self) -> dict[Any, int]:
        """For a model that learns dicts: the column of each feature, as in `coef_`, in the order they appeared."""
        self._require_rows()
        if self._kind != "dicts":
            raise AttributeError("vocabulary_ is there only for a model that learns dicts.")
        return dict(self._vocabulary)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss of all rows so far, each judged before it was learnt."""
        self._require_rows()
        return progress.mean_loss(self._progress)

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows", "loss" and "error": progressive means at 1, 2, 4, ... rows and at the last."""
        self._require_rows()
        return progress.table(self._progress)

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Draw `progressive_` against the number of rows; return the axes."""
        return plot_progress(self.progressive_, ax=ax, label=label, loss=self._loss_name())


def blocks(x: Any, *, sparse: bool) -> Iterator[tuple[slice, Any]]:
    """Yield the rows of x in blocks that may be made dense, or float64: which rows, and the rows."""
    n, d = x.shape
    step = max(n if sparse and sp.issparse(x) else CHUNK // max(d, 1), 1)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        yield part, x if step >= n else x[part]


def in_order(x: Any, y: Any, weight: Floats, order: NDArray[np.int64] | None) -> Iterator[tuple[Any, Any, Floats]]:
    """Yield rows, targets and weights in that order, some at a time: a copy of all might not fit into memory."""
    if order is None:
        yield x, y, weight
        return
    step = max(CHUNK * (16 if sp.issparse(x) else 1) // max(x.shape[1], 1), 1024)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        yield x[some], y[some], weight[some]


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the parameters of a class."""
    return tuple(kind._get_param_names())


@cache
def _reader(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that returns the parameters of an estimator of that class, a tuple."""
    return attrgetter(*kind._get_param_names())


def _flat(x: Any) -> NDArray[Any]:
    """Return a single row as an array of one dimension."""
    row = np.asarray(x)
    if row.ndim != 1:
        raise ValueError(
            f"x must be a dict, a pair (indices, values) or a row of one dimension, got shape {row.shape}."
        )
    return row
