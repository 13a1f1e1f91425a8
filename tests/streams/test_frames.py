"""A table is the same rows whether it comes from CSV, Parquet, Arrow, pandas or polars."""

import datetime
import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd.streams import StreamError, TableEncoder, is_table, open_stream
from tests.streams.reading import rows_of

ROWS = 200


def _table():
    """Return a table as people have them: numbers, dates, text, booleans, wide categories, missing cells, ids."""
    rng = np.random.default_rng(0)
    days = pd.to_datetime("2019-12-25") + pd.to_timedelta(rng.integers(0, 800, ROWS), unit="D")
    seconds = pd.to_timedelta(rng.integers(0, 86_400, ROWS), unit="s")
    frame = pd.DataFrame({
        "number": rng.normal(size=ROWS).round(6), "whole": rng.integers(0, 50, ROWS), "flag": rng.random(ROWS) < 0.3,
        "day": days, "instant": days + seconds, "text": rng.choice(["red", "green", "Zürich"], ROWS),
        "category": pd.Categorical(rng.choice(["a", "b", "c"], ROWS)),
        "wide": [f"user {k}" for k in rng.integers(0, 150, ROWS)], "row": [f"{k:05d}" for k in range(ROWS)],
        "weight": rng.integers(1, 4, ROWS), "notes": "nothing", "y": rng.choice(["yes", "no"], ROWS),
    })  # fmt: skip
    frame["hour"] = pd.Series([(datetime.datetime(2020, 1, 1) + each).time() for each in seconds.to_pytimedelta()])
    frame["maybe"] = pd.array(rng.random(ROWS) < 0.5, dtype="boolean")
    frame["count"] = pd.array(rng.integers(0, 9, ROWS), dtype="Int64")
    for name in ("number", "maybe", "count", "day", "instant", "text", "category", "hour"):
        frame.loc[rng.random(ROWS) < 0.1, name] = None
    return frame


FRAME = _table()
ROLES = {"target": "y", "weight": "weight", "id": "row", "drop": ["notes"]}
SOURCES = ["csv", "parquet", "arrow", "pandas", "polars", "pyarrow"]


def _encoded(source, folder, **options):
    """Return X, y, weights, ids and the layout of the table from somewhere."""
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    if source in ("csv", "parquet", "arrow"):
        path = folder / f"rows.{source}"
        if source == "csv":
            FRAME.to_csv(path, index=False)
        elif source == "parquet":
            FRAME.to_parquet(path, index=False)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        stream = open_stream(path, missing="nan", block_bytes=5000, **options)
        blocks = list(stream)
        names, layout = [stream.feature_name(k) for k in range(stream.n_features)], stream.layout
    else:
        frame = {"pandas": FRAME, "polars": pl.from_arrow(table), "pyarrow": table}[source]
        encoder = TableEncoder.learn(frame, **options)
        blocks = [encoder.encode(frame[begin : begin + 70]) for begin in range(0, ROWS, 70)]
        names, layout = [encoder.feature_name(k) for k in range(encoder.n_features)], encoder.layout
    y, weight, ids = (np.concatenate([getattr(each, name) for each in blocks]) for name in ("y", "weight", "id"))
    return sp.vstack([sp.csr_matrix(block.X) for block in blocks]).toarray(), y, weight, ids, names, layout


@pytest.mark.parametrize("categories", [{"hash_bits": 6}, {"categories": "onehot"}])
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_table_from_anywhere(tmp_path, source, categories):
    want = _encoded("pandas", tmp_path, **ROLES, **categories)
    x, y, weight, ids, names, layout = _encoded(source, tmp_path, **ROLES, **categories)
    np.testing.assert_allclose(x, want[0], rtol=1e-12, atol=1e-12)
    assert (y == FRAME["y"]).all()
    assert (weight == FRAME["weight"]).all()
    assert (ids == FRAME["row"]).all()
    assert (names, layout) == want[4:]


