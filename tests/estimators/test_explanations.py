"""Explanations have names, and the contributions of a row sum to its prediction."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes

from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor, load
from tests.estimators.test_tables import frame

LIBRARIES = {"pandas": lambda t: t, "polars": pl.from_pandas, "arrow": lambda t: pa.Table.from_pandas(t)}


def fitted(outputs, table, y):
    """Return a model with this number of outputs, 0 for a regressor."""
    if outputs == 0:
        return SketchedNewtonRegressor(random_state=0).fit(table, y + 0.5)
    labels = y if outputs == 1 else y + (np.arange(len(y)) % 2)
    return SketchedNewtonClassifier(random_state=0).fit(table, labels)


def predictions(model, table):
    """Return what contributions sum to, of shape (n, outputs)."""
    found = model.decision_function(table) if hasattr(model, "classes_") else model.predict(table)
    if getattr(model, "loss", "") == "poisson":
        found = np.log(found)
    return found.reshape(len(table), -1)


def frames(found):
    """Return contributions as a list of pandas DataFrames."""
    found = found if isinstance(found, list) else [found]
    return [each if isinstance(each, pd.DataFrame) else each.to_pandas() for each in found]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("outputs", [0, 1, 3])
def test_a_table_is_explained_by_a_table(library, outputs):
    table, y = frame()
    table.index = [f"row {k}" for k in range(len(table))]
    model = fitted(outputs, table, y)
    assert model.feature_names_in_.tolist() == list(table.columns) and model.n_features_in_ == 6
    given = LIBRARIES[library](table.iloc[:, ::-1])  # the order of the columns does not matter
    if library == "arrow":
        given = given.drop_columns("__index_level_0__")
    found = model.contributions(given)
    assert all(type(each) is type(given) for each in (found if outputs == 3 else [found]))
    columns, values = frames(found), frames(model.contributions(given, by="value"))
    assert len(columns) == len(values) == max(outputs, 1)
    for by_column, by_value in zip(columns, values, strict=True):
        assert list(by_column.columns) == list(table.columns)
        assert {"amount", "city=Rome", "city=", "code=c7", "date", "date:weekday_sin"} <= set(by_value.columns)
        for name in table.columns:
            own = [c for c in by_value.columns if c == name or c.startswith((f"{name}=", f"{name}:"))]
            np.testing.assert_allclose(by_value[own].sum(axis=1), by_column[name], atol=1e-9)
        if library == "pandas":
            assert list(by_column.index) == list(by_value.index) == list(table.index)
    for by in ("column", "value"):
        whole = frames(model.contributions(given, by=by, intercept=True))
        assert all(each.columns[-1] == "(intercept)" for each in whole)
        sums = np.column_stack([each.sum(axis=1) for each in whole])
        np.testing.assert_allclose(sums, predictions(model, table), rtol=1e-12, atol=1e-12)
    if outputs:
        sums = np.column_stack([each.sum(axis=1) for each in columns]) + model.intercept_
        np.testing.assert_allclose(sums, predictions(model, table), atol=1e-4)


def test_values_that_share_a_hashed_feature_and_usual_values(monkeypatch):
    monkeypatch.setattr("robustfd.streams.layout.DEFAULT_BITS", 3)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.choice(list("uvwxyz"), 300) for name in ("a", "b", "a=u")})
    table["usual"] = np.where(rng.random(300) < 0.95, "yes", "no")
    y = ((table["a"] < "w") ^ (rng.random(300) < 0.2)).astype(int)
    for model in (SketchedNewtonClassifier(random_state=0).fit(table, y), SketchedNewtonRegressor(random_state=0)):
        model.fit(table, y)
        assert len(model._model.experts.features.centred)
        found = model.contributions(table, intercept=True)
        assert list(found.columns) == [*table.columns, "(intercept)"]
        np.testing.assert_allclose(found.sum(axis=1), predictions(model, table)[:, 0], rtol=1e-12, atol=1e-12)
        alone = pd.concat([model.contributions(table[k : k + 1]) for k in range(5)])  # other rows do not matter
        np.testing.assert_allclose(alone, found.iloc[:5, :4], atol=1e-12)


def test_tables_of_numbers_and_of_dates_alone():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = SketchedNewtonRegressor(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.contributions(X), X * model.coef_, rtol=1e-9, atol=1e-9)
    assert list(model.contributions(X, intercept=True).columns) == [*X.columns, "(intercept)"]
    assert isinstance(model.contributions(pl.from_pandas(X)), pl.DataFrame)
    assert model.contributions(X[:0]).shape == (0, 10)
    table, y = frame()
    model = SketchedNewtonClassifier(random_state=0).fit(table[["date", "stamp"]], y)
    found = model.contributions(table[["date", "stamp"]], intercept=True)
    assert list(found.columns) == ["date", "stamp", "(intercept)"]
    np.testing.assert_allclose(found.sum(axis=1), model.decision_function(table[["date", "stamp"]]), atol=1e-12)
    with pytest.raises(ValueError, match="by must be one of 'column', 'value', got 'row'"):
        model.contributions(table, by="row")


def test_names_are_saved_merged_and_copied(tmp_path):
    table, y = frame()
    model = SketchedNewtonClassifier(shuffle=False).fit(table[:200], y[:200])
    one, two = model.split(2)
    one.partial_fit(table[200:300], y[200:300])
    two.partial_fit(table[300:].assign(city="Bonn"), y[300:])
    merged = one + two
    merged.save(tmp_path / "m.rfd")
    others = (load(tmp_path / "m.rfd"), pickle.loads(pickle.dumps(merged)), copy.deepcopy(merged))
    for each in (merged, *others):
        names = {seen.name for seen in each._encoder._names.values()}
        assert {"city=Bonn", "city=Rome", *(f"code={c}" for c in table["code"])} <= names
        assert each.feature_names_in_.tolist() == list(table.columns)
        pd.testing.assert_frame_equal(each.contributions(table), merged.contributions(table))
    before = merged.to_bytes()
    with pytest.raises(ValueError, match="missing label"):
        merged.partial_fit(table.assign(city="Kiel"), [None, *y[1:]])
    assert merged.to_bytes() == before


# -- limits


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["squared", "huber", "absolute", "poisson"]), st.booleans(),
    st.sampled_from([1.0, 10.0, 1e6]),
)  # fmt: skip
def test_sums_are_predictions_also_where_these_are_limited(seed, loss, sparse, far):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 4)) + (5, 0, 0, 0)
    X[rng.random(X.shape) < 0.2] = 0
    y = np.exp(X[:, 1]) if loss == "poisson" else X @ (1, 2, -1, 0) + rng.standard_normal(200)
    model = SketchedNewtonRegressor(loss=loss, shuffle=False).fit(sp.csr_array(X) if sparse else X, y)
    rows = np.vstack([X, far * X[:50], np.zeros((1, 4))])
    found = model.contributions(sp.csr_array(rows) if sparse else rows, intercept=True)
    assert sp.issparse(found) == sparse
    found = found.toarray() if sparse else found
    wanted = predictions(model, rows)[:, 0]
    np.testing.assert_allclose(found.sum(axis=1), wanted, rtol=1e-9, atol=1e-9 * np.abs(found).max())
    inside = np.abs(y - y.mean()) < 0.3 * np.ptp(y)
    rest = found[: len(y), -1][inside & (np.abs(wanted[: len(y)] - y.mean()) < 0.3 * np.ptp(y))]
    assert loss == "poisson" or np.median(np.abs(rest - model.intercept_)) <= 1e-4 * max(np.ptp(y), 1)
    if far == 10 and loss != "poisson":  # values beyond 30 units count as missing
        assert np.abs(found[200:250, -1] - model.intercept_).max() > 0.1  # the limit is in the last column


# -- single rows


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_one_dict_is_explained_by_its_names(classes):
    rng = np.random.default_rng(0)
    rows = [
        {"x": float(x), "kind": str(kind), "flag": bool(flag), "gap": None if flag else 1.0}
        for x, kind, flag in zip(rng.normal(size=300), rng.choice(["u", "v"], 300), rng.random(300) < 0.3, strict=True)
    ]
    model = SketchedNewtonClassifier() if classes else SketchedNewtonRegressor()
    assert model.contributions_one(rows[0]) == {}
    for k, row in enumerate(rows):
        score = row["x"] + (row["kind"] == "u")
        model.learn_one(row, int(score > 0.5) + (k % 2 if classes == 3 else 0) if classes else score)
    for row in (*rows[:20], {"x": 1.0, "new": 3.0}, {}):
        found = model.contributions_one(row, intercept=True)
        by_value = model.contributions_one(row, by="value", intercept=True)
        if classes == 3:
            assert list(found) == list(by_value) == model.classes_.tolist()
        else:
            found, by_value = {0: found}, {0: by_value}
        margins = model._margins_of_one(row)
        for one, other, margin in zip(found.values(), by_value.values(), margins, strict=True):
            assert {*row} <= {*one} <= {*row, "x", "kind", "flag", "gap", "(intercept)"}
            assert {*other} <= {*model.vocabulary_, "(intercept)"}
            assert sum(one.values()) == pytest.approx(margin, abs=1e-9)
            assert sum(other.values()) == pytest.approx(margin, abs=1e-9)
            assert one.get("new", 0.0) == 0.0


def test_one_row_of_a_table_of_an_array_and_a_pair():
    table, y = frame()
    model = SketchedNewtonClassifier(random_state=0).fit(table, y)
    one = model.contributions_one(table.iloc[3].to_dict(), intercept=True)
    assert one == pytest.approx(model.contributions(table, intercept=True).iloc[3].to_dict(), abs=1e-9)
    with pytest.raises(ValueError, match="x must be a dict"):
        model.predict_one(np.zeros(6))
    X = np.random.default_rng(0).standard_normal((100, 3))
    model = SketchedNewtonRegressor(random_state=0).fit(X, X[:, 0])
    assert list(model.contributions_one(X[0]).values()) == pytest.approx(model.contributions(X[:1])[0])
    pairs = SketchedNewtonRegressor()
    for row in X:
        pairs.learn_one((np.array([2, 7]), row[:2]), row[0])
    found = pairs.contributions_one((np.array([2, 7]), X[0, :2]), intercept=True)
    assert {2, 7} <= {*found}
    assert sum(found.values()) == pytest.approx(pairs.predict_one((np.array([2, 7]), X[0, :2])))
