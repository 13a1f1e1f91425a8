"""The transcriptions obey the mathematics: P1 to P4, the known examples, and exact entering rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests import reference as ref
from tests.reference import Array, Result

M = 6
BUFFERS = [M, M + 1, 2 * M, 4 * M]
RULES = {"fd": ref.fd_rule, "rfd": ref.rfd_rule, "greedy": ref.greedy_rule, "pfd": ref.pfd_rule(0.5)}
SHRUNK = {"fd": M, "rfd": M, "greedy": 1, "pfd": ref.n_shrunk(0.5, M)}
ROWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weights": "random"},
    "decay": {"decay": 0.97},
    "center": {"center": True},
    "all": {"weights": "random", "decay": 0.97, "center": True},
}


def decaying(n: int = 80, d: int = 12, seed: int = 0, scale: float = 1.0) -> Array:
    """A matrix with a decaying spectrum, a large mean and a few repeated and zero rows."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * 0.8 ** np.arange(d) @ rng.standard_normal((d, d)) + 1.0
    A[n // 2 : n // 2 + 3] = A[0]
    A[n // 3] = 0.0
    return np.asarray(scale * A)


def options(name: str, n: int, seed: int = 0) -> dict[str, Any]:
    """The keywords of a kind of rows, random weights (some zero, the first too) filled in."""
    chosen = dict(ROWS[name])
    if "weights" in chosen:
        rng = np.random.default_rng(seed)
        chosen["weights"] = rng.exponential(size=n) * (rng.random(n) > 0.2)
        chosen["weights"][0] = 0.0
    return chosen


def assert_promises(x: Result, T: Array, shrunk: int) -> None:
    """P1 to P4 of docs/mathematics.md for the state x and the target T, up to rounding."""
    d, m = len(T), x.m
    tol = 20 * (x.n_shrinks + 1) * max(x.L, d) * np.finfo(float).eps * np.linalg.norm(T, 2)
    E = T - x.B.T @ x.B
    values = np.linalg.eigvalsh((E + E.T) / 2)
    assert values[0] >= -tol and values[-1] <= x.Delta + tol  # P1
    lost = x.squared_norm - float((x.B**2).sum())
    assert abs(x.squared_norm - np.trace(T)) <= tol * d
    assert lost >= shrunk * x.Delta - d * tol  # P2
    assert x.Delta <= ref.a_priori_bound(T, shrunk) + d * tol  # P3
    half = x.alpha0 + x.Delta / 2
    assert ref.spectral_error(T, x.B, half, x.alpha0) <= x.Delta / 2 + tol  # P4
    assert np.linalg.norm(E) <= np.sqrt(x.Delta * max(lost, 0)) + d * tol
    R = np.broadcast_to(x.R, d)
    assert np.abs(np.diag(E) - R).max() <= tol  # what the shrinks took, added up: the diagonal stays exact
    assert R.min() >= 0 and R.max() <= x.Delta + tol
    assert np.linalg.norm(E - np.diag(R), 2) <= ref.diagonal_error_bound(R, x.Delta) + tol
    if x.rule is ref.rfd_rule:
        assert x.alpha == pytest.approx(half)
        assert x.alpha - x.alpha0 <= ref.a_priori_bound(T, m) / 2 + d * tol
    else:
        assert x.alpha == x.alpha0


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("L", BUFFERS)
@pytest.mark.parametrize("name", RULES)
def test_promises_hold_for_state_and_read_out(name: str, L: int, rows: str) -> None:
    for n, d in [(80, 12), (80, 4), (M - 2, 12), (83, 12)]:
        A, opts = decaying(n, d), options(rows, n)
        x = ref.run(A, M, L, RULES[name], alpha0=0.3, **opts)
        T = ref.target(A, **opts)
        assert_promises(x, T, SHRUNK[name])
        read = ref.final(x)
        assert read.B.shape == (M - 1, d) and len(x.B) < L
        assert_promises(read, T, SHRUNK[name])
        G = read.B @ read.B.T
        assert np.allclose(G, np.diag(np.diag(G)), atol=1e-12 * max(G.max(), 1e-300))


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
@pytest.mark.parametrize("name", RULES)
def test_sketch_scales_with_the_data(name: str, scale: float) -> None:
    A = decaying()
    one = ref.run(A, M, 2 * M, RULES[name])
    x = ref.run(scale * A, M, 2 * M, RULES[name])
    assert np.allclose(x.B.T @ x.B / scale / scale, one.B.T @ one.B, rtol=1e-9, atol=1e-9)
    assert x.Delta / scale / scale == pytest.approx(one.Delta)


@pytest.mark.parametrize("L", BUFFERS)
def test_compensative_certificate_is_two_sided(L: int) -> None:
    A = decaying()
    x, c = ref.final(ref.frequent_directions(A, M, L)), ref.compensative_frequent_directions(A, M, L)
    V = np.linalg.svd(c.B, full_matrices=False)[2]
    P = V.T @ V
    E = A.T @ A - c.B.T @ c.B
    tol = 1e-10 * np.linalg.norm(A, 2) ** 2
    assert np.allclose(c.B.T @ c.B, x.B.T @ x.B + x.Delta * P, atol=tol)
    assert np.linalg.eigvalsh(E + x.Delta * P)[0] >= -tol
    assert np.linalg.eigvalsh(x.Delta * (np.eye(len(P)) - P) - E)[0] >= -tol
    assert ref.spectral_error(A.T @ A, c.B) <= c.Delta + tol


def test_common_loop_is_algorithm_2_as_printed() -> None:
    A, m = decaying(), M
    B, alpha = A[: m - 1], 0.25
    for t in range(m - 1, len(A)):
        B_hat = np.vstack([B, A[t]])
        _, S, Vt = np.linalg.svd(B_hat, full_matrices=False)
        B = np.sqrt(np.diag(S[: m - 1] * S[: m - 1] - S[m - 1] * S[m - 1])) @ Vt[: m - 1]
        alpha = alpha + S[m - 1] ** 2 / 2
    x = ref.robust_frequent_directions(A, m, alpha0=0.25)
    assert np.allclose(x.B.T @ x.B, B.T @ B, rtol=1e-12, atol=1e-10)
    assert x.alpha == pytest.approx(alpha, rel=1e-12)
    assert np.array_equal(x.B, ref.frequent_directions(A, m).B)
    assert x.n_shrinks == len(A) - (m - 1)


def test_fast_algorithms_shrink_at_2m_rows_then_every_m_plus_1() -> None:
    A = np.outer(np.ones(60), np.arange(1.0, 9.0))  # rank one: the zero rows of B count as slots
    shrinks = [ref.fast_robust_frequent_directions(A[:n], M).n_shrinks for n in range(61)]
    assert np.flatnonzero(np.diff(shrinks)).tolist() == [t - 1 for t in range(2 * M, 61, M + 1)]
    x = ref.fast_frequent_directions(decaying(), M)
    assert np.array_equal(x.B, ref.frequent_directions(decaying(), M, 2 * M).B)


def test_flat_spectrum_frequent_directions_beats_robust() -> None:
    A = np.random.default_rng(0).standard_normal((400, 300))  # trap T7
    x = ref.final(ref.fast_robust_frequent_directions(A, 10))
    fd, rfd = ref.spectral_error(A.T @ A, x.B), ref.spectral_error(A.T @ A, x.B, x.alpha)
    assert fd == pytest.approx(1353, rel=0.05) and rfd == pytest.approx(4178, rel=0.02)
    E = np.linalg.eigvalsh(A.T @ A - x.B.T @ x.B)
    assert rfd == pytest.approx(max(x.Delta / 2 - E[0], E[-1] - x.Delta / 2))
    assert fd == pytest.approx(E[-1])


def test_certificate_is_tight_when_the_target_is_singular() -> None:
    A = decaying(30, 40)
    x = ref.final(ref.robust_frequent_directions(A, M, 2 * M))
    assert ref.spectral_error(A.T @ A, x.B, x.alpha) == pytest.approx(x.Delta / 2)


def test_condition_number_theorem_and_its_missing_condition() -> None:
    x = ref.final(ref.robust_frequent_directions(np.eye(3), 2, alpha0=0.1))
    assert np.linalg.cond(x.B.T @ x.B + x.alpha * np.eye(3)) == pytest.approx(1.6 / 0.6)  # 2.67 against 1
    for n, d in [(30, 40), (80, 12)]:
        A, identity = decaying(n, d), np.eye(d)
        x = ref.final(ref.robust_frequent_directions(A, M, 2 * M, alpha0=0.1))
        robust = np.linalg.cond(x.B.T @ x.B + x.alpha * identity)
        exact = np.linalg.cond(A.T @ A + 0.1 * identity)
        assert robust <= np.linalg.cond(x.B.T @ x.B + 0.1 * identity)
        assert robust <= (exact if n < d else 1 + 2 * exact)


@pytest.mark.parametrize("m", [2, 5, 10])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_adversary_defeats_greedy_and_not_frequent_directions(factor: int, m: int) -> None:
    L = factor * m
    A = ref.greedy_adversary(m, L)
    T = A.T @ A
    lost, kept = ref.final(ref.greedy(A, m, L)), ref.final(ref.frequent_directions(A, m, L))
    assert ref.spectral_error(T, lost.B) == pytest.approx(1998)
    assert lost.Delta == pytest.approx(1998)  # P1 still certifies it
    assert ref.a_priori_bound(T, m) == pytest.approx(4)
    assert ref.spectral_error(T, kept.B) <= kept.Delta + 1e-9 <= 4 + 2e-9


def test_parameterized_with_one_fifth_of_five_is_greedy_and_with_all_is_fd() -> None:
    A = decaying()
    for L in (5, 10):
        pfd = ref.parameterized_frequent_directions(A, 5, L, beta=0.2)
        assert np.array_equal(pfd.B, ref.greedy(A, 5, L).B)
        assert np.array_equal(
            ref.parameterized_frequent_directions(A, 5, L, beta=1.0).B, ref.frequent_directions(A, 5, L).B
        )
    assert ref.n_shrunk(0.29, 100) == 29 and ref.n_shrunk(0.2, 3) == 1


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("decay", [None, 0.5])
def test_prepared_rows_sum_to_the_target(rows: str, decay: float | None) -> None:
    A = decaying(50) + 100.0
    opts = options(rows, len(A)) | ({} if decay is None else {"decay": decay})
    S = np.zeros((A.shape[1],) * 2)
    for factor, a in ref.prepared_rows(A, **opts):
        S = factor * S + np.outer(a, a)
    T = ref.target(A, **opts)
    assert np.allclose(S, T, rtol=1e-10, atol=1e-10 * np.trace(T))


def test_target_is_the_weighted_scatter_numpy_knows() -> None:
    A, opts = decaying(), options("all", 80)
    u = ref.decayed_weights(A, opts["weights"], opts["decay"])
    assert np.allclose(ref.target(A, **opts), u.sum() * np.cov(A.T, aweights=u, ddof=0))
    kept = opts["weights"] > 0  # a row of weight 0 is as if it never came, for the decay too
    assert np.allclose(ref.target(A, **opts), ref.target(A[kept], opts["weights"][kept], 0.97, True))


@pytest.mark.parametrize("rows", ROWS)
def test_going_on_from_a_state_is_one_stream(rows: str) -> None:
    A, opts = decaying(), options(rows, 80)
    weights = opts.pop("weights", np.ones(80))
    whole = ref.robust_frequent_directions(A, M, 2 * M, weights=weights, **opts)
    x = None
    for part in np.split(np.arange(80), [0, 1, 30, 31, 55]):
        x = ref.run(A[part], M, 2 * M, ref.rfd_rule, weights=weights[part], start=x, **opts)
    assert x is not None
    assert np.allclose(x.B, whole.B, rtol=1e-9, atol=1e-9) and x.n_shrinks == whole.n_shrinks
    for name in ("Delta", "alpha", "squared_norm", "weight"):
        assert getattr(x, name) == pytest.approx(getattr(whole, name))
    if whole.mean is not None:
        assert x.mean is not None and np.allclose(x.mean, whole.mean)
        assert np.allclose(whole.mean, ref.weighted_mean(A, weights, opts.get("decay", 1.0)))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_promises_survive_any_merge_tree(name: str, center: bool) -> None:
    A = decaying()
    sketch = partial(ref.run, m=M, L=2 * M, rule=RULES[name], alpha0=0.3, center=center)
    a, b, c, empty = (sketch(part) for part in (A[:7], A[7:50], A[50:], A[:0]))
    T = ref.target(A, center=center)
    for x in (
        ref.merge(ref.merge(a, b), c),
        ref.merge(a, ref.merge(b, c)),
        ref.merge(ref.merge(empty, c), ref.merge(b, ref.merge(a, empty))),
        sketch(A[50:], start=ref.merge(a, b)),
    ):
        assert_promises(x, T, SHRUNK[name])
        assert x.weight == 80
        if x.mean is not None:
            assert np.allclose(x.mean, A.mean(axis=0))


def test_forgetting_keeps_alpha0_and_the_promises() -> None:
    A = decaying()
    x = ref.forget(ref.robust_frequent_directions(A, M, 2 * M, alpha0=0.3), 0.25)
    assert_promises(x, 0.25 * A.T @ A, M)
    assert x.alpha == pytest.approx(0.3 + x.Delta / 2)


@pytest.mark.parametrize("rows", ROWS)
def test_random_projection_is_a_product(rows: str) -> None:
    A, opts = decaying(), options(rows, 80)
    R = np.random.default_rng(1).standard_normal((80, M))
    B = ref.random_projection(A, R, **opts)
    prepared = list(ref.prepared_rows(A, **opts))
    power = [f ** (len(prepared) - 1 - t) for t, (f, _) in enumerate(prepared)]
    X = np.array([np.sqrt(p) * a for p, (_, a) in zip(power, prepared, strict=True)])
    assert np.allclose(B, R[: len(X)].T @ X / np.sqrt(M))
    assert np.allclose(X.T @ X, ref.target(A, **opts))


@pytest.mark.parametrize("rows", ROWS)
def test_oja_keeps_orthonormal_rows_and_the_energy_it_saw(rows: str) -> None:
    A, opts = decaying(), options(rows, 80)
    V0 = ref.orth(np.random.default_rng(2).standard_normal((M, A.shape[1])))
    x = ref.oja(A, V0, **opts)
    assert np.allclose(x.V @ x.V.T, np.eye(M), atol=1e-12)
    assert 0 < (x.B**2).sum() <= np.trace(ref.target(A, **opts)) * (1 + 1e-12)


def test_oja_finds_the_leading_direction_and_its_first_step() -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((2000, 8)) * np.array([5, 1, 1, 1, 1, 1, 1, 1.0])
    V0 = ref.orth(rng.standard_normal((2, 8)))
    x = ref.oja(A, V0)
    assert abs(x.V[0, 0]) > 0.99
    assert (x.B[0] ** 2).sum() == pytest.approx((A[:, 0] ** 2).sum(), rel=0.1)
    one = ref.oja(A[:1], V0)
    g = A[0]
    assert np.allclose(one.Lambda, (V0 @ g) ** 2)
    step = V0 @ (np.eye(8) + np.outer(g, g))
    triangle = step @ one.V.T  # Gram-Schmidt in row order: lower triangular with a positive diagonal
    assert np.allclose(np.triu(triangle, 1), 0, atol=1e-10) and (np.diag(triangle) > 0).all()