def test_names_and_values():
    encoder = TableEncoder.learn(FRAME, **ROLES, categories="onehot")
    names = [encoder.feature_name(k) for k in range(encoder.n_features)]
    cycles = [f"{part}_{wave}" for part in ("time", "weekday", "yearday") for wave in ("sin", "cos")]
    instant = ["instant", *(f"instant:{each}" for each in cycles)]
    assert names[:3] == ["number", "whole", "flag"]
    assert names[10:17] == instant
    assert names[17:23] == ["hour", "hour:time_sin", "hour:time_cos", "maybe", "count", "text="]
    x = encoder.encode(FRAME).X
    assert sp.issparse(x)
    columns = {name: x[:, [k]].toarray()[:, 0] for k, name in enumerate(names)}
    missing = FRAME["number"].isna()
    assert (np.isnan(columns["number"]) == missing).all()
    assert (columns["text="] == FRAME["text"].isna()).all()
    assert (columns["wide=user 3"] == (FRAME["wide"] == "user 3")).all()


@given(st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2600, 1, 1)))
def test_dates_are_the_numbers_that_the_calendar_has(when):
    table = pa.table({"t": [when]})
    x = TableEncoder.learn(table).encode(table).X[0]
    days = (when - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
    year = (datetime.date(when.year + 1, 1, 1) - datetime.date(when.year, 1, 1)).days
    midnight = when.replace(hour=0, minute=0, second=0, microsecond=0)
    cycles = [(when - midnight) / datetime.timedelta(days=1), when.weekday() / 7, (when.timetuple().tm_yday - 1) / year]
    waves = [wave(2 * np.pi * each) for each in cycles for wave in (np.sin, np.cos)]
    np.testing.assert_allclose(x, [days, *waves], atol=1e-9)


TIMES = {
    "2020-02-29": 18321, "2020-02-29 12:00": 18321.5, "2020-02-29T12:00:00": 18321.5, "2020-02-29T12:00:00Z": 18321.5,
    "2020-02-29 13:00:00+01:00": 18321.5, "2020-02-29 12:00:00.000000000": 18321.5, "1969-12-31": -1,
}  # fmt: skip


@pytest.mark.parametrize("text", TIMES)
def test_text_that_is_dates(tmp_path, text):
    (tmp_path / "rows.csv").write_text(f"a,when\n1,{text}\n2,\n3,{text}\n")
    x, _ = rows_of(open_stream(tmp_path / "rows.csv", missing="nan"))
    np.testing.assert_allclose(x[:, 1], [TIMES[text], np.nan, TIMES[text]])
    frame = pd.DataFrame({"a": [1, 2, 3], "when": [text, None, text]})
    np.testing.assert_array_equal(TableEncoder.learn(frame).encode(frame).X, x)
    frame.to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(rows_of(open_stream(tmp_path / "rows.parquet", missing="nan"))[0], x)


@pytest.mark.parametrize("texts", [["2020-01-01", "soon"], ["2020-13-01", "2020-01-01"], ["20200101x", "2020-01-01"]])
def test_text_that_is_not_always_a_date_is_text(tmp_path, texts):
    (tmp_path / "rows.csv").write_text("a,when\n" + "".join(f"1,{text}\n" for text in texts))
    stream = open_stream(tmp_path / "rows.csv", hash_bits=3)
    frame = pd.DataFrame({"a": [1, 1], "when": texts})
    assert stream.layout["columns"][1]["type"] == "text"
    assert TableEncoder.learn(frame, hash_bits=3).layout == stream.layout


def test_a_date_that_is_none_is_named_with_its_line(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,when\n1,2020-01-01\n")
    layout = open_stream(path).layout
    path.write_text("a,when\n1,2020-01-01\n2,soon\n")
    with pytest.raises(StreamError, match="line 3: the column 'when' should be a date: '2,soon'"):
        rows_of(open_stream(path, layout=layout))


@pytest.mark.parametrize("text", ["2020-01-01", "12:30:00"])
def test_a_block_may_have_a_header_alone(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(f"a,when\n1.{'0' * 70},{text}\n")
    assert rows_of(open_stream(path, block_bytes=64))[0].shape[0] == 1


def test_dates_with_a_zone_are_instants():
    utc = pd.DataFrame({"t": pd.to_datetime(["2020-07-01 12:00", None], utc=True)})
    encoder = TableEncoder.learn(utc)
    want = encoder.encode(utc).X
    np.testing.assert_array_equal(encoder.encode(utc.assign(t=utc["t"].dt.tz_convert("Asia/Tokyo"))).X, want)
    np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"t": ["2020-07-01 14:00+02:00", None]})).X, want)


