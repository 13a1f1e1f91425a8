"""Leading eigenvectors from products: a slow transcription agrees, and the bounds hold as often as they say."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from robustfd.linalg import krylov
from robustfd.linalg.krylov import block_size, bound_eigenvalues, find_leading, form_leading
from tests.reference import krylov_ritz_values, largest_outside


def matrix(size, rng, kind="decay"):
    """Return a positive semidefinite matrix with trace 1."""
    values = {
        "decay": lambda: rng.uniform(0.8, 0.99) ** np.arange(size),
        "slow": lambda: np.arange(1.0, size + 1) ** -rng.uniform(0.3, 2.0),
        "flat": lambda: np.ones(size),
        "low rank": lambda: (np.arange(size) < rng.integers(1, 40)) * rng.random(size),
        "steps": lambda: np.repeat([100.0, 10.0, 1.0], [3, 3, size - 6]),
    }[kind]()
    u = np.linalg.qr(rng.standard_normal((size, size)))[0]
    G = (u * (values / values.sum())) @ u.T
    return (G + G.T) / 2


KINDS = st.sampled_from(["decay", "slow", "flat", "low rank", "steps"])


@given(seed=st.integers(0, 2**32 - 1), kind=KINDS, wanted=st.integers(1, 6), steps=st.integers(1, 5))
def test_vectors_and_bounds_of_a_matrix(seed, kind, wanted, steps):
    rng = np.random.default_rng(seed)
    G = matrix(120, rng, kind)
    most = wanted + int(rng.integers(0, 60))
    found = find_leading(lambda v: G @ v, 120, wanted, most, steps, 1e-12)
    V, r = found.vectors, found.vectors.shape[1]
    assert r <= most and (r >= wanted or kind == "low rank")
    np.testing.assert_allclose(V.T @ V, np.eye(r), atol=1e-11)
    np.testing.assert_allclose(np.diag(V.T @ G @ V), found.values, atol=1e-11)
    rest = np.eye(120) - V @ V.T
    assert np.linalg.norm(rest @ G @ rest, 2) <= found.outside
    exact = np.linalg.eigvalsh(G)[::-1][:r]
    residual = G @ V - V * found.values
    upper = bound_eigenvalues(found.values, residual.T @ residual, found.outside)
    assert np.all(found.values <= exact + 1e-11) and np.all(exact <= upper + 1e-11)


@given(seed=st.integers(0, 2**32 - 1), kind=KINDS, steps=st.integers(1, 5))
def test_ritz_values_are_those_of_the_krylov_space(seed, kind, steps):
    rng = np.random.default_rng(seed)
    G = matrix(100, rng, kind)
    start = np.random.default_rng(0).standard_normal((100, block_size(2)))
    values = find_leading(lambda v: G @ v, 100, 2, 99, steps, 1e-13).values[:2]
    np.testing.assert_allclose(values, krylov_ritz_values(G, start, steps)[: len(values)], rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), kind=KINDS, r=st.integers(1, 20), degree=st.integers(2, 6))
def test_the_bound_outside_is_that_of_the_transcription_and_holds(seed, kind, r, degree):
    rng = np.random.default_rng(seed)
    G = matrix(60, rng, kind)
    basis = np.linalg.qr(rng.standard_normal((60, r)))[0]
    tests = rng.standard_normal((60, krylov.TESTS))
    trace = float(np.trace(G) - np.trace(basis.T @ G @ basis))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(krylov, "DEGREES", (degree, degree))
        got = krylov._largest_outside(lambda v: G @ v, basis, tests, trace, 0.0)
    slow = largest_outside(G, basis, tests, krylov.LEAST_LENGTH, degree, krylov._polynomials(degree)[0])
    assert got == pytest.approx(slow, rel=1e-3)
    P = np.eye(60) - basis @ basis.T
    assert np.linalg.norm(P @ G @ P, 2) <= got


def test_products_are_made_until_the_bound_is_small_enough():
    rng, calls = np.random.default_rng(0), []
    u = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    G = (u * np.linspace(0.0, 0.01, 200)) @ u.T
    tests, none = rng.standard_normal((200, krylov.TESTS)), np.zeros((200, 0))

    def times(v):
        calls.append(1)
        return G @ v

    def bound(enough):
        calls.clear()
        return krylov._largest_outside(times, none, tests, 1.0, enough), len(calls)

    (first, three), (last, six) = bound(1.0), bound(0.0)
    between, some = bound((first + last) / 2)
    assert three == 3 < some < six == 6
    assert 0.01 <= last < between <= (first + last) / 2


@pytest.mark.slow
def test_the_bound_fails_as_often_as_it_says(monkeypatch):
    # For a matrix of rank one the bound is tight: it fails if and only if all tests are nearly orthogonal to u.
    share, runs = 0.05, 600
    monkeypatch.setattr(krylov, "LEAST_LENGTH", float(scipy.stats.chi2(krylov.TESTS).ppf(share)))
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(runs):
        u = np.linalg.qr(rng.standard_normal((8, 1)))[0]
        tests = rng.standard_normal((8, krylov.TESTS))
        bound = krylov._largest_outside(lambda v, u=u: u @ (u.T @ v), np.zeros((8, 0)), tests, 1.0, 0.0)
        failed += bound < 1.0 - 1e-6
    assert 0 < failed <= runs * share * 1.3


def test_the_bound_fails_once_in_a_million_million_runs():
    assert scipy.stats.chi2(krylov.TESTS).cdf(krylov.LEAST_LENGTH) == pytest.approx(krylov.FAILURE)
    assert krylov.FAILURE == 1e-12


def test_a_matrix_that_vanishes_outside_the_basis():
    assert krylov._largest_outside(np.zeros_like, np.zeros((8, 0)), np.ones((8, 16)), 1e-3, 0.0) == 0.0


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 150), most=st.integers(1, 200))
def test_small_matrices_are_formed(seed, size, most):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((size, 5))
    G = A @ A.T / np.square(A).sum()
    found = form_leading(lambda v: G @ v, size, most)
    exact = np.maximum(np.linalg.eigvalsh(G)[::-1], 0.0)
    np.testing.assert_allclose(found.values, exact[:most], atol=1e-13)
    np.testing.assert_allclose(G @ found.vectors, found.vectors * found.values, atol=1e-13)
    assert found.outside == pytest.approx(exact[most] if most < size else 0.0, abs=1e-13)


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(2, 12), power=st.integers(0, 40))
def test_residuals_bound_eigenvalues_from_above(seed, d, power):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d + 2, d)) * 0.8 ** (power * rng.random(d))
    M = A.T @ A / np.square(A).sum()
    v = np.linalg.qr(rng.standard_normal((d, int(rng.integers(1, d)))))[0]
    theta, turn = np.linalg.eigh(v.T @ M @ v)
    v, rest = v @ turn, np.eye(d) - v @ v.T
    outside = np.linalg.norm(rest @ M @ rest, 2)
    residual = M @ v - v * theta
    upper = bound_eigenvalues(theta, residual.T @ residual, outside)
    true = np.linalg.eigvalsh(M)[::-1]
    assert np.all(upper >= true[: len(upper)] - 1e-12) and np.all(upper <= true[0] + outside + 1e-12)
    exact = bound_eigenvalues(true[: len(upper)], np.zeros((len(upper), len(upper))), true[len(upper)])
    np.testing.assert_allclose(exact, true[: len(upper)], rtol=1e-9, atol=1e-12)
