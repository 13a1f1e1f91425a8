"""Rows in the format of the core: checked, contiguous, float64."""

from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._scipy import scipy_sparse as sp

Floats = NDArray[np.float64]

FLOAT64 = np.dtype(np.float64)
CHUNK = 2**20  # entries of the chunks in which rows are converted to dense float64
FEW = 8  # up to this batch size, the core checks the rows themselves
LARGEST = 1e150  # squares of larger numbers can overflow
GROWTH = 1e70  # a call that makes numbers grow by more than this factor contains a row that is too large
LARGEST_NUMBER = 1e70  # largest number of a state after such growth; products of four of them are finite


class CsrRows(NamedTuple):
    """Rows in CSR format: row i has the entries indptr[i] to indptr[i + 1] - 1 of data and of indices."""

    data: Floats
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    width: int = 0  # number of features, if it matters

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of features."""
        return len(self.indptr) - 1, self.width

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return len(self.data)

    def take(self, keep: Any) -> "CsrRows":
        """Return the rows that a mask, a slice or indices select. Rows may repeat."""
        which = np.arange(len(self.indptr) - 1)[keep]
        entries, indptr = entries_of_runs(self.indptr[which], np.diff(self.indptr)[which])
        return CsrRows(self.data[entries], self.indices[entries], indptr, self.width)


def entries_of_runs(
    starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the entries of runs, given starts and lengths, and the `indptr` of the runs."""
    indptr = np.append(0, np.cumsum(lengths))
    return np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths), indptr


StoredRows = tuple[Any, Floats, Floats]  # rows, dense or sparse, their targets and their weights


def most_entries(x: Any, part: slice) -> int:
    """Return the largest number of entries of one of these rows."""
    if isinstance(x, CsrRows):
        if len(x.indptr) == 2:  # a single row
            return x.indptr.item(1) - x.indptr.item(0)
        return int(np.diff(x.indptr[part.start : part.stop + 1]).max(initial=0))
    return int(x.shape[1])


def stored(batch: Any, part: slice) -> StoredRows:
    """Return copies of some rows, targets and weights of a batch, which holds these three first."""
    x, y, weight = batch[:3]
    if not isinstance(x, CsrRows):
        return x[part].copy(), y[part].copy(), weight[part].copy()
    indptr = x.indptr[part.start : part.stop + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    rows = CsrRows(x.data[entries].copy(), x.indices[entries].copy(), indptr - indptr[0])
    return rows, y[part].copy(), weight[part].copy()


def joined(some: list[StoredRows]) -> StoredRows:
    """Return the concatenation of stored rows, targets and weights; the rows are sparse if any of them are."""
    if len(some) == 1:
        return some[0]
    x: Any = [rows for rows, _, _ in some]
    if any(isinstance(rows, CsrRows) for rows in x):
        x = [sparse_rows(rows) for rows in x]
        lengths = np.concatenate([np.diff(rows.indptr) for rows in x])
        data, indices = (np.concatenate([getattr(rows, name) for rows in x]) for name in ("data", "indices"))
        x = CsrRows(data, indices, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    else:
        width = max(rows.shape[1] for rows in x)  # features may have been added
        x = np.vstack([widened(rows, width) for rows in x])
    y, weight = (np.concatenate([each[k] for each in some]) for k in (1, 2))
    return x, y, weight


def widened(x: Floats, d: int) -> Floats:
    """Return dense rows padded to d features."""
    return x if x.shape[1] == d else np.pad(x, ((0, 0), (0, d - x.shape[1])))


def with_columns_at(some: StoredRows, places: NDArray[np.int64], d: int) -> StoredRows:
    """Return rows with their columns moved to `places`."""
    x, y, weight = some
    if not isinstance(x, CsrRows):
        wide = np.zeros((len(x), d))
        wide[:, places[: x.shape[1]]] = x
        return wide, y, weight
    moved = sp.csr_array((x.data, places[x.indices], x.indptr), shape=(len(y), d)).sorted_indices()
    return CsrRows(moved.data, moved.indices.astype(np.int32), moved.indptr.astype(np.int64)), y, weight


def sort_keys(x: Any, y: Floats, weight: Floats) -> list[bytes]:
    """Return a sort key for each row: pseudo-random, and independent of the part that the row was in."""
    x = sparse_rows(x)
    live = x.data != 0
    ends = np.append(0, np.cumsum(live))[x.indptr].tolist()
    # Copy all bytes at once: copying row by row would take most of the time of a merge.
    columns, values, targets, weights = (memoryview(a.tobytes()) for a in (x.indices[live], x.data[live], y, weight))
    keys = []
    for row, (start, stop) in enumerate(pairwise(ends)):
        of_row = columns[4 * start : 4 * stop], values[8 * start : 8 * stop]
        one = slice(8 * row, 8 * (row + 1))
        keys.append(sha256(b"".join([*of_row, targets[one], weights[one]])).digest())
    return keys


def plain_rows(x: Any) -> Any:
    """Return sparse rows as CsrRows, and dense rows unchanged."""
    if type(x) is CsrRows or not sp.issparse(x):
        return x
    return CsrRows(x.data, x.indices.astype(np.int32, copy=False), x.indptr.astype(np.int64, copy=False))


def sparse_rows(x: Any) -> CsrRows:
    """Return dense rows or CsrRows as CsrRows."""
    rows: CsrRows = x if isinstance(x, CsrRows) else plain_rows(sp.csr_array(x))
    return rows


def as_rows(x: Any, *, sparse: bool) -> Any:
    """Return rows as contiguous float64, dense or in CSR format with 32-bit indices."""
    if not sparse:
        return np.ascontiguousarray(x.toarray() if sp.issparse(x) else x, dtype=np.float64)
    x = sp.csr_array(x, dtype=np.float64)
    indices, indptr = x.indices.astype(np.int32, copy=False), x.indptr.astype(np.int64, copy=False)
    x.indices, x.indptr = indices, indptr
    return x


def writable(value: Any) -> Any:
    """Return an array as a writable one, and anything else unchanged: joblib may load arrays as memory maps."""
    if isinstance(value, np.ndarray) and not (type(value) is np.ndarray and value.flags.writeable):
        return np.array(value)
    return value


def check_numbers(x: Any, *, missing: bool = False) -> None:
    """Raise an error unless all numbers of x are finite and can be squared; with `missing`, NaN is allowed."""
    values = x if isinstance(x, np.ndarray) else x.data
    if type(values) is np.ndarray and values.dtype is FLOAT64 and values.flags.c_contiguous:
        flat = values.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if flat @ flat < LARGEST**2:  # a single pass; False if there is a NaN
                return
    if missing:
        with np.errstate(invalid="ignore"):
            largest = float(np.fmax.reduce(np.abs(values), axis=None, initial=0.0))
    else:
        largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if not largest <= LARGEST:  # written this way to catch NaN
        from sklearn.utils import assert_all_finite

        assert_all_finite(x, input_name="X", allow_nan=missing)
        raise ValueError(f"X contains {largest:g}; numbers above {LARGEST:g} in size cannot be squared.")
