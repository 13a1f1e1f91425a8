"""Intervals and sets: the algorithm, coverage, nesting, odd streams, and models that have none."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor
from robustfd._core import interval_ends, track_numbers
from robustfd.estimators.intervals import ENDS, JUDGED, LEVELS, SCALE, start
from robustfd.learners.untuned import UntunedState
from tests import reference_intervals
from tests.estimators.online_faces import as_while_learning, in_batches, stream


def noisy(n=3000, d=4, seed=0, noise=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    size = np.exp(X[:, 0]) if noise is None else noise
    return X, X @ rng.standard_normal(d) + 5 + size * rng.standard_normal(n)


def regressor(**options):
    return SketchedNewtonRegressor(intervals=True, shuffle=False, **options)


numbers = st.floats(-1e3, 1e3).map(lambda x: x or 0.0)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 300), floor=st.sampled_from([-np.inf, 0.0]))
def test_numbers_as_in_the_reference(seed, n, floor):
    random = np.random.default_rng(seed)
    rows = np.clip(random.standard_cauchy((n, 8)), -1e3, 1e3)
    rows[random.random(rows.shape) < 0.1] = 0.0
    rows[random.random(n) < 0.1] = 1.0
    rows += 1e-9 * random.standard_normal(rows.shape)  # rounding decides exact ties
    y, predicted, sizes, weight = np.ascontiguousarray(rows.T[:4])
    sizes, weight, quantiles = np.abs(sizes), np.abs(weight) + 0.1, np.sort(rows[:, 4:], axis=1)
    tracker = start(numbers=True)
    slow = reference_intervals.Intervals(*tracker.thresholds, floor)
    for part in np.array_split(np.arange(len(y)), 3):
        track_numbers(y[part], predicted[part], sizes[part], quantiles[part], weight[part], floor, tracker)
    for *row, ends, w in zip(y.tolist(), predicted.tolist(), sizes.tolist(), quantiles, weight.tolist(), strict=True):
        slow.learn(*row, ends.tolist(), w)
    for i, side in enumerate(slow.sides):
        np.testing.assert_allclose(tracker.thresholds[i], list(side.threshold.values()), rtol=1e-4, atol=1e-6)
        known = [[each[level] for each in (side.w, side.squares, side.mean)] for level in (0.5, 0.9)]
        np.testing.assert_allclose(tracker.leans[2 * i : 2 * i + 2], known, rtol=1e-9, atol=1e-9)
    sums = tracker.trace.sum(axis=0)
    expected = [slow.totals.weight, *slow.totals.covered.values(), *slow.totals.width.values()]
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-6)


def test_a_regressor_is_three_learners_and_a_tracker():
    X, y = noisy(400)
    model, slow = regressor(), reference_intervals.Intervals(*start(numbers=True).thresholds)
    plain, sizes = SketchedNewtonRegressor(shuffle=False), UntunedState(4, 1, sketch=0, loss=SCALE)
    quantiles = UntunedState(4, 4, sketch=0, loss=ENDS, few=True)
    for i in range(len(y)):
        row, one = X[i : i + 1], np.ones(1)
        predicted, size, ends = np.zeros(1), np.zeros((1, 1)), np.zeros((1, 4))
        if i:
            predicted = plain.predict(row)
        plain.partial_fit(row, y[i : i + 1])
        quantiles.learn(row, y[i : i + 1], one, np.empty((1, 4)), ends)
        if i:
            sizes.learn(row, np.abs(y[i] - predicted), one, np.empty((1, 1)), size)
        slow.learn(float(y[i]), float(predicted[0]), float(size[0, 0]), ends[0].tolist(), 1.0)
    model.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    for level in JUDGED:
        assert model.progressive_coverage_[level] == slow.totals.covered[level] / slow.totals.weight
        assert model.progressive_width_[level] == pytest.approx(slow.totals.width[level] / slow.totals.weight)
    assert max(side.w[level] for side in slow.sides for level in side.w) > 0.01  # the noise depends on the row
    now = model.predict(X).tolist(), sizes.margins(X)[:, 0].tolist(), quantiles.margins(X).tolist()
    for k, level in enumerate(LEVELS.tolist()[1:]):
        found = model.predict_interval(X, LEVELS[1:])[:, :, k]
        np.testing.assert_allclose(
            found, [slow.interval(*row, level) for row in zip(*now, strict=True)], rtol=1e-5, atol=1e-5
        )


def test_coverage_is_that_of_the_intervals_before_each_row():
    X, y = noisy(600)
    model, inside = regressor(), []
    for i in range(len(y)):
        if i > 1:
            low, high = model.predict_interval(X[i : i + 1], JUDGED)[0]
            inside.append((low <= y[i]) & (y[i] <= high))
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    assert np.mean(inside, axis=0).tolist() == list(model.progressive_coverage_.values())


@pytest.mark.parametrize("classes", [2, 5])
def test_sets_as_in_the_reference(classes):
    X, y = stream(300, classes=classes)
    model, slow = SketchedNewtonClassifier(intervals=True), reference_intervals.Sets()
    for i in range(len(y)):
        one = X[i : i + 1]
        chances = np.full(classes, 1 / classes)
        if i:
            with as_while_learning(model):
                chances = model.predict_proba(one)[0]
        slow.learn(int(y[i]), chances.tolist(), 1.0)
        model.partial_fit(one, y[i : i + 1], classes=range(classes))
    for level in JUDGED:
        assert model.progressive_coverage_[level] == pytest.approx(slow.totals.covered[level] / len(y))
        assert model.progressive_width_[level] == pytest.approx(slow.totals.width[level] / len(y))
    found, last = model.predict_set(X, LEVELS[1:]), model.predict_proba(X)
    for k, level in enumerate(LEVELS[1:].tolist()):
        for inside, chances in zip(found[:, :, k], last.tolist(), strict=True):
            assert set(np.flatnonzero(inside).tolist()) == slow.set_of(chances, level)


@pytest.mark.parametrize("seed", range(3))
def test_coverage_of_all_rows_and_of_windows(seed):
    jumps = np.repeat([1.0, 6.0, 0.3, 2.0], 1000)
    X, y = noisy(4000, seed=seed, noise=jumps)
    model = regressor().partial_fit(X, y)
    for level, covered in model.progressive_coverage_.items():
        assert covered == pytest.approx(level, abs=0.01)
    table = model.coverage_
    assert table["rows"][-1] == 4000
    assert table["rows"][0] == 128
    four = np.add.reduceat(table["coverage"][:, 2], np.arange(0, 28, 4)) / 4  # windows of 512 rows
    assert np.abs(four[:-1] - 0.9).max() < 0.06


@pytest.mark.parametrize("level", [0.15, 0.65, 0.85, 0.93, 0.97])
def test_levels_between_those_that_are_tracked(level):
    X, y = noisy(6000)
    model, inside = regressor().partial_fit(X[:1000], y[:1000]), []
    for i in range(1000, 6000, 50):
        low, high = model.predict_interval(X[i : i + 50], level).T
        inside.append((low <= y[i : i + 50]) & (y[i : i + 50] <= high))
        model.partial_fit(X[i : i + 50], y[i : i + 50])
    assert np.mean(inside) == pytest.approx(level, abs=0.02)


@given(
    thresholds=arrays(np.float64, (2, len(LEVELS)), elements=st.floats(-1e100, 1e100)),
    leans=arrays(np.float64, (4, 3), elements=st.floats(0, 1)),
    row=arrays(np.float64, 6, elements=st.floats(-1e6, 1e6)),
    levels=st.lists(st.floats(1e-12, 1 - 1e-12), min_size=1, max_size=20).map(sorted),
)
def test_intervals_are_nested(thresholds, leans, row, levels):
    tracker = start(numbers=True)._replace(thresholds=thresholds, leans=leans, totals=np.array([9.0, 9, 8, 9, 9, 1]))
    found, quantiles = np.empty((2, len(levels))), np.sort(row[2:])[None]
    interval_ends(row[:1], np.abs(row[1:2]), quantiles, np.array(levels), -np.inf, tracker, found.ravel())
    low, high = found
    assert (low <= high).all()
    assert (np.diff(low) <= 0).all()
    assert (np.diff(high) >= 0).all()


def test_quantiles_help_where_each_end_depends_on_the_row():
    """Above the regression line and below it, the noise depends on different features."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 4))
    size = np.where(rng.random(6000) < 0.5, np.exp(X[:, 0]), -np.exp(X[:, 1]))
    y = X.sum(axis=1) + size * np.abs(rng.standard_normal(6000))
    model = regressor().partial_fit(X[:5000], y[:5000])
    low, high = model.predict_interval(X[5000:], 0.5).T
    line = X[5000:].sum(axis=1)
    above, below = np.corrcoef(high - line, X[5000:, 0])[0, 1], np.corrcoef(line - low, X[5000:, 1])[0, 1]
    assert above > 0.8 and below > 0.8
    assert model._tracker.leans[:, 0].max() > 0.5


