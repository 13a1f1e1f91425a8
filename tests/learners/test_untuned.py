"""The untuned learner: comparison with its transcription, and its guarantees."""

import copy
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from robustfd._core import implicit_steps
from robustfd.learners import hessian, untuned_merging, untuned_reading
from robustfd.learners.experts import NumberLoss, with_rungs
from robustfd.learners.rows import as_rows
from robustfd.learners.untuned import UntunedState
from tests import reference_untuned as ref


def stream(seed, n, d, *, density=1.0, constant=False):
    """Return rows with columns of different scales and means, classes 0 and 1, and numeric targets."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + 2 * rng.standard_normal(d)) * 10.0 ** rng.integers(-3, 4, d)
    if density < 1:
        X *= rng.random((n, d)) < density * 10.0 ** -rng.uniform(0, 1, d)
    if constant:
        X[:, 0] = 3.3
        X[: n // 2, 1] = -1e-5
    scores = (X / (np.abs(X).max(axis=0) + 1e-300)) @ rng.standard_normal(d) + 0.1 * rng.standard_normal(n)
    return X, (scores > np.median(scores)).astype(float), 5 + 3 * scores


def learn(state, X, y, *, batches=(1000,), weight=None, sparse=False):
    weight = np.ones(len(y)) if weight is None else weight
    out, start = np.empty((len(y), state.outputs)), 0
    for size in itertools.cycle(batches):
        part = slice(start, min(start + size, len(y)))
        state.learn(as_rows(X[part], sparse=sparse), y[part], weight[part], out[part])
        start += size
        if start >= len(y):
            return out


def largest_difference(found, expected):
    """Return the largest difference, relative for large numbers."""
    return np.abs((found - expected) / (1 + np.abs(expected))).max()


def same_bytes(one, two):
    (a, arrays), (b, others) = one.pack(), two.pack()
    return a == b and all(arrays[name].tobytes() == others[name].tobytes() for name in arrays | others)


# -- the transcription


def assert_transcribed(state, other, X, y, tolerance, *, batches=(7, 1, 40), sparse=False):
    margins, expected = learn(state, X, y, batches=batches, sparse=sparse), other.learn(X, y)
    assert largest_difference(margins.squeeze(), expected) < tolerance
    assert largest_difference(state.margins(as_rows(X, sparse=sparse)).squeeze(), other.decision(X)) < tolerance
    assert state.experts.mix.targets["age"][0] == other.age


both_hessians = pytest.mark.parametrize("exact", [False, True])


@both_hessians
def test_a_column_in_a_smaller_unit_equals_the_transcription(exact):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((360, 3)) + [0.0, 5.0, 1.0]
    y = (X @ [1.0, -1.0, 0.5] + 4.5 > 0).astype(float)
    X[:, 2] = np.arange(360)  # its differences are small from the first row on
    X[250:, :2] /= 1000
    state, other = UntunedState(3, 1, sketch=None if exact else 0), ref.Learner(3, exact=exact)
    assert_transcribed(state, other, X, y, 1e-3)
    unit = 1 / state.experts.features.table["inverse"][1:]
    assert (unit[:2] < 0.002).all() and unit[2] > 50  # V alone would be 0.8 times its value
    np.testing.assert_allclose(unit, [f.scale for f in other.features], rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@both_hessians
@pytest.mark.parametrize("density", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("constant", [False, True])
def test_classes_equal_the_transcription(sparse, exact, density, constant):
    X, y, _ = stream(1, 200, 6, density=density, constant=constant)
    state = UntunedState(6, 1, sketch=None if exact else 0)
    assert_transcribed(state, ref.Learner(6, exact=exact), X, y, 1e-3, sparse=sparse)
    assert state.form == ("exact" if exact else "diagonal")


@both_hessians
def test_few_experts_equal_the_transcription(exact):
    X, y, _ = stream(2, 300, 6)
    state = UntunedState(6, 1, sketch=None if exact else 0, few=True)
    assert_transcribed(state, ref.Learner(6, exact=exact, few=True), X, y, 1e-3)
    assert state.experts.bets.size == 0 and len(state.experts.exact.ladder) == 2 * exact
    assert pickle.loads(pickle.dumps(state)).few
    merged = untuned_merging.merge(*untuned_merging.split(state, 2, range(2)), 6)
    assert merged.few and merged.experts.bets.size == 0


def test_readings_are_the_predictions_of_a_model_that_is_read():
    X, _, y = stream(3, 200, 4)
    state, slow = (UntunedState(4, 1, loss=NumberLoss()) for _ in range(2))
    readings, expected = np.empty((200, 1)), np.empty((200, 1))
    state.learn(X, y, np.ones(200), np.empty((200, 1)), readings)
    for i in range(200):
        expected[i] = slow.margins(X[i : i + 1])
        slow.learn(X[i : i + 1], y[i : i + 1], np.ones(1), np.empty((1, 1)))
    np.testing.assert_array_equal(readings, expected)


@both_hessians
@pytest.mark.parametrize("classes", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_several_classes_equal_the_transcription(exact, classes):
    X, _, number = stream(5, 200, 6, density=0.7)
    y = np.digitize(number, np.quantile(number, np.arange(1, classes) / classes)).astype(float)
    state = UntunedState(6, classes, sketch=None if exact else 0)
    assert_transcribed(state, ref.SeveralClasses(6, classes, exact=exact), X, y, 5e-3)


@both_hessians
@pytest.mark.parametrize("density", [1.0, 0.2])
@pytest.mark.parametrize(
    "loss, tolerance",
    [
        (NumberLoss(8.0), 1e-5),
        (NumberLoss(2.0), 1e-5),
        (NumberLoss(levels=(0.5,)), 1e-4),
        (NumberLoss(levels=(0.1,)), 1e-4),
        (NumberLoss(counts=True), 1e-4),
        (NumberLoss(counts=True, few=True), 1e-4),
    ],
)
def test_numbers_equal_the_transcription(exact, density, loss, tolerance):
    X, _, y = stream(2, 220, 6, density=density)
    y[40], y[200] = 1e3, -1e4  # outliers
    if loss.counts:
        y = np.floor(3 * np.exp(0.5 * np.clip(y / np.median(np.abs(y)), -2, 12)))
    level = sum(loss.levels)
    state, other = (
        UntunedState(6, 1, sketch=None if exact else 0, loss=loss),
        ref.Learner(6, exact=exact, huber=loss.huber, level=level, counts=loss.counts, few=loss.few),
    )
    assert_transcribed(state, other, X, y, tolerance, batches=(9, 2))


@both_hessians
@pytest.mark.parametrize("density", [1.0, 0.2])
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("levels", [(0.1, 0.9), (0.05, 0.25, 0.5, 0.75, 0.95)])
def test_several_quantiles_equal_the_transcription(exact, density, levels, few):
    X, _, y = stream(7, 220, 6, density=density)
    y[40], y[200] = 1e3, -1e4  # outliers
    loss = NumberLoss(levels=levels, few=few)
    state = UntunedState(6, len(levels), sketch=None if exact else 0, loss=loss)
    assert_transcribed(state, ref.SeveralQuantiles(6, levels, exact=exact, few=few), X, y, 1e-4, batches=(9, 2))


def test_units_that_change_equal_the_transcription():
    X, y, _ = stream(3, 700, 4)
    X[300:, 1] *= 1e4
    X[400:, 2] += 50 * X[:, 2].std()
    assert_transcribed(UntunedState(4, 1, sketch=0), ref.Learner(4), X, y, 1e-3)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_shape_and_batching(data):
    n, d = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 8))
    X, y, _ = stream(data.draw(st.integers(0, 50)), n, d, density=data.draw(st.sampled_from([0.2, 0.8, 1.0])))
    exact = data.draw(st.booleans())
    state, other = UntunedState(d, 1, sketch=None if exact else 0), ref.Learner(d, exact=exact)
    batches = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    margins = learn(state, X, y, batches=batches, sparse=data.draw(st.booleans()))
    assert largest_difference(margins[:, 0], other.learn(X, y)) < 3e-3


@pytest.mark.parametrize("sketch", [None, 0, 2, 5, 12])
@pytest.mark.parametrize("outputs, loss", [(1, None), (3, None), (3, NumberLoss(levels=(0.1, 0.5, 0.8)))])
def test_any_batching_and_either_kind_of_rows_give_the_same_bytes(sketch, outputs, loss):
    X, y, number = stream(4, 1500, 9, density=0.6)
    y = number if loss else y + (X[:, 0] > 0) * (outputs > 1)
    one = UntunedState(9, outputs, sketch=sketch, loss=loss)
    learn(one, X, y, batches=(1500,))
    for batches, sparse in (((1,), False), ((7, 100), True), ((1500,), True)):
        other = UntunedState(9, outputs, sketch=sketch, loss=loss)
        learn(other, X, y, batches=batches, sparse=sparse)
        one.kept, other.kept = [], []
        assert same_bytes(one, other)


# -- steps


@settings(max_examples=200, deadline=None)
@given(st.floats(-20, 10), st.floats(1e-6, 1e6))
def test_the_step_is_near_the_root_and_never_too_long(z, a):
    arrays = [np.full(16, value, np.float32) for value in (z, a, 0.0, 0.0)]
    implicit_steps(*arrays)
    s, expected = float(arrays[3][0]), ref.root(z, a)
    assert 0 < s <= expected * (1 + 5e-3) + 1e-6
    assert s > 0.85 * expected - 1e-6


def test_no_step_overshoots():
    """A step never moves the margin of its row further to the wrong side."""
    X, y, _ = stream(6, 60, 5)
    state = UntunedState(5, 1)
    learn(state, X[:40], y[:40])
    for i in range(40, 60):
        before = state.margins(X[i : i + 1])[0, 0]
        learn(state, X[i : i + 1], y[i : i + 1])
        sign = 2 * y[i] - 1
        assert sign * state.margins(X[i : i + 1])[0, 0] >= sign * before - 0.05 * (1 + abs(before))


# -- the better Hessian


def rotated(n, d, seed=0):
    """Return rows whose singular values are 1/i in a random basis, and classes."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    z = rng.standard_normal((n, d))
    return z / np.arange(1, d + 1) @ basis, (z @ rng.standard_normal(d) > 0).astype(float)


