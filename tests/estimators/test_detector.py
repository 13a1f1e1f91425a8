"""MahalanobisDetector: distances, threshold learned from the stream, and rows outside the span."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2
from sklearn.covariance import EmpiricalCovariance
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from robustfd.estimators.detector import MahalanobisDetector


def stream(n, d=30, seed=0):
    """Return Gaussian rows with correlated features of scales 1 to 4 and mean 3."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).standard_normal((d, d)) / np.sqrt(d) + np.diag(np.linspace(1, 4, d))
    return rng.standard_normal((n, d)) @ mixing + 3.0


def in_batches(detector, X, sizes):
    start = 0
    while start < X.shape[0]:
        for size in sizes:
            detector.partial_fit(X[start : start + size])
            start += size
    return detector


# -- distances


def test_distances_are_exact_when_the_sketch_is():
    X = stream(500)
    detector, exact = MahalanobisDetector(40).fit(X), EmpiricalCovariance().fit(X)
    np.testing.assert_allclose(detector.mahalanobis(X), exact.mahalanobis(X), rtol=1e-9)
    np.testing.assert_array_equal(detector.score_samples(X), -detector.mahalanobis(X))
    np.testing.assert_array_equal(detector.decision_function(X), detector.score_samples(X) - detector.offset_)
    np.testing.assert_array_equal(detector.predict(X), np.where(detector.decision_function(X) < 0, -1, 1))
    np.testing.assert_allclose(detector.location_, X.mean(axis=0))
    assert detector.n_samples_seen_ == 500


def test_distances_are_those_of_the_sketched_covariance():
    X = stream(500)
    detector = MahalanobisDetector(10).partial_fit(X)
    rfd = detector.sketch_
    expected = rfd.covariance(ddof=0).mahalanobis(X, rfd.mean_)
    np.testing.assert_allclose(detector.mahalanobis(X), expected, rtol=1e-12)


def test_fit_calls_exactly_the_asked_share_outliers():
    X = stream(1000)
    distances = EmpiricalCovariance().fit(X).mahalanobis(X)
    outlying = MahalanobisDetector(40, contamination=0.1).fit(X).predict(X) == -1
    np.testing.assert_array_equal(outlying, distances > np.quantile(distances, 0.9))
    assert outlying.sum() == 100


@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e100])
def test_scores_do_not_depend_on_the_scale_of_rows_or_weights(scale):
    X = stream(600)
    one = MahalanobisDetector(10).partial_fit(X)
    other = MahalanobisDetector(10).partial_fit(scale * X, sample_weight=np.full(600, 1e-3))
    np.testing.assert_allclose(other.score_samples(scale * X), one.score_samples(X), rtol=1e-6)
    assert other.offset_ == pytest.approx(one.offset_, rel=1e-6)


def test_float32_rows_lose_nothing_but_their_own_rounding():
    X = stream(600)
    one, other = (MahalanobisDetector(10).partial_fit(rows) for rows in (X, X.astype(np.float32)))
    np.testing.assert_allclose(other.score_samples(X), one.score_samples(X), rtol=1e-4)


# -- outliers are found


@pytest.mark.parametrize("contamination", ["auto", 0.01])
def test_planted_outliers_are_found(contamination):
    X = stream(5000)
    planted = np.arange(50, 5000, 100)
    direction = np.random.default_rng(5).standard_normal((50, 30))
    X[planted] += 60 * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    truth = np.ones(5000)
    truth[planted] = -1
    detector = in_batches(MahalanobisDetector(20, contamination=contamination), X, [70])
    assert np.mean(detector.predict(X) == truth) > 0.995
    assert (detector.predict(X[planted]) == -1).all()
    assert detector.contamination_ == pytest.approx(0.01, abs=0.003)
    assert (MahalanobisDetector(20, contamination=contamination).fit_predict(X)[planted] == -1).all()


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
def test_planted_outliers_are_found_in_sparse_rows(kind):
    rng = np.random.default_rng(3)
    X = sp.random_array((4000, 800), density=0.01, random_state=rng, data_sampler=rng.standard_normal).tolil()
    planted = np.arange(100, 4000, 400)
    X[planted, 17] = 8.0
    X[planted, 400] = -8.0
    X = kind(X.tocsr())
    detector = MahalanobisDetector(20, contamination=0.01, buffer_size=40).partial_fit(X)
    assert (detector.predict(X)[planted] == -1).all()
    dense = MahalanobisDetector(20, contamination=0.01, buffer_size=40).partial_fit(X.toarray())
    np.testing.assert_allclose(detector.score_samples(X), dense.score_samples(X.toarray()), rtol=1e-8)
    assert detector.offset_ == pytest.approx(dense.offset_, rel=0.01)


