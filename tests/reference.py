"""Slow, literal transcriptions of the algorithms, as references for the tests.

Everything is dense float64 and processes one row at a time, with an SVD of the explicit buffer.
"Luo et al. 2019" is the paper (Robust Frequent Directions with Application in Online Learning). Names follow it: A the
rows, m the sketch size, B the sketch, delta the sigma_m^2 of a shrink step, Delta their (decayed) sum, alpha the scalar
of Alg. 2. L is the buffer size: L = m gives Alg. 1 and 2, L = 2 m the fast algorithms of Appendix A.

A `Result` is the state after the last row, where B is the raw buffer (up to L - 1 rows). `final` shrinks it to at most
m - 1 rows, and `compensate` is the read-out of compensative FD. No delta is rounded to zero here, so compare Delta and
alpha with an absolute tolerance of about L * eps * lambda_1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# ---------------------------------------------------------- shrink rules
# A rule maps the singular values s of the buffer (at least m of them, padded with zeros) and m to the new squared
# singular values of the m - 1 kept rows, the increment of Delta and the increment of alpha.

Rule = Callable[[Array, int], tuple[Array, float, float]]


def fd_rule(s: Array, m: int) -> tuple[Array, float, float]:
    """Luo et al. 2019, Alg. 1, line 5: Sigma_{m-1}^2 - sigma_m^2 I (as a product, so that it is never negative)."""
    return (s[: m - 1] - s[m - 1]) * (s[: m - 1] + s[m - 1]), float(s[m - 1] ** 2), 0.0


def rfd_rule(s: Array, m: int) -> tuple[Array, float, float]:
    """Luo et al. 2019, Alg. 2, lines 5 and 6: B as in Alg. 1, alpha increases by sigma_m^2 / 2."""
    kept, delta, _ = fd_rule(s, m)
    return kept, delta, delta / 2


def greedy_rule(s: Array, m: int) -> tuple[Array, float, float]:
    """Luo et al. 2019, Alg. 8 (greedy low-rank approximation), line 5: Sigma_{m-1}^2 unchanged."""
    return s[: m - 1] ** 2, float(s[m - 1] ** 2), 0.0


def n_shrunk(beta: float, m: int) -> int:
    """The number of squared singular values that PFD-beta reduces by delta: max(1, floor(beta m))."""
    return max(1, int(np.floor(beta * m + 1e-9)))


def pfd_rule(beta: float) -> Rule:
    """Parameterised FD (Desai et al. 2016): of the first m values, only the last floor(beta m) are reduced."""

    def rule(s: Array, m: int) -> tuple[Array, float, float]:
        kept = s[: m - 1] ** 2
        first = m - n_shrunk(beta, m)
        kept[first:] = fd_rule(s, m)[0][first:]
        return kept, float(s[m - 1] ** 2), 0.0

    return rule


# ------------------------------------------------------ state and shrink


@dataclass(frozen=True)
class Result:
    """The state of a sketch: the raw buffer B, the scalars and the parameters."""

    B: Array
    Delta: float
    alpha: float
    alpha0: float
    m: int
    L: int
    rule: Rule
    squared_norm: float = 0.0  # ||A||_F^2 of the prepared rows, decayed
    weight: float = 0.0  # sum of decayed weights
    mean: Array | None = None  # weighted mean, when centred
    n_shrinks: int = 0
    R: Array | float = 0.0  # mass removed from the diagonal of A'A, for `diagonal_frequent_directions`


def shrink(x: Result) -> Result:
    """B = sqrt(rule(Sigma)) V_{m-1}' for the SVD of the buffer; always m - 1 rows, including zero rows."""
    _, s, vt = np.linalg.svd(x.B, full_matrices=False)
    missing = max(0, x.m - len(s))
    s = np.concatenate([s, np.zeros(missing)])
    vt = np.vstack([vt, np.zeros((missing, x.B.shape[1]))])
    kept, delta, half = x.rule(s, x.m)
    B = np.sqrt(kept)[:, None] * vt[: x.m - 1]
    R = x.R + np.maximum(np.diag(x.B.T @ x.B - B.T @ B), 0.0)
    return replace(x, B=B, Delta=x.Delta + delta, alpha=x.alpha + half, n_shrinks=x.n_shrinks + 1, R=R)


