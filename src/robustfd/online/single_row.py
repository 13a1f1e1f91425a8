"""What the methods without blocks share: ADAGRAD, gradient descent, RP-SON and Oja-SON take row by row.

What a method has learnt is its model, a named tuple of arrays, its settings among them. The compiled loops take rows in
compressed form, array by array, since a named tuple takes long to hand over. Dense rows go in as their flat values,
with all columns for `indices` and an empty `indptr`. A slope that is round-off is none (settings.py). A projected w has
the margin +-bound at its row.
"""

import copy
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd._compile import entry, inner
from robustfd._container import Document, Tensors
from robustfd.online.block import HUGE, UNKEPT
from robustfd.online.progress import tally_all
from robustfd.online.rows import FEW, GROWTH, LARGEST, LARGEST_NUMBER, CsrRows, Extent, Floats, are_usable
from robustfd.online.settings import Settings
from robustfd.online.snapshot import Parts

OUTSIDE = 1e-11  # of its squared length that a row must have outside the span of others to count as outside
REFRESH = 1024  # sums kept by updates are formed again after this many rows, or as many as there are columns
FINE, OVERFLOWED, WILD = range(3)  # what the loops return; WILD if all went well, but numbers were very large
NOT_NEGATIVE = ("squares", "energy")  # arrays of models

_are_usable = entry(are_usable)


class Row(NamedTuple):
    """The columns of a row that are not zero, and their values."""

    columns: Any
    values: Any


@inner
def is_calm(p: float, slope: float, weight: float, square: float) -> bool:
    """Return whether margin, slope, weight and squared length of a row are far from making anything overflow."""
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
    """Return the indices and the indptr that dense rows go in with."""
    return np.arange(d, dtype=np.int32), np.empty(0, np.int64)


def _largest(arrays: list[Any]) -> float:
    """Return the largest number of arrays, by its size."""
    return max((float(np.abs(each).max(initial=0.0)) for each in arrays), default=0.0)


