"""The rows between two shrinks, in the span of the sketch and of themselves: nothing here is of length d.

Let H = B'B + alpha I when the block begins, the rows of B orthogonal with squared lengths lam, and X the rows of
the block. For linear models every gradient is a multiple of its row, so all that the sequential algorithm (Luo et
al. 2019, Alg. 3 and 6) does until the next shrink follows from Z = X B', G = X X' and X w. Row by row:

    K = X H^-1 X' = (G - Z diag(1/(lam + alpha)) Z') / alpha, brought up to date by Sherman and Morrison's formula
    w moves by -step H_{t-1}^-1 x

While alpha = 0 the pseudo-inverse takes the place of the inverse, with Meyer's formulas for its rank-one updates,
and N = X (I - P) X' is carried beside K, P the projection onto the rows that have entered.

Only what earlier rows left behind is used for a row, so it does not matter how many come at a time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd.linalg._compile import compiled, inner
from robustfd.linalg.lapack import INDEPENDENT, at, gemm
from robustfd.online._shrink import shrink_block
from robustfd.online.losses import loss_slope

Floats = NDArray[np.float64]

# Places in Block.scalars and Block.counts, and in the settings of a learner.
ALPHA, DELTA_SUM = range(2)
FILLED, SEEN, SHRINKS, STATUS, BUFFER, WIDTH, COUNTS = range(7)
LEARNT, OVERFLOW = range(2)  # STATUS
MU, RATE, POWER, BOUND, LOSS_CODE, LOSS_DELTA, PROJECTION, DOMAIN, SHRINK_FIRST, SHRUNK, ADD, SETTINGS = range(12)
CURRENT, NEXT = 1.0, 2.0  # PROJECTION
SLAB, BALL = 1.0, 2.0  # DOMAIN
NO_GRADIENT = 1e-9  # a slope this small, relative to the label, is round-off of a margin that equals its label
UNTOUCHED, INSIDE, OUTSIDE = 0.0, 1.0, 2.0  # how a row entered while alpha = 0


class Block(NamedTuple):
    """The rows of the block that have come so far, as seen from the sketch and from each other."""

    products: Floats  # (rows, 1 + r): w'x and B x at the beginning of the block
    gram: Floats  # (rows, rows): G, lower triangle
    k: Floats  # (rows, rows): k[j, i] = K_ij just before row j entered, i >= j
    n: Floats  # (rows, rows): the same of N; used while alpha = 0
    rows: Floats  # (rows, 8): what each row left behind, in the places named below
    lam: Floats  # (r,): squared lengths of the rows of B
    scalars: Floats
    ball: Floats  # (2 + 2 r,): what projections onto a ball add to w, see _ball.py
    counts: NDArray[np.int64]
    extra: Floats


# Places in a row of Block.rows.
C2, F, STEP, ENTERED, ALONG_N, MARGIN, GRADIENT, EXTRA = range(8)


def start(m: int, rows: int, alpha0: float, extra: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return memory and counts of the first block, of a buffer of so many rows, B empty, with extra memory after it.

    A block lives in one array: to hand many to a compiled function takes longer than to learn a row.
    """
    counts = np.zeros(COUNTS, np.int64)
    counts[BUFFER], counts[WIDTH] = rows, m
    memory = np.zeros(rows * (m + 3 * rows + 8) + 3 * m + 1 + extra)
    block = open_block.py_func(memory, counts)
    block.scalars[ALPHA], block.ball[0] = alpha0, 1.0
    return memory, counts


@compiled
def open_block(memory: Any, counts: Any) -> Block:
    """Return the block that lives in memory, and in it the place where the extra memory begins."""
    rows, q = counts[BUFFER], counts[WIDTH]
    square, a = rows * rows, rows * q
    b = a + 3 * square
    c = b + 8 * rows
    return Block(
        memory[:a].reshape(rows, q),
        memory[a : a + square].reshape(rows, rows),
        memory[a + square : a + 2 * square].reshape(rows, rows),
        memory[a + 2 * square : b].reshape(rows, rows),
        memory[b:c].reshape(rows, 8),
        memory[c : c + q - 1],
        memory[c + q - 1 : c + q + 1],
        memory[c + q + 1 : c + 3 * q + 1],
        counts,
        memory[c + 3 * q + 1 :],
    )


