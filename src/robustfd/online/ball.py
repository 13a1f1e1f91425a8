"""Projections of w onto ||w||_2 <= C in the norm of H, row by row, in the span of w, B and the rows of the block.

Let u be the weights after the step. The projection is w = (H + nu I)^-1 H u, with nu > 0 such that ||w|| = C. Outside
the span of Y = [B; c X], H is alpha I. So with orthonormal vectors e_k in the span and eigenvalues s_k of Y Y'

    w = b u + sum_k (a_k - b) (e_k'u) e_k,    a_k = (s_k + alpha)/(s_k + alpha + nu),    b = alpha/(alpha + nu).

While alpha = 0 the part of u outside the span is shortened first, since this costs nothing in the norm of H. The factor
b of u is stored separately (`state.factor`), and the rest as additional coefficients of B (`block.ball`) and of X
(`row.extra`). The block also keeps the products of the stored w with itself and with B (`block.overlaps`), so that no
array here has length d.
"""

import numpy as np

from robustfd.online.block import Block, Floats
from robustfd.online.shrink import Change, collect_steps

SMALLEST = 1e-6  # below this, the factor is multiplied into the stored weights and reset to 1


def project(block: Block) -> bool:
    """Project w onto the ball; return whether the caller must now multiply the stored weights by their factor.

    If the numbers overflow, the factor of w becomes nan.
    """
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            return _project(block)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        block.state[0].factor = np.nan
        return False


def _project(block: Block) -> bool:
    """Implement `project`; raise an error when numbers overflow."""
    state, bound = block.state[0], float(block.settings[0].bound)
    alpha, n, r = float(state.alpha), int(state.filled), len(block.lam)
    c, gram = coefficients(block), gram_of(block)
    length = float(np.sqrt(max(float(c @ gram @ c), 0.0)))
    if length <= bound:
        return False
    y = np.append(np.ones(r if state.shrinks else 0), np.sqrt(block.rows["c2"][:n]))  # the factors of Y
    rows = np.append(np.arange(1, 1 + r)[: len(y) - n], np.arange(1 + r, 1 + r + n))
    s, q = np.linalg.eigh(y[:, None] * gram[np.ix_(rows, rows)] * y)
    live = s > 1e-13 * s.max(initial=0.0)
    s, q = s[live], q[:, live] / np.sqrt(s[live])
    inside = q.T @ (y * (gram[rows] @ c))  # e_k'u
    outside = max(length**2 - inside @ inside, 0.0)
    if alpha == 0 and inside @ inside <= bound**2:
        a, b = np.ones(len(s)), np.sqrt((bound**2 - inside @ inside) / outside)
    else:
        from scipy.optimize import brentq  # imported lazily: it takes longer to import than this whole package

        def excess(nu: float) -> float:
            inner = np.linalg.norm((s + alpha) / (s + alpha + nu) * inside)
            return float(np.hypot(inner, alpha / (alpha + nu) * np.sqrt(outside) if alpha else 0.0) - bound)

        most = (s.max(initial=0.0) + alpha) * length / bound
        nu = brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-15, maxiter=2000)
        a, b = (s + alpha) / (s + alpha + nu), alpha / (alpha + nu)
    more = y * (q @ ((a - b) * inside))
    multiply_weights(block, b)
    block.ball[: len(y) - n] += more[: len(y) - n]
    block.rows["extra"][:n] += more[len(y) - n :]
    return bool(state.factor < SMALLEST)


def multiply_weights(block: Block, factor: float) -> None:
    """Multiply w by a factor."""
    state = block.state[0]
    state.factor *= factor
    block.ball[:] *= factor
    for name in ("step", "extra"):
        block.rows[name][: state.filled] *= factor


def coefficients(block: Block) -> Floats:
    """Return the coefficients of w: of the stored w, of B and of the rows of the block."""
    change = steps_of(block)
    return float(block.state[0].factor) * np.concatenate([[1.0], change.coef_b[0], change.coef_x[0]])


def steps_of(block: Block) -> Change:
    """Return the change of w by the steps of the block so far, as coefficients of B and of its rows."""
    n = int(block.state[0].filled)
    change = Change(np.zeros((1, len(block.lam))), np.zeros((1, n)), np.empty(2 * n))
    collect_steps(block, change.scratch, change.coef_b, change.coef_x)
    return change


def products_after(before: Floats, change: Change) -> Floats:
    """Return the products of w and B with w after a change; `before` is the Gram matrix before the change."""
    all_rows = np.hstack([np.eye(len(change.coef_b), 1), change.coef_b, change.coef_x])
    return all_rows @ before @ all_rows[0]


def gram_of(block: Block) -> Floats:
    """Return the Gram matrix of the stored w, B and the rows of the block."""
    n, r = int(block.state[0].filled), len(block.lam)
    gram = np.zeros((1 + r + n, 1 + r + n))
    gram[: 1 + r, 0] = block.overlaps
    gram[range(1, 1 + r), range(1, 1 + r)] = block.lam
    gram[1 + r :, : 1 + r] = block.products[:n]
    gram[1 + r :, 1 + r :] = block.gram[:n, :n]
    lower = np.tril(gram)
    return lower + lower.T - np.diag(np.diag(gram))
