"""What the estimators over a sketch share: which sketch they keep of their rows, and how it is merged and saved."""

import copy
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from robustfd._container import Document, Saved, Tensors, check_names
from robustfd._guard import guarded_pair
from robustfd._validation import check_choice, check_integer, check_real
from robustfd.online.snapshot import Parts
from robustfd.sketch.exact import ExactSecondMoment
from robustfd.sketch.exact_window import ExactWindow
from robustfd.sketch.frequent_directions import RobustFrequentDirections
from robustfd.sketch.interface import RAW
from robustfd.sketch.sliding import SlidingFrequentDirections
from robustfd.sketch.two_sided import TwoSidedFrequentDirections

Floats = NDArray[np.float64]
Sketch: TypeAlias = (
    ExactSecondMoment | RobustFrequentDirections | TwoSidedFrequentDirections | SlidingFrequentDirections
)
KINDS: dict[str, Any] = {
    each.__name__: each
    for each in (
        ExactSecondMoment,
        ExactWindow,
        RobustFrequentDirections,
        TwoSidedFrequentDirections,
        SlidingFrequentDirections,
    )
}
FEATURES_PER_ROW = 20  # up to so many features for each row of the sketch, the d x d matrix takes less time
MOST_FEATURES = 2000  # and up to so many it takes 32 MB at most
DENSE_BUFFER = 4  # times m: this costs no more time than twice m, and makes the certificate smaller
MOST_WINDOWED = 350  # the same for the 32 matrices of a window


class SketchSizeWarning(UserWarning):
    """A sketch is too small for what is asked of it."""


def exact_is_better(d: int, m: int, per_row: int = FEATURES_PER_ROW) -> bool:
    """Return whether the d x d matrix is to be kept, and not a sketch of m rows."""
    return d <= min(per_row * m, MOST_FEATURES)


def exact_window_is_better(d: int, m: int, window: float) -> bool:
    """Return whether the matrices of a window are to be kept; a short window is a few rows, kept as they are."""
    return window > RAW * m and d <= min(FEATURES_PER_ROW * m, MOST_WINDOWED)


def default_buffer(m: int, d: int, per_row: int) -> int:
    """Return how many rows a sketch of m rows holds before a shrink, about `per_row` times m.

    Between d/2 and 2 d a shrink takes longest, as neither the rows nor the columns are few.
    """
    buffer = per_row * m
    if d / 2 < buffer < 2 * d:
        buffer = d // 2 if d // 2 >= 2 * m else max(m, 2 * d)
    return buffer