@inner
def begin_rows(routines: Any, block: Block, first: int, last: int) -> None:
    """Fill k (and n) for rows first to last - 1 of the block with what the sketch at its beginning says."""
    lam, z, alpha = block.lam, block.products, block.scalars[ALPHA]
    count, r = last - first, len(lam)
    if count == 1 and alpha > 0:  # a row that comes alone: less work than to prepare a matrix product
        i, row = first, np.empty(r)
        for b in range(r):
            row[b] = z[i, 1 + b] / (lam[b] + alpha)
        for j in range(last):
            x = block.gram[i, j]
            for b in range(r):
                x -= row[b] * z[j, 1 + b]
            block.k[j, i] = x / alpha
        return
    scaled, start = np.empty((last, r)), np.empty((count, last))
    for turn in range(2 if alpha == 0.0 else 1):
        for j in range(r):
            x = lam[j]
            if alpha > 0:
                factor = 1.0 / np.sqrt(x + alpha)
            elif x > 0:
                factor = 1.0 / x if turn == 0 else 1.0 / np.sqrt(x)
            else:
                factor = 0.0
            for i in range(last):
                scaled[i, j] = factor * z[i, 1 + j]
        gemm(
            routines,
            False,
            True,
            count,
            last,
            r,
            1.0,
            at(scaled, first * r),
            r,
            at(scaled, 0),
            r,
            0.0,
            at(start, 0),
            last,
        )
        for i in range(first, last):
            for j in range(i + 1):
                x = start[i - first, j]
                if alpha > 0:
                    block.k[j, i] = (block.gram[i, j] - x) / alpha
                elif turn == 0:
                    block.k[j, i] = x
                else:
                    block.n[j, i] = block.gram[i, j] - x


@inner
def learn_row(settings: Any, block: Block, i: int, y: float, weight: float, scratch: Any) -> float:
    """Take the step of row i and return its margin as it was before; scratch (2, rows) is overwritten."""
    k, n, rows, alpha = block.k, block.n, block.rows, block.scalars[ALPHA]
    p = block.ball[0] * block.products[i, 0]
    if settings[DOMAIN] == BALL:
        for j in range(len(block.lam)):
            p += block.ball[1 + j] * block.products[i, 1 + j]
        for j in range(i):
            p += rows[j, EXTRA] * block.gram[i, j]
    # Copies of columns i, since the loops below run along rows.
    ki, ni = scratch[0], scratch[1]
    for j in range(i + 1):
        ki[j] = k[j, i]
    if alpha == 0:
        for j in range(i + 1):
            ni[j] = n[j, i]
    for j in range(i):
        kj, nj, x = k[j], n[j], ki[j]
        kj[i] = x
        if alpha > 0:
            p -= rows[j, STEP] * x
            x *= rows[j, F]
            for l in range(j + 1, i + 1):
                ki[l] -= x * kj[l]
            continue
        z = ni[j]
        nj[i] = z
        p -= rows[j, STEP] * (z / nj[j] if rows[j, ALONG_N] > 0 else x)
        if rows[j, ENTERED] == INSIDE:
            for l in range(j + 1, i + 1):
                ki[l] -= rows[j, F] * x * kj[l]
        elif rows[j, ENTERED] == OUTSIDE:
            x /= nj[j]
            z /= nj[j]
            both = (1.0 / rows[j, C2] + kj[j]) * z / nj[j]
            for l in range(j + 1, i + 1):
                ki[l] += (both - x) * nj[l] - z * kj[l]
                ni[l] -= z * nj[l]
    kappa = max(ki[i], 0.0)
    k[i, i], outside = kappa, False
    if alpha == 0:
        n[i, i] = ni[i]
        outside = ni[i] > INDEPENDENT * block.gram[i, i]

    bound, step = settings[BOUND], 0.0
    slab = settings[DOMAIN] == SLAB
    along = 1.0 if outside else kappa  # how far the margin falls when w moves by the direction
    if slab and settings[PROJECTION] == NEXT and abs(p) > bound and along > 0:
        step = (p - np.copysign(bound, p)) / along
        p = np.copysign(bound, p)
    slope = loss_slope(int(settings[LOSS_CODE]), p, y, settings[LOSS_DELTA])
    if abs(slope) <= NO_GRADIENT * max(1.0, abs(y)):
        slope = 0.0
    eta = settings[RATE] / float(block.counts[SEEN] + 1) ** settings[POWER]
    c2 = weight * (settings[MU] + eta) * slope * slope
    g = weight * slope
    rows[i, C2], rows[i, ENTERED], rows[i, F], rows[i, ALONG_N] = c2, UNTOUCHED, 0.0, 1.0 if outside else 0.0
    rows[i, EXTRA] = 0.0
    waits = settings[SHRINK_FIRST] > 0 and i + 1 == rows_in_block(block)
    if waits:
        rows[i, STEP], rows[i, MARGIN], rows[i, GRADIENT] = step, p, g
    else:
        if alpha > 0 or not outside:
            rows[i, F] = c2 / (1.0 + c2 * kappa)
            move = g / (1.0 + c2 * kappa)
            if alpha == 0 and c2 > 0:
                rows[i, ENTERED] = INSIDE
        elif c2 > 0:
            move = g / c2
            rows[i, ENTERED] = OUTSIDE
        else:
            move = 0.0
        q = p - move * along
        if slab and settings[PROJECTION] == CURRENT and abs(q) > bound and along > 0:
            move += (q - np.copysign(bound, q)) / along
        rows[i, STEP] = step + move
    block.counts[SEEN] += 1
    return p


