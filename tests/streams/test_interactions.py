"""Interactions are the products of the features of two groups, wherever they come from."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd.streams import StreamError, namer, open_stream
from tests import reference_vw
from tests.streams.reading import read, rows_of, same

ENTRY = st.tuples(st.sampled_from(["a", "ab", "b", ""]), st.sampled_from("pqrs7"), st.integers(-4, 4).map(float))
ROWS = st.lists(st.lists(ENTRY, max_size=6), min_size=1, max_size=6)
PAIR = st.sampled_from(["a:b", "ab", "ab:b", "aa", "::", "a:", "ab:ab", "ab:a"])


def of_group(space, group):
    return group == ":" or (space[:1] == group if len(group) == 1 else space == group)


def crossed(rows, pairs, bits):
    """Return, slowly, the rows that hashed entries and their products make."""
    x = np.zeros((len(rows), 2 * 2**bits))
    for row, entries in zip(x, rows):
        hashed = [(space, *reference_vw.hashed(space, name, bits), value) for space, name, value in entries]
        for _, column, sign, value in hashed:
            row[column] += sign * value
        for left, right in pairs:
            parts = []
            for group in (left, right):
                columns = {}
                for space, column, sign, value in hashed:
                    if of_group(space, group):
                        columns[column] = columns.get(column, 0.0) + sign * value
                parts.append(sorted(columns.items()))
            two = itertools.combinations_with_replacement(parts[0], 2) if left == right else itertools.product(*parts)
            for (a, v), (b, w) in two:
                row[2**bits + ((a * 16777619 ^ b) % 2**bits)] += v * w
    return x


@given(ROWS, st.lists(PAIR, min_size=1, max_size=3, unique=True), st.integers(1, 9), st.integers(64, 4000))
def test_namespaces_of_vowpal_wabbit(tmp_path_factory, rows, words, bits, block_bytes):
    path = tmp_path_factory.mktemp("vw") / "rows.vw"
    lines = (" ".join(["1", *(f"|{s} {name}:{value}" for s, name, value in row)]) for row in rows)
    path.write_text("".join(f"{line if '|' in line else line + ' |'}\n" for line in lines))
    pairs = [(w[0], w[1]) if len(w) == 2 else tuple(w.split(":")) for w in words]
    stream = open_stream(path, interactions=words, hash_bits=bits, block_bytes=block_bytes)
    np.testing.assert_allclose(rows_of(stream)[0], crossed(rows, pairs, bits), rtol=1e-12, atol=1e-12)
    layout = json.loads(json.dumps(stream.layout))
    same(read(path, layout=layout), rows_of(stream))


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "x": rng.normal(size=30), "z": rng.normal(size=30), "c": rng.choice(["u", "v", "w"], 30),
        "d": rng.choice(["p", "q"], 30), "y": rng.integers(0, 2, 30),
    })  # fmt: skip
    return frame, tmp_path


def named(stream):
    x, _ = rows_of(stream)
    return {stream.feature_name(k): x[:, k] for k in range(stream.n_features)}


def test_columns_of_a_table(table):
    frame, folder = table
    path = folder / "rows.csv"
    frame.to_csv(path, index=False)
    stream = open_stream(path, target="y", categories="onehot", interactions=["x:z", "c:d", "x:c", "zz"])
    found = named(stream)
    x, z = frame["x"].to_numpy(), frame["z"].to_numpy()
    np.testing.assert_allclose(found["x^z"], x * z, rtol=1e-15)
    np.testing.assert_allclose(found["z^z"], z * z, rtol=1e-15)
    for c, d in itertools.product("uvw", "pq"):
        np.testing.assert_array_equal(found[f"c={c}^d={d}"], (frame["c"] == c) & (frame["d"] == d))
        np.testing.assert_allclose(found[f"x^c={c}"], x * (frame["c"] == c), rtol=1e-15)
    names = namer(json.loads(json.dumps(stream.layout)))
    assert [names(k) for k in range(stream.n_features)] == list(found)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_text_that_is_hashed(table, suffix):
    """The same products as of the same rows one-hot, but for where they are."""
    frame, folder = table
    path = folder / f"rows.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    stream = open_stream(path, target="y", interactions=["c:d", "x:c", "x:z"])
    x, z = frame["x"].to_numpy(), frame["z"].to_numpy()
    n = 2 + 2**18
    assert stream.n_features == n + 1 + 2**18
    assert [stream.feature_name(k) for k in (0, n)] == ["x", "x^z"]
    (block,) = stream
    assert np.array_equal(block.X[:, n].toarray()[:, 0], x * z)
    hashed = block.X[:, n + 1 :]
    for i in range(len(frame)):
        assert sorted(np.abs(hashed[i].data).tolist()) == sorted([1.0, abs(x[i])])
    same(read(path, layout=json.loads(json.dumps(stream.layout))), rows_of(stream))
    distinct = {tuple(row.indices) for row in hashed[:, :]}
    assert len(distinct) == len(frame[["c", "d"]].drop_duplicates())


def test_numbers_alone_stay_dense(table):
    frame, folder = table
    path = folder / "rows.parquet"
    frame[["x", "z", "y"]].to_parquet(path)
    (block,) = open_stream(path, target="y", interactions=["x:z"])
    assert isinstance(block.X, np.ndarray)
    np.testing.assert_array_equal(block.X[:, 2], frame["x"] * frame["z"])


def test_indices_of_libsvm_text_and_columns_of_arrays(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:2 3:5\n0 2:1 3:4\n")
    stream = open_stream(tmp_path / "rows.svm", interactions=["1:3", "33"])
    assert rows_of(stream)[0][:, 3:].tolist() == [[10, 25], [0, 16]]
    assert [stream.feature_name(k) for k in (3, 4)] == ["1^3", "3^3"]
    np.save(tmp_path / "rows.npy", np.array([[1.0, 2, 3], [4, 5, 6]]))
    assert read(tmp_path / "rows.npy", target=1, interactions=["0:2"])[0][:, 2].tolist() == [3, 24]


def test_dicts_and_json_lines(tmp_path):
    rows = [{"u": "ann", "i": "book", "n": 2}, {"u": "bob", "i": "cup"}, {"n": 3}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    x, _ = read(path, hash_bits=10, interactions=["u:i", "u:n"])
    same((x, None), read(rows, hash_bits=10, interactions=["u:i", "u:n"]))
    assert np.count_nonzero(x[:, 2**10 :], axis=1).tolist() == [2, 1, 0]


def test_products_that_are_not_finite_are_bad_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n1e200,1e200\n3,4\n")
    with pytest.raises(StreamError, match=r"row 1 \(from 0\): a product"):
        read(path, interactions=["a:b"])
    stream = open_stream(path, interactions=["a:b"], on_error="skip")
    assert rows_of(stream)[0][:, 2].tolist() == [2, 12]
    assert (stream.position.skipped, stream.position.rows, len(stream.skipped)) == (1, 2, 1)


def test_weights_and_tags_stay_with_their_rows(tmp_path):
    (tmp_path / "rows.vw").write_text("1 2 'one|a x |b y\n1 'two|a x\n")
    stream = open_stream(tmp_path / "rows.vw", interactions=["ab"])
    stream.wants_ids = True
    (block,) = stream
    assert block.weight.tolist() == [2, 1] and block.id.tolist() == ["one", "two"]


@pytest.mark.parametrize("wrong, message", [
    (["a"], "must be pairs"), (["abc"], "must be pairs"), (["a:"], "no column 'a'"), ([":abc"], "must be pairs"),
    (["nothing:x"], "no column 'nothing'"),
])  # fmt: skip
def test_bad_pairs(table, wrong, message):
    frame, folder = table
    frame[["x", "z"]].to_csv(folder / "rows.csv", index=False)
    with pytest.raises(ValueError, match=message):
        open_stream(folder / "rows.csv", interactions=wrong)


def test_bad_layouts(tmp_path):
    (tmp_path / "rows.vw").write_text("1 |a x |b y\n")
    stream = open_stream(tmp_path / "rows.vw", interactions=["ab"])
    layout = stream.layout
    for change in (
        {"of": layout},
        {"of": 3},
        {"pairs": []},
        {"pairs": [["a"]]},
        {"hash_bits": 40},
        {"pairs": [["a", 3]]},
    ):
        with pytest.raises(StreamError, match="layout"):
            open_stream(tmp_path / "rows.vw", layout=layout | change)
        with pytest.raises(StreamError, match="layout"):
            namer(layout | change)
    with pytest.raises(ValueError, match="layout"):
        open_stream(tmp_path / "rows.vw", layout=layout, interactions=["ab"])
    (tmp_path / "rows.svm").write_text("1 a b\n")
    with pytest.raises(StreamError, match="hashed LIBSVM"):
        open_stream(tmp_path / "rows.svm", hash_bits=5, interactions=["a:b"])
