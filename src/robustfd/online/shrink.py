"""The shrink at the end of a block: its steps and its rows become one change of w and B.

The eigenvectors of the small Gram matrix of [B; c X] are the coefficients of the new rows of B. linalg/rules.py holds
the rules that reduce the eigenvalues.
"""

from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import entry, loops
from robustfd.linalg.eigen import EIGENPAIRS, EPS, GRADED
from robustfd.linalg.lapack import at, call, view
from robustfd.linalg.rules import gram_noise, shrink_values
from robustfd.online.block import OVERFLOW, SMALL, Block, Floats, k_weight, n_weight, round_off
from robustfd.online.settings import CURRENT, SLAB

TINY = 1e-12  # for alpha below this times the largest eigenvalue, all eigenvalues need a small relative error


class Change(NamedTuple):
    """Replaces w by w + coef_b[0] B + coef_x[0] X and B by coef_b[1:] B + coef_x[1:] X, at the end of a block."""

    coef_b: Floats  # (1 + r, r)
    coef_x: Floats  # (1 + r, rows)
    scratch: Floats  # scratch memory


@loops
def open_change(block: Block) -> Change:
    """Return a change in the scratch memory of the block, for `end_block` to fill."""
    rows, q = block.products.shape
    a, b = q * (q - 1), q * (q - 1 + rows)
    scratch = block.scratch
    return Change(
        view(scratch, 0, (q, q - 1)),
        view(scratch, a, (q, block.state[0].filled)),
        view(scratch, b, (len(scratch) - b,)),
    )


@loops
def end_block(routines: Any, block: Block, change: Change, shrink_first: Any) -> bool:
    """Shrink, fill the change and begin a new block; return whether it succeeded.

    `shrink_first` is None unless the last row takes its step after the shrink. For None, numba does not compile that
    step.
    """
    settings, state, lam = block.settings[0], block.state[0], block.lam
    filled, r, had = state.filled, len(lam), len(lam) if state.shrinks > 0 else 0
    size, scratch = had + filled, change.scratch
    collect_steps(block, scratch, change.coef_b, change.coef_x)
    stack, c, rest = view(scratch, 0, (size, size)), scratch[size * size :], scratch[size * size + filled :]
    form_stack(block, had, stack, c)
    largest = 0.0
    for i in range(size):
        largest = max(largest, stack[i, i])
    # While alpha is small, tiny eigenvalues matter as well. The rank was counted when the rows were added.
    graded, wanted = state.alpha <= TINY * largest, min(r, size)
    rank = min(state.rank, size) if state.careful > 0 else size
    values, vectors = rest[:size], view(rest, size, (wanted, size))
    rank = find_eigenpairs(routines, block, graded, rank, stack, values, vectors)
    if rank < 0:
        state.status = OVERFLOW
        return False
    noise, least = gram_noise(size, values[0]), EPS * EPS * values[0]
    delta = shrink_values(values[:rank], r + 1, settings.shrunk, noise, least, lam)
    write_rows(lam, values, vectors, c, change)
    state.delta = delta
    state.delta_sum += delta
    state.alpha += settings.added * delta
    state.careful = state.alpha <= SMALL * (lam[0] + delta)
    state.rank = state.span = 0
    for j in range(r):
        block.ball[j] = 0.0
        state.rank += lam[j] > 0
        state.span += lam[j] > state.alpha
    if shrink_first is not None:
        _step_after_shrink(block, change)
    state.filled = 0
    state.shrinks += 1
    return True


@loops
def form_stack(block: Block, had: int, stack: Any, c: Any) -> None:
    """Fill the lower triangle of the Gram matrix of [B; c X], where B has `had` rows, and the factors c."""
    for i in range(had):
        for j in range(i):
            stack[i, j] = 0.0
        stack[i, i] = block.lam[i]
    for i in range(block.state[0].filled):
        c[i] = np.sqrt(block.rows[i].c2)
        left, right, own = stack[had + i], stack[had + i, had:], block.products[i, 1:]
        for j in range(had):
            left[j] = c[i] * own[j]
        for j in range(i + 1):
            right[j] = c[i] * c[j] * block.gram[i, j]


@loops
def find_eigenpairs(routines: Any, block: Block, graded: bool, rank: int, stack: Any, values: Any, vectors: Any) -> int:
    """Fill the largest eigenvalues of the stack, at most `rank`, and their eigenvectors; return the rank.

    Return -1 on failure. With `graded`, small eigenvalues have a small relative error as well.
    """
    sizes: Any = block.sizes
    sizes[0], sizes[1], sizes[2] = len(stack), len(vectors), rank
    call(routines[GRADED if graded else EIGENPAIRS], (at(routines, 0), at(sizes, 0), stack, values, vectors))
    result = sizes[2]
    sizes[0] = sizes[1] = sizes[2] = 0  # so that equal learners have equal memory
    if graded:
        return result
    return rank if result == 1 else -1


