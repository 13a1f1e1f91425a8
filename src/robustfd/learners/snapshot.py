"""The common parts of snapshots of online learners; docs/snapshot-format.md documents the layout.

A state packs and unpacks itself. A snapshot omits everything that can be recomputed, and the unused rows of a block.
Counts follow from the lengths of arrays, and linked lists are rebuilt. Unpacking checks every number that the
loops use as an index, since files are untrusted.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors, check_names
from robustfd._validation import check_choice, check_integer, check_real
from robustfd.learners import progress

MOST = 2**53  # the largest number of rows that a float counts exactly
BIG = float(np.finfo(np.float64).max)


class Parts:
    """The numbers and arrays of one state in a file. Each method removes one and raises an error if it is invalid."""

    def __init__(self, numbers: Document, tensors: Tensors, prefix: str):
        if not isinstance(numbers, dict):
            raise TypeError("a state is not an object")
        self._numbers, self._tensors, self._prefix = numbers, tensors, prefix

    def has(self, name: str) -> bool:
        """Return whether there is such an array."""
        return self._prefix + name in self._tensors

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Return the shape of an array without removing it, so that it can be checked before memory is allocated."""
        shape = self._tensors[self._prefix + name].shape
        if len(shape) != axes:
            raise ValueError(f"{self._prefix}{name} has shape {shape}")
        return tuple(shape)

    def array(
        self,
        name: str,
        *shape: int,
        dtype: Any = np.float64,
        least: float = -BIG,
        most: float = BIG,
        missing: bool = False,
    ) -> NDArray[Any]:
        """Remove and return an array of this shape, finite and between least and most; `missing` allows NaN."""
        name = self._prefix + name
        value = self._tensors.pop(name)
        if value.dtype != dtype or value.shape != shape:
            raise ValueError(f"{name} has shape {value.shape} of {value.dtype}, not {shape} of {np.dtype(dtype)}")
        if not _within(value[~np.isnan(value)] if missing else value, least, most):
            raise ValueError(f"{name} holds a number that is out of range")
        return np.require(value, requirements=["C", "A", "W"])

    def flag(self, name: str) -> bool:
        """Remove and return a boolean."""
        check_choice(name, value := self._numbers.pop(name), (True, False))
        return bool(value)

    def count(self, name: str) -> int:
        """Remove and return a count, an integer of at least 0."""
        value = check_integer(name, self._numbers.pop(name), 0)
        if value > MOST:
            raise ValueError(f"{name} is {value}")
        return value

    def number(self, name: str, least: float = -np.inf) -> float:
        """Remove and return a finite number."""
        return check_real(name, self._numbers.pop(name), least)

    def text(self, name: str) -> Any:
        """Remove and return a value without checking it."""
        return self._numbers.pop(name)

    def inside(self, prefix: str, numbers: Document) -> "Parts":
        """Return the parts of a state inside this one."""
        return Parts(numbers, self._tensors, self._prefix + prefix)

    def close(self) -> None:
        """Raise an error if any part has not been removed."""
        left = [*self._numbers, *(name for name in self._tensors if name.startswith(self._prefix))]
        if left:
            raise ValueError(f"unknown parts {sorted(left)}")


# -- the parts of a learner: features, states, progress


def pack_common(model: Any, states: list[tuple[Document, Tensors]]) -> tuple[Document, Tensors]:
    """Return the document and tensors of a learner with these states."""
    document = {
        "n_features": int(model.n_features_in_),
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "states": [numbers for numbers, _ in states],
    }
    tensors = {f"states.{i}.{name}": array for i, (_, arrays) in enumerate(states) for name, array in arrays.items()}
    check_finite(type(model).__name__, tensors)
    return document, tensors | {"progress": model._progress}


def check_finite(owner: str, tensors: Tensors) -> None:
    """Raise if a state that was packed has overflowed, so that what was saved can be restored."""
    for name, array in tensors.items():
        missing = name.endswith(("kept.data", "aside.data"))  # NaN marks missing values there
        if not _within(array[~np.isnan(array)] if missing else array):
            raise OverflowError(f"{owner} has overflowed ({name} is not finite): it cannot be saved.")


def unpack_common(model: Any, document: Document, tensors: Tensors) -> list[Parts]:
    """Restore the fields common to all learners; return the parts of their states."""
    d = check_integer("n_features", document.pop("n_features"), 1)
    if d >= 2**31:
        raise ValueError(f"n_features is {d}")
    names = document.pop("feature_names")
    check_names(names, d)
    model.n_features_in_ = d
    if names:
        model.feature_names_in_ = np.array(names, dtype=object)
    states = document.pop("states")
    if document or not isinstance(states, list) or not states:
        raise ValueError(f"states are {states!r:.60}, unknown fields are {sorted(document)}")
    record, fresh = tensors.pop("progress"), progress.start()
    if record.dtype != fresh.dtype or record.shape != fresh.shape:
        raise ValueError(f"the progress has shape {record.shape} of {record.dtype}")
    record = np.require(record, requirements=["C", "A", "W"])
    rows = progress.records(record)["rows"]
    if not np.all((rows >= 0) & (rows <= MOST) & (rows == np.floor(rows))):
        raise ValueError("the progress holds a number of rows that is no count")
    model._progress = record
    return [Parts(numbers, tensors, f"states.{i}.") for i, numbers in enumerate(states)]


def _within(array: NDArray[Any], least: float = -BIG, most: float = BIG) -> bool:
    """Return whether all numbers are finite, and between least and most."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)  # NaN if any is, then False
    return array.size == 0 or (max(least, -BIG) <= low and high <= min(most, BIG))