def test_an_encoder_goes_by_pickle_by_json_and_to_files(tmp_path):
    encoder = TableEncoder.learn(FRAME, **ROLES)
    want = encoder.encode(FRAME).X
    for other in (pickle.loads(pickle.dumps(encoder)), TableEncoder(json.loads(json.dumps(encoder.layout)))):
        assert other.layout == encoder.layout
        got = other.encode(FRAME).X
        np.testing.assert_array_equal(got.indices, want.indices)
        np.testing.assert_array_equal(got.data, want.data)
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    x = sp.vstack([x for x, _ in open_stream(tmp_path / "rows.csv", layout=encoder.layout, missing="nan")])
    np.testing.assert_array_equal(x.indices, want.indices)
    np.testing.assert_allclose(x.data, want.data, rtol=1e-12)


def test_without_target_weight_and_id_later():
    encoder = TableEncoder.learn(FRAME, **ROLES)
    block = encoder.encode(FRAME.drop(columns=["y", "weight", "row", "notes"]))
    assert (block.y, block.weight, block.id) == (None, None, None)


def test_rows_as_dicts():
    encoder = TableEncoder.learn(FRAME, **ROLES, categories="onehot")
    rows = FRAME.drop(columns=["notes"]).to_dict("records")
    sparse = [{name: value for name, value in row.items() if value == value and value is not None} for row in rows]
    want = encoder.encode(FRAME)
    for given_rows in (rows, sparse):
        block = encoder.encode(given_rows)
        np.testing.assert_allclose(block.X.toarray(), want.X.toarray(), rtol=1e-12, atol=1e-12)
        assert (block.y == want.y).all()
    np.testing.assert_allclose(encoder.encode(sparse[:1]).X.toarray(), want.X[:1].toarray(), atol=1e-12)


SMALL = pd.DataFrame({"n": [1.0, 2.0], "t": ["u", "v"], "d": pd.to_datetime(["2020-01-01", "2020-01-02"])})


@pytest.mark.parametrize("change, message", [
    ({"new": [1, 2]}, "an unexpected column 'new'; expected are 'd', 'n', 't'"),
    ({"n": ["x", "y"]}, "the column 'n' is of type .*string, and should be a number"),
    ({"t": [1, 2]}, "the column 't' is of type int64, and should be a text"),
    ({"d": [1, 2]}, "the column 'd' is of type int64, and should be a date"),
    ({"d": ["2020-01-01", "soon"]}, r"row 1 \(from 0\): the column 'd' should be a date"),
    ({"n": [1, np.inf]}, r"row 1 \(from 0\): the column 'n' is not finite"),
    ({"n": [1, "x"]}, "columns that cannot be read"), ({"n": [1j, 2]}, "columns that cannot be read"),
    ({"n": pd.period_range("2020", periods=2)}, "'n' is of type .*period.*drop="),
    ({"n": [[1], [2]]}, "'n' is of type list.*drop="),
])  # fmt: skip
def test_tables_that_changed(change, message):
    encoder = TableEncoder.learn(SMALL)
    with pytest.raises(StreamError, match=message):
        encoder.encode(SMALL.assign(**change))
    assert encoder.encode(SMALL).X.shape[0] == 2


def test_a_column_that_is_gone_or_there_twice():
    encoder = TableEncoder.learn(SMALL)
    with pytest.raises(StreamError, match="The table has no column 't'; its columns are 'n', 'd'"):
        encoder.encode(SMALL[["n", "d"]])
    with pytest.raises(StreamError, match="cannot be read.*uplicate"):
        encoder.encode(pd.concat([SMALL, SMALL[["n"]]], axis=1))
    chosen = TableEncoder.learn(SMALL, columns=["n"])
    assert chosen.encode(SMALL.assign(new=1)).X.tolist() == [[1], [2]]


def test_a_column_may_be_missing_altogether_in_a_later_table():
    encoder = TableEncoder.learn(SMALL, categories="onehot")
    x = encoder.encode(SMALL.assign(n=[None, None], t=[None, None], d=[None, None])).X.toarray()
    np.testing.assert_array_equal(x, [[np.nan] * 8 + [0, 0]] * 2)