@pytest.mark.parametrize("loss", [None, NumberLoss(), NumberLoss(levels=(0.2, 0.7)), NumberLoss(counts=True)])
@pytest.mark.parametrize("rows", [40, 700])  # the first 64 rows are learned again when their number doubles
def test_known_rows_in_any_batches_leave_shares_and_experts_as_they_are(rows, loss):
    rng = np.random.default_rng(3)
    X, outputs = rng.standard_normal((rows, 9)), 2 if loss and loss.levels else 1
    y = (X[:, 0] > 0).astype(float) if loss is None else np.abs(X[:, 0]) + rng.random(rows)
    state, weight = UntunedState(9, outputs, loss=loss), np.ones(rows)
    learn(state, X, y)
    other, shares = copy.deepcopy(state), state.shares
    margins = np.empty((rows, outputs))
    state.learn_known(X, y, weight, margins)
    for start in range(0, rows, 7):
        part = slice(start, start + 7)
        other.learn_known(X[part], y[part], weight[part], margins[part])
    one, two = state.pack(), other.pack()
    assert one[0] == two[0] and all(np.array_equal(one[1][name], two[1][name]) for name in one[1])
    if rows > 64:
        assert all(np.array_equal(a, b) for a, b in zip(shares, state.shares, strict=True))