def test_digits_of_another_class_are_more_outlying():
    X, y = load_digits(return_X_y=True)
    for digit in (0, 3, 6):
        same = np.flatnonzero(y == digit)
        train, rest = same[:120], np.concatenate([same[120:], np.flatnonzero(y != digit)])
        for detector in (MahalanobisDetector(20).partial_fit(X[train]), MahalanobisDetector(20).fit(X[train])):
            assert roc_auc_score(y[rest] == digit, detector.score_samples(X[rest])) > 0.97


# -- the threshold


@pytest.mark.parametrize("m", [10, 20, 40])
@pytest.mark.parametrize("contamination", [0.01, 0.1, 0.5])
def test_threshold_of_a_stationary_stream_has_the_asked_share_of_new_rows(m, contamination):
    detector = in_batches(MahalanobisDetector(m, contamination=contamination), stream(10_000), [97])
    share = np.mean(detector.predict(stream(20_000, seed=1)) == -1)
    error = 4 * np.sqrt(contamination * (1 - contamination) / 3000)  # about 3000 scores are remembered
    assert share == pytest.approx(contamination, abs=error)
    assert detector.contamination_ == pytest.approx(contamination, rel=0.1)


@pytest.mark.parametrize("d", [2, 30, 300])
@pytest.mark.parametrize("m", [10, 40])
def test_auto_calls_few_gaussian_rows_outliers(d, m):
    detector = in_batches(MahalanobisDetector(m), stream(6000, d), [500])
    assert 0 <= detector.contamination_ < 0.01
    assert np.mean(detector.predict(stream(6000, d, seed=1)) == -1) < 0.01


def test_auto_learns_the_share_of_outliers():
    X = stream(8000)
    planted = np.random.default_rng(1).random(8000) < 0.04
    X[planted] *= np.random.default_rng(2).choice([-12.0, 12.0], planted.sum())[:, None]
    assert MahalanobisDetector(20).partial_fit(X).contamination_ == pytest.approx(0.04, abs=0.012)


def test_threshold_before_the_first_judge_is_the_chi_square_quantile():
    X = stream(40)
    detector = MahalanobisDetector(20, contamination=0.05).partial_fit(
        X
    )  # the scoring model has seen 40 rows and has not scored any
    assert detector.offset_ == pytest.approx(-chi2.isf(0.05, 30))
    assert detector.contamination_ == 0.05
    assert detector.partial_fit(X[:1]).offset_ != pytest.approx(-chi2.isf(0.05, 30), rel=1e-3)
    assert MahalanobisDetector(20).partial_fit(X[:3]).offset_ == pytest.approx(-chi2.isf(0.00135, 30), rel=1e-3)


def test_fit_takes_the_threshold_from_the_weighted_rows_themselves():
    X = stream(200)
    weight = np.ones(200)
    weight[:100] = 3.0
    detector = MahalanobisDetector(40, contamination=0.2).fit(X, sample_weight=weight)
    outlying = detector.predict(X) == -1
    assert weight[outlying].sum() / weight.sum() == pytest.approx(0.2, abs=3 / 400)
    assert detector.contamination_ == pytest.approx(weight[outlying].sum() / weight.sum())


def test_decay_follows_a_drifting_stream():
    old, new = stream(3000), stream(1500, seed=1) + 15.0
    following = in_batches(MahalanobisDetector(20, decay=0.99), np.vstack([old, new]), [50])
    assert np.mean(following.predict(stream(1000, seed=2) + 15.0) == 1) > 0.95
    assert np.mean(following.predict(stream(1000, seed=2)) == -1) > 0.95
    remembering = in_batches(MahalanobisDetector(20), np.vstack([old, new]), [50])
    assert np.mean(remembering.predict(stream(1000, seed=2)) == 1) > 0.95


def test_young_scores_fade():
    early = in_batches(MahalanobisDetector(40, contamination=0.05), stream(300), [50])
    late = in_batches(MahalanobisDetector(40, contamination=0.05), stream(20_000), [50])
    truth = chi2.isf(0.05, 30)
    assert -early.offset_ > 1.2 * truth  # 80 rows are few for 30 features, so the scores of other rows are large
    assert -late.offset_ == pytest.approx(truth, rel=0.05)


# -- outside the span of the rows


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_off_the_span_of_a_low_rank_stream_are_far_away(make):
    rng = np.random.default_rng(4)
    basis = rng.standard_normal((3, 40))
    X = rng.standard_normal((2000, 3)) @ basis
    detector = MahalanobisDetector(10, contamination=0.05).partial_fit(make(X))
    assert detector.sketch_.alpha_ < 1e-12
    inside = rng.standard_normal((2000, 3)) @ basis
    assert np.mean(detector.predict(make(inside)) == -1) == pytest.approx(0.05, abs=0.025)
    np.testing.assert_allclose(  # the floor does not affect distances inside the span
        detector.mahalanobis(make(inside)),
        detector.sketch_.covariance(0).mahalanobis(inside, detector.location_),
        atol=0.01,
    )
    outside = inside + 0.01 * rng.standard_normal((2000, 40))
    assert (detector.predict(make(outside)) == -1).all()
    assert detector.mahalanobis(make(outside)).min() > 1e4
    further = detector.mahalanobis(make(inside + 10 * (outside - inside)))
    assert (further > 10 * detector.mahalanobis(make(outside))).all()


