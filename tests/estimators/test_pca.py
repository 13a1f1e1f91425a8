"""SketchedPCA: exact if the sketch is exact, certified otherwise, and independent of sparsity and batch sizes."""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.utils.extmath import svd_flip

from fuzz import components
from robustfd import ParameterizedFrequentDirections, RobustFrequentDirections, SketchSizeWarning
from robustfd.estimators.pca import SketchedPCA

DATA = Path(__file__).parents[1] / "data"


def stream(n=300, d=12, seed=0, offset=3.0, ratio=0.8):
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((n, d)) * ratio ** np.arange(d) @ rotation + offset


def sparse_stream(n=300, d=400, density=0.03, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=density, random_state=rng, format="csr")
    X.data *= 1.0 + 5.0 * (X.indices < 5)
    return X


def in_batches(pca, X, cuts, **kwargs):
    for batch in np.split(np.arange(X.shape[0]), cuts):
        pca.partial_fit(X[batch], **{k: v[batch] for k, v in kwargs.items()})
    return pca


def assert_same_analysis(one, two, rtol=1e-9):
    scale = one.explained_variance_.max()
    np.testing.assert_allclose(one.components_, two.components_, atol=1e-7)
    np.testing.assert_allclose(one.explained_variance_, two.explained_variance_, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(one.noise_variance_, two.noise_variance_, rtol=1e-7, atol=1e-14 * scale)
    np.testing.assert_allclose(one.mean_, two.mean_, rtol=1e-12, atol=1e-12)


def flipped(pca):
    """Return the components of a scikit-learn PCA with signs from the components, for any version of scikit-learn."""
    return svd_flip(None, pca.components_.copy(), u_based_decision=False)[1]


# -- exact results


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("k", [1, 5, 12])
@pytest.mark.parametrize(("n", "d"), [(300, 12), (20, 200)])
def test_exact_sketch_gives_exact_pca(n, d, k, whiten):
    X = stream(n, d, ratio=0.9)  # the second case has rank 19, below the sketch size
    pca, exact = SketchedPCA(k, sketch_size=25, whiten=whiten).fit(X), PCA(k, whiten=whiten, svd_solver="full").fit(X)
    assert pca.explained_variance_error_bound_ <= 1e-9 * pca.explained_variance_[0]  # rounding
    exact.noise_variance_ *= (min(n, d) - k) / max(1, d - k)  # all d - k directions count here
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(pca, name), getattr(exact, name), rtol=1e-9, atol=1e-15, err_msg=name)
    np.testing.assert_allclose(pca.components_, flipped(exact), atol=1e-9)
    exact.components_ = flipped(exact)
    np.testing.assert_allclose(pca.transform(X), exact.transform(X), atol=1e-8)
    Z = pca.transform(X)
    np.testing.assert_allclose(pca.inverse_transform(Z), exact.inverse_transform(Z), atol=1e-8)
    assert (pca.n_components_, pca.n_samples_seen_, pca.n_features_in_) == (k, n, d)


