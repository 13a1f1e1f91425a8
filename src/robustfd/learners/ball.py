"""Projections of w onto ||w||_2 <= C in the norm of H, row by row, in the span of w, B and the rows of the block.

Let u be the weights after the step. The projection is w = (H + nu I)^-1 H u, with nu > 0 such that ||w|| = C. Outside
the span of Y = [B; c X], H is alpha I. So with orthonormal vectors e_k in the span and eigenvalues s_k of Y Y'

    w = b u + sum_k (a_k - b) (e_k'u) e_k,    a_k = (s_k + alpha)/(s_k + alpha + nu),    b = alpha/(alpha + nu).

While alpha = 0 the part of u outside the span is shortened first, since this costs nothing in the norm of H. The factor
b of u is stored separately (`state.factor`), and the rest as additional coefficients of B (`ball`) and of X (`EXTRA` in
`rows`). The block also keeps the products of the stored w with itself and with B (`overlaps`), so that no array here
has length d.
"""

from typing import Any

import numpy as np

from robustfd.learners.rows import Floats

SMALLEST = 1e-6  # below this, the factor is multiplied into the stored weights and reset to 1
C2, EXTRA = 0, 8  # columns of `rows`: the weight of a row in H, and its coefficient in the change of w by projections


def project(core: Any, bound: float) -> None:
    """Project w onto the ball. If the numbers overflow, the factor of w becomes nan."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            _project(core, bound)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        core.state.factor = np.nan


def _project(core: Any, bound: float) -> None:
    """Implement `project`; raise an error when numbers overflow."""
    state, views = core.state, core.arrays()
    alpha, n, r = float(state.alpha), int(state.filled), len(views["lam"])
    gram = gram_of(core)
    c = state.factor * np.concatenate([[1.0], *core.steps()])  # w in terms of the stored w, B and the rows
    length = float(np.sqrt(max(float(c @ gram @ c), 0.0)))
    if length <= bound:
        return
    y = np.append(np.ones(r if state.shrinks else 0), np.sqrt(views["rows"][:n, C2]))  # the factors of Y
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
    core.multiply_weights(b)
    views["ball"][: len(y) - n] += more[: len(y) - n]
    views["rows"][:n, EXTRA] += more[len(y) - n :]
    if state.factor < SMALLEST:  # multiply the stored weights by their factor
        core.multiply_stored_weights(state.factor)
        state.factor = 1.0


def products_after(before: Floats, coef_b: Floats, coef_x: Floats) -> Floats:
    """Return the products of w and B with w after a change; `before` is the Gram matrix before the change."""
    all_rows = np.hstack([np.eye(len(coef_b), 1), coef_b, coef_x])
    return np.asarray(all_rows @ before @ all_rows[0])


def gram_of(core: Any) -> Floats:
    """Return the Gram matrix of the stored w, B and the rows of the block."""
    views = core.arrays()
    n, r = int(core.state.filled), len(views["lam"])
    gram = np.zeros((1 + r + n, 1 + r + n))
    gram[: 1 + r, 0] = views["overlaps"]
    gram[range(1, 1 + r), range(1, 1 + r)] = views["lam"]
    gram[1 + r :, : 1 + r] = views["products"][:n]
    gram[1 + r :, 1 + r :] = views["gram"][:n, :n]
    lower = np.tril(gram)
    return np.asarray(lower + lower.T - np.diag(np.diag(gram)))