@compiled
def rows_in_block(block: Block) -> int:
    """Return how many rows the block takes: after the first shrink those of B have places of the buffer."""
    return len(block.gram) - (len(block.lam) if block.counts[SHRINKS] > 0 else 0)


@compiled
def end_block(routines: Any, settings: Any, block: Block, on_b: Any, on_x: Any) -> bool:
    """Shrink; fill the rows of on_b (1 + r, r) and on_x (1 + r, rows) and return whether that went well.

    After it w is w + on_b[0] B + on_x[0] X and B is on_b[1:] B + on_x[1:] X, on the right as they were.
    """
    lam, z, gram, rows = block.lam, block.products, block.gram, block.rows
    filled, r, had = block.counts[FILLED], len(block.lam), len(block.lam) if block.counts[SHRINKS] > 0 else 0
    alpha = block.scalars[ALPHA]
    size = had + filled
    collect_steps(block, on_b, on_x)

    stack, c = np.zeros((size, size)), np.sqrt(rows[:filled, C2])
    for i in range(had):
        stack[i, i] = lam[i]
    for i in range(filled):
        for j in range(had):
            stack[had + i, j] = stack[j, had + i] = c[i] * z[i, 1 + j]
        for j in range(i + 1):
            stack[had + i, had + j] = stack[had + j, had + i] = c[i] * c[j] * gram[i, j]
    # While alpha = 0 the number of independent rows decides, which round-off must not.
    delta = shrink_block(routines, stack, had, c, int(settings[SHRUNK]), alpha == 0, lam, on_b, on_x)
    if delta < 0:
        block.counts[STATUS] = OVERFLOW
        return False
    block.scalars[DELTA_SUM] += delta
    block.scalars[ALPHA] += settings[ADD] * delta
    for j in range(r):
        block.ball[1 + j] = 0.0
    if settings[SHRINK_FIRST] > 0:
        _late_step(settings, block, on_b, on_x)
    block.counts[FILLED] = 0
    block.counts[SHRINKS] += 1
    return True


