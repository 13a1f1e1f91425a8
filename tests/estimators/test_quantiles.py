"""Several quantiles of one model: shapes, order, accuracy beside one model for each, and everything a model can do."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import d2_pinball_score

import robustfd
from robustfd import SketchedNewtonRegressor
from tests.estimators.online_faces import as_while_learning

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def stream(n, *, d=8, seed=0):
    """Return rows and targets whose spread depends on the row."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) + np.exp(0.5 * X[:, 0]) * rng.exponential(size=n)


def pinball(y, predicted, levels):
    residual = y[:, None] - predicted
    return (residual * (np.array(levels) - (residual < 0))).mean(axis=0)


def model_of(levels=LEVELS, **options):
    return SketchedNewtonRegressor(loss="quantile", quantile=levels, shuffle=False, **options)


@pytest.mark.parametrize("sparse", [False, True])
def test_they_are_as_good_as_one_model_for_each(sparse):
    X, y = stream(8000)
    rows = sp.csr_array(X * (np.abs(X) > 1)) if sparse else X
    together = model_of().fit(rows[:6000], y[:6000])
    alone = [model_of(level).fit(rows[:6000], y[:6000]) for level in LEVELS]
    found = pinball(y[6000:], together.predict(rows[6000:]), LEVELS)
    expected = pinball(y[6000:], np.column_stack([each.predict(rows[6000:]) for each in alone]), LEVELS)
    assert found.mean() < 1.01 * expected.mean()
    assert together.progressive_loss_ < 1.01 * np.mean([each.progressive_loss_ for each in alone])
    below = (y[6000:, None] < together.predict(rows[6000:])).mean(axis=0)
    np.testing.assert_allclose(below, LEVELS, atol=0.04)


@given(st.integers(1, 40), st.integers(0, 100), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=7, unique=True))
def test_they_never_cross(n, seed, levels):
    X, y = stream(n, d=2, seed=seed)
    model = model_of(sorted(levels)).partial_fit(X, y)
    predicted = model.predict(1e3 * np.random.default_rng(seed).standard_normal((50, 2)))
    assert predicted.shape == (50, len(levels)) and (np.diff(predicted, axis=1) >= 0).all()


def test_shapes():
    X, y = stream(300)
    model = model_of([0.1, 0.9]).fit(X, y)
    assert model.predict(X).shape == (300, 2)
    assert model.coef_.shape == (2, 8) and model.intercept_.shape == (2,) and model.effects_.shape == (2, 8)
    linear = np.sort(X @ model.coef_.T + model.intercept_, axis=1)
    np.testing.assert_allclose(model.predict(X), linear, atol=0.5)  # up to the limits of the range
    one = model_of([0.5]).fit(X, y)
    single = model_of(0.5).fit(X, y)
    assert one.predict(X).shape == (300, 1) and single.predict(X).shape == (300,)
    np.testing.assert_array_equal(one.predict(X)[:, 0], single.predict(X))
    assert one.progressive_loss_ == single.progressive_loss_
    assert np.ndim(single.intercept_) == 0 and single.coef_.shape == (8,)


def test_the_progressive_loss_is_the_mean_over_levels():
    X, y = stream(200)
    model, losses = model_of(), []
    for i in range(200):
        if i:
            with as_while_learning(model):
                losses.append(pinball(y[i : i + 1], model.predict(X[i : i + 1]), LEVELS).mean())
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    losses.append(pinball(y[:1], np.zeros((1, 5)), LEVELS).mean())
    np.testing.assert_allclose(model.progressive_loss_, np.mean(losses))


def test_the_score_is_the_mean_over_levels():
    X, y = stream(500)
    model = model_of().fit(X, y)
    expected = [d2_pinball_score(y, p, alpha=level) for level, p in zip(LEVELS, model.predict(X).T, strict=True)]
    np.testing.assert_allclose(model.score(X, y), np.mean(expected))


def test_contributions_and_the_rest_sum_to_predictions():
    X, y = stream(300)
    model = model_of().fit(X, y)
    found = model.contributions(X, intercept=True)
    assert len(found) == 5
    np.testing.assert_allclose(np.column_stack([each.sum(axis=1) for each in found]), model.predict(X))
    one = model.contributions_one(X[0], intercept=True)
    assert list(one) == LEVELS
    np.testing.assert_allclose([sum(each.values()) for each in one.values()], model.predict(X[:1])[0])


