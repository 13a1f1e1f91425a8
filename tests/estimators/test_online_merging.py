"""Merging of online estimators: the merged model is nearly that of one pass over all rows."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import robustfd
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor
from robustfd.estimators import _learning
from tests.estimators.online_faces import assert_same, every_face, stream, targets


def learned(model, X, y):
    """Return the model after learning rows, given all classes."""
    more = {"classes": [0, 1, 2]} if hasattr(model, "predict_proba") else {}
    return model.partial_fit(X, y, **more)


def parts_of(model, X, y, k):
    """Split an unfitted model into k parts and train each on a k-th of the rows."""
    return [learned(part, X[i::k], y[i::k]) for i, part in enumerate(model.split(k))]


@every_face
@given(n=st.integers(1, 300), k=st.integers(1, 4), cut=st.integers(0, 40))
def test_merged_parts_of_a_split_are_the_model(make, classification, n, k, cut):
    X, y = targets(classification, n=n + 20)
    m = learned(make(), X[:n], y[:n])
    before = copy.deepcopy(m)
    parts = m.split(k)
    merged = robustfd.merge(parts)
    assert_same(m, before, X)  # unchanged
    skip = {f"progressive {name}" for name in ("rows", "loss", "error")}
    assert_same(merged, m, X, tolerance=1e-7, skip=skip)
    assert merged.progressive_loss_ == pytest.approx(m.progressive_loss_)
    np.testing.assert_array_equal(merged.progressive_["rows"], m.progressive_["rows"])
    assert sum(part.n_samples_seen_ for part in parts) == n
    learned(merged, X[n:], y[n:])
    assert merged.n_samples_seen_ == n + 20


@every_face
def test_merging_is_commutative_and_goes_on(make, classification):
    X, y = targets(classification, n=600)
    one, two = parts_of(make(), X[:500], y[:500], 2)
    both, other = one + two, two + one
    skip = {"progressive loss", "progressive error"}
    assert_same(both, other, X, tolerance=1e-6, skip=skip)
    assert both.n_samples_seen_ == 500 and one.n_samples_seen_ == 250
    assert both.progressive_loss_ == pytest.approx((one.progressive_loss_ + two.progressive_loss_) / 2)
    assert_same(one.merge(two), both, X)  # in place
    learned(both, X[500:], y[500:])
    assert both.n_samples_seen_ == 600


@every_face
def test_a_model_of_no_rows_is_neutral(make, classification):
    X, y = targets(classification)
    m = learned(make(), X, y)
    assert_same(m + make(), m, X)
    assert_same(make() + m, m, X)
    assert not (make() + make()).__sklearn_is_fitted__()
    empty = learned(make().split(2)[0], X, y) + make().split(2)[1]
    assert empty.n_samples_seen_ == len(y)


@every_face
def test_a_part_is_saved_loaded_pickled_and_copied(make, classification, tmp_path):
    X, y = targets(classification, n=600)
    one, two = parts_of(make(), X, y, 2)
    one.save(tmp_path / "part.rfd")
    both = one + two
    for same in (robustfd.load(tmp_path / "part.rfd"), pickle.loads(pickle.dumps(one)), copy.copy(one)):
        assert_same(same + two, both, X)
    both.save(tmp_path / "both.rfd")
    assert_same(robustfd.load(tmp_path / "both.rfd"), both, X)


def test_parts_have_their_share_of_the_prior():
    X, y = stream(n=400)
    parts = SketchedNewtonClassifier().split(4)
    assert [part.share_ for part in parts] == [0.25] * 4
    assert SketchedNewtonClassifier().share_ == clone(parts[0]).share_ == 1.0
    learned(parts[0], X, y)
    assert parts[0].share_ == pytest.approx(0.25)
    assert pickle.loads(pickle.dumps(parts[1])).fit(X, y).share_ == pytest.approx(0.25)
    whole = robustfd.merge(parts)  # three parts are empty
    assert whole.share_ == pytest.approx(1.0)
    assert whole.n_samples_seen_ == 400
    assert [part.share_ for part in whole.split(2)] == pytest.approx([0.5, 0.5])
    assert (whole + learned(SketchedNewtonClassifier(), X, y)).share_ == 1.0  # the share never exceeds 1


def test_a_merged_model_explains_itself():
    X, y = stream(n=3000)
    X[::7, 2] = np.nan
    X[1::9, 0] = np.nan
    model = robustfd.merge(parts_of(SketchedNewtonClassifier(), X, y, 3))
    sums = np.array([each.sum(axis=1) for each in model.contributions(X)]).T + model.intercept_
    np.testing.assert_allclose(sums, model.decision_function(X), rtol=1e-6, atol=1e-6)
    assert model.missing_columns_.tolist() == [0, 2]
    assert model.drift_["rows"][-1] == 3000
    assert np.all((model.drift_["share"] > 0) & (model.drift_["share"] < 1))
    assert model.progressive_["rows"][-1] == 3000
    assert model.effects_.shape == (3, 10)
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("d", [60, 400])
def test_merged_parts_are_nearly_as_good_as_one_pass(d):
    rng = np.random.default_rng(0)
    # Rows of ones, as from one-hot columns: they differ only in their features.
    X = sp.csr_array((rng.random((9000, d)) < 8 / d).astype(float))
    y = (X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(9000) > 0).astype(int)
    train, test = slice(0, 7000), slice(7000, None)
    alone = SketchedNewtonClassifier(shuffle=False).fit(X[train], y[train])
    merged = robustfd.merge(
        part.partial_fit(X[i:7000:4], y[i:7000:4], classes=[0, 1])
        for i, part in enumerate(SketchedNewtonClassifier().split(4))
    )
    assert merged.score(X[test], y[test]) > alone.score(X[test], y[test]) - 0.03
    z = (X @ rng.standard_normal(d)) * 100 + 7000
    alone = SketchedNewtonRegressor(shuffle=False).fit(X[train], z[train])
    merged = robustfd.merge(
        part.partial_fit(X[i:7000:4], z[i:7000:4]) for i, part in enumerate(SketchedNewtonRegressor().split(4))
    )
    assert merged.score(X[test], z[test]) > alone.score(X[test], z[test]) - 0.01


def test_a_part_may_see_one_class_only_and_other_features():
    parts = SketchedNewtonClassifier().split(2)
    X = np.random.default_rng(0).standard_normal((300, 4))
    y = (X[:, 0] > 0).astype(int)
    parts[0].partial_fit(X[y == 0], y[y == 0], classes=[0, 1])
    parts[1].partial_fit(X, y, classes=[0, 1])
    assert (parts[0] + parts[1]).score(X, y) > 0.9


def test_features_of_dicts_and_pairs_may_differ():
    rng = np.random.default_rng(0)
    for kind in ("dicts", "pairs"):
        models = SketchedNewtonRegressor().split(2)
        for names, model in zip(([0, 1, 2, 3], [4, 3, 1]), models, strict=True):
            for _ in range(150):
                values = rng.standard_normal(len(names))
                weights = np.array(names) + 1.0
                if kind == "dicts":
                    row = {f"x{name}": float(v) for name, v in zip(names, values, strict=True)}
                else:
                    order = np.argsort(names)
                    row = np.array(names)[order], values[order]
                model.learn_one(row, float(values @ weights))
        for both in (models[0] + models[1], models[1] + models[0]):
            row = {"x0": 1.0, "x4": 1.0} if kind == "dicts" else ([0, 4], [1.0, 1.0])
            assert both.predict_one(row) == pytest.approx(6.0, abs=0.6)
            assert both.n_features_in_ == 5


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda X, y: SketchedNewtonRegressor().fit(X, y), "Cannot merge a SketchedNewtonClassifier with a Sketched"),
        (lambda X, y: SketchedNewtonClassifier(5).fit(X, y), "different sketch_size: 'auto' here, 5 there"),
        (lambda X, y: SketchedNewtonClassifier().fit(X[:, :3], y), "different n_features_in_: 8 here, 3 there"),
        (lambda X, y: SketchedNewtonClassifier().fit(X, y + 1), r"different classes: \[0 1 2\] here, \[1 2 3\] there"),
        (lambda X, y: SketchedNewtonClassifier().learn_one({"a": 1}, 0), "started with rows with one started"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(other, message):
    X, y = stream()
    m = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    before = copy.deepcopy(m)
    with pytest.raises((TypeError, ValueError), match=message):
        m.merge(other(X, y))
    assert_same(m, before, X)


def test_what_cannot_be_split_or_added_is_refused():
    with pytest.raises(ValueError, match="k must be"):
        SketchedNewtonClassifier().split(0)
    with pytest.raises(TypeError):
        SketchedNewtonClassifier() + 1
    with pytest.raises(TypeError, match="takes a list of sketches or models"):
        robustfd.merge(SketchedNewtonClassifier())


@every_face
def test_fit_in_parts_side_by_side_is_the_merge_of_these_parts(make, classification, monkeypatch):
    monkeypatch.setattr(_learning, "LEAST_WORK", 1)
    X, y = targets(classification, n=8192 + 5)
    model = make().fit(X, y, n_jobs=2)
    merged = robustfd.merge(parts_of(make(), X, y, 2))
    merged._complete_fit()
    assert_same(model, merged, X)
    assert not hasattr(model, "_share")
    few = slice(0, 600)
    assert_same(make().fit(X[few], y[few], n_jobs=-1), make().fit(X[few], y[few]), X)
    with pytest.raises(ValueError, match="n_jobs must be"):
        make().fit(X, y, n_jobs=0)


def test_little_work_is_done_in_one_part(monkeypatch):
    X, y = stream(n=8200)
    work = X.size * (len(set(y)) if len(set(y)) > 2 else 1)
    monkeypatch.setattr(_learning, "LEAST_WORK", work // 2 + 1)
    alone, parts = (SketchedNewtonClassifier(random_state=0).fit(X, y, n_jobs=jobs) for jobs in (1, 2))
    assert alone.to_bytes() == parts.to_bytes()
    monkeypatch.setattr(_learning, "LEAST_WORK", work // 2)
    assert SketchedNewtonClassifier(random_state=0).fit(X, y, n_jobs=2).to_bytes() != alone.to_bytes()


def test_several_passes_in_parts(monkeypatch):
    monkeypatch.setattr(_learning, "LEAST_WORK", 1)
    X, y = stream(n=8200)
    model = SketchedNewtonClassifier(epochs=2, random_state=0).fit(X, y, n_jobs=2)
    assert model.n_samples_seen_ == 8200
    assert model.score(X, y) > 0.9


def test_merged_parts_of_a9a_are_as_good_as_one_pass(a9a):
    X, y = a9a
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    train, test = np.arange(22_000), slice(22_000, None)
    alone = SketchedNewtonClassifier(shuffle=False).fit(X[train], y[train])
    merged = robustfd.merge(
        part.partial_fit(X[train[i::8]], y[train[i::8]], classes=[-1, 1])
        for i, part in enumerate(SketchedNewtonClassifier().split(8))
    )
    assert merged.score(X[test], y[test]) > alone.score(X[test], y[test]) - 0.004


def test_a_model_that_grew_beyond_two_memories_is_loaded(tmp_path):
    model, rng = SketchedNewtonRegressor(), np.random.default_rng(0)
    for width in (40, 90):
        for _ in range(120):
            columns, values = np.sort(rng.choice(width, 5, replace=False)), rng.standard_normal(5)
            model.learn_one((columns, values), float(values.sum()))
    assert model.hessian_ == "exact"
    model.save(tmp_path / "grown.rfd")
    np.testing.assert_array_equal(robustfd.load(tmp_path / "grown.rfd").coef_, model.coef_)


@pytest.mark.parametrize("name", ["kept.y", "aside.y"])
def test_a_row_of_no_class_in_a_file_is_noticed(name):
    X, y = stream(n=200)
    part = SketchedNewtonClassifier().split(2)[0]
    part = learned(part, X[:20] if name == "kept.y" else X, y[:20] if name == "kept.y" else y)
    rows = part._model.kept if name == "kept.y" else part._model.aside
    rows[0][1][0] = 3.0
    with pytest.raises(robustfd.SnapshotError, match="unknown class"):
        SketchedNewtonClassifier.from_bytes(part.to_bytes())
