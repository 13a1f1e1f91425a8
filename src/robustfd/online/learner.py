"""What all online learners share: rows in, margins out, and what the loss has been so far."""

import copy
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from robustfd._container import Document, Saved, Tensors
from robustfd._guard import guards_itself
from robustfd._validation import check_choice, check_real, check_rows, check_weights
from robustfd.linalg.threads import one_blas_thread
from robustfd.online import progress
from robustfd.online.block import UNKEPT
from robustfd.online.losses import LOSSES, Loss
from robustfd.online.merging import MergingLearner
from robustfd.online.plots import plot_progress
from robustfd.online.progress import tally_all
from robustfd.online.rows import (
    CHUNK,
    FEW,
    FLOAT64,
    LARGEST,
    CsrRows,
    Extent,
    Floats,
    as_rows,
    check_numbers,
    extent_of,
    scatter_rows,
    writable,
)
from robustfd.online.snapshot import Parts, pack_common, unpack_common

CACHED = 2**16  # entries of a block of sparse rows that is made dense at a time
ONES = [np.ones(n) for n in range(FEW + 1)]  # weights of rows that come without


class State(Protocol):
    """What a learner has learnt: arrays that its compiled loops change in place."""

    @property
    def sparse(self) -> bool:
        """Whether it takes sparse rows, or dense ones."""

    @property
    def checks_rows(self) -> bool:
        """Whether `learn` itself finds out that one of few rows is not finite."""

    def expect(self, rows: int) -> None:
        """Get ready for so many rows, which may come a few at a time."""

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn and tally rows; return how many were learnt before they overflowed.

        If that is negative, nothing has changed: -1 if a row is not finite, UNKEPT if `keep` must be called first.
        """

    def keep(self, extent: Extent) -> Any:
        """Return what `undo` needs after rows of that extent."""

    def is_sound(self, kept: Any) -> bool:
        """Return whether all numbers are finite after rows that were learnt."""

    def let_go(self) -> None:
        """Note that nobody will call `undo`."""

    def undo(self, kept: Any) -> None:
        """Become what the state was when that was kept."""

    def margins(self, x: Any) -> Floats:
        """Return w'x of rows of either kind."""

    def weights(self) -> Floats:
        """Return w."""

    def merged(self, other: Any, vote: Floats) -> Any:
        """Return a new state after the rows of both, of the same kind and settings; weights are means by `vote`."""

    def fraction(self, k: int, i: int) -> Any:
        """Return part i of k, with the same weights and the k-th part of what adds up."""

    def pack(self) -> tuple[Document, Tensors]:
        """Return its numbers and arrays, for a snapshot."""

    @classmethod
    def unpack(cls, parts: Parts, *begun_with: Any, sparse: bool) -> "State":
        """Return the state that was packed, given what a state of this kind is begun with."""


class AllOrNothing:
    """A context in which states of a learner learn rows of some extent. After an error they are as they were.

    It is also an error if numbers overflow. A copy of a whole state would take longer than to learn a few rows, so
    each state copies only what such rows can change. (A class, since `contextmanager` takes two microseconds more.)
    """

    def __init__(self, learner: Any, states: Sequence[Any], extent: Extent):
        self.learner, self.states, self.extent = learner, states, extent
        self.threads: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        extent = self.extent
        # A dense state makes sparse rows dense, and then they reach all features: infinity times 0 is NaN.
        everything = extent._replace(features=None)
        self.kept = [state.keep(extent if state.sparse else everything) for state in self.states]
        self.tallied = self.learner._progress.copy()
        if extent.rows > FEW:  # to set the threads of BLAS takes as long as to learn a few rows
            self.threads = one_blas_thread()
            self.threads.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.threads is not None:
            self.threads.__exit__(kind, error, trace)
        pairs, sound = list(zip(self.states, self.kept, strict=True)), False
        try:
            sound = error is None and all(state.is_sound(kept) for state, kept in pairs)
            if error is None and not sound:
                raise overflow(self.learner)
        finally:
            for state, kept in pairs:
                if not sound:
                    state.undo(kept)
                state.let_go()
            if not sound:
                self.learner._progress[:] = self.tallied


def overflow(learner: Any, row: int | None = None) -> OverflowError:
    """Return the error that says that numbers overflow at a row of the call, if it is known at which."""
    where = "" if row is None else f" at row {row} of X"
    return OverflowError(
        f"The weights of {type(learner).__name__} would overflow{where}, so none of these rows was learnt. A row, its "
        "weight or its target is too large, or far smaller than those before. If not, a larger alpha0 or a bounded "
        "domain keeps steps shorter."
    )


