"""SketchedRidge: ridge regression if the sketch is exact, within the perturbation bound otherwise."""

import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge

from robustfd import SketchSizeWarning
from robustfd.estimators.ridge import SketchedRidge

pytestmark = pytest.mark.filterwarnings("ignore::robustfd.SketchSizeWarning")  # the sketches here are small


# With shrink steps, a repeated row and a row of weight 2 enter at different steps: results are equal within the
# certificate, not to 1e-7. Without shrink steps (the default here) the same checks pass.
def problem(n=200, d=12, t=None, seed=0, offset=3.0, ratio=0.9):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * ratio ** np.arange(d)
    w = rng.standard_normal((d, t or 1))
    y = X @ w + 0.1 * rng.standard_normal((n, t or 1)) + offset
    return X + offset, y if t else y[:, 0]


def in_batches(ridge, X, y, cuts):
    for batch in np.split(np.arange(X.shape[0]), cuts):
        ridge.partial_fit(X[batch], y[batch])
    return ridge


def assert_same_model(one, two, rtol=1e-8, **kwargs):
    scale = np.abs(two.coef_).max()
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=rtol, atol=rtol * scale, **kwargs)
    np.testing.assert_allclose(one.intercept_, two.intercept_, rtol=rtol, atol=rtol * scale, **kwargs)
    assert np.shape(one.coef_) == np.shape(two.coef_) and np.shape(one.intercept_) == np.shape(two.intercept_)


# -- exact results


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("t", [None, 3])
@pytest.mark.parametrize("regularization", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(("n", "d"), [(200, 12), (20, 150)])
def test_exact_sketch_gives_ridge_regression(n, d, t, regularization, fit_intercept):
    X, y = problem(n, d, t)  # the second case has rank at most 20, below the sketch size
    ridge = SketchedRidge(regularization, sketch_size=25, fit_intercept=fit_intercept).fit(X, y)
    exact = Ridge(regularization, fit_intercept=fit_intercept, solver="svd").fit(X, y)
    assert ridge.sketch_.error_bound_ <= 1e-9 * ridge.sketch_.squared_norm_  # rounding
    assert_same_model(ridge, exact)
    np.testing.assert_allclose(ridge.predict(X), exact.predict(X), rtol=1e-8, atol=1e-7)
    assert ridge.score(X, y) == pytest.approx(exact.score(X, y), abs=1e-9)
    assert ridge.n_samples_seen_ == n


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_regularization_and_exact_sketch_give_the_least_squares_of_smallest_norm(fit_intercept):
    X, y = problem(20, 100, offset=0.0)
    ridge = SketchedRidge(0.0, fit_intercept=fit_intercept).fit(X, y)
    mean = fit_intercept * X.mean(axis=0)
    truth = np.linalg.pinv(X - mean) @ (y - fit_intercept * y.mean())
    np.testing.assert_allclose(ridge.coef_, truth, atol=1e-8)
    np.testing.assert_allclose(ridge.predict(X), y, atol=1e-8)


def test_no_regularization_is_solvable_by_the_alpha_of_the_sketch():
    X, y = problem(100, 300, offset=0.0)  # rank-deficient, and more directions than the sketch has
    ridge = SketchedRidge(0.0, sketch_size=20).fit(X, y)
    assert ridge.sketch_.alpha_ > 0
    assert ridge.score(X, y) > 0.9
    gradient = (X - X.mean(axis=0)).T @ (y - y.mean())
    np.testing.assert_allclose(ridge.sketch_.second_moment() @ ridge.coef_, gradient, rtol=1e-8, atol=1e-10)


def test_predictions_have_the_shape_of_the_targets():
    X, y = problem()  # versions of scikit-learn differ in the shape for a column of targets
    vector, column = SketchedRidge().fit(X, y), SketchedRidge().fit(X, y[:, None])
    assert vector.predict(X).shape == (200,) and vector.coef_.shape == (12,)
    assert column.predict(X).shape == (200, 1) and column.coef_.shape == (1, 12) and column.intercept_.shape == (1,)
    np.testing.assert_array_equal(vector.predict(X), column.predict(X)[:, 0])
    assert vector.partial_fit(X, y[:, None]).predict(X).shape == (200,)  # the first targets determine the shape


# -- results within the perturbation bound


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 150),
    d=st.integers(2, 40),
    m=st.integers(2, 12),
    regularization=st.sampled_from([1e-2, 1.0, 1e3]),
    fit_intercept=st.booleans(),
)
def test_perturbation_bound_holds(seed, n, d, m, regularization, fit_intercept):
    X, y = problem(n, d, seed=seed)
    ridge = SketchedRidge(regularization, sketch_size=m, fit_intercept=fit_intercept).fit(X, y)
    A, b = X - fit_intercept * X.mean(axis=0), y - fit_intercept * y.mean()
    H = A.T @ A + regularization * np.eye(d)
    exact = np.linalg.solve(H, A.T @ b)
    M = ridge.sketch_.second_moment()
    rounding = 1e-9 * np.trace(H)
    assert np.linalg.norm(M.to_dense() - H, 2) <= ridge.sketch_.error_bound_ + rounding
    floor = M.eigenvalues()[-1] - ridge.sketch_.error_bound_
    assert floor >= regularization * (1 - 1e-12) - rounding
    bound = (ridge.sketch_.error_bound_ + rounding) / max(floor, regularization) * np.linalg.norm(ridge.coef_)
    assert np.linalg.norm(ridge.coef_ - exact) <= bound


