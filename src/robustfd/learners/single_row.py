"""The common part of the methods without blocks: ADAGRAD, gradient descent, RP-SON and Oja-SON."""

import copy
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from robustfd._container import Document, Tensors
from robustfd.learners.rows import GROWTH, LARGEST, LARGEST_NUMBER, Floats
from robustfd.learners.settings import Settings
from robustfd.learners.snapshot import Parts

NOT_NEGATIVE = ("squares", "energy")  # arrays that hold no negative numbers


class RowState:
    """Base class of states without blocks: settings and a learner of the compiled core, which owns the arrays."""

    # The shapes of the arrays. Each letter is a length: d features, m rows of the sketch, k = min(m, d).
    shapes: ClassVar[dict[str, str]]

    def __init__(self, settings: Settings, core: Any, *, sparse: bool):
        self.settings, self.core, self.sparse = settings, core, sparse

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.core.d)

    @property
    def checks_rows(self) -> bool:
        """Whether `learn_few` may be used."""
        return not self.sparse

    @property
    def arrays(self) -> dict[str, Floats]:
        """The arrays of the learner, as views that are valid until it learns again."""
        arrays: dict[str, Floats] = self.core.arrays()
        return arrays

    @property
    def alpha(self) -> float:
        """The multiple of the identity in H."""
        return self.settings.alpha0

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats | None) -> int:
        """Learn from rows and record their losses; return the number of rows before an overflow."""
        rows = (x.data, x.indices, x.indptr) if sp.issparse(x) else x
        return int(self.core.learn(rows, y, weight, margins, progress))

    def learn_few(self, x: Floats, y: Floats, margins: Floats, progress: Floats) -> bool:
        """Learn from a few dense rows; return False, without a change, if they need a closer look."""
        return bool(self.core.learn_few(x, y, margins, progress))

    # -- all rows of a call, or none

    def begin(self) -> None:
        """Begin a call that `rollback` can revert."""
        self.core.begin()

    def commit(self) -> None:
        """End the call."""
        self.core.commit()

    def rollback(self) -> None:
        """Revert everything since `begin`."""
        self.core.rollback()

    def is_sound(self) -> bool:
        """Return whether all numbers are finite, and leave space for ordinary rows."""
        if not self.core.extreme:
            return True
        with np.errstate(all="ignore"):  # the check below finds overflows
            arrays = [*self.arrays.values(), self.weights()]
        if not all(bool(np.isfinite(each).all()) for each in arrays):
            return False
        after, before = _largest(arrays), self.core.copy()
        before.rollback()
        if self.settings.alpha0 == 0.0 or before.seen == 0:  # without alpha0, numbers have no natural scale
            return after <= LARGEST  # margins of all valid rows are finite
        return after <= LARGEST_NUMBER or after <= GROWTH * _largest(list(before.arrays().values()))

    # -- reading

    def weights(self) -> Floats:
        """Return w."""
        raise NotImplementedError

    def margins(self, x: Any) -> Floats:
        """Return w'x of dense or sparse rows."""
        return np.asarray(x @ self.weights())

    # -- merging

    def merged(self, other: Any, vote: Floats) -> Self:
        """Return the merged state of two states with the same settings; `vote` weights the mean of their w."""
        w = vote @ np.array([state.weights() for state in (self, other)])
        seen = sum(int(state.core.seen) for state in (self, other))
        return self._with(seen, self._merged_arrays(other.arrays, np.asarray(w)))

    def fraction(self, k: int, i: int) -> Self:
        """Return part i of k, with the same weights and a k-th of all sums."""
        return self._with((int(self.core.seen) + k - 1 - i) // k, self._divided_arrays(k))

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        """Return the arrays of the merged model with the weights w."""
        raise NotImplementedError

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        """Return the arrays of the model that change when it is split into k parts."""
        raise NotImplementedError

    def _with(self, seen: int, arrays: dict[str, Floats]) -> Self:
        """Return a copy with these arrays and this number of rows."""
        new = copy.deepcopy(self)
        new.core.seen = seen
        _fill(new.arrays, arrays)
        return new

    # -- copies and snapshots (docs/snapshot-format.md)

    def __deepcopy__(self, memo: Any) -> Self:
        new = copy.copy(self)
        new.core = self.core.copy()
        return new

    def __copy__(self) -> Self:
        new = type(self).__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __getstate__(self) -> dict[str, Any]:
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return vars(self) | {"core": (int(self.core.seen), arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        seen, arrays = state["core"]
        vars(self).update(state)
        first = next(iter(self.shapes))
        self.core = self._new_core(self.settings, len(arrays[first]), len(arrays["c"]) if "c" in arrays else 0)
        self.core.seen = seen
        _fill(self.arrays, arrays)

    @classmethod
    def _new_core(cls, settings: Settings, d: int, m: int) -> Any:
        """Return a learner of the compiled core."""
        raise NotImplementedError

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return {"sparse": bool(self.sparse), "seen": int(self.core.seen)}, arrays

    @classmethod
    def unpack(cls, parts: Parts, settings: Settings, d: int, m: int = 0, *more: Any, sparse: bool) -> Self:
        """Return the state in a snapshot of a learner with these settings and sizes."""
        lengths = {"d": d, "m": m, "k": min(m, d), "2": 2}
        shapes = {name: tuple(lengths[letter] for letter in letters) for name, letters in cls.shapes.items()}
        for name, shape in shapes.items():  # before memory is allocated
            if parts.shape(name, len(shape)) != shape:
                raise ValueError(f"{name} has shape {parts.shape(name, len(shape))}, expected {shape}")
        arrays = {
            name: parts.array(name, *shape, least=0.0 if name in NOT_NEGATIVE else -np.inf)
            for name, shape in shapes.items()
        }
        self = cls.__new__(cls)
        self.settings, self.sparse = settings, sparse
        self.core = cls._new_core(settings, d, lengths["k"] if "k" in "".join(cls.shapes.values()) else m)
        self.core.seen = parts.count("seen")
        _fill(self.arrays, arrays)
        self._unpack_more(parts, *more)
        parts.close()
        return self

    def _unpack_more(self, parts: Parts, *more: Any) -> None:
        """Restore the fields of a state that are not in its model."""


def _largest(arrays: list[Any]) -> float:
    """Return the largest absolute value in the arrays."""
    return max((float(np.abs(each).max(initial=0.0)) for each in arrays), default=0.0)


def _fill(views: dict[str, Floats], arrays: dict[str, Floats]) -> None:
    """Copy arrays to the views of the same names."""
    for name, array in arrays.items():
        views[name][:] = array
