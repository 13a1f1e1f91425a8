"""The transcriptions of the online learners agree with the paper: projections, equal algorithms, regret bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from tests import reference_online as ro
from tests import reference_regret as rr
from tests.reference import Array
from tests.reference_online import Hessian

C = 1.0


def stream(n: int = 60, d: int = 6, seed: int = 0, rank: int | None = None, scale: float = 1.0) -> tuple[Array, Array]:
    """Return rows with a decaying spectrum, a repeated row and a zero row, and noisy labels -1 and +1."""
    rng = np.random.default_rng(seed)
    rank = d if rank is None else rank
    X = rng.standard_normal((n, rank)) * 0.8 ** np.arange(rank) @ rng.standard_normal((rank, d))
    y = np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
    X[n // 2 : n // 2 + 3] = X[1]
    X[n // 3] = 0.0
    return np.asarray(scale * X), y


def random_hessian(d: int, rank: int, rng: np.random.Generator) -> Hessian:
    V = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :rank]
    return Hessian(V, rng.exponential(size=rank) + 0.1)


def assert_same(one: ro.Run, two: ro.Run, **tolerance: float) -> None:
    tolerance = tolerance or {"rtol": 1e-8, "atol": 1e-9 * max(one.condition, 1e3) / 1e3}
    np.testing.assert_allclose(one.margins, two.margins, **tolerance)
    np.testing.assert_allclose(one.w, two.w, **tolerance)


# ----------------------------------------------------------- projections


@pytest.mark.parametrize("rank", [5, 3, 1])
@pytest.mark.parametrize("domain", ["slab", "ball"])
def test_projection_is_optimal(domain: str, rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(8):
        H, u, x = random_hessian(5, rank, rng), 3 * rng.standard_normal(5), rng.standard_normal(5)
        D = H.dense()
        if domain == "slab":
            w = ro.project_slab(u, x, H, C)
            constraint = {"type": "ineq", "fun": lambda w, x=x: np.array([C - w @ x, C + w @ x])}
            assert abs(w @ x) <= C + 1e-12
        else:
            w = ro.project_ball(u, H, C)
            constraint = {"type": "ineq", "fun": lambda w: C**2 - w @ w}
            assert w @ w <= C**2 + 1e-12

        def cost(w: Array, D: Array = D, u: Array = u) -> float:
            return float((w - u) @ D @ (w - u))

        found = minimize(cost, np.zeros(5), constraints=[constraint], method="SLSQP", options={"ftol": 1e-14})
        assert cost(w) == pytest.approx(found.fun, abs=1e-5)
        assert cost(w) <= found.fun + 1e-6
        if rank == 5:
            assert w == pytest.approx(found.x, abs=1e-3)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_projection_in_a_seminorm_is_the_limit_of_a_small_alpha(rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(10):
        H, u, x = random_hessian(5, rank, rng), 2 * rng.standard_normal(5), rng.standard_normal(5)
        full = Hessian(np.eye(5), np.ones(5)) if rank == 0 else None
        if full is None:
            h, V = np.linalg.eigh(H.dense() + 1e-9 * np.eye(5))
            full = Hessian(V, h)
        assert ro.project_slab(u, x, H, C) == pytest.approx(ro.project_slab(u, x, full, C), abs=1e-6)
        assert ro.project_ball(u, H, C) == pytest.approx(ro.project_ball(u, full, C), abs=1e-6)


def test_projection_leaves_what_is_inside() -> None:
    rng = np.random.default_rng(0)
    H, u, x = random_hessian(5, 3, rng), 0.1 * rng.standard_normal(5), 0.1 * rng.standard_normal(5)
    assert ro.project_slab(u, x, H, C) is u and ro.project_ball(u, H, C) is u


# ----------------------------------------- algorithms that must be equal

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "logistic": {"loss": "logistic", "mu": np.exp(-1)},
    "hinge, next": {"loss": "hinge", "mu": 0.0, "projection": "next"},
    "ball": {"domain": "ball", "bound": 0.5},
    "none": {"domain": "none"},
    "weights": {"weight": np.random.default_rng(3).exponential(size=60)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("alpha0", [0.0, 0.3])
def test_full_on_is_a_sketch_with_more_rows_than_columns(alpha0: float, options: dict[str, Any]) -> None:
    X, y = stream()
    full = ro.full_on(X, y, alpha0=alpha0, **options)
    for m, L in [(7, 7), (7, 14), (9, 12)]:
        sketched = ro.rfd_son(X, y, m, L=L, alpha0=alpha0, **options)
        assert_same(sketched, full)
        assert sketched.alpha == alpha0  # the sketch lost nothing


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("alpha0", [0.0, 0.3])
def test_rows_of_low_rank_make_all_buffers_orders_and_rules_equal(alpha0: float, options: dict[str, Any]) -> None:
    X, y = stream(rank=3)
    first = ro.rfd_son(X, y, 4, alpha0=alpha0, **options)
    assert first.alpha == alpha0
    for L in (4, 5, 8):
        for shrink_first in (False, True):
            for rule in ("rfd", "fd", "pfd"):
                other = ro.rfd_son(X, y, 4, L=L, rule=rule, shrink_first=shrink_first, alpha0=alpha0, **options)
                assert_same(other, first)


@pytest.mark.parametrize("alpha0", [0.0, 0.3])
def test_orders_differ_from_the_first_shrink_that_loses_something(alpha0: float) -> None:
    X, y = stream()
    step, shrink = (ro.rfd_son(X, y, 3, alpha0=alpha0, shrink_first=first) for first in (False, True))
    assert np.array_equal(step.margins[:6], shrink.margins[:6])
    assert not np.allclose(step.margins[6:], shrink.margins[6:])
    assert step.deltas[5] == shrink.deltas[5] > 0


def test_without_a_domain_both_projections_are_none() -> None:
    X, y = stream()
    none = ro.rfd_son(X, y, 3, projection=None)
    for projection in ("current", "next"):
        assert np.array_equal(ro.rfd_son(X, y, 3, projection=projection, domain="none").margins, none.margins)


@pytest.mark.parametrize("alpha0", [0.0, 0.3])
def test_a_fixed_domain_gives_the_same_result_for_both_projections(alpha0: float) -> None:
    """The ball does not depend on the row, so K_t and K_{t+1} give the same result if H is the same (shrink first)."""
    X, y = stream()
    now, later = (
        ro.rfd_son(X, y, 3, domain="ball", bound=0.4, shrink_first=True, alpha0=alpha0, projection=projection)
        for projection in ("current", "next")
    )
    np.testing.assert_allclose(now.margins, later.margins, rtol=1e-9, atol=1e-12)


def test_listings_project_as_printed() -> None:
    X, y = stream(scale=3.0)
    w = ro.algorithm_3(X, y, 3, alpha0=0.1)
    assert np.abs(w.margins).max() == pytest.approx(C)  # onto K_{t+1}: every margin is inside
    for t in range(1, len(X)):
        part = ro.rfd_son(X[:t], y[:t], 3, alpha0=0.1)
        assert abs(part.w @ X[t - 1]) <= C + 1e-12  # onto K_t: the last row's margin is inside


@pytest.mark.parametrize("shrink_first", [False, True])
def test_newton_step_is_the_pseudo_inverse(shrink_first: bool) -> None:
    """The first rows with alpha0 = 0 against numpy's pinv of the explicit sum of outer products."""
    X, y = stream(5, 8, seed=4)
    X = X[[0, 2, 3]]
    run = ro.rfd_son(X, y[:3], 9, domain="none", shrink_first=shrink_first)
    w, H = np.zeros(8), np.zeros((8, 8))
    for t, (x, label) in enumerate(zip(X, y[:3], strict=True), 1):
        g = 2 * (w @ x - label) * x
        H += (1 / 8 + 1 / t) * np.outer(g, g)
        w = w - np.linalg.pinv(H, rcond=1e-10, hermitian=True) @ g
    assert run.w == pytest.approx(w, rel=1e-9)