@loops
def write_rows(lam: Any, values: Any, vectors: Any, c: Any, change: Change) -> None:
    """Fill the new rows of B in the change: eigenvectors of the stack, with squared lengths lam."""
    filled, r = change.coef_x.shape[1], len(lam)
    had = len(values) - filled
    for j in range(r):
        from_b, from_x = change.coef_b[1 + j], change.coef_x[1 + j]
        for i in range(r):
            from_b[i] = 0.0
        for i in range(filled):
            from_x[i] = 0.0
        factor = np.sqrt(lam[j] / values[j]) if lam[j] > 0 else 0.0
        if factor > 0:
            left, right = vectors[j], vectors[j, had:]
            for i in range(had):
                from_b[i] = factor * left[i]
            for i in range(filled):
                from_x[i] = factor * right[i] * c[i]


@entry
@loops
def collect_steps(block: Block, scratch: Any, coef_b: Any, coef_x: Any) -> None:
    """Fill coef_b[0] and coef_x[0] such that the steps of the block change the stored w by coef_b[0] B + coef_x[0] X.

    `scratch` holds two numbers for each row. The block does not change, so several threads may read w at the same time.
    """
    lam, z, k, n, rows, state = block.lam, block.products, block.k, block.n, block.rows, block.state[0]
    alpha, filled, careful = state.alpha, state.filled, state.careful > 0
    # The change is the sum of a_j K x_j + o_j N x_j with the K and N of the beginning of the block. Go backwards from
    # the last row, and express each row's K and N by those before it.
    a, o = scratch[:filled], scratch[filled:]
    for j in range(filled - 1, -1, -1):
        kj, nj, row = k[j], n[j], rows[j]
        a_k, a_n, o_n = 0.0, 0.0, 0.0
        for i in range(j + 1, filled):
            o_n += o[i] * nj[i]
        if careful:
            for i in range(j + 1, filled):
                a_k += a[i] * kj[i]
                a_n += a[i] * nj[i]
        a[j] = row.step * row.along_k + row.kk * a_k + row.kn * a_n
        o[j] = row.step * row.along_n + row.kn * a_k + row.one_n * (row.nn * a_n - o_n)
    total = coef_b[0]
    for b in range(len(lam)):
        total[b] = 0.0
    for j in range(filled):
        own = z[j, 1:]
        for b in range(len(lam)):
            total[b] += o[j] * own[b]
        for b in range(len(lam) if careful else 0):
            total[b] -= a[j] * k_weight(lam[b], alpha, careful) * own[b]
    for b in range(len(lam)):
        total[b] = (total[b] * n_weight(lam[b], alpha, careful) + block.ball[b]) / state.factor
    for j in range(filled):
        coef_x[0, j] = (rows[j].extra - o[j]) / state.factor


@loops
def _step_after_shrink(block: Block, change: Change) -> None:
    """Take the step of the last row with H after the shrink, as printed in Alg. 6 of Luo et al. 2019."""
    settings, state, lam, z = block.settings[0], block.state[0], block.lam, block.products
    coef_b, coef_x = change.coef_b, change.coef_x
    alpha, last, careful, b = state.alpha, state.filled - 1, state.careful > 0, change.scratch
    r, squares, row = len(lam), block.gram[last, last], block.rows[last]
    kappa, free = 0.0, squares
    for j in range(r):
        b[j] = 0.0
        for i in range(r):
            b[j] += coef_b[1 + j, i] * z[last, 1 + i]
        for i in range(last + 1):
            b[j] += coef_x[1 + j, i] * block.gram[last, i]
        share = b[j] * n_weight(lam[j], alpha, careful) * b[j]
        free -= share
        kappa += share * k_weight(lam[j], alpha, careful)
    free = max(free, 0.0)
    if careful:
        lost = round_off(lam, alpha, state.delta, len(block.gram), squares, b)
        if free <= lost or state.span == state.features:
            free = 0.0
    # The coefficients of K x and of N x.
    coef_k = row.gradient
    coef_n = coef_k / alpha if alpha > 0 and (free > 0 or not careful) else 0.0
    q, bound = row.margin - coef_k * kappa - coef_n * free, settings.bound
    if settings.domain == SLAB and settings.projection == CURRENT and abs(q) > bound:
        over = q - np.copysign(bound, q)
        if free > 0:
            over /= alpha * kappa + free
            coef_k, coef_n = coef_k + over * alpha, coef_n + over
        elif kappa > 0:
            coef_k += over / kappa
    coef_k, coef_n = coef_k / state.factor, coef_n / state.factor
    # Express the step in the new B and x, and the new B in the old B and X.
    for j in range(r):
        # The order matters: the product of the first two factors grows with the fourth power of the rows and overflows.
        c = (coef_n - coef_k * k_weight(lam[j], alpha, careful)) * (n_weight(lam[j], alpha, careful) * b[j])
        for i in range(r):
            coef_b[0, i] += c * coef_b[1 + j, i]
        for i in range(last + 1):
            coef_x[0, i] += c * coef_x[1 + j, i]
    coef_x[0, last] -= coef_n
