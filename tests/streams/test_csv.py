"""CSV is read as the csv module reads it, in blocks of any size; what is wrong with a record is said with its line."""

import bz2
import csv
import gzip
import json
import lzma

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from robustfd.streams import StreamError, open_stream
from tests.streams.reading import read, rows_of, same

SUFFIX = ".csv"  # of the files that `put` writes

SMALL = 'age,job,y\n30,"a ""b"", c",yes\n31,d,no\n\n32,"line\nfeed",yes\n,d,no\n'


def test_numbers_and_a_target_of_text(put):
    x, y = read(put("a,b,label\n1,2.5,yes\n-3,1e3,no\n"), target="label")
    np.testing.assert_array_equal(x, [[1, 2.5], [-3, 1000]])
    assert y.tolist() == ["yes", "no"]
    assert y.dtype == object


def test_features_have_names(put):
    stream = open_stream(put(SMALL), target="y", missing="zero", categories="onehot")
    names = [stream.feature_name(k) for k in range(stream.n_features)]
    assert names == ["age", 'job=a "b", c', "job=d", "job=line\nfeed"]
    x, y = rows_of(stream)
    np.testing.assert_array_equal(x, [[30, 1, 0, 0], [31, 0, 1, 0], [32, 0, 0, 1], [0, 0, 1, 0]])
    hashed = open_stream(put(SMALL), target="y", missing="zero", hash_bits=4)
    assert (hashed.n_features, hashed.feature_name(0), hashed.feature_name(3)) == (17, "age", "hash 2")


@pytest.mark.parametrize("target, dtype, labels", [
    ("i", np.int64, [1, 2]), ("f", np.float64, [0.5, 2]), ("b", np.int64, [1, 0]), ("t", object, ["u", "v"]),
    (0, np.int64, [1, 2]), (-1, object, ["u", "v"]),
])  # fmt: skip
def test_targets_of_all_kinds(put, target, dtype, labels):
    path = put("i,f,b,t\n1,0.5,true,u\n2,2,false,v\n")
    x, y = read(path, target=target, columns=["f"] if target != "f" else ["i"])
    assert y.tolist() == labels
    assert y.dtype == dtype


def test_columns_by_name_and_number_in_the_order_asked_for(put):
    x, y = read(put("a,b,c\n1,2,3\n"), columns=["c", 0])
    np.testing.assert_array_equal(x, [[3, 1]])
    assert y is None


@pytest.mark.parametrize("options, message", [
    ({"target": "z"}, "'z' is not a column; there are 'a', 'b', 'c'"),
    ({"target": 3}, "3 is not a column"),
    ({"columns": ["a", "z"]}, "'z' is not a column"),
    ({"columns": [True]}, "True is not a column"),
    ({"columns": ["a"], "target": "a"}, "has the target in it"),
    ({"columns": []}, "no column of features"),
    ({"columns": ["a", 0]}, "two columns 'a'"),
    ({"delimiter": "::"}, "delimiter must be"),
    ({"categories": "onehot", "hash_bits": 3}, "give one of them only"),
    ({"n_features": 4}, "There are 3 features, expected n_features=4"),
])  # fmt: skip
def test_arguments_that_make_no_sense(put, options, message):
    with pytest.raises(ValueError, match=message):
        open_stream(put("a,b,c\n1,2,3\n"), **options)


def test_header_has_to_be_true_or_false(put):
    with pytest.raises(TypeError, match="header must be"):
        open_stream(put("a\n1\n"), header="yes")


@pytest.mark.parametrize("text, n, names", [
    ("a,b\n1,2\n", 1, ["a", "b"]), ("1,2\n3,4\n", 2, ["0", "1"]), ("a,1\nb,2\n", 2, ["1"]),
])  # fmt: skip
def test_header_is_there_if_no_field_is_a_number(put, text, n, names):
    stream = open_stream(put(text), hash_bits=1)
    assert rows_of(stream)[0].shape[0] == n
    assert [stream.feature_name(k) for k in range(len(names))] == names


