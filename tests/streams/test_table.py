"""Columns of all types become numbers or categories, or are refused by name; layouts come back as they went."""

import datetime
import decimal
import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.feature_extraction import FeatureHasher

from robustfd.streams import StreamError, open_stream
from tests.streams.reading import read, rows_of, same


@pytest.fixture
def put(tmp_path):
    """Return the function that writes a table as an Arrow file and returns its path."""

    def write(columns, name="rows.arrow"):
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        with pa.OSFile(str(tmp_path / name), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return tmp_path / name

    return write


NUMBERS = {
    "int8": pa.array([1, -2], pa.int8()), "uint64": pa.array([2**63, 3], pa.uint64()), "bool": pa.array([True, False]),
    "float16": pa.array(np.array([0.5, 2], np.float16)), "float32": pa.array([0.1, 2], pa.float32()),
    "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.50")]),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_all_types(put, name):
    x, _ = read(put({"a": NUMBERS[name]}))
    np.testing.assert_array_equal(x[:, 0], [float(value) for value in NUMBERS[name].to_pylist()])
    assert x.dtype == (np.float32 if name == "float32" else np.float64)


def test_float32_stays_only_among_its_like(put):
    path = put({"a": pa.array([1, 2], pa.float32()), "b": pa.array([1, 2], pa.float32()), "c": [1.0, 2.0]})
    assert read(path, columns=["a", "b"])[0].dtype == np.float32
    assert read(path)[0].dtype == np.float64
    assert read(path, columns=["a"], target="c")[0].dtype == np.float32