def test_several_levels_are_those_of_single_ones():
    X, y = noisy(500)
    model = regressor().partial_fit(X, y)
    several = model.predict_interval(X, [0.5, 0.99, 0.9])
    assert several.shape == (500, 2, 3)
    for k, level in enumerate([0.5, 0.99, 0.9]):
        np.testing.assert_array_equal(several[:, :, k], model.predict_interval(X, level))
    assert model.predict_interval_one(X[7], [0.5, 0.9]) == [tuple(several[7, :, 0]), tuple(several[7, :, 2])]
    assert model.predict_interval_one(X[7]) == tuple(several[7, :, 2])


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_the_unit_of_targets_does_not_matter(unit):
    X, y = noisy(500)
    one, other = regressor().partial_fit(X, y), regressor().partial_fit(X, unit * y)
    np.testing.assert_allclose(other.predict_interval(X), unit * one.predict_interval(X), rtol=1e-4)


def test_missing_values_batches_and_new_columns():
    X, y = noisy(400)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    whole, parts = regressor().partial_fit(X, y), in_batches(regressor(), X, y, [1, 2, 30, 31, 200])
    np.testing.assert_array_equal(whole.predict_interval(X), parts.predict_interval(X))
    assert whole.progressive_coverage_ == parts.progressive_coverage_
    dicts = regressor()
    for row, target in zip(X, y, strict=True):
        dicts.learn_one({f"f{j}": v for j, v in enumerate(row) if v == v}, target)
    assert dicts.progressive_coverage_[0.9] == pytest.approx(0.9, abs=0.03)
    low, high = dicts.predict_interval_one({"f0": 1.0, "new": 3.0})
    assert low < high