def test_header_said_beats_header_seen(put):
    assert read(put("1,2\n3,4\n"), header=True)[0].tolist() == [[3, 4]]
    assert read(put("a,b\nc,d\n"), header=False, categories="onehot")[0].shape == (2, 4)


@pytest.mark.parametrize("delimiter", "\t;,|")
def test_delimiters(put, delimiter):
    text = f"a{delimiter}b\n1{delimiter}2\n"
    options = {"delimiter": "|"} if delimiter == "|" else {}
    assert read(put(text), **options)[0].tolist() == [[1, 2]]


@pytest.mark.parametrize("change", [
    lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n"), lambda text: text.rstrip(b"\n"),
    lambda text: b"\n\n" + text, gzip.compress, bz2.compress, lzma.compress,
])  # fmt: skip
@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_the_same_rows_however_they_are_stored(put, change, block_bytes):
    text = ("a,b,y\n" + "".join(f"{k},{k / 7},{k % 3}\n" for k in range(40))).encode()
    want = read(put(text), target="y")
    got = open_stream(put(change(text), "other"), format="csv", target="y", block_bytes=block_bytes)
    same(rows_of(got), want)


def test_positions_count_bytes_and_lines(put):
    text = "\n\na,t,y\n" + "".join(f'{k},"x\n{k % 3}",{k % 2}\n\n' for k in range(30))
    stream = open_stream(put(text), target="y", categories="onehot", block_bytes=64)
    assert rows_of(stream)[0].shape[0] == stream.rows_read == 30
    assert stream.position.offset == len(text.encode()) == stream.bytes_total == stream.bytes_read
    assert stream.position.line == text.count("\n")


HEAD = "a,t,y\n" + "1,x,0\n" * 200_000  # more than what tells the types


@pytest.fixture(scope="module")
def long_head(tmp_path_factory):
    """A path to append to: what follows comes after the types are decided."""
    path = tmp_path_factory.mktemp("csv") / "long.csv"
    path.write_text(HEAD)
    return path


@pytest.mark.parametrize("tail, line, reason", [
    ("1,x\n", 200_002, "2 fields instead of 3: '1,x'"),
    ("1,x,0\n1,x,0,5\n", 200_003, "4 fields instead of 3"),
    ("1,x,0\nabc,x,0\n", 200_003, "the column 'a' should be a number: 'abc,x,0'"),
    ('1,"two\nlines",0\nabc,x,0\n', 200_004, "the column 'a' should be a number"),
    (",x,0\n", 200_002, "the column 'a' is missing (missing='zero' reads it as 0, drop=['a'] ignores"),
    ("nan,x,0\n", 200_002, "the column 'a' is missing"),
    ("1e999,x,0\n", 200_002, "the column 'a' is not finite"),
    ("1,x,\n", 200_002, "the target, column 'y', is missing"),
    ("1,x,red\n", 200_002, "the column 'y' should be a number"),
    ('1,x,0\n1,"open,0\n', 200_003, "a quote is not closed"),
    (b"1,\xff,0\n", 200_002, "the column 't' should be text in UTF-8: '1,\\\\xff,0'"),
])  # fmt: skip
def test_bad_records_are_named_or_skipped(long_head, tail, line, reason):
    tail = tail if isinstance(tail, bytes) else tail.encode()
    with open(long_head, "r+b") as file:
        file.truncate(len(HEAD))
        file.seek(len(HEAD))
        file.write(tail)
    with pytest.raises(StreamError) as caught:
        read(long_head, target="y", hash_bits=2)
    assert f"{long_head}, line {line}: {reason}" in str(caught.value)
    stream = open_stream(long_head, target="y", hash_bits=2, on_error="skip", block_bytes=1 << 19)
    good = tail.replace(b'"two\nlines"', b"z").rstrip().count(b"\n")
    assert sum(x.shape[0] for x, _ in stream) == 200_000 + good
    assert stream.position.skipped == 1
    assert reason in stream.skipped[0]


def test_a_target_of_whole_numbers_may_go_on_with_fractions(long_head):
    with open(long_head, "r+b") as file:
        file.truncate(len(HEAD))
        file.seek(len(HEAD))
        file.write(b"1,x,2.5\n")
    _, y = read(long_head, target="y", hash_bits=1)
    assert y[-1] == 2.5


