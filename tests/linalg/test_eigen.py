"""The largest eigenpairs are as accurate as LAPACK's, from every implementation."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd.linalg import eigen
from robustfd.linalg.lapack import at, call


def compiled_pairs(a, k, compile_all=True):
    n = len(a)
    values, vectors, sizes = np.empty(n), np.empty((k, n)), np.array([n, k, n])
    eigen._call_eigenpairs(eigen.routines(compile_all), sizes, a, values, vectors)
    assert sizes[2] == 1
    return values[: k + 1], vectors.T


def compiled_pairs_of_short_streams(a, k):
    return compiled_pairs(a, k, compile_all=False)


@numba.njit
def inverse_iteration(routines, sizes, a, values, vectors):
    call(routines[eigen.ITERATION], (at(routines, 0), at(sizes, 0), a, values, vectors))


SPECTRA = {
    "flat": lambda n, rng: rng.uniform(0.5, 1.5, n),
    "falling": lambda n, rng: np.exp(-np.arange(n) / 8.0),
    "steep": lambda n, rng: 10.0 ** -np.linspace(0, 40, n),
    "equal": lambda n, rng: np.ones(n),
    "pairs": lambda n, rng: np.repeat(rng.uniform(0.5, 1.5, (n + 1) // 2), 2)[:n],
    "clustered": lambda n, rng: 1.0 + 1e-13 * rng.standard_normal(n),
    "rank 3": lambda n, rng: np.r_[3.0, 2.0, 1.0, np.zeros(n - 3)],
    "zero": lambda n, rng: np.zeros(n),
}


def matrix(n, spectrum, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = (q * (scale * SPECTRA[spectrum](n, rng))) @ q.T
    return (a + a.T) / 2


@pytest.mark.parametrize("way", [eigen.largest_eigenpairs, compiled_pairs, compiled_pairs_of_short_streams])
@given(
    n=st.integers(3, 120),
    share=st.floats(0.05, 1.0),
    spectrum=st.sampled_from(sorted(SPECTRA)),
    scale=st.sampled_from([1e-300, 1e-150, 1.0, 1e150, 1e300]),
    seed=st.integers(0, 2**32 - 1),
)
def test_pairs_are_orthonormal_and_satisfy_the_equation(way, n, share, spectrum, scale, seed):
    a, k = matrix(n, spectrum, seed, scale), max(1, int(share * n))
    values, v = way(np.tril(a), k)
    v = v[:, :k]
    largest = max(values[0], np.finfo(float).tiny)
    np.testing.assert_allclose(v.T @ v, np.eye(k), atol=1e-13)
    np.testing.assert_allclose((a / largest) @ v, v * (values[:k] / largest), atol=1e-13)
    right = np.maximum(np.linalg.eigvalsh(a / largest)[::-1], 0)
    np.testing.assert_allclose(values[: k + 1] / largest, right[: k + 1], atol=1e-13)
    assert np.all(values >= 0) and np.all(np.diff(values) <= 0)


@pytest.mark.parametrize("spectrum", sorted(SPECTRA))
@pytest.mark.parametrize(
    ("n", "k"), [(eigen.MIN_ROWS_FOR_SELECTION - 1, 49), (eigen.MIN_ROWS_FOR_SELECTION, 49), (333, 1), (333, 230)]
)
def test_pairs_of_large_matrices(spectrum, n, k):
    a = matrix(n, spectrum, n)
    values, v = eigen.largest_eigenpairs(np.tril(a), k)
    v = v[:, :k]
    np.testing.assert_allclose(v.T @ v, np.eye(k), atol=3e-13)
    np.testing.assert_allclose(a @ v, v * values[:k], atol=3e-13)
    right = np.maximum(np.linalg.eigvalsh(a)[::-1], 0)
    np.testing.assert_allclose(values[: k + 1], right[: k + 1], atol=3e-13)
    assert np.all(values >= 0) and np.all(np.diff(values) <= 0)


@pytest.mark.parametrize(("spectrum", "way"), [("flat", True), ("falling", True), ("equal", False), ("pairs", False)])
def test_inverse_iteration_serves_distinct_values_and_declines_equal_ones(spectrum, way):
    for n in (6, 20, 80, 120):
        k = n // 2 - 1
        a = matrix(n, spectrum, 0)
        sizes = np.array([n, k, 0])
        inverse_iteration(eigen.routines(True), sizes, a / a.max(), np.empty(n), np.empty((k, n)))
        assert sizes[2] == way, n


@pytest.mark.parametrize("way", [eigen.largest_eigenpairs, compiled_pairs])
def test_a_diagonal_matrix_whose_tridiagonal_form_is_split(way):
    values, v = way(np.diag(np.arange(60.0)), 29)
    np.testing.assert_allclose(values[:30], np.arange(60.0)[:29:-1])
    np.testing.assert_allclose(np.abs(v[:, :29]), np.eye(60)[:, :30:-1], atol=1e-14)