def test_a_sketch_of_all_directions_is_the_exact_hessian():
    X, y, _ = stream(7, 200, 5)
    state = UntunedState(5, 1, sketch=30)
    assert np.isfinite(learn(state, X, y)).all()
    e = state.experts
    hessian.renew_low_rank(e.low_rank, e.features.table["prior"], e.features.table["slow"])
    h = np.diag(e.low_rank.diagonal) + e.low_rank.sketch.T @ e.low_rank.sketch
    inverse = np.diag(1 / e.low_rank.diagonal) - e.low_rank.u @ e.low_rank.u.T
    np.testing.assert_allclose(inverse @ h, np.eye(6), atol=1e-8)
    np.testing.assert_allclose(np.diag(h), e.features.table["prior"] + e.features.table["slow"], rtol=1e-6)


def test_a_better_hessian_is_kept_where_it_pays_and_dropped_where_not():
    X, y = rotated(6000, 120)
    kept = UntunedState(120, 1)
    learn(kept, X, y)
    assert kept.form == "exact"
    rng = np.random.default_rng(0)
    X = (rng.random((6000, 120)) < 0.05).astype(float)
    y = (X @ rng.standard_normal(120) + rng.logistic(size=6000) > 0).astype(float)
    dropped = UntunedState(120, 1)
    learn(dropped, X, y)
    assert dropped.form == "diagonal"


