"""Bettors and experts with a flat prior: they are linear models, and leave where they earn nothing."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd import SketchedNewtonClassifier
from robustfd.learners import line, untuned_merging, untuned_reading
from robustfd.learners.experts import NumberLoss
from robustfd.learners.rows import as_rows
from robustfd.learners.untuned import UntunedState
from tests.learners.test_untuned import learn, same_bytes, stream


def words(seed, n, d=300, classes=2):
    """Return rows of rare words, a few of which matter."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < 10 / d / np.sqrt(np.arange(1, d + 1) / d)).astype(float)
    score = X @ (3 * rng.standard_normal((d, classes)) * (rng.random((d, 1)) < 0.1)) + rng.gumbel(size=(n, classes))
    return X, score.argmax(axis=1).astype(float)


def with_shares(state, *, of_line):
    """Give the experts of line.py this share, and half of it to bettors."""
    mix, own = state.experts.mix, line.slice_of(state)
    for share in (mix.share, mix.steady, mix.plain):
        share[:, own] = of_line / (own.stop - own.start)
        rest = np.delete(np.arange(share.shape[1]), own)
        share[:, rest] = (1 - of_line) / len(rest)
    return state


@given(
    kind=st.sampled_from(["two", "three", "number"]), n=st.integers(1, 150), of_line=st.sampled_from([0.5, 1.0]),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_they_are_linear_models(kind, n, of_line, seed):
    X, y, number = stream(seed, n + 20, 5, density=0.8)
    outputs = 3 if kind == "three" else 1
    if kind != "two":
        y = number if kind == "number" else np.digitize(number, np.quantile(number, [0.3, 0.6])).astype(float)
    state = UntunedState(5, outputs, sketch=0, loss=NumberLoss() if kind == "number" else None)
    learn(state, X[:n], y[:n])
    state.experts.mix.targets["low"], state.experts.mix.targets["high"] = -1e9, 1e9  # predictions are not clipped
    with_shares(state, of_line=of_line)

    indptr, which, parts = untuned_reading.contributions(state, X)
    intercept = untuned_reading.linear_model(state)[1]
    sums = np.add.reduceat(np.vstack([parts, np.zeros((1, outputs))]), np.minimum(indptr[:-1], len(parts)), axis=0)
    sums[np.diff(indptr) == 0] = 0.0
    margins = state.margins(as_rows(X, sparse=False))
    np.testing.assert_allclose(sums + intercept, margins, atol=1e-4 * (1 + np.abs(margins).max()))


@pytest.mark.parametrize("outputs", [1, 3])
def test_they_stay_while_they_earn_something(outputs):
    X, y = words(0, 2100, classes=max(outputs, 2))
    state = UntunedState(X.shape[1], outputs, sketch=0)
    learn(state, X, y)
    assert line.count(state) == (8 if outputs == 1 else 2)
    with_shares(state, of_line=0.001)  # until the next look they earn too little
    state.experts.mix.earned[:] = state.experts.mix.share.mean(axis=0)
    expected = copy.deepcopy(state)
    line.drop(expected)
    line.drop(expected)  # dropping twice is dropping once
    assert line.count(expected) == 0 and expected.count == state.count and len(expected.experts.bets) == 0
    np.testing.assert_allclose(expected.experts.mix.share.sum(axis=1), 1.0)
    state.seen = 4096
    line.look(state)
    assert same_bytes_but_rows(state, expected)
    learn(state, X[:100], y[:100])


def same_bytes_but_rows(one, two):
    two = copy.deepcopy(two)
    two.seen = one.seen
    two.experts.mix.earned[:] = 0.0
    return same_bytes(one, two)


@pytest.mark.parametrize("sparse, batches", [(False, (1023, 1)), (True, (700,)), (False, (1, 64, 300))])
def test_any_batching_drops_them_at_the_same_row(sparse, batches):
    X, y, _ = stream(3, 1100, 40)
    one, two = UntunedState(40, 1), UntunedState(40, 1)
    learn(one, X, y, batches=(1100,))
    learn(two, X, y, batches=batches, sparse=sparse)
    assert same_bytes(one, two) and line.count(one) == 0


def test_an_error_undoes_what_they_learned():
    X, y = words(1, 400)
    state = UntunedState(X.shape[1], 1, sketch=0)
    learn(state, X[:200], y[:200], sparse=True)
    before = copy.deepcopy(state)
    kept = state.keep(200, np.flatnonzero(X[200:].any(axis=0)).astype(np.int32))
    learn(state, X[200:], y[200:], sparse=True)
    line.drop(state)
    state.undo(kept)
    assert same_bytes(state, before) and line.count(state) == 8


@given(n=st.integers(64, 300), seed=st.integers(0, 9), of_line=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_new_class_keeps_the_margins(n, seed, of_line):
    X, y = words(seed, n, 40)
    state = UntunedState(40, 1, sketch=0)
    learn(state, X, y)
    with_shares(state, of_line=of_line)
    before = state.margins(as_rows(X, sparse=False))
    state.add_outputs(3)
    after = state.margins(as_rows(X, sparse=False))
    np.testing.assert_allclose(after[:, 1] - after[:, 0], before[:, 0], atol=0.05 * (1 + np.abs(before).max()))
    np.testing.assert_array_equal(after[:, 2], 0.0)
    learn(state, X, np.minimum(y + 1, 2))
    assert np.isfinite(state.margins(as_rows(X, sparse=False))).all()


def test_parts_merge_without_them_if_one_has_dropped_them():
    X, y = words(2, 600)
    parts = [UntunedState(X.shape[1], 1, sketch=0, share=0.5) for _ in range(2)]
    for part, rows in zip(parts, (slice(0, 300), slice(300, 600)), strict=True):
        learn(part, X[rows], y[rows])
    both = untuned_merging.merge(*parts)
    assert line.count(both) == 8
    line.drop(parts[0])
    for one, two in (parts, parts[::-1]):
        merged = untuned_merging.merge(one, two)
        assert line.count(merged) == 0
        np.testing.assert_allclose(merged.experts.mix.share.sum(axis=1), 1.0)
    assert line.count(parts[1]) == 8  # the parts stay as they are


def test_extreme_rows_leave_them_finite():
    """One feature always makes the margin wrong, so that the other wins each bet."""
    state = UntunedState(2, 1, sketch=0)
    rng = np.random.default_rng(0)
    for i in range(400):
        x = np.array([[1.0 + 0.1 * rng.standard_normal(), 0.0]])
        x[0, 1] = 1e30 if state.margins(as_rows(np.array([[1.0, 1e30]]), sparse=False))[0, 0] < 0 else -1e30
        learn(state, x if i > 80 else rng.standard_normal((1, 2)), np.ones(1) if i > 80 else np.array([i % 2.0]))
    assert np.isfinite(state.experts.bets).all() and np.isfinite(state.margins(as_rows(x, sparse=False))).all()


def test_weights_of_rows_are_relative():
    X, y = words(3, 300)
    one, two = UntunedState(X.shape[1], 1, sketch=0), UntunedState(X.shape[1], 1, sketch=0)
    learn(one, X, y)
    learn(two, X, y, weight=np.full(len(y), 64.0))
    np.testing.assert_array_equal(one.experts.bets[:, :2].astype(bool), two.experts.bets[:, :2].astype(bool))
    light = np.where(np.arange(len(y)) % 2, 1.0, 1e-6)
    three = UntunedState(X.shape[1], 1, sketch=0)
    learn(three, X, y, weight=light)
    assert three.experts.bets[0, 1].max() < 0.75 * one.experts.bets[0, 1].max()  # half of the rows hardly count


@pytest.mark.parametrize("loss", [NumberLoss(), NumberLoss(levels=(0.5,)), NumberLoss(huber=2.0)])
def test_few_rows_of_many_columns_teach_them_numbers(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 400))
    y = 100 + 20 * X[:, :5].sum(axis=1) + rng.standard_normal(300)
    errors = []
    for has_line in (True, False):
        state = UntunedState(400, 1, loss=loss)
        if not has_line:
            start = state._fresh_experts
            state._fresh_experts = lambda *args, start=start: without_line(start(*args))
            line.drop(state)
        learn(state, X[:200], y[:200])
        errors.append(np.abs(state.margins(as_rows(X[200:], sparse=False))[:, 0] - y[200:]).mean())
        assert line.count(state) == 8 * has_line
    assert errors[0] < 0.7 * errors[1]


def without_line(experts):
    n = 2 * int(experts.mix.fast.sum())
    bets = np.zeros((0, 4, 0), np.float32)
    return experts._replace(mix=line.without(experts.mix, slice(n, None)), bets=bets)


def test_variances_count_them():
    X, y = words(4, 300, 50)
    state = UntunedState(50, 1, sketch=0)
    learn(state, X, y)
    wide = with_shares(state, of_line=1.0).doubts(sp.csr_array(X))[1]
    narrow = with_shares(state, of_line=0.0).doubts(sp.csr_array(X))[1]
    assert np.all(wide > 0) and np.all(narrow > 0) and 0.01 < np.median(wide / narrow) < 100


def test_later_passes_keep_the_shares_of_the_first():
    X, y = words(5, 200)
    once = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    twice = SketchedNewtonClassifier(shuffle=False, epochs=2).fit(X, y)
    for one, two in zip(once._model.shares, twice._model.shares, strict=True):
        np.testing.assert_array_equal(one, two)
    assert np.any(once._model.experts.weights != twice._model.experts.weights)


def test_shares_of_kinds_add_up():
    X, y = words(1, 700)
    state = UntunedState(X.shape[1], 1)
    learn(state, X, y)
    kinds = untuned_reading.shares_of_kinds(state)
    assert sum(kinds.values()) == pytest.approx(1.0)
    assert {"slow", "fast", "bettors", "flat prior"} <= set(kinds)
    line.drop(state)
    assert "bettors" not in untuned_reading.shares_of_kinds(state)
