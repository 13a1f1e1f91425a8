"""Sketched Newton learning of many rows: into the block, their steps, and the basis brought up to date after it.

For every feature the basis holds its weight and its entries in the rows of B: a plain array for dense rows, and the
arrangement of _columns.py for sparse ones.
"""

from typing import Any

import numpy as np

from robustfd.linalg._compile import compiled, inner
from robustfd.linalg.lapack import at, gemm
from robustfd.online._block import (
    FILLED,
    LEARNT,
    LOSS_CODE,
    LOSS_DELTA,
    OVERFLOW,
    STATUS,
    WIDTH,
    Block,
    begin_rows,
    end_block,
    learn_row,
    open_block,
    rows_in_block,
)
from robustfd.online._columns import (
    ENTRIES,
    ROWS,
    RUN_ENTRIES,
    Columns,
    change,
    end_run,
    enter_row,
    gather,
    has_room,
)
from robustfd.online.progress import tally

FEW = 8  # rows of a call that are not worth checking before it
LARGEST = 1e150  # squares of larger numbers overflow
STRIP = 256  # features that are brought up to date at a time: their part of the basis stays in the cache


@compiled
def open_dense(block: Block, d: int) -> Any:
    """Return the basis and the rows of the block, which live in its extra memory."""
    rows, q = block.products.shape
    return block.extra[: d * q].reshape(d, q), block.extra[d * q :].reshape(rows, d)


@compiled
def enter_dense(routines: Any, block: Block, basis: Any, buffer: Any, x: Any, done: int, count: int) -> None:
    """Take `count` rows of x into the block, from row `done` on."""
    d, q, first, size = x.shape[1], basis.shape[1], block.counts[FILLED], len(block.gram)
    last, here = first + count, at(buffer, first * d)
    for i in range(count):
        source, target = x[done + i], buffer[first + i]
        for j in range(d):
            target[j] = source[j]
    if count == 1 and enter_thin(block, basis, buffer):
        begin_rows(routines, block, first, last)
        return
    gemm(routines, False, False, count, q, d, 1.0, here, d, at(basis, 0), q, 0.0, at(block.products, first * q), q)
    gemm(routines, False, True, count, last, d, 1.0, here, d, at(buffer, 0), d, 0.0, at(block.gram, first * size), size)
    begin_rows(routines, block, first, last)


