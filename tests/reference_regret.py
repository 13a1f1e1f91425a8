"""The right-hand sides of Luo et al. 2019, Theorems 5 to 7, for a run of Alg. 3 (`reference_online.algorithm_3`).

Without weights and with one mu for all rows. `corrected=False` is the printed statement. `corrected=True` is the
statement that the proofs support. They differ as follows:

- C^2 sum delta_t in Theorems 5 and 7 needs ||w_t - w|| <= 2 C, which holds for a ball of radius C but not for slabs.
  Corrected: a quarter of sum delta_t ||w_t - w||^2, which is one line earlier in the proof.
- Theorem 6: H^(t) = sum (mu + eta_s) g g' is at least (mu + eta_t) sum g g', not 1/(eta_1 + mu) times it;
  rank(B^) <= m - 1 holds for the rows before T', not for T' itself; sigma* is the minimum over all t, not the last.
- Theorem 7: det(H^(T')) is printed instead of its d-th root, and the regret after T' starts from w^(T') - w. Corrected:
  one telescoping sum over both phases, in which row T' costs at most 1/(mu + eta_T') since c^2 x x' <= 2 H^(T').
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tests.reference import Array
from tests.reference_online import LOSSES, Loss, Run


def total_regret(run: Run, X: ArrayLike, y: ArrayLike, w: Array, loss: str | Loss = "squared") -> float:
    """R_T(w): the sum of losses at the margins of the run minus that of w."""
    value = (LOSSES[loss] if isinstance(loss, str) else loss)[0]
    return float(np.sum(value(run.margins, np.asarray(y)) - value(np.asarray(X) @ w, np.asarray(y))))


def theorem_5(run: Run, w: Array, *, C: float, L: float, mu: float, corrected: bool = False) -> float:
    """Luo et al. 2019, Theorem 5 (the regret of Alg. 3 for alpha0 > 0); L bounds |l'| on |z| <= C."""
    m, d, eta, delta, alpha = _letters(run)
    alpha0, k = alpha[0] - delta[0] / 2, mu + eta[-1]
    trace = float((run.B**2).sum())
    gap = (d - m) / (2 * k) * np.log(alpha[-1] / alpha0) + m / (4 * k) * np.sum(delta / alpha)
    gap += _path_term(run, w) if corrected else C**2 * delta.sum()
    return float(
        alpha0 / 2 * (w @ w)
        + 2 * (C * L) ** 2 * eta.sum()
        + m / (2 * k) * np.log(trace / (m * alpha0) + alpha[-1] / alpha0)
        + gap
    )


def theorem_6(run: Run, *, C: float, L: float, mu: float, corrected: bool = False) -> float:
    """Luo et al. 2019, Theorem 6: the regret of the first T' rows (corrected: T' - 1) with alpha0 = 0."""
    m, d, eta, delta, alpha = _letters(run)
    T = min(_first_positive(run) - corrected, len(eta))
    G = np.array(run.gradients[:T]).reshape(T, d)
    last = _nonzero_eigenvalues(G)
    r = len(last)
    if r == 0:
        return float(2 * (C * L) ** 2 * eta[:T].sum())
    smallest = min(_nonzero_eigenvalues(G[:t])[0] for t in range(1, T + 1) if G[:t].any()) if corrected else last[0]
    log = np.log(1 + 2 * (G**2).sum() / ((1 + r) * r * smallest))
    if corrected:
        rest = (r + r * (r + 1) / 2 * log) / (2 * (mu + eta[T - 1]))
    else:
        rest = (m - 1 + m * (m - 1) * log) / (2 * (mu + eta[0]))
    return float(2 * (C * L) ** 2 * eta[:T].sum() + rest)


def theorem_7(run: Run, w: Array, *, C: float, L: float, mu: float, corrected: bool = False) -> float:
    """Luo et al. 2019, Theorem 7: the regret of Alg. 3 with alpha0 = 0, for a run in which alpha became positive."""
    m, d, eta, delta, alpha = _letters(run)
    T, k = _first_positive(run), mu + eta[-1]
    assert run.first is not None
    trace, H = float((run.B**2).sum()), run.first
    out = theorem_6(run, C=C, L=L, mu=mu, corrected=corrected)
    out += m / (4 * k) * np.sum((delta / np.maximum(alpha, 1e-300))[T:])
    if corrected:
        out += 2 * (C * L) ** 2 * eta[T - 1 :].sum() + 1 / (mu + eta[T - 1]) + _path_term(run, w)
        log = m * np.log(trace / m + alpha[-1]) + (d - m) * np.log(alpha[-1]) - np.linalg.slogdet(H)[1]
        return float(out + log / (2 * k))
    det, u = np.linalg.det(H), run.path[T - 1]
    out += 2 * (C * L) ** 2 * eta[T:].sum() + u @ H @ u / 2 + C**2 * delta[T:].sum()
    log = m * np.log(trace / (m * alpha[T - 1]) + alpha[-1] / det) + (d - m) * np.log(alpha[-1] / det)
    return float(out + log / (2 * k))


def _letters(run: Run) -> tuple[int, int, Array, Array, Array]:
    """m, d, eta_t, delta_t = (sigma_m)^2 of row t's shrink, alpha^(t)."""
    return run.model.m, len(run.w), np.array(run.etas), np.array(run.deltas), np.array(run.alphas)


def _path_term(run: Run, w: Array) -> float:
    """A quarter of the sum of delta_t ||w_t - w||^2."""
    return float(np.array(run.deltas) @ ((np.array(run.path) - w) ** 2).sum(1)) / 4


def _first_positive(run: Run) -> int:
    """T', the first row after which alpha > 0; T + 1 if there is none."""
    return int(np.argmax(np.array(run.alphas + [1.0]) > 0)) + 1


def _nonzero_eigenvalues(G: Array) -> Array:
    """The eigenvalues of G'G above rounding, ascending."""
    s = np.linalg.svd(G, compute_uv=False)[::-1]
    return np.asarray(s[s > 1e-12 * s.max(initial=0.0)] ** 2)
