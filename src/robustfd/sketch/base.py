"""The common base of all sketches: fitting, reading at any time, merging, saving."""

import copy
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Saved, Tensors
from robustfd._guard import guarded, guarded_pair
from robustfd._jobs import count_jobs, seed_of_part, side_by_side
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import (
    changed,
    check_choice,
    check_integer,
    check_real,
    check_rows,
    check_same_features,
    check_same_params,
    check_times,
    check_weights,
)
from robustfd.linalg.decompose import Solver
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch import snapshot
from robustfd.sketch.merging import merge
from robustfd.sketch.rows import Contents, Floats, Queue, Rows
from robustfd.sketch.view import View

MIN_ROWS_PER_PART = 4096  # with fewer rows, merging costs more than parallel fitting saves
EPS, EPS32 = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
FITTED_ATTRIBUTES = ("_state", "_queue", "_tail", "_cached", "_n_seen", "_single", "_seen_structure")
MIN_FACTOR = 1e-250  # smaller factors have the same effect; the floor keeps logarithms and their sums finite


class BaseSketch(Saved, BaseEstimator, metaclass=ABCMeta):
    """Base class of the streaming sketches of A'A. States are immutable, so an error leaves a sketch unchanged."""

    _structure: ClassVar[tuple[str, ...]] = ("sketch_size", "buffer_size", "center")  # must not change after fitting
    _state_type: ClassVar[type]

    sketch_size: int
    buffer_size: int | None
    alpha0: float
    decay: float
    center: bool
    solver: Solver
    n_features_in_: int

    _state: Any
    _queue: Queue
    _tail: float  # a factor still to be applied to the state and the queue
    _n_seen: int
    _single: bool  # whether all rows were float32; the sketch is then float32 too
    _seen_structure: dict[str, Any]
    _cached: tuple[Any, View] | None  # the parameters that the last view was made with, and the view

    # -- implemented by subclasses

    @abstractmethod
    def _start(self, d: int) -> Any:
        """Return the state before any row."""

    @abstractmethod
    def _absorb(self, state: Any, queue: Queue) -> tuple[Any, Queue]:
        """Return the state after processing rows from the front of the queue, and the queue without them."""

    @abstractmethod
    def _read(self, contents: Contents) -> View:
        """Return the view of the state after all queued rows, multiplied by the factor."""

    @abstractmethod
    def _union(self, one: Contents, two: Contents) -> tuple[Any, Queue]:
        """Return the state of the rows of both, and the queue."""

    def _clocks(self, weight: Floats, times: Floats | None) -> Floats | None:
        """Return the clocks of the rows; None if the sketch has no window."""
        return None

    def _check_parameters(self) -> None:
        """Raise an error if a parameter is invalid."""
        if hasattr(self, "sketch_size"):
            check_integer("sketch_size", self.sketch_size, 2)
        if getattr(self, "buffer_size", None) is not None:
            check_integer("buffer_size", self.buffer_size, self.sketch_size)
        check_real("alpha0", self.alpha0, 0.0)
        check_real("decay", self.decay, 0.0, 1.0, open_low=True)
        check_choice("center", self.center, (True, False))
        if hasattr(self, "solver"):
            check_choice("solver", self.solver, ("auto", "svd"))

    # -- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, n_jobs: int | None = None) -> Self:
        """Sketch the rows of X from scratch.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight s counts as sqrt(s) times the row. Rows of weight 0 are ignored.
        n_jobs : int, optional
            Number of parts of X that are sketched in parallel and merged; -1 means the number of cores. A part has at
            least 4096 rows. The parts run in threads or, for the frequent-directions family and 131,072 rows or more,
            in processes, with the same result. Not available with decay or a sliding window.

        Returns
        -------
        self
        """
        jobs = count_jobs("n_jobs", n_jobs)
        return self._learn(X, sample_weight, reset=True) if jobs == 1 else self._learn_in_parts(X, sample_weight, jobs)

    def _learn_in_parts(self, X: Any, sample_weight: Any, jobs: int) -> Self:
        """Sketch parts of the rows in parallel and merge them."""
        self._some_parts(jobs, ())  # raises an error if the order of the rows matters
        after = copy.copy(self)  # work on a copy, so that an error leaves self unchanged
        x = check_rows(after, X, reset=True)
        weight = check_weights(sample_weight, x.shape[0])
        jobs = max(min(jobs, x.shape[0] // MIN_ROWS_PER_PART), 1)
        cuts = np.linspace(0, x.shape[0], jobs + 1).astype(int)
        some = [slice(*each) for each in pairwise(cuts) if weight[slice(*each)].any()]
        if len(some) < 2:
            return self._learn(X, sample_weight, reset=True)
        parts = type(self)(**self.get_params()).split(jobs)
        learn = partial(BaseSketch._learn, reset=True)
        work = [(part, x[rows], weight[rows]) for part, rows in zip(parts, some, strict=False)]
        merged = merge(side_by_side(learn, work, processes=self._gains_by_processes(x.shape[0])))
        self.__dict__ = vars(after) | {name: vars(merged)[name] for name in FITTED_ATTRIBUTES}
        return self

    def _gains_by_processes(self, n: int) -> bool:
        """Return whether processes are faster than threads for n rows in all."""
        return False

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add the rows of X to the sketch. The result does not depend on how the rows are split into batches.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            After the first call, n may be 0.
        y : ignored
        sample_weight : array of shape (n,), optional
            As for `fit`.

        Returns
        -------
        self
        """
        return self._learn(X, sample_weight, reset=not self.__sklearn_is_fitted__())

    def forget(self, factor: float) -> Self:
        """Multiply A'A of all rows so far by a factor, once. The mean does not change.

        Parameters
        ----------
        factor : float in (0, 1]

        Returns
        -------
        self
        """
        self._require_rows()
        self._tail = max(self._tail * check_real("factor", factor, 0.0, 1.0, open_low=True), MIN_FACTOR)
        self._cached = None
        return self

    def _learn(self, X: Any, sample_weight: Any, *, reset: bool, times: Any = None) -> Self:
        self._check_parameters()
        if not reset:
            self._check_structure()
        after = copy.copy(self)  # work on a copy, so that an error leaves self unchanged
        x = check_rows(after, X, reset=reset)
        weight = check_weights(sample_weight, x.shape[0])
        times = None if times is None else check_times(times, x.shape[0])
        if not weight.all():
            live = weight > 0
            x, weight, times = x[live], weight[live], None if times is None else times[live]
        if reset:
            if not len(weight):
                raise ValueError("sample_weight is zero for every row; the first rows need a weight above 0.")
            after._state, after._queue, after._tail = self._start(x.shape[1]), Queue(), 1.0
            after._n_seen, after._single = 0, True
            after._seen_structure = self._structural_parameters()
        if len(weight):
            decay = np.full(len(weight), float(self.decay))
            decay[0] *= after._tail
            after._tail = 1.0
            clocks = after._clocks(weight, times)
            after._queue = after._queue.plus(Rows(x, weight, np.maximum(decay, MIN_FACTOR), clocks))
        # Numbers that are not finite raise an error later, so numpy need not warn.
        with np.errstate(over="ignore", invalid="ignore"):
            after._state, after._queue = self._absorb(after._state, after._queue)
        after._n_seen += len(weight)
        after._single = after._single and (x.dtype == np.float32 or not len(weight))
        after._cached = None
        self.__dict__ = after.__dict__
        return self

    def _structural_parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._structure}

    def _check_structure(self) -> None:
        for name, now in self._structural_parameters().items():
            then = self._seen_structure[name]
            if now != then:
                raise changed(name, then, now)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_cached", None)  # cheap to recompute
        return state

    # -- reading

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _require_rows(self) -> None:
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise NotFittedError(f"This {name} has seen no rows yet. Call fit or partial_fit with some first.")

    @property
    @guarded  # estimators read it from other threads
    def _view(self) -> View:
        self._require_rows()
        self._check_parameters()
        self._check_structure()
        return self._viewed(None, self._read)

    def _leading(self, k: int) -> View:
        """Return a view with at least the k largest directions. Some sketches compute it faster than the full view."""
        return self._view

    def _viewed(self, most: int | None, read: Callable[[Contents], View]) -> View:
        """Return `read` of the contents, cached until rows are added; `most` is part of the cache key."""
        key = (self.alpha0, getattr(self, "solver", None), most)
        cached: tuple[Any, View] | None = getattr(self, "_cached", None)
        if cached is None or cached[0] != key:
            with one_blas_thread():
                view = read(Contents(self._state, self._queue, self._tail))
            cast = EPS32 * np.sqrt(len(view.lam)) * view.lam.max(initial=0.0) if self._single else 0.0
            rounded = cast + 2.0 * EPS * float(self.alpha0)  # of `_cast`, and of sums with alpha0
            view = replace(view, error_bound=float(view.error_bound + rounded))
            cached = self._cached = (key, view)
        return cached[1]

    def _cast(self, rows: Floats) -> NDArray[np.floating]:
        # All arithmetic is float64. In float32 a shrink step could not resolve squares below 1e-7 of the largest.
        return rows.astype(np.float32 if self._single else np.float64)

    @property
    def sketch_(self) -> NDArray[np.floating]:
        """B: at most m - 1 orthogonal rows, longest first, such that B'B + alpha I approximates A'A + alpha0 I."""
        view = self._view
        return self._cast(np.sqrt(view.lam)[:, None] * view.components)

    @property
    def components_(self) -> NDArray[np.floating]:
        """The unit vectors along the rows of the sketch."""
        return self._cast(self._view.components)

    @property
    def singular_values_(self) -> Floats:
        """The lengths of the rows of the sketch, descending."""
        return np.sqrt(self._view.lam)

    @property
    def alpha_(self) -> float:
        """The multiple of the identity that is added to B'B."""
        return self._view.alpha

    @property
    def error_bound_(self) -> float:
        """The certificate: ||A'A + alpha0 I - second_moment()||_2 is at most this, rounding errors included."""
        return self._view.error_bound

    @property
    def relative_error_bound_(self) -> float:
        """A certified bound on the error relative to ||A'A||_2, which is itself replaced by a lower bound."""
        return self._view.relative_error_bound(min(self._n_seen, self.n_features_in_))

    @property
    def squared_norm_(self) -> float:
        """||A||_F^2 of the weighted, decayed and centred rows."""
        return self._view.squared_norm

    @property
    def weight_sum_(self) -> float:
        """The total weight of the rows after decay. Without weights and decay it is the number of rows."""
        return self._view.weight

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows seen, without those of weight 0."""
        self._require_rows()
        return self._n_seen

    @property
    def mean_(self) -> Floats:
        """The mean of the rows. Available only with `center=True`."""
        mean = self._view.mean
        if mean is None:
            raise AttributeError("mean_ is available only with center=True.")
        return mean.copy()

    def second_moment(self) -> LowRankPlusIdentity:
        """Return the approximation of A'A + alpha0 I. If `alpha_` is 0, it is singular and uses the pseudo-inverse."""
        view = self._view  # not cast: float32 would round a large alpha0 by more than the certificate
        return LowRankPlusIdentity(view.components.copy(), view.lam, view.alpha)

    def covariance(self, ddof: float = 1) -> LowRankPlusIdentity:
        """Return the second moment divided by (total weight - ddof).

        With `center=True` this is the covariance matrix. Otherwise the rows are assumed to have mean zero.
        """
        view = self._view
        if not view.weight > ddof:
            raise ValueError(f"covariance needs a total weight above ddof={ddof:g}, but it is {view.weight:g}.")
        return self.second_moment().scaled(1.0 / (view.weight - ddof))

    def bracket_eigenvalues(self) -> tuple[Floats, Floats]:
        """Return certified bounds (lower, upper) on the largest eigenvalues of A'A + alpha0 I, descending.

        There is one pair for each row of the sketch. The bounds follow from Weyl's monotonicity theorem, because A'A
        lies between two known matrices.
        """
        view = self._view
        return view.bracket_eigenvalues(len(view.lam))

    def bracket_logdet(self) -> tuple[float, float]:
        """Return certified bounds (lower, upper) on log det(A'A + alpha0 I). The lower bound may be -inf."""
        return self._view.bracket_logdet(self.n_features_in_)

    @one_blas_thread()
    def bracket_mahalanobis(self, X: Any) -> tuple[Floats, Floats]:
        """Return certified bounds (lower, upper) on the squared distances x'(A'A + alpha0 I)^-1 x.

        The distances are measured from the origin. With `center=True`, subtract `mean_` from the rows of X first. The
        upper bound is inf where none is known.
        """
        view, x = self._view, check_rows(self, X, reset=False)
        from sklearn.utils import assert_all_finite

        assert_all_finite(x, input_name="X")
        return view.bracket_distances(x)

    # -- merging

    @guarded_pair
    def merge(self, other: "BaseSketch") -> Self:
        """Add all rows of another sketch to this one and return self. The other sketch does not change.

        The certificate holds for the union of the rows.
        """
        self._check_mergeable(other)
        if not other.__sklearn_is_fitted__():
            return self
        if not self.__sklearn_is_fitted__():
            keep = (*FITTED_ATTRIBUTES, "n_features_in_", "feature_names_in_")
            self.__dict__.update({k: v for k, v in vars(other).items() if k in keep})
            return self
        one, two = (Contents(each._state, each._queue, each._tail) for each in (self, other))
        with one_blas_thread():
            self._state, self._queue = self._union(one, two)
        self._tail, self._cached = 1.0, None
        self._n_seen, self._single = self._n_seen + other._n_seen, self._single and other._single
        return self

    def split(self, k: int) -> list[Self]:
        """Return k sketches for parts of the future rows, to be merged later. The first contains the rows so far.

        Randomised sketches get different seeds. Not available with decay or a sliding window, where the order of the
        rows matters.
        """
        return self._some_parts(check_integer("k", k, 1), range(k))

    def _some_parts(self, k: int, which: Sequence[int]) -> list[Self]:
        """Return the sketches of `split(k)` with these indices, without creating the others."""
        self._check_parameters()
        if self.decay != 1.0 or hasattr(self, "window"):
            raise ValueError("Cannot sketch parts in parallel with decay or a window: the order of the rows matters.")
        parts = [type(self)(**self.get_params()) if i else copy.copy(self) for i in which]
        for i, part in zip(which, parts, strict=True):
            if hasattr(self, "random_state"):
                part.random_state = seed_of_part(self.random_state, i)
        return parts

    def __add__(self, other: Any) -> Self:
        """Return a new sketch of the rows of both."""
        return copy.copy(self).merge(other) if isinstance(other, BaseSketch) else NotImplemented

    def _check_mergeable(self, other: Any) -> None:
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge a {type(self).__name__} with a {type(other).__name__}: the classes differ.")
        mine, theirs = self.get_params(deep=False), other.get_params(deep=False)
        structure = {name: mine[name] for name in mine if name not in ("solver", "random_state")}
        check_same_params("sketches", structure, theirs)
        check_same_features("sketches", self, other, if_known=True)
        for each in (self, other):
            each._check_parameters()
            if each.__sklearn_is_fitted__():
                each._check_structure()

    def _widened(self, d: int) -> Self:
        """Return a copy with d columns, as if all rows so far had had zeros in the new ones."""
        if hasattr(self, "window"):
            raise ValueError("New features cannot appear in a sliding window. Name all of them in the first row.")
        wide, shapes, more = copy.copy(self), self._state.ARRAYS, d - self.n_features_in_
        wide._state = replace(self._state, **{
            name: np.pad(array, [(0, more if axis == "d" else 0) for axis in shape.split()])
            for name, shape in shapes.items() if (array := getattr(self._state, name)) is not None
        })  # fmt: skip
        wide._queue = replace(self._queue, pieces=tuple(rows.widened(d) for rows in self._queue.pieces))
        wide.n_features_in_, wide._cached = d, None
        return wide

    # -- saving

    def _pack(self) -> tuple[Document, Tensors]:
        self._require_rows()
        self._check_structure()
        return snapshot.pack(self)

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        snapshot.unpack(self, document, tensors)

    def _stored_state(self) -> Any:
        """Return the state for a snapshot: an object of `_state_type`."""
        return self._state

    def _restored_state(self, stored: Any, structure: dict[str, Any], d: int) -> Any:
        """Return the state from a snapshot, whose arrays have the right shapes. Raise an error if it makes no sense."""
        return stored