@compiled
def collect_steps(block: Block, on_b: Any, on_x: Any) -> None:
    """Fill the first rows of on_b and on_x: by the steps of the block w, as stored, gains on_b[0] B + on_x[0] X."""
    lam, z, k, n, rows, alpha = block.lam, block.products, block.k, block.n, block.rows, block.scalars[ALPHA]
    filled = block.counts[FILLED]
    # The sum is of a_j H_0^-1 x_j, or of a_j H_0^+ x_j + o_j (I - P_0) x_j, last row first.
    a, o = np.zeros(filled), np.zeros(filled)
    for j in range(filled):
        if alpha == 0 and rows[j, ALONG_N] > 0:
            o[j] = rows[j, STEP] / n[j, j]
        else:
            a[j] = rows[j, STEP]
    for j in range(filled - 1, -1, -1):
        kj, nj = k[j], n[j]
        if alpha > 0 or rows[j, ENTERED] == INSIDE:
            total = 0.0
            for i in range(j + 1, filled):
                total += kj[i] * a[i]
            a[j] -= rows[j, F] * total
        elif rows[j, ENTERED] == OUTSIDE:
            both = (1.0 / rows[j, C2] + kj[j]) / nj[j]
            on_a, on_o = 0.0, 0.0
            for i in range(j + 1, filled):
                on_a += a[i] * nj[i]
                on_o += o[i] * nj[i] + a[i] * (kj[i] - both * nj[i])
            a[j] -= on_a / nj[j]
            o[j] -= on_o / nj[j]
    for b in range(len(lam)):
        x, total = lam[b], 0.0
        if alpha > 0:
            for j in range(filled):
                total += a[j] * z[j, 1 + b]
            total /= alpha * (x + alpha)
        elif x > 0:
            for j in range(filled):
                total += (o[j] - a[j] / x) * z[j, 1 + b]
            total /= x
        on_b[0, b] = (total + block.ball[1 + b]) / block.ball[0]
    for j in range(filled):
        on_x[0, j] = (rows[j, EXTRA] - (a[j] / alpha if alpha > 0 else o[j])) / block.ball[0]


@inner
def _late_step(settings: Any, block: Block, on_b: Any, on_x: Any) -> None:
    """Take the step of the last row with H after the shrink, as the fast algorithm of the appendix prints it."""
    lam, z, rows, alpha, last = block.lam, block.products, block.rows, block.scalars[ALPHA], block.counts[FILLED] - 1
    r, squares = len(lam), block.gram[last, last]
    b = np.zeros(r)
    kappa, outside = squares, squares
    for j in range(r):
        for i in range(r):
            b[j] += on_b[1 + j, i] * z[last, 1 + i]
        for i in range(last + 1):
            b[j] += on_x[1 + j, i] * block.gram[last, i]
        kappa -= b[j] * b[j] / (lam[j] + alpha) if lam[j] > 0 else 0.0
    if alpha > 0:
        kappa, outside = max(kappa / alpha, 0.0), 0.0
    else:
        outside, kappa = kappa, 0.0
        if outside <= INDEPENDENT * squares:
            outside = 0.0
        for j in range(r):
            kappa += (b[j] / lam[j]) ** 2 if lam[j] > 0 else 0.0
    step, free = rows[last, GRADIENT], 0.0  # along H^-1 x or H^+ x, and along what is outside the span
    q, bound = rows[last, MARGIN] - step * kappa, settings[BOUND]
    if settings[DOMAIN] == SLAB and settings[PROJECTION] == CURRENT and abs(q) > bound:
        if outside > 0:
            free = (q - np.copysign(bound, q)) / outside
        elif kappa > 0:
            step += (q - np.copysign(bound, q)) / kappa
    step, free = step / block.ball[0], free / block.ball[0]
    # In terms of the new B and of x; the new B is then written in terms of the old one and X.
    for j in range(r):
        if lam[j] == 0:
            continue
        if alpha > 0:
            c = step * b[j] / (alpha * (lam[j] + alpha))
        else:
            c = (free - step / lam[j]) * b[j] / lam[j]
        for i in range(r):
            on_b[0, i] += c * on_b[1 + j, i]
        for i in range(last + 1):
            on_x[0, i] += c * on_x[1 + j, i]
    on_x[0, last] -= step / alpha if alpha > 0 else free
