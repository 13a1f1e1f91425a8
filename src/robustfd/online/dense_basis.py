"""The basis of dense rows: for every feature its weight and its entries in the rows of B, as a plain array.

The extra memory of the block holds this array and the rows of the block, which the shrink needs.
"""

from typing import Any

import numpy as np

from robustfd._compile import entry, loops
from robustfd._container import Tensors
from robustfd.linalg.lapack import at, further, gemm, view
from robustfd.online.block import (
    LEARNED,
    NEEDS_COPY,
    SAFE,
    Block,
    begin_rows,
    is_full,
    open_block,
    rows_in_block,
    step_rows,
)
from robustfd.online.progress import restore_totals, totals_now
from robustfd.online.rows import FEW, Batch, Extent, Floats, are_usable
from robustfd.online.shrink import Change, end_block, open_change
from robustfd.online.snapshot import Parts

STRIP = 256  # features that are updated at a time, few enough for their part of the basis to stay in the cache


class DenseBasis:
    """w and B of dense rows, stored in the memory of the block."""

    sparse = False

    def __init__(self, d: int, shrink_first: bool | None):
        self.d, self.shrink_first = d, shrink_first

    @staticmethod
    def size(d: int, m: int, rows: int) -> int:
        """Return the number of extra floats in the block: for the basis, the rows and a strip of features."""
        return d * (m + rows) + m * min(STRIP, d)

    def learn(
        self, routines: Any, memory: Floats, x: Any, y: Floats, weight: Floats, margins: Floats, progress: Floats
    ) -> int:
        """Learn from rows; return the number of rows before an overflow, or -1 if a value is not finite."""
        return learn_dense(routines, memory, self.shrink_first, x, y, weight, margins, progress)

    def keep(self, extent: Extent, ends_block: bool) -> None:
        """Return None: the caller already copies the memory of the block, which holds all that can change."""

    def undo(self, kept: None) -> None:
        """Do nothing, see `keep`."""

    def add_row(self, routines: Any, block: Block, x: Any, i: int) -> None:
        """Add row i of x to the block."""
        _add_dense(routines, block, x, i, 1)

    def change(self, routines: Any, block: Block, change: Change) -> None:
        """Apply the change at the end of a block to w and B."""
        basis, buffer = self._opened(block)
        _change_dense(routines, block, basis, np.uint64(buffer.ctypes.data), change)

    def weights(self, routines: Any, block: Block, steps: Change) -> Floats:
        """Return w after these steps of the block."""
        basis, buffer = self._opened(block)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks that w is finite
            w = basis[0] + steps.coef_b[0] @ basis[1:] + steps.coef_x[0] @ buffer[: steps.coef_x.shape[1]]
            return block.state[0].factor * w

    def margins(self, routines: Any, block: Block, steps: Change, x: Any) -> Floats:
        """Return w'x of dense or sparse rows, after these steps of the block."""
        return np.asarray(x @ self.weights(routines, block, steps))

    def multiply_weights(self, block: Block, factor: float) -> None:
        """Multiply the stored w by a factor."""
        self._opened(block)[0][0] *= factor

    def _opened(self, block: Block) -> tuple[Floats, Floats]:
        """Return the basis and the rows of the block as arrays."""
        return open_dense.py_func(block, self.d)

    def pack(self, block: Block) -> Tensors:
        """Return the basis and the rows of the block, for a snapshot."""
        basis, buffer = self._opened(block)
        return {"basis": basis.T, "buffer": buffer[: block.state[0].filled]}

    def unpack(self, block: Block, parts: Parts) -> None:
        """Restore the basis and the rows from a snapshot; the numbers of the block are already restored."""
        (basis, buffer), n = self._opened(block), int(block.state[0].filled)
        basis[:] = parts.array("basis", *basis.T.shape).T
        buffer[:n] = parts.array("buffer", n, self.d)


@loops
def open_dense(block: Block, d: int) -> Any:
    """Return the basis and the rows of the block, as views of its extra memory."""
    rows, q = block.products.shape
    return view(block.extra, 0, (q, d)), view(block.extra, d * q, (rows, d))


@loops
def add_dense(routines: Any, block: Block, x: Any, done: int, count: int) -> None:
    """Add `count` rows of x to the block, starting at row `done`."""
    first = block.state[0].filled
    basis, buffer = open_dense(block, x.shape[1])
    keep_rows(buffer[first:], x[done : done + count])
    if count == 1 and add_thin(block, basis, buffer):
        begin_rows(routines, block, first, first + 1)
    else:
        add_from(routines, block, basis, at(buffer, 0), count)


@loops
def keep_rows(buffer: Any, x: Any) -> None:
    """Copy rows to the beginning of the buffer."""
    for i in range(len(x)):
        source, target = x[i], buffer[i]
        for j in range(len(source)):
            target[j] = source[j]


