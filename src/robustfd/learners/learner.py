"""The base class of the paper's learners: checks of input, all-or-nothing updates, merging, losses and snapshots."""

import copy
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors
from robustfd._core import scatter_rows
from robustfd._guard import guarded_pair, guards_itself
from robustfd._jobs import seed_of_part
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import (
    check_choice,
    check_integer,
    check_real,
    check_rows,
    check_same_features,
    check_same_params,
    check_weights,
)
from robustfd.learners import progress
from robustfd.learners.losses import LOSSES, Loss, check_labels
from robustfd.learners.rows import CHUNK, FEW, FLOAT64, Floats, as_rows, check_numbers, writable
from robustfd.learners.snapshot import pack_common, unpack_common
from robustfd.linalg.threads import one_blas_thread

CACHED = 2**16  # entries of the dense chunks into which sparse rows are converted


def keep(states: Sequence[Any]) -> Callable[[], None]:
    """Begin a call and return a function that restores the states. `commit` of the states ends the call."""
    for state in states:
        state.begin()

    def undo() -> None:
        for state in states:
            state.rollback()

    return undo


def check_sound(learner: Any, states: Sequence[Any]) -> None:
    """Raise if the call made numbers overflow."""
    if not all(state.is_sound() for state in states):
        raise overflow(learner)


def one_thread_for(rows: int) -> AbstractContextManager[Any]:
    """Return a context with one BLAS thread. Setting their number takes as long as learning a few rows."""
    return one_blas_thread() if rows > FEW else nullcontext()


def overflow(learner: Any, row: int | None = None) -> OverflowError:
    """Return the error for an overflow, with the row of the call at which it occurs if known."""
    where = "" if row is None else f" at row {row} of X"
    return OverflowError(
        f"The weights of {type(learner).__name__} would overflow{where}, so none of these rows was learned. A row, its "
        "weight or its target is too large, or far smaller than those before. If not, a larger alpha0 or a bounded "
        "domain keeps steps shorter."
    )


