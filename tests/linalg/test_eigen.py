"""The largest eigenpairs are as accurate as LAPACK's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd import _core
from robustfd.linalg.decompose import largest_eigenpairs

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


@given(
    n=st.integers(3, 120),
    share=st.floats(0.05, 1.0),
    spectrum=st.sampled_from(sorted(SPECTRA)),
    scale=st.sampled_from([1e-300, 1e-150, 1.0, 1e150, 1e300]),
    seed=st.integers(0, 2**32 - 1),
)
def test_pairs_are_orthonormal_and_satisfy_the_equation(n, share, spectrum, scale, seed):
    a, k = matrix(n, spectrum, seed, scale), max(1, int(share * n))
    values, v = largest_eigenpairs(np.tril(a), k)
    largest = max(values[0], np.finfo(float).tiny)
    np.testing.assert_allclose(v.T @ v, np.eye(k), atol=1e-13)
    np.testing.assert_allclose((a / largest) @ v, v * (values[:k] / largest), atol=1e-13)
    right = np.maximum(np.linalg.eigvalsh(a / largest)[::-1], 0)
    np.testing.assert_allclose(values[: k + 1] / largest, right[: k + 1], atol=1e-13)
    assert np.all(values >= 0) and np.all(np.diff(values) <= 0)


@pytest.mark.parametrize("spectrum", sorted(SPECTRA))
@pytest.mark.parametrize(("n", "k"), [(127, 49), (128, 49), (333, 1), (333, 230)])  # from 128 rows on, LAPACK reduces
def test_pairs_of_large_matrices(spectrum, n, k):
    a = matrix(n, spectrum, n)
    values, v = largest_eigenpairs(np.tril(a), k)
    np.testing.assert_allclose(v.T @ v, np.eye(k), atol=3e-13)
    np.testing.assert_allclose(a @ v, v * values[:k], atol=3e-13)
    right = np.maximum(np.linalg.eigvalsh(a)[::-1], 0)
    np.testing.assert_allclose(values[: k + 1], right[: k + 1], atol=3e-13)
    assert np.all(values >= 0) and np.all(np.diff(values) <= 0)


@pytest.mark.parametrize("level", _core.levels())
@pytest.mark.parametrize("spectrum", ["flat", "pairs"])
def test_every_level_gives_the_same_bits(level, spectrum):
    a, best = matrix(77, spectrum, 1), _core.level()
    expected = largest_eigenpairs(a, 30)
    try:
        _core.use_level(level)
        found = largest_eigenpairs(a, 30)
    finally:
        _core.use_level(best)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_diagonal_matrix_whose_tridiagonal_form_is_split():
    values, v = largest_eigenpairs(np.diag(np.arange(60.0)), 29)
    np.testing.assert_allclose(values[:30], np.arange(60.0)[:29:-1])
    np.testing.assert_allclose(np.abs(v), np.eye(60)[:, :30:-1], atol=1e-14)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(np.linalg.LinAlgError, match="converge"):
        largest_eigenpairs(np.full((5, 5), value), 2)


@pytest.mark.parametrize("scale", [1e-290, 1e-308, 1e-313, 5e-324])
def test_subnormal_numbers(scale):
    """The squares of rows of about 1e-155. Subnormal numbers have few digits."""
    a = np.array([[1.7, 0.2, 0.2], [0.2, 1.0, 1.0], [0.2, 1.0, 1.0]]) * scale
    values, v = largest_eigenpairs(a, 2)
    np.testing.assert_allclose(values / scale, np.linalg.eigvalsh(a / scale)[::-1], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(v.T @ v, np.eye(2), atol=1e-12)
