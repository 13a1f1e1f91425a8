"""Vowpal Wabbit's text is read as its grammar says (tests/reference_vw.py), and as LIBSVM text of the same rows is."""

import lzma
import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

import robustfd
from robustfd.streams import StreamError, open_stream
from tests import reference_vw
from tests.streams.reading import read, rows_of, same
from tests.streams.test_libsvm import HARD, NUMBER

SUFFIX = ".vw"  # of the files that `put` writes


BLANK = st.sampled_from([" ", " ", "  ", "\t", " \r"])
NAME = st.sampled_from(["a", "b", "f1", "é", "x#y", "'q", "12", "0", "007", "99999999999999999999", "colour=red"])
WEIRD = st.sampled_from(["nan", "inf", "1e999", "-1", "0x3", "1_0", "", "1e", "-", "1" * 25, "0." + "3" * 30, "1e-400"])
VALUE = NUMBER | st.integers(0, 9).map(str) | st.sampled_from(HARD) | WEIRD
FEATURE = st.builds(str.__add__, NAME | st.just(""), st.just("") | VALUE.map(":{}".format)) | st.sampled_from(
    ["a:1:2", "a:", ":", "\x01", "a\x02b", "a:1\x03"]
)
SPACE = st.builds(
    lambda name, scale, blank, features: f"|{name}{scale}" + "".join(blank + each for each in features),
    st.sampled_from(["", "", "", "a", "ns", "b"]), st.just("") | VALUE.map(":{}".format) | st.just(""), BLANK,
    st.lists(FEATURE, max_size=5),
)  # fmt: skip
HEAD = st.builds(
    lambda numbers, blank, tag: blank.join([*numbers, tag]),
    st.lists(VALUE, max_size=4), BLANK, st.sampled_from(["", "", "'tag", "tag", "'", "'tag ", "1", "' "]),
)  # fmt: skip
LINE = st.builds(lambda head, spaces: head + "".join(spaces), HEAD, st.lists(SPACE, max_size=3))
NOISE = st.text(st.sampled_from("|: \t\r'#ab01.e-\x00\x0b"), max_size=12)


def of_stream(stream):
    """Return label, weight, tag and entries of all rows, as the transcription has them."""
    stream.wants_ids = True
    found = []
    for block in stream:
        n = block.X.shape[0]
        y = np.full(n, np.nan) if block.y is None else block.y
        weight = np.ones(n) if block.weight is None else block.weight
        tag = [""] * n if block.id is None else [each.encode("utf-8").decode("latin-1") for each in block.id]
        for i in range(n):
            row = block.X[i]
            found.append((y[i], weight[i], tag[i], dict(zip(row.indices.tolist(), row.data.tolist()))))
    return found