def test_a_late_exact_hessian_starts_from_the_diagonal_and_is_updated_soon():
    X, y = rotated(3000, 100)
    state = UntunedState(100, 1, sketch=0)
    learn(state, X, y)
    before, state.sketch = state.margins(X), None
    hessian.set_form(state, "exact", rows=state.seen)
    table = state.experts.features.table
    np.testing.assert_allclose(np.diag(state.experts.exact.inverse[0]), 1 / (table["prior"] + table["slow"]))
    assert largest_difference(state.margins(X), before) < 2.0 and state.renew_at <= state.seen + 64


def test_a_sketch_grows_while_it_gains():
    X, y = rotated(9000, 520)
    state = UntunedState(520, 1)
    learn(state, X, y)
    assert state.form == "sketch" and state.size > hessian.SKETCH


def test_wide_sparse_rows_have_no_sketch_unless_asked_for():
    X = sp.random_array((500, 5000), density=0.01, format="csr", random_state=np.random.default_rng(0))
    y = (np.arange(500) % 2).astype(float)
    for sketch, form in ((None, "diagonal"), (0, "diagonal"), (5, "sketch")):
        state = UntunedState(5000, 1, sketch=sketch)
        learn(state, X, y, sparse=True)
        assert state.form == form and state.size == (sketch or 0)


# -- a model that is read


def score_by(state, shares, X, y):
    """Return R^2 or the accuracy of a copy that predicts with these shares."""
    other = copy.deepcopy(state)
    other.experts.mix.steady[:] = shares
    p = other.margins(X)[:, 0]
    return np.mean((p > 0) == y) if state.loss is None else 1 - np.mean((p - y) ** 2) / np.var(y)


def test_a_model_is_good_whenever_it_is_read():
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((4000, 6)), rng.standard_normal(6)
    y = X @ w + 0.5 * rng.standard_normal(4000)
    odd = rng.random(4000) < 1 / 150
    X[odd], y[odd] = 6 * X[odd], 8 * rng.standard_normal(odd.sum())
    later = rng.standard_normal((1000, 6))
    state, scores = UntunedState(6, 1, loss=NumberLoss()), []
    for start in range(0, 4000, 20):
        learn(state, X[start : start + 20], y[start : start + 20])
        mix = state.experts.mix
        scores.append([score_by(state, shares, later, later @ w) for shares in (mix.steady, mix.share)])
    steady, moment = np.array(scores[50:]).min(axis=0)
    assert moment < 0.5  # one odd row may decide the shares of a moment
    assert steady > 0.9


@pytest.mark.parametrize("numbers", [False, True])
def test_a_model_that_is_read_after_a_change_is_as_good_as_with_the_shares_of_the_moment(numbers):
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((3300, 8)), rng.standard_normal(8)
    scores = np.where(np.arange(3300) < 3000, 1, -1) * (X @ w)
    y = (
        scores + 0.3 * rng.standard_normal(3300)
        if numbers
        else ((scores > 0) ^ (rng.random(3300) < 0.05)).astype(float)
    )
    state = UntunedState(8, 1, loss=NumberLoss() if numbers else None)
    learn(state, X[:3000], y[:3000])
    lost = []
    for start in range(3000, 3300, 20):
        learn(state, X[start : start + 20], y[start : start + 20])
        mix, later = state.experts.mix, rng.standard_normal((1000, 8))
        truth = -(later @ w) if numbers else later @ w < 0
        lost.append(score_by(state, mix.share, later, truth) - score_by(state, mix.steady, later, truth))
    assert state.experts.mix.targets["age"][0] < 300 or not numbers  # the mean started over
    assert max(lost[3:]) < 0.05 and lost[-1] < 0.01


@pytest.mark.parametrize("numbers", [False, True])
def test_mean_shares_after_a_change_equal_the_transcription(numbers):
    rng = np.random.default_rng(5)
    X, w = rng.standard_normal((500, 6)), rng.standard_normal((2, 6))
    scores = np.where(np.arange(500) < 350, X @ w[0], X @ w[1])
    y = scores + 0.1 * rng.standard_normal(500) if numbers else ((scores > 0) ^ (rng.random(500) < 0.05)).astype(float)
    state = UntunedState(6, 1, loss=NumberLoss() if numbers else None)
    other = ref.Learner(6, exact=True, huber=8.0 if numbers else None)
    assert_transcribed(state, other, X, y, 2e-3)
    np.testing.assert_allclose(state.experts.mix.steady[0], other.steady, atol=1e-2)
    assert other.age < 200 or not numbers  # the mean started over


# -- drift