def test_common_weight_is_a_scaled_loss() -> None:
    """Weight s: gradient s l', curvature s (mu + eta) l'^2, so l -> s l with mu / s and eta / s."""
    X, y = stream()
    value, slope = ro.LOSSES["squared"]
    for s in (0.25, 3.0):
        scaled = (lambda p, y, s=s: s * value(p, y), lambda p, y, s=s: s * slope(p, y))
        one = ro.rfd_son(X, y, 3, weight=np.full(len(X), s))
        two = ro.rfd_son(X, y, 3, loss=scaled, mu=1 / (8 * s), rate=lambda t, s=s: 1 / (t * s))
        assert_same(one, two)


@pytest.mark.parametrize("learner", [ro.full_on, ro.adagrad, ro.ogd, lambda X, y, **o: ro.rfd_son(X, y, 3, **o)])
def test_row_of_weight_zero_is_no_row(learner: Any) -> None:
    X, y = stream()
    weight = np.where(np.arange(len(X)) % 3 == 1, 0.0, 2.0)
    all_rows = learner(X, y, weight=weight)
    rows = learner(X[weight > 0], y[weight > 0], weight=weight[weight > 0])
    assert np.array_equal(all_rows.w, rows.w) and np.array_equal(all_rows.margins[weight > 0], rows.margins)