FIELD = st.text(st.sampled_from('ab1,;"\n\r é\t'), max_size=6)


@given(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=12), st.integers(64, 120))
def test_text_is_what_the_csv_module_wrote(tmp_path_factory, rows, block_bytes):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("first", "second"), *rows])
    assume(any(any(row) for row in rows))
    layout = {"kind": "table", "hash_bits": None, "target": None, "columns": [
        {"name": name, "type": "text", "values": sorted({row[k] for row in rows} - {""})}
        for k, name in enumerate(("first", "second"))
    ]}  # fmt: skip
    stream = open_stream(path, layout=layout, header=True, delimiter=",", block_bytes=block_bytes)
    x, _ = rows_of(stream)
    assert x.shape[0] == len(rows)
    for row, got in zip(rows, x):
        names = {stream.feature_name(k) for k in np.flatnonzero(got)}
        assert names == {f"{name}={value}" for name, value in zip(("first", "second"), row) if value}


@given(st.lists(st.text(st.sampled_from('12a,"\n'), max_size=8), min_size=1, max_size=10), st.integers(64, 100))
def test_whatever_the_text_is_rows_do_not_depend_on_blocks(tmp_path_factory, pieces, block_bytes):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_text("1,2\n" + "\n".join(pieces), newline="")
    columns = [{"name": "0", "type": "number"}, {"name": "1", "type": "text"}]
    layout = {"kind": "table", "hash_bits": 3, "target": None, "columns": columns}
    options = {"layout": layout, "on_error": "skip", "header": False}
    one, other = (open_stream(path, delimiter=",", block_bytes=each, **options) for each in (block_bytes, 1 << 20))
    same(rows_of(one), rows_of(other))
    assert one.position == other.position
    assert one.skipped == other.skipped


def test_many_skipped_records(put):
    text = "a,b\n" + "1,2\n" * 300_000 + "?,2\n1\n" * 20_000
    stream = open_stream(put(text), on_error="skip")
    assert sum(x.shape[0] for x, _ in stream) == 300_000
    assert stream.position.skipped == 40_000
    assert len(stream.skipped) == 10


def test_dates_are_numbers_or_left_out(put):
    path = put("when,a\n2020-01-01,1\n")
    assert read(path)[0].shape == (1, 8)
    assert read(path, columns=["a"])[0].tolist() == [[1]] == read(path, drop=["when"])[0].tolist()
    with pytest.raises(StreamError, match="'when' is of type date32.*not one of number, text"):
        open_stream(path, target="when")


def test_names_that_occur_twice(put):
    path = put("a,b,a\n1,2,3\n")
    with pytest.raises(StreamError, match="two columns 'a'"):
        open_stream(path)
    assert read(path, columns=["b"])[0].tolist() == [[2]]


def test_booleans_are_numbers_with_a_layout_too(put):
    stream = open_stream(put("a,b\ntrue,1\nfalse,2\n"))
    assert rows_of(stream)[0].tolist() == [[1, 1], [0, 2]]
    same(read(put("b,a\n5,false\n", "other.csv"), layout=stream.layout), (np.array([[0.0, 5.0]]), None))


def test_a_layout_finds_columns_by_name(put):
    stream = open_stream(put(SMALL), target="y", categories="onehot", missing="zero")
    layout = json.loads(json.dumps(stream.layout))
    other = put("job,more,age\nd,5,7\nnew,5,8\n", "other.csv")
    with pytest.raises(StreamError, match="line 3: the column 'job' has a new value"):
        read(other, layout=layout)
    dropping = open_stream(other, layout=layout, unseen="drop")
    x, y = rows_of(dropping)
    assert y is None
    np.testing.assert_array_equal(x, [[7, 0, 1, 0], [8, 0, 0, 0]])
    assert dropping.position.dropped == 1
    assert dropping.layout == layout
    with pytest.raises(StreamError, match="has no column 'age'; its columns are 'job', 'x'"):
        open_stream(put("job,x\nd,1\n", "third.csv"), layout=layout)
    with pytest.raises(ValueError, match="columns=.* cannot be combined with a layout"):
        open_stream(other, layout=layout, columns=["age"])


