"""Base class of estimators that keep a sketch: choice of the sketch, merging and snapshots."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from robustfd._container import Document, Saved, Tensors, check_names
from robustfd._guard import guarded_pair
from robustfd._sklearn import BaseEstimator, NotFittedError
from robustfd._validation import changed, check_choice, check_integer, check_real, check_weights
from robustfd.estimators._onnx import Exported
from robustfd.estimators._rows import entries_of_dict
from robustfd.learners.snapshot import Parts
from robustfd.sketch.exact import ExactSecondMoment, ExactWindow
from robustfd.sketch.frequent_directions import RobustFrequentDirections
from robustfd.sketch.sliding import SlidingFrequentDirections
from robustfd.sketch.two_sided import TwoSidedFrequentDirections
from robustfd.sketch.window import RAW

Result = TypeVar("Result")
WINDOWED = (SlidingFrequentDirections, ExactWindow)
SKETCHES = (ExactSecondMoment, RobustFrequentDirections, TwoSidedFrequentDirections, *WINDOWED)
SIZE = 50  # default number of sketch rows
FEATURES_PER_ROW = 20  # with at most this many features per sketch row, the d x d matrix is faster
MOST_FEATURES = 2000  # with at most this many features, the d x d matrix takes at most 32 MB
DENSE_BUFFER = 4  # times m: takes no more time than 2 m and gives a smaller error bound
SPARSE_BUFFER = 8  # the same for sparse rows, which need little memory
MOST_ROWS = 800  # of a buffer of sparse rows, if this is above 4 m: shrink steps of larger ones take too much time
MOST_WINDOWED = 350  # as MOST_FEATURES, for the 32 matrices of a window


class SketchSizeWarning(UserWarning):
    """Warning that a sketch is too small for the requested accuracy.

    See Also
    --------
    SketchedPCA : Warns if the sketch cannot explain the requested fraction of the variance.
    SketchedRidge : Warns if the error of the sketch exceeds the regularization.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from robustfd import SketchedRidge, SketchSizeWarning
    >>> X = np.random.default_rng(0).standard_normal((200, 30))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = SketchedRidge(sketch_size=5).fit(X, X[:, 0])
    >>> caught[0].category is SketchSizeWarning
    True
    """


def exact_is_better(d: int, m: int, per_row: int = FEATURES_PER_ROW) -> bool:
    """Return whether the exact d x d matrix is better than a sketch of m rows."""
    return d <= min(per_row * m, MOST_FEATURES)


def exact_window_is_better(d: int, m: int, window: float) -> bool:
    """Return whether exact matrices are better than a sliding sketch, which stores the rows of a short window."""
    return window > RAW * m and d <= min(FEATURES_PER_ROW * m, MOST_WINDOWED)


def default_buffer(m: int, d: int, *, sparse: bool) -> int:
    """Return the buffer size of a sketch of m rows: 4 m for dense rows, and up to 8 m for sparse rows.

    Sizes between d/2 and 2 d are avoided: shrink steps of nearly square buffers are slowest.
    """
    buffer = max(DENSE_BUFFER * m, min(SPARSE_BUFFER * m, MOST_ROWS)) if sparse else DENSE_BUFFER * m
    if d / 2 < buffer < 2 * d:
        buffer = d // 2 if d // 2 >= 2 * m else max(m, 2 * d)
    return buffer


class SketchEstimator(Exported, Saved, BaseEstimator):
    """Base class of estimators that keep a sketch of their rows in `sketch_`."""

    _kind: ClassVar[type] = RobustFrequentDirections  # the sketch for rows that are too wide for the exact matrix
    _features_per_row: ClassVar[int] = FEATURES_PER_ROW

    sketch_size: Any
    buffer_size: int | None
    decay: float
    solver: str
    window: float | None
    sketch_: Any
    n_features_in_: int
    _cache: dict[str, Any]  # results computed from the sketch, cleared when it changes
    _grows = False  # whether the row that is being learned is a dict: later ones may have more features

    # -- for subclasses

    def _auto_size(self) -> int:
        """Return the number of sketch rows m for `sketch_size="auto"`."""
        return SIZE

    @property
    def _alpha0(self) -> float:
        """The multiple of the identity that the sketch starts from."""
        return 0.0

    def _check_merge(self, other: Any) -> None:
        """Raise if another estimator cannot be merged into this one, which is a copy that becomes the result."""

    def _merge_own(self, other: Any, *, fitted: bool) -> None:
        """Merge the state of another estimator other than its sketch. `fitted` is False if this one had no rows."""

    def _widen_own(self) -> None:
        """Add columns to the state other than the sketch, which has them already."""

    def _pack_own(self) -> tuple[Document, Tensors]:
        """Return the state to save in addition to the sketch."""
        return {}, {}

    def _unpack_own(self, parts: Parts) -> None:
        """Restore the state that `_pack_own` returned. The sketch is already restored."""

    # -- the sketch

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.sketch_size, str) and self.sketch_size == "auto"

    def _check_size(self) -> int:
        """Check all parameters of the sketch and return m."""
        m = self.sketch_size
        if self._is_auto:
            m = self._auto_size()
        elif isinstance(m, str) or m is None:
            raise TypeError(f"sketch_size must be an integer of at least 2 or 'auto', got {m!r}.")
        m = check_integer("sketch_size", m, 2)
        if self.buffer_size is not None:
            check_integer("buffer_size", self.buffer_size, m)
        check_real("decay", self.decay, 0.0, 1.0, open_low=True)
        check_choice("solver", self.solver, ("auto", "svd"))
        if self.window is not None:
            check_real("window", self.window, 0.0, open_low=True)
            for name, default in (("buffer_size", None), ("decay", 1.0), ("solver", "auto")):
                if (given := getattr(self, name)) != default:
                    raise ValueError(f"{name} must be {default!r} with window={self.window!r}, got {given!r}.")
        return m

    def _new_sketch(self, d: int, *, sparse: bool, center: bool) -> Any:
        """Return a new sketch for rows of d features."""
        m, alpha0 = self._check_size(), self._alpha0
        if self.window is not None and self._is_auto and exact_window_is_better(d, m, self.window):
            return ExactWindow(self.window, center=center, alpha0=alpha0)
        if self.window is not None:
            return SlidingFrequentDirections(self.window, m, clock="rows", center=center, alpha0=alpha0)
        if self._grows:  # the number of features is not known yet
            d = 1
        elif self._is_auto and exact_is_better(d, m, self._features_per_row):
            return ExactSecondMoment(center=center, alpha0=alpha0, decay=self.decay)
        elif self._is_auto:
            m = min(m, d + 1)  # with d + 1 rows the sketch is exact
        buffer = default_buffer(m, d, sparse=sparse) if self.buffer_size is None else self.buffer_size
        return self._kind(m, buffer_size=buffer, center=center, alpha0=alpha0, decay=self.decay, solver=self.solver)

    def _sketch_for(self, x: Any, *, reset: bool, center: bool = True) -> Any:
        """Return the sketch that rows x go to: a new one, or a copy of the one so far."""
        return self._new_sketch(x.shape[1], sparse=sp.issparse(x), center=center) if reset else self._next_sketch()

    def _next_sketch(self) -> Any:
        """Return a copy of the sketch to continue with, updated with the parameters that may change."""
        m, before = self._check_size(), self.sketch_
        then, now = getattr(before, "window", None), self.window
        if (then is None) != (now is None):
            raise changed("window", then, now)
        if not self._is_auto and isinstance(before, ExactSecondMoment):
            raise changed("sketch_size", "auto", self.sketch_size)
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
        """Merge another estimator into this one, as if this one had also seen the other's rows.

        Parameters
        ----------
        other : estimator of the same class
            It must have the same parameters. It is not changed.

        Returns
        -------
        self
        """
        if not isinstance(other, type(self)):
            raise TypeError(f"other must be a {type(self).__name__}, got a {type(other).__name__}.")
        after, fitted = copy.copy(self), self.__sklearn_is_fitted__()  # an error leaves self unchanged
        after._check_merge(other)
        if not other.__sklearn_is_fitted__():
            return self
        after.sketch_, after._cache = self._merged_sketch(other), {}
        if not fitted:
            columns = ("n_features_in_", "feature_names_in_")
            after.__dict__.update({name: vars(other)[name] for name in columns if name in vars(other)})
        after._merge_own(other, fitted=fitted)
        self.__dict__ = after.__dict__
        return self

    def _merged_sketch(self, other: "SketchEstimator") -> Any:
        """Return a sketch of the rows of both. `other` has seen rows."""
        theirs = copy.copy(other.sketch_)
        if self.__sklearn_is_fitted__():
            mine = self._next_sketch()
        else:
            mine = self._new_sketch(other.n_features_in_, sparse=False, center=theirs.center)
            if self._is_auto and type(theirs) is not type(mine):
                mine = type(theirs)(**theirs.get_params(deep=False)).set_params(alpha0=self._alpha0)
        if type(mine) is not type(theirs):
            one, two = type(mine).__name__, type(theirs).__name__
            raise ValueError(f"Cannot merge different sketches, {one} with {two}. Use the same sketch_size for both.")
        if self.buffer_size is None and other.buffer_size is None and hasattr(mine, "buffer_size"):
            # The default depends on the first rows, so it may differ.
            theirs.buffer_size = mine.buffer_size
            theirs._seen_structure = theirs._structural_parameters()
        here, there = (getattr(each, "feature_names_in_", None) for each in (self, other))
        if here is not None and there is not None and not np.array_equal(here, there):
            raise ValueError(f"Cannot merge: feature_names_in_ is {here} here and {there} there.")
        return mine.merge(theirs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | {"_cache": {}} if "_cache" in state else state  # cached results can be recomputed

    # -- single rows

    def _learn_one(self, x: Any, sample_weight: float, *target: Any) -> None:
        """Learn a row, a dict or an array. A row of weight 0 is ignored."""
        one, row, names = self._single_row(x)
        if not check_weights([sample_weight], 1)[0]:
            return
        after = copy.copy(one)
        after._grows = isinstance(x, Mapping)
        after.__dict__.pop("feature_names_in_", None)  # they are checked already, and the row has none
        after.partial_fit(row, *target, sample_weight=[sample_weight])
        del after._grows
        if len(names):
            after.feature_names_in_ = names
        self.__dict__ = after.__dict__

    def _single_row(self, x: Any) -> tuple[Self, Any, Any]:
        """Return a row (1, d), the estimator with d columns, and their names. New features of a dict are new columns.

        The estimator is this one, or a copy if it has more columns.
        """
        fitted, names = self.__sklearn_is_fitted__(), getattr(self, "feature_names_in_", np.empty(0, object))
        if not isinstance(x, Mapping):
            row = np.asarray(x)
            if row.ndim != 1 or row.dtype.kind not in "biuf" or (fitted and len(row) != self.n_features_in_):
                wanted = f"{self.n_features_in_} numbers" if fitted else "numbers"
                raise ValueError(f"x must be a dict or a one-dimensional array of {wanted}, got {x!r:.60}.")
            return self, _finite(row[None].astype(np.float64)), names
        if fitted and not len(names):
            raise ValueError(
                f"x must be an array: this {type(self).__name__} has learned rows without names of features."
            )
        named, places = {str(name): value for name, value in x.items()}, self.__dict__.get("_places", (None, {}))
        if len(named) < len(x):
            raise ValueError(f"x must have distinct names of features as text, got {x!r:.60}.")
        if places[0] is not names:
            places = self.__dict__["_places"] = (names, {name: k for k, name in enumerate(names)})
        columns, values, new = entries_of_dict(named, places[1])
        if not len(names) + len(new):
            raise ValueError("x must have a feature in the first row, got an empty dict.")
        one = self
        if new:
            names = np.array([*names, *new], dtype=object)
            one = self._widened(len(names)) if fitted else self
        if 10 * len(columns) < len(names):
            return one, _finite(sp.csr_array((values, columns, [0, len(columns)]), shape=(1, len(names)))), names
        row = np.zeros((1, len(names)))
        row[0, columns] = values
        return one, _finite(row), names

    def _widened(self, d: int) -> Self:
        """Return a copy with d columns."""
        if isinstance(self.sketch_, ExactSecondMoment) and d > MOST_FEATURES:
            raise ValueError(
                f"x has new features, and the exact matrix has {d} columns with them, more than {MOST_FEATURES}. Give "
                "sketch_size, or start with a dict, to keep a sketch."
            )
        new = copy.copy(self)
        new.sketch_, new.n_features_in_, new._cache = self.sketch_._widened(d), d, {}
        new._widen_own()
        return new

    # -- fitted attributes

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
            raise NotFittedError(f"This {name} has seen no rows yet. Call fit or partial_fit first.")
        return self.sketch_

    def _cached(self, name: str, make: Callable[[], Result]) -> Result:
        """Return a result that is computed once for the rows so far."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def _checked(self, X: Any) -> Any:
        """Return checked rows for predictions."""
        self._fitted()
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])

    @property
    def n_samples_seen_(self) -> int:
        """The number of rows seen, not counting rows of weight 0."""
        return int(self._fitted().n_samples_seen_)

    # -- snapshots

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
        classes: dict[str, Any] = {each.__name__: each for each in SKETCHES}
        check_choice("kind", kind, tuple(classes))
        sketch = classes[kind]._from_params(inner.pop("params"))
        sketch._unpack(inner, {name[7:]: tensors.pop(name) for name in list(tensors) if name.startswith("sketch.")})
        if not self._is_auto and getattr(sketch, "sketch_size", None) != m:
            raise ValueError(f"a {kind} for sketch_size={m}")
        if (self.window is None) == isinstance(sketch, WINDOWED):
            raise ValueError(f"a {kind} for window={self.window}")
        self.sketch_, self.n_features_in_, self._cache = sketch, sketch.n_features_in_, {}
        check_names(names, self.n_features_in_)
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        parts = Parts(document.pop("own"), tensors, "own.")
        self._unpack_own(parts)
        parts.close()
        if document or tensors:
            raise ValueError(f"unknown parts {sorted([*document, *tensors])}")


def _finite(row: Any) -> Any:
    if not np.isfinite(row.data if sp.issparse(row) else row).all():
        raise ValueError("x contains NaN or infinity. Every value must be a finite number.")
    return row
