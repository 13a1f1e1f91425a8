"""The parts of a snapshot that all online learners share; the layout is documented in docs/snapshot-format.md.

A state packs and unpacks itself. It keeps only what cannot be made again, and of a block only the rows that have come.
Counts follow from the lengths of arrays, and lists that point into each other are drawn up anew. Whatever compiled
loops use as an index is checked when it is unpacked, since a file may come from anybody.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors, check_names
from robustfd._validation import check_choice, check_integer, check_real
from robustfd.online import progress

MOST = 2**53  # rows that can be counted in a float
BIG = float(np.finfo(np.float64).max)


class Parts:
    """The numbers and arrays of one state in a file, taken out one by one; what is not what it must be is an error."""

    def __init__(self, numbers: Document, tensors: Tensors, prefix: str):
        if not isinstance(numbers, dict):
            raise TypeError("a state is not an object")
        self._numbers, self._tensors, self._prefix = numbers, tensors, prefix

    def has(self, name: str) -> bool:
        """Return whether there is such an array."""
        return self._prefix + name in self._tensors

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Return the shape of an array that stays, so that memory is taken only after it was looked at."""
        shape = self._tensors[self._prefix + name].shape
        if len(shape) != axes:
            raise ValueError(f"{self._prefix}{name} has shape {shape}")
        return tuple(shape)

    def array(
        self,
        name: str,
        *shape: int,
        dtype: Any = np.float64,
        least: float = -np.inf,
        most: float = np.inf,
        missing: bool = False,
    ) -> NDArray[Any]:
        """Take out an array of that shape, all of it finite and between least and most; with `missing`, or NaN."""
        name = self._prefix + name
        value = self._tensors.pop(name)
        if value.dtype != dtype or value.shape != shape:
            raise ValueError(f"{name} has shape {value.shape} of {value.dtype}, not {shape} of {np.dtype(dtype)}")
        if not _within(value[~np.isnan(value)] if missing else value, least, most):
            raise ValueError(f"{name} holds what it never should")
        return np.require(value, requirements=["C", "A", "W"])

    def flag(self, name: str) -> bool:
        """Take out true or false."""
        check_choice(name, value := self._numbers.pop(name), (True, False))
        return bool(value)

    def count(self, name: str) -> int:
        """Take out a number of rows."""
        value = check_integer(name, self._numbers.pop(name), 0)
        if value > MOST:
            raise ValueError(f"{name} is {value}")
        return value

    def number(self, name: str, least: float = -np.inf) -> float:
        """Take out a finite number."""
        return check_real(name, self._numbers.pop(name), least)

    def text(self, name: str) -> Any:
        """Take out whatever there is."""
        return self._numbers.pop(name)

    def close(self) -> None:
        """Raise if anything is left."""
        left = [*self._numbers, *(name for name in self._tensors if name.startswith(self._prefix))]
        if left:
            raise ValueError(f"unknown parts {sorted(left)}")


# -- for a learner: its rows, the width of them, its states


def pack_common(model: Any, states: list[tuple[Document, Tensors]]) -> tuple[Document, Tensors]:
    """Return document and tensors of a learner with these states."""
    document = {
        "n_features": int(model.n_features_in_),
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "states": [numbers for numbers, _ in states],
    }
    tensors = {f"states.{i}.{name}": array for i, (_, arrays) in enumerate(states) for name, array in arrays.items()}
    for name, array in tensors.items():
        if not _within(
            array[~np.isnan(array)] if name.endswith((".kept.data", ".aside.data")) else array
        ):  # where NaN is missing
            raise OverflowError(f"{type(model).__name__} has overflowed ({name} is not finite): it cannot be saved.")
    return document, tensors | {"progress": model._progress}


def unpack_common(model: Any, document: Document, tensors: Tensors) -> list[Parts]:
    """Set what is common to all learners; return their states as they are in the file."""
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
        raise ValueError(f"states are {states!r:.60}, and there is {sorted(document)}")
    record, fresh = tensors.pop("progress"), progress.start()
    if record.dtype != fresh.dtype or record.shape != fresh.shape:
        raise ValueError("the progress holds what it never should")
    record = np.require(record, requirements=["C", "A", "W"])
    rows = progress.records(record)["rows"]
    if not np.all((rows >= 0) & (rows <= MOST)):
        raise ValueError("the progress holds what it never should")
    if not np.array_equal(rows, np.floor(rows)):
        raise ValueError("the progress holds a part of a row")
    model._progress = record
    return [Parts(numbers, tensors, f"states.{i}.") for i, numbers in enumerate(states)]


def _within(array: NDArray[Any], least: float = -np.inf, most: float = np.inf) -> bool:
    """Return whether all numbers are finite, and between least and most."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)  # of NaN, and so false
    return array.size == 0 or bool(max(least, -BIG) <= low and high <= min(most, BIG))
