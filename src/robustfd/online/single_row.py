"""The common part of the methods without blocks: ADAGRAD, gradient descent, RP-SON and Oja-SON.

The state of a method is its model, a named tuple of arrays that includes the settings. The compiled loops receive rows
in CSR format as separate arrays, since passing a named tuple is slow. For dense rows, `data` holds the flattened
values, `indices` all columns, and `indptr` is empty. A slope that is only rounding error counts as 0 (settings.py).
After a projection, the margin of the row is +-bound.
"""

import copy
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd._compile import entry, inner
from robustfd._container import Document, Tensors
from robustfd.online.block import HUGE, NEEDS_COPY
from robustfd.online.progress import tally_all
from robustfd.online.rows import FEW, GROWTH, LARGEST, LARGEST_NUMBER, CsrRows, Extent, Floats, are_usable
from robustfd.online.settings import Settings
from robustfd.online.snapshot import Parts

OUTSIDE = 1e-11  # a row is outside a span if more than this fraction of its squared length is
REFRESH = 1024  # updated sums are recomputed after this many rows, or after d rows if that is more
FINE, OVERFLOWED, EXTREME = range(3)  # return values of the loops; EXTREME: no overflow, but extreme numbers
NOT_NEGATIVE = ("squares", "energy")  # arrays of models that hold no negative numbers

_are_usable = entry(are_usable)


class Row(NamedTuple):
    """The columns and values of the entries of a row."""

    columns: Any
    values: Any


@inner
def is_safe(p: float, slope: float, weight: float, square: float) -> bool:
    """Return whether the margin, slope, weight and squared length of a row are far from causing an overflow."""
    large = abs(p) < HUGE and abs(slope) < HUGE and weight < HUGE and square < HUGE
    return large and (square == 0.0 or square > 1.0 / HUGE)


@inner
def row_of(rows: CsrRows, i: int) -> Row:
    """Return row i."""
    indptr = rows.indptr
    if len(indptr) == 0:
        d = len(rows.indices)
        return Row(rows.indices, rows.data[i * d : (i + 1) * d])
    return Row(rows.indices[indptr[i] : indptr[i + 1]], rows.data[indptr[i] : indptr[i + 1]])


@lru_cache(maxsize=8)
def _all_columns(d: int) -> Any:
    """Return `indices` and `indptr` of dense rows."""
    return np.arange(d, dtype=np.int32), np.empty(0, np.int64)


def _largest(arrays: list[Any]) -> float:
    """Return the largest absolute value in the arrays."""
    return max((float(np.abs(each).max(initial=0.0)) for each in arrays), default=0.0)