# ----------------------------------------------------------- edge cases


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("L", [4, 8])
def test_rounding_error_is_not_a_delta(scale: float, L: int) -> None:
    for seed in range(5):
        X, y = stream(rank=3, seed=seed, scale=scale)
        run = ro.rfd_son(X, y, 4, L=L)
        assert run.alpha == 0 and not any(run.deltas)
        assert np.isfinite(run.margins).all()
        assert ro.rfd_son(X[:L], y[:L], 4, L=L).B.shape == (3, 6)  # m - 1 rows after a shrink, for any rank


def test_repeated_one_hot_rows_stay_inside() -> None:
    rng = np.random.default_rng(1)
    X, y = np.eye(5)[rng.integers(5, size=80)], rng.choice([-1.0, 1.0], 80)
    y[:40] = X[:40] @ [1.0, -1.0, 1.0, -1.0, 1.0]
    assert np.abs(ro.rfd_son(X, y, 6).margins).max() <= C + 1e-12


def test_scale_of_the_rows_does_not_matter_without_alpha0() -> None:
    X, y = stream()
    one = ro.rfd_son(X, y, 3)
    for scale in (1e-5, 1e5):
        np.testing.assert_allclose(ro.rfd_son(scale * X, y, 3).margins, one.margins, rtol=1e-7, atol=1e-9)


# --------------------------------------------------------------- baselines


def test_adagrad_and_gradient_descent_are_their_formulas() -> None:
    X, y = stream()
    w, v, S = np.zeros(6), np.zeros(6), np.zeros(6)
    for t, (x, label) in enumerate(zip(X, y, strict=True), 1):
        g = 2 * (w @ x - label) * x
        S += g**2
        w = w - g / np.sqrt(2.0 + S)
        k = x / np.sqrt(2.0 + S)
        if abs(w @ x) > C:
            w = w - (w @ x - np.sign(w @ x) * C) / (k @ x) * k
        v = v - 2 * (v @ x - label) * x / t
        v = v / max(1.0, np.linalg.norm(v))
    assert ro.adagrad(X, y, alpha0=2.0).w == pytest.approx(w)
    assert ro.ogd(X, y, domain="ball").w == pytest.approx(v)


