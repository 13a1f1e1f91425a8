"""The learner with nothing to tune against its transcription."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from robustfd.linalg._compile import entry
from robustfd.online import _mixture
from robustfd.online._features import DIAGONAL
from robustfd.online.rows import as_rows
from robustfd.online.untuned import UntunedState
from tests import reference_untuned as ref


def stream(seed, n, d, *, classes=2, density=1.0, constant=False):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + 2 * rng.standard_normal(d)) * 10.0 ** rng.integers(-3, 4, d)
    if density < 1:
        X *= rng.random((n, d)) < density * 10.0 ** -rng.uniform(0, 1, d)
    if constant:
        X[:, 0] = 3.3
        X[: n // 2, 1] = -1e-5
    scores = (X / (np.abs(X).max(axis=0) + 1e-300)) @ rng.standard_normal((d, classes))
    return X, (scores + 0.1 * rng.standard_normal(scores.shape)).argmax(axis=1).astype(float)


def learn(state, X, y, *, batches, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    out, start = np.empty((len(y), state.outputs)), 0
    for size in itertools.cycle(batches):
        part = slice(start, min(start + size, len(y)))
        state.learn(as_rows(X[part], sparse=state.sparse), y[part], weight[part], out[part])
        start += size
        if start >= len(y):
            return out


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("density", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("constant", [False, True])
def test_classes_equal_the_transcription(sparse, classes, density, constant):
    X, y = stream(1, 110, 9, classes=classes, density=density, constant=constant)
    state, other = UntunedState(9, 4, 1 if classes == 2 else classes, sparse=sparse), ref.Classifier(9, classes, 4)
    margins, expected = learn(state, X, y, batches=(7, 1, 40)), other.learn(X, y)
    scale = 1 + np.abs(expected)
    assert np.abs((margins - expected) / scale).max() < 1e-7
    decisions, expected = state.margins(as_rows(X, sparse=sparse)), other.decision(X)
    assert np.abs((decisions - expected) / (1 + np.abs(expected))).max() < 1e-7


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("huber", [np.inf, 2.0])
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_numbers_equal_the_transcription(sparse, huber, density):
    X, _ = stream(2, 100, 7, density=density)
    rng = np.random.default_rng(0)
    y = 5 + (X / (np.abs(X).max(axis=0) + 1e-300)) @ rng.standard_normal(7) + 0.1 * rng.standard_t(2, 100)
    state, other = UntunedState(7, 4, 1, sparse=sparse, huber=huber), ref.Regressor(7, 4, huber)
    predictions, expected = learn(state, X, y, batches=(9, 2))[:, 0], other.learn(X, y)
    assert np.abs(predictions - expected).max() < 1e-8 * (1 + np.abs(expected).max())
    assert np.abs(state.margins(as_rows(X, sparse=sparse))[:, 0] - other.predict(X)).max() < 1e-8 * np.abs(y).max()


def test_weights_equal_the_transcription():
    X, y = stream(3, 90, 6)
    weight = np.random.default_rng(1).uniform(0.2, 3, 90)
    state, other = UntunedState(6, 3, 1, sparse=False), ref.Classifier(6, 2, 3)
    margins, expected = learn(state, X, y, batches=(11,), weight=weight), other.learn(X, y, weight)
    assert np.abs((margins - expected) / (1 + np.abs(expected))).max() < 1e-7


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_shape_and_batching(data):
    n, d, m = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 8)), data.draw(st.integers(2, 5))
    X, y = stream(data.draw(st.integers(0, 50)), n, d, density=data.draw(st.sampled_from([0.2, 0.8, 1.0])))
    sparse = data.draw(st.booleans())
    state, other = UntunedState(d, m, 1, sparse=sparse), ref.Classifier(d, 2, m)
    margins = learn(state, X, y, batches=data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4)))
    expected = other.learn(X, y)
    assert np.abs((margins - expected) / (1 + np.abs(expected))).max() < 1e-6


def test_the_diagonal_of_the_hessian_is_exact():
    X, y = stream(4, 300, 12)
    state = UntunedState(12, 5, 1, sparse=False)
    learn(state, X[:20], y[:20], batches=(20,))
    rows, weights = [], []
    for i in range(20, 20 + 16 * 10):
        state.learn(X[i : i + 1], y[i : i + 1], np.ones(1), np.empty((1, 1)))
        filled = int(state.mix.counts[0]) or 16
        rows.append(state.rows[filled - 1].copy())
        weights.append(state.mix.curvature[filled - 1])
    assert state.mix.counts[0] == 0
    held = np.square(state.basis[:, 5:]).sum(axis=1)
    assert (held <= state.features.table[:, DIAGONAL] * (1 + 1e-12)).all()


def test_features_that_rest_for_many_runs_catch_up():
    X, y = stream(5, 2400, 30, density=0.3)
    X[:, 4] = 0
    X[[5, 1200, 2399], 4] = 2.0
    dense, sparse = (UntunedState(30, 3, 1, sparse=kind) for kind in (False, True))
    a, b = learn(dense, X, y, batches=(2400,)), learn(sparse, X, y, batches=(500,))
    assert sparse.columns.run[0].number < 128 < len(y) / 10
    assert np.abs((a - b) / (1 + np.abs(a))).max() < 1e-6
    assert np.abs(dense.weights() - sparse.weights()).max() < 1e-6 * np.abs(dense.weights()).max()


implicit_step, sigmoid = entry(_mixture.implicit_step), entry(_mixture.sigmoid)


@settings(max_examples=200, deadline=None)
@given(st.floats(-700, 700), st.floats(0, 1e6))
def test_the_implicit_step_is_the_root(z, a):
    high = sigmoid(-z)
    s = implicit_step(z, a, high)
    assert 0 < s <= high
    if a * high > 1e-10:
        expected = brentq(lambda s: s - sigmoid(-(z + a * s)), 0, high, xtol=1e-300, rtol=1e-13, maxiter=1000)
        assert s == pytest.approx(expected, rel=1e-12)


def test_no_step_overshoots():
    """After its step a row's margin, at any rate, is no further on the right side than it was on the wrong one."""
    X, y = stream(6, 60, 5)
    state = UntunedState(5, 3, 1, sparse=False)
    learn(state, X[:40], y[:40], batches=(40,))
    for i in range(40, 60):
        before = state.margins(X[i : i + 1])[0, 0]
        state.learn(X[i : i + 1], y[i : i + 1], np.ones(1), np.empty((1, 1)))
        sign = 2 * y[i] - 1
        assert sign * state.margins(X[i : i + 1])[0, 0] >= sign * before - 1e-6 * (1 + abs(before))


