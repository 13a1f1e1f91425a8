"""The basis of wide sparse rows, on top of columns.py: features that do not occur cost nothing."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd._compile import entry, loops
from robustfd._container import Tensors
from robustfd.linalg.lapack import at, gemm, view
from robustfd.online import columns as columns_
from robustfd.online.block import (
    LEARNED,
    OVERFLOW,
    Block,
    begin_rows,
    is_full,
    open_block,
    rows_in_block,
    state_of,
    step_rows,
)
from robustfd.online.columns import Columns, append_row, change_columns, end_run, gather, has_capacity
from robustfd.online.rows import Batch, CsrRows, Extent, Floats, as_rows
from robustfd.online.shrink import Change, end_block, open_change
from robustfd.online.snapshot import Parts

RUN_ROWS = 256  # approximate number of rows of a run, which consists of whole blocks
RUN_ENTRIES = 2**19  # non-zeros after which a run ends at the next block


class SparseBasis:
    """w and B of sparse rows."""

    sparse = True

    def __init__(self, d: int, m: int, rows: int, shrink_first: bool | None):
        later = rows - (m - 1)  # rows of a block after the first
        self.shrink_first, self.later = shrink_first, later
        self.columns: Any = columns_.start(d, m, m - 1, max(rows, later * (RUN_ROWS // later)))
        self.scratch: Any = columns_.scratch_for(self.columns, rows)  # scratch memory

    @property
    def d(self) -> int:
        """Number of features for which memory is allocated."""
        return len(self.columns.age)

    def learn(
        self, routines: Any, memory: Floats, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats
    ) -> int:
        """Learn from rows; return the number of rows before an overflow."""
        state, done, n = state_of(memory), 0, len(y)
        while done < n and state.status != OVERFLOW:
            self._reserve(x, done, min(done + int(state.buffer), n))
            rows = CsrRows(x.data, x.indices, x.indptr[done:])
            batch = Batch(y[done:], weight[done:], margins[done:])
            done += learn_sparse(routines, memory, self.shrink_first, self.columns, self.scratch, rows, batch, progress)
        return done

    def keep(self, extent: Extent, ends_block: bool) -> Any:
        """Return the copies that `undo` needs to revert rows of this extent, which may end blocks and runs."""
        run, runs = self.columns.run[0], 0
        if ends_block:
            least = len(self.columns.coefficients) - self.columns.history.shape[1] - self.later + 1  # rows of a run
            runs = (int(run.rows) + extent.rows) // max(least, 1) + (int(run.entries) + extent.entries) // RUN_ENTRIES
        return columns_.keep(self.columns, extent.features, runs, ends_block=ends_block)

    def undo(self, kept: Any) -> None:
        """Restore the basis from the result of `keep`."""
        self.columns = columns_.undo(kept)

    def add_row(self, routines: Any, block: Block, x: Any, i: int) -> None:
        """Add row i of x to the block."""
        self._reserve(x, i, i + 1)
        _add_sparse(routines, block, self.columns, self.scratch, CsrRows(x.data, x.indices, x.indptr), i, 1)

    def _reserve(self, x: Any, first: int, last: int) -> None:
        """Allocate memory for the entries of rows first to last - 1."""
        self.columns = columns_.with_capacity(self.columns, int(x.indptr[last] - x.indptr[first]))

    def change(self, routines: Any, block: Block, change: Change) -> None:
        """Apply the change at the end of a block to w and B."""
        _change_sparse(routines, block, self.columns, self.scratch, change)

    def weights(self, routines: Any, block: Block, steps: Change) -> Floats:
        """Return w after these steps of the block."""
        return self._weights_of(routines, block, steps, np.arange(self.d, dtype=np.int32))

    def _weights_of(self, routines: Any, block: Block, steps: Change, features: NDArray[np.int32]) -> Floats:
        moved = columns_.weights_of(routines, self.columns, features, steps.coef_b, steps.coef_x)
        return block.state[0].factor * moved[:, 0]

    def margins(self, routines: Any, block: Block, steps: Change, x: Any) -> Floats:
        """Return w'x of dense or sparse rows, after these steps of the block."""
        if sp.issparse(x) and x.nnz < x.shape[1]:  # only the features that occur
            x = as_rows(x, sparse=True)
            features, place = np.unique(x.indices, return_inverse=True)
            w = self._weights_of(routines, block, steps, features)
            return np.asarray(sp.csr_array((x.data, place, x.indptr), shape=(x.shape[0], len(features))) @ w)
        return np.asarray(x @ self.weights(routines, block, steps))

    def multiply_weights(self, block: Block, factor: float) -> None:
        """Multiply the stored w by a factor."""
        c = self.columns
        c.run[0].reach = 0  # recomputed from the history when needed
        for array in (c.basis, c.gathered, c.coefficients, c.history):
            array[..., 0] *= factor

    def widen(self, d: int) -> None:
        """Allocate memory for d features."""
        self.columns = columns_.with_features(self.columns, d)

    def pack(self, block: Block) -> Tensors:
        """Return the arrays of the basis, for a snapshot."""
        return pack_columns(self.columns, int(block.state[0].filled))

    def unpack(self, block: Block, parts: Parts) -> None:
        """Restore the basis from a snapshot; the numbers of the block are already restored."""
        self.columns = c = unpack_columns(self.columns, parts, int(block.state[0].filled))
        c.scale[: c.run[0].features] = 1.0
        left = rows_in_block.py_func(block) - block.state[0].filled
        if len(c.coefficients) - len(block.lam) - c.run[0].rows < left:
            raise ValueError("the run has too many rows for the block")


