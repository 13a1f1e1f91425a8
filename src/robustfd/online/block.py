"""The rows between two shrinks, in the span of the sketch and of themselves: nothing here is of length d.

Let H = B'B + alpha I when the block begins, the rows of B orthogonal with squared lengths lam, and X the rows of
the block. For linear models every gradient is a multiple of its row, so all that the sequential algorithm (Luo et
al. 2019, Alg. 3 and 6) does until the next shrink follows from Z = X B', G = X X' and X w. Row by row:

    X H^-1 X' = N / alpha,    N = G - Z diag(1/(lam + alpha)) Z'

by Sherman and Morrison's formula, and w moves along H^-1 x. That is precise up to round-off of G / alpha, in which
everything drowns when alpha is small. Then what is inside the span of the rows that have entered is kept apart,

    X H^-1 X' = K + N / alpha,    K = Z diag(1/(lam (lam + alpha))) Z',    N = G - Z diag(1/lam) Z'

and a row c x that is outside the span, with D = alpha (1 + c^2 K_jj) + c^2 N_jj, or inside it, N_jj = 0, makes that

    outside   K_il += -(c^2 alpha/D) K_ij K_jl - (c^2/D) (K_ij N_jl + N_ij K_jl) + (1 + c^2 K_jj)/(N_jj D) N_ij N_jl
              N_il -= N_ij N_jl / N_jj
    inside    K_il -= c^2/(1 + c^2 K_jj) K_ij K_jl

For alpha = 0 these are Meyer's formulas for pseudo-inverses: nothing jumps when alpha gets there.

Only what earlier rows left behind is used for a row, so it does not matter how many come at a time. A full block ends
with a shrink (shrink.py).
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

LEARNT, OVERFLOW = range(2)  # state.status
CALM, WILD_NUMBERS, WILD_ROWS = range(3)  # state.wild
UNKEPT = -2  # what loops return if they changed nothing and need a copy of the state before they go on
HUGE = 1e50  # numbers below this, and above its inverse, are far from overflowing
SMALL = 1e-8  # alpha is, relative to the largest eigenvalue, when K and N are kept apart: state.careful
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
    ("status", INTEGER),  # LEARNT or OVERFLOW
    ("kept", INTEGER),  # whether the caller has a copy of the state, and can undo what rows change
    ("wild", INTEGER),  # since then: CALM, WILD_NUMBERS (huge ones came of usual rows) or WILD_ROWS
    ("careful", INTEGER),  # whether K and N are kept apart
    ("rank", INTEGER),  # of B and the rows that have entered
    ("span", INTEGER),  # of them, the dimensions in which H is more than alpha
    ("alpha", NUMBER),
    ("delta_sum", NUMBER),  # of all shrinks
    ("delta", NUMBER),  # of the last shrink
    ("factor", NUMBER),  # of the stored w, see ball.py
]))  # fmt: skip

# What a row of the block leaves behind.
ROW = np.dtype((np.record, [
    ("c2", NUMBER),  # the weight of its outer product in H
    ("step", NUMBER),  # its step is that many times along_k K_j + along_n N_j
    ("along_k", NUMBER),
    ("along_n", NUMBER),
    ("one_n", NUMBER),  # it took one_n N_j N_j' from N
    ("kk", NUMBER),  # and added kk K_j K_j' + kn (K_j N_j' + N_j K_j') + nn one_n N_j N_j' to K
    ("kn", NUMBER),
    ("nn", NUMBER),
    ("rounding", NUMBER),  # up to this N_jj is round-off
    ("margin", NUMBER),  # margin and gradient of a row that waits for the shrink
    ("gradient", NUMBER),
    ("extra", NUMBER),  # its coefficient in what projections onto a ball add to w
]))  # fmt: skip
SIZE_OF_SETTINGS, SIZE_OF_STATE, PLACES = (kind.itemsize // 8 for kind in (SETTINGS, STATE, ROW))
PLACE = {name: SIZE_OF_SETTINGS + i for i, name in enumerate(STATE.names or ())}  # of a number, in the memory


class Block(NamedTuple):
    """The rows of the block that have come so far, as seen from the sketch and from each other."""

    settings: Any  # (1,): a record SETTINGS
    state: Any  # (1,): a record STATE
    sizes: NDArray[np.int64]  # (3,): what the eigenproblem is told and tells
    products: Floats  # (rows, 1 + r): w'x and B x at the beginning of the block
    gram: Floats  # (rows, rows): G, lower triangle
    k: Floats  # (rows, rows): k[j, i] = K_ij just before row j entered, i >= j; used while alpha is small
    n: Floats  # (rows, rows): the same of N
    rows: Any  # (rows,): records ROW
    lam: Floats  # (r,): squared lengths of the rows of B
    ball: Floats  # (r,): coefficients of B in what projections onto a ball add to w
    overlaps: Floats  # (1 + r,): products of the stored w with itself and with B, kept for the ball
    scratch: Floats  # what it holds is lost from one function to the next
    extra: Floats  # for the basis of dense rows


def start(settings: Settings, d: int, m: int, rows: int, extra: int) -> Floats:
    """Return the memory of the first block, B empty, of a buffer of so many rows, with extra memory after it.

    A block lives in one array: to hand many to a compiled function takes longer than to learn a row.
    """
    # For a shrink: on_b and on_x, the stack with its eigenpairs, and a number for each row.
    scratch = m * (m - 1 + rows) + rows * (rows + m + 1)
    fixed = SIZE_OF_SETTINGS + SIZE_OF_STATE + 3
    memory = np.zeros(fixed + rows * (m + 3 * rows + PLACES) + 3 * m - 2 + scratch + extra)
    memory[:SIZE_OF_SETTINGS] = as_array(settings)
    state = state_of(memory)
    state.buffer, state.width, state.features, state.scratch = rows, m, d, scratch
    state.alpha, state.factor = settings.alpha0, 1.0
    return memory


def state_of(memory: Floats) -> Any:
    """Return the record STATE of the block that lives in memory."""
    return view_as(memory, SIZE_OF_SETTINGS, (1,), STATE)[0]


def numbers(memory: Floats) -> tuple[slice, slice]:
    """Return where in the memory everything of a block is but matrices: its state, and what rows leave behind."""
    counts = counts_of(memory)
    rows, q = int(counts[PLACE["buffer"]]), int(counts[PLACE["width"]])
    fixed = SIZE_OF_SETTINGS + SIZE_OF_STATE + 3
    first = fixed + rows * (q + 3 * rows)
    return slice(SIZE_OF_SETTINGS, fixed), slice(first, first + PLACES * rows + 3 * q - 2)


def counts_of(memory: Floats) -> NDArray[np.int64]:
    """Return the memory as integers: `counts_of(memory)[PLACE["seen"]]` takes a tenth of `state_of(memory).seen`."""
    return memory.view(INTEGER)


@loops
def open_block(memory: Any) -> Block:
    """Return the block that lives in memory."""
    state = view_as(memory, SIZE_OF_SETTINGS, (1,), STATE)
    rows, q = state[0].buffer, state[0].width
    first = SIZE_OF_SETTINGS + SIZE_OF_STATE
    square, a = rows * rows, first + 3
    b = a + rows * q
    c = b + 3 * square
    e = c + PLACES * rows
    f = e + 3 * q - 2
    g = f + state[0].scratch
    return Block(
        view_as(memory, 0, (1,), SETTINGS),
        state,
        view_as(memory, first, (3,), INTEGER),
        view(memory, a, (rows, q)),
        view(memory, b, (rows, rows)),
        view(memory, b + square, (rows, rows)),
        view(memory, b + 2 * square, (rows, rows)),
        view_as(memory, c, (rows,), ROW),
        view(memory, e, (q - 1,)),
        view(memory, e + q - 1, (q - 1,)),
        view(memory, e + 2 * q - 2, (q,)),
        view(memory, f, (g - f,)),
        view(memory, g, (len(memory) - g,)),
    )


@loops
def taken(lam: float, alpha: float, careful: bool) -> float:
    """Return what the square of B x is multiplied by when it is taken from N, for a row of B of squared length lam."""
    total = lam if careful and lam > alpha else lam + alpha
    return 1.0 / total if total > 0 else 0.0


@loops
def moved(lam: float, alpha: float, careful: bool) -> float:
    """Return by what it is multiplied then to be in K: nothing unless alpha is small and below lam."""
    return 1.0 / (lam + alpha) if careful and lam > alpha else 0.0


@loops
def rows_in_block(block: Block) -> int:
    """Return how many rows the block takes: after the first shrink those of B have places of the buffer."""
    return len(block.gram) - (len(block.lam) if block.state[0].shrinks > 0 else 0)


@loops
def is_full(block: Block) -> bool:
    """Return whether the block takes no more rows."""
    return block.state[0].filled == rows_in_block(block)


@loops
def begin_rows(routines: Any, block: Block, first: int, last: int) -> None:
    """Fill n, and k, for rows first to last - 1 of the block with what the sketch at its beginning says."""
    state, z, lam = block.state[0], block.products, block.lam
    alpha, careful, count, r = state.alpha, state.careful > 0, last - first, len(lam)
    if count == 1 and not careful:  # a row that comes alone: less work than to prepare a matrix product
        i, row = first, block.scratch[:r]
        for b in range(r):
            row[b] = z[i, 1 + b] * taken(lam[b], alpha, careful)
        for j in range(last):
            x = block.gram[i, j]
            for b in range(r):
                x -= row[b] * z[j, 1 + b]
            block.n[j, i] = x
        return
    scaled, start = view(block.scratch, 0, (last, r)), view(block.scratch, last * r, (count, last))
    for turn in range(2 if careful else 1):
        for b in range(r):
            factor = np.sqrt(taken(lam[b], alpha, careful))
            if turn == 1:
                factor *= np.sqrt(moved(lam[b], alpha, careful))
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
    """Return up to what n is round-off, for a row of this squared length with z = B x, after a shrink by delta.

    Eigenvectors are known up to round-off of the largest eigenvalue, those of small ones as much the worse.
    """
    total = squares
    for b in range(len(lam)):
        if lam[b] > alpha:
            total += (z[b] / lam[b]) * z[b] * ((lam[0] + delta) / (lam[b] + delta))
    return max(INDEPENDENT * squares, 4.0 * EPS * size * total)


@loops
def step_rows(block: Block, batch: Batch, progress: Any, done: int, count: int) -> int:
    """Take the steps of the rows just entered, from row `done` of the batch on.

    Return how many of them until the numbers overflowed.
    """
    settings, state = block.settings[0], block.state[0]
    for i in range(count):
        y, weight = batch.y[done + i], batch.weight[done + i]
        p = learn_row(block, state.filled, y, weight)
        if not is_usual(block.gram[state.filled, state.filled], y, weight):
            state.wild = WILD_ROWS
        if not is_calm(block, state.filled, p):
            state.wild = max(state.wild, WILD_NUMBERS)
            if not abs(p) < np.inf:
                state.status = OVERFLOW
                return i
        state.filled += 1
        batch.margins[done + i] = p
        tally(settings.loss, settings.delta, p, y, weight, progress)
    return count


@loops
def is_usual(squares: float, y: float, weight: float) -> bool:
    """Return whether squared length, label and weight of a row are neither huge nor tiny."""
    return squares < HUGE and (squares == 0.0 or squares > 1.0 / HUGE) and abs(y) < HUGE and 1.0 / HUGE < weight < HUGE


@loops
def is_calm(block: Block, i: int, p: float) -> bool:
    """Return whether what came of row i, of margin p, is far from overflowing."""
    row, c2, calm = block.rows[i], block.rows[i].c2, block.state[0].careful == 0 or block.k[i, i] < HUGE
    return calm and abs(p) < HUGE and abs(row.step) < HUGE and c2 < HUGE and (c2 == 0.0 or c2 > 1.0 / HUGE)


@loops
def learn_row(block: Block, i: int, y: float, weight: float) -> float:
    """Take the step of row i and return its margin as it was before."""
    settings, state, row = block.settings[0], block.state[0], block.rows[i]
    p = follow_rows(block, i)
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
    if state.shrinks == 0 and state.rank == 0:  # no row has entered, so there is no eigenvalue yet to compare with
        careful = alpha <= SMALL * c2 * block.gram[i, i]
        state.careful = careful
    if free > 0 and c2 > 0:
        state.rank += 1
        state.span += 1
    if settings.shrink_first > 0 and i + 1 == rows_in_block(block):  # it waits for the shrink
        row.step, row.margin, row.gradient = step, p, g
    else:
        inside, move = 1.0 + c2 * kappa, 0.0
        if free == 0:
            row.kk, move = -c2 / inside, g / inside
        elif c2 > 0 or alpha > 0:  # c2 = 0: no curvature at all, or so little that it underflows
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
def follow_rows(block: Block, i: int) -> float:
    """Bring column i of N, and of K, up to date by what earlier rows of the block left; return the margin of row i."""
    k, n, rows, state = block.k, block.n, block.rows, block.state[0]
    p = state.factor * block.products[i, 0]
    if block.settings[0].domain == BALL:
        for j in range(len(block.lam)):
            p += block.ball[j] * block.products[i, 1 + j]
        for j in range(i):
            p += rows[j].extra * block.gram[i, j]
    # Copies of columns i, since the loops below run along rows.
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
        later, rest = ni[j + 1 : i + 1], nj[j + 1 : i + 1]  # loops from 0 on are made vector instructions
        for l in range(i - j):
            later[l] -= z_n * rest[l]
        if careful:
            kj, x = k[j], ki[j]
            kj[i] = x
            p -= row.step * row.along_k * x
            on_k, on_n = row.kk * x + row.kn * z, row.kn * x + row.nn * z_n
            for l in range(j + 1, i + 1):
                ki[l] += on_k * kj[l] + on_n * nj[l]
    n[i, i] = max(ni[i], 0.0)
    if careful:
        k[i, i] = max(ki[i], 0.0)
    return p


@loops
def find_direction(block: Block, i: int) -> float:
    """Find along what row i steps, and whether it is outside the span; return how far its margin falls by a unit step.

    Afterwards n[i, i] is the square of the part outside the span, 0 if the row is inside.
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