def test_missing_numbers_are_zero_or_nan_or_refused():
    frame = pd.DataFrame({"n": [1.0, None]})
    layout = TableEncoder.learn(frame).layout
    for missing, want in (("zero", 0.0), ("nan", np.nan)):
        np.testing.assert_array_equal(TableEncoder(layout, missing=missing).encode(frame).X, [[1], [want]])
    encoder = TableEncoder(layout, missing="error")
    with pytest.raises(
        StreamError, match=r"row 1 .*'n' is missing \(missing='zero' reads it as 0, drop=\['n'\] ignores"
    ):
        encoder.encode(frame)


@pytest.mark.parametrize("weights", [[1, -1], [1, None], [1, np.inf]])
def test_weights_are_numbers_from_0(weights):
    frame = SMALL.assign(w=weights)
    with pytest.raises(StreamError, match=r"row 1 \(from 0\): the weight, column 'w', should be a number >= 0"):
        TableEncoder.learn(frame, weight="w").encode(frame)


def test_a_column_has_one_role():
    with pytest.raises(ValueError, match="'n' is the target and has another role too"):
        TableEncoder.learn(SMALL, target="n", drop=["n"])
    with pytest.raises(ValueError, match="'n' is the target and has another role too"):
        TableEncoder.learn(SMALL, target="n", weight=0)


def test_what_is_a_table():
    assert all(is_table(each) for each in (SMALL, pl.DataFrame({"a": [1]}), pa.table({"a": [1]})))
    assert not any(is_table(each) for each in (np.zeros((2, 2)), sp.csr_matrix((2, 2)), [[1, 2]], {"a": 1}))
    with pytest.raises(TypeError, match="table must be a DataFrame .* got ndarray"):
        TableEncoder.learn(np.zeros((2, 2)))
    with pytest.raises(StreamError, match="has 0 rows"):
        TableEncoder.learn(SMALL[:0])


def test_a_later_table_may_have_no_rows():
    encoder = TableEncoder.learn(SMALL, target="n")
    for table in (SMALL[:0], pl.from_pandas(SMALL)[:0], pa.Table.from_pandas(SMALL)[:0], []):
        assert encoder.encode(table).X.shape == (0, encoder.n_features)


@pytest.mark.parametrize("values, texts", [
    ([1, 2, None, 1], ["1", "2", None, "1"]), ([1.0, 2.5, None, 1.0], ["1", "2.5", None, "1"]),
    ([True, False, None, True], ["true", "false", None, "true"]),
])  # fmt: skip
def test_categories_that_are_numbers_are_categories(tmp_path, values, texts):
    as_text = pd.DataFrame({"a": [0.5] * 4, "k": texts})
    encoder = TableEncoder.learn(as_text)
    want = encoder.encode(as_text).X.toarray()
    frame = as_text.assign(k=pd.Categorical(values, categories=sorted({*values} - {None})))
    arrow = pa.Table.from_pandas(frame)
    assert pa.types.is_dictionary(arrow.schema.field("k").type)
    with pa.ipc.new_file(tmp_path / "rows.arrow", arrow.schema) as file:
        file.write_table(arrow)
    for table in (frame, arrow):
        assert TableEncoder.learn(table).layout == encoder.layout
        np.testing.assert_array_equal(encoder.encode(table).X.toarray(), want)
    np.testing.assert_array_equal(rows_of(open_stream(tmp_path / "rows.arrow", missing="nan"))[0], want)
    dicts = [{"a": 0.5, "k": value} for value in values]
    np.testing.assert_array_equal(encoder.encode(dicts).X.toarray(), want)
    onehot = TableEncoder.learn(frame, categories="onehot")
    assert [onehot.feature_name(k) for k in range(4)] == ["a", "k=", *(f"k={text}" for text in sorted({*texts[:2]}))]
    labels = TableEncoder.learn(frame[:2], target="k").encode(frame[:2]).y  # the labels are still numbers
    assert labels.tolist() == values[:2] and labels.dtype.kind in "if"
    plain = TableEncoder.learn(pd.DataFrame({"k": pd.array(values[:2])}))  # and can be read as numbers
    assert plain.encode(frame[["k"]]).X[:2, 0].tolist() == values[:2]


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum("vu")])
def test_categories_of_polars_are_categories(dtype):
    text = pl.DataFrame({"t": ["u", "v"]})
    encoder = TableEncoder.learn(table := text.cast(dtype))
    assert encoder.layout == TableEncoder.learn(text).layout
    np.testing.assert_array_equal(encoder.encode(table).X.toarray(), encoder.encode(text).X.toarray())