def forget(x: Result, factor: float) -> Result:
    """Multiply everything by factor, except alpha0 and the mean."""
    return replace(
        x,
        B=np.sqrt(factor) * x.B,
        Delta=factor * x.Delta,
        alpha=x.alpha0 + factor * (x.alpha - x.alpha0),
        squared_norm=factor * x.squared_norm,
        weight=factor * x.weight,
        R=factor * x.R,
    )


def final(x: Result) -> Result:
    """The read-out: at most m - 1 orthogonal rows; the delta of this last shrink step counts."""
    return shrink(x)


def compensate(x: Result) -> Result:
    """Compensative FD's read-out: lambda_i + Delta on the kept directions of `final`.

    A direction is kept if its value is above the rounding error of the SVD. The certificate ||A'A - C'C||_2 <= Delta
    holds for any choice of directions.
    """
    x = final(x)
    _, s, vt = np.linalg.svd(x.B, full_matrices=False)
    kept = s > np.finfo(float).eps * max(x.B.shape) * s.max(initial=0.0)
    C = np.sqrt(s[kept] ** 2 + x.Delta)[:, None] * vt[kept]
    return replace(x, B=C)


def merge(x: Result, y: Result) -> Result:
    """Stack the two buffers, add the Deltas (alpha0 once), shrink once to m - 1 rows.

    Two centred sketches of weights n, k > 0 add the row sqrt(n k / (n + k)) (mean_x - mean_y).
    """
    rows, n, k, mean = [x.B, y.B], x.weight, y.weight, x.mean
    if x.mean is not None and y.mean is not None:
        if n > 0 and k > 0:
            rows.append(np.sqrt(n * k / (n + k)) * (x.mean - y.mean)[None])
        if k > 0:
            mean = (n * x.mean + k * y.mean) / (n + k)
    stacked = replace(
        x,
        B=np.vstack(rows),
        Delta=x.Delta + y.Delta,
        alpha=x.alpha + y.alpha - x.alpha0,
        m=min(x.m, y.m),
        squared_norm=x.squared_norm + y.squared_norm + float(sum((r**2).sum() for r in rows[2:])),
        weight=n + k,
        mean=mean,
        n_shrinks=x.n_shrinks + y.n_shrinks,
        R=x.R + y.R,
    )
    return shrink(stacked)


# --------------------------------------------------- prepared rows


def prepared_rows(
    A: ArrayLike,
    weights: ArrayLike | None = None,
    decay: float = 1.0,
    center: bool = False,
    *,
    before: tuple[float, Array] | None = None,
) -> Iterator[tuple[float, Array]]:
    """Yield, for each row of positive weight, the factor on everything before it and the prepared row.

    A row a_t of weight w becomes sqrt(w) a_t or, with centring, sqrt(w n / (n + w)) (a_t - mean),
    where n is the weight before it, already decayed, and mean the mean before it. A row of weight 0 is skipped: it
    takes no slot in the buffer and causes no decay. The first centred row is zero but takes a slot. `before` is
    (weight, mean) of an earlier part.
    """
    A = np.asarray(A, dtype=float)
    n, mean = before if before is not None else (0.0, np.zeros(A.shape[1]))
    for a, w in zip(A, _weights(A, weights), strict=True):
        if w == 0:
            continue
        n = decay * n
        if center:
            yield decay, np.sqrt(w * n / (n + w)) * (a - mean)
            mean = mean + w / (n + w) * (a - mean)
        else:
            yield decay, np.sqrt(w) * a
        n = n + w


def decayed_weights(A: ArrayLike, weights: ArrayLike | None = None, decay: float = 1.0) -> Array:
    """u_t = w_t decay^(number of rows of positive weight after t): the weights the promises are about."""
    w = _weights(np.asarray(A, dtype=float), weights)
    counted = (w > 0).astype(float)
    after = counted.sum() - np.cumsum(counted)
    return np.asarray(w * decay**after)