class SketchEstimator(Saved, BaseEstimator):
    """An estimator that keeps a sketch of its rows in `sketch_`."""

    _kind: ClassVar[type] = RobustFrequentDirections  # the sketch of rows that are too wide for the exact matrix
    _features_per_row: ClassVar[int] = FEATURES_PER_ROW
    _sparse_buffer: ClassVar[int] = 2 * DENSE_BUFFER  # for sparse rows, which need little memory

    sketch_size: Any
    buffer_size: int | None
    decay: float
    solver: str
    window: float | None
    sketch_: Any
    n_features_in_: int
    _kept: dict[str, Any]  # what was computed from the sketch, until it changes

    # -- for subclasses

    def _auto_size(self) -> int:
        """Return m of the sketch with `sketch_size="auto"`."""
        raise NotImplementedError

    @property
    def _alpha0(self) -> float:
        """The multiple of the identity that the sketch starts from."""
        return 0.0

    def _check_merge(self, other: Any) -> None:
        """Raise if another estimator cannot be merged with this one, the copy that becomes the result."""

    def _merge_own(self, other: Any, *, begun: bool) -> None:
        """Take in what another has beside its sketch; unless `begun`, there were no rows here before."""

    def _pack_own(self) -> tuple[Document, Tensors]:
        """Return what is kept beside the sketch."""
        return {}, {}

    def _unpack_own(self, parts: Parts) -> None:
        """Take that out again, the sketch being there."""

    # -- the sketch

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.sketch_size, str) and self.sketch_size == "auto"

    def _check_size(self) -> int:
        """Return m after all parameters of the sketch were checked."""
        m = self.sketch_size
        if self._is_auto:
            m = self._auto_size()
        elif isinstance(m, str) or m is None:
            raise TypeError(f"sketch_size must be an integer of at least 2 or 'auto', got {m!r}.")
        m = check_integer("sketch_size", m, 2)
        if self.buffer_size is not None:
            check_integer("buffer_size", self.buffer_size, m)
        check_real("decay", self.decay, 0.0, 1.0, open_low=True)
        check_choice("solver", self.solver, ("auto", "gram", "svd"))
        if self.window is not None:
            check_real("window", self.window, 0.0, open_low=True)
            for name, default in (("buffer_size", None), ("decay", 1.0), ("solver", "auto")):
                if getattr(self, name) != default:
                    raise ValueError(
                        f"{name} is for sketches of all rows: with window={self.window!r} leave it at {default!r}."
                    )
        return m

    def _new_sketch(self, d: int, *, sparse: bool, center: bool) -> Any:
        """Return the sketch that rows of d features are to go into."""
        m, alpha0 = self._check_size(), self._alpha0
        if self.window is not None and self._is_auto and exact_window_is_better(d, m, self.window):
            return ExactWindow(self.window, center=center, alpha0=alpha0)
        if self.window is not None:
            return SlidingFrequentDirections(self.window, m, clock="rows", center=center, alpha0=alpha0)
        if self._is_auto and exact_is_better(d, m, self._features_per_row):
            return ExactSecondMoment(center=center, alpha0=alpha0, decay=self.decay)
        m = min(m, d + 1) if self._is_auto else m  # with d + 1 rows nothing is ever taken
        buffer = self.buffer_size
        if buffer is None:
            buffer = default_buffer(m, d, self._sparse_buffer if sparse else DENSE_BUFFER)
        return self._kind(m, buffer_size=buffer, center=center, alpha0=alpha0, decay=self.decay, solver=self.solver)

    def _next_sketch(self) -> Any:
        """Return a copy of the sketch to go on with, with those parameters changed that may change."""
        m, before = self._check_size(), self.sketch_
        then, now = getattr(before, "window", None), self.window
        if (then is None) != (now is None):
            raise ValueError(_changed("window", then, now))
        if not self._is_auto and isinstance(before, ExactSecondMoment):
            raise ValueError(_changed("sketch_size", "auto", self.sketch_size))
        sketch = copy.copy(before).set_params(alpha0=self._alpha0)
        if now is not None:
            sketch.set_params(window=now)
        else:
            sketch.set_params(decay=self.decay)
        if not self._is_auto:
            sketch.set_params(sketch_size=m)
        if isinstance(before, self._kind) and now is None:
            sketch.set_params(solver=self.solver, **({"buffer_size": self.buffer_size} if self.buffer_size else {}))
        return sketch

    @guarded_pair
    def merge(self, other: Any) -> Self:
        """Take in all that another such estimator, with the same parameters, has seen; return self."""
        if not isinstance(other, type(self)):
            raise TypeError(f"other must be a {type(self).__name__}, got a {type(other).__name__}.")
        after, begun = copy.copy(self), self.__sklearn_is_fitted__()  # an error leaves all as it was
        after._check_merge(other)
        if not other.__sklearn_is_fitted__():
            return self
        after.sketch_, after._kept = self._merged_sketch(other), {}
        if not begun:
            after._adopt_columns(other)
        after._merge_own(other, begun=begun)
        self.__dict__ = after.__dict__
        return self

    def _merged_sketch(self, other: "SketchEstimator") -> Any:
        """Return a sketch of all rows of both, the other one having some."""
        theirs = copy.copy(other.sketch_)
        if self.__sklearn_is_fitted__():
            mine = self._next_sketch()
        else:
            mine = self._new_sketch(other.n_features_in_, sparse=False, center=theirs.center)
            if self._is_auto and type(theirs) is not type(mine):
                mine = type(theirs)(**theirs.get_params(deep=False)).set_params(alpha0=self._alpha0)
        if type(mine) is not type(theirs):
            names = type(mine).__name__, type(theirs).__name__
            raise ValueError(f"Cannot merge: there is a {names[0]} here and a {names[1]} there. Use one sketch_size.")
        if self.buffer_size is None and other.buffer_size is None and hasattr(mine, "buffer_size"):
            # It was chosen by the first rows, and need not be the same.
            theirs.buffer_size = mine.buffer_size
            theirs._seen_structure = theirs._structural_parameters()
        self._check_names(other)
        return mine.merge(theirs)

    def _check_names(self, other: "SketchEstimator") -> None:
        here, there = (getattr(each, "feature_names_in_", None) for each in (self, other))
        if here is not None and there is not None and not np.array_equal(here, there):
            raise ValueError(f"Cannot merge: feature_names_in_ is {here} here and {there} there.")

    def _adopt_columns(self, other: "SketchEstimator") -> None:
        """Take over what the columns of another are called, before any rows of our own."""
        for name in ("n_features_in_", "feature_names_in_"):
            if name in vars(other):
                setattr(self, name, getattr(other, name))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | {"_kept": {}} if "_kept" in state else state  # it can be made again

    # -- reading

    def __sklearn_is_fitted__(self) -> bool:
        return "sketch_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        text = super().__repr__(N_CHAR_MAX)
        return f"{text} over {self.sketch_!r}" if self.__sklearn_is_fitted__() else text

    def _fitted(self) -> Any:
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise NotFittedError(f"This {name} has seen no rows yet. Call fit or partial_fit with some first.")
        return self.sketch_

    @property
    def rfd_(self) -> Any:
        """`sketch_` by its former name."""
        return self._fitted()

    @property
    def n_samples_seen_(self) -> int:
        """How many rows were seen, those of weight 0 not counted."""
        return int(self._fitted().n_samples_seen_)

    # -- on disk

    def _pack(self) -> tuple[Document, Tensors]:
        sketch = self._fitted()
        self._check_size()
        document, tensors = sketch._pack()
        own, arrays = self._pack_own()
        inner = {"kind": type(sketch).__name__, "params": sketch._saved_params(), **document}
        names = list(getattr(self, "feature_names_in_", []))
        tensors = {f"sketch.{name}": value for name, value in tensors.items()}
        tensors |= {f"own.{name}": value for name, value in arrays.items()}
        return {"sketch": inner, "own": own, "feature_names": names}, tensors

    def _unpack(self, document: Document, tensors: Tensors) -> None:
        m, inner, names = self._check_size(), document.pop("sketch"), document.pop("feature_names")
        kind = inner.pop("kind")
        check_choice("kind", kind, tuple(KINDS))
        sketch = KINDS[kind]._from_params(inner.pop("params"))
        sketch._unpack(inner, {name[7:]: tensors.pop(name) for name in list(tensors) if name.startswith("sketch.")})
        if not self._is_auto and getattr(sketch, "sketch_size", None) != m:
            raise ValueError(f"a {kind} for sketch_size={m}")
        if (self.window is None) == (kind in (SlidingFrequentDirections.__name__, ExactWindow.__name__)):
            raise ValueError(f"a {kind} for window={self.window}")
        self.sketch_, self.n_features_in_, self._kept = sketch, sketch.n_features_in_, {}
        check_names(names, self.n_features_in_)
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        parts = Parts(document.pop("own"), tensors, "own.")
        self._unpack_own(parts)
        parts.close()
        if document or tensors:
            raise ValueError(f"unknown parts {sorted([*document, *tensors])}")


def _changed(name: str, then: Any, now: Any) -> str:
    return (
        f"{name} was changed from {then!r} to {now!r} after rows were seen. Set it back to {then!r}, or "
        "call fit to start anew."
    )
