"""The RFD-SON estimators give the same results as one OnlineNewton per class."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

from robustfd import OnlineNewton, RFDSONClassifier, RFDSONRegressor
from robustfd.estimators._targets import nearest_distribution
from tests.estimators.online_faces import assert_same, stream

PAPER = {"alpha0": 0.0, "fit_intercept": False, "normalize_rows": False}  # settings of the paper's experiments


def scaled(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "hinge"])
@pytest.mark.parametrize("alpha0", [0.0, 0.5])
@pytest.mark.parametrize("wide", [False, True])
def test_two_classes_are_the_paper_s_learner(loss, alpha0, wide):
    X, y = stream(150, classes=2)
    X = scaled(X)
    if wide:
        X = sp.hstack([sp.csr_array(X), sp.csr_array((150, 600))], format="csr")
    model = RFDSONClassifier(4, **{**PAPER, "alpha0": alpha0}, loss=loss, bound=1.5).fit(X, y)
    rate = "1/sqrt(t)" if loss == "hinge" else "1/t"
    learner = OnlineNewton("rfd", 4, alpha0=alpha0, loss=loss, bound=1.5, rate=rate)
    learner.learn(X, 2.0 * y - 1)
    np.testing.assert_allclose(model.decision_function(X), learner.decision_function(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.coef_[0], learner.weights_, rtol=1e-12, atol=1e-14)
    assert model.intercept_ == [0.0]
    assert model.alpha_ == [learner.alpha_]
    assert model.progressive_error_ == learner.progressive_error_
    assert model.progressive_loss_ == pytest.approx(learner.progressive_loss_)


@pytest.mark.parametrize("classes", [3, 20])
@pytest.mark.parametrize("wide", [False, True])
def test_more_classes_are_as_many_learners(wide, classes):
    X, y = stream(400, classes=classes)
    X, one = scaled(X), np.ones((400, 1))
    if wide:
        X = sp.hstack([sp.csr_array(X), sp.csr_array((400, 600))], format="csr")
    model = RFDSONClassifier(4, **{**PAPER, "fit_intercept": True}).fit(X, y)
    assert len(model.classes_) == classes
    with_one = sp.hstack([sp.csr_array(one), X], format="csr") if wide else np.hstack([one, X])
    for c in range(classes):
        learner = OnlineNewton("rfd", 4)
        learner.learn(with_one, np.where(y == c, 1.0, -1.0))
        np.testing.assert_allclose(model.decision_function(X)[:, c], learner.decision_function(with_one), atol=1e-10)
        np.testing.assert_allclose(model.coef_[c], learner.weights_[1:], atol=1e-10)
        assert model.intercept_[c] == pytest.approx(learner.weights_[0], abs=1e-10)
        assert model.alpha_[c] == pytest.approx(learner.alpha_)


def test_the_paper_s_experiment(a9a):
    X, y = a9a
    model, learner = RFDSONClassifier(20, **PAPER).fit(X[:3000], y[:3000]), OnlineNewton()
    learner.learn(X[:3000], y[:3000])
    # `fit` learns the rows in blocks. The block size affects the result by rounding errors only, on some processors.
    some = X[3000:4000]
    np.testing.assert_allclose(model.decision_function(some), learner.decision_function(some), rtol=1e-11, atol=1e-13)
    assert model.score(X[3000:], y[3000:]) > 0.82


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1e-140, 1e140])
def test_rows_are_divided_by_their_lengths(wide, factor):
    X, y = stream(150, classes=2)
    X[7] = 0.0
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    unit = X / np.where(lengths > 0, lengths, 1.0)
    if wide:
        X, unit = (sp.hstack([sp.csr_array((150, 600)), sp.csr_array(rows)], format="csr") for rows in (X, unit))
    plain = RFDSONClassifier(4, normalize_rows=False).fit(unit, y)
    model = RFDSONClassifier(4).fit(factor * X, y)
    np.testing.assert_allclose(
        model.decision_function(factor * X), plain.decision_function(unit), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    one = RFDSONClassifier(4)
    for i in range(150):
        row = X[[i]]
        one.learn_one((row.indices, factor * row.data) if wide else factor * row[0], y[i])
    margins = one.decision_function(factor * X) * (1 if one.classes_[0] == model.classes_[0] else -1)
    np.testing.assert_allclose(margins, model.decision_function(factor * X), rtol=1e-6, atol=1e-9)


def test_defaults_are_good_on_standardised_columns():
    X, y = load_breast_cancer(return_X_y=True)
    X, order = scale(X), np.random.default_rng(0).permutation(len(y))
    train, test = order[:400], order[400:]
    assert RFDSONClassifier().fit(X[train], y[train]).score(X[test], y[test]) > 0.93


def test_numbers_are_learned_in_units_of_the_bound():
    X, y = stream(150, numbers=True)
    X = scaled(X)
    model = RFDSONRegressor(4, alpha0=0.0, bound=8.0, fit_intercept=False).fit(X, y)
    learner = OnlineNewton("rfd", 4)
    learner.learn(X, y / 8.0)
    np.testing.assert_allclose(model.predict(X), 8.0 * learner.decision_function(X).clip(-1, 1))
    np.testing.assert_allclose(model.coef_, 8.0 * learner.weights_)
    assert model.alpha_ == learner.alpha_


@pytest.mark.parametrize("loss", ["squared", "absolute", "huber"])
@pytest.mark.parametrize("factor", [1e-6, 1e6, -1.0, 1e-120, 1e120])
def test_scale_of_targets_does_not_matter(loss, factor):
    X, y = stream(200, numbers=True)
    X = scaled(X)
    plain, other = RFDSONRegressor(5, loss=loss).fit(X, y), RFDSONRegressor(5, loss=loss).fit(X, factor * y)
    scale = np.abs(plain.predict(X)).max()
    np.testing.assert_allclose(other.predict(X) / factor, plain.predict(X), atol=1e-6 * scale)
    np.testing.assert_allclose(other.coef_ / factor, plain.coef_, atol=1e-6 * np.abs(plain.coef_).max())
    np.testing.assert_allclose(other.intercept_ / factor, plain.intercept_, atol=1e-6 * np.abs(plain.coef_).max())


def test_targets_that_are_zero_at_first():
    X, y = stream(200, numbers=True)
    X, y = scaled(X), np.where(np.arange(200) < 20, 0.0, y)
    for factor in (1.0, 1e-3, 1e3):
        whole, one = RFDSONRegressor(4).fit(X, factor * y), RFDSONRegressor(4)
        assert np.all(RFDSONRegressor(4).fit(X[:20], y[:20]).predict(X) == 0)
        for row, target in zip(X, factor * y, strict=True):
            one.learn_one(row, target)
        assert_same(one, whole, X, tolerance=1e-7)


def test_no_prediction_is_beyond_the_largest_target():
    X, y = stream(200, numbers=True)
    model = RFDSONRegressor(4).fit(X, y)
    largest = np.abs(y).max()
    assert np.abs(model.predict(1e6 * X)).max() <= 2 * largest
    assert np.abs(RFDSONRegressor(4, bound=1.5).fit(X, y).predict(1e6 * X)).max() == 1.5


def test_a_line_is_found():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 5))
    y = X @ rng.standard_normal(5) + 2.0
    assert RFDSONRegressor(8).fit(X, y).score(X, y) > 0.9


def test_a_weight_is_a_factor_of_the_loss():
    X, y = stream(150, classes=2)
    weight = np.random.default_rng(0).uniform(0.5, 3.0, 150) * (np.arange(150) % 4 > 0)
    model, learner = RFDSONClassifier(4, **PAPER).fit(scaled(X), y, sample_weight=weight), OnlineNewton("rfd", 4)
    learner.learn(scaled(X), 2.0 * y - 1, weight)
    np.testing.assert_allclose(model.coef_[0], learner.weights_, rtol=1e-9, atol=1e-12)
    assert model.progressive_loss_ == pytest.approx(learner.progressive_loss_)
    coef = model.coef_
    model.partial_fit(-scaled(X), y, sample_weight=np.zeros(150))
    np.testing.assert_array_equal(model.coef_, coef)


def test_outliers_pull_less_with_the_losses_that_have_straight_pieces():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 5))
    clean = X @ rng.standard_normal(5)
    y = clean + 60.0 * (rng.random(4000) < 0.03)
    error = {
        loss: np.abs(RFDSONRegressor(8, loss=loss, bound=5.0).fit(X, y).predict(X) - clean.clip(-5, 5)).mean()
        for loss in ("squared", "absolute", "huber")
    }
    assert max(error["absolute"], error["huber"]) < error["squared"] / 2


# -- probabilities


def test_probabilities():
    for classes in (2, 4):
        X, y = stream(200, classes=classes)
        X = scaled(X)
        for loss in ("squared", "logistic", "squared_hinge", "hinge"):
            model = RFDSONClassifier(5, loss=loss).fit(X, y)
            chances, margins = model.predict_proba(X), model.decision_function(X).reshape(200, -1)
            assert chances.shape == (200, classes) and (chances >= 0).all()
            np.testing.assert_allclose(chances.sum(axis=1), 1.0)
            np.testing.assert_array_equal(chances.argmax(axis=1), model.predict(X))
            if loss == "logistic":
                p = expit(margins)
                np.testing.assert_allclose(chances[:, -1], p[:, -1] / p.sum(axis=1) if classes > 2 else p[:, 0])
            elif classes == 2:
                np.testing.assert_allclose(chances[:, 1], (0.5 + 0.5 * margins[:, 0]).clip(0, 1))


def test_nearest_distribution():
    rng = np.random.default_rng(0)
    v = np.vstack([rng.standard_normal((50, 5)), 1e200 * rng.standard_normal((5, 5)), np.zeros((1, 5)), np.eye(5)])
    p = nearest_distribution(v)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (p >= 0).all()
    np.testing.assert_array_equal(p[-5:], np.eye(5))
    np.testing.assert_allclose(p[-6], 0.2)
    # It is the nearest one if the angle with any other distribution is obtuse.
    for q in rng.dirichlet(np.ones(5), 20):
        assert np.all(((v[:50] - p[:50]) * (q - p[:50])).sum(axis=1) <= 1e-12)
