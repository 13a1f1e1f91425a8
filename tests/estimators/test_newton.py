"""The untuned learners: probabilities, many classes, targets of any scale, outliers, meaning of coef_."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor
from tests.estimators.online_faces import stream


def split(X, y, seed=0):
    order = np.random.default_rng(seed).permutation(len(y))
    k = int(0.7 * len(y))
    return X[order[:k]], y[order[:k]], X[order[k:]], y[order[k:]]


# -- probabilities


@pytest.mark.parametrize(("load", "bound", "accuracy"), [(load_breast_cancer, 0.15, 0.94), (load_digits, 0.25, 0.93)])
def test_real_rows(load, bound, accuracy):
    X, y, new, labels = split(*load(return_X_y=True))
    model = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    assert model.score(new, labels) > accuracy
    assert log_loss(labels, model.predict_proba(new)) < bound
    assert model.progressive_error_ < 0.12


def logistic_rows(classes, strength, *, n=9000, d=8, seed=0):
    """Return rows, labels and true probabilities of a logistic model. Columns are correlated and of any scale."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.4 * rng.standard_normal((d, d)))
    X = X * np.exp(rng.uniform(-3, 3, d)) + rng.uniform(-5, 5, d)
    W = strength * rng.standard_normal((d, classes)) / np.sqrt(d)
    truth = softmax(scale(X) @ W, axis=1)
    return X, (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1), truth


def calibration_error(chances, y, bins=15):
    """Return the expected calibration error over bins with equal numbers of rows."""
    confidence, right = chances.max(axis=1), chances.argmax(axis=1) == y
    some = np.array_split(np.argsort(confidence), bins)
    return sum(abs(confidence[each].mean() - right[each].mean()) * len(each) for each in some) / len(y)


@pytest.mark.parametrize("strength", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("classes", "margin"), [(2, 0.01), (4, 0.03), (20, 0.12)])
def test_known_probabilities_are_found(classes, margin, strength):
    """After 6000 rows, probabilities are calibrated and the log loss is near that of batch logistic regression.

    The calibration error of the true probabilities themselves is 0.01 to 0.02 here, since the bins are small.
    """
    X, y, truth = logistic_rows(classes, strength)
    model = SketchedNewtonClassifier(shuffle=False).fit(X[:6000], y[:6000])
    batch = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[:6000], y[:6000])
    found = model.predict_proba(X[6000:])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert calibration_error(found, y[6000:]) < 0.045
    assert log_loss(y[6000:], found) < log_loss(y[6000:], batch.predict_proba(X[6000:])) + margin
    assert np.abs(found - truth[6000:]).mean() < 0.05


def test_probabilities_go_with_margins():
    for classes in (2, 5):
        X, y = stream(300, classes=classes)
        model = SketchedNewtonClassifier(shuffle=False).fit(X, y)
        margins, chances = model.decision_function(X), model.predict_proba(X)
        np.testing.assert_array_equal(model.predict(X), chances.argmax(axis=1))
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        if classes == 2:
            assert margins.shape == (300,)
            np.testing.assert_allclose(chances[:, 1], expit(margins), atol=1e-3)
            np.testing.assert_array_equal(np.argsort(margins), np.argsort(chances[:, 1]))
        else:
            assert margins.shape == (300, 5)
            np.testing.assert_array_equal(np.argsort(margins), np.argsort(chances))


# -- many classes


def test_twenty_classes_in_one_pass_are_better_than_twenty_models():
    """The softmax is at least as accurate as one-vs-rest models."""
    X, y, _ = logistic_rows(20, 3.0, d=20)
    model = SketchedNewtonClassifier(shuffle=False).fit(X[:6000], y[:6000])
    assert model.coef_.shape == (20, 20) and model.intercept_.shape == (20,)
    single = np.column_stack(
        [
            SketchedNewtonClassifier(shuffle=False).fit(X[:6000], y[:6000] == c).decision_function(X[6000:])
            for c in range(20)
        ]
    )
    assert model.score(X[6000:], y[6000:]) > np.mean(single.argmax(axis=1) == y[6000:]) - 0.005


def test_a_class_between_two_others_is_learned():
    """No line separates the middle class from the others, so one-vs-rest is not enough."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 6))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    assert SketchedNewtonClassifier(shuffle=False).fit(X[:3000], y[:3000]).score(X[3000:], y[3000:]) > 0.95


# -- weights


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_weight_is_about_as_many_rows_over_the_stream(seed):
    """The results are not equal: a row of weight 3 takes one step with three times the curvature."""
    X, y, _ = logistic_rows(3, 1.5, n=6000, seed=seed)
    rng = np.random.default_rng(seed)
    weight = rng.integers(1, 5, 3000) * np.where(y[:3000] == 0, 3, 1)
    rows = rng.permutation(np.repeat(np.arange(3000), weight))
    plain, weighted, repeated = (
        SketchedNewtonClassifier(shuffle=False).fit(*each).predict_proba(X[3000:])
        for each in ((X[:3000], y[:3000]), (X[:3000], y[:3000], weight), (X[rows], y[rows]))
    )
    assert np.abs(weighted - repeated).mean() < 0.04
    assert np.abs(weighted - plain).mean() > 0.08  # the weights matter
    assert weighted[:, 0].mean() > plain[:, 0].mean() + 0.1


def test_weights_of_numbers_are_of_the_squared_errors():
    """Two halves of the rows have slopes 1 and 3. The weights determine where the predictions lie between them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3))
    half = rng.random(4000) < 0.5
    y = np.where(half, 1.0, 3.0) * X[:, 0] + 0.1 * rng.standard_normal(4000)
    for ratio in (1.0, 3.0, 9.0):
        predicted = (
            SketchedNewtonRegressor(shuffle=False).fit(X, y, sample_weight=np.where(half, 1.0, ratio)).predict(X)
        )
        slope = X[:, 0] @ predicted / (X[:, 0] @ X[:, 0])
        assert slope == pytest.approx((1.0 + 3.0 * ratio) / (1.0 + ratio), rel=0.06)


