"""JSON lines give the rows of the same dicts, and what is wrong is said with its line."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

from robustfd.streams import StreamError, open_stream
from tests.streams.reading import read, rows_of, same

SUFFIX = ".jsonl"  # of the files that `put` writes


def hashed(*rows, bits=18):
    return FeatureHasher(2**bits).transform(rows).toarray()


NAME = st.text(st.characters(codec="utf-8"), max_size=5)
VALUE = st.floats(-1e9, 1e9) | st.integers(-99, 99) | st.booleans() | st.text(max_size=5)


@given(st.lists(st.dictionaries(NAME, VALUE, max_size=6), min_size=1, max_size=6), st.booleans(), st.integers(64, 200))
def test_flat_objects_are_the_rows_of_their_dicts(tmp_path_factory, rows, plain, block_bytes):
    path = tmp_path_factory.mktemp("json") / "rows.jsonl"
    lines = (json.dumps(row, ensure_ascii=plain) for row in rows)
    path.write_bytes(b"".join(f"{line}\r\n".encode("utf-8", "surrogatepass") for line in lines))
    same(read(path, hash_bits=6, block_bytes=block_bytes), read(rows, hash_bits=6))


def test_objects_in_objects_and_lists(put):
    x, y = read(
        put([{"a": {"b": 2, "c": {"d": "x"}}, "e": [1.5, 0, -2], "t": ["u", "v", "u"], "on": True, "off": False}])
    )
    want = {"a.b": 2, "a.c.d": "x", "e.0": 1.5, "e.1": 0, "e.2": -2, "t=u": 2, "t=v": 1, "on": 1, "off": 0}
    np.testing.assert_array_equal(x, hashed(want))
    assert y is None


def test_what_is_missing_is_left_out(put):
    path = put('{"a": null, "b": 1}\n{"a": NaN, "b": 1, "c": [null, 3], "d": {}}\n\n{"b": 1, "c": [null, 3]}\n')
    x, _ = read(path)
    np.testing.assert_array_equal(x, hashed({"b": 1}, {"b": 1, "c.1": 3}, {"b": 1, "c.1": 3}))


def test_blocks_of_empty_lines(put):
    path = put('{"a": 1}\n' + "\n" * 500 + '{"a": 2}\n')
    assert read(path, block_bytes=64, hash_bits=1)[0].shape == (2, 2)


def test_labels(put):
    rows = [{"x": 1, "y": "yes", "z": {"w": 5}}, {"x": 2, "y": "no", "z": {"w": 6}}]
    x, y = read(put(rows), target="y")
    assert y.tolist() == ["yes", "no"]
    np.testing.assert_array_equal(x, hashed({"x": 1, "z.w": 5}, {"x": 2, "z.w": 6}))
    assert read(put(rows), target="z.w")[1].tolist() == [5, 6]
    assert read(put(rows), target=("label", "y"))[1].tolist() == ["yes", "no"]
    assert read(put(rows), target=("label",))[1] is None
    assert read(put([{"y": True}, {"y": False}]), target="y")[1].tolist() == [1, 0]


def test_lines_without_a_label(put):
    rows = [{"y": 1, "x": 1}, {"x": 2}, {"y": None, "x": 3}, {"y": math.nan, "x": 4}, {"y": 5, "x": 5}]
    x, y = read(put(rows), target="y")
    assert len(x) == 5
    np.testing.assert_array_equal(y, [1, np.nan, np.nan, np.nan, 5])
    stream = open_stream(put(rows), target="y", unlabelled="skip")
    assert rows_of(stream)[1].tolist() == [1, 5]
    assert stream.survey().labels == {1, 5}
    assert stream.position.skipped == 3 and "line 2: it has no label" in stream.skipped[0]
    np.testing.assert_array_equal(read(put([{"x": 1}]), target="y")[1], [np.nan])
    words = open_stream(put([{"y": "a"}, {"x": 2}]), target="y")
    assert rows_of(words)[1].tolist() == ["a", None]
    assert words.survey().labels == {"a"}


@pytest.mark.parametrize("line, reason", [
    ("{", "not valid"), ("[1]", "should be an object"), ("3", "should be an object"), ('{"x": Infinity}', "not finite"),
    ('{"x": 1e999, "y": 1}', "not finite"), ('{"y": "text"}', "its label is"), ('{"y": [1]}', "its label is"),
    ('{"y": 1e999}', "its label is inf"), ("[" * 100_000, "recursion"),
    (f'{{"x": {10**400}, "y": 1}}', "too large"), (f'{{"y": {10**400}}}', "its label is"),
    ('{"\\ud800": 1, "y": 1}', "surrogates"),
])  # fmt: skip
def test_bad_lines(put, line, reason):
    path = put(f'{{"x": 1, "y": 0}}\n\n{line}\n{{"x": 2, "y": 1}}\n')
    with pytest.raises(StreamError, match=f"rows.jsonl, line 3: .*{reason}"):
        read(path, target="y")
    for block_bytes in (64, 1 << 20):
        stream = open_stream(path, target="y", on_error="skip", block_bytes=block_bytes)
        assert rows_of(stream)[1].tolist() == [0, 1]
        assert stream.position.skipped == 1


def test_columns(put):
    rows = [{"a": 1, "ab": 2, "b": {"c": 3, "d": "x"}, "e": "z"}]
    np.testing.assert_array_equal(read(put(rows), columns=["a", "b"])[0], hashed({"a": 1, "b.c": 3, "b.d": "x"}))
    with pytest.raises(ValueError, match="3 is not a name"):
        read(put(rows), columns=[3])


def test_layouts_are_checked(put):
    path = put([{"a": 1}])
    good = {"kind": "jsonl", "hash_bits": 3}
    for wrong in ({}, {"kind": "jsonl"}, {**good, "hash_bits": 31}, {**good, "target": 5}, {**good, "columns": [1]},
                  {**good, "kind": "vw"}):  # fmt: skip
        with pytest.raises(StreamError, match="layout"):
            open_stream(path, layout=wrong)


def test_weights_and_ids_are_no_features(put):
    path = put(
        '{"y": 1, "a": 2, "w": 0.5, "who": {"id": "x", "age": 3}, "z": 1}\n'
        '{"y": 0, "a": 1, "who": {"id": 7}, "z": 2}\n'
        '{"y": 0, "a": 4, "w": 3, "z": 2}\n'
    )
    roles = {"target": "y", "weight": "w", "id": "who.id", "drop": ["z"]}
    stream = open_stream(path, **roles)
    stream.wants_ids = True
    (block,) = stream
    assert block.weight.tolist() == [0.5, 1.0, 3.0]
    assert block.id.tolist() == ["x", "7", ""]
    plain = FeatureHasher(2**18).transform([{"a": 2, "who.age": 3}, {"a": 1}, {"a": 4}])
    np.testing.assert_array_equal(block.X.toarray(), plain.toarray())
    again = open_stream(path, layout=json.loads(json.dumps(stream.layout)))
    assert next(iter(again)).weight.tolist() == [0.5, 1.0, 3.0]
    assert "id" not in open_stream(path, target="y").layout


@pytest.mark.parametrize("weight", ["-1", "NaN", "Infinity", '"heavy"', "true"])
def test_a_weight_is_a_number_that_is_not_negative(put, weight):
    path = put(f'{{"y": 1, "a": 2, "w": 1}}\n{{"y": 0, "a": 2, "w": {weight}}}\n')
    if weight == "NaN":  # is missing, as everywhere
        assert next(iter(open_stream(path, target="y", weight="w"))).weight.tolist() == [1.0, 1.0]
        return
    with pytest.raises(StreamError, match="line 2: its weight 'w' is .*should be a number >= 0"):
        list(open_stream(path, target="y", weight="w"))
