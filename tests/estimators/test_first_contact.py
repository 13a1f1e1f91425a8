"""Expectations of scikit-learn users of the untuned learners."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegression, PoissonRegressor, QuantileRegressor
from sklearn.metrics import mean_pinball_loss, mean_poisson_deviance
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor


def table(n=400, d=5, *, seed=0, gaps=0.2):
    """Return rows with missing values, and labels that depend on the missing values in column 3."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-2, 3, d) + rng.integers(-5, 6, d)
    y = X[:, 0] > np.median(X[:, 0])
    missing = rng.random((n, d)) < gaps
    y |= missing[:, 3]
    X[missing] = np.nan
    return X, y


# -- fit


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits, load_breast_cancer])
def test_data_sets_as_they_come_are_learned_as_well_as_by_logistic_regression(load):
    X, y = load(return_X_y=True)
    batch = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    ours = np.mean([cross_val_score(SketchedNewtonClassifier(random_state=s), X, y).mean() for s in range(3)])
    assert ours > cross_val_score(batch, X, y).mean() - 0.02


def test_fit_shuffles_and_partial_fit_does_not():
    X, y = load_iris(return_X_y=True)
    model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9 and model.n_samples_seen_ == 150
    np.testing.assert_array_equal(
        model.decision_function(X), SketchedNewtonClassifier(random_state=0).fit(X, y).decision_function(X)
    )
    X, y = make_classification(1000, 8, n_informative=5, n_classes=3, random_state=0)  # too many rows to learn twice
    order = np.random.RandomState(0).permutation(len(y))
    model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    by_hand = SketchedNewtonClassifier().partial_fit(X[order], y[order], classes=np.arange(3))
    np.testing.assert_array_equal(model.decision_function(X), by_hand.decision_function(X))
    in_order = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    as_stream = SketchedNewtonClassifier().partial_fit(X, y, classes=np.arange(3))
    np.testing.assert_array_equal(in_order.decision_function(X), as_stream.decision_function(X))


@pytest.mark.parametrize(("rows", "features", "passes"), [(255, 2, 3), (300, 40, 1), (300, 30, 2), (300, 3, 1)])
def test_few_rows_are_learned_again(rows, features, passes):
    X, y = make_classification(rows, features, n_informative=2, n_redundant=0, random_state=0)
    models = (SketchedNewtonClassifier(epochs=k, random_state=0).fit(X, y) for k in (1, passes))
    one, other = (model.decision_function(X) for model in models)
    np.testing.assert_array_equal(one, other)
    more = SketchedNewtonClassifier(epochs=passes + 1, random_state=0).fit(X, y)
    assert not np.array_equal(one, more.decision_function(X))


def test_known_rows_decide_neither_shares_nor_experts():
    X, y = make_classification(900, 100, n_informative=5, flip_y=0.4, random_state=0)  # the exact Hessian gains nothing
    one, three = (SketchedNewtonClassifier(shuffle=False, epochs=k).fit(X, y) for k in (1, 3))
    assert one.hessian_ == three.hessian_ == "exact" and one.experts_ == three.experts_
    assert not np.array_equal(one.decision_function(X), three.decision_function(X))
    assert three.partial_fit(X, y).n_samples_seen_ == 1800  # rows that follow are judged, but not at once
    assert three.hessian_ == "exact"


def test_epochs_learn_again_and_judge_once():
    X, y = load_iris(return_X_y=True)
    once, thrice = (SketchedNewtonClassifier(epochs=k, random_state=0).fit(X, y) for k in (3, 5))
    assert once.n_samples_seen_ == thrice.n_samples_seen_ == 150
    assert once.progressive_error_ == thrice.progressive_error_
    assert not np.array_equal(once.decision_function(X), thrice.decision_function(X))


def test_shuffled_sparse_rows_are_those_of_dense_ones():
    X, y = load_digits(return_X_y=True)
    one, two = (SketchedNewtonClassifier(random_state=1).fit(rows, y) for rows in (X, sp.csr_array(X)))
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), rtol=1e-6)