@pytest.mark.parametrize("y", [np.zeros(300), np.full(300, 7.0), np.where(np.arange(300) == 150, 1e6, 0.0)])
def test_targets_that_are_nearly_constant(y):
    X = noisy(300)[0]
    model = regressor().partial_fit(X, y)
    low, high = model.predict_interval(X, 0.95).T
    assert np.isfinite([low, high]).all()
    assert (np.abs(low - y[0]) <= 2e-4 * np.abs(y).max() + 1e-9).all()
    assert (np.abs(high - y[0]) <= 2e-4 * np.abs(y).max() + 1e-9).all()


def test_counts_have_no_negative_ends():
    X, _ = noisy(1000)
    y = np.random.default_rng(0).poisson(np.exp(X[:, 0] / 2)).astype(float)
    model = regressor(loss="poisson").partial_fit(X, y)
    found = model.predict_interval(X, [0.5, 0.99])
    assert found.min() == 0.0
    assert model.progressive_coverage_[0.9] >= 0.89


def test_before_the_first_rows():
    model = regressor()
    assert model.predict_interval_one({"a": 1.0}) == (-np.inf, np.inf)
    model.learn_one({"a": 1.0}, 3.0)
    assert model.predict_interval_one({"a": 1.0}, [0.5]) == [(-np.inf, np.inf)]
    assert np.isnan(model.progressive_coverage_[0.9])
    model.learn_one({"a": 1.0}, 4.0)
    assert np.isfinite(model.predict_interval_one({"a": 1.0})).all()
    assert SketchedNewtonClassifier(intervals=True).predict_set_one({"a": 1.0}) == []


def test_later_passes_do_not_count():
    X, y = noisy(100)
    once, thrice = (SketchedNewtonRegressor(intervals=True, shuffle=False, epochs=k).fit(X, y) for k in (1, 3))
    assert once.progressive_coverage_ == thrice.progressive_coverage_
    assert not np.array_equal(once.predict(X), thrice.predict(X))
    thrice.partial_fit(X, y)
    assert once.progressive_coverage_ != thrice.progressive_coverage_