def test_forgetting_experts_take_over_when_the_stream_changes():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((12000, 10))
    w = rng.standard_normal((2, 10))
    y = np.where(np.arange(12000) < 10000, X @ w[0] > 0, X @ w[1] > 0).astype(float)
    state = UntunedState(10, 1)
    margins = learn(state, X, y)[:, 0]
    drift = untuned_reading.drift(state)
    before, after = drift["share"][drift["rows"] <= 10000][-10:].mean(), drift["share"][-10:].max()
    assert after > before + 0.2
    assert np.mean((margins[-1000:] > 0) != y[-1000:]) < 0.05
    assert drift["rows"][-1] == 12000 and len(drift["rows"]) == len(drift["share"]) <= 128


def test_files_hold_only_features_that_were_seen():
    rng = np.random.default_rng(0)
    X = sp.csr_array((np.ones(6000), (np.repeat(np.arange(2000), 3), rng.integers(0, 300, 6000))), shape=(2000, 2**20))
    X.sum_duplicates()
    state = UntunedState(2**20, 1)
    learn(state, X, rng.integers(0, 2, 2000).astype(float), sparse=True)
    assert sum(array.nbytes for array in state.pack()[1].values()) < 100_000
    held = state.experts.features.table.nbytes + state.experts.weights.nbytes
    assert held <= 128 * (2**20 + 1)


def test_many_threads_may_predict_at_the_same_time():
    X, y, _ = stream(9, 2000, 40)
    state = UntunedState(40, 1)
    learn(state, X[:1000], y[:1000])
    expected = state.margins(X)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: state.margins(X), range(40)):
            np.testing.assert_array_equal(found, expected)


# -- arbitrary input


@pytest.mark.parametrize(
    "case", ["constant labels", "random labels", "flips", "duplicates", "zero rows", "rank 1", "sorted"]
)
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8, 1e140, 1e-140])
@pytest.mark.parametrize("sketch", [None, 0, 4])
def test_it_stays_finite(case, scale, sketch):
    X, y, _ = stream(7, 300, 8)
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
        state = UntunedState(8, 1, sketch=sketch)
        assert np.isfinite(learn(state, X, y, batches=(50,), sparse=sparse)).all()
        assert np.isfinite(state.margins(as_rows(X, sparse=sparse))).all()
        assert all(np.isfinite(part).all() for part in untuned_reading.linear_model(state))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_a_copy_of_a_state_learns_in_arrays_of_its_own(duplicate):
    """A state caches views of the arrays of its core, and a copy has a core of its own."""
    X, y, _ = stream(3, 300, 4)
    state = UntunedState(4, 1)
    learn(state, X[:150], y[:150])
    before, other = state.margins(X), duplicate(state)
    learn(other, X[150:], y[150:])
    assert np.array_equal(state.margins(X), before)
    learn(state, X[150:], y[150:])
    assert np.array_equal(state.margins(X), other.margins(X))


@pytest.mark.parametrize("n", [0, 30, 100])
def test_undoing_rows_restores_features_that_only_earlier_rows_have(n):
    """The first rows are learned again, so a call among them changes more features than its own rows have."""
    X = sp.random_array((n + 60, 200), density=0.05, format="csr", random_state=np.random.default_rng(0))
    y, state = np.arange(n + 60) % 2.0, UntunedState(200, 1)
    learn(state, X[:n], y[:n], sparse=True)
    before, kept = copy.deepcopy(state), state.keep(60, X[n:].indices.astype(np.int32))
    learn(state, X[n:], y[n:], sparse=True)
    state.undo(kept)
    assert same_bytes(state, before)


# -- the ladder of priors, and Hessians that are tried


def correlated(n, d, power, seed=0):
    """Return rows that hardly vary in some directions, on which the classes depend as much as on others."""
    rng = np.random.default_rng(seed)
    z, basis = rng.standard_normal((n, d)), np.linalg.qr(rng.standard_normal((d, d)))[0]
    return z / np.arange(1, d + 1) ** power @ basis, (z @ rng.standard_normal(d) > 0).astype(float)


def test_small_priors_learn_directions_of_small_variance():
    X, y = correlated(3000, 20, 1.5)
    state = UntunedState(20, 1)
    margins = learn(state, X, y)[:, 0]
    assert np.mean((margins > 0) != y) < 0.1  # 0.16 with the first prior alone
    ladder = state.experts.exact.ladder
    assert ladder[-1] == 1.0 and ladder[-2] < 0.1  # the fast memory, and a small prior that is still in use
    assert np.allclose(state.experts.mix.share.sum(axis=1), 1.0)