@inner
def enter_thin(block: Block, basis: Any, buffer: Any) -> bool:
    """Take the products of one row, the last of the buffer, if few of its entries are not zero; return whether so."""
    i = block.counts[FILLED]
    row, products = buffer[i], block.products[i]
    where, count = np.empty(len(row) // 4, np.int64), 0
    for j in range(len(row)):
        if row[j] != 0.0:
            if count == len(where):
                return False
            where[count] = j
            count += 1
    products[:] = 0.0
    for e in range(count):
        x, source = row[where[e]], basis[where[e]]
        for j in range(len(products)):
            products[j] += x * source[j]
    for j in range(i + 1):
        other, total = buffer[j], 0.0
        for e in range(count):
            total += row[where[e]] * other[where[e]]
        block.gram[i, j] = total
    return True


@compiled
def change_dense(routines: Any, basis: Any, buffer: Any, on_b: Any, on_x: Any) -> None:
    """Let w and B become what `end_block` says."""
    d, q = basis.shape
    r, rows = q - 1, on_x.shape[1]
    strip = np.empty((min(STRIP, d), q))
    for start in range(0, d, STRIP):
        size = min(STRIP, d - start)
        for i in range(size):
            for j in range(q):
                strip[i, j] = basis[start + i, 0] if j == 0 else 0.0
        out = at(strip, 0)
        gemm(routines, False, True, size, q, r, 1.0, at(basis, start * q + 1), q, at(on_b, 0), r, 1.0, out, q)
        gemm(routines, True, True, size, q, rows, 1.0, at(buffer, start), d, at(on_x, 0), rows, 1.0, out, q)
        for i in range(size):
            for j in range(q):
                basis[start + i, j] = strip[i, j]


@compiled
def enter_sparse(
    routines: Any, block: Block, columns: Columns, data: Any, indices: Any, indptr: Any, done: int, count: int
) -> None:
    """Take `count` rows into the block, from row `done` on; there must be room."""
    q, r, first, run = columns.basis.shape[1], len(block.lam), block.counts[FILLED], columns.counts[ROWS]
    base = run - first
    gather(routines, columns, indices, indptr[done], indptr[done + count])
    seen, overlaps = np.empty((count, r + base)), np.empty(run + count)
    for i in range(count):
        row = block.products[first + i]
        enter_row(columns, data, indices, indptr[done + i], indptr[done + i + 1], row, overlaps)
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


@compiled
def change_sparse(routines: Any, block: Block, columns: Columns, on_b: Any, on_x: Any) -> None:
    """Let w and B become what `end_block` says, and end the run when it is long enough."""
    change(routines, columns, on_b, on_x, on_x.shape[1])
    room = len(columns.coefficients) - len(block.lam) - columns.counts[ROWS]
    if room < rows_in_block(block) or columns.counts[ENTRIES] > RUN_ENTRIES:
        end_run(routines, columns)


@compiled
def step_rows(
    settings: Any, block: Block, done: int, count: int, y: Any, weight: Any, margins: Any, progress: Any
) -> int:
    """Take the steps of the rows just entered; return how many of them until the numbers overflowed."""
    scratch = np.empty((2, len(block.gram)))
    for i in range(count):
        p = learn_row(settings, block, block.counts[FILLED], y[done + i], weight[done + i], scratch)
        if not abs(p) < np.inf:
            block.counts[STATUS] = OVERFLOW
            return i
        block.counts[FILLED] += 1
        margins[done + i] = p
        tally(int(settings[LOSS_CODE]), settings[LOSS_DELTA], p, y[done + i], weight[done + i], progress)
    return count


@compiled
def learn_dense(
    routines: Any, settings: Any, memory: Any, counts: Any, x: Any, y: Any, weight: Any, margins: Any, progress: Any
) -> int:
    """Learn the rows of x; return how many were learnt before the numbers overflowed, or -1 if one is not finite."""
    block = open_block(memory, counts)
    basis, buffer = open_dense(block, x.shape[1])
    done, q = 0, counts[WIDTH]
    if len(x) <= FEW:  # they come unchecked
        for i in range(len(x)):
            for j in range(x.shape[1]):
                if not abs(x[i, j]) <= LARGEST or not abs(y[i]) <= LARGEST:
                    return -1
    while done < len(x) and counts[STATUS] == LEARNT:
        count = min(rows_in_block(block) - counts[FILLED], len(x) - done)
        enter_dense(routines, block, basis, buffer, x, done, count)
        done += step_rows(settings, block, done, count, y, weight, margins, progress)
        if counts[FILLED] == rows_in_block(block):
            on_b, on_x = np.zeros((q, q - 1)), np.zeros((q, counts[FILLED]))
            if end_block(routines, settings, block, on_b, on_x):
                change_dense(routines, basis, buffer, on_b, on_x)
    return done


@compiled
def learn_sparse(
    routines: Any, settings: Any, memory: Any, counts: Any, columns: Columns, data: Any, indices: Any, indptr: Any,
    y: Any, weight: Any, margins: Any, progress: Any,
) -> int:  # fmt: skip
    """Learn rows in compressed form; return how many were, before there was no room or the numbers overflowed."""
    block = open_block(memory, counts)
    done, q = 0, counts[WIDTH]
    while done < len(y) and counts[STATUS] == LEARNT:
        count = min(rows_in_block(block) - counts[FILLED], len(y) - done)
        if not has_room(columns, indptr[done + count] - indptr[done]):
            return done
        enter_sparse(routines, block, columns, data, indices, indptr, done, count)
        done += step_rows(settings, block, done, count, y, weight, margins, progress)
        if counts[FILLED] == rows_in_block(block):
            on_b, on_x = np.zeros((q, q - 1)), np.zeros((q, counts[FILLED]))
            if end_block(routines, settings, block, on_b, on_x):
                change_sparse(routines, block, columns, on_b, on_x)
    return done
