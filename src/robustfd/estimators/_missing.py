"""Missing values, NaN in rows: for each column where one occurs there is a feature that says that it is missing."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def gaps(x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows and the columns of missing values, row by row."""
    values = (x.data if sp.issparse(x) else x).reshape(-1)
    if np.isfinite(values @ values):  # the usual case, in one pass
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.flatnonzero(np.isnan(values))
    if not sp.issparse(x):
        return at // x.shape[1], at % x.shape[1]
    return np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at].astype(np.int64)


def first_gaps(x: Any, known: list[int]) -> list[tuple[int, list[int]]]:
    """Return the rows where values are missing in columns that are not among `known`, and those columns.

    Each column is listed once, with the first row.
    """
    rows, columns = gaps(x)
    _, first = np.unique(columns, return_index=True)
    found: dict[int, list[int]] = {}
    for at in np.sort(first):
        if columns[at] not in known:
            found.setdefault(int(rows[at]), []).append(int(columns[at]))
    return list(found.items())


def with_indicators(x: Any, known: list[int]) -> Any:
    """Return rows with a column after the others for each of `known`: 1 where x is missing there, else 0."""
    n, d = x.shape
    if not known:
        return x
    if not sp.issparse(x):
        return np.hstack([x, np.isnan(x[:, known])])
    rows, columns = gaps(x)
    place = np.full(d, -1)
    place[known] = d + np.arange(len(known))
    rows, columns = rows[place[columns] >= 0], place[columns][place[columns] >= 0]
    more = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, d + len(known)))
    return sp.csr_array((x.data, x.indices, x.indptr), shape=more.shape) + more
