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

Only what earlier rows left behind is used for a row, so it does not matter how many come at a time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd.linalg._compile import entry, loops
from robustfd.linalg.eigen import EPS, INDEPENDENT
from robustfd.linalg.lapack import at, gemm, view
from robustfd.online._shrink import shrink_block
from robustfd.online.losses import loss_slope

Floats = NDArray[np.float64]

# Places in Block.scalars and Block.counts, and in the settings of a learner.
ALPHA, DELTA_SUM, DELTA = range(3)  # DELTA: of the last shrink
FILLED, SEEN, SHRINKS, STATUS, BUFFER, WIDTH, FEATURES, CAREFUL, RANK, SPAN, SCRATCH, SIZES = range(12)
COUNTS = SIZES + 3  # SIZES are what the eigenproblem is told and tells
LEARNT, OVERFLOW = range(2)  # STATUS
MU, RATE, POWER, BOUND, LOSS_CODE, LOSS_DELTA, PROJECTION, DOMAIN, SHRINK_FIRST, SHRUNK, ADD, SETTINGS = range(12)
CURRENT, NEXT = 1.0, 2.0  # PROJECTION
SLAB, BALL = 1.0, 2.0  # DOMAIN
NO_GRADIENT = 1e-9  # a slope this small, relative to the label, is round-off of a margin that equals its label
SMALL = 1e-8  # alpha is, relative to the largest eigenvalue, when K and N are kept apart: CAREFUL
TINY = 1e-12  # when eigenvalues must be right relative to themselves, and not only to the largest


class Block(NamedTuple):
    """The rows of the block that have come so far, as seen from the sketch and from each other."""

    products: Floats  # (rows, 1 + r): w'x and B x at the beginning of the block
    gram: Floats  # (rows, rows): G, lower triangle
    k: Floats  # (rows, rows): k[j, i] = K_ij just before row j entered, i >= j; used while alpha is small
    n: Floats  # (rows, rows): the same of N
    rows: Floats  # (rows, PLACES): what each row left behind, in the places named below
    lam: Floats  # (r,): squared lengths of the rows of B
    scalars: Floats
    ball: Floats  # (2 + 2 r,): what projections onto a ball add to w, see _ball.py
    counts: NDArray[np.int64]
    scratch: Floats  # what it holds is lost from one function to the next
    extra: Floats


# Places in a row of Block.rows: the weight of its outer product; its step, and the direction of that as multiples of
# K_j and N_j; what it took from N, ONE_N N_j N_j', and what it added to K, KK K_j K_j' + KN (K_j N_j' + N_j K_j') +
# NN ONE_N N_j N_j'; up to what N_jj is round-off; then what a row leaves that waits for the shrink, and the ball's.
C2, STEP, ALONG_K, ALONG_N, ONE_N, KK, KN, NN, ROUND, MARGIN, GRADIENT, EXTRA, PLACES = range(13)