def test_single_dicts():
    X, y = stream(300)
    model, other = model_of(), model_of()
    assert model.predict_one({"a": 1.0}) == dict.fromkeys(LEVELS, 0.0)
    for row, target in zip(X, y, strict=True):
        model.learn_one({f"x{j}": value for j, value in enumerate(row)}, target)
        other.learn_one(row, target)
    found = model.predict_one({f"x{j}": value for j, value in enumerate(X[0])})
    assert list(found) == LEVELS and sorted(found.values()) == list(found.values())
    np.testing.assert_allclose(list(found.values()), list(other.predict_one(X[0]).values()), rtol=1e-6)
    assert model.n_samples_seen_ == 300


def test_batches_weights_copies_files_and_parts(tmp_path):
    X, y = stream(2000)
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 2000)
    whole = model_of().partial_fit(X, y, sample_weight=weight)
    parts = model_of()
    for i in range(0, 2000, 333):
        parts.partial_fit(X[i : i + 333], y[i : i + 333], sample_weight=weight[i : i + 333])
    expected = whole.predict(X)
    np.testing.assert_array_equal(parts.predict(X), expected)
    whole.save(tmp_path / "model")
    loaded = robustfd.load(tmp_path / "model")
    assert loaded.quantile == LEVELS and clone(whole).quantile == LEVELS
    for again in (loaded, pickle.loads(pickle.dumps(whole))):
        np.testing.assert_array_equal(again.predict(X), expected)
        again.partial_fit(X, y)
    one, two = whole.split(2)
    np.testing.assert_allclose(one.merge(two).predict(X), expected, rtol=1e-6, atol=1e-6)
    halves = [model_of().fit(X[k::2], y[k::2]) for k in (0, 1)]
    merged = halves[0].merge(halves[1])
    assert pinball(y, merged.predict(X), LEVELS).mean() < 1.03 * pinball(y, expected, LEVELS).mean()
    many = SketchedNewtonRegressor(loss="quantile", quantile=LEVELS, random_state=0)
    X, y = stream(150000)
    many.fit(X, y, n_jobs=2)
    assert (
        pinball(y, many.predict(X), LEVELS).mean() < 1.02 * pinball(y, model_of().fit(X, y).predict(X), LEVELS).mean()
    )


def test_dask_predicts_a_column_for_each_level():
    frames = pytest.importorskip("dask.dataframe")
    pd, dask = pytest.importorskip("pandas"), pytest.importorskip("robustfd.distributed.dask")
    X, y = stream(300)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    model = model_of().fit(table, y)
    found = dask.predict(model, frames.from_pandas(table, npartitions=2)).compute()
    assert found.columns.tolist() == LEVELS
    np.testing.assert_array_equal(found.to_numpy(), model.predict(table))


@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1e3, 1e140])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_any_scale_of_targets(scale, kind):
    X, y = stream(500)
    model = model_of().fit(X.astype(kind), scale * y)
    np.testing.assert_allclose(
        model.predict(X.astype(kind)) / scale, model_of().fit(X.astype(kind), y).predict(X.astype(kind)), rtol=1e-6
    )


def test_constant_targets_missing_values_and_outliers():
    X, y = stream(500)
    np.testing.assert_allclose(model_of().fit(X, np.full(500, 7.0)).predict(X), 7.0)
    X[::5, 0], y[100] = np.nan, 1e9
    predicted = model_of().fit(X, y).predict(X)
    assert np.abs(predicted).max() < 1e3


@pytest.mark.parametrize(
    "levels, message",
    [
        ([], "a list of increasing levels, got"),
        ([0.5, 0.5], "increasing"),
        ([0.9, 0.1], "increasing"),
        ([0.1, 1.0], "between 0 and 1"),
        ([0.1, 2.0], "quantile must be in"),
        ([0.1, "x"], "quantile must be a number"),
        (np.array([0.1, 0.9]), "quantile must be a number"),
        (None, "quantile must be a number"),
    ],
)
def test_bad_levels(levels, message):
    X, y = stream(10)
    with pytest.raises((ValueError, TypeError), match=message):
        model_of(levels).fit(X, y)
