"""Projections of w onto ||w||_2 <= C in the norm of H, row by row, in the span of w, B and the rows of the block.

With u the weights after the step, the projection is w = (H + nu I)^-1 H u, nu > 0 such that ||w|| = C. H is alpha I but
for the span of Y = [B; c X], so with unit vectors e_k in it and eigenvalues s_k of Y Y'

    w = b u + sum_k (a_k - b) (e_k'u) e_k,    a_k = (s_k + alpha)/(s_k + alpha + nu),    b = alpha/(alpha + nu).

While alpha = 0 the part of u outside the span is shortened first, which is free. The factor b of u is kept apart, in
ball[0], and the rest as additional coefficients of B (ball[1:1+r]) and of X. Beside them the block keeps the products
of the stored w with itself and with B, so that nothing here is of length d.
"""

import numpy as np

from robustfd.online._block import ALPHA, BOUND, C2, EXTRA, FILLED, SHRINKS, STEP, Block, Floats, collect_steps

SMALLEST = 1e-6  # of the factor of the stored weights, before they are multiplied by it for real


def project(settings: Floats, block: Block) -> bool:
    """Bring w into the ball; return whether the stored weights must be multiplied by ball[0] now, and it set to 1.

    If that overflows w becomes nan, which is noticed at the next row.
    """
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            return _project(settings, block)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        block.ball[0] = np.nan
        return False


def _project(settings: Floats, block: Block) -> bool:
    """Do as `project`, or raise an error when numbers overflow."""
    bound, alpha = settings[BOUND], block.scalars[ALPHA]
    n, r = int(block.counts[FILLED]), len(block.lam)
    c, gram = coefficients(block), gram_of(block)
    length = float(np.sqrt(max(float(c @ gram @ c), 0.0)))
    if length <= bound:
        return False
    y = np.append(np.ones(r if block.counts[SHRINKS] else 0), np.sqrt(block.rows[:n, C2]))  # the factors of Y
    rows = np.append(np.arange(1, 1 + r)[: len(y) - n], np.arange(1 + r, 1 + r + n))
    s, q = np.linalg.eigh(y[:, None] * gram[np.ix_(rows, rows)] * y)
    live = s > 1e-13 * s.max(initial=0.0)
    s, q = s[live], q[:, live] / np.sqrt(s[live])
    inside = q.T @ (y * (gram[rows] @ c))  # e_k'u
    outside = max(length**2 - inside @ inside, 0.0)
    if alpha == 0 and inside @ inside <= bound**2:
        a, b = np.ones(len(s)), np.sqrt((bound**2 - inside @ inside) / outside)
    else:
        from scipy.optimize import brentq  # which takes longer to import than all of this package

        def excess(nu: float) -> float:
            inner = np.linalg.norm((s + alpha) / (s + alpha + nu) * inside)
            return float(np.hypot(inner, alpha / (alpha + nu) * np.sqrt(outside) if alpha else 0.0) - bound)

        most = (s.max(initial=0.0) + alpha) * length / bound
        nu = brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-15, maxiter=2000)
        a, b = (s + alpha) / (s + alpha + nu), alpha / (alpha + nu)
    more = y * (q @ ((a - b) * inside))
    block.ball[: 1 + r] *= b
    block.rows[:n, STEP] *= b
    block.rows[:n, EXTRA] *= b
    block.ball[rows[: len(y) - n]] += more[: len(y) - n]
    block.rows[:n, EXTRA] += more[len(y) - n :]
    return bool(block.ball[0] < SMALLEST)


def coefficients(block: Block) -> Floats:
    """Return those of w: of the stored w, of B and of the rows of the block."""
    n, r = int(block.counts[FILLED]), len(block.lam)
    on_b, on_x = np.zeros((1, r)), np.zeros((1, max(n, 1)))
    collect_steps(block, np.empty(2 * n), on_b, on_x)
    return block.ball[0] * np.concatenate([[1.0], on_b[0], on_x[0, :n]])


def products_after(before: Floats, on_b: Floats, on_x: Floats) -> Floats:
    """Return the products of w and B with w after `end_block`; `before` is the Gram matrix before it."""
    change = np.hstack([np.eye(len(on_b), 1), on_b, on_x])
    return change @ before @ change[0]


def gram_of(block: Block) -> Floats:
    """Return the Gram matrix of the stored w, B and the rows of the block."""
    n, r = int(block.counts[FILLED]), len(block.lam)
    gram = np.zeros((1 + r + n, 1 + r + n))
    gram[: 1 + r, 0] = block.ball[1 + r :]
    gram[range(1, 1 + r), range(1, 1 + r)] = block.lam
    gram[1 + r :, : 1 + r] = block.products[:n]
    gram[1 + r :, 1 + r :] = block.gram[:n, :n]
    lower = np.tril(gram)
    return lower + lower.T - np.diag(np.diag(gram))