@pytest.mark.parametrize(
    "case", ["constant labels", "random labels", "flips", "duplicates", "zero rows", "rank 1", "sorted"]
)
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8, 1e140, 1e-140])
def test_it_stays_finite(case, scale):
    X, y = stream(7, 300, 8)
    X = X / np.abs(X).max() * scale
    rng = np.random.default_rng(0)
    if case == "constant labels":
        y = np.ones(300)
    elif case == "random labels":
        y = rng.integers(0, 2, 300).astype(float)
    elif case == "flips":
        y[150:] = 1 - y[150:]
    elif case == "duplicates":
        X, y = np.repeat(X[:10], 30, axis=0), np.repeat(y[:10], 30)
    elif case == "zero rows":
        X[rng.random(300) < 0.5] = 0
    elif case == "rank 1":
        X = np.outer(rng.standard_normal(300), X[0])
    else:
        X, y = X[np.argsort(y)], np.sort(y)
    for sparse in (False, True):
        state = UntunedState(8, 4, 1, sparse=sparse)
        margins = learn(state, X, y, batches=(50,))
        assert np.isfinite(margins).all() and np.isfinite(state.weights() / scale**0).all()
        assert np.isfinite(state.margins(as_rows(sp.csr_array(X) if sparse else X, sparse=sparse))).all()