@pytest.mark.parametrize("k", [1, 5, 12])
def test_exact_sketch_gives_exact_likelihood(k):
    X = stream()
    pca, exact = SketchedPCA(k, sketch_size=20).fit(X), PCA(k, svd_solver="full").fit(X)
    np.testing.assert_allclose(pca.score_samples(X), exact.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(pca.score_samples(sp.csr_array(X)), exact.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(pca.score(X), exact.score(X), rtol=1e-9)
    np.testing.assert_allclose(pca.get_covariance(), exact.get_covariance(), atol=1e-10)
    np.testing.assert_allclose(pca.get_precision(), exact.get_precision(), rtol=1e-7, atol=1e-8)


def test_model_does_not_depend_on_whitening():
    X = stream()
    one, two = SketchedPCA(4).fit(X), SketchedPCA(4, whiten=True).fit(X)
    np.testing.assert_array_equal(one.get_covariance(), two.get_covariance())
    np.testing.assert_array_equal(one.score_samples(X), two.score_samples(X))


def test_whitened_rows_have_unit_covariance():
    X = stream(n=400, d=10)
    np.testing.assert_allclose(np.cov(SketchedPCA(10, whiten=True).fit_transform(X).T), np.eye(10), atol=1e-10)


def test_likelihood_of_rows_in_a_subspace_is_that_of_the_gaussian_on_it():
    X = stream(200, 4) @ np.eye(4, 30)
    pca = SketchedPCA().fit(X)
    assert pca.n_components_ == 4 and pca.noise_variance_ == 0.0
    truth = multivariate_normal(X.mean(axis=0), np.cov(X.T), allow_singular=True).logpdf(X)
    np.testing.assert_allclose(pca.score_samples(X), truth, rtol=1e-8)
    np.testing.assert_allclose(pca.get_precision(), np.linalg.pinv(np.cov(X.T), hermitian=True), atol=1e-9)


# -- certified results


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 150),
    d=st.integers(4, 40),
    ratio=st.sampled_from([0.5, 0.9, 1.0]),
    offset=st.sampled_from([0.0, 1e3]),
    extra=st.integers(1, 4),
)
def test_certificate_bounds_every_explained_variance(seed, n, d, ratio, offset, extra):
    X = stream(n, d, seed, offset, ratio)
    k = 1 + seed % 4
    pca = SketchedPCA(k, sketch_size=k + extra, buffer_size=k + 2 * extra).fit(X)
    covariance = np.cov(X.T)
    exact, rounding = np.linalg.eigvalsh(covariance)[::-1][:k], 1e-10 * np.trace(covariance)
    assert np.all(np.abs(pca.explained_variance_ - exact) <= pca.explained_variance_error_bound_ + rounding)
    total = pca.explained_variance_.sum() + (d - k) * pca.noise_variance_
    np.testing.assert_allclose(total, np.trace(covariance), rtol=1e-9)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-9)
    ratio = pca.explained_variance_ / np.trace(covariance)
    np.testing.assert_allclose(pca.explained_variance_ratio_, ratio, rtol=1e-9)


def test_certificate_on_real_rows(mnist):
    X = mnist[0][:2000]
    pca = SketchedPCA(10).fit(X)
    exact = PCA(10, svd_solver="covariance_eigh").fit(X)
    error = np.abs(pca.explained_variance_ - exact.explained_variance_)
    assert 0 < error.max() <= pca.explained_variance_error_bound_
    larger = SketchedPCA(10, sketch_size=200).fit(X)
    np.testing.assert_allclose(larger.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=0.03)


def test_likelihood_of_lossy_model_is_that_of_its_covariance():
    X = stream(500, 30, ratio=0.95)
    pca = SketchedPCA(3, sketch_size=5).fit(X)
    truth = multivariate_normal(pca.mean_, pca.get_covariance()).logpdf(X)
    np.testing.assert_allclose(pca.score_samples(X), truth, rtol=1e-9)
    np.testing.assert_allclose(pca.score_samples(sp.csr_array(X)), truth, rtol=1e-7)
    np.testing.assert_allclose(pca.get_precision() @ pca.get_covariance(), np.eye(30), atol=1e-8)


def test_inverse_transform_is_the_projection_on_the_components():
    X = stream(200, 30)
    for whiten in (False, True):
        pca = SketchedPCA(6, whiten=whiten).fit(X)
        v = pca.components_
        truth = pca.mean_ + (X - pca.mean_) @ v.T @ v
        np.testing.assert_allclose(pca.inverse_transform(pca.transform(X)), truth, atol=1e-10)
    with pytest.raises(ValueError, match="X has 5 columns, expected n_components_=6"):
        pca.inverse_transform(np.ones((2, 5)))


# -- any batches, any rows


def test_one_row_at_a_time_with_reads_in_between():
    X = stream(150, 20)
    pca, whole = SketchedPCA(3, sketch_size=8), SketchedPCA(3, sketch_size=8).partial_fit(X)
    for t, row in enumerate(X, 1):
        pca.partial_fit(row[None])
        assert pca.transform(X[:2]).shape == (2, 3)  # also if the rows span fewer directions than components
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(pca.mean_, X[:t].mean(axis=0), rtol=1e-12)
    assert_same_analysis(pca, whole)