def test_a_constant_feature_that_changes_is_an_outlier_and_small_features_still_count():
    X = stream(500, 4) * [1e4, 1.0, 1e-1, 0.0] + [0.0, 0.0, 0.0, 7.0]
    detector = MahalanobisDetector(10).partial_fit(X)
    usual = X[:1].copy()
    changed = usual + [0, 0, 0, 100.0]
    assert detector.predict(usual) == 1 and detector.predict(changed) == -1
    narrow = MahalanobisDetector(10).fit(X[:, :3])  # full rank: no floor at all
    exact = EmpiricalCovariance().fit(X[:, :3] / [1e4, 1.0, 1e-1])
    np.testing.assert_allclose(narrow.mahalanobis(X[:, :3]), exact.mahalanobis(X[:, :3] / [1e4, 1.0, 1e-1]), rtol=1e-3)


@pytest.mark.parametrize("row", [np.zeros(5), np.full(5, 2.0), np.arange(5) * 1e100])
@pytest.mark.parametrize("n", [1, 200])
def test_one_row_again_and_again(row, n):
    detector = MahalanobisDetector(5).partial_fit(np.tile(row, (n, 1)))
    assert detector.predict([row]) == 1
    far = row + 10 * (1 + np.abs(row).max())
    assert detector.predict([far]) == -1
    assert MahalanobisDetector(5).fit(np.tile(row, (n, 1))).predict([row, far]).tolist() == [1, -1]


# -- scikit-learn conventions


def test_size_may_not_change_midway_but_contamination_may():
    detector = MahalanobisDetector(10).partial_fit(stream(100))
    with pytest.raises(ValueError, match="sketch_size was changed from 10 to 11"):
        detector.set_params(sketch_size=11).partial_fit(stream(5))
    detector.set_params(sketch_size=10, contamination=0.5).partial_fit(stream(0))
    assert detector.contamination_ == pytest.approx(0.5, abs=0.05)


def test_memory_does_not_grow_with_the_stream():
    detector = MahalanobisDetector(5).partial_fit(stream(100))
    size = len(pickle.dumps(detector))
    in_batches(detector, stream(10_000), [100])
    assert len(pickle.dumps(detector)) < size + 5000


def test_feature_names_are_compared():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(stream(50, 3), columns=list("abc"))
    detector = MahalanobisDetector(5).partial_fit(X)
    assert list(detector.feature_names_in_) == list("abc")
    with pytest.raises(ValueError, match="feature names"):
        detector.partial_fit(X[["a", "c", "b"]])


# -- trimming


@pytest.mark.parametrize("size", ["auto", 8])
def test_trimming_keeps_outliers_among_the_first_rows_from_counting_as_normal(size):
    X, rng = stream(1000), np.random.default_rng(7)
    wild = rng.choice(1000, 80, replace=False)
    X[wild] = 3.0 + (X[wild] - 3.0) * rng.uniform(2.0, 6.0, (80, 1))
    clean = EmpiricalCovariance().fit(np.delete(X, wild, axis=0))
    plain, trimmed = (MahalanobisDetector(size, trim=trim).fit(X) for trim in (0.0, 0.1))
    if size == "auto":
        off = [np.abs(clean.mahalanobis(X) / each.mahalanobis(X) - 1).mean() for each in (plain, trimmed)]
        assert off[1] < off[0] / 2
    found = [np.mean(each.predict(X)[wild] == -1) for each in (plain, trimmed)]
    assert found[1] >= found[0] and trimmed.n_samples_seen_ == 900
    assert np.mean(np.delete(trimmed.predict(X), wild) == -1) < 0.05
    np.testing.assert_allclose(MahalanobisDetector(size, trim=0.1).fit(sp.csr_array(X)).location_, trimmed.location_)


def test_trimming_is_refused_where_it_makes_no_sense():
    for trim, error, message in (
        (0.6, ValueError, r"trim must be in \[0, 0.5\]"),
        ("x", TypeError, "trim must be a number"),
    ):
        with pytest.raises(error, match=message):
            MahalanobisDetector(trim=trim).fit(stream(30))
    with pytest.raises(ValueError, match="trim must be 0 with window=20, got 0.1"):
        MahalanobisDetector(trim=0.1, window=20).fit(stream(30))