def weighted_mean(A: ArrayLike, weights: ArrayLike | None = None, decay: float = 1.0) -> Array:
    """sum u_t a_t / sum u_t with the decayed weights u_t, zeros when there is no weight."""
    A, u = np.asarray(A, dtype=float), decayed_weights(A, weights, decay)
    return np.asarray(u @ A / u.sum()) if u.sum() > 0 else np.zeros(A.shape[1])


def target(A: ArrayLike, weights: ArrayLike | None = None, decay: float = 1.0, center: bool = False) -> Array:
    """The d x d matrix of P1 to P4, computed from its definition and not from the prepared rows.

    It is sum u_t a_t a_t', or sum u_t (a_t - mean)(a_t - mean)' with the u-weighted mean. The outer products of the
    prepared rows sum to it exactly, for any combination of weights, decay and centring: decay scales all weights by the
    same factor, so it scales the scatter and keeps the mean, and adding a point of weight w to a total weight n adds
    w n / (n + w) times the outer product of its distance from the mean.
    """
    A, u = np.asarray(A, dtype=float), decayed_weights(A, weights, decay)
    X = A - weighted_mean(A, weights, decay) if center else A
    return np.asarray((X * u[:, None]).T @ X)


def _weights(A: Array, weights: ArrayLike | None) -> Array:
    """The weights as an array of floats, ones by default."""
    return np.ones(len(A)) if weights is None else np.asarray(weights, dtype=float)


# ------------------------------------------------------- the common loop


def run(
    A: ArrayLike,
    m: int,
    L: int | None,
    rule: Rule,
    *,
    alpha0: float = 0.0,
    weights: ArrayLike | None = None,
    decay: float = 1.0,
    center: bool = False,
    start: Result | None = None,
) -> Result:
    """Luo et al. 2019, the loop of Alg. 1, 2 and Appendix A: append the row, shrink at L rows (default m).

    B starts empty, so the first shrink step comes at row L and the others every L - (m - 1) rows. `start` continues
    from an earlier state and uses its m, L, rule and alpha0.
    """
    A = np.asarray(A, dtype=float)
    L = m if L is None else L
    assert 2 <= m <= L
    x = start
    if x is None:
        mean = np.zeros(A.shape[1]) if center else None
        x = Result(np.zeros((0, A.shape[1])), 0.0, alpha0, alpha0, m, L, rule, mean=mean)
    n0, mean0 = x.weight, x.mean
    before = (n0, mean0) if mean0 is not None else None
    for factor, a in prepared_rows(A, weights, decay, center, before=before):
        x = forget(x, factor)
        x = replace(x, B=np.vstack([x.B, a]), squared_norm=x.squared_norm + float(a @ a))
        if len(x.B) == x.L:
            x = shrink(x)
    k = float(decayed_weights(A, weights, decay).sum())
    n = x.weight
    if mean0 is not None and n + k > 0:
        mean0 = (n * mean0 + k * weighted_mean(A, weights, decay)) / (n + k)
    return replace(x, weight=n + k, mean=mean0)


# -------------------------------------------------- the named algorithms
# `options` are the keywords of `run`: alpha0, weights, decay, center, start.