def test_fewer_rows_than_components_are_completed_by_directions_without_variance():
    X = stream(3, 9)
    pca = SketchedPCA(5, whiten=True).fit(X)
    np.testing.assert_allclose(pca.explained_variance_[:2], PCA().fit(X).explained_variance_[:2])
    np.testing.assert_array_equal(pca.explained_variance_[2:], 0.0)
    Z = pca.transform(X)
    np.testing.assert_array_equal(Z[:, 2:], 0.0)
    np.testing.assert_allclose(pca.inverse_transform(Z), X, atol=1e-12)


def test_one_row_has_a_mean_but_no_variance():
    pca = SketchedPCA(2).partial_fit([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(pca.mean_, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(pca.transform([[1.0, 2.0, 3.0]]), 0.0, atol=1e-15)
    np.testing.assert_array_equal(pca.explained_variance_ratio_, 0.0)
    with pytest.raises(ValueError, match="total weight of the rows must be above 1 for a variance, got 1"):
        _ = pca.explained_variance_
    assert SketchedPCA().partial_fit([[1.0, 2.0, 3.0]]).transform([[0.0, 1.0, 2.0]]).shape == (1, 0)


def test_float32_in_float32_out():
    X = stream(100, 30).astype(np.float32)
    pca, double = SketchedPCA(3, whiten=True).fit(X), SketchedPCA(3, whiten=True).fit(X.astype(np.float64))
    Z = pca.transform(X)
    assert Z.dtype == pca.components_.dtype == pca.inverse_transform(Z).dtype == np.float32
    np.testing.assert_allclose(Z, double.transform(X), atol=1e-4)
    assert pca.transform(X.astype(np.float64)).dtype == np.float64


def test_large_offset_does_not_hide_small_variances():
    X = stream(400, 15, offset=0.0)
    near, far = SketchedPCA(5, sketch_size=8).fit(X), SketchedPCA(5, sketch_size=8).fit(X + 1e6)
    np.testing.assert_allclose(far.explained_variance_, near.explained_variance_, rtol=1e-6)


# -- weights, forgetting, merging


def test_merge_is_the_analysis_of_all_rows():
    X = stream(200, 15)
    one, two = SketchedPCA(4, sketch_size=20).fit(X[:70]), SketchedPCA(4, sketch_size=20).fit(X[70:])
    assert one.merge(two) is one
    assert_same_analysis(one, SketchedPCA(4, sketch_size=20).fit(X))
    assert one.n_samples_seen_ == 200 and two.n_samples_seen_ == 130


def test_lossy_merge_keeps_the_certificate():
    X = stream(600, 40, ratio=0.95)
    pca = SketchedPCA(3, sketch_size=6).fit(X[:100])
    for start in range(100, 600, 100):
        pca.merge(SketchedPCA(3, sketch_size=6).fit(X[start : start + 100]))
    exact = PCA(3).fit(X).explained_variance_
    assert np.all(np.abs(pca.explained_variance_ - exact) <= pca.explained_variance_error_bound_)


# -- scikit-learn conventions


def test_sketch_size_cannot_change_under_way():
    X = stream(60, 70)
    pca = SketchedPCA(3, sketch_size=50).fit(X).set_params(n_components=30)
    assert pca.n_components_ == 3
    with pytest.raises(ValueError, match="sketch_size was changed from 50 to 60 after rows were seen"):
        pca.set_params(sketch_size=60).partial_fit(X)
    assert pca.set_params(sketch_size=50).partial_fit(X).n_components_ == 30
    with pytest.raises(ValueError, match="sketch_size was changed from 'auto' to 60 after rows were seen"):
        SketchedPCA(3).fit(X).set_params(sketch_size=60).partial_fit(X)


def test_names_follow_scikit_learn():
    X = pd.DataFrame(stream(30, 4), columns=list("abcd"))
    pca = SketchedPCA(2).set_output(transform="pandas").fit(X)
    assert list(pca.transform(X).columns) == ["sketchedpca0", "sketchedpca1"]
    assert list(pca.feature_names_in_) == list("abcd")
    assert not hasattr(pca.fit(X.to_numpy()), "feature_names_in_")


# -- intervals and certificates


@given(seed=st.integers(0, 2**32 - 1))
def test_intervals_and_certificates_hold_on_random_streams(seed):
    components.case(np.random.default_rng(seed), None)


@pytest.mark.parametrize("sparse", [False, True])
def test_two_sketches_are_more_certain_than_one(sparse):
    X = stream(3000, 80, ratio=0.9)
    pca = SketchedPCA(5, sketch_size=20).partial_fit(sp.csr_array(X) if sparse else X)
    low, high = pca.explained_variance_interval_.T
    exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:5]
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-3)
    one = RobustFrequentDirections(20, buffer_size=80, center=True).fit(X)
    assert (high - low).max() < 0.2 * one.error_bound_ / 2999
    assert pca.sketch_.upper_error_bound_ == pytest.approx(2 * one.error_bound_, rel=0.2)
    assert pca.excess_error_bound_ < 0.01 * exact.sum() and pca.subspace_error_bound_ < 0.5


@pytest.mark.parametrize("whole", [False, True])
def test_directions_that_came_late_are_found(whole):
    rng = np.random.default_rng(0)
    first = rng.standard_normal((1000, 45)) @ np.eye(45, 200)
    later = rng.standard_normal((4000, 8)) @ np.eye(8, 200, 100)
    X = np.vstack([first, later]) + 0.01 * rng.standard_normal((5000, 200))
    pca = SketchedPCA(8, sketch_size=20)
    pca = pca.fit(X) if whole else pca.partial_fit(X)
    exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:8]
    low, high = pca.explained_variance_interval_.T
    assert np.all((low <= exact) & (exact <= high))
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-4 if whole else 0.02)
    np.testing.assert_allclose(pca.transform(X).var(axis=0, ddof=1), exact, rtol=1e-4 if whole else 0.02)
    first_rule = ParameterizedFrequentDirections(20, buffer_size=80, center=True).fit(X).components_[:8]
    assert np.var(X @ first_rule.T, axis=0).sum() < 0.9 * exact.sum()  # the first sketch alone is not enough
    loaded = SketchedPCA.from_bytes(pca.to_bytes())
    np.testing.assert_array_equal(loaded.components_, pca.components_)
    assert pca.partial_fit(X[:0]).explained_variance_[0] <= exact[0]