def start(d: int, m: int, rows: int, alpha0: float, extra: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return memory and counts of the first block, of a buffer of so many rows, B empty, with extra memory after it.

    A block lives in one array: to hand many to a compiled function takes longer than to learn a row.
    """
    counts = np.zeros(COUNTS, np.int64)
    # For a shrink: on_b and on_x, the stack with its eigenpairs, and a number for each row.
    scratch = m * (m - 1 + rows) + rows * (rows + m + 1)
    counts[BUFFER], counts[WIDTH], counts[FEATURES], counts[SCRATCH] = rows, m, d, scratch
    memory = np.zeros(rows * (m + 3 * rows + PLACES) + 3 * m + 2 + scratch + extra)
    block = open_block.py_func(memory, counts)
    block.scalars[ALPHA], block.ball[0] = alpha0, 1.0
    return memory, counts


@loops
def open_block(memory: Any, counts: Any) -> Block:
    """Return the block that lives in memory."""
    rows, q = counts[BUFFER], counts[WIDTH]
    square, a = rows * rows, rows * q
    b = a + 3 * square
    c = b + PLACES * rows
    e = c + 3 * q + 2
    f = e + counts[SCRATCH]
    return Block(
        view(memory, 0, (rows, q)),
        view(memory, a, (rows, rows)),
        view(memory, a + square, (rows, rows)),
        view(memory, a + 2 * square, (rows, rows)),
        view(memory, b, (rows, PLACES)),
        view(memory, c, (q - 1,)),
        view(memory, c + q - 1, (3,)),
        view(memory, c + q + 2, (2 * q,)),
        view(counts, 0, (COUNTS,)),
        view(memory, e, (f - e,)),
        view(memory, f, (len(memory) - f,)),
    )


@loops
def open_change(block: Block) -> Any:
    """Return on_b and on_x, which `end_block` fills, and the rest of the scratch memory for what it does."""
    rows, q = block.products.shape
    a, b = q * (q - 1), q * (q - 1 + rows)
    filled, scratch = block.counts[FILLED], block.scratch
    return view(scratch, 0, (q, q - 1)), view(scratch, a, (q, filled)), view(scratch, b, (len(scratch) - b,))


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
def begin_rows(routines: Any, block: Block, first: int, last: int) -> None:
    """Fill n, and k, for rows first to last - 1 of the block with what the sketch at its beginning says."""
    z, lam, alpha, careful = block.products, block.lam, block.scalars[ALPHA], block.counts[CAREFUL] > 0
    count, r = last - first, len(lam)
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
        block.rows[i, ROUND] = round_off(lam, alpha, block.scalars[DELTA], len(block.gram), block.gram[i, i], z[i, 1:])


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
def learn_row(settings: Any, block: Block, i: int, y: float, weight: float) -> float:
    """Take the step of row i and return its margin as it was before."""
    k, n, rows, counts, alpha = block.k, block.n, block.rows, block.counts, block.scalars[ALPHA]
    p = block.ball[0] * block.products[i, 0]
    if settings[DOMAIN] == BALL:
        for j in range(len(block.lam)):
            p += block.ball[1 + j] * block.products[i, 1 + j]
        for j in range(i):
            p += rows[j, EXTRA] * block.gram[i, j]
    # Copies of columns i, since the loops below run along rows.
    ki, ni = block.scratch[: len(rows)], block.scratch[len(rows) :]
    careful, kappa = counts[CAREFUL] > 0, 0.0
    for j in range(i + 1):
        ni[j] = n[j, i]
    if careful:
        for j in range(i + 1):
            ki[j] = k[j, i]
    for j in range(i):
        nj, z = n[j], ni[j]
        nj[i] = z
        p -= rows[j, STEP] * rows[j, ALONG_N] * z
        z_n = rows[j, ONE_N] * z
        later, rest = ni[j + 1 : i + 1], nj[j + 1 : i + 1]  # loops from 0 on are made vector instructions
        for l in range(i - j):
            later[l] -= z_n * rest[l]
        if careful:
            kj, x = k[j], ki[j]
            kj[i] = x
            p -= rows[j, STEP] * rows[j, ALONG_K] * x
            on_k, on_n = rows[j, KK] * x + rows[j, KN] * z, rows[j, KN] * x + rows[j, NN] * z_n
            for l in range(j + 1, i + 1):
                ki[l] += on_k * kj[l] + on_n * nj[l]
    if careful:
        k[i, i] = kappa = max(ki[i], 0.0)
    row, squares = rows[i], block.gram[i, i]
    free = max(ni[i], 0.0)  # the square of the part outside the span, if it is apart
    if careful and (free <= max(row[ROUND], INDEPENDENT * squares) or counts[SPAN] == counts[FEATURES]):
        free = 0.0
    n[i, i] = free
    along = kappa  # how far the margin falls when w moves by the direction
    row[ALONG_K], row[ALONG_N] = 1.0, 0.0
    if free > 0:
        row[ALONG_N] = 1.0 / (alpha * kappa + free)
        row[ALONG_K], along = alpha * row[ALONG_N], 1.0

    bound, step = settings[BOUND], 0.0
    slab = settings[DOMAIN] == SLAB
    if slab and settings[PROJECTION] == NEXT and abs(p) > bound and along > 0:
        step = (p - np.copysign(bound, p)) / along
        p = np.copysign(bound, p)
    slope = loss_slope(int(settings[LOSS_CODE]), p, y, settings[LOSS_DELTA])
    if abs(slope) <= NO_GRADIENT * max(1.0, abs(y)):
        slope = 0.0
    c2 = weight * (settings[MU] + rate_at(settings, counts[SEEN] + 1)) * slope * slope
    g = weight * slope
    row[C2], row[ONE_N], row[KK], row[KN], row[NN], row[EXTRA] = c2, 0.0, 0.0, 0.0, 0.0, 0.0
    if counts[SHRINKS] == 0 and counts[RANK] == 0:  # no row has entered, so there is no eigenvalue yet to compare with
        careful = alpha <= SMALL * c2 * squares
        counts[CAREFUL] = careful
    if free > 0 and c2 > 0:
        counts[RANK] += 1
        counts[SPAN] += 1
    if settings[SHRINK_FIRST] > 0 and i + 1 == rows_in_block(block):  # it waits for the shrink
        row[STEP], row[MARGIN], row[GRADIENT] = step, p, g
    else:
        inside, move = 1.0 + c2 * kappa, 0.0
        if free == 0:
            row[KK], move = -c2 / inside, g / inside
        elif c2 > 0 or alpha > 0:  # c2 = 0: no curvature at all, or so little that it underflows
            divisor = alpha * inside + c2 * free
            row[ONE_N], move = c2 / divisor, g * ((alpha * kappa + free) / divisor)
            if careful and c2 > 0:
                row[ONE_N], row[NN] = 1.0 / free, inside / divisor
                row[KK], row[KN] = -c2 * alpha / divisor, -c2 / divisor
        q = p - move * along
        if slab and settings[PROJECTION] == CURRENT and abs(q) > bound and along > 0:
            move += (q - np.copysign(bound, q)) / along
        row[STEP] = step + move
    counts[SEEN] += 1
    return p


@loops
def rate_at(settings: Any, t: int) -> float:
    """Return eta of row t, counted from 1."""
    if settings[POWER] == 1.0:  # a power takes longer than the rest of a short row
        return settings[RATE] / t
    return settings[RATE] / float(t) ** settings[POWER]


@loops
def rows_in_block(block: Block) -> int:
    """Return how many rows the block takes: after the first shrink those of B have places of the buffer."""
    return len(block.gram) - (len(block.lam) if block.counts[SHRINKS] > 0 else 0)


@loops
def end_block(routines: Any, settings: Any, block: Block, on_b: Any, on_x: Any, room: Any, late: Any) -> bool:
    """Shrink; fill the rows of on_b (1 + r, r) and on_x (1 + r, rows) and return whether that went well.

    After it w is w + on_b[0] B + on_x[0] X and B is on_b[1:] B + on_x[1:] X, on the right as they were. `late` is None
    unless a row waits for the shrink: numba then does not compile what that takes.
    """
    lam, z, gram, rows = block.lam, block.products, block.gram, block.rows
    filled, r, had = block.counts[FILLED], len(block.lam), len(block.lam) if block.counts[SHRINKS] > 0 else 0
    size = had + filled
    collect_steps(block, room, on_b, on_x)

    stack, c, rest = view(room, 0, (size, size)), room[size * size :], room[size * size + filled :]
    for i in range(had):  # of the stack the lower triangle
        for j in range(i):
            stack[i, j] = 0.0
        stack[i, i] = lam[i]
    for i in range(filled):
        c[i] = np.sqrt(rows[i, C2])
        left, right, own = stack[had + i], stack[had + i, had:], z[i, 1:]
        for j in range(had):
            left[j] = c[i] * own[j]
        for j in range(i + 1):
            right[j] = c[i] * c[j] * gram[i, j]
    # While alpha is small so may be the eigenvalues that matter; how many there are was counted as the rows came.
    largest = 0.0
    for i in range(size):
        largest = max(largest, stack[i, i])
    graded = block.scalars[ALPHA] <= TINY * largest
    rank = block.counts[RANK] if block.counts[CAREFUL] > 0 else size
    sizes = block.counts[SIZES:]
    delta = shrink_block(routines, stack, had, c, int(settings[SHRUNK]), graded, rank, lam, on_b, on_x, sizes, rest)
    if delta < 0:
        block.counts[STATUS] = OVERFLOW
        return False
    block.scalars[DELTA] = delta
    block.scalars[DELTA_SUM] += delta
    block.scalars[ALPHA] += settings[ADD] * delta
    block.counts[CAREFUL] = block.scalars[ALPHA] <= SMALL * (lam[0] + delta)
    block.counts[RANK] = block.counts[SPAN] = 0
    for j in range(r):
        block.ball[1 + j] = 0.0
        block.counts[RANK] += lam[j] > 0
        block.counts[SPAN] += lam[j] > block.scalars[ALPHA]
    if late is not None:
        _late_step(settings, block, on_b, on_x, room)
    block.counts[FILLED] = 0
    block.counts[SHRINKS] += 1
    return True


@entry
@loops
def collect_steps(block: Block, room: Any, on_b: Any, on_x: Any) -> None:
    """Fill the first rows of on_b and on_x: by the steps of the block w, as stored, gains on_b[0] B + on_x[0] X.

    It needs room for two numbers a row, and changes nothing else: many may read w at a time.
    """
    lam, z, k, n, rows, alpha = block.lam, block.products, block.k, block.n, block.rows, block.scalars[ALPHA]
    filled, careful = block.counts[FILLED], block.counts[CAREFUL] > 0
    # The sum is of a_j K x_j + o_j N x_j, K and N as they were at the beginning; last row first, by what it changed.
    a, o = room[:filled], room[filled:]
    for j in range(filled - 1, -1, -1):
        kj, nj, row = k[j], n[j], rows[j]
        a_k, a_n, o_n = 0.0, 0.0, 0.0
        for i in range(j + 1, filled):
            o_n += o[i] * nj[i]
        if careful:
            for i in range(j + 1, filled):
                a_k += a[i] * kj[i]
                a_n += a[i] * nj[i]
        a[j] = row[STEP] * row[ALONG_K] + row[KK] * a_k + row[KN] * a_n
        o[j] = row[STEP] * row[ALONG_N] + row[KN] * a_k + row[ONE_N] * (row[NN] * a_n - o_n)
    total = on_b[0]
    for b in range(len(lam)):
        total[b] = 0.0
    for j in range(filled):
        own = z[j, 1:]
        for b in range(len(lam)):
            total[b] += o[j] * own[b]
        for b in range(len(lam) if careful else 0):
            total[b] -= a[j] * moved(lam[b], alpha, careful) * own[b]
    for b in range(len(lam)):
        total[b] = (total[b] * taken(lam[b], alpha, careful) + block.ball[1 + b]) / block.ball[0]
    for j in range(filled):
        on_x[0, j] = (rows[j, EXTRA] - o[j]) / block.ball[0]


@loops
def _late_step(settings: Any, block: Block, on_b: Any, on_x: Any, b: Any) -> None:
    """Take the step of the last row with H after the shrink, as the fast algorithm of the appendix prints it."""
    lam, z, rows, alpha, last = block.lam, block.products, block.rows, block.scalars[ALPHA], block.counts[FILLED] - 1
    r, squares, careful = len(lam), block.gram[last, last], block.counts[CAREFUL] > 0
    kappa, free = 0.0, squares
    for j in range(r):
        b[j] = 0.0
        for i in range(r):
            b[j] += on_b[1 + j, i] * z[last, 1 + i]
        for i in range(last + 1):
            b[j] += on_x[1 + j, i] * block.gram[last, i]
        share = b[j] * taken(lam[j], alpha, careful) * b[j]
        free -= share
        kappa += share * moved(lam[j], alpha, careful)
    free = max(free, 0.0)
    if careful:
        lost = round_off(lam, alpha, block.scalars[DELTA], len(block.gram), squares, b)
        if free <= lost or block.counts[SPAN] == block.counts[FEATURES]:
            free = 0.0
    # Along K x and along N x.
    on_k = rows[last, GRADIENT]
    on_n = on_k / alpha if alpha > 0 and (free > 0 or not careful) else 0.0
    q, bound = rows[last, MARGIN] - on_k * kappa - on_n * free, settings[BOUND]
    if settings[DOMAIN] == SLAB and settings[PROJECTION] == CURRENT and abs(q) > bound:
        over = q - np.copysign(bound, q)
        if free > 0:
            over /= alpha * kappa + free
            on_k, on_n = on_k + over * alpha, on_n + over
        elif kappa > 0:
            on_k += over / kappa
    on_k, on_n = on_k / block.ball[0], on_n / block.ball[0]
    # In terms of the new B and of x; the new B is then written in terms of the old one and X.
    for j in range(r):
        # In this order: the first two factors alone go with the fourth power of the scale of the rows, and overflow.
        c = (on_n - on_k * moved(lam[j], alpha, careful)) * (taken(lam[j], alpha, careful) * b[j])
        for i in range(r):
            on_b[0, i] += c * on_b[1 + j, i]
        for i in range(last + 1):
            on_x[0, i] += c * on_x[1 + j, i]
    on_x[0, last] -= on_n
