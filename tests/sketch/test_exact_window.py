"""The exact matrix of a window of the last rows, for any batches. The oldest block counts in proportion."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd import MahalanobisDetector, SketchedPCA, SketchedRidge
from robustfd.sketch.exact import ExactWindow


def truth(x, window, weight=None, *, center):
    """Return A'A of the last rows, and their mean, by a loop over rows."""
    length, n = max(1, int(window / 32)), len(x)
    weight = np.ones(n) if weight is None else weight
    share = np.zeros(n)
    for i in range(n):
        end = (i // length + 1) * length
        share[i] = np.clip((end - (n - window)) / length, 0.0, 1.0)
    w = share * weight
    # About the last row: the mean of one row is then exactly this row.
    mean = x[-1] + (w @ (x - x[-1])) / w.sum() if center else np.zeros(x.shape[1])
    matrix = sum(w[i] * np.outer(x[i] - mean, x[i] - mean) for i in range(n))
    return matrix, mean, w.sum()


@given(
    n=st.integers(1, 400), window=st.floats(0.5, 500), seed=st.integers(0, 99), center=st.booleans(),
    sparse=st.booleans(), shift=st.sampled_from([0.0, 1.0, 1e4]),
)  # fmt: skip
def test_matrix_is_that_of_the_last_rows(n, window, seed, center, sparse, shift):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)) * (rng.random((n, 4)) < (0.4 if sparse else 1.0))
    x += shift * np.linspace(0, 1, n)[:, None]
    weight = rng.uniform(0.5, 2.0, n)
    sketch, start = ExactWindow(window, center=center), 0
    while start < n:
        size = int(rng.integers(1, 60))
        rows = sp.csr_array(x[start : start + size]) if sparse else x[start : start + size]
        sketch.partial_fit(rows, sample_weight=weight[start : start + size])
        start += size
    matrix, mean, total = truth(x, window, weight, center=center)
    found = sketch.second_moment().to_dense()
    assert np.linalg.norm(found - matrix, 2) <= sketch.error_bound_ + 1e-9 * np.trace(matrix) + 1e-13 * shift**2 * n
    assert sketch.weight_sum_ == pytest.approx(total)
    if center:
        np.testing.assert_allclose(sketch.mean_, mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [3, 100, 5000.5])
def test_batches_do_not_matter_and_snapshots_work(window):
    x = np.random.default_rng(0).standard_normal((3000, 5)) + np.linspace(0, 50, 3000)[:, None]
    whole, parts = ExactWindow(window, center=True).fit(x), ExactWindow(window, center=True)
    for rows in np.array_split(x, 37):
        parts.partial_fit(rows)
        parts = ExactWindow.from_bytes(parts.to_bytes())
        assert parts.error_bound_ >= 0
    np.testing.assert_array_equal(whole.second_moment().to_dense(), parts.second_moment().to_dense())
    assert whole.to_bytes() == parts.to_bytes()
    before = parts.mean_
    copy.copy(parts).partial_fit(100 + x)
    np.testing.assert_array_equal(parts.mean_, before)


def test_unsupported_operations_are_refused():
    sketch = ExactWindow(100).fit(np.eye(3))
    with pytest.raises(NotImplementedError, match="cannot be merged"):
        sketch.merge(ExactWindow(100).fit(np.eye(3)))
    with pytest.raises(NotImplementedError, match="number of rows"):
        sketch.forget(0.5)
    with pytest.raises(ValueError, match="window must be"):
        ExactWindow(0).fit(np.eye(3))
    with pytest.raises(ValueError, match="window was changed from 100 to 50"):
        sketch.set_params(window=50).partial_fit(np.eye(3))


def test_estimators_follow_a_drifting_mean():
    rng = np.random.default_rng(0)
    n, d = 6000, 8
    x = rng.standard_normal((n, d)) + np.linspace(0, 30, n)[:, None]
    w = rng.standard_normal(d)
    y = x @ w + 0.1 * rng.standard_normal(n) + np.linspace(0, 5, n)
    ridge, pca, detector = SketchedRidge(window=700), SketchedPCA(3, window=700), MahalanobisDetector(window=700)
    for rows in np.array_split(np.arange(n), 40):
        ridge.partial_fit(x[rows], y[rows])
        pca.partial_fit(x[rows])
        detector.partial_fit(x[rows])
    assert all(isinstance(each.sketch_, ExactWindow) for each in (ridge, pca, detector))
    assert ridge.score(x[-500:], y[-500:]) > 0.99
    exact = np.linalg.eigvalsh(np.cov(x[-700:].T))[::-1][:3]
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=0.05)
    usual, odd = x[-500:], x[-500:] + 4 * rng.standard_normal((500, d))
    assert np.mean(detector.predict(usual) == -1) < 0.02 < 0.7 < np.mean(detector.predict(odd) == -1)
    for model in (ridge, pca, detector):
        again = type(model).from_bytes(model.to_bytes())
        assert again.to_bytes() == model.to_bytes()
        again.partial_fit(x[:100], *([y[:100]] if model is ridge else []))


@pytest.mark.parametrize(("window", "d", "m"), [(50, 5, "auto"), (5000, 5, 20), (5000, 400, "auto")])
def test_when_the_matrix_of_a_window_is_not_kept(window, d, m):
    x = np.random.default_rng(0).standard_normal((300, d))
    assert not isinstance(MahalanobisDetector(window=window, sketch_size=m).fit(x).sketch_, ExactWindow)