def test_a_second_pass_counts_weights_and_decay():
    X, weight = stream(200, 40, ratio=0.95), np.arange(200) % 3
    for container in (np.asarray, sp.csr_array):
        pca = SketchedPCA(3, sketch_size=6, decay=0.99).fit(container(X), sample_weight=weight)
        live = weight > 0
        u = weight[live] * 0.99 ** np.arange(live.sum() - 1.0, -1.0, -1.0)
        Z = pca.transform(X[live])
        np.testing.assert_allclose((u[:, None] * Z * Z).sum(axis=0) / (u.sum() - 1), pca.explained_variance_, rtol=1e-9)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_second_pass_makes_the_intervals_much_shorter(container):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 300)) * np.arange(1, 301.0) ** -0.5 + (np.arange(300) < 3)
    exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:5]
    once = SketchedPCA(5, sketch_size=40).partial_fit(container(X))
    twice = SketchedPCA(5, sketch_size=40).fit(container(X))
    for pca in (once, twice, SketchedPCA.from_bytes(twice.to_bytes())):
        low, high = pca.explained_variance_interval_.T
        assert np.all((low <= exact) & (exact <= high))
    assert (high - low).max() < 0.05 * np.ptp(once.explained_variance_interval_, axis=1).max()
    assert twice.excess_error_bound_ < 0.05 * once.excess_error_bound_


@given(seed=st.integers(0, 2**32 - 1), sparse=st.booleans(), cuts=st.lists(st.integers(0, 150), max_size=4).map(sorted))
def test_rows_after_fit_keep_the_certificates(seed, sparse, cuts):
    rng = np.random.default_rng(seed)
    X = stream(300, 30, seed=seed, ratio=rng.uniform(0.7, 1.0))
    X[150:] = rng.uniform(0.1, 3.0) * X[150:, ::-1]
    rows = sp.csr_array(X) if sparse else X
    pca = SketchedPCA(3, sketch_size=int(rng.integers(4, 20))).fit(rows[:150])
    whole = SketchedPCA.from_bytes(pca.to_bytes()).partial_fit(rows[150:])
    in_batches(pca, rows[150:], cuts)
    assert whole.to_bytes() == pca.to_bytes()
    exact = np.linalg.eigvalsh(np.cov(X.T))[::-1][:3]
    low, high = pca.explained_variance_interval_.T
    assert np.all((low <= exact * (1 + 1e-12)) & (exact <= high * (1 + 1e-12)))
    spread = pca.sketch_.second_moment().to_dense() - np.cov(X.T) * 299
    assert np.linalg.norm(spread, 2) <= pca.sketch_.error_bound_ * (1 + 1e-12)