class OnlineLearner(MergingLearner, Saved, BaseEstimator, metaclass=ABCMeta):
    """A linear model w that is learnt row by row; each row is judged before it is learnt.

    How rows are cut into batches makes no difference but round-off. After an error nothing has changed. Many threads
    may use one learner: calls take turns.
    """

    loss: str
    huber_delta: float
    _frozen: tuple[Any, ...]

    # -- for subclasses

    _names: ClassVar[Any]  # an attrgetter: returns all parameters, quickly

    def _parameters(self) -> tuple[Any, ...]:
        return tuple(type(self)._names(self))

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise unless the parameters are possible."""

    @abstractmethod
    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        """Return the kind of state for rows of d features, and what a state of this kind is begun with."""

    def _keeps_sparse(self, d: int) -> bool:
        """Return whether the state takes sparse rows of d features as they are; else they are made dense."""
        return True

    def _check_loss(self) -> Loss:
        check_choice("loss", self.loss, tuple(LOSSES))
        check_real("huber_delta", self.huber_delta, 0.0, open_low=True)
        return LOSSES[self.loss]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):  # a parameter: the next rows take the long way, where it is looked at
            self.__dict__.pop("_quick", None)

    # -- learning

    @guards_itself
    def learn(self, X: Any, y: Any, sample_weight: Any = None) -> Floats:
        """Learn rows and return the margin w'x of each as it stood before that row was learnt.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : array of shape (n,)
            -1 and +1 for the losses of classification, numbers for the others.
        sample_weight : array of shape (n,), optional
            Weights of the losses. A row of weight 0 is judged, but not learnt and not counted.

        Returns
        -------
        margins : array of shape (n,)

        Raises
        ------
        OverflowError
            If the weights would overflow. None of the rows was learnt then, and learning can go on with others.
        """
        lock = self._lock
        lock.acquire()  # half the time of `with`
        try:
            return self._learn(X, y, sample_weight)
        finally:
            lock.release()

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        # A few plain rows of the known width: all other checks would pass, and take ten times as long.
        if (
            (width := self.__dict__.get("_quick")) is not None
            and sample_weight is None
            and type(X) is np.ndarray
            and type(y) is np.ndarray
            and y.ndim == 1
            and 1 <= len(y) <= FEW
            and X.shape == (len(y), width)
            and X.dtype is y.dtype is FLOAT64
            and X.flags.carray
            and y.flags.carray
        ):
            margins = np.empty(len(y))
            done = self._state.learn(X, y, ONES[len(y)], margins, self._progress)
            if done == len(y):
                return margins
            if done == UNKEPT:
                return self._learn_all(X, y, ONES[len(y)])
        return self._check_and_learn(X, y, sample_weight)

    def _check_and_learn(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        anew = not self.__sklearn_is_fitted__()
        self._check_parameters()
        if not anew and self._frozen != self._parameters():
            raise ValueError(
                "The parameters were changed after rows were learnt. Set them back, or make a new learner."
            )
        before = dict(vars(self))
        try:
            x = check_rows(self, X, reset=anew)
            check_numbers(x)
            y = self._check_labels(y, x.shape[0])
            weight = check_weights(sample_weight, x.shape[0])
            if anew:
                self._begin(x)
            margins = self._learn_all(x, y, weight)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        if self._numbers and self._state.checks_rows and not hasattr(self, "feature_names_in_"):
            self._quick = x.shape[1]
        return margins

    def _begin(self, x: Any) -> None:
        """Make the state before the first rows x."""
        kind, begin_with = self._plan(x.shape[1])
        self._state: State = kind(*begin_with, sparse=sp.issparse(x) and self._keeps_sparse(x.shape[1]))
        self._progress = progress.start()
        self._frozen = self._parameters()
        self._numbers = LOSSES[self.loss].kind != "classification"

    def _learn_all(self, x: Any, y: Floats, weight: Floats) -> Floats:
        """Learn checked rows, all or none, and return their margins."""
        margins, live = np.full(x.shape[0], np.nan), weight > 0
        with AllOrNothing(self, [self._state], extent_of(x)):
            self._state.expect(x.shape[0])
            self._learn_stretches(x, y, weight, margins, live)
        return margins

    def _learn_stretches(self, x: Any, y: Floats, weight: Floats, margins: Floats, live: NDArray[np.bool_]) -> None:
        """Learn rows that are live, and judge the others where they stand."""
        if not live.all():
            start = 0
            for i in np.append(np.flatnonzero(~live), len(live)):
                self._learn_rows(x[start:i], y[start:i], weight[start:i], margins[start:i], start)
                if i < len(live):
                    margins[i] = self._state.margins(x[i : i + 1])[0]
                start = i + 1
        else:
            self._learn_rows(x, y, weight, margins, 0)

    def _learn_rows(self, x: Any, y: Floats, weight: Floats, margins: Floats, first: int) -> None:
        """Learn rows, a block of float64 rows of the kind that the state takes at a time; `first` are before them."""
        sparse, n = self._state.sparse, x.shape[0]
        step, scattered = max(1, CHUNK // x.shape[1]), sp.issparse(x) and not sparse
        if sparse and sp.issparse(x):
            step = n
        elif scattered:
            x, step = as_rows(x, sparse=True), max(1, CACHED // x.shape[1])
            entries = CsrRows(x.data, x.indices, x.indptr)
            room = np.empty((min(step, n), x.shape[1]))
        for start in range(0, n, max(step, 1)):
            stop = min(start + step, n)
            part = slice(start, stop)
            if scattered:
                rows = room[: stop - start]
                scatter_rows(entries, start, rows)
            else:
                rows = as_rows(x if stop - start == n else x[part], sparse=sparse)
            done = self._state.learn(rows, y[part], weight[part], margins[part], self._progress)
            if done < stop - start:
                raise overflow(self, first + start + max(done, 0))

    def _check_labels(self, y: Any, n: int) -> Floats:
        y = np.asarray(y)
        if y.shape != (n,):
            raise ValueError(f"y has shape {y.shape}, but X has {n} rows: expected shape ({n},).")
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must hold numbers, got an array of {y.dtype}: {y!r:.60}.")
        y = writable(np.ascontiguousarray(y, dtype=np.float64))
        if not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity. Every label must be a finite number.")
        if (largest := np.abs(y).max(initial=0.0)) > LARGEST:
            raise ValueError(f"y contains {largest:g} in size; numbers above {LARGEST:g} cannot be squared.")
        if LOSSES[self.loss].kind == "classification" and not np.isin(y, (-1.0, 1.0)).all():
            odd = y[~np.isin(y, (-1.0, 1.0))][0]
            raise ValueError(f"y must hold -1 and +1 only for loss={self.loss!r}, got {odd:g}.")
        return y

    # -- snapshots

    def _pack(self) -> tuple[Document, Tensors]:
        self._require_rows()
        if self._frozen != self._parameters():
            raise ValueError("The parameters were changed after rows were learnt: set them back before saving.")
        return pack_common(self, [self._state.pack()])

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        self._check_parameters()
        (parts,) = unpack_common(self, document, tensors)
        d, sparse = self.n_features_in_, parts.flag("sparse")
        if sparse and not self._keeps_sparse(d):
            raise ValueError(f"sparse rows of {d} features would have been made dense")
        kind, begun_with = self._plan(d)
        self._state = kind.unpack(parts, *begun_with, sparse=sparse)
        if tensors:
            raise ValueError(f"unknown tensors {sorted(tensors)}")
        self._frozen, self._numbers = self._parameters(), LOSSES[self.loss].kind != "classification"

    # -- reading

    def __getstate__(self) -> dict[str, Any]:
        return copy.deepcopy(super().__getstate__())  # loops write to arrays, perhaps before they are pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: writable(value) for name, value in state.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _require_rows(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} has seen no rows yet. Call learn with some first.")

    def decision_function(self, X: Any) -> Floats:
        """Return the margins w'x of rows, which are not learnt."""
        self._require_rows()
        x = check_rows(self, X, reset=False)
        check_numbers(x)
        margins = self._state.margins(x)
        if not np.isfinite(margins).all():
            self.weights_  # noqa: B018  raises if the weights are to blame
        return margins

    @property
    def weights_(self) -> Floats:
        """The weights w after the last row."""
        self._require_rows()
        w = self._state.weights()
        if not np.isfinite(w).all():
            raise OverflowError("The weights are not finite: the steps were too long. Try a larger alpha0.")
        return w

    @property
    def n_samples_seen_(self) -> int:
        """How many rows were learnt."""
        self._require_rows()
        return progress.rows_seen(self._progress)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss of all rows so far, each judged before it was learnt."""
        self._require_rows()
        return progress.mean_loss(self._progress)

    @property
    def progressive_error_(self) -> float:
        """The share of rows so far whose margin had the wrong sign, each judged before it was learnt."""
        self._require_rows()
        return progress.share_of_errors(self._progress)

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows", "loss" and "error": progressive means at 1, 2, 4, ... rows and at the last."""
        self._require_rows()
        return progress.table(self._progress)

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Draw `progressive_`; return the axes."""
        return plot_progress(self.progressive_, ax=ax, label=label, loss=f"{self.loss} loss")

    def regret(self, w: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the loss of all rows so far minus that of the fixed weights w on the same rows, handed in again."""
        self._require_rows()
        x = check_rows(self, X, reset=False)
        check_numbers(x)
        y, weight = self._check_labels(y, x.shape[0]), check_weights(sample_weight, x.shape[0])
        w = np.asarray(w, dtype=np.float64)
        if w.shape != (self.n_features_in_,):
            raise ValueError(f"w has shape {w.shape}, expected ({self.n_features_in_},).")
        if np.count_nonzero(weight) != self.n_samples_seen_:
            raise ValueError(
                f"X has {np.count_nonzero(weight)} rows of weight above 0, but {self.n_samples_seen_} were learnt: "
                "regret needs all of them."
            )
        other = progress.start()
        tally_all(LOSSES[self.loss].code, float(self.huber_delta), np.asarray(x @ w), y, weight, other)
        return progress.total_loss(self._progress) - progress.total_loss(other)