def test_threads_and_merging():
    X, y = noisy(20000)
    model = regressor().fit(np.tile(X, (1, 64)), y, n_jobs=2)
    assert model.progressive_coverage_[0.9] == pytest.approx(0.9, abs=0.01)
    parts = regressor().partial_fit(X[:5000], y[:5000]).split(2)
    back = parts[0] + parts[1]
    assert back.coverage_["rows"][-1] == 5000
    for part, rows in zip(parts, (slice(5000, 12000), slice(12000, 20000)), strict=True):
        part.partial_fit(X[rows], y[rows])
    merged = parts[0].merge(parts[1])
    assert merged.n_samples_seen_ == 20000
    low, high = merged.predict_interval(X).T
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("make", [SketchedNewtonRegressor, SketchedNewtonClassifier])
def test_an_error_or_an_interrupt_changes_nothing(make, monkeypatch):
    X, y = stream(200, numbers=make is SketchedNewtonRegressor)
    model = in_batches(make(intervals=True), X[:150], y[:150], [], classes=np.unique(y))
    before = model.to_bytes() if hasattr(model, "to_bytes") else None
    ends = (model.predict_interval if make is SketchedNewtonRegressor else model.predict_set)(X)
    coverage = model.progressive_coverage_
    name = "track_numbers" if make is SketchedNewtonRegressor else "track_labels"

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"robustfd.estimators.intervals.{name}", stop)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[150:], y[150:])
        with pytest.raises(KeyboardInterrupt):
            model.learn_one(X[150], y[150])
    assert model.progressive_coverage_ == coverage
    again = (model.predict_interval if make is SketchedNewtonRegressor else model.predict_set)(X)
    np.testing.assert_array_equal(again, ends)
    assert before is None or model.to_bytes() == before


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, np.nan, [0.5, 2.0]])
def test_levels_outside(level):
    X, y = noisy(50)
    value = np.ravel(level)[-1]
    with pytest.raises(ValueError, match=rf"level must be between 0 and 1, both excluded, got {value:g}\."):
        regressor().partial_fit(X, y).predict_interval(X, level)
    with pytest.raises(ValueError, match=f"got {value:g}"):
        SketchedNewtonClassifier(intervals=True).fit(X, y > 0).predict_set_one(X[0], level)


@pytest.mark.parametrize("level", ["high", None, [], [[0.5]], True])
def test_levels_of_other_types(level):
    with pytest.raises(TypeError, match="level must be a number between 0 and 1, or several of them, got"):
        regressor().predict_interval_one({"a": 1.0}, level)


def test_models_without_intervals():
    X, y = noisy(50)
    model = SketchedNewtonRegressor().fit(X, y)
    with pytest.raises(AttributeError, match=r"learned without intervals. Set intervals=True"):
        model.predict_interval(X)
    assert not hasattr(model, "progressive_coverage_")
    with pytest.raises(ValueError, match="intervals must be one of True, False, got 2"):
        SketchedNewtonRegressor(intervals=2).fit(X, y)


def test_the_picture():
    pytest.importorskip("matplotlib").use("agg")
    X, y = noisy(500)
    ax = regressor().partial_fit(X, y).plot_coverage()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["50 %", "80 %", "90 %", "95 %", "99 %"]
    assert len(ax.lines) == 10


@pytest.mark.parametrize("make", [SketchedNewtonRegressor, SketchedNewtonClassifier])
def test_dicts_without_a_detour_through_python(make, monkeypatch):
    X, y = noisy(700)
    y = y if make is SketchedNewtonRegressor else (y > 5).astype(int)
    rows = [{f"f{j}": float(v) for j, v in enumerate(row)} for row in X]
    quick, slow = make(intervals=True), make(intervals=True)
    monkeypatch.setattr(slow, "_quick_rows", lambda: None)
    for i, (row, target) in enumerate(zip(rows, y.tolist(), strict=True)):
        weight = 1.0 + i % 3
        quick.learn_one(row, target, weight)
        slow.learn_one(row, target, weight)
    assert quick.progressive_coverage_ == slow.progressive_coverage_
    assert quick.progressive_width_ == pytest.approx(slow.progressive_width_, rel=1e-12)
    within = "predict_interval_one" if make is SketchedNewtonRegressor else "predict_set_one"
    for row in rows[:50]:
        assert getattr(quick, within)(row, [0.5, 0.9]) == getattr(slow, within)(row, [0.5, 0.9])
    assert "_quick" in vars(quick)
    copied = pickle.loads(pickle.dumps(quick))
    quick.learn_one(rows[0], y[0])
    assert copied.coverage_["rows"][-1] == 700