class RowState:
    """Base class of states without blocks. Every model has the fields `settings` (an array) and `seen` (a count)."""

    model: Any
    # The shapes of the other arrays of the model. Each letter is a length: d features, m rows of the sketch,
    # k = min(m, d).
    shapes: ClassVar[dict[str, str]]

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        self.settings, self.sparse, self.d = settings, sparse, d
        self.kept = self.extreme = False  # whether `keep` was called, and whether rows had extreme numbers since then

    @property
    def checks_rows(self) -> bool:
        """Whether `learn` itself checks that the rows of a small batch are finite."""
        return not self.sparse

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return self.settings.alpha0

    def expect(self, rows: int) -> None:
        """Do nothing: these methods need no preparation."""

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow.

        A negative result means that nothing has changed: -1 if a row is not finite, NEEDS_COPY if `keep` must be called
        first.
        """
        if sp.issparse(x):
            data, indices, indptr = x.data, x.indices, x.indptr
        elif len(y) <= FEW and not _are_usable(x, y):  # Python does not check small batches
            return -1
        else:
            data, (indices, indptr) = x.ravel(), _all_columns(self.d)
        if not self.kept and len(y) > 1:
            return NEEDS_COPY
        status = self._learn(data, indices, indptr, y, weight, margins)
        if status != FINE:
            if not self.kept:
                return NEEDS_COPY
            self.extreme = True
            if status == OVERFLOWED:
                return int(np.argmin(np.isfinite(margins)))
        s = self.settings
        tally_all(s.loss, s.delta, margins, y, weight, progress)
        return len(y)

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        """Learn from rows and fill their margins; return FINE, OVERFLOWED, or EXTREME if the model must be checked.

        Before `keep` was called, there is only one row, and nothing changes if the result is not FINE.
        """
        raise NotImplementedError

    # -- all rows of a call, or none

    def _changed(self, features: Any) -> list[tuple[Any, Any]]:
        """Return the arrays of the model, each with an index of the part that rows with these features change."""
        by_feature = slice(None) if features is None else features
        return [
            (getattr(self.model, name), by_feature if shape[0] == "d" else slice(None))
            for name, shape in self.shapes.items()
        ]

    def keep(self, extent: Extent) -> Any:
        """Return the copies that `undo` needs to revert rows of this extent."""
        self.kept, self.extreme = True, False
        features = extent.features if self._changes_only_features() else None
        return features, [self.model.seen.copy(), *(array[where].copy() for array, where in self._changed(features))]

    def _changes_only_features(self) -> bool:
        """Return whether a row changes only the numbers of its own features."""
        return False

    def is_sound(self, kept: Any) -> bool:
        """Return whether all numbers that changed since `keep` are finite."""
        if not self.extreme:
            return True
        with np.errstate(all="ignore"):  # the check below finds overflows
            arrays = [*(array[where] for array, where in self._changed(kept[0])), self.weights()]
        if not all(bool(np.isfinite(each).all()) for each in arrays):
            return False
        seen, *before = kept[1]
        after = _largest(arrays)
        if self.settings.alpha0 == 0.0 or int(seen[0]) == 0:  # without alpha0, numbers have no natural scale
            return after <= LARGEST  # margins of all valid rows are finite
        return after <= LARGEST_NUMBER or after <= GROWTH * _largest(before)

    def release(self) -> None:
        """Mark the end of the rows for which `keep` was called."""
        self.kept = self.extreme = False

    def undo(self, kept: Any) -> None:
        """Restore the state from the result of `keep`."""
        features, copies = kept
        self.model.seen[:] = copies[0]
        for (array, where), values in zip(self._changed(features), copies[1:], strict=True):
            array[where] = values
        self.release()

    def weights(self) -> Floats:
        """Return w."""
        raise NotImplementedError

    def margins(self, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        return np.asarray(x @ self.weights())

    # -- merging

    def merged(self, other: Any, vote: Floats) -> Any:
        """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
        w = vote @ np.array([state.weights() for state in (self, other)])
        seen = sum(int(state.model.seen[0]) for state in (self, other))
        return self._with(seen, self._merged_arrays(other.model, np.asarray(w)))

    def fraction(self, k: int, i: int) -> Any:
        """Return part i of k, with the same weights and a k-th of all sums."""
        return self._with((int(self.model.seen[0]) + k - 1 - i) // k, self._divided_arrays(k))

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        """Return the arrays of the merged model with the weights w."""
        raise NotImplementedError

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        """Return the arrays of the model that change when it is split into k parts."""
        raise NotImplementedError

    def _with(self, seen: int, arrays: dict[str, Floats]) -> Any:
        """Return a copy with these arrays and this number of rows."""
        new = copy.deepcopy(self)
        new.model = new.model._replace(seen=np.array([seen]), **arrays)
        return new

    # -- snapshots (docs/snapshot-format.md)

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        arrays = {name: getattr(self.model, name) for name in self.shapes}
        return {"sparse": bool(self.sparse), "seen": int(self.model.seen[0])}, arrays

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int = 0, *more: Any, sparse: bool) -> "RowState":
        """Return the state in a snapshot of a learner with these settings and sizes."""
        lengths = {"d": d, "m": m, "k": min(m, d), "2": 2}
        shapes = {name: tuple(lengths[letter] for letter in letters) for name, letters in cls.shapes.items()}
        for name, shape in shapes.items():  # before memory is allocated
            if parts.shape(name, len(shape)) != shape:
                raise ValueError(f"{name} has shape {parts.shape(name, len(shape))}, expected {shape}")
        # The arrays are replaced below, so one feature is enough here.
        self = cls(settings, 1, *((m, *more) if more else ()), sparse=sparse)
        arrays = {
            name: parts.array(name, *shape, least=0.0 if name in NOT_NEGATIVE else -np.inf)
            for name, shape in shapes.items()
        }
        self.model, self.d = self.model._replace(**arrays), d
        self.model.seen[0] = parts.count("seen")
        self._unpack_more(parts)
        parts.close()
        return self

    def _unpack_more(self, parts: Parts) -> None:
        """Restore the fields of a state that are not in its model."""
