"""Trees in front of the untuned estimators: what they learn, when they are dropped, what they say."""

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import robustfd
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor
from robustfd.estimators._cells import cells_of, has_rows, owners_of, rows_of
from robustfd.learners import expansion


def curved(n=3000, seed=0, holes=0.0):
    """Return rows and numbers that no linear model predicts."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (n, 5))
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * random.standard_normal(n)
    x[random.random(x.shape) < holes] = np.nan
    return x, y


def table_of(n=3000, seed=0):
    """Return a table with text and numbers that depend on pairs of its columns."""
    random = np.random.default_rng(seed)
    a, b, city = random.normal(size=n), random.normal(size=n), random.integers(0, 4, n)
    names = np.array(["Oslo", "Rome", "New York", "Lima"])[city]
    y = np.where(city < 2, np.sin(3 * a), b * b) + 0.1 * random.normal(size=n)
    return pd.DataFrame({"a": a, "city": names, "b": b}), y


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile"])
def test_every_loss_of_numbers_gains(loss):
    x, y = curved()
    linear, trees = (
        SketchedNewtonRegressor(loss=loss, expand=expand, random_state=0).fit(x[:2500], y[:2500])
        for expand in (None, "trees")
    )
    off = [np.abs(model.predict(x[2500:]) - y[2500:]).mean() for model in (linear, trees)]
    assert off[1] < off[0] / 2
    assert trees.progressive_loss_ < 0.8 * linear.progressive_loss_


def test_counts_gain():
    x, y = curved()
    counts = np.random.default_rng(1).poisson(np.exp(1.0 + y / 2))
    linear, trees = (
        SketchedNewtonRegressor(loss="poisson", expand=expand, random_state=0).fit(x[:2500], counts[:2500])
        for expand in (None, "trees")
    )
    assert trees.progressive_loss_ < 0.8 * linear.progressive_loss_
    assert trees.score(x[2500:], counts[2500:]) > linear.score(x[2500:], counts[2500:]) + 0.2


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_classes_gain(classes, holes):
    x, y = curved(holes=holes)
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    scores = [
        SketchedNewtonClassifier(expand=expand, random_state=0)
        .fit(x[:2500], labels[:2500])
        .score(x[2500:], labels[2500:])
        for expand in (None, "trees")
    ]
    assert scores[1] > scores[0] + 0.1


def test_auto_drops_trees_that_do_not_help_and_keeps_those_that_do():
    random = np.random.default_rng(0)
    x = random.normal(size=(1500, 6))
    line = x @ np.arange(1.0, 7.0) + random.normal(size=1500)
    model = SketchedNewtonRegressor(expand="auto").partial_fit(x, line)
    assert model.expansion_ == {"linear": 1.0}
    assert model.interactions_ == {}
    plain = SketchedNewtonRegressor().partial_fit(x, line)
    np.testing.assert_array_equal(model.predict(x[:9]), plain.predict(x[:9]))
    x, y = curved(1500)
    assert SketchedNewtonRegressor(expand="auto").partial_fit(x, y).expansion_["linear"] < 0.1


def test_auto_leaves_wide_and_sparse_rows_alone():
    random = np.random.default_rng(0)
    x = sp.random_array((400, 3000), density=0.01, format="csr", random_state=0)
    model = SketchedNewtonRegressor(expand="auto").partial_fit(x, random.normal(size=400))
    assert model.expansion_ == {"linear": 1.0}
    assert model._expansion.store.cells.size == 0
    few = SketchedNewtonRegressor(expand="auto").partial_fit(x[:, :100], random.normal(size=400))
    assert few._expansion.generation == 0


def test_a_linear_stream_loses_nothing():
    """Labels are as good as those of the linear learner, also where trees have the lower log loss."""
    random = np.random.default_rng(2)
    x = random.normal(size=(6000, 8))
    y = (x @ random.normal(size=8) + 0.3 * random.normal(size=6000) > 0).astype(int)
    errors = [
        SketchedNewtonClassifier(expand=expand).partial_fit(x, y, classes=[0, 1]).progressive_error_
        for expand in (None, "trees")
    ]
    assert errors[1] < errors[0] + 0.003


def test_categories_of_tables_and_dicts():
    table, y = table_of()
    for model in (SketchedNewtonRegressor(expand=e, random_state=0) for e in (None, "trees")):
        score = model.fit(table[:2500], y[:2500]).score(table[2500:], y[2500:])
        assert score < 0.3 if model.expand is None else score > 0.7
    assert {"a", "b", "city"} == {name for name in model.interactions_ if isinstance(name, str)}
    single = SketchedNewtonRegressor(expand="trees")
    for row, target in zip(table[:1200].to_dict("records"), y, strict=False):
        single.learn_one(row, target)
    batch = SketchedNewtonRegressor(expand="trees").partial_fit(table[:1200], y[:1200])
    assert single.progressive_loss_ == pytest.approx(batch.progressive_loss_, rel=0.3)
    assert max(single.interactions_, key=single.interactions_.get) in ("a", "b", "city")


@pytest.mark.parametrize("kind", ["array", "table", "dicts", "counts", "classes"])
def test_contributions_sum_to_predictions(kind):
    table, y = table_of(600)
    x: object = table if kind in ("table", "dicts") else curved(600, holes=0.1)[0]
    loss = "poisson" if kind == "counts" else "squared"
    if kind == "classes":
        model = SketchedNewtonClassifier(expand="trees").partial_fit(x, np.arange(600) % 3, classes=[0, 1, 2])
        parts, whole = model.contributions(x, intercept=True), model.decision_function(x)
        np.testing.assert_allclose([each.sum(axis=1) for each in parts], whole.T, atol=1e-9)
        return
    model = SketchedNewtonRegressor(expand="trees", loss=loss)
    if kind == "dicts":
        rows = table.to_dict("records")
        for row, target in zip(rows, y, strict=True):
            model.learn_one(row, target)
        for row in rows[:5]:
            parts = model.contributions_one(row, intercept=True)
            assert set(parts) == {"a", "b", "city", "(intercept)"}
            assert sum(parts.values()) == pytest.approx(model.predict_one(row))
        return
    model.partial_fit(x, np.abs(y) if kind == "counts" else y)
    parts = np.asarray(model.contributions(x, intercept=True))
    assert parts.shape == (600, 1 + len(model.feature_names_in_ if kind == "table" else x[0]))
    whole = np.log(model.predict(x)) if kind == "counts" else model.predict(x)
    np.testing.assert_allclose(parts.sum(axis=1), whole, atol=1e-9)
    assert np.abs(parts[:, :-1]).mean() > 0.01


@pytest.mark.parametrize("rows", [127, 128, 129, 260, 513])
@pytest.mark.parametrize("make", [SketchedNewtonClassifier, SketchedNewtonRegressor])
def test_a_loaded_model_goes_on_as_the_saved_one(make, rows, monkeypatch):
    monkeypatch.setattr(expansion, "WORK", 1e4)  # so that trees are being grown most of the time
    x, y = curved(700, holes=0.05)
    y, more = (y > 0, {"classes": [False, True]}) if make is SketchedNewtonClassifier else (y, {})
    model = make(expand="trees", random_state=1).partial_fit(x[:rows], y[:rows], **more)
    loaded = make.from_bytes(model.to_bytes())
    assert loaded.to_bytes() == model.to_bytes()
    for each in (model, loaded):
        each.partial_fit(x[rows:], y[rows:])
    assert loaded.to_bytes() == model.to_bytes()


def test_an_error_or_interrupt_leaves_the_model_unchanged(monkeypatch):
    monkeypatch.setattr(expansion, "WORK", 1e5)
    x, y = curved(300)
    model = SketchedNewtonRegressor(expand="trees").partial_fit(x[:129], y[:129])
    before, calls, stop = model.to_bytes(), 0, 0

    def watch(frame, event, arg):
        nonlocal calls
        calls += event == "call" and "robustfd" in frame.f_code.co_filename
        if calls == stop:
            raise KeyboardInterrupt

    for moment in (5, 50, 200, 400, 800):
        calls, stop = 0, moment
        sys.setprofile(watch)
        try:
            model.partial_fit(x[129:], y[129:])
            raise AssertionError("no interrupt")
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert model.to_bytes() == before
    with pytest.raises(ValueError, match="y contains"):
        model.learn_one(x[0], np.inf)
    assert model.to_bytes() == before


def test_parts_merge():
    x, y = curved(4000)
    whole = SketchedNewtonRegressor(expand="trees", random_state=0).partial_fit(x[:3000], y[:3000])
    parts = SketchedNewtonRegressor(expand="trees", random_state=0).split(3)
    for k, part in enumerate(parts):
        part.partial_fit(x[k:3000:3], y[k:3000:3])
    merged = parts[0] + parts[1] + parts[2]
    assert merged.n_samples_seen_ == 3000
    scores = [model.score(x[3000:], y[3000:]) for model in (whole, merged)]
    assert scores[1] > scores[0] - 0.02
    merged.partial_fit(x[3000:], y[3000:])
    assert merged.score(x[3000:], y[3000:]) > 0.85


@pytest.mark.parametrize("estimator", [SketchedNewtonRegressor, SketchedNewtonClassifier])
def test_eight_parts_are_as_good_as_one_pass(estimator):
    x, y = curved(7000)
    y = y if estimator is SketchedNewtonRegressor else (y > np.median(y)).astype(int)
    first = {} if estimator is SketchedNewtonRegressor else {"classes": [0, 1]}
    whole = estimator(expand="trees", random_state=0).partial_fit(x[:5000], y[:5000], **first)
    parts = estimator(expand="trees", random_state=0).split(8)
    for k, part in enumerate(parts):
        part.partial_fit(x[k:5000:8], y[k:5000:8], **first)
    before = [part.predict(x[:50]) for part in parts]
    merged = robustfd.merge(parts)
    assert merged.score(x[5000:], y[5000:]) > whole.score(x[5000:], y[5000:]) - 0.02
    for part, predicted in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.predict(x[:50]), predicted)  # merging changes no part


@pytest.mark.parametrize("n, k", [(1000, 2), pytest.param(3000, 4, marks=pytest.mark.slow)])
def test_parts_of_a_table_with_text_are_as_good_as_one_pass(n, k):
    table, y = table_of(n + 1000)  # one of the four cities has two words
    table.loc[::7, "a"] = np.nan
    whole = SketchedNewtonRegressor(expand="trees", random_state=0).partial_fit(table[:n], y[:n])
    parts = SketchedNewtonRegressor(expand="trees", random_state=0).split(k)
    for j, part in enumerate(parts):
        part.partial_fit(table[j:n:k], y[j:n:k])
    merged = robustfd.merge(parts)
    assert merged.score(table[n:], y[n:]) > whole.score(table[n:], y[n:]) - 0.02


def test_cells_of_text_say_which_feature_they_have():
    table, y = table_of(200)
    table.loc[::5, "city"], table.loc[::3, "b"] = None, np.nan
    model = SketchedNewtonRegressor(expand="trees").partial_fit(table, y)
    x = model._checked(table, reset=False, learn=False)
    category, several = np.array([False, False, True]), (x[:, 2:] != 0).sum(axis=1) > 1
    cells = cells_of(x, owners_of(model), x.codes)
    found, used = rows_of(cells, category, x.shape[1]), np.unique(x.indices)  # a few of 2^18 columns of hashed text
    expected = sp.csr_array(x)[:, used].toarray()
    expected[np.ix_(several, used >= 2)] = 0.0
    assert found.shape == x.shape and np.isin(found.indices, used).all()
    np.testing.assert_array_equal(found[:, used].toarray(), expected)
    assert several.any() and has_rows(cells, category)
    assert not has_rows(cells[several], category)


def test_models_without_stored_rows_merge():
    x, y = curved(1200)
    parts = [SketchedNewtonRegressor(expand="trees", random_state=k).fit(x[k::2], y[k::2]) for k in (0, 1)]
    scores = [part.forget_rows().score(x, y) for part in parts]
    merged = parts[0] + parts[1]
    assert merged.score(x, y) > min(scores) - 0.05
    merged.partial_fit(x, y)
    assert merged.n_samples_seen_ == 2400


def test_dicts_of_different_names_merge():
    table, y = table_of(600)
    rows, parts = table.to_dict("records"), SketchedNewtonRegressor(expand="trees").split(2)
    for row, target in zip(rows[:300], y[:300], strict=True):
        parts[0].learn_one(row, target)
    for row, target in zip(rows[300:], y[300:], strict=True):
        parts[1].learn_one({"new": 1.0, **dict(reversed(row.items()))}, target)
    one, two = parts[0] + parts[1], parts[1] + parts[0]
    found = [[model.predict_one(row) for row in rows[:50]] for model in (one, two)]
    np.testing.assert_allclose(*found, rtol=0.5, atol=0.5)
    assert one.score  # it is a regressor
    assert {"new", "a", "b", "city"} >= {name for name in one.interactions_ if isinstance(name, str)}


def test_a_new_class_may_appear_at_any_time():
    x, y = curved(600)
    model = SketchedNewtonClassifier(expand="trees")
    for k in range(600):
        label = "low" if y[k] < 0 else "high" if y[k] < 1 or k < 300 else "top"
        model.learn_one(x[k], label)
    assert set(model.classes_) == {"low", "high", "top"}
    assert model.expansion_["linear"] < 0.9
    assert len(model.predict_proba(x[:3])[0]) == 3


def test_no_row_waits_for_all_trees(monkeypatch):
    done = []
    advance = expansion.forest.advance

    def counted(build, *args):
        before = int(build.done[1])
        advance(build, *args)
        done.append(int(build.done[1]) - before)

    monkeypatch.setattr(expansion.forest, "advance", counted)
    x, y = curved(4200)
    SketchedNewtonRegressor(expand="trees").partial_fit(x, y)
    assert max(done) <= 128
    assert done[-1] < 64  # of 4096 rows


def test_a_model_without_rows_predicts_the_same_and_goes_on():
    x, y = curved(600)
    model = SketchedNewtonRegressor(expand="trees").partial_fit(x[:400], y[:400])
    before, size = model.predict(x), len(model.to_bytes())
    assert len(model.forget_rows().to_bytes()) < size - 400 * 5 * 8
    np.testing.assert_array_equal(SketchedNewtonRegressor.from_bytes(model.to_bytes()).predict(x), before)
    assert np.isfinite(model.partial_fit(x[400:], y[400:]).predict(x)).all()


@pytest.mark.parametrize("further", ["rows", "merged", "completed"])
def test_trees_of_many_rows_are_not_replaced_by_those_of_few(further):
    x, y = curved(4000)
    model = SketchedNewtonRegressor(expand="trees", random_state=0).fit(x[:1000], y[:1000])
    score = model.score(x[3000:], y[3000:])
    model.forget_rows()
    if further == "merged":
        other = SketchedNewtonRegressor(expand="trees", random_state=1).fit(x[200:1000], y[200:1000])
        model.merge(other.forget_rows())
    grown = model._expansion.generation
    model.partial_fit(x[1000:1100], y[1000:1100])
    if further == "completed":
        model._complete_fit()
    assert score > 0.8
    assert model.score(x[3000:], y[3000:]) > score - 0.03
    assert model._expansion.generation == grown
    model.partial_fit(x[1100:3000], y[1100:3000])  # as many rows as before: new trees grow
    assert model.score(x[3000:], y[3000:]) > score
    assert model._expansion.generation > grown


def test_trees_are_not_exported():
    x, y = curved(300)
    with pytest.raises(ValueError, match="trees cannot be exported"):
        SketchedNewtonRegressor(expand="trees").partial_fit(x, y).to_onnx()


def test_pictures():
    pytest.importorskip("matplotlib").use("Agg")
    table, y = table_of(400)
    model = SketchedNewtonRegressor(expand="trees").partial_fit(table, y)
    assert model.plot_effect(table, "a").get_xlabel() == "a"
    assert [tick.get_text() for tick in model.plot_effect(table, "city").get_xticklabels()] == sorted(
        set(table["city"])
    )
    x, y = curved(300)
    assert SketchedNewtonRegressor(expand="trees").partial_fit(x, y).plot_effect(x, 1).get_xlabel() == "column 1"


def test_bad_parameters():
    x, y = curved(20)
    with pytest.raises(ValueError, match="expand must be one of"):
        SketchedNewtonRegressor(expand="forest").fit(x, y)
    with pytest.raises(ValueError, match="expand must be None for several quantiles"):
        SketchedNewtonRegressor(expand="trees", loss="quantile", quantile=[0.1, 0.9]).fit(x, y)