@pytest.mark.parametrize("type_, units", [
    (pa.timestamp("s"), 86_400), (pa.timestamp("s", "UTC"), 86_400), (pa.timestamp("ms"), 86_400_000), (pa.date32(), 1),
    (pa.date64(), 86_400_000),
])  # fmt: skip
@pytest.mark.parametrize("days", [2 * 10**9, -(2 * 10**9), 146_097 * 5000])
def test_times_that_do_not_fit_into_microseconds(type_, units, days):
    whole = pa.array([0, days * units, None], pa.int32() if type_ == pa.date32() else pa.int64())
    table = pa.table({"d": whole.cast(type_)})
    x = TableEncoder.learn(table).encode(table).X
    assert x[:2, 0].tolist() == [0, days] and np.isnan(x[2]).all()
    weekday = 2 * np.pi * ((days + 3) % 7) / 7
    np.testing.assert_allclose(x[1, 1:5], [0, 1, np.sin(weekday), np.cos(weekday)], atol=1e-12)
    np.testing.assert_allclose(np.hypot(x[1, 5], x[1, 6]), 1)
    if days % 146_097 == 0:  # the calendar repeats after 400 years
        np.testing.assert_allclose(x[1, 1:], x[0, 1:], atol=1e-12)


def test_names_of_columns_may_be_numbers():
    frame = pd.DataFrame([[1.0, 2.0]])
    encoder = TableEncoder.learn(frame)
    assert encoder.column_names == ["0", "1"]
    assert encoder.encode(frame).X.tolist() == [[1, 2]]


@pytest.mark.parametrize("column, message", [
    (pa.array([5]), "the column 'd' is of type int64, and should be a date"),
    (pa.array([datetime.time(1)]), "the column 'd' is of type time64.us., and should be a date"),
])  # fmt: skip
def test_files_whose_types_changed(tmp_path, column, message):
    layout = TableEncoder.learn(pa.table({"d": [datetime.date(2020, 1, 1)]})).layout
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"d": ["1970-01-03"]}), path)
    assert rows_of(open_stream(path, layout=layout))[0][0, 0] == 2
    pq.write_table(pa.table({"d": column}), path)
    with pytest.raises(StreamError, match=message):
        open_stream(path, layout=layout)


CELLS = {
    "number": st.integers(-(10**6), 10**6).map(lambda k: k / 64), "flag": st.booleans(),
    "text": st.text(st.sampled_from("abé ,\"\n"), min_size=1, max_size=4).map("x{}".format),
    "date": st.dates(datetime.date(1700, 1, 1)).map(str),
    "instant": st.datetimes(datetime.datetime(1700, 1, 1)).map(str),
}  # fmt: skip


@given(st.data(), st.integers(1, 8), st.sampled_from([64, 1 << 20]))
def test_any_table_from_csv_and_from_pandas(tmp_path_factory, data, rows, block_bytes):
    kinds = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4))
    columns = {}
    for k, kind in enumerate(kinds):
        cells = data.draw(st.lists(st.none() | CELLS[kind], min_size=rows, max_size=rows))
        columns[f"c{k}"] = [data.draw(CELLS[kind]), *cells]  # a column without any value is of no kind
    frame, path = pd.DataFrame(columns), tmp_path_factory.mktemp("table") / "rows.csv"
    frame.to_csv(path, index=False)
    encoder = TableEncoder.learn(frame, hash_bits=5)
    stream = open_stream(path, missing="nan", hash_bits=5, header=True, delimiter=",", block_bytes=block_bytes)
    assert stream.layout == encoder.layout
    np.testing.assert_allclose(rows_of(stream)[0], sp.csr_matrix(encoder.encode(frame).X).toarray(), rtol=1e-12)


def test_too_many_values_for_a_column_each():
    frame = pd.DataFrame({"c": [str(k) for k in range(100_001)]})
    with pytest.raises(StreamError, match="The table: columns of text have more than 100000 values.*categories='hash'"):
        TableEncoder.learn(frame, categories="onehot")