class RowState:
    """What their states share. The model has fields `settings` (an array) and `seen` (how many rows) beside its own."""

    model: Any
    # The shapes of the model's own arrays: a letter is a length, d features, m rows of the sketch, k of min(m, d).
    shapes: ClassVar[dict[str, str]]

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        self.settings, self.sparse, self.d = settings, sparse, d
        self.kept = self.wild = False  # whether the caller can undo what rows change; whether one was not calm since

    @property
    def checks_rows(self) -> bool:
        """Whether `learn` itself finds out that one of few rows is not finite."""
        return not self.sparse

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return self.settings.alpha0

    def expect(self, rows: int) -> None:
        """Do nothing: there is nothing to get ready."""

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats) -> int:
        """Learn and tally rows; return how many were learnt before they overflowed.

        If that is negative, nothing has changed: -1 if a row is not finite, UNKEPT if `keep` must be called first.
        """
        if sp.issparse(x):
            data, indices, indptr = x.data, x.indices, x.indptr
        elif len(y) <= FEW and not _are_usable(x, y):  # they come unchecked
            return -1
        else:
            data, (indices, indptr) = x.ravel(), _all_columns(self.d)
        if not self.kept and len(y) > 1:
            return UNKEPT
        status = self._learn(data, indices, indptr, y, weight, margins)
        if status != FINE:
            if not self.kept:
                return UNKEPT
            self.wild = True
            if status == OVERFLOWED:
                return int(np.argmin(np.isfinite(margins)))
        s = self.settings
        tally_all(s.loss, s.delta, margins, y, weight, progress)
        return len(y)

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        """Learn rows and fill their margins; return FINE, OVERFLOWED, or WILD if the model must be looked at.

        Unless the state is kept there is one row, and nothing has changed if the result is not FINE.
        """
        raise NotImplementedError

    # -- all rows of a call, or none

    def _changed(self, features: Any) -> list[tuple[Any, Any]]:
        """Return the arrays of the model, and which of each rows with these features change."""
        by_feature = slice(None) if features is None else features
        return [
            (getattr(self.model, name), by_feature if shape[0] == "d" else slice(None))
            for name, shape in self.shapes.items()
        ]

    def keep(self, extent: Extent) -> Any:
        """Return what `undo` needs after rows of that extent."""
        self.kept, self.wild = True, False
        features = extent.features if self._changes_only_features() else None
        return features, [self.model.seen.copy(), *(array[where].copy() for array, where in self._changed(features))]

    def _changes_only_features(self) -> bool:
        """Return whether a row changes nothing but numbers of its own features."""
        return False

    def is_sound(self, kept: Any) -> bool:
        """Return whether all numbers are finite after rows that were learnt."""
        if not self.wild:
            return True
        with np.errstate(all="ignore"):  # numbers that overflow are found by what came of them
            arrays = [*(array[where] for array, where in self._changed(kept[0])), self.weights()]
        if not all(bool(np.isfinite(each).all()) for each in arrays):
            return False
        seen, *before = kept[1]
        after = _largest(arrays)
        if self.settings.alpha0 == 0.0 or int(seen[0]) == 0:  # without alpha0 numbers have no scale of their own
            return after <= LARGEST  # so that margins of all rows that are accepted are finite
        return after <= LARGEST_NUMBER or after <= GROWTH * _largest(before)

    def let_go(self) -> None:
        """Note that nobody will call `undo`."""
        self.kept = self.wild = False

    def undo(self, kept: Any) -> None:
        """Become what the state was when that was kept."""
        features, copies = kept
        self.model.seen[:] = copies[0]
        for (array, where), values in zip(self._changed(features), copies[1:], strict=True):
            array[where] = values
        self.let_go()

    def weights(self) -> Floats:
        """Return w."""
        raise NotImplementedError

    def margins(self, x: Any) -> Floats:
        """Return w'x of rows of either kind."""
        return np.asarray(x @ self.weights())

    # -- merging

    def merged(self, other: Any, vote: Floats) -> Any:
        """Return a new state after the rows of both, which have the same settings; weights are means by `vote`."""
        w = vote @ np.array([state.weights() for state in (self, other)])
        seen = sum(int(state.model.seen[0]) for state in (self, other))
        return self._with(seen, self._merged_arrays(other.model, np.asarray(w)))

    def fraction(self, k: int, i: int) -> Any:
        """Return part i of k, with the same weights."""
        return self._with((int(self.model.seen[0]) + k - 1 - i) // k, self._divided_arrays(k))

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        """Return the arrays of the model after the rows of both, with these weights."""
        raise NotImplementedError

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        """Return the arrays of the model that are divided if there are k of it."""
        raise NotImplementedError

    def _with(self, seen: int, arrays: dict[str, Floats]) -> Any:
        """Return a copy with other arrays, after so many rows."""
        new = copy.deepcopy(self)
        new.model = new.model._replace(seen=np.array([seen]), **arrays)
        return new

    # -- snapshots (docs/snapshot-format.md)

    def pack(self) -> tuple[Document, Tensors]:
        """Return its numbers and arrays."""
        arrays = {name: getattr(self.model, name) for name in self.shapes}
        return {"sparse": bool(self.sparse), "seen": int(self.model.seen[0])}, arrays

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int = 0, *more: Any, sparse: bool) -> "RowState":
        """Return the state that was packed, of a learner with these settings and sizes."""
        lengths = {"d": d, "m": m, "k": min(m, d), "2": 2}
        shapes = {name: tuple(lengths[letter] for letter in letters) for name, letters in cls.shapes.items()}
        for name, shape in shapes.items():  # before there is memory for any of them
            if parts.shape(name, len(shape)) != shape:
                raise ValueError(f"{name} has shape {parts.shape(name, len(shape))}, expected {shape}")
        # Begun with one feature, so that little is done in vain.
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
        """Take out what a state has beside its model."""
