"""Parsing of single rows: dicts, (indices, values) pairs and one-dimensional arrays."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["dicts", "pairs", "rows"]

LAST = 2**31 - 2  # largest index; indices are int32
IS_MISSING = " is missing"  # suffix of the names of missing-value indicators
PLAIN = {float, bool, np.float64}


def kind_of(x: Any) -> Kind:
    """Return the kind of row x. Everything except a dict or a tuple is a row of fixed width."""
    if isinstance(x, Mapping):
        return "dicts"
    return "pairs" if isinstance(x, tuple) else "rows"


def entries_of_dict(
    x: Mapping[Any, Any], known: Mapping[Any, int], *, missing: bool = False
) -> tuple[NDArray[np.int32], Floats, dict[Any, int]]:
    """Return the ascending indices and the values of a row, and the indices of new names.

    New names get indices in alphabetical order, so the order of the dict does not matter, not even for rounding errors.
    With `missing`, None and NaN are missing values: a known feature gets the value NaN, and an indicator feature is 1.
    """
    if PLAIN.issuperset(map(type, x.values())):  # fast path for known names, five times as fast
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
    """Do the same as `entries_of_dict`, one feature at a time."""
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
            raise ValueError(f"x has the feature {name!r} twice: as a name, and as a name with a string value.")
        named[name] = number
    unknown = sorted((name for name in named if name not in known), key=str)
    new = {name: index for index, name in enumerate(unknown, len(known))}
    indices = np.array([known[name] if name in known else new[name] for name in named], np.int32)
    order = np.argsort(indices)
    return indices[order], np.array(list(named.values()), np.float64)[order], new


def entries_of_pair(x: tuple[Any, ...]) -> tuple[NDArray[np.int32], Floats]:
    """Return the ascending indices and the values of a row."""
    right = len(x) == 2
    if right:
        indices, values = np.asarray(x[0]), np.asarray(x[1])
        if indices.shape == values.shape == (0,):
            return np.empty(0, np.int32), np.empty(0)
        right = indices.ndim == 1 and indices.shape == values.shape
        right = right and indices.dtype.kind in "iu" and values.dtype.kind in "biuf"
    if not right:
        raise ValueError(
            f"x as a tuple must be (indices, values), integers and numbers of equal length, got {x!r:.60}."
        )
    if indices.min() < 0 or indices.max() > LAST:
        raise ValueError(f"The indices of x must be in [0, {LAST}], got {indices.min()} to {indices.max()}.")
    order = np.argsort(indices, kind="stable")
    indices = indices[order].astype(np.int32)
    if (indices[1:] == indices[:-1]).any():
        raise ValueError(f"The indices of x must be distinct, got {indices[1:][indices[1:] == indices[:-1]][0]} twice.")
    return indices, values[order].astype(np.float64)