def frequent_directions(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> Result:
    """Frequent directions: Luo et al. 2019, Alg. 1 (L = m), with any buffer of L >= m rows."""
    return run(A, m, L, fd_rule, **options)


def fast_frequent_directions(A: ArrayLike, m: int, **options: Any) -> Result:
    """Fast frequent directions: Luo et al. 2019, Appendix A, a buffer of 2 m rows."""
    return run(A, m, 2 * m, fd_rule, **options)


def robust_frequent_directions(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> Result:
    """Robust frequent directions: Luo et al. 2019, Alg. 2 (L = m), with any buffer of L >= m rows."""
    return run(A, m, L, rfd_rule, **options)


def fast_robust_frequent_directions(A: ArrayLike, m: int, **options: Any) -> Result:
    """Fast robust frequent directions: Luo et al. 2019, Appendix A, a buffer of 2 m rows."""
    return run(A, m, 2 * m, rfd_rule, **options)


def greedy(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> Result:
    """Greedy low-rank approximation (iSVD): Luo et al. 2019, Alg. 8 (L = m), with any buffer of L >= m rows."""
    return run(A, m, L, greedy_rule, **options)


def parameterized_frequent_directions(
    A: ArrayLike, m: int, L: int | None = None, *, beta: float = 0.2, **options: Any
) -> Result:
    """PFD-beta (Desai et al. 2016; Luo et al. 2019, section 6.1), with any buffer of L >= m rows."""
    return run(A, m, L, pfd_rule(beta), **options)


def compensative_frequent_directions(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> Result:
    """CFD, already read out. To merge or continue, use the state of FD."""
    return compensate(run(A, m, L, fd_rule, **options))


def diagonal_frequent_directions(A: ArrayLike, m: int, L: int | None = None, **options: Any) -> Result:
    """FD with a diagonal: a shrink step from Ahat to B adds (Ahat'Ahat - B'B)_ii to R_ii; the read-out is B'B + R."""
    return run(A, m, L, fd_rule, **options)


def diagonal_error_bound(R: ArrayLike, Delta: float) -> float:
    """min(max(Delta - min R_ii, max R_ii), (1 - 1/d) Delta), a bound on ||A'A - B'B - R||_2.

    0 <= E <= Delta I gives -max R_ii <= E - R <= Delta - min R_ii. And R = diag(E) is the mean of U_k E U_k^* over
    k < d, where U_k = diag(1, w^k, w^2k, ...) and w = exp(2 pi i / d). One of them is E itself, so E - R is (1 - 1/d)
    times a difference of two matrices between 0 and Delta I.
    """
    R = np.asarray(R)
    return float(min(max(Delta - R.min(), R.max()), (1 - 1 / len(R)) * Delta))


# ------------------------------------------------ random projection, Oja


def random_projection(
    A: ArrayLike, R: ArrayLike, weights: ArrayLike | None = None, decay: float = 1.0, center: bool = False
) -> Array:
    """B (m x d) of the random projection sketch: B += r_t a_t' / sqrt(m), from B = 0.

    Row t of R, of length m, is the r of the t-th row of positive weight.
    """
    A, R = np.asarray(A, dtype=float), np.asarray(R, dtype=float)
    m = R.shape[1]
    B = np.zeros((m, A.shape[1]))
    for (factor, a), r in zip(prepared_rows(A, weights, decay, center), R, strict=False):
        B = np.sqrt(factor) * B
        B = B + np.outer(r, a) / np.sqrt(m)
    return B


def orth(V: Array) -> Array:
    """Gram-Schmidt on the rows of V in their order, each row orthogonalised twice against those before it."""
    Q = np.zeros_like(V)
    for i, v in enumerate(V):
        for _ in range(2):
            v = v - Q[:i].T @ (Q[:i] @ v)
        Q[i] = v / np.linalg.norm(v)
    return Q


class OjaResult(NamedTuple):
    """Oja's state after t rows: orthonormal rows V, the diagonal of Lambda, and B = sqrt(t Lambda) V."""

    B: Array
    V: Array
    Lambda: Array
    t: int


def oja(
    A: ArrayLike, V0: ArrayLike, weights: ArrayLike | None = None, decay: float = 1.0, center: bool = False
) -> OjaResult:
    """Oja's sketch, from orthonormal rows V0 and Lambda = 0; t counts rows of positive weight.

    V_t = orth(V + (1/t) (V g) g') and Lambda_t = (1 - 1/t) Lambda + (1/t) diag(V g)^2, where V is the old one in
    both. Forgetting multiplies Lambda, and so B'B, by the factor. The step 1/t and V do not change.
    """
    V = np.array(V0, dtype=float)
    Lambda, t = np.zeros(len(V)), 0
    for factor, g in prepared_rows(A, weights, decay, center):
        t = t + 1
        Lambda = factor * Lambda
        Vg = V @ g
        V = orth(V + (1 / t) * np.outer(Vg, g))
        Lambda = (1 - 1 / t) * Lambda + (1 / t) * Vg**2
    return OjaResult(np.sqrt(t * Lambda)[:, None] * V, V, Lambda, t)


# ---------------------------------------------------- quantities that tests check


def spectral_error(A_target: Array, B: Array, alpha: float = 0.0, alpha0: float = 0.0) -> float:
    """|| target + alpha0 I - (B'B + alpha I) ||_2 for an explicit d x d target (P4)."""
    return float(np.linalg.norm(A_target - B.T @ B + (alpha0 - alpha) * np.eye(len(A_target)), 2))


def tail(A_target: Array, k: int) -> float:
    """||A - A_k||_F^2, the sum of all but the k largest eigenvalues of the target (P3)."""
    values = np.maximum(np.linalg.eigvalsh(A_target), 0)[::-1]
    return float(values[k:].sum())


def a_priori_bound(A_target: Array, m: int) -> float:
    """min over k < m of ||A - A_k||_F^2 / (m - k): P3's bound on Delta; pass j for m in PFD."""
    return min(tail(A_target, k) / (m - k) for k in range(m))


def greedy_adversary(
    m: int, L: int | None = None, *, rounds: int = 500, smallest: float = 2.0, ratio: float = 0.999
) -> Array:
    """The stream of Appendix F that defeats greedy, for a buffer of L rows.

    A_1 has m - 1 orthogonal rows of norm `smallest` (the lambda of the appendix); then s = rounds (L - m + 1)
    copies of an a orthogonal to them with ||a||^2 = ratio lambda^2 / (L - m + 1). Every buffer of greedy
    holds L - m + 1 copies, worth ratio lambda^2 < lambda^2, and drops them: it errs by rounds * ratio *
    lambda^2 (1998 by default), whereas Delta of FD is at most lambda^2 (4 by default; P3 with k = 1).
    """
    free = (m if L is None else L) - m + 1
    A = np.zeros((m - 1 + rounds * free, m))
    A[np.arange(m - 1), np.arange(m - 1)] = smallest
    A[m - 1 :, m - 1] = smallest * np.sqrt(ratio / free)
    return A


# ---------------------------------------------------- principal components of rows that are all at hand


def krylov_ritz_values(G: Array, start: Array, steps: int) -> Array:
    """Rayleigh-Ritz values of G on the span of start, G start, ..., G^(steps-1) start, descending.

    Each power is made orthonormal before the next product, which does not change the span.
    """
    blocks = [np.linalg.qr(start)[0]]
    for _ in range(steps - 1):
        basis = np.hstack(blocks)
        new = G @ blocks[-1]
        for _ in range(3):
            new = np.linalg.qr(new - basis @ (basis.T @ new))[0]
        blocks.append(new)
    X = np.hstack(blocks)
    return np.linalg.eigvalsh(X.T @ G @ X)[::-1]


def largest_outside(
    G: Array, basis: Array, tests: Array, least: float, degree: int, polynomials: list[tuple[list[float], int]]
) -> float:
    """The bound on the largest eigenvalue h of P G P, P = I - basis basis', from products with `tests`.

    For each polynomial p (by its roots, in units of h from p(x) = x^degree) and e = 0 or 1, h is at most the largest
    x with x^e p(x)^2 <= ||(PGP)^(e/2) p(PGP) tests||_2^2 / least.
    """
    P = np.eye(len(G)) - basis @ basis.T
    values, U = np.linalg.eigh(P @ G @ P)
    values = np.maximum(values, 0.0)
    coordinates = U.T @ P @ tests

    def squared(roots: list[float], extra: int, unit: float) -> float:
        p = np.prod([values / unit - root for root in roots], axis=0)
        return float(np.linalg.norm(((values / unit) ** (extra / 2) * p)[:, None] * coordinates, 2) ** 2) / least

    unit = squared([0.0] * degree, 0, 1.0) ** (1 / (2 * degree))
    best = 1.0
    for roots, extra in polynomials:
        grid = np.linspace(max(roots), 1.0, 20_001)
        p = np.prod([grid - root for root in roots], axis=0)
        above = np.flatnonzero(grid**extra * p**2 > squared(roots, extra, unit))
        best = min(best, float(grid[above[0]])) if len(above) else best
    return best * unit