# -- explanations


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris, load_digits])
@pytest.mark.parametrize("sparse", [False, True])
def test_contributions_sum_to_the_margins(load, sparse):
    X, y = load(return_X_y=True)
    model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    found = model.contributions(sp.csr_array(X) if sparse else X)
    found = found if isinstance(found, list) else [found]
    assert all(sp.issparse(each) == sparse and each.shape == X.shape for each in found)
    sums = np.column_stack([each.sum(axis=1) for each in found]) + model.intercept_
    margins = model.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(sums, margins, atol=1e-5 * np.abs(margins).max())


@pytest.mark.parametrize("sparse", [False, True])
def test_effects_are_the_usual_sizes_of_contributions(sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 6)) * (1e-3, 1, 1e3, 1, 10, 1) + (0, 5, 0, 0, 0, 0)
    X *= rng.random(X.shape) < (1, 1, 1, 0.5, 0.1, 0.02)
    y = X @ (1e3, 0.5, 2e-3, 1, 0.1, 1) + 0.1 * rng.standard_normal(2000)
    model = SketchedNewtonRegressor(random_state=0).fit(sp.csr_matrix(X) if sparse else X, y)
    found = model.contributions(X)
    found[:, :3] -= found[:, :3].mean(axis=0)  # columns that are rarely 0
    sizes = np.abs(found).mean(axis=0)
    np.testing.assert_array_equal(np.sign(model.effects_[0]), np.sign(model.coef_))
    ratio = sizes / np.abs(model.effects_[0])  # mean absolute value of a normal variable over its root mean square
    assert np.all((ratio > 0.6) & (ratio < 1.0)), ratio


def test_contributions_to_a_number_are_weights_times_values():
    X, y = load_diabetes(return_X_y=True)
    model = SketchedNewtonRegressor(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.contributions(X), X * model.coef_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X), rtol=1e-4)


def test_what_is_missing_contributes_to_its_column():
    X, y = table()
    model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    found = model.contributions(X)
    np.testing.assert_allclose(found.sum(axis=1) + model.intercept_, model.decision_function(X), atol=1e-4)
    assert found[np.isnan(X[:, 3]), 3].mean() > found[~np.isnan(X[:, 3]), 3].mean() + 0.5


# -- missing values


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_values_are_learned_from(sparse):
    X, y = table(3000)
    rows = sp.csr_array(X) if sparse else X
    model = SketchedNewtonClassifier(shuffle=False).fit(rows[:2000], y[:2000])
    filled = np.where(np.isnan(X), np.nanmean(X[:2000], axis=0), X)
    without = SketchedNewtonClassifier(shuffle=False).fit(filled[:2000], y[:2000])
    assert model.score(rows[2000:], y[2000:]) > without.score(filled[2000:], y[2000:]) + 0.03


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from([0.02, 0.3, 0.9]))
def test_missing_values_do_not_depend_on_batches(seed, sizes, gaps):
    X, y = table(300, 4, seed=seed, gaps=gaps)
    y[:2] = True, False
    whole, parts = SketchedNewtonClassifier(shuffle=False).fit(X, y), SketchedNewtonClassifier(shuffle=False)
    start = 0
    while start < len(y):
        size = sizes[start % len(sizes)]
        part = slice(start, start + size)
        rows = sp.csr_array(X[part]) if size % 3 == 0 else X[part]
        parts.partial_fit(rows, y[part], classes=[False, True])
        parts = SketchedNewtonClassifier.from_bytes(parts.to_bytes())
        start += size
    np.testing.assert_array_equal(parts.decision_function(X), whole.decision_function(X))


def test_a_column_without_any_value_and_infinity():
    X, y = table(100)
    X[:, 1] = np.nan
    model = SketchedNewtonClassifier().fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()
    before = model.to_bytes()
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.where(np.isnan(X), np.inf, X), y)
    assert model.to_bytes() == before


def test_dicts_with_none_and_without_a_usual_feature():
    X, y = table(1500, seed=3)
    rows = [{f"x{j}": value for j, value in enumerate(row)} for row in X.tolist()]
    as_none = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    absent = [{name: value for name, value in row.items() if value == value} for row in rows]
    for some in (rows, as_none, absent):
        model, right = SketchedNewtonClassifier(), 0
        for row, label in zip(some, y.tolist(), strict=True):
            if model.__sklearn_is_fitted__():
                right += model.predict_one(row) == label
            model.learn_one(row, label)
        assert right > 0.84 * len(y)
        assert "x3 is missing" in model.vocabulary_