def test_text_where_the_layout_has_numbers(put):
    layout = open_stream(put("a,b\n1,2\n")).layout
    path = put("a,b\nx,1\n3,4\n", "other.csv")
    with pytest.raises(StreamError, match="line 2: the column 'a' should be a number"):
        read(path, layout=layout)
    assert read(path, layout=layout, on_error="skip")[0].tolist() == [[3, 4]]


def test_several_files_have_the_same_columns(put):
    one, two = put("a,b\n1,2\n", "1.csv"), put("b,a\n3,4\n", "2.csv")
    assert read([one, two])[0].tolist() == [[1, 2], [4, 3]]
    assert read(one.parent)[0].tolist() == [[1, 2], [4, 3]]
    assert read([one, put("", "empty.csv"), two])[0].tolist() == [[1, 2], [4, 3]]
    with pytest.raises(StreamError, match=r"3.csv has the columns 'a', 'c', and .*1.csv has others: 'a', 'b'"):
        read([one, put("a,c\n1,2\n", "3.csv")])


@pytest.mark.parametrize("text", ["", "\n\n", "a,b\n", "\ufeff"])
def test_no_rows(put, text):
    with pytest.raises(StreamError, match="rows.csv has no rows"):
        read(put(text))


PANDAS = "0,1,2,3,y\n" + "".join(f"{k / 7},{k},{-k},{k % 3},{k % 2}\n" for k in range(5))


@pytest.mark.parametrize("text, header", [
    (PANDAS, True), ("," + PANDAS.replace("\n", "\n9,", 5), True),  # as pandas writes it, without and with an index
    ("0,1,2\n0.5,1.25,3.5\n1.5,2.5,0.1\n", True), ("country,2019,2020\nX,1.5,2.5\nY,0.1,0.2\n", True),
    (",".join(map(str, range(9))) + "\n" + "5,5,5,5,5,5,5,5,5\n", True),
    ("0,1,2\n3,4,5\n", False), ("2,3\n0.5,1\n", False), ("1,2\n3,4\n", False), ("0.5,1,2\n3.5,4,5\n", False),
    ("63,?,1\n64,3,2\n", False), ("63,NA,1\n64,3,2\n", False), ("a,1\nb,2\n", False), ("1,1,x\n2,2,3\n", False),
    ("0,1,2\n", False),
])  # fmt: skip
def test_a_header_of_numbers_is_told_by_the_columns_below(put, text, header):
    path = put(text)
    stream = open_stream(path, hash_bits=3, missing="zero")
    assert rows_of(stream)[0].shape[0] == len(text.splitlines()) - header
    assert f"{path}: the first line is read as {'column names' if header else 'a row'}" in stream.remarks[0]


@pytest.mark.parametrize("header", [True, False])
def test_what_is_said_about_a_header_of_numbers_beats_what_is_seen(put, header):
    stream = open_stream(put(PANDAS), header=header, hash_bits=3)
    assert rows_of(stream)[0].shape[0] == 6 - header
    assert stream.remarks == []


def test_names_that_are_numbers_name_the_columns(put):
    stream = open_stream(put(PANDAS), target="y")
    assert [stream.feature_name(k) for k in range(stream.n_features)] == ["0", "1", "2", "3"]


def test_a_plain_header_needs_no_remark(put):
    assert open_stream(put("a,b\n1,2\n")).remarks == []


def test_a_layout_without_header_needs_no_second_word(put):
    stream = open_stream(put("5,1,2\n3,4,5\n"))
    again = open_stream(
        put("7,x,2\n3,4,5\n", "other.csv"), layout=json.loads(json.dumps(stream.layout)), on_error="skip"
    )
    assert rows_of(again)[0].tolist() == [[3, 4, 5]]
    assert (again.position.skipped, again.remarks) == (1, [])