def test_rungs_that_earn_little_are_dropped():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 40))
    y = (rng.random(3000) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    state = UntunedState(40, 1)
    learn(state, X[:600], y[:600])
    assert state.experts.exact.ladder.tolist() == [*hessian.LADDER, 1.0]
    earned = state.experts.mix.earned
    assert earned.sum() == pytest.approx(134)  # every fourth row since the first 64
    state.experts.mix.earned[:] = np.repeat([0.6, 0.0, 0.395, 0.005, 0.0], [24, 8, 8, 8, 8]) / 8
    hessian._drop_rungs(state)
    assert state.experts.exact.ladder.tolist() == [*hessian.LADDER[1:], 1.0]  # the third stays: 16 rows a feature first
    learn(state, X[600:], y[600:])
    assert state.form == "diagonal"  # it gains nothing here


def test_rungs_are_selected_and_added():
    X, y = correlated(300, 6, 1.0)
    state = UntunedState(6, 1)
    learn(state, X, y)
    e = state.experts
    fewer = with_rungs(e, hessian.LADDER[1:2], fast=True)
    again = with_rungs(fewer, hessian.LADDER, fast=True)
    assert fewer.exact.ladder.tolist() == [0.03, 1.0] and again.exact.ladder.tolist() == e.exact.ladder.tolist()
    np.testing.assert_array_equal(fewer.exact.inverse, e.exact.inverse[[1, 3]])
    np.testing.assert_array_equal(again.exact.weights[:, :8], e.exact.weights[:, 8:16])
    for each in (fewer, again):
        assert np.allclose(each.mix.share.sum(axis=1), 1.0)
    assert (again.mix.share[0, 24:32] == 0).all() and (again.mix.share[0, 32:40] > 0).all()


def test_an_exact_hessian_is_tried_after_a_sketch_that_does_not_pay_off():
    random = np.random.default_rng(3)
    X, y = random.standard_normal((2100, 300)), (random.random(2100) > 0.5).astype(float)
    state = UntunedState(300, 1)
    for rows, form in ((0, "sketch"), (1024, "diagonal"), (2048, "exact")):
        learn(state, X[rows : rows + 50], y[rows : rows + 50])
        assert state.form == form
        learn(state, X[rows + 50 : 2 * rows or 1024], y[rows + 50 : 2 * rows or 1024])


def test_an_exact_hessian_replaces_a_sketch_that_pays_off():
    X, y = correlated(1400, 300, 1.3)
    state = UntunedState(300, 1)
    learn(state, X[:1000], y[:1000])
    assert state.form == "sketch"
    learn(state, X[1000:], y[1000:])
    assert state.form == "exact" and state.experts.exact.ladder.tolist() == [1.0, 0.001]
    assert state.look_at == 2048 and state.gain == hessian.UNPROVEN  # it is evaluated at row 4096
    state.widen_to(513)
    assert state.form == "diagonal"


def test_a_hessian_that_is_tried_again_starts_from_present_shares():
    X, _, number = stream(3, 3000, 40, density=0.2)
    y = (number > np.median(number)).astype(float)
    state = UntunedState(40, 1)
    learn(state, X[:1500], y[:1500])
    hessian.drop(state)
    learn(state, X[1500:2000], y[1500:2000])
    share = state.experts.mix.share.copy()
    hessian.set_form(state, "exact", 0, state.seen)
    np.testing.assert_array_equal(state.experts.mix.plain, share)
    np.testing.assert_allclose(state.experts.mix.share[:, : share.shape[1]], share / 2)


def test_values_far_from_the_mean_count_as_missing():
    X, y, _ = stream(0, 500, 4)
    state = UntunedState(4, 1)
    learn(state, X, y)
    far, missing = X[:1].copy(), X[:1].copy()
    unit = 1 / state.experts.features.table["inverse"][2]
    far[0, 1] = state.experts.features.centre[0, 1] + 31 * unit
    missing[0, 1] = np.nan
    np.testing.assert_array_equal(state.margins(far), state.margins(missing))
    far[0, 1] -= 2 * unit
    assert state.margins(far) != state.margins(missing)
    for _ in range(40):  # a new unit is learned
        far[0, 1] = state.experts.features.centre[0, 1] + 1000 * unit
        learn(state, far, y[:1])
    assert state.experts.features.table["inverse"][2] < 0.1 / unit