def test_frames_then_dicts():
    pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = SketchedNewtonRegressor(random_state=0).fit(X, y)
    row = X.iloc[7].to_dict()
    assert model.predict_one(row) == pytest.approx(model.predict(X.iloc[7:8])[0])
    assert model.predict_one(dict(reversed(row.items()))) == model.predict_one(row)
    del row["bmi"]
    expected = model.predict(X.iloc[7:8].assign(bmi=np.nan))[0]
    assert model.predict_one(row) == pytest.approx(expected)
    model.learn_one(row, 100.0)
    assert model.n_samples_seen_ == len(y) + 1


# -- weights, losses, copies


def test_class_weights_are_weights_of_rows():
    X, y = load_breast_cancer(return_X_y=True)
    weighted = SketchedNewtonClassifier(class_weight={0: 4.0}, random_state=0).fit(X, y)
    by_hand = SketchedNewtonClassifier(random_state=0).fit(X, y, np.where(y == 0, 4.0, 1.0))
    np.testing.assert_array_equal(weighted.decision_function(X), by_hand.decision_function(X))
    balanced = SketchedNewtonClassifier(class_weight="balanced", random_state=0).fit(X, y)
    by_hand = SketchedNewtonClassifier(random_state=0).fit(X, y, (len(y) / (2 * np.bincount(y)))[y])
    np.testing.assert_array_equal(balanced.decision_function(X), by_hand.decision_function(X))
    loaded = SketchedNewtonClassifier.from_bytes(weighted.to_bytes())
    assert loaded.class_weight == {0: 4.0}
    with pytest.raises(ValueError, match="balanced"):
        balanced.partial_fit(X, y)
    with pytest.raises(ValueError, match="class_weight"):
        SketchedNewtonClassifier(class_weight="even").fit(X, y)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_quantiles_are_those_of_scikit_learn(quantile):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 5)) * [1, 10, 0.1, 1, 1] + 3
    y = X @ [1, 0.1, 10, 0, 0] + rng.standard_normal(3000) * (1 + np.abs(X[:, 3])) + rng.exponential(1, 3000)
    model = SketchedNewtonRegressor(loss="quantile", quantile=quantile, random_state=0).fit(X[:2000], y[:2000])
    batch = QuantileRegressor(quantile=quantile, alpha=0).fit(X[:2000], y[:2000])
    ours, theirs = (mean_pinball_loss(y[2000:], m.predict(X[2000:]), alpha=quantile) for m in (model, batch))
    assert ours < 1.03 * theirs
    assert abs(np.mean(y[2000:] < model.predict(X[2000:])) - quantile) < 0.05


def test_counts_are_predicted_as_by_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) + 2
    y = rng.poisson(np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1])).astype(float)
    model = SketchedNewtonRegressor(loss="poisson", random_state=0).fit(X[:2000], y[:2000])
    batch = PoissonRegressor(alpha=0).fit(X[:2000], y[:2000])
    ours, theirs = (mean_poisson_deviance(y[2000:], m.predict(X[2000:])) for m in (model, batch))
    assert ours < 1.03 * theirs
    np.testing.assert_allclose(np.log(model.predict(X)), X @ model.coef_ + model.intercept_, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="poisson.*at least 0"):
        model.partial_fit(X[:1], [-1.0])


@pytest.mark.parametrize("loss", ["huber", "absolute"])
def test_a_huge_target_at_the_beginning_does_no_harm(loss):
    X, y = load_diabetes(return_X_y=True)
    wild = y.copy()
    wild[10] = 1e6
    one, two = (SketchedNewtonRegressor(loss=loss, shuffle=False).fit(X, t).score(X, y) for t in (wild, y))
    assert one > two - 0.04


def test_a_copy_learns_on_its_own():
    X, y = load_iris(return_X_y=True)
    model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    before = model.to_bytes()
    other = copy.copy(model).partial_fit(X, y)
    assert model.to_bytes() == before != other.to_bytes()


def test_several_labels_by_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 6))
    y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0]).astype(int)
    model = MultiOutputClassifier(SketchedNewtonClassifier(random_state=0)).fit(X[:400], y[:400])
    assert (model.predict(X[400:]) == y[400:]).mean() > 0.9