@pytest.mark.parametrize("options", [{"target": "name"}, {"columns": ["1"]}, {"drop": ["name"]}])
def test_a_header_has_the_names_that_are_asked_for(put, options):
    path = put("1,name\nx,red\nx,blue\n")
    assert rows_of(open_stream(path, hash_bits=3))[0].shape[0] == 3
    stream = open_stream(path, hash_bits=3, **options)
    assert rows_of(stream)[0].shape[0] == 2
    assert stream.remarks == []


DECIMALS = "size;price;name;y\n3,14;1,234;a,1;0\n2;;b;1\n,5;-7,000;c;0\n"


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
@pytest.mark.parametrize("change", [
    lambda text: text,
    lambda text: text.replace(";", "\t"),
    lambda text: text.replace("a,1", "a").replace(",", "\0").replace(";", ",").replace("3\00014", '"3,14"')
                     .replace("1\000234", '"1,234"').replace("\0005", '",5"').replace("-7\000000", '"-7,000"'),
    lambda text: "\n".join(text.split("\n")[1:]),  # without names of columns
])  # fmt: skip
def test_decimal_commas_are_numbers(put, change, block_bytes):
    path = put(change(DECIMALS))
    stream = open_stream(path, hash_bits=3, missing="nan", block_bytes=block_bytes)
    assert np.array_equal(rows_of(stream)[0][:, :3], [[3.14, 1.234, 0], [2, np.nan, 1], [0.5, -7, 0]], equal_nan=True)
    names = ["size", "price"] if "size" in change(DECIMALS) else ["0", "1"]
    said = (
        f"{path}: the commas in the numbers of {names[0]!r}, {names[1]!r} are read as decimal commas. Use --decimal . "
    )
    assert stream.remarks[-1].startswith(said)
    whole = open_stream(path, hash_bits=3, missing="nan", decimal=".", header=names[0] == "size")
    assert (whole.n_features, whole.remarks) == (9, [])


def test_commas_that_may_group_thousands_are_text_until_said(put):
    for text in ("a;b\n1,234;1\n12,345;2\n", "a;b;c\n3,14;1;1.5\n2,5;2;2.5\n"):  # or a number with a point
        stream = open_stream(path := put(text), hash_bits=3)
        assert stream.n_features > 8
        assert stream.remarks == [
            f"{path}: the commas in the numbers of 'a' are read as text, as they may group thousands. "
            "Use --decimal , (in Python decimal=',') to change that."
        ]
    assert read(put("a;b\n1,234;1\n12,345;2\n"), decimal=",")[0].tolist() == [[1.234, 1], [12.345, 2]]
    assert open_stream(put("a;b\n1,234,567;1\n12,345;2\n"), hash_bits=3).remarks == []


def test_a_layout_knows_the_decimal_mark(put):
    layout = json.loads(json.dumps(open_stream(put(DECIMALS), drop=["name"], missing="nan").layout))
    for text, size in (("size;price;y\n1,234;2;0\n", 1.234), ("size;price;y\n7;2;0\n", 7)):
        stream = open_stream(put(text, "other.csv"), layout=layout)
        assert (rows_of(stream)[0][0, 0], stream.remarks) == (size, [])
    points = put("size;price;y\n1.5;2.5;0\n", "other.csv")
    with pytest.raises(StreamError, match="'size' should be a number"):
        read(points, layout=layout)
    assert read(points, layout=layout, decimal=".")[0][0, 0] == 1.5
    with pytest.raises(StreamError, match=r"line 3: the column 'price' should be a number: '1,5;1\.234"):
        read(put("size;price;y\n1,5;2,5;0\n1,5;1.234;0\n", "other.csv"), layout=layout)
    with pytest.raises(StreamError, match="is not a layout"):
        open_stream(put(DECIMALS), layout=layout | {"decimal": ";"})
    with pytest.raises(ValueError, match=r"decimal must be"):
        open_stream(put(DECIMALS), decimal=";")


def test_decimal_commas_in_a_wide_file(put):
    row = ";".join(["0,5", "2"] * 600)
    assert np.array_equal(read(put(f"{row}\n{row}\n"))[0], [[0.5, 2] * 600] * 2)
