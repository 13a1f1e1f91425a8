"""The rows between two shrinks, in the span of the sketch and of these rows: no array here has length d.

At the beginning of the block let H = B'B + alpha I, where the rows of B are orthogonal with squared lengths lam, and
let X be the rows of the block. For linear models every gradient is a multiple of its row. So every step of the
sequential algorithm (Luo et al. 2019, Alg. 3 and 6) until the next shrink follows from Z = X B', G = X X' and X w. By
the Sherman-Morrison formula

    X H^-1 X' = N / alpha,    N = G - Z diag(1/(lam + alpha)) Z',

and w moves along H^-1 x. The rounding error is that of G / alpha, which is too large when alpha is small. Then the
block stores the part inside the span of B and the rows added so far separately,

    X H^-1 X' = K + N / alpha,    K = Z diag(1/(lam (lam + alpha))) Z',    N = G - Z diag(1/lam) Z'.

A row c x changes K and N as follows, with D = alpha (1 + c^2 K_jj) + c^2 N_jj if it is outside the span, and N_jj = 0
if it is inside:

    outside   K_il += -(c^2 alpha/D) K_ij K_jl - (c^2/D) (K_ij N_jl + N_ij K_jl) + (1 + c^2 K_jj)/(N_jj D) N_ij N_jl
              N_il -= N_ij N_jl / N_jj
    inside    K_il -= c^2/(1 + c^2 K_jj) K_ij K_jl

For alpha = 0 these are Meyer's formulas for pseudo-inverses, so the steps are continuous as alpha goes to 0.

The step of a row depends only on earlier rows, so the result does not depend on the batch size. A full block ends with
a shrink (shrink.py).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd.linalg.eigen import EPS, INDEPENDENT
from robustfd.linalg.lapack import at, gemm, view, view_as
from robustfd.online.progress import tally
from robustfd.online.rows import Batch
from robustfd.online.settings import BALL, CURRENT, NEXT, SETTINGS, SLAB, Settings, as_array, rate_at, slope_at

Floats = NDArray[np.float64]

LEARNED, OVERFLOW = range(2)  # state.status
SAFE, EXTREME_NUMBERS, EXTREME_ROWS = range(3)  # state.extreme
NEEDS_COPY = -2  # returned by loops that changed nothing and need the caller to copy the state before they continue
HUGE = 1e50  # numbers below this, and above its inverse, are far from overflow and underflow
SMALL = 1e-8  # K and N are separate (state.careful) while alpha is below this times the largest eigenvalue
INTEGER, NUMBER = np.int64, np.float64

# The numbers of a block.
STATE = np.dtype((np.record, [
    ("buffer", INTEGER),  # rows of B and of the block together, at most
    ("width", INTEGER),  # 1 + r, r the rows of B
    ("features", INTEGER),  # d
    ("scratch", INTEGER),  # numbers of scratch memory
    ("filled", INTEGER),  # rows in the block
    ("seen", INTEGER),  # rows since the first
    ("shrinks", INTEGER),
    ("status", INTEGER),  # LEARNED or OVERFLOW
    ("kept", INTEGER),  # whether the caller has a copy of the state, from which it can undo changes
    ("extreme", INTEGER),  # since that copy: SAFE, EXTREME_NUMBERS (ordinary rows led to huge numbers) or EXTREME_ROWS
    ("careful", INTEGER),  # whether K and N are stored separately
    ("rank", INTEGER),  # of B and the rows added so far
    ("span", INTEGER),  # number of these dimensions in which H is larger than alpha
    ("alpha", NUMBER),
    ("delta_sum", NUMBER),  # of all shrinks
    ("delta", NUMBER),  # of the last shrink
    ("factor", NUMBER),  # of the stored w, see ball.py
]))  # fmt: skip

# The effect of a row of the block on later rows.
ROW = np.dtype((np.record, [
    ("c2", NUMBER),  # the weight of its outer product in H
    ("step", NUMBER),  # its step is this number times along_k K_j + along_n N_j
    ("along_k", NUMBER),
    ("along_n", NUMBER),
    ("one_n", NUMBER),  # the row subtracts one_n N_j N_j' from N
    ("kk", NUMBER),  # and adds kk K_j K_j' + kn (K_j N_j' + N_j K_j') + nn one_n N_j N_j' to K
    ("kn", NUMBER),
    ("nn", NUMBER),
    ("rounding", NUMBER),  # up to this value N_jj is rounding error
    ("margin", NUMBER),  # margin and gradient of a row whose step follows the shrink
    ("gradient", NUMBER),
    ("extra", NUMBER),  # its coefficient in the change of w by projections onto a ball
]))  # fmt: skip
SIZE_OF_SETTINGS, SIZE_OF_STATE, PLACES = (kind.itemsize // 8 for kind in (SETTINGS, STATE, ROW))
PLACE = {name: SIZE_OF_SETTINGS + i for i, name in enumerate(STATE.names or ())}  # index of a number in the memory


class Block(NamedTuple):
    """The rows of the block so far, as products with the sketch and with each other."""

    settings: Any  # (1,): a record SETTINGS
    state: Any  # (1,): a record STATE
    sizes: NDArray[np.int64]  # (3,): integer arguments and results of the LAPACK eigensolver
    products: Floats  # (rows, 1 + r): w'x and B x at the beginning of the block
    gram: Floats  # (rows, rows): G, lower triangle
    k: Floats  # (rows, rows): k[j, i] = K_ij just before row j is added, i >= j; used while alpha is small
    n: Floats  # (rows, rows): the same for N
    rows: Any  # (rows,): records ROW
    lam: Floats  # (r,): squared lengths of the rows of B
    ball: Floats  # (r,): coefficients of B in the change of w by projections onto a ball
    overlaps: Floats  # (1 + r,): products of the stored w with itself and with B, used for the ball
    scratch: Floats  # temporary storage that no function may rely on after another one ran
    extra: Floats  # memory for the basis of dense rows


def start(settings: Settings, d: int, m: int, rows: int, extra: int) -> Floats:
    """Return the memory of an empty first block with a buffer of `rows` rows, followed by `extra` more numbers.

    A block is stored in one array, since passing many arrays to a compiled function takes longer than learning a row.
    """
    # A shrink needs coef_b and coef_x, the stack with its eigenpairs, and one number for each row.
    scratch = m * (m - 1 + rows) + rows * (rows + m + 1)
    fixed = SIZE_OF_SETTINGS + SIZE_OF_STATE + 3
    memory = np.zeros(fixed + rows * (m + 3 * rows + PLACES) + 3 * m - 2 + scratch + extra)
    memory[:SIZE_OF_SETTINGS] = as_array(settings)
    state = state_of(memory)
    state.buffer, state.width, state.features, state.scratch = rows, m, d, scratch
    state.alpha, state.factor = settings.alpha0, 1.0
    return memory


def state_of(memory: Floats) -> Any:
    """Return the STATE record of the block stored in this memory."""
    return view_as(memory, SIZE_OF_SETTINGS, (1,), STATE)[0]


def numbers(memory: Floats) -> tuple[slice, slice]:
    """Return where the memory holds the state of the block and the records of its rows: all except its matrices."""
    counts = counts_of(memory)
    rows, q = int(counts[PLACE["buffer"]]), int(counts[PLACE["width"]])
    fixed = SIZE_OF_SETTINGS + SIZE_OF_STATE + 3
    first = fixed + rows * (q + 3 * rows)
    return slice(SIZE_OF_SETTINGS, fixed), slice(first, first + PLACES * rows + 3 * q - 2)


def counts_of(memory: Floats) -> NDArray[np.int64]:
    """Return the memory as integers: `counts_of(memory)[PLACE["seen"]]` is ten times faster than `state_of`."""
    return memory.view(INTEGER)


@loops
def open_block(memory: Any) -> Block:
    """Return the block stored in this memory, as views."""
    state = view_as(memory, SIZE_OF_SETTINGS, (1,), STATE)
    rows, q = state[0].buffer, state[0].width
    first = SIZE_OF_SETTINGS + SIZE_OF_STATE
    square, products = rows * rows, first + 3
    gram = products + rows * q
    records = gram + 3 * square
    lam = records + PLACES * rows
    scratch = lam + 3 * q - 2
    extra = scratch + state[0].scratch
    return Block(
        view_as(memory, 0, (1,), SETTINGS),
        state,
        view_as(memory, first, (3,), INTEGER),
        view(memory, products, (rows, q)),
        view(memory, gram, (rows, rows)),
        view(memory, gram + square, (rows, rows)),
        view(memory, gram + 2 * square, (rows, rows)),
        view_as(memory, records, (rows,), ROW),
        view(memory, lam, (q - 1,)),
        view(memory, lam + q - 1, (q - 1,)),
        view(memory, lam + 2 * q - 2, (q,)),
        view(memory, scratch, (extra - scratch,)),
        view(memory, extra, (len(memory) - extra,)),
    )


@loops
def n_weight(lam: float, alpha: float, careful: bool) -> float:
    """Return the weight of (b'x)^2 that N subtracts, for a row b of B of squared length lam."""
    total = lam if careful and lam > alpha else lam + alpha
    return 1.0 / total if total > 0 else 0.0


@loops
def k_weight(lam: float, alpha: float, careful: bool) -> float:
    """Return the weight of that term in K: zero unless alpha is small and below lam."""
    return 1.0 / (lam + alpha) if careful and lam > alpha else 0.0


@loops
def rows_in_block(block: Block) -> int:
    """Return the capacity of the block: after the first shrink the rows of B take up part of the buffer."""
    return len(block.gram) - (len(block.lam) if block.state[0].shrinks > 0 else 0)


@loops
def is_full(block: Block) -> bool:
    """Return whether the block has no space for another row."""
    return block.state[0].filled == rows_in_block(block)


@loops
def begin_rows(routines: Any, block: Block, first: int, last: int) -> None:
    """Fill n, and k if it is used, for rows first to last - 1, from the sketch at the beginning of the block."""
    state, z, lam = block.state[0], block.products, block.lam
    alpha, careful, count, r = state.alpha, state.careful > 0, last - first, len(lam)
    if count == 1 and not careful:  # for a single row, a loop is faster than preparing a matrix product
        i, row = first, block.scratch[:r]
        for b in range(r):
            row[b] = z[i, 1 + b] * n_weight(lam[b], alpha, careful)
        for j in range(last):
            x = block.gram[i, j]
            for b in range(r):
                x -= row[b] * z[j, 1 + b]
            block.n[j, i] = x
        return
    scaled, start = view(block.scratch, 0, (last, r)), view(block.scratch, last * r, (count, last))
    for turn in range(2 if careful else 1):
        for b in range(r):
            factor = np.sqrt(n_weight(lam[b], alpha, careful))
            if turn == 1:
                factor *= np.sqrt(k_weight(lam[b], alpha, careful))
            for i in range(last):
                scaled[i, b] = factor * z[i, 1 + b]
        gemm(
            routines, False, True, count, last, r,
            1.0, at(scaled, first * r), r, at(scaled, 0), r, 0.0, at(start, 0), last,
        )  # fmt: skip
        for i in range(first, last):
            for j in range(i + 1):
                if turn == 0:
                    block.n[j, i] = block.gram[i, j] - start[i - first, j]
                else:
                    block.k[j, i] = start[i - first, j]
    for i in range(first, last if careful else first):
        block.rows[i].rounding = round_off(lam, alpha, state.delta, len(block.gram), block.gram[i, i], z[i, 1:])


@loops
def round_off(lam: Any, alpha: float, delta: float, size: int, squares: float, z: Any) -> float:
    """Return the bound below which n is rounding error, for a row with this squared length and z = B x.

    The error of an eigenvector after a shrink by delta is relative to the largest eigenvalue, so eigenvectors of small
    eigenvalues are less precise.
    """
    total = squares
    for b in range(len(lam)):
        if lam[b] > alpha:
            total += (z[b] / lam[b]) * z[b] * ((lam[0] + delta) / (lam[b] + delta))
    return max(INDEPENDENT * squares, 4.0 * EPS * size * total)


@loops
def step_rows(block: Block, batch: Batch, progress: Any, done: int, count: int) -> int:
    """Take the steps of the `count` rows just added, which start at row `done` of the batch.

    Return the number of steps taken before the numbers overflowed.
    """
    settings, state = block.settings[0], block.state[0]
    for i in range(count):
        y, weight = batch.y[done + i], batch.weight[done + i]
        p = learn_row(block, state.filled, y, weight)
        if not is_usual(block.gram[state.filled, state.filled], y, weight):
            state.extreme = EXTREME_ROWS
        if not is_safe(block, state.filled, p):
            state.extreme = max(state.extreme, EXTREME_NUMBERS)
            if not abs(p) < np.inf:
                state.status = OVERFLOW
                return i
        state.filled += 1
        batch.margins[done + i] = p
        tally(settings.loss, settings.delta, p, y, weight, progress)
    return count


@loops
def is_usual(squares: float, y: float, weight: float) -> bool:
    """Return whether the squared length, label and weight of a row are neither huge nor tiny."""
    return squares < HUGE and (squares == 0.0 or squares > 1.0 / HUGE) and abs(y) < HUGE and 1.0 / HUGE < weight < HUGE


@loops
def is_safe(block: Block, i: int, p: float) -> bool:
    """Return whether the numbers of row i with margin p are far from overflow."""
    row, c2, calm = block.rows[i], block.rows[i].c2, block.state[0].careful == 0 or block.k[i, i] < HUGE
    return calm and abs(p) < HUGE and abs(row.step) < HUGE and c2 < HUGE and (c2 == 0.0 or c2 > 1.0 / HUGE)


@loops
def learn_row(block: Block, i: int, y: float, weight: float) -> float:
    """Take the step of row i and return its margin before the step."""
    settings, state, row = block.settings[0], block.state[0], block.rows[i]
    p = apply_earlier_rows(block, i)
    along = find_direction(block, i)
    kappa, free, alpha, careful = block.k[i, i], block.n[i, i], state.alpha, state.careful > 0
    if not careful:
        kappa = 0.0
    bound, step = settings.bound, 0.0
    slab = settings.domain == SLAB
    if slab and settings.projection == NEXT and abs(p) > bound and along > 0:
        step = (p - np.copysign(bound, p)) / along
        p = np.copysign(bound, p)
    slope = slope_at(settings, p, y)
    c2 = weight * (settings.mu + rate_at(settings, state.seen + 1)) * slope * slope
    g = weight * slope
    row.c2, row.one_n, row.kk, row.kn, row.nn, row.extra = c2, 0.0, 0.0, 0.0, 0.0, 0.0
    if state.shrinks == 0 and state.rank == 0:  # the first row: there is no eigenvalue to compare alpha with yet
        careful = alpha <= SMALL * c2 * block.gram[i, i]
        state.careful = careful
    if free > 0 and c2 > 0:
        state.rank += 1
        state.span += 1
    if settings.shrink_first > 0 and i + 1 == rows_in_block(block):  # its step follows the shrink
        row.step, row.margin, row.gradient = step, p, g
    else:
        inside, move = 1.0 + c2 * kappa, 0.0
        if free == 0:
            row.kk, move = -c2 / inside, g / inside
        elif c2 > 0 or alpha > 0:  # c2 = 0: the curvature is zero or underflows
            divisor = alpha * inside + c2 * free
            row.one_n, move = c2 / divisor, g * ((alpha * kappa + free) / divisor)
            if careful and c2 > 0:
                row.one_n, row.nn = 1.0 / free, inside / divisor
                row.kk, row.kn = -c2 * alpha / divisor, -c2 / divisor
        q = p - move * along
        if slab and settings.projection == CURRENT and abs(q) > bound and along > 0:
            move += (q - np.copysign(bound, q)) / along
        row.step = step + move
    state.seen += 1
    return p


@loops
def apply_earlier_rows(block: Block, i: int) -> float:
    """Apply the earlier rows of the block to column i of N, and of K if used; return the margin of row i."""
    k, n, rows, state = block.k, block.n, block.rows, block.state[0]
    p = state.factor * block.products[i, 0]
    if block.settings[0].domain == BALL:
        for j in range(len(block.lam)):
            p += block.ball[j] * block.products[i, 1 + j]
        for j in range(i):
            p += rows[j].extra * block.gram[i, j]
    # Contiguous copies of column i, since the loops below run along rows.
    ki, ni = block.scratch[: len(rows)], block.scratch[len(rows) :]
    careful = state.careful > 0
    for j in range(i + 1):
        ni[j] = n[j, i]
    if careful:
        for j in range(i + 1):
            ki[j] = k[j, i]
    for j in range(i):
        nj, z, row = n[j], ni[j], rows[j]
        nj[i] = z
        p -= row.step * row.along_n * z
        z_n = row.one_n * z
        later, rest = ni[j + 1 : i + 1], nj[j + 1 : i + 1]  # the compiler vectorizes loops that start at 0
        for l in range(i - j):
            later[l] -= z_n * rest[l]
        if careful:
            kj, x = k[j], ki[j]
            kj[i] = x
            p -= row.step * row.along_k * x
            coef_k, coef_n = row.kk * x + row.kn * z, row.kn * x + row.nn * z_n
            for l in range(j + 1, i + 1):
                ki[l] += coef_k * kj[l] + coef_n * nj[l]
    n[i, i] = max(ni[i], 0.0)
    if careful:
        k[i, i] = max(ki[i], 0.0)
    return p


@loops
def find_direction(block: Block, i: int) -> float:
    """Set the direction of the step of row i; return by how much a unit step lowers its margin.

    Afterwards n[i, i] is the squared length of the part of the row outside the span, or 0 if the row is inside.
    """
    state, row, squares = block.state[0], block.rows[i], block.gram[i, i]
    careful, free, kappa = state.careful > 0, block.n[i, i], 0.0
    if careful:
        kappa = block.k[i, i]
        if free <= max(row.rounding, INDEPENDENT * squares) or state.span == state.features:
            free = 0.0
    block.n[i, i] = free
    row.along_k, row.along_n = 1.0, 0.0
    if free > 0:
        row.along_n = 1.0 / (state.alpha * kappa + free)
        row.along_k = state.alpha * row.along_n
        return 1.0
    return kappa
