"""Estimators of the last rows of a stream: PCA, ridge regression and outlier detection with `window`."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from robustfd import MahalanobisDetector, SketchedPCA, SketchedRidge

pytestmark = pytest.mark.filterwarnings("ignore::robustfd.SketchSizeWarning")  # the sketches here are small
D, N = 30, 400


def changing(n=2000, seed=0, mean=1.0):
    """Return rows whose large variances move to other columns midway."""
    X = np.random.default_rng(seed).standard_normal((n, D)) * 0.7 ** np.arange(D)
    X[n // 2 :] = X[n // 2 :, ::-1]
    return X + mean


@pytest.mark.parametrize("batch", [1, 37, 2000])
def test_variances_are_those_of_the_window(batch):
    X = changing(1500 if batch == 1 else 2000)
    pca = SketchedPCA(3, sketch_size=30, window=N)
    for start in range(0, len(X), batch):
        pca.partial_fit(X[start : start + batch])
    exact = np.linalg.eigvalsh(np.cov(X[-N:].T))[::-1][:3]
    assert np.all(np.abs(pca.explained_variance_ - exact) <= pca.explained_variance_error_bound_)
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=0.1)
    truth = np.linalg.eigh(np.cov(X[-N:].T))[1][:, ::-1][:, :1]
    assert abs((pca.components_[:1] @ truth).item()) > 0.99
    np.testing.assert_allclose(pca.mean_, X[-N:].mean(axis=0), atol=0.2)


def test_windows_of_pca_merge():
    X = changing()
    one, two = (SketchedPCA(3, sketch_size=30, window=N).fit(X[i::2]) for i in (0, 1))
    both = one.merge(two)
    exact = np.linalg.eigvalsh(np.cov(X[-2 * N :].T))[::-1][:3]
    np.testing.assert_allclose(both.explained_variance_, exact, rtol=0.15)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("batch", [7, 2000])
def test_ridge_follows_weights_that_change(fit_intercept, batch):
    X, rng = changing(mean=float(fit_intercept)), np.random.default_rng(1)
    w = rng.standard_normal((2, D))
    y = np.where(np.arange(2000) < 1500, X @ w[0], X @ w[1]) + 3.0 * fit_intercept
    ridge = SketchedRidge(1.0, sketch_size=60, window=N, fit_intercept=fit_intercept)
    for start in range(0, 2000, batch):
        ridge.partial_fit(X[start : start + batch], y[start : start + batch])
    exact = Ridge(1.0, fit_intercept=fit_intercept).fit(X[-N:], y[-N:])
    assert ridge.score(X[-N:], y[-N:]) > exact.score(X[-N:], y[-N:]) - 0.05
    assert ridge.score(X[:1500], y[:1500]) < 0.9  # rows outside the window


def test_ridge_does_not_depend_on_the_batches():
    X, y = changing(), changing(seed=1)[:, :2]
    whole, parts = SketchedRidge(sketch_size=20, window=150).fit(X, y), SketchedRidge(sketch_size=20, window=150)
    for start in range(0, 2000, 23):
        parts.partial_fit(X[start : start + 23], y[start : start + 23])
    np.testing.assert_allclose(whole.coef_, parts.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole.intercept_, parts.intercept_, rtol=1e-9)


def test_a_detector_follows_a_stream():
    """After the change, new rows are normal and old rows are outliers."""
    X = changing(6000)
    detector, still = MahalanobisDetector(30, contamination=0.02, window=800), MahalanobisDetector(30)
    for start in range(0, 6000, 100):
        detector.partial_fit(X[start : start + 100])
        still.partial_fit(X[start : start + 100])
    new, old = changing(6000, seed=5)[3000:], changing(6000, seed=5)[:3000]
    assert np.mean(detector.predict(new) == -1) < 0.1
    assert np.mean(detector.predict(old) == -1) > 0.95
    assert np.mean(still.predict(old) == -1) < 0.5  # the model without a window includes all rows
    fitted = MahalanobisDetector(30, contamination=0.05, window=800).fit(X)
    assert fitted.contamination_ == pytest.approx(0.05, abs=0.01)
    assert np.mean(fitted.predict(new) == -1) < 0.15


@pytest.mark.parametrize("make", [SketchedPCA, SketchedRidge, MahalanobisDetector])
def test_what_does_not_go_with_a_window_is_refused(make):
    X = changing(50)
    given = (X, X[:, 0]) if make is SketchedRidge else (X,)
    for option in ({"decay": 0.9}, {"buffer_size": 200}, {"solver": "svd"}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} must be .* with window=30"):
            make(sketch_size=10, window=30, **option).fit(*given)
    with pytest.raises(ValueError, match="window must be in"):
        make(sketch_size=10, window=0).fit(*given)
    fitted = make(sketch_size=10, window=30).fit(*given)
    with pytest.raises(ValueError, match="window was changed from 30 to 40"):
        fitted.set_params(window=40).partial_fit(*given)
    with pytest.raises(ValueError, match="window was changed from 30 to None"):
        fitted.set_params(window=None).partial_fit(*given)
    if make is SketchedRidge:
        with pytest.raises(ValueError, match="cannot be merged"):
            make(window=30).merge(make(window=30))