@given(
    st.lists(LINE | LINE | NOISE, min_size=1, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans(),
    st.integers(64, 200), st.integers(1, 20),
)  # fmt: skip
@example(["1 |a:" + "0." + "3" * 30 + " b:" + "2" * 30 + " c"], "\n", True, 64, 18)
@example(["1 1." + "0" * 25 + "1 |a"], "\n", True, 64, 18)
@example(["1 " + "9" * 400 + " |a", "1 | " + "a:1e308 " * 2], "\n", True, 64, 18)
def test_rows_are_those_of_the_grammar(tmp_path_factory, lines, feed, final, block_bytes, bits):
    text = (feed.join(["1 'first| a", *lines]) + (feed if final else "")).encode()
    path = tmp_path_factory.mktemp("vw") / "rows.vw"
    path.write_bytes(text)
    want, bad = reference_vw.read(text, bits=bits)
    stream = open_stream(path, hash_bits=bits, on_error="skip", block_bytes=block_bytes)
    got = of_stream(stream)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        np.testing.assert_equal(one[:3], tuple(other[:3]))
        assert one[3].keys() == other.entries.keys()
        np.testing.assert_allclose([one[3][k] for k in one[3]], [other.entries[k] for k in one[3]], rtol=1e-13)
    assert [int(re.search(r"line (\d+):", each)[1]) for each in stream.skipped] == bad[:10]
    assert stream.position.skipped == len(bad)
    assert stream.position.offset == len(text)


@given(st.lists(LINE, max_size=6), st.booleans())
def test_numbers_alone_are_columns_and_names_are_hashed(tmp_path_factory, lines, one_based):
    text = "\n".join(["1 | 1 2:3" + ("" if one_based else " 0:4"), *lines]).encode()
    path = tmp_path_factory.mktemp("vw") / "rows.vw"
    path.write_bytes(text)
    is_plain, numbers = reference_vw.plain(text)
    stream = open_stream(path, on_error="skip")
    if is_plain:
        first = int(0 not in numbers)
        assert stream.layout == {"kind": "vw", "n_features": max(numbers) + 1 - first, "zero_based": not first}
    else:
        assert stream.layout == {"kind": "vw", "hash_bits": 18}


SPARSE = st.lists(st.dictionaries(st.integers(1, 40), st.floats(-1e9, 1e9), max_size=6), min_size=1, max_size=12)


def both(folder, rows, labels):
    """Return the paths of the same rows as LIBSVM text and as Vowpal Wabbit's."""
    paths = folder / "rows.svm", folder / "rows.vw"
    for path, bar in zip(paths, ("", " |")):
        lines = (
            f"{label}{bar} " + " ".join(f"{k}:{v!r}" for k, v in sorted(row.items()))
            for row, label in zip(rows, labels)
        )
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


@given(SPARSE, st.integers(64, 300), st.sampled_from([{}, {"hash_bits": 4}, {"n_features": 50}, {"zero_based": True}]))
def test_numbers_have_the_columns_of_libsvm_text(tmp_path_factory, rows, block_bytes, options):
    svm, vw = both(tmp_path_factory.mktemp("both"), rows, range(len(rows)))
    one, other = open_stream(svm, **options), open_stream(vw, **options, block_bytes=block_bytes)
    assert one.n_features == other.n_features
    assert other.layout == {**one.layout, "kind": "vw"}
    same(rows_of(one), rows_of(other))


def test_names_without_a_namespace_are_hashed_as_in_libsvm_text(put):
    vw = put("1 | age:3 colour=red 7:2\n-1 | age:1\n")
    svm = put("1 age:3 colour=red 7:2\n-1 age:1\n", "rows.svm")
    same(read(vw), read(svm, hash_bits=18))


def test_the_same_name_in_another_namespace_is_another_feature(put):
    x, _ = read(put("1 |a x\n1 |b x\n1 | x\n1 |a 5\n1 |b 5\n1 | 5\n"))
    assert len({tuple(np.flatnonzero(row)) for row in x}) == 6


def test_weights_of_namespaces_and_repeated_features(put):
    x, _ = read(put("1 |a:2 x:3 y |a:0.5 x:4\n1 |a x:8 y:2\n"))
    np.testing.assert_array_equal(x[0], x[1])


def test_features_without_a_name_are_numbered(put):
    same(read(put("1 | :5 :0 :7\n")), read(put("1 | 0:5 1:0 2:7\n", "other.vw")))


def test_importance_is_the_weight_of_a_row(put):
    (block,) = open_stream(put("1 2 | 1\n0 | 1\n1 0.25 'tag| 1\n"))
    assert block.weight.tolist() == [2, 1, 0.25]
    assert open_stream(put("1 1 | 1\n0 | 1\n")).__iter__().__next__().weight is None


@pytest.mark.parametrize("block_bytes", [64, 100, 333])
def test_the_checksum_has_the_weights_but_not_whether_a_block_came_without(put, block_bytes):
    lines = [f"{k % 2} {1 + (k % 3) * (k > 9)} 'row{k}| 1:{k}\n" for k in range(40)]
    path = put("".join(lines))
    small, large = open_stream(path, block_bytes=block_bytes), open_stream(path)
    rows_of(small), rows_of(large)
    assert small.position.checksum == large.position.checksum
    put("".join([*lines[:11], lines[11].replace("1 3 ", "1 2 "), *lines[12:]]))
    with pytest.raises(StreamError, match="changed"):
        list(open_stream(path, start=small.position))


def test_lines_without_a_label(put):
    path = put("1 | 1:2\n| 1:3\n1| 1:4\n'tag | 1:5\n-1 | 1:6\n")
    x, y = read(path)
    assert x[:, 0].tolist() == [2, 3, 4, 5, 6]
    np.testing.assert_array_equal(y, [1, np.nan, np.nan, np.nan, -1])
    stream = open_stream(path, unlabelled="skip")
    assert stream.survey().labels == {1, -1}
    same(rows_of(stream), (np.array([[2.0], [6.0]]), np.array([1.0, -1.0])))
    assert stream.position.skipped == 3 and "line 2: it has no label" in stream.skipped[0]
    assert read(put("| 1:2\n1 | 1:3\n"))[1] is None


def test_tags(put):
    path = put("1 'a| 1\n1 b| 1\n1 | 1\n1 2 'c d' | 1\n1 'é | 1\n")
    stream = open_stream(path, on_error="skip")
    stream.wants_ids = True
    assert [tag for block in stream for tag in block.id] == ["a", "b", "", "é"]
    assert [block.id for block in open_stream(path, on_error="skip")] == [None]


@pytest.mark.parametrize("line, reason", [
    ("1 1:2", r"no \| before"), ("one | 1", "before"), ("1 2 0 4 | 1", "before"),
    ("1 -2 | 1", "importance"),
    ("1 1 0.5 | 1", "must be 0"), ("1 | a", "number without a namespace"), ("1 |a 1", "without a namespace"),
    ("1 | 0", "there is a feature 0"), ("1 | 9", r"above the last feature \(8 features\)"), ("1 | 1:x", "a number"),
    ("1 | 1:", "a number"), ("1 |:2 1", "name of a namespace"), ("1 |a:x 1", "a number"), ("1 | 1:1e999", "finite"),
    ("1e999 | 1", "finite"), ("1 | 5000000000", r"above 2\^31"), ("nan | 1", "before"), ("1 inf | 1", "before"),
    ("1:0.5 2", "before"),
])  # fmt: skip
def test_bad_lines(put, line, reason):
    path = put(f"1 | 8\n\n{line}\n0 | 1\n")
    with pytest.raises(StreamError, match=rf"rows.vw, line 3: .*{reason}"):
        read(path, n_features=8)
    stream = open_stream(path, n_features=8, on_error="skip")
    assert rows_of(stream)[0].shape == (2, 8)
    assert stream.position.skipped == 1


@pytest.mark.parametrize("line, reason", [
    ("1:0.5 2:0.3 | a", "class:cost .* lowest cost"), ("3:-1e2 'tag|a", "class:cost"),
    ("1:2:0.4 |a b", "contextual bandit; robustfd bandit train"), ("ca 18.5:0.6:6e-05 | a", "bandit with slots"),
    ("1,2,3 | a", "several labels.* one model for each"), ("shared | a\n0:1:0.5 | b", "several lines.* bandit train"),
    ("ccb shared |a b", "bandit with slots"), ("slates shared 0.8 |a", "slots"), ("| a\n0:1:0.5 | b", "bandit"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["rows.vw", "rows"])  # by name and by content
def test_labels_of_other_problems_are_explained(put, line, reason, name):
    path = put(f"{line}\n1 | a\n", name)
    with pytest.raises(StreamError, match=rf"{name}, line \d: .*{reason}"):
        read(path, format="vw")
    assert rows_of(open_stream(path, on_error="skip", format="vw"))[0].shape[0] in (1, 2)


def test_what_a_layout_of_numbers_does_not_know_may_be_dropped(put):
    stream = open_stream(put("1 | 1 9 name:2 99999999999 |a 1\n"), n_features=2, unseen="drop")
    assert rows_of(stream)[0].tolist() == [[1, 0]]
    assert stream.position.dropped == 4


def test_groups_are_the_entries_of_namespaces(put):
    stream = open_stream(put("1 |user u1 u2:2 |item i |u u1 | z\n1 |item j\n"), hash_bits=18)
    stream.groups = ("user", "item", "u", "", ":")
    (block,) = stream
    assert [part[0].nnz for part in block.parts] == [2, 1, 3, 1, 5]
    assert [part[1].nnz for part in block.parts] == [0, 1, 0, 0, 1]
    assert abs(block.parts[-1] - block.X).nnz == 0


def test_the_first_line_tells_the_format(put):
    for text in ("1 | a b\n", "-1.5e3 2 'tag|ns a:1\n", "| 1:2 3:4\n", "\n0 'x |a b,c\n"):
        assert open_stream(put(text, "rows")).layout["kind"] == "vw"
    for text in ("a|b,c\n1,2\n", "1 1:2\n"):
        assert open_stream(put(text, "rows")).layout["kind"] != "vw"


DATA = {"a9a": "a9a", "farm-ads": "farm-ads-vect", "news20": "news20"}


@pytest.mark.parametrize("name", DATA)
def test_real_data_give_the_model_of_libsvm_text(data_path, tmp_path, name):
    """The same columns, labels and rows to the last bit; so is the model of them, whatever the blocks."""
    with lzma.open(data_path(DATA[name])) as file:
        lines = file.read().splitlines(keepends=True)
    (tmp_path / "rows.svm").write_bytes(b"".join(lines))
    (tmp_path / "rows.vw").write_bytes(b"".join(line.replace(b" ", b" | ", 1) for line in lines))
    blocks = [list(open_stream(tmp_path / each)) for each in ("rows.svm", "rows.vw")]
    (x, y), (other, labels) = ((sp.vstack([b.X for b in each]), np.concatenate([b.y for b in each])) for each in blocks)
    same((x.indptr, y), (other.indptr, labels))
    same((x.indices, x.data), (other.indices, other.data))
    assert x.shape == other.shape
    models = []
    for each in blocks:
        models.append(robustfd.SketchedNewtonClassifier())
        for block in each:
            models[-1].partial_fit(block.X, block.y, classes=np.unique(y))
    assert models[0].to_bytes() == models[1].to_bytes()