def test_larger_sketches_come_closer():
    X, y = problem(2000, 80)
    exact = Ridge(1.0).fit(X, y).coef_
    errors = [np.linalg.norm(SketchedRidge(1.0, sketch_size=m).fit(X, y).coef_ - exact) for m in (10, 20, 40, 81)]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-10


def test_prediction_of_real_rows(a9a):
    X, y = a9a
    ridge = in_batches(SketchedRidge(1.0, sketch_size=60), X, y, [10_000, 10_001, 20_000])
    right, exact = (np.mean(np.sign(r.predict(X)) == y) for r in (ridge, Ridge(1.0).fit(X, y)))
    assert right > exact - 0.01 > 0.83


# -- any batches, any rows


def test_one_row_at_a_time():
    X, y = problem(150, 12)
    ridge = in_batches(SketchedRidge(1.0, sketch_size=6), X, y, np.arange(1, 150))
    assert_same_model(ridge, SketchedRidge(1.0, sketch_size=6).fit(X, y))
    assert_same_model(in_batches(SketchedRidge(1.0), X, y, np.arange(1, 150)), Ridge(1.0).fit(X, y))


def test_blocks_of_a_long_batch_do_not_matter(monkeypatch):
    X, y = problem(300, 12, 2)
    for decay in (1.0, 0.99):
        whole = SketchedRidge(decay=decay).fit(X, y)
        with monkeypatch.context() as patch:
            patch.setattr("robustfd.estimators.ridge.BLOCK", 12 * 7)
            assert_same_model(SketchedRidge(decay=decay).fit(X, y), whole)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_large_offsets_do_not_hide_the_slope(container):
    X, y = problem(400, 12, offset=0.0)
    near, far = SketchedRidge(1.0).fit(X, y), SketchedRidge(1.0)
    for rows in np.array_split(np.arange(400), 4):
        far.partial_fit(container(X[rows] + 1e6), y[rows] - 1e6)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(far.predict(X + 1e6), near.predict(X) - 1e6, atol=1e-6)


def test_float32_in_float32_out():
    X, y = problem(200, 30)
    ridge = SketchedRidge().fit(X.astype(np.float32), y)
    assert ridge.coef_.dtype == ridge.predict(X.astype(np.float32)).dtype == np.float32
    two = SketchedRidge().fit(X.astype(np.float32), np.column_stack([y, y]))
    assert two.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(ridge.coef_, SketchedRidge().fit(X, y).coef_, atol=1e-5)
    assert ridge.partial_fit(X, y).coef_.dtype == np.float64


def test_integers_and_memory_maps(tmp_path):
    X, y = np.random.default_rng(0).integers(0, 256, (100, 9), dtype=np.uint8), np.arange(100)
    np.save(tmp_path / "X.npy", X)
    expected = Ridge(1.0).fit(X.astype(float), y)
    assert_same_model(SketchedRidge().fit(X, y), expected)
    assert_same_model(SketchedRidge().fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y), expected)


# -- weights, forgetting, merging


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weight_two_is_the_row_twice_and_weight_zero_is_none(fit_intercept):
    X, y = problem(60, 8, 2)
    weight = np.arange(60) % 3
    ridge = SketchedRidge(fit_intercept=fit_intercept).fit(X, y, sample_weight=weight)
    assert_same_model(ridge, clone(ridge).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight, axis=0)))
    assert_same_model(ridge, Ridge(fit_intercept=fit_intercept).fit(X, y, sample_weight=weight))
    assert ridge.n_samples_seen_ == 40


@pytest.mark.parametrize("decay", [0.97, 1e-3])
def test_forgetting_is_geometric_weights(decay):
    X, y = problem(60, 8)
    weight = 0.5 + np.random.default_rng(0).random(60)
    ridge = SketchedRidge(decay=decay)
    for rows in (slice(0, 7), slice(7, 8), slice(8, 60)):
        ridge.partial_fit(X[rows], y[rows], sample_weight=weight[rows])
    assert_same_model(ridge, Ridge().fit(X, y, sample_weight=weight * decay ** np.arange(59.0, -1.0, -1.0)))


