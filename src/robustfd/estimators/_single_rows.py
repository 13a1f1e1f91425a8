"""Single rows as people hand them in: dicts, pairs of indices and values, arrays of one dimension."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["dicts", "pairs", "rows"]

LAST = 2**31 - 2  # indices are of 32 bits
IS_MISSING = " is missing"  # how the name of a feature ends that says so of another
PLAIN = {float, bool, np.float64}


class SingleRow(NamedTuple):
    """One sparse row. To build a scipy matrix would take longer than to learn the row."""

    data: Floats
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    shape: tuple[int, int]


class Names(NamedTuple):
    """Where the numbers of a dict belong: most dicts of a stream have the names of the one before, in its order."""

    names: tuple[Any, ...]
    order: NDArray[np.int64] | None  # of the numbers, by index; None if they are in order
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]

    def row_of(self, x: Mapping[Any, Any], width: int, largest: float) -> SingleRow | None:
        """Return the row of a dict; None if it has other names, or anything but numbers of at most that length."""
        if tuple(x) != self.names:
            return None
        numbers = list(x.values())
        try:
            length = math.hypot(*numbers)
        except (TypeError, ValueError, OverflowError):
            return None
        if not length < largest:  # in this form it also catches NaN
            return None
        values = np.array(numbers, np.float64)
        if values.ndim != 1:
            return None
        if self.order is not None:
            values = values[self.order]
        return SingleRow(values, self.indices, self.indptr, (1, width))


def names_of(x: Mapping[Any, Any], known: Mapping[Any, int]) -> Names | None:
    """Return where the numbers of a dict belong; None if there is a name that is not known."""
    places = [known.get(name, -1) for name in x]
    if not places or min(places) < 0:
        return None
    order, indices, indptr = np.argsort(places), np.sort(np.array(places, np.int32)), np.array([0, len(places)])
    return Names(tuple(x), None if places == sorted(places) else order, indices, indptr)


def kind_of(x: Any) -> Kind:
    """Return which kind of row x is; anything but a dict or a tuple is a row of fixed width."""
    if isinstance(x, Mapping):
        return "dicts"
    return "pairs" if isinstance(x, tuple) else "rows"


def entries_of_dict(
    x: Mapping[Any, Any], known: Mapping[Any, int], *, missing: bool = False
) -> tuple[NDArray[np.int32], Floats, dict[Any, int]]:
    """Return indices, ascending, and values of a row, and the indices of names that are not known yet.

    New names get theirs in alphabetical order: the order of a dict does not matter, not even for rounding. With
    `missing`, None and NaN are missing values: the value of a feature that is known is NaN, and there is a feature that
    says that it is missing.
    """
    if PLAIN.issuperset(map(type, x.values())):  # known names of plain numbers: a fifth of the time
        places = list(map(known.get, x))
        if None not in places:
            indices, numbers = np.array(places, np.int32), np.array(list(x.values()), np.float64)
            if missing and np.isnan(numbers).any():
                return _entries_by_name(x, known, missing=True)
            if places == sorted(places):  # type: ignore[type-var]
                return indices, numbers, {}
            order = np.argsort(indices)
            return indices[order], numbers[order], {}
    return _entries_by_name(x, known, missing=missing)


def _entries_by_name(
    x: Mapping[Any, Any], known: Mapping[Any, int], *, missing: bool
) -> tuple[NDArray[np.int32], Floats, dict[Any, int]]:
    """Do as `entries_of_dict`, one feature after another."""
    named: dict[Any, float] = {}
    for name, value in x.items():
        if missing and (value is None or value != value):
            if name in known:
                named[name] = np.nan
            name, value = f"{name}{IS_MISSING}", 1.0
        if isinstance(value, str):
            name, value = f"{name}={value}", 1.0
        try:
            number = float(value)
            if isinstance(value, bytes | bytearray):  # float(b"1") is 1.0
                raise TypeError
        except (TypeError, ValueError):
            raise ValueError(f"x[{name!r}] must be a number, a boolean or a string, got {value!r}.") from None
        if name in named:
            raise ValueError(f"x has the feature {name!r} twice, once as a name and once as a name with its value.")
        named[name] = number
    unknown = sorted((name for name in named if name not in known), key=str)
    new = {name: index for index, name in enumerate(unknown, len(known))}
    indices = np.array([known[name] if name in known else new[name] for name in named], np.int32)
    order = np.argsort(indices)
    return indices[order], np.array(list(named.values()), np.float64)[order], new


def entries_of_pair(x: tuple[Any, ...]) -> tuple[NDArray[np.int32], Floats]:
    """Return indices, ascending, and values of a row."""
    right = len(x) == 2
    if right:
        indices, values = np.asarray(x[0]), np.asarray(x[1])
        if indices.shape == values.shape == (0,):
            return np.empty(0, np.int32), np.empty(0)
        right = indices.ndim == 1 and indices.shape == values.shape
        right = right and indices.dtype.kind in "iu" and values.dtype.kind in "biuf"
    if not right:
        raise ValueError(f"A row as a tuple must be (indices, values), as many integers as numbers, got {x!r:.60}.")
    if indices.min() < 0 or indices.max() > LAST:
        raise ValueError(f"The indices of a row must be in [0, {LAST}], got {indices.min()} to {indices.max()}.")
    order = np.argsort(indices, kind="stable")
    indices = indices[order].astype(np.int32)
    if (indices[1:] == indices[:-1]).any():
        raise ValueError(f"A row has the index {indices[1:][indices[1:] == indices[:-1]][0]} twice.")
    return indices, values[order].astype(np.float64)
