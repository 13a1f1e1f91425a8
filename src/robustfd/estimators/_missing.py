"""Indicator features for missing values: one for each column that has contained NaN."""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._scipy import scipy_sparse as sp


def missing_entries(x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and column indices of missing values in row order."""
    values = (x.data if sp.issparse(x) else x).reshape(-1)
    if isfinite(values.dot(values)):  # the usual case, in one pass
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.flatnonzero(np.isnan(values))
    if not sp.issparse(x):
        return at // x.shape[1], at % x.shape[1]
    return np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at].astype(np.int64)


def first_missing(x: Any, known: list[int]) -> list[tuple[int, list[int]]]:
    """Return (row, columns) pairs where a column not in `known` has its first missing value."""
    rows, columns = missing_entries(x)
    if not len(rows):
        return []
    _, first = np.unique(columns, return_index=True)
    found: dict[int, list[int]] = {}
    for at in np.sort(first):
        if columns[at] not in known:
            found.setdefault(int(rows[at]), []).append(int(columns[at]))
    return list(found.items())


def with_indicators(x: Any, known: list[int]) -> Any:
    """Return x with an indicator column appended for each column in `known`: 1 where it is missing, else 0."""
    n, d = x.shape
    if not known:
        return x
    if not sp.issparse(x):
        return np.hstack([x, np.isnan(x[:, known])])
    rows, columns = missing_entries(x)
    place = np.full(d, -1)
    place[known] = d + np.arange(len(known))
    rows, columns = rows[place[columns] >= 0], place[columns][place[columns] >= 0]
    more = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, d + len(known)))
    return sp.csr_array((x.data, x.indices, x.indptr), shape=more.shape) + more