class OnlineLearner(Saved, BaseEstimator, metaclass=ABCMeta):
    """A linear model w that learns one row at a time and predicts each row before learning from it.

    The batch size affects the result by rounding error only. After an error the learner is unchanged. A learner is
    thread-safe: a lock serializes the calls.
    """

    loss: str
    huber_delta: float
    _frozen: tuple[Any, ...]
    _progress: Floats
    _state: Any

    _names: ClassVar[Any]  # an attrgetter of all parameters, much faster than get_params

    def _parameters(self) -> tuple[Any, ...]:
        return tuple(type(self)._names(self))

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise an error if a parameter is invalid."""

    @abstractmethod
    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        """Return the class of the state for rows with d features, and the arguments of its constructor.

        A state changes in place. `NewtonState` has all methods that this class calls.
        """

    def _keeps_sparse(self, d: int) -> bool:
        """Return whether sparse rows with d features stay sparse; otherwise they are converted to dense rows."""
        return True

    def _check_loss(self) -> Loss:
        check_choice("loss", self.loss, tuple(LOSSES))
        check_real("huber_delta", self.huber_delta, 0.0, open_low=True)
        return LOSSES[self.loss]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):  # a parameter: the next call must check it again
            self.__dict__.pop("_quick", None)

    # -- learning

    @guards_itself
    def learn(self, X: Any, y: Any, sample_weight: Any = None) -> Floats:
        """Learn from rows in order; return the margin w'x of each row before its own step.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            Rows.
        y : array of shape (n,)
            Labels: -1 and +1 for classification losses, numbers for the others.
        sample_weight : array of shape (n,), optional
            Weights of the losses. A row of weight 0 gets a margin, but is not learned and not counted.

        Returns
        -------
        margins : array of shape (n,)
            Margin of each row, computed before the row was learned.

        Raises
        ------
        OverflowError
            If the weights would overflow. Then none of the rows was learned, and learning can continue with other rows.
        """
        try:  # as in `guarded`, without its cost
            self._lock.acquire()
            return self._learn(X, y, sample_weight)
        finally:
            try:  # noqa: SIM105
                self._lock.release()
            except RuntimeError:
                pass

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        # A fast path for a few plain rows of the known width, which need no further checks.
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
            if self._state.learn_few(X, y, margins, self._progress):
                return margins
        return self._check_and_learn(X, y, sample_weight)

    def _check_and_learn(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        reset = not self.__sklearn_is_fitted__()
        self._check_parameters()
        if not reset:
            self._require_same_parameters()
        before, undo = dict(vars(self)), keep(())
        try:  # a signal handler may raise after any call
            x = check_rows(self, X, reset=reset)
            check_numbers(x)
            y = check_labels(self.loss, y, x.shape[0])
            weight = check_weights(sample_weight, x.shape[0])
            if reset:
                self._begin(x)
            undo, self._progress = keep([self._state]), self._progress.copy()
            margins = self._learn_all(x, y, weight)
            check_sound(self, [self._state])
        except BaseException:
            undo()
            self.__dict__ = before
            raise
        self._state.commit()
        if (
            LOSSES[self.loss].kind != "classification"
            and self._state.checks_rows
            and not hasattr(self, "feature_names_in_")
        ):
            self._quick = x.shape[1]
        return margins

    def _begin(self, x: Any) -> None:
        """Create the state before the first rows x."""
        kind, arguments = self._plan(x.shape[1])
        self._state = kind(*arguments, sparse=sp.issparse(x) and self._keeps_sparse(x.shape[1]))
        self._progress = progress.start()
        self._frozen = self._parameters()

    def _learn_all(self, x: Any, y: Floats, weight: Floats) -> Floats:
        """Learn from checked rows, and return their margins; rows of weight 0 are only predicted."""
        n, margins, start = x.shape[0], np.full(x.shape[0], np.nan), 0
        with one_thread_for(n):
            for stop in [*np.flatnonzero(weight == 0), n]:
                rows = x if stop - start == n else x[start:stop]
                self._learn_rows(rows, y[start:stop], weight[start:stop], margins[start:stop], start)
                if stop < n:
                    margins[stop] = self._state.margins(x[stop : stop + 1])[0]
                start = stop + 1
        return margins

    def _learn_rows(self, x: Any, y: Floats, weight: Floats, margins: Floats, first: int) -> None:
        """Learn from rows in chunks, converted to the format of the state; `first` is their index in the call."""
        sparse, n = self._state.sparse, x.shape[0]
        step, scattered = max(1, CHUNK // x.shape[1]), sp.issparse(x) and not sparse
        if sparse and sp.issparse(x):
            step = n
        elif scattered:
            x, step = as_rows(x, sparse=True), max(1, CACHED // x.shape[1])
            dense = np.empty((min(step, n), x.shape[1]))
        for start in range(0, n, max(step, 1)):
            stop = min(start + step, n)
            part = slice(start, stop)
            if scattered:
                rows = dense[: stop - start]
                scatter_rows((x.data, x.indices, x.indptr[start : stop + 1]), rows)
            else:
                rows = as_rows(x if stop - start == n else x[part], sparse=sparse)
            done = self._state.learn(rows, y[part], weight[part], margins[part], self._progress)
            if done < stop - start:
                raise overflow(self, first + start + done)

    # -- merging

    @guarded_pair
    def merge(self, other: Any) -> Any:
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
            fitted = ("_state", "_progress", "_frozen", "n_features_in_", "feature_names_in_")
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
        if not isinstance(other, OnlineLearner):
            return NotImplemented
        return copy.copy(self).merge(other)

    def split(self, k: int) -> list[Any]:
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

    def _some_parts(self, k: int, which: Sequence[int]) -> list[Any]:
        """Return the learners of `split(k)` with these indices, without computing the others."""
        parts = [copy.copy(self) for _ in which]
        for i, part in zip(which, parts, strict=True):
            if self.__sklearn_is_fitted__():
                part._state = self._state.fraction(k, i)
                part._progress = progress.fraction(self._progress, k, i)
            elif hasattr(self, "random_state"):
                part.random_state = seed_of_part(self.random_state, i)
        return parts

    # -- snapshots

    def _pack(self) -> tuple[Document, Tensors]:
        self._require_rows()
        self._require_same_parameters()
        return pack_common(self, [self._state.pack()])

    def _require_same_parameters(self) -> None:
        if self._frozen == self._parameters():
            return
        raise ValueError("The parameters were changed after rows were learned. Set them back, or make a new learner.")

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        self._check_parameters()
        (parts,) = unpack_common(self, document, tensors)
        d, sparse = self.n_features_in_, parts.flag("sparse")
        if sparse and not self._keeps_sparse(d):
            raise ValueError(f"sparse rows of {d} features would have been made dense")
        kind, arguments = self._plan(d)
        self._state = kind.unpack(parts, *arguments, sparse=sparse)
        if tensors:
            raise ValueError(f"unknown tensors {sorted(tensors)}")
        self._frozen = self._parameters()

    # -- reading

    def __getstate__(self) -> dict[str, Any]:
        return copy.deepcopy(super().__getstate__())  # another thread may change the arrays before they are pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: writable(value) for name, value in state.items()})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _require_rows(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} has seen no rows yet. Call learn with some first.")

    def _tallied(self) -> Floats:
        self._require_rows()
        return self._progress

    def _known_rows(self, X: Any) -> Any:
        self._require_rows()
        x = check_rows(self, X, reset=False)
        check_numbers(x)
        return x

    def decision_function(self, X: Any) -> Floats:
        """Return the margins w'x of rows, without learning from them.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            Rows.

        Returns
        -------
        margins : array of shape (n,)
        """
        x = self._known_rows(X)
        margins = self._state.margins(x)
        if not np.isfinite(margins).all():
            self.weights_  # noqa: B018  raises if the weights are not finite
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
        """Number of rows learned so far."""
        return progress.rows_seen(self._tallied())

    @property
    def progressive_loss_(self) -> float:
        """Mean loss of all rows so far, each predicted before it was learned."""
        return progress.mean_loss(self._tallied())

    @property
    def progressive_error_(self) -> float:
        """Share of rows so far whose margin had the wrong sign, each predicted before it was learned."""
        return progress.share_of_errors(self._tallied())

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows", "loss" and "error": progressive means after 1, 2, 4, ... rows and after the last row."""
        return progress.table(self._tallied())

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Plot `progressive_`.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on. Default is a new figure.
        label : str, optional
            Name of the learner in the legend.

        Returns
        -------
        ax : matplotlib axes
        """
        return progress.plot_progress(self.progressive_, ax=ax, label=label, loss=f"{self.loss} loss")

    def regret(self, w: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the loss of all rows so far minus the loss of fixed weights on the same rows.

        Parameters
        ----------
        w : array of shape (d,)
            Weights to compare with.
        X, y, sample_weight
            All rows learned so far, as passed to `learn`.

        Returns
        -------
        regret : float
        """
        x = self._known_rows(X)
        y, weight = check_labels(self.loss, y, x.shape[0]), check_weights(sample_weight, x.shape[0])
        w = np.asarray(w, dtype=np.float64)
        if w.shape != (self.n_features_in_,):
            raise ValueError(f"w has shape {w.shape}, expected ({self.n_features_in_},).")
        if np.count_nonzero(weight) != self.n_samples_seen_:
            raise ValueError(
                f"X has {np.count_nonzero(weight)} rows of weight above 0, but {self.n_samples_seen_} were learned: "
                "regret needs all of them."
            )
        other = progress.start()
        progress.tally_all(LOSSES[self.loss].code, float(self.huber_delta), np.asarray(x @ w), y, weight, other)
        return progress.total_loss(self._progress) - progress.total_loss(other)