def test_random_sketches_are_those_of_the_added_rows() -> None:
    X, y = stream()
    rng = np.random.default_rng(5)
    R, V0 = rng.standard_normal((len(X), 3)), np.linalg.qr(rng.standard_normal((6, 3)))[0].T
    for run in (ro.rp_son(X, y, R, alpha0=10.0), ro.oja_son(X, y, V0, alpha0=10.0)):
        eta = np.array(run.etas)
        A = np.sqrt(1 / 8 + eta)[:, None] * np.array(run.gradients)
        B = ro.ref.random_projection(A, R) if run.model.__class__ is ro.Projected else ro.ref.oja(A, V0).B
        np.testing.assert_allclose(run.B, B, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------ regret


def comparators(X: Array, y: Array, seed: int) -> list[Array]:
    """Return 0, random weights and least squares, scaled into every slab."""
    rng = np.random.default_rng(seed)
    several = [np.zeros(X.shape[1]), *rng.standard_normal((3, X.shape[1])), np.linalg.lstsq(X, y, rcond=None)[0]]
    return [w * min(1.0, C / max(np.abs(X @ w).max(), 1e-300)) for w in several]


CASES = [(m, seed, scale) for m in (2, 4) for seed in range(3) for scale in (0.1, 3.0)]
CURVED = {"C": C, "L": 4 * C, "mu": 1 / (8 * C**2)}


@pytest.mark.parametrize("rate", [ro.inverse_time, lambda t: 1e-3 / t**2], ids=["1/t", "1e-3/t^2"])
@pytest.mark.parametrize("m, seed, scale", CASES)
def test_regret_is_below_theorem_5(m: int, seed: int, scale: float, rate: Any) -> None:
    X, y = stream(150, seed=seed, scale=scale)
    for alpha0 in (1e-3, 1.0):
        run = ro.algorithm_3(X, y, m, alpha0=alpha0, rate=rate)
        for w in comparators(X, y, seed):
            assert rr.total_regret(run, X, y, w) <= rr.theorem_5(run, w, corrected=True, **CURVED)


@pytest.mark.parametrize("rate", [ro.inverse_time, lambda t: 1e-3 / t**2], ids=["1/t", "1e-3/t^2"])
@pytest.mark.parametrize("m, seed, scale", CASES)
def test_regret_in_a_ball_is_below_theorem_5_as_printed(m: int, seed: int, scale: float, rate: Any) -> None:
    X, y = stream(150, seed=seed)
    X *= scale / np.linalg.norm(X, axis=1).max()
    curved = {"C": max(1.0, scale), "L": 2 * (max(1.0, scale) + 1), "mu": 1 / (2 * (max(1.0, scale) + 1) ** 2)}
    run = ro.algorithm_3(X, y, m, alpha0=0.1, rate=rate, domain="ball", mu=curved["mu"])
    for w in comparators(X, y, seed):
        w = w / max(1.0, np.linalg.norm(w))
        assert rr.total_regret(run, X, y, w) <= rr.theorem_5(run, w, **curved)


@pytest.mark.parametrize("rate", [ro.inverse_time, lambda t: 1e-3 / t**2], ids=["1/t", "1e-3/t^2"])
@pytest.mark.parametrize("m, seed, scale", CASES)
def test_regret_without_alpha0_is_below_theorems_6_and_7(m: int, seed: int, scale: float, rate: Any) -> None:
    X, y = stream(150, seed=seed, scale=scale)
    for rows in (X, np.vstack([X[:30, :1] * np.ones(6), X])):  # the second begins with rows of rank one
        labels = np.concatenate([y[: len(rows) - len(y)], y])
        run = ro.algorithm_3(rows, labels, m, rate=rate)
        T = rr._first_positive(run)
        assert m <= T < len(rows)
        first = ro.algorithm_3(rows[: T - 1], labels[: T - 1], m, rate=rate)
        for w in comparators(rows, labels, seed):
            assert rr.total_regret(run, rows, labels, w) <= rr.theorem_7(run, w, corrected=True, **CURVED)
            assert rr.total_regret(first, rows[: T - 1], labels[: T - 1], w) <= rr.theorem_6(
                first, corrected=True, **CURVED
            )


def test_theorem_5_as_printed_does_not_hold_for_slabs() -> None:
    """Two strong directions carry no information and a weak one carries it all: alpha hides the weak one.

    In slabs, short rows allow long weights, and the term C^2 sum delta_t does not account for this.
    """
    rng = np.random.default_rng(0)
    X = 1e-4 * np.column_stack([100 * rng.standard_normal((1000, 2)), rng.choice([-1.0, 1.0], 1000)])
    y, w = np.sign(X[:, 2]), np.array([0.0, 0.0, 1e4])
    run = ro.algorithm_3(X, y, 2, alpha0=1e-6)
    regret = rr.total_regret(run, X, y, w)
    assert np.abs(X @ w).max() <= C
    assert rr.theorem_5(run, w, **CURVED) < regret <= rr.theorem_5(run, w, corrected=True, **CURVED)


def test_theorem_6_as_printed_does_not_hold() -> None:
    """With one direction and labels opposite to sign(w), the regret grows like log T, the printed bound does not."""
    w, h, labels = 0.0, 0.0, []
    for _ in range(100):
        labels.append(-1.0 if w > 0 else 1.0)
        g = 2 * (w - labels[-1])
        h += g**2 / 8
        w = np.clip(w - g / h, -C, C)
    X, y = np.ones((100, 1)) * [1.0, 0.0, 0.0], np.array(labels)
    run = ro.algorithm_3(X, y, 2, rate=lambda t: 1e-9 / t)
    regret = rr.total_regret(run, X, y, np.array([y.mean(), 0.0, 0.0]))
    assert rr.theorem_6(run, **CURVED) < regret <= rr.theorem_6(run, corrected=True, **CURVED)


def test_theorem_7_as_printed_depends_on_the_scale_of_the_rows() -> None:
    """Without alpha0, the margins and the regret do not depend on the scale of the rows; the printed bound does."""
    printed, corrected = [], []
    for scale in (1e-3, 1.0, 1e3):
        X, y = stream(150, scale=scale)
        run, w = ro.algorithm_3(X, y, 2), comparators(X, y, 0)[-1]
        printed.append(rr.theorem_7(run, w, **CURVED))
        corrected.append(rr.theorem_7(run, w, corrected=True, **CURVED))
    assert corrected == pytest.approx([corrected[0]] * 3)
    assert printed[0] > 4 * printed[1] and printed[2] > 4 * printed[1]