TEXTS = {
    "string": pa.string(), "large_string": pa.large_string(), "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.int64(), pa.large_string()),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_all_types_is_hashed_as_by_scikit_learn(put, name):
    words = ["x", None, "Zürich", "x", "", "日本"]
    path = put({"n": [1.0, 0, 2, 0, 3, 4], "c": pa.array(words, TEXTS[name]), "d": pa.array(words[::-1], TEXTS[name])})
    rows = [{"c": c, "d": d} for c, d in zip(words, words[::-1])]
    want = FeatureHasher(2**5).transform([{k: v for k, v in row.items() if v is not None} for row in rows])
    x, _ = read(path, hash_bits=5)
    np.testing.assert_array_equal(x[:, 1:], want.toarray())
    np.testing.assert_array_equal(x[:, 0], [1, 0, 2, 0, 3, 4])
    assert next(iter(open_stream(path, hash_bits=5))).X.nnz == 4 + want.nnz  # a number that is 0 is left out


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_all_types_is_one_hot(put, name):
    path = put({"c": pa.array(["b", None, "a", "b"], TEXTS[name]), "n": [1, 2, 3, 4]})
    stream = open_stream(path, categories="onehot")
    np.testing.assert_array_equal(rows_of(stream)[0], [[1, 0, 1], [2, 0, 0], [3, 1, 0], [4, 0, 1]])
    assert [stream.feature_name(k) for k in range(3)] == ["n", "c=a", "c=b"]
    assert stream.layout["columns"][0] == {"name": "c", "type": "text", "values": ["a", "b"]}


def test_a_dictionary_may_have_null_values_and_more_than_there_are_rows(put):
    codes = pa.array([0, 1, None, 2], pa.int32())
    values = pa.DictionaryArray.from_arrays(codes, pa.array(["a", None, "b", *(str(k) for k in range(100))]))
    stream = open_stream(put({"c": values}), categories="onehot")
    np.testing.assert_array_equal(rows_of(stream)[0], [[1, 0], [0, 0], [0, 0], [0, 1]])


REFUSED = {
    "list": pa.array([[1, 2]]), "struct": pa.array([{"a": 1}]), "binary": pa.array([b"x"]),
    "duration": pa.array([datetime.timedelta(1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_types_are_refused_by_name(put, name):
    path = put({"a": [1], "odd one": REFUSED[name]})
    with pytest.raises(StreamError, match=f"rows.arrow: the column 'odd one' is of type {name}.*columns="):
        open_stream(path)
    with pytest.raises(StreamError, match="'odd one' is of type"):
        open_stream(path, target="odd one")
    assert read(path, columns=["a"])[0].tolist() == [[1]]


@pytest.mark.parametrize("values, dtype, bad", [
    (pa.array(["u", None, "v"]), object, 1), (pa.array(["u", "v", None]).dictionary_encode(), object, 2),
    (pa.array([1, 2, None], pa.uint8()), np.int64, 2), (pa.array([True, None, False]), np.int64, 1),
    (pa.array([0.5, np.nan, 1]), np.float64, 1), (pa.array([0.5, 1, np.inf], pa.float32()), np.float64, 2),
    (pa.array([None, decimal.Decimal("0.5"), decimal.Decimal("1.5")]), np.float64, 0),
])  # fmt: skip
def test_targets(put, values, dtype, bad):
    path = put({"a": [0.0, 1, 2], "y": values})
    with pytest.raises(StreamError, match=rf"row {bad} \(from 0\): the target, column 'y', is missing"):
        read(path, target="y")
    stream = open_stream(path, target="y", on_error="skip")
    x, y = rows_of(stream)
    assert y.dtype == dtype
    assert y.tolist() == [value for k, value in enumerate(values.to_pylist()) if k != bad]
    assert x[:, 0].tolist() == [k for k in range(3) if k != bad]
    assert stream.position.skipped == 1


def test_missing_numbers(put):
    path = put({"a": pa.array([1, None, np.nan, np.inf]), "c": ["u", "v", "v", "u"]})
    with pytest.raises(StreamError, match=r"row 1 \(from 0\): the column 'a' is missing \(missing='zero'"):
        read(path, hash_bits=1)
    zero = open_stream(path, hash_bits=1, missing="zero", on_error="skip")
    assert rows_of(zero)[0][:, 0].tolist() == [1, 0, 0]
    assert "row 3 (from 0): the column 'a' is not finite" in zero.skipped[0]
    skipping = open_stream(path, hash_bits=1, on_error="skip")
    assert rows_of(skipping)[0].shape == (1, 3)
    assert skipping.position.skipped == 3


def test_too_many_values_for_a_column_each(put):
    path = put({"c": [str(k) for k in range(100_001)]})
    with pytest.raises(StreamError, match="more than 100000 values.*categories='hash'"):
        open_stream(path, categories="onehot")


@pytest.mark.parametrize(
    "options", [{"hash_bits": 1}, {"categories": "onehot"}, {"hash_bits": 7}, {"columns": ["b", "a"]}]
)
def test_a_layout_makes_the_same_columns(put, options):
    rng = np.random.default_rng(1)
    table = pa.table({
        "a": rng.standard_normal(50), "c": rng.choice(["u", "v", "w"], 50), "b": rng.integers(0, 9, 50),
        "y": rng.choice(["no", "yes"], 50),
    })  # fmt: skip
    stream = open_stream(put(table), target="y", **options)
    want, layout = rows_of(stream), json.loads(json.dumps(stream.layout))
    again = open_stream(put(table.select(["y", "b", "c", "a"]), "other.arrow"), layout=layout)
    same(rows_of(again), want)
    assert again.layout == layout
    without = open_stream(put(table.drop_columns(["y"]), "third.arrow"), layout=layout)
    same(rows_of(without), (want[0], None))


def test_a_layout_of_other_types(put):
    layout = open_stream(put({"n": [1.0], "c": ["1"]}), categories="onehot").layout
    other = put({"n": ["2.5", "x", None], "c": [1, 1, 1]}, "other.arrow")
    stream = open_stream(other, layout=layout, on_error="skip", missing="zero")
    np.testing.assert_array_equal(rows_of(stream)[0], [[2.5, 1], [0, 1]])
    assert "row 1 (from 0): the column 'n' should be a number" in stream.skipped[0]


GOOD = {"kind": "table", "columns": [{"name": "a", "type": "number"}], "hash_bits": None, "target": None}


@pytest.mark.parametrize("change", [
    {"kind": "libsvm"}, {"kind": None}, {"columns": None}, {"columns": []}, {"columns": ["a"]}, {"columns": [{}]},
    {"columns": [{"name": 1, "type": "number"}]}, {"columns": [{"name": "a", "type": "dates"}]},
    {"weight": 1}, {"id": "a"}, {"weight": "w", "id": "w"}, {"drop": "b"}, {"drop": [1]}, {"drop": ["a"]},
    {"chosen": 1},
    {"columns": [{"name": "a", "type": "number"}] * 2}, {"columns": [{"name": "a", "type": "text"}]},
    {"columns": [{"name": "a", "type": "text", "values": [1]}]},
    {"columns": [{"name": "a", "type": "text", "values": ["u", "u"]}]},
    {"columns": [{"name": "a", "type": "text", "values": "uv"}]}, {"columns": [{"name": "a", "type": ["text"]}]},
    {"columns": [{"name": "a", "type": "text", "values": []}]},
    {"columns": [{"name": "a", "type": "text", "values": ["u"]}], "hash_bits": 3},
    {"columns": [{"name": "a", "type": "number", "values": ["u"]}]},
    {"hash_bits": 0}, {"hash_bits": 31}, {"hash_bits": True}, {"hash_bits": "3"}, {"target": 1}, {"target": "a"},
])  # fmt: skip
def test_layouts_that_are_none(put, change):
    path = put({"a": [1.0]})
    assert read(path, layout=GOOD)[0].tolist() == [[1]]
    with pytest.raises(StreamError, match="layout"):
        open_stream(path, layout={**GOOD, **change})


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_weights_and_ids_when_reading_goes_on(put, block_bytes):
    rng = np.random.default_rng(2)
    table = pa.table({"a": rng.normal(size=40), "w": rng.integers(1, 9, 40), "who": [f"{k:03d}" for k in range(40)]})
    options = {"weight": "w", "id": "who", "block_bytes": block_bytes}
    stream = open_stream(put(table), **options)
    position = next((stream.position for block in stream if stream.rows_read >= 3), None)
    rest = list(open_stream(put(pa.concat_tables([table, table])), start=position, **options))
    want = pa.concat_tables([table, table]).slice(position.rows)
    for values, name in (
        (lambda block: block.X[:, 0], "a"),
        (lambda block: block.weight, "w"),
        (lambda block: block.id, "who"),
    ):
        assert np.concatenate([values(block) for block in rest]).tolist() == want.column(name).to_pylist()
    heavier = table.set_column(1, "w", pa.array(rng.integers(10, 19, 40)))
    with pytest.raises(StreamError, match="was changed"):
        list(open_stream(put(heavier), start=position, **options))
