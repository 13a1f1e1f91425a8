"""Tables with dates, missing values, text, booleans and many categories give the same model from any library."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor, load
from robustfd.streams import open_stream


def frame(n=400, seed=0):
    """Return a table, and labels that depend on each kind of column."""
    rng = np.random.default_rng(seed)
    amount = rng.lognormal(3, 1, n).round(2)
    city = rng.choice(["Oslo", "Rome", "Lima"], n)
    code = rng.integers(0, 300, n)
    member = rng.random(n) < 0.4
    day = rng.integers(0, 700, n)
    score = np.log(amount) - 3 + (city == "Rome") - 0.5 * member + 1.5 * (day % 7 == 5) + 0.5 * (code % 2)
    table = pd.DataFrame(
        {
            "amount": np.where(rng.random(n) < 0.1, np.nan, amount),
            "city": np.where(rng.random(n) < 0.1, None, city),
            "code": [f"c{k}" for k in code],
            "member": member,
            "date": [dt.date(2024, 1, 1) + dt.timedelta(days=int(k)) for k in day],
            "stamp": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**7, n), unit="s"),
        }
    )
    return table, (score > np.median(score)).astype(int)


def test_the_same_predictions_from_a_file_and_from_any_frame(tmp_path):
    table, y = frame()
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    with_y = arrow.append_column("y", pa.array(y))
    pyarrow.csv.write_csv(with_y, tmp_path / "t.csv")
    pyarrow.parquet.write_table(with_y, tmp_path / "t.parquet")
    models = [
        SketchedNewtonClassifier(shuffle=False).fit(each, y).predict_proba(each)[:, 1]
        for each in (table, pl.from_arrow(arrow), arrow, table.astype({"city": "category"}))
    ]
    for name in ("t.csv", "t.parquet"):
        model = SketchedNewtonClassifier(shuffle=False)
        stream = open_stream(tmp_path / name, target="y", missing="nan")
        blocks = [(X, np.asarray(labels, int)) for X, labels in stream]
        for X, labels in blocks:
            model.partial_fit(X, labels, classes=[0, 1])
        models.append(np.concatenate([model.predict_proba(X)[:, 1] for X, _ in blocks]))
    for other in models[1:]:
        np.testing.assert_allclose(other, models[0], rtol=1e-6, atol=1e-9)
    assert np.mean((models[0] > 0.5) == y) > 0.82


def test_a_model_of_a_table_is_saved_goes_on_and_takes_dicts(tmp_path):
    table, y = frame()
    model = SketchedNewtonClassifier(shuffle=False).partial_fit(table[:200], y[:200], classes=[0, 1])
    model.save(tmp_path / "m.rfd")
    other = load(tmp_path / "m.rfd")
    for each in (model, other):
        each.partial_fit(table[200:], y[200:])
    np.testing.assert_array_equal(model.predict_proba(table), other.predict_proba(table))
    row = table.iloc[3].to_dict()
    assert other.predict_one(row) == model.predict(table[3:4])[0]
    parts = model.contributions(table)
    np.testing.assert_allclose(parts.sum(axis=1) + model.intercept_, model.decision_function(table), atol=1e-4)


def test_what_does_not_fit_is_refused_and_nothing_changes():
    table, y = frame()
    model = SketchedNewtonRegressor(shuffle=False).fit(table, y)
    before = model.to_bytes()
    for wrong, message in (
        (table.drop(columns="city"), "city"),
        (table.assign(amount="many"), "amount"),
        (np.zeros((400, 6)), "table"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(wrong, y)
    assert model.to_bytes() == before