# -- meaning of coef_


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sketch_size", ["auto", 0, 4])
def test_the_regressor_is_linear(sparse, sketch_size):
    X, y = stream(300, numbers=True)
    X = sp.csr_array(X) if sparse else X
    model = SketchedNewtonRegressor(sketch_size, shuffle=False).fit(X, y)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_are_mean_effects(classes):
    X, y = stream(600, classes=classes)
    model = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    margins = (X @ model.coef_.T + model.intercept_).reshape(model.decision_function(X).shape)
    assert np.corrcoef(margins.ravel(), model.decision_function(X).ravel())[0, 1] > 0.97


def test_features_need_no_scaling():
    """The scale and offset of columns hardly change the predictions, as scales are learned from the rows."""
    X, y = stream(600, classes=3)
    plain = SketchedNewtonClassifier(shuffle=False).fit(X, y).predict_proba(X)
    factors = 10.0 ** np.random.default_rng(0).integers(-8, 8, 8)
    np.testing.assert_allclose(
        SketchedNewtonClassifier(shuffle=False).fit(X * factors, y).predict_proba(X * factors), plain, atol=1e-5
    )


def test_order_of_columns_does_not_matter():
    X, y = stream(200, classes=3)
    plain = SketchedNewtonClassifier(4, shuffle=False).fit(X, y)
    turned = SketchedNewtonClassifier(4, shuffle=False).fit(X[:, ::-1], y)
    np.testing.assert_allclose(turned.predict_proba(X[:, ::-1]), plain.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(turned.coef_[:, ::-1], plain.coef_, atol=1e-4 * np.abs(plain.coef_).max())


def test_names_of_classes_do_not_matter():
    X, y = stream(200, classes=4)
    other = np.array([2, 0, 3, 1])
    plain, turned = (
        SketchedNewtonClassifier(4, shuffle=False).fit(X, y),
        SketchedNewtonClassifier(4, shuffle=False).fit(X, other[y]),
    )
    np.testing.assert_allclose(turned.predict_proba(X)[:, other], plain.predict_proba(X), atol=1e-7)
    two = SketchedNewtonClassifier(4, shuffle=False).fit(X, y > 1).decision_function(X)
    np.testing.assert_allclose(
        SketchedNewtonClassifier(4, shuffle=False).fit(X, y <= 1).decision_function(X), -two, atol=1e-7
    )


# -- regression


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("factor", [1e-6, 1e6, -1.0, 1e-100, 1e100])
@pytest.mark.parametrize("shift", [0.0, 7.0, -1e4])
def test_scale_and_origin_of_targets_do_not_matter(loss, factor, shift):
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:300], y[:300] / 100
    plain = SketchedNewtonRegressor(loss=loss, shuffle=False).fit(X, y)
    other = SketchedNewtonRegressor(loss=loss, shuffle=False).fit(X, factor * (y + shift))
    np.testing.assert_allclose(other.predict(X) / factor - shift, plain.predict(X), atol=1e-7 * max(1, abs(shift)))
    np.testing.assert_allclose(
        other.coef_ / factor, plain.coef_, atol=1e-6 * np.abs(plain.coef_).max() * max(1, abs(shift))
    )


def test_regression_comes_near_the_optimum():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 20)) @ rng.standard_normal((20, 20)) + 3.0  # correlated
    y = X @ rng.standard_normal(20) + rng.standard_normal(4000) + 100.0
    X, y, new, truth = split(X, y)
    best = Ridge(1e-3).fit(X, y).score(new, truth)
    assert SketchedNewtonRegressor(shuffle=False).fit(X, y).score(new, truth) > best - 0.03
    assert SketchedNewtonRegressor(loss="huber", shuffle=False).fit(X, y).score(new, truth) > best - 0.03


@pytest.mark.parametrize("seed", range(3))
def test_huber_does_not_follow_outliers(seed):
    """5 % of the rows are outliers on one side. The squared loss follows them; the Huber loss does not."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 8))
    clean = X @ rng.standard_normal(8) + 0.3 * rng.standard_normal(3000)
    y = clean + 100.0 * (rng.random(3000) < 0.05) * rng.uniform(0.5, 1.5, 3000)
    error = {
        loss: np.abs(
            SketchedNewtonRegressor(loss=loss, shuffle=False).fit(X[:2000], y[:2000]).predict(X[2000:]) - clean[2000:]
        ).mean()
        for loss in ("squared", "huber")
    }
    assert error["huber"] < error["squared"] / 3


def test_skewed_columns_of_any_scale():
    rng = np.random.default_rng(3)
    X = rng.standard_t(2.5, (3000, 3)) * [1e-3, 1.0, 1e3] + [0.0, 5.0, -1e4]
    y = (X - X.mean(axis=0)) / X.std(axis=0) @ [1.0, -2.0, 0.5] + 7.0
    model = SketchedNewtonRegressor(shuffle=False).fit(X[:2000], y[:2000])
    assert model.score(X[2000:], y[2000:]) > 0.95  # the largest targets were never seen
