"""Iterables of blocks and of dicts are streams too."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher

from robustfd.streams import StreamError, open_stream
from tests.streams.reading import read, rows_of, same

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((30, 4)), RNG.integers(0, 3, 30)
ROWS = [{"a": float(k), "city": ["Rome", "Bern"][k % 2], f"word {k % 5}": 1, "no": 0} for k in range(40)]


def cut(x, y=None, size=7, rows=30):
    for k in range(0, rows, size):
        yield x[k : k + size] if y is None else (x[k : k + size], y[k : k + size])


KINDS = {
    "array": np.asarray,
    "matrix": sp.csr_matrix,
    "sparse array": sp.csr_array,
    "frame": pd.DataFrame,
    "single": np.float32,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labels", [None, Y, Y > 1, Y / 2, np.array(["u", "v", "w"])[Y]])
def test_blocks(kind, labels):
    whole = KINDS[kind](X)
    x = X if kind == "frame" else whole
    blocks = cut(whole.iloc if kind == "frame" else whole, labels)
    stream = open_stream(blocks)
    assert stream.n_features == 4
    got = rows_of(stream)
    same(got, (x.toarray() if sp.issparse(x) else x, labels))
    assert got[0].dtype == x.dtype
    if labels is not None:
        assert got[1].dtype == {"i": np.int64, "b": np.int64, "f": np.float64, "U": object}[labels.dtype.kind]


@pytest.mark.parametrize("source", [X, sp.csr_matrix(X), pd.DataFrame(X)])
def test_one_block_is_a_source(source):
    same(read(source), (X, None))


def test_lists_can_be_read_again_and_generators_not():
    stream = open_stream([X, X])
    assert stream.survey().rows == 60
    assert rows_of(stream)[0].shape == rows_of(stream)[0].shape == (60, 4)
    once = open_stream(cut(X, Y))
    with pytest.raises(ValueError, match="can be read only once"):
        once.survey()
    rows_of(once)
    with pytest.raises(StreamError, match="no rows, or they have already been read"):
        rows_of(once)


@pytest.mark.parametrize("bits", [None, 3, 20])
@pytest.mark.parametrize("labels", [None, "text", "number"])
def test_dicts_are_hashed_as_by_scikit_learn(bits, labels):
    options = {} if bits is None else {"hash_bits": bits}
    y = None if labels is None else np.array([k % 3 if labels == "number" else "uvw"[k % 3] for k in range(40)])
    rows = ROWS if y is None else list(zip(ROWS, y.tolist()))
    stream = open_stream(iter(rows), block_bytes=64, **options)
    assert stream.n_features == 2 ** (bits or 18)
    got = list(stream)
    want = FeatureHasher(stream.n_features).transform(ROWS)
    assert abs(sp.vstack([x for x, _ in got]) - want).nnz == 0
    assert len(got) > 10
    assert stream.layout == {"kind": "python", "hash_bits": bits or 18}
    assert stream.feature_name(5) == "hash 5"
    if y is not None:
        assert np.concatenate([each for _, each in got]).tolist() == y.tolist()


def test_a_position_in_the_middle_of_a_block():
    stream = open_stream([*cut(X, Y, 7)])
    next(iter(stream))
    same(read([*cut(X, Y, 5)], start=stream.position), (X[7:], Y[7:]))


@pytest.mark.parametrize("source, message", [
    ([], "The iterable has no rows"), ([X, X[:, 1:]], r"Block 1 \(from 0\) has 3 columns, expected 4"),
    ([X[0]], "of shape"), ([np.array([["a"]])], "<U1"), ([(X, Y[1:])], r"30 rows, and labels of the shape \(29,\)"),
    ([[[1, 2], [3]]], "not an array"), ([pd.DataFrame({"a": ["x"]})], "TableEncoder"), ([(X, Y), X], "have labels"),
    ([None], "of shape"),
])  # fmt: skip
def test_what_is_no_block(source, message):
    with pytest.raises(StreamError, match=message):
        rows_of(open_stream(source))


def test_what_is_no_source():
    with pytest.raises(TypeError, match="source must be"):
        open_stream(3)
    with pytest.raises(ValueError, match="hash_bits=3 is for rows as dicts"):
        open_stream([X], hash_bits=3)
    with pytest.raises(ValueError, match="target='y' does not apply to python"):
        open_stream([X], target="y")


@pytest.mark.parametrize("bad, reason", [
    ({"a": None}, "dict of numbers and strings"), ({"a": [1]}, "dict of numbers"), ({"a": np.nan}, "not finite"),
    ({"a": -np.inf}, "not finite"), ({3: 1.0}, "dict of numbers"), ("text", "dict of numbers"), (7, "dict of numbers"),
])  # fmt: skip
def test_bad_dicts(bad, reason):
    rows = [*ROWS[:9], bad, *ROWS[9:]]
    with pytest.raises(StreamError, match=rf"The iterable, row 9 \(from 0\): .*{reason}"):
        rows_of(open_stream(rows, hash_bits=4, block_bytes=500))
    stream = open_stream(rows, hash_bits=4, on_error="skip")
    same(rows_of(stream), read(ROWS, hash_bits=4))
    assert (stream.position.offset, stream.position.rows, stream.position.skipped) == (41, 40, 1)


def test_bad_labels():
    stream = open_stream([(ROWS[0], "u"), (ROWS[1], None), (ROWS[2], 3), (ROWS[3], "v")], hash_bits=4, on_error="skip")
    assert rows_of(stream)[1].tolist() == ["u", "v"]
    assert "row 1 (from 0): it has no label" in stream.skipped[0]
    assert "row 2 (from 0): its label is 3" in stream.skipped[1]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_not_finite(sparse):
    x, y = X.copy(), Y.astype(float)
    x[8, 1], y[16] = np.nan, np.inf
    blocks = [*cut(sp.csr_matrix(x) if sparse else x, y)]
    with pytest.raises(StreamError, match=r"Block 1 \(from 0\), row 1 \(from 0\): a number is not finite"):
        rows_of(open_stream(blocks))
    stream = open_stream(blocks, on_error="skip")
    same(rows_of(stream), (np.delete(X, [8, 16], axis=0), np.delete(Y, [8, 16])))
    assert stream.position.skipped == 2


def test_blocks_are_not_written_to():
    x = sp.csr_matrix((np.ones(3), [3, 1, 3], [0, 3]), shape=(1, 4))
    before = x.indices.copy()
    np.testing.assert_array_equal(read([x])[0], [[0, 1, 0, 2]])
    np.testing.assert_array_equal(x.indices, before)


def test_layouts():
    layout = open_stream([X]).layout
    assert layout == {"kind": "python", "n_features": 4}
    same(read([X], layout=layout), (X, None))
    with pytest.raises(StreamError, match="has 3 columns, expected 4"):
        read([X[:, :3]], layout=layout)
    with pytest.raises(StreamError, match="is for blocks, and these are rows as dicts"):
        open_stream(ROWS, layout=layout)
    with pytest.raises(ValueError, match="is for rows as dicts, and these are blocks"):
        open_stream([X], layout={"kind": "python", "hash_bits": 3})
    for wrong in ({"kind": "table"}, {"kind": "python"}, {"kind": "python", "n_features": True}):
        with pytest.raises(StreamError, match="not a layout"):
            open_stream([X], layout=wrong)


@pytest.mark.parametrize("missing, want", [("zero", 0.0), ("nan", np.nan)])
def test_missing_numbers(missing, want):
    x = np.array([[1.0, np.nan], [np.inf, 2.0], [np.nan, 3.0]])
    for block in (x, sp.csr_matrix(x)):
        stream = open_stream([block], missing=missing, on_error="skip")
        np.testing.assert_array_equal(rows_of(stream)[0], [[1, want], [want, 3]])
        assert stream.position.skipped == 1
    np.testing.assert_array_equal(x[0], [1, np.nan])
    rows = [{"a": None, "b": 1.0}, {"a": 2.0}, {"a": np.nan}]
    dense = rows_of(open_stream(rows, missing=missing, hash_bits=4))[0]
    column = np.flatnonzero(dense[1])[0]
    np.testing.assert_array_equal(np.abs(dense[:, column]), [want, 2, want])
    assert rows_of(open_stream(rows, on_error="skip", hash_bits=4))[0].shape[0] == 1
