"""Checks and conversions of the items of an iterable: blocks of rows, and labels."""

import numbers
from typing import Any

import numpy as np

from robustfd.streams._base import Block
from robustfd.streams._errors import StreamError
from robustfd.streams._npy import as_floats


def as_pair(item: Any) -> tuple[Any, Any]:
    """Return the rows and labels of an item, which is X or the tuple (X, y)."""
    return item if isinstance(item, tuple) and len(item) == 2 else (item, None)


def is_table(rows: Any) -> bool:
    """Return whether this is a table: a DataFrame of pandas or polars, or a pyarrow table."""
    return hasattr(rows, "__arrow_c_stream__") or is_pandas(rows)


def is_pandas(rows: Any) -> bool:
    """Return whether this is a pandas DataFrame."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def as_block(x: Any, y: Any, k: int) -> Block:
    """Return block k: X as an array of floats or a CSR matrix, y as an array."""
    name = f"Block {k} (from 0)"
    try:
        x = x.tocsr() if hasattr(x, "tocsr") else np.asarray(x)
    except ValueError as error:
        raise StreamError(f"{name} is not an array of rows: {error}") from error
    if x.ndim != 2 or x.dtype.kind not in "biuf" or x.shape[1] < 1:
        raise StreamError(
            f"{name} should be numbers in rows and columns, got an array of shape {x.shape} and type {x.dtype}. "
            "A single row is x.reshape(1, -1). Tables with text or dates need TableEncoder.learn(table)."
        )
    x = as_floats(x)
    if not isinstance(x, np.ndarray) and not x.has_canonical_format:
        x = x.copy()  # do not sort the caller's matrix
        x.sum_duplicates()
    if y is not None:
        y = np.asarray(y)
        if y.shape != (x.shape[0],):
            raise StreamError(f"{name} has {x.shape[0]} rows, and labels of the shape {y.shape}.")
        y = _typed(y)
    return Block(x, y)


def as_labels(labels: list[Any], bad: dict[int, str]) -> Any:
    """Return labels as an array, None if no row has one. If only some rows have labels, the others are bad."""
    without = [k for k, label in enumerate(labels) if label is None]
    if len(without) == len(labels):
        return None
    for k in without:
        bad.setdefault(k, "it has no label")
    example = next(label for label in labels if label is not None)
    text = isinstance(example, str)
    for k, label in enumerate(labels):
        if k not in bad and not (isinstance(label, str) if text else isinstance(label, numbers.Real | np.bool_)):
            bad[k] = f"its label is {label!r:.40}, and that of another row {example!r:.40}"
    kept = [example if k in bad else label for k, label in enumerate(labels)]
    return np.array(kept, dtype=object) if text else _typed(np.array(kept))


def _typed(y: Any) -> Any:
    """Return labels as int64, float64 or objects."""
    kind = y.dtype.kind
    return y.astype(np.int64 if kind in "biu" else np.float64 if kind == "f" else object)
