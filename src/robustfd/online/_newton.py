"""Sketched Newton learning of many rows: into the block, their steps, and the basis brought up to date after it.

For every feature the basis holds its weight and its entries in the rows of B: a plain array for dense rows, and the
arrangement of _columns.py for sparse ones.
"""

from typing import Any

import numpy as np

from robustfd.linalg._compile import entry, loops
from robustfd.linalg.lapack import at, further, gemm, view
from robustfd.online._block import (
    FILLED,
    LEARNT,
    LOSS_CODE,
    LOSS_DELTA,
    OVERFLOW,
    STATUS,
    Block,
    begin_rows,
    end_block,
    learn_row,
    open_block,
    open_change,
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


def extra_size(d: int, q: int, rows: int) -> int:
    """Return how much memory beside the block dense rows need: for the basis, the rows and a strip of features."""
    return d * (q + rows) + q * min(STRIP, d)


@loops
def open_dense(block: Block, d: int) -> Any:
    """Return the basis and the rows of the block, which live in its extra memory."""
    rows, q = block.products.shape
    return view(block.extra, 0, (q, d)), view(block.extra, d * q, (rows, d))


@loops
def enter_dense(routines: Any, block: Block, basis: Any, buffer: Any, x: Any, done: int, count: int) -> None:
    """Take `count` rows of x into the block, from row `done` on."""
    first = block.counts[FILLED]
    keep_rows(buffer[first:], x[done : done + count])
    if count == 1 and enter_thin(block, basis, buffer):
        begin_rows(routines, block, first, first + 1)
    else:
        enter_here(routines, block, basis, at(buffer, 0), count)


@loops
def keep_rows(buffer: Any, x: Any) -> None:
    """Copy rows to the beginning of the buffer."""
    for i in range(len(x)):
        source, target = x[i], buffer[i]
        for j in range(len(source)):
            target[j] = source[j]


@loops
def enter_here(routines: Any, block: Block, basis: Any, rows: Any, count: int) -> None:
    """Take the next `count` rows of those that begin at the address `rows` into the block.

    The products are formed a strip of features at a time: all of it stays in the fastest cache.
    """
    (q, d), first, size = basis.shape, block.counts[FILLED], len(block.gram)
    last, new = first + count, further(rows, first * d)
    products, gram = at(block.products, first * q), at(block.gram, first * size)
    for start in range(0, d, STRIP):
        width, keep = min(STRIP, d - start), 0.0 if start == 0 else 1.0
        here, old = further(new, start), further(rows, start)
        gemm(routines, False, True, count, q, width, 1.0, here, d, at(basis, start), d, keep, products, q)
        gemm(routines, False, True, count, last, width, 1.0, here, d, old, d, keep, gram, size)
    begin_rows(routines, block, first, last)


@entry
@loops
def scatter_rows(data: Any, indices: Any, indptr: Any, first: int, out: Any) -> None:
    """Fill `out` with rows in compressed form, from row `first` on."""
    for i in range(len(out)):
        target = out[i]
        for j in range(len(target)):
            target[j] = 0.0
        for e in range(indptr[first + i], indptr[first + i + 1]):
            target[indices[e]] += data[e]


@loops
def enter_thin(block: Block, basis: Any, buffer: Any) -> bool:
    """Take the products of one row, the last of the buffer, if few of its entries are not zero; return whether so."""
    i = block.counts[FILLED]
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
def change_dense(routines: Any, block: Block, basis: Any, rows: Any, on_b: Any, on_x: Any) -> None:
    """Let w and B become what `end_block` says; the rows of the block begin at the address `rows`."""
    q, d = basis.shape
    r, count = q - 1, on_x.shape[1]
    strip = view(block.extra, d * (q + len(block.gram)), (q, min(STRIP, d)))
    out, line = at(strip, 0), strip.shape[1]
    for start in range(0, d, STRIP):
        width, here = min(STRIP, d - start), further(rows, start)
        gemm(routines, False, False, q, width, r, 1.0, at(on_b, 0), r, at(basis, d + start), d, 0.0, out, line)
        gemm(routines, False, False, q, width, count, 1.0, at(on_x, 0), count, here, d, 1.0, out, line)
        for i in range(q):
            source, target = strip[i], basis[i, start : start + width]
            for j in range(width):
                target[j] = source[j] + (target[j] if i == 0 else 0.0)


@loops
def enter_sparse(
    routines: Any, block: Block, columns: Columns, room: Any,
    data: Any, indices: Any, indptr: Any, done: int, count: int,
) -> None:  # fmt: skip
    """Take `count` rows into the block, from row `done` on; there must be room."""
    q, r, first, run = columns.basis.shape[1], len(block.lam), block.counts[FILLED], columns.counts[ROWS]
    base = run - first
    gather(routines, columns, indices, indptr[done], indptr[done + count])
    seen, overlaps = view(room, 0, (count, r + base)), room[count * (r + base) :]
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


@loops
def change_sparse(routines: Any, block: Block, columns: Columns, room: Any, on_b: Any, on_x: Any) -> None:
    """Let w and B become what `end_block` says, and end the run when it is long enough."""
    change(routines, columns, room, on_b, on_x, on_x.shape[1])
    left = len(columns.coefficients) - len(block.lam) - columns.counts[ROWS]
    if left < rows_in_block(block) or columns.counts[ENTRIES] > RUN_ENTRIES:
        end_run(routines, columns, room)


@loops
def step_rows(
    settings: Any, block: Block, done: int, count: int, y: Any, weight: Any, margins: Any, progress: Any
) -> int:
    """Take the steps of the rows just entered; return how many of them until the numbers overflowed."""
    for i in range(count):
        p = learn_row(settings, block, block.counts[FILLED], y[done + i], weight[done + i])
        if not abs(p) < np.inf:
            block.counts[STATUS] = OVERFLOW
            return i
        block.counts[FILLED] += 1
        margins[done + i] = p
        tally(int(settings[LOSS_CODE]), settings[LOSS_DELTA], p, y[done + i], weight[done + i], progress)
    return count


@entry
@loops
def learn_dense(
    routines: Any, settings: Any, memory: Any, counts: Any, late: Any,
    x: Any, y: Any, weight: Any, margins: Any, progress: Any,
) -> int:  # fmt: skip
    """Learn the rows of x; return how many were learnt before the numbers overflowed, or -1 if one is not finite."""
    block = open_block(memory, counts)
    basis, buffer = open_dense(block, x.shape[1])
    done: Any = np.int64(0)  # a plain 0 is a type of its own, and what takes it would be compiled for both
    wrong = 0
    for i in range(len(x) if len(x) <= FEW else 0):  # they come unchecked
        row = x[i]
        for j in range(len(row)):
            wrong += not abs(row[j]) <= LARGEST  # NaN is not
        wrong += not abs(y[i]) <= LARGEST
    if wrong > 0:
        return -1
    while done < len(x) and counts[STATUS] == LEARNT:
        count, rows, before = min(rows_in_block(block) - counts[FILLED], len(x) - done), at(buffer, 0), done
        if count == rows_in_block(block):  # the whole block is here and need not be kept
            rows = at(x, done * x.shape[1])
            enter_here(routines, block, basis, rows, count)
        else:
            enter_dense(routines, block, basis, buffer, x, done, count)
        done += step_rows(settings, block, done, count, y, weight, margins, progress)
        if counts[FILLED] == rows_in_block(block):
            on_b, on_x, room = open_change(block)
            if end_block(routines, settings, block, on_b, on_x, room, late):
                change_dense(routines, block, basis, rows, on_b, on_x)
        if counts[STATUS] != LEARNT and count == rows_in_block(block):  # w is made of them
            keep_rows(buffer, x[before : before + count])
    return done


@entry
@loops
def learn_sparse(
    routines: Any, settings: Any, memory: Any, counts: Any, late: Any, columns: Columns, room: Any,
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, margins: Any, progress: Any,
) -> int:  # fmt: skip
    """Learn rows in compressed form; return how many were, before there was no room or the numbers overflowed."""
    block = open_block(memory, counts)
    done: Any = np.int64(0)  # as above
    while done < len(y) and counts[STATUS] == LEARNT:
        count = min(rows_in_block(block) - counts[FILLED], len(y) - done)
        if not has_room(columns, indptr[done + count] - indptr[done]):
            return done
        enter_sparse(routines, block, columns, room, data, indices, indptr, done, count)
        done += step_rows(settings, block, done, count, y, weight, margins, progress)
        if counts[FILLED] == rows_in_block(block):
            on_b, on_x, rest = open_change(block)
            if end_block(routines, settings, block, on_b, on_x, rest, late):
                change_sparse(routines, block, columns, room, on_b, on_x)
    return done
