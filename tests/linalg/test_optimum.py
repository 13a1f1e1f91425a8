"""The batch optima: Luo et al. 2019, Theorem 1 (spectral norm) and Corollary 1 (Frobenius norm)."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from robustfd import RobustFrequentDirections
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.optimum import frobenius_optimum, spectral_optimum

OPTIMA = [(spectral_optimum, 2), (frobenius_optimum, "fro")]


def psd(s, seed=0):
    """Return a symmetric matrix with eigenvalues s in random directions."""
    u, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(s), len(s))))
    return (u * np.asarray(s)) @ u.T


def error(m, optimum, norm):
    return float(np.linalg.norm(m - optimum.to_dense(), norm))


@st.composite
def problems(draw):
    """Return a random (M, rank), where M may be rank-deficient or have multiple eigenvalues."""
    d = draw(st.integers(1, 9))
    value = st.sampled_from([0.0, 0.5, 1.0, 2.5]) | st.floats(1e-3, 10)
    s = draw(st.lists(value, min_size=d, max_size=d))
    return psd(s, draw(st.integers(0, 10**6))), draw(st.integers(0, d - 1))


def spectrum(m):
    return np.maximum(np.linalg.eigvalsh(m)[::-1], 0.0)


# ---------------------------------------------------------------- closed forms


@given(problems())
def test_spectral_error_is_half_the_spread_of_the_tail(problem):
    m, k = problem
    s, best = spectrum(m), spectral_optimum(m, k)
    assert best.components.shape == (k, len(m))
    assert best.alpha == pytest.approx((s[k] + s[-1]) / 2, abs=1e-12)
    assert error(m, best, 2) == pytest.approx((s[k] - s[-1]) / 2, abs=1e-12)


@given(problems())
def test_frobenius_error_is_the_deviation_of_the_tail_from_its_mean(problem):
    m, k = problem
    s, best = spectrum(m), frobenius_optimum(m, k)
    assert best.components.shape == (k, len(m))
    assert best.alpha == pytest.approx(s[k:].mean(), abs=1e-12)
    assert error(m, best, "fro") == pytest.approx(np.sqrt(((s[k:] - s[k:].mean()) ** 2).sum()), abs=1e-12)
    assert best.trace() == pytest.approx(np.trace(m), abs=1e-11)


# ---------------------------------------------------------------- optimality


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
@given(problem=problems(), seed=st.integers(0, 10**6), size=st.sampled_from([1e-6, 1e-3, 0.1, 1.0]))
def test_no_perturbation_does_better(optimum, norm, problem, seed, size):
    m, k = problem
    best, rng, d = optimum(m, k), np.random.default_rng(seed), len(m)
    c = best.components.T * np.sqrt(best.low_rank_eigenvalues)
    least = error(m, best, norm)
    for _ in range(10):
        other = c + size * rng.standard_normal((d, k))
        delta = best.alpha + size * rng.standard_normal()  # may be negative
        assert np.linalg.norm(m - other @ other.T - delta * np.eye(d), norm) >= least - 1e-12


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_numerical_minimisation_finds_nothing_better(optimum, norm, k):
    m = psd([3.0, 1.5, 0.7, 0.2], seed=5)
    least = error(m, optimum(m, k), norm)

    def objective(parameters):
        c = parameters[1:].reshape(4, k)
        return np.linalg.norm(m - c @ c.T - parameters[0] * np.eye(4), norm)

    rng = np.random.default_rng(0)
    found = min(
        minimize(objective, rng.standard_normal(1 + 4 * k), method="Powell", options={"maxiter": 200}).fun
        for _ in range(4)
    )
    assert found >= least - 1e-9
    if norm == "fro" or k == 0:  # smooth enough for the minimiser to converge
        assert found == pytest.approx(least, rel=1e-3)


@given(problems(), st.floats(0, 1))
def test_every_xi_is_optimal_and_the_largest_has_the_smallest_condition_number(problem, share):
    m, k = problem
    s, best = spectrum(m), spectral_optimum(m, k)
    xi = s[-1] + share * (s[k] - s[-1])
    other = LowRankPlusIdentity(best.components, np.maximum(s[:k] - xi, 0.0), best.alpha)
    assert error(m, other, 2) == pytest.approx(error(m, best, 2), abs=1e-12)
    assert best.condition_number() <= other.condition_number() * (1 + 1e-9)


def test_outside_that_interval_xi_is_not_optimal():
    m = psd([4.0, 3.0, 2.0, 1.0])
    best = spectral_optimum(m, 1)
    for xi in (0.9, 3.1):
        other = LowRankPlusIdentity(best.components, [4.0 - xi], best.alpha)
        assert error(m, other, 2) > error(m, best, 2) + 0.05


# ---------------------------------------------------------------- against the truncated SVD


@given(problems())
def test_strictly_better_than_the_best_rank_k_matrix_unless_that_is_exact(problem):
    """Theorem 1, second half: <= s_{k+1}, with equality if and only if rank(M) <= k."""
    m, k = problem
    tail = spectrum(m)[k]
    ours = error(m, spectral_optimum(m, k), 2)
    if tail < 1e-12:
        assert ours <= 1e-12
    else:
        assert ours <= tail / 2 + 1e-12


def test_a_matrix_of_rank_k_is_reproduced_exactly():
    m = psd([5.0, 2.0, 0.0, 0.0], seed=2)
    for optimum, norm in OPTIMA:
        for k in (2, 3):
            best = optimum(m, k)
            assert error(m, best, norm) < 1e-14
            assert best.alpha < 1e-14
    assert error(m, spectral_optimum(m, 1), 2) == pytest.approx(1.0)  # the truncated SVD has 2


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
def test_low_rank_plus_identity_is_reproduced_exactly(optimum, norm):
    m = psd([5.0, 2.0, 0.5, 0.5, 0.5], seed=3)
    best = optimum(m, 2)
    assert error(m, best, norm) < 1e-14
    assert best.alpha == pytest.approx(0.5)
    assert best.low_rank_eigenvalues == pytest.approx([4.5, 1.5])


# ---------------------------------------------------------------- corners and errors


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
def test_zero_matrix_and_one_dimension(optimum, norm):
    assert not optimum(np.zeros((3, 3)), 2).to_dense().any()
    assert optimum([[7.0]], 0).to_dense() == [[7.0]]
    assert optimum(np.eye(3, dtype=int), np.int64(1)).to_dense() == pytest.approx(np.eye(3))


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
@pytest.mark.parametrize("exponent", [-996, -300, 300, 996])
def test_every_scale_gives_the_same_answer(optimum, norm, exponent):
    m = psd([5.0, 2.0, 1.0, 0.3], seed=4)
    m = (m + m.T) / 2
    one, scaled = optimum(m, 2), optimum(np.ldexp(m, exponent), 2)
    assert np.ldexp(scaled.alpha, -exponent) == pytest.approx(one.alpha, rel=1e-14)
    lam = np.ldexp(scaled.low_rank_eigenvalues, -exponent)
    assert lam == pytest.approx(one.low_rank_eigenvalues, rel=1e-14)


def test_largest_numbers_do_not_overflow():
    m = np.diag([1.5e308, 1.2e308, 1e308])
    assert spectral_optimum(m, 1).alpha == pytest.approx(1.1e308)
    assert frobenius_optimum(m, 0).alpha == pytest.approx(3.7 / 3 * 1e308)


@pytest.mark.parametrize(("optimum", "norm"), OPTIMA)
def test_rounding_in_the_argument_is_forgiven(optimum, norm):
    rows = np.random.default_rng(6).standard_normal((4, 9))
    for dtype in (np.float64, np.float32):
        m = (rows.astype(dtype).T @ rows.astype(dtype)).astype(dtype)
        m[0, 1] *= 1 + np.finfo(dtype).eps  # not exactly symmetric; and the five zero eigenvalues are +-eps
        best = optimum(m, 5)
        assert best.dtype == dtype
        assert error(m, best, norm) < 100 * np.finfo(dtype).eps * np.abs(m).max()


@pytest.mark.parametrize("optimum", [spectral_optimum, frobenius_optimum])
@pytest.mark.parametrize(
    ("m", "rank", "message"),
    [
        (np.ones(3), 0, r"M has shape \(3,\), expected \(d, d\)"),
        (np.ones((2, 3)), 0, r"M has shape \(2, 3\), expected \(d, d\)"),
        (np.empty((0, 0)), 0, r"M has shape \(0, 0\)"),
        (1j * np.eye(2), 0, "M is of type complex128, expected a dense array of real"),
        (scipy.sparse.eye_array(3), 0, "M is of type object, expected a dense array"),
        ([[1.0, np.nan], [np.nan, 1.0]], 0, "M holds NaN or infinity"),
        ([[np.inf, 0.0], [0.0, 1.0]], 0, "M holds NaN or infinity"),
        ([[1.0, 0.5], [0.4, 1.0]], 0, r"not symmetric: M\[0, 1\] = 0.5 and M\[1, 0\] = 0.4"),
        (1e-200 * np.array([[1.0, 0.5], [0.4, 1.0]]), 0, "M is not symmetric"),
        (np.diag([1.0, -0.001]), 0, "M has the eigenvalue -0.001, expected a positive semi-definite"),
        (-1e-200 * np.eye(2), 0, "M has the eigenvalue -1e-200"),
        (np.eye(3), 3, "rank is 3, expected an integer from 0 to d - 1 = 2"),
        (np.eye(3), -1, "rank is -1"),
        (np.eye(3), 1.0, "rank is 1.0"),
        (np.eye(3), True, "rank is True"),
        (np.eye(3), None, "rank is None"),
    ],
)
def test_errors(optimum, m, rank, message):
    with pytest.raises(ValueError, match=message):
        optimum(m, rank)


@pytest.mark.parametrize("m", [2, 3, 6])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_each_step_of_rfd_is_the_spectral_optimum(m, alpha):
    """Luo et al. 2019, Theorem 2: the next (B, alpha) is optimal for [B; a]'[B; a] + alpha I."""
    stacked = np.random.default_rng(m).standard_normal((m, 12))
    best = spectral_optimum(stacked.T @ stacked + alpha * np.eye(12), m - 1)
    step = RobustFrequentDirections(m, buffer_size=m, alpha0=alpha).fit(stacked).second_moment()
    np.testing.assert_allclose(step.to_dense(), best.to_dense(), atol=1e-12)