@loops
def add_from(routines: Any, block: Block, basis: Any, rows: Any, count: int) -> None:
    """Add the next `count` of the rows that begin at the address `rows` to the block.

    The products are computed for a strip of features at a time, so that the data stay in the L1 cache.
    """
    (q, d), first, size = basis.shape, block.state[0].filled, len(block.gram)
    last, new = first + count, further(rows, first * d)
    products, gram = at(block.products, first * q), at(block.gram, first * size)
    for start in range(0, d, STRIP):
        width, keep = min(STRIP, d - start), 0.0 if start == 0 else 1.0
        here, old = further(new, start), further(rows, start)
        gemm(routines, False, True, count, q, width, 1.0, here, d, at(basis, start), d, keep, products, q)
        gemm(routines, False, True, count, last, width, 1.0, here, d, old, d, keep, gram, size)
    begin_rows(routines, block, first, last)


@loops
def add_thin(block: Block, basis: Any, buffer: Any) -> bool:
    """Compute the products of the last row of the buffer if few of its entries are non-zero; return whether it did."""
    i = block.state[0].filled
    row, products = buffer[i], block.products[i]
    gram, count = block.gram[i], 0
    for e in range(len(row)):
        count += row[e] != 0.0
    if 4 * count > len(row):
        return False
    for j in range(len(products)):
        products[j] = 0.0
    for j in range(i + 1):
        gram[j] = 0.0
    for e in range(len(row)):
        x = row[e]
        if x != 0.0:
            for j in range(len(products)):
                products[j] += x * basis[j, e]
            for j in range(i + 1):
                gram[j] += x * buffer[j, e]
    return True


@loops
def change_dense(routines: Any, block: Block, basis: Any, rows: Any, change: Change) -> None:
    """Apply a change to w and B; the rows of the block begin at the address `rows`."""
    q, d = basis.shape
    coef_b, coef_x = change.coef_b, change.coef_x
    r, count = q - 1, coef_x.shape[1]
    strip = view(block.extra, d * (q + len(block.gram)), (q, min(STRIP, d)))
    out, line = at(strip, 0), strip.shape[1]
    for start in range(0, d, STRIP):
        width, here = min(STRIP, d - start), further(rows, start)
        gemm(routines, False, False, q, width, r, 1.0, at(coef_b, 0), r, at(basis, d + start), d, 0.0, out, line)
        gemm(routines, False, False, q, width, count, 1.0, at(coef_x, 0), count, here, d, 1.0, out, line)
        for i in range(q):
            source, target = strip[i], basis[i, start : start + width]
            for j in range(width):
                target[j] = source[j] + (target[j] if i == 0 else 0.0)


@entry
@loops
def learn_dense(
    routines: Any, memory: Any, shrink_first: Any, x: Any, y: Any, weight: Any, margins: Any, progress: Any
) -> int:
    """Learn from the rows of x; return the number of rows before an overflow, or -1 if a value is not finite.

    Without a copy of the state, the loop only makes changes that it can undo. Until the block ends, rows are only
    appended, so it is enough to reset the counts. The end of a block cannot be undone. It is reached only by rows
    without extreme numbers and only by the last row of the batch, and it changes nothing if it fails. In all other
    cases the loop undoes its changes and returns NEEDS_COPY.

    The arguments are arrays instead of records, because passing a record takes a quarter of the time of a row.
    """
    block = open_block(memory)
    batch, state = Batch(y, weight, margins), block.state[0]
    basis, buffer = open_dense(block, x.shape[1])
    done: Any = np.int64(0)  # a literal 0 has its own numba type, and would compile callees twice
    if len(x) <= FEW and not are_usable(x, y):  # Python does not check small batches
        return -1
    if state.kept == 0 and state.filled + len(x) > rows_in_block(block):
        return NEEDS_COPY
    filled, seen, rank, span, careful = state.filled, state.seen, state.rank, state.span, state.careful
    totals = totals_now(progress)
    while done < len(x) and state.status == LEARNED:
        count, rows, before = min(rows_in_block(block) - state.filled, len(x) - done), at(buffer, 0), done
        if count == rows_in_block(block):  # x holds the whole block, so the rows need not be copied
            rows = at(x, done * x.shape[1])
            add_from(routines, block, basis, rows, count)
        else:
            add_dense(routines, block, x, done, count)
        done += step_rows(block, batch, progress, done, count)
        if state.kept == 0 and state.extreme != SAFE:
            break
        if is_full(block):
            change = open_change(block)
            if end_block(routines, block, change, shrink_first):
                change_dense(routines, block, basis, rows, change)
        if state.status != LEARNED and count == rows_in_block(block):  # w is expressed in these rows
            keep_rows(buffer, x[before : before + count])
    if state.kept == 0 and (state.extreme != SAFE or state.status != LEARNED):
        state.filled, state.seen, state.rank, state.span, state.careful = filled, seen, rank, span, careful
        state.status, state.extreme = LEARNED, SAFE
        restore_totals(progress, totals)
        return NEEDS_COPY
    return done


_add_dense, _change_dense = entry(add_dense), entry(change_dense)
