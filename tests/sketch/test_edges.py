"""Regression tests of edge cases."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.linalg import decompose
from tests import reference as ref


@pytest.mark.parametrize("solver", ["auto", "gram", "svd"])
@pytest.mark.parametrize("noise", [1e-4, 1e-5, 1e-6, 1e-8])
def test_components_are_orthonormal_with_a_large_common_mean(solver, noise):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal(100) + noise * rng.standard_normal((40, 100))
    sketch = robustfd.RobustFrequentDirections(30, solver=solver).fit(rows)
    v = sketch.components_
    np.testing.assert_allclose(v @ v.T, np.eye(len(v)), atol=1e-13)
    assert sketch.second_moment().shape == (100, 100)


@pytest.mark.parametrize("ratio", [1e-5, 1e-6, 1e-9, 1e-11])
def test_two_gram_matrices_are_as_accurate_as_an_svd(ratio):
    """Squared lengths down to 1e-22 of the largest are correct to three digits."""
    rng = np.random.default_rng(1)
    q = np.linalg.qr(rng.standard_normal((90, 90)))[0]
    stack = np.linalg.qr(rng.standard_normal((40, 40)))[0] * np.geomspace(1, ratio, 40) @ q[:40]
    refined = decompose._refined(stack, 20, 20)
    exact = decompose._by_svd(stack[:0], stack, 20, 20, 1.0, np.ones(40))
    assert refined is not None
    np.testing.assert_allclose(refined.delta, exact.delta, rtol=1e-3)
    np.testing.assert_allclose(refined.lam, exact.lam, rtol=1e-3)
    v = refined.rows / np.sqrt(refined.lam)[:, None]
    np.testing.assert_allclose(v @ v.T, np.eye(19), atol=1e-3)


def test_a_timestamp_column_does_not_hide_the_others():
    """With a column of 1.7e9, the Gram matrix alone resolves no other column. "auto" does, dense and sparse."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 90)) * (rng.random((300, 90)) < 0.08)
    rows[:, 0] = 1.7e9 + np.arange(300)
    truth = ref.fast_robust_frequent_directions(rows, 5)
    for x in (rows, sp.csr_array(rows)):
        sketch = robustfd.RobustFrequentDirections(5).fit(x)
        np.testing.assert_allclose(sketch.alpha_, ref.final(truth).alpha, rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [robustfd.ExactSecondMoment, robustfd.RandomProjectionSketch, robustfd.OjaSketch, robustfd.FrequentDirections],
)
@pytest.mark.parametrize("decay", [0.9, 0.05, 1e-6])
def test_strong_decay_of_centred_sparse_rows(make, decay):
    """The inverse of the total decay overflows, so the rows are processed as dense rows."""
    rows = np.tile(np.eye(3), (100, 1))
    seed = {"random_state": 0} if hasattr(make(), "random_state") else {}
    sparse = make(center=True, decay=decay, **seed).fit(sp.csr_array(rows))
    dense = make(center=True, decay=decay, **seed).fit(rows)
    np.testing.assert_allclose(sparse.squared_norm_, dense.squared_norm_, rtol=1e-9)
    np.testing.assert_allclose(sparse.mean_, dense.mean_, atol=1e-9)
    make(center=True, decay=decay, **seed).fit(sp.csr_array((300, 3)))


def test_centred_sparse_rows_of_very_different_weight():
    rows, weight = sp.csr_array([[1.0, 1.0], [0.0, 0.0]]), [1e15, 1e-7]
    sketch = robustfd.ExactSecondMoment(center=True).fit(rows, sample_weight=weight)
    np.testing.assert_allclose(sketch.squared_norm_, 2e-7)
    assert robustfd.ExactSecondMoment.from_bytes(sketch.to_bytes()).squared_norm_ == sketch.squared_norm_


def test_rows_that_underflow_are_dropped():
    rows = 1e-50 * np.random.default_rng(0).standard_normal((100, 30))
    sketch = robustfd.RobustFrequentDirections(5).fit(rows).forget(1e-250)
    assert sketch.sketch_.shape == (0, 30)
    assert sketch.alpha_ == 0.0
    assert sketch.partial_fit(np.eye(1, 30)).singular_values_[0] == pytest.approx(1.0)


def test_bracket_refuses_numbers_that_are_not_finite():
    sketch = robustfd.FrequentDirections(3).fit(np.eye(9))
    with pytest.raises(ValueError, match="NaN"):
        sketch.bracket_mahalanobis(np.full((1, 9), np.nan))


def test_paths_are_named_in_errors(tmp_path):
    sketch = robustfd.FrequentDirections(3).fit(np.eye(9))
    with pytest.raises(FileNotFoundError, match=r"nope/a\.rfd"):
        sketch.save(tmp_path / "nope" / "a.rfd")
    with pytest.raises(IsADirectoryError):
        sketch.save(tmp_path)
    sketch.save(str(tmp_path / "b.rfd").encode())
    assert robustfd.load(str(tmp_path / "b.rfd").encode()).n_samples_seen_ == 9


def test_merge_takes_sketches_only():
    with pytest.raises(TypeError, match="single one"):
        robustfd.merge(robustfd.FrequentDirections(3))
    with pytest.raises(TypeError, match="takes sketches or models, got 3"):
        robustfd.merge([3])


@pytest.mark.parametrize("center", [False, True])
def test_a_sketch_near_the_largest_norm_accepts_more_rows(center):
    rng = np.random.default_rng(0)
    sketch = robustfd.RobustFrequentDirections(3, center=center).fit(rng.standard_normal((3, 4)))
    rows = rng.standard_normal((3, 4))
    sketch.partial_fit(rows, sample_weight=np.full(3, 4e306 / np.sum(rows**2)))  # fills the buffer
    for _ in range(8):
        sketch.partial_fit(rng.standard_normal((1, 4)))
    assert sketch.n_samples_seen_ == 14
    assert np.isfinite(sketch.sketch_).all()
    assert type(sketch).from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