@entry
@loops
def learn_sparse(
    routines: Any,
    memory: Any,
    shrink_first: Any,
    columns: Columns,
    scratch: Any,
    rows: CsrRows,
    batch: Batch,
    progress: Any,
) -> int:
    """Learn from rows; return the number of rows before the memory is full or the numbers overflow."""
    block = open_block(memory)
    state, n = block.state[0], len(batch.y)
    done: Any = np.int64(0)  # a literal 0 has its own numba type, and would compile callees twice
    while done < n and state.status == LEARNED:
        count = min(rows_in_block(block) - state.filled, n - done)
        if not has_capacity(columns, rows.indptr[done + count] - rows.indptr[done]):
            return done
        add_sparse(routines, block, columns, scratch, rows, done, count)
        done += step_rows(block, batch, progress, done, count)
        if is_full(block):
            change = open_change(block)
            if end_block(routines, block, change, shrink_first):
                change_sparse(routines, block, columns, scratch, change)
    return done


@loops
def add_sparse(
    routines: Any, block: Block, columns: Columns, scratch: Any, rows: CsrRows, done: int, count: int
) -> None:
    """Add `count` rows to the block, starting at row `done`; the caller has checked that they fit."""
    q, r, first = columns.basis.shape[1], len(block.lam), block.state[0].filled
    base = columns.run[0].rows - first
    gather(routines, columns, rows.indices, rows.indptr[done], rows.indptr[done + count])
    seen, overlaps = view(scratch, 0, (count, r + base)), scratch[count * (r + base) :]
    for i in range(count):
        row = block.products[first + i]
        append_row(columns, rows, done + i, row, overlaps)
        for j in range(r):
            seen[i, j] = row[q - r + j]
            row[q - r + j] = 0.0
        for j in range(base):
            seen[i, r + j] = overlaps[j]
        for j in range(first + i + 1):
            block.gram[first + i, j] = overlaps[base + j]
    gemm(
        routines, False, False, count, q, r + base,
        1.0, at(seen, 0), r + base, at(columns.coefficients, 0), q, 1.0, at(block.products, first * q), q,
    )  # fmt: skip
    begin_rows(routines, block, first, first + count)


@loops
def change_sparse(routines: Any, block: Block, columns: Columns, scratch: Any, change: Change) -> None:
    """Apply a change to w and B, and end the run if it is long enough."""
    change_columns(routines, columns, scratch, change.coef_b, change.coef_x)
    left = len(columns.coefficients) - len(block.lam) - columns.run[0].rows
    if left < rows_in_block(block) or columns.run[0].entries > RUN_ENTRIES:
        end_run(routines, columns, scratch)


_add_sparse, _change_sparse = entry(add_sparse), entry(change_sparse)


# -- the columns in a snapshot (docs/snapshot-format.md)


def pack_columns(columns: Columns, filled: int) -> Tensors:
    """Return the arrays of a basis and its run, whose last `filled` rows belong to the current block."""
    run = columns.run[0]
    value, row, where = columns_.entries_of(columns)
    return {
        "basis": columns.basis,
        "age": columns.age,
        "history": columns.history[: run.number],
        "run.coefficients": columns.coefficients[: columns.history.shape[1] + run.rows - filled],
        "run.feature": columns.feature[: run.features],
        "run.gathered": columns.gathered[: run.features],
        "run.where": where,
        "run.row": row,
        "run.value": value,
    }


def unpack_columns(columns: Columns, parts: Parts, filled: int) -> Columns:
    """Return the basis and the run in a snapshot; `columns` is an empty basis. The caller must set `scale`."""
    (d, q), r = columns.basis.shape, columns.history.shape[1]
    number, most = parts.shape("history", 3)[0], len(columns.coefficients)
    features, entries = parts.shape("run.feature", 1)[0], parts.shape("run.value", 1)[0]
    have = parts.shape("run.coefficients", 2)[0]
    rows = have - r + filled
    if number >= columns_.RUNS or have < r or r + rows > most or features > min(entries, d):
        raise ValueError(f"run {number} of {rows} rows with {entries} entries of {features} features")
    columns = columns_.with_capacity(columns, entries)
    columns = columns._replace(basis=parts.array("basis", d, q), age=parts.array("age", d, dtype=np.uint8, most=number))
    columns.history[:number] = parts.array("history", number, r, q)
    columns.coefficients[:have] = parts.array("run.coefficients", have, q)
    feature = parts.array("run.feature", features, dtype=np.int32, least=0, most=d - 1)
    columns.feature[:features] = feature
    columns.place[feature] = np.arange(features)
    if not np.array_equal(columns.place[feature], np.arange(features)):
        raise ValueError("a feature occurs twice in the run")
    columns.gathered[:features] = parts.array("run.gathered", features, q)
    where = parts.array("run.where", entries, dtype=np.int32, least=0, most=features - 1)
    row = parts.array("run.row", entries, dtype=np.int32, least=0, most=rows - 1)
    if np.any(row[1:] < row[:-1]):
        raise ValueError("the rows of the run are out of order")
    columns.run[0].features, columns.run[0].rows, columns.run[0].number = features, rows, number
    columns_.store_entries(columns, parts.array("run.value", entries), row, where)
    return columns