def test_mean_is_that_of_the_sketch():
    X, y = problem(300, 12)
    ridge = in_batches(SketchedRidge(decay=0.98, sketch_size=5), X, y, [1, 50, 211])
    np.testing.assert_allclose(ridge._moments.x_mean, ridge.sketch_.mean_, rtol=1e-13)
    np.testing.assert_allclose(ridge._moments.weight, ridge.sketch_.weight_sum_, rtol=1e-13)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_merge_is_the_regression_on_all_rows(fit_intercept):
    X, y = problem(200, 15, 2)
    X[120:] += 5.0
    one = SketchedRidge(sketch_size=20, fit_intercept=fit_intercept)
    two = clone(one).fit(X[70:], y[70:])
    assert one.fit(X[:70], y[:70]).merge(two) is one
    assert_same_model(one, Ridge(fit_intercept=fit_intercept).fit(X, y))
    assert one.n_samples_seen_ == 200 and two.n_samples_seen_ == 130


def test_regularization_may_change_under_way():
    X, y = problem()
    ridge = SketchedRidge(1.0).fit(X[:100], y[:100]).set_params(regularization=10.0)
    assert_same_model(ridge, Ridge(1.0).fit(X[:100], y[:100]))
    assert_same_model(ridge.partial_fit(X[100:], y[100:]), Ridge(10.0).fit(X, y))


# -- scikit-learn conventions


@pytest.mark.parametrize(
    ("X", "y", "kwargs", "message"),
    [
        (np.full((3, 8), np.nan), np.ones(3), {}, "X contains NaN"),
        (np.ones((3, 8)), [1.0, np.nan, 1.0], {}, "y contains NaN"),
        (np.ones((3, 8)), [1.0, np.inf, 1.0], {}, "y contains infinity"),
        (np.ones((3, 8)), ["a", "b", "c"], {}, "could not convert string"),
        (np.full((3, 8), 1e100), np.full(3, 1e300), {}, "y is too large"),
        (np.ones((3, 8)), np.ones(2), {}, "inconsistent numbers of samples"),
        (np.ones((3, 8)), np.ones((3, 2)), {}, "y has 2 targets, but this SketchedRidge has seen y with 1"),
        (np.ones((3, 8)), None, {}, "requires y to be passed"),
        (np.ones((1, 8)), 3.0, {}, r"y must have shape \(1,\)"),
        (np.ones((3, 7)), np.ones(3), {}, "X has 7 features, but SketchedRidge is expecting 8"),
        (np.ones((3, 8)), np.ones(3), {"sample_weight": [1.0, -1.0, 1.0]}, "Negative weights"),
    ],
)
def test_bad_rows_change_nothing(X, y, kwargs, message):
    ridge = SketchedRidge(sketch_size=5).fit(*problem(30, 8))
    before = pickle.dumps(ridge)
    with pytest.raises(ValueError, match=message):
        ridge.partial_fit(X, y, **kwargs)
    assert pickle.dumps(ridge) == before


def test_fit_intercept_cannot_change_under_way():
    ridge = SketchedRidge().fit(*problem()).set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="fit_intercept was changed from True to False after rows were seen"):
        ridge.partial_fit(*problem())
    assert ridge.fit(*problem()).intercept_ == 0.0


# -- warnings


@pytest.mark.filterwarnings("error::robustfd.SketchSizeWarning")
def test_a_sketch_that_regularises_more_than_asked_for_is_warned_of_with_a_size_that_does():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 1200)) * 0.9 ** np.arange(1200)
    y = X[:, 0]
    with pytest.warns(
        SketchSizeWarning, match=r"an error of up to .*, more than regularization=10: .* sketch_size=\d+ is sufficient"
    ) as found:
        SketchedRidge(10.0, sketch_size=20).fit(X, y)
    assert found[0].filename == __file__
    size = int(re.search(r"sketch_size=(\d+)", str(found[0].message)).group(1))
    assert 20 < size < 1201
    ridge = SketchedRidge(10.0, sketch_size=size).fit(X, y)  # without a warning
    assert ridge.sketch_.error_bound_ <= 10.0
    with pytest.warns(SketchSizeWarning, match="sketch_size=1201 is sufficient"):
        SketchedRidge(0.0, sketch_size=20).fit(X, y)
    lossy = SketchedRidge(sketch_size=3).partial_fit(X[:, :9], y)
    with pytest.warns(SketchSizeWarning, match="Use sketch_size='auto', which keeps the exact matrix"):
        _ = lossy.coef_
    _ = lossy.coef_, lossy.predict(X[:, :9])  # no second warning
    with pytest.warns(SketchSizeWarning):
        _ = lossy.partial_fit(X[:, :9], y).coef_
    SketchedRidge(0.0).fit(X[:, :9], y)
