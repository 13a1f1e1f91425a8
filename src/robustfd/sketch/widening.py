"""More columns for a sketch, as if all its rows had had zeros there."""

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from robustfd._scipy import scipy_sparse as sp
from robustfd.sketch.rows import Rows

Sketch = TypeVar("Sketch")


def widened(sketch: Sketch, d: int) -> Sketch:
    """Return a copy of a sketch that has seen rows, with d columns."""
    if hasattr(sketch, "window"):
        raise ValueError("New features cannot appear in a sliding window. Name all of them in the first row.")
    new: Any = copy.copy(sketch)
    more = d - new.n_features_in_
    arrays = {name: getattr(new._state, name) for name in new._state.ARRAYS}
    new._state = replace(new._state, **{
        name: None if value is None else _padded(value, new._state.ARRAYS[name].split(), more)
        for name, value in arrays.items()
    })  # fmt: skip
    new._queue = replace(new._queue, pieces=tuple(_wider_rows(each, d) for each in new._queue.pieces))
    new.n_features_in_, new._cached = d, None
    return new


def _padded(value: Any, axes: list[str], more: int) -> Any:
    """Return an array with zeros at the end of the axes of features."""
    return np.pad(value, [(0, more if axis == "d" else 0) for axis in axes])


def _wider_rows(rows: Rows, d: int) -> Rows:
    x = rows.x
    if rows.is_sparse:
        return replace(rows, x=sp.csr_array((x.data, x.indices, x.indptr), shape=(x.shape[0], d)))
    return replace(rows, x=_padded(x, ["n", "d"], d - x.shape[1]))