def test_many_sparse_rows_after_fit_change_no_copy():
    # The memory of B is used again while rows are processed, but never that of a B that others may read.
    X = sparse_stream(2000, 900, density=0.02)
    first = SketchedPCA(3, sketch_size=20).fit(X[:500])
    before, rest = first.to_bytes(), copy.copy(first)
    rest.partial_fit(X[500:])
    assert first.to_bytes() == before
    parts = in_batches(SketchedPCA.from_bytes(before), X[500:], [7, 300, 301, 900])
    assert parts.to_bytes() == rest.to_bytes()
    exact = np.linalg.eigvalsh(np.cov(X.toarray().T))[::-1][:3]
    low, high = rest.explained_variance_interval_.T
    assert np.all((low <= exact) & (exact <= high))
    bad = X[500:].copy()
    bad.data[-1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        first.partial_fit(bad)
    assert first.to_bytes() == before


@pytest.mark.parametrize("shape", [(300, 900), (900, 300)])  # with n < d, other products are used
@pytest.mark.parametrize("k", [2, 12, None])
def test_passes_over_sparse_rows_are_those_over_dense_rows(shape, k):
    rng = np.random.default_rng(0)
    X = sp.random_array(shape, density=0.05, random_state=rng, format="csr")
    X.data *= 1.0 + 5.0 * (X.indices < 4)
    weight = rng.integers(0, 3, shape[0]).astype(float)
    one, two = (SketchedPCA(k, sketch_size=20).fit(rows, sample_weight=weight) for rows in (X, X.toarray()))
    assert_same_analysis(one, two)
    np.testing.assert_allclose(one.explained_variance_interval_, two.explained_variance_interval_, rtol=1e-6)


def test_directions_of_tiny_variance_are_kept():
    # Multiplying by A'A would lose them: their variance is 1e-16 of the largest.
    X = stream(200, 40, ratio=1.0)
    X = (X - X.mean(axis=0)) @ np.diag(np.r_[1e8, 1e4, np.ones(4), np.zeros(34)])
    pca = SketchedPCA(6, sketch_size=10, solver="svd").fit(X)
    np.testing.assert_allclose(pca.explained_variance_[:2], PCA(2).fit(X).explained_variance_, rtol=1e-6)
    assert np.linalg.norm(pca.components_[2:] @ np.eye(40)[:, 6:]) < 1e-3


# -- a share of the variance


@pytest.mark.parametrize("share", [0.3, 0.75, 0.99, np.float32(0.5)])
def test_a_share_of_the_variance_takes_as_many_components_as_scikit_learn(share):
    X = stream(200, 12)
    pca, exact = SketchedPCA(share).fit(X), PCA(float(share), svd_solver="full").fit(X)
    assert pca.n_components_ == exact.n_components_ == pca.transform(X).shape[1]
    lossy = SketchedPCA(share, sketch_size=11).fit(X)
    assert abs(lossy.n_components_ - exact.n_components_) <= 1


def test_a_share_that_the_sketch_does_not_reach_is_warned_of():
    with pytest.warns(SketchSizeWarning, match=r"The 4 components of the sketch explain 0\.\d+ of the variance"):
        pca = SketchedPCA(0.99, sketch_size=5).fit(stream(200, 30, ratio=1.0))
    assert pca.n_components_ == 4


def test_transform_of_few_sparse_rows_is_that_of_many():
    X = sparse_stream()
    pca = SketchedPCA(4, sketch_size=12, whiten=True).fit(X)
    Z = pca.transform(X)
    for i in range(0, 300, 37):
        np.testing.assert_allclose(pca.transform(X[[i]]), Z[[i]], atol=1e-12)
    np.testing.assert_allclose(pca.transform(sp.csr_array((2, 400))), pca.transform(np.zeros((2, 400))), atol=1e-12)
