"""Arrays and sparse matrices are read row by row, never as a whole; damaged ones are errors with a name."""

import contextlib
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from robustfd.streams import Position, StreamError, open_stream
from tests.streams.reading import read, rows_of, same

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 4))


@pytest.fixture
def put(tmp_path):
    """Return the function that stores an array, or a sparse matrix, and returns its path."""

    def write(x, name="rows", **options):
        if sp.issparse(x):
            sp.save_npz(tmp_path / f"{name}.npz", x, **options)
            return tmp_path / f"{name}.npz"
        np.save(tmp_path / f"{name}.npy", x, **options)
        return tmp_path / f"{name}.npy"

    return write


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f8", ">f4", "i8", "u1", "?", "i2"])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("block_bytes", [64, 300, 1 << 20])
def test_arrays_of_all_types(put, dtype, order, block_bytes):
    x = np.asarray(10 * abs(X), dtype, order=order)
    got, y = read(put(x), block_bytes=block_bytes)
    np.testing.assert_array_equal(got, x)
    assert got.dtype == (np.float32 if dtype in ("f4", ">f4") else np.float64)
    assert y is None


@pytest.mark.parametrize("options, features, target", [
    ({"target": -1}, [0, 1, 2], 3), ({"target": 0}, [1, 2, 3], 0), ({"target": "1", "columns": [3, "0"]}, [3, 0], 1),
    ({"columns": [-1]}, [3], None),
])  # fmt: skip
def test_targets_and_columns(put, options, features, target):
    stream = open_stream(put(X), **options)
    same(rows_of(stream), (X[:, features], None if target is None else X[:, target]))
    assert [stream.feature_name(k) for k in range(stream.n_features)] == [str(k) for k in features]
    same(rows_of(open_stream(put(X), layout=stream.layout)), rows_of(stream))
    if target is not None:
        same(read(put(np.delete(X, target, axis=1), "other"), layout=stream.layout), (X[:, features], None))


def test_labels_of_whole_numbers(put):
    _, y = read(put(np.arange(6).reshape(3, 2)), target=0)
    assert y.tolist() == [0, 2, 4]
    assert y.dtype == np.int64


@pytest.mark.parametrize("options, message", [
    ({"target": 4}, "4 is not a column"), ({"columns": ["x"]}, "'x' is not a"), ({"columns": []}, "leave no features"),
    ({"columns": [1, 1]}, "twice"), ({"columns": [1], "target": 1}, "twice"), ({"hash_bits": 3}, "does not apply"),
    ({"layout": {"kind": "table"}}, "not a layout"),
    ({"layout": {"kind": "npy", "columns": [1, 1], "width": 4}}, "not a layout"),
    ({"layout": {"kind": "npy", "columns": [4], "width": 4}}, "not a layout"),
    ({"layout": {"kind": "npy", "columns": [0], "width": 9}}, "has 4 columns, expected 9"),
])  # fmt: skip
def test_arguments_that_make_no_sense(put, options, message):
    with pytest.raises(ValueError, match=message):
        open_stream(put(X), **options)


@pytest.mark.parametrize("x, message", [
    (np.zeros(3), r"has the shape \(3,\)"), (np.zeros((2, 2, 2)), "has the shape"), (np.zeros((3, 0)), "has the shape"),
    (np.zeros((2, 2), complex), "array of complex128"), (np.array([["a"]]), "array of <U1"),
    (np.zeros(3, [("a", "f8"), ("b", "i4")]), "its records"),
    (np.zeros((3, 1), [("é", "f8")]), "not an array of numbers|must have numbers"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_arrays_that_are_refused(put, x, message):
    with pytest.raises(StreamError, match=f"rows.npy.*{message}"):
        open_stream(put(x))


def test_objects_are_refused(put):
    with pytest.raises(StreamError, match="array of object"):
        open_stream(put(np.array([[None]]), allow_pickle=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_not_finite(put, bad, sparse):
    x = X.copy()
    x[17, 2] = bad
    path = put(sp.csr_matrix(x) if sparse else x)
    with pytest.raises(StreamError, match=r"rows.np., row 17 \(from 0\): a number is not finite"):
        read(path, block_bytes=200)
    stream = open_stream(path, on_error="skip")
    same(rows_of(stream), (np.delete(X, 17, axis=0), None))
    assert replace(stream.position, checksum="") == Position(0, 50, 0, 49, stream.bytes_total, 1, 0)


def sparse_rows(n=60, d=30, seed=3):
    x = sp.random(n, d, 0.2, "csr", random_state=seed).toarray()
    x[5] = 0  # a row without entries
    return sp.csr_matrix(x)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("block_bytes", [64, 500, 1 << 20])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_sparse_matrices(put, compressed, block_bytes, kind):
    x = sparse_rows()
    stream = open_stream(put(kind(x), compressed=compressed), block_bytes=block_bytes)
    same(rows_of(stream), (x.toarray(), None))
    assert stream.feature_name(7) == "7"
    assert all(block.has_canonical_format for block, _ in stream)


def test_sparse_matrices_of_other_types_and_orders(put):
    x = sparse_rows()
    same(read(put(x.astype(np.float32))), (x.astype(np.float32).toarray(), None))
    big = sp.csr_matrix(x)
    big.indices, big.indptr = big.indices.astype(np.int64), big.indptr.astype(np.int64)
    same(read(put(big)), (x.toarray(), None))
    odd = sp.csr_matrix((np.ones(4), np.array([3, 1, 3, 0]), np.array([0, 3, 4])), shape=(2, 4))
    got = next(iter(open_stream(put(odd)))).X
    np.testing.assert_array_equal(got.toarray(), odd.toarray())
    assert got.has_canonical_format


@pytest.mark.parametrize("name", ["csc", "coo", "bsr"])
def test_other_sparse_formats(put, name):
    with pytest.raises(StreamError, match=f"format '{name}'. Convert it with .tocsr()"):
        open_stream(put(sparse_rows().asformat(name)))


def test_widths(put):
    x = sparse_rows()
    path = put(x)
    assert read(path, n_features=40)[0].shape == (60, 40)
    narrow = open_stream(path, n_features=20, on_error="skip")
    keep = x[:, 20:].getnnz(axis=1) == 0
    same(rows_of(narrow), (x[keep][:, :20].toarray(), None))
    assert narrow.position.skipped == 60 - keep.sum()
    with pytest.raises(StreamError, match="row .*an index above the last feature"):
        read(path, n_features=20)
    other = put(sparse_rows(d=31), "other")
    with pytest.raises(StreamError, match="other.npz has 31 columns, and the first file has 30"):
        read([path, other])
    assert read([path, other], n_features=31)[0].shape == (120, 31)
    assert read(path, layout={"kind": "npz", "n_features": 31})[0].shape == (60, 31)
    with pytest.raises(StreamError, match="not a layout"):
        open_stream(path, layout={"kind": "npz", "n_features": 0})


def broken_matrix(**changes):
    x = sparse_rows()
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": x.shape, "format": b"csr", **changes}
    buffer = io.BytesIO()
    np.savez(buffer, **{name: part for name, part in parts.items() if part is not None})
    return buffer.getvalue()


@pytest.mark.parametrize("changes, message", [
    ({"indptr": np.arange(61)[::-1]}, "damaged: row 0 begins"), ({"indptr": np.arange(60)}, "do not make a matrix"),
    ({"indptr": np.concatenate(([0, 9, 5], np.full(58, 5)))}, "do not follow each other"),
    ({"indptr": np.concatenate(([0], np.full(60, 10**12)))}, "do not follow each other"),
    ({"indptr": np.linspace(0, 360, 61)}, "do not make a matrix"), ({"data": np.ones(7)}, "do not make a matrix"),
    ({"shape": (60,)}, "do not make a matrix"), ({"shape": (60, 0)}, "do not make"),
    ({"shape": None}, "no array 'shape.npy'"),
    ({"format": None}, "numpy.save"), ({"data": np.array(["x"])}, "array of <U1"),
])  # fmt: skip
def test_matrices_that_are_none(tmp_path, changes, message):
    path = tmp_path / "rows.npz"
    path.write_bytes(broken_matrix(**changes))
    with pytest.raises(StreamError, match=f"rows.npz.*{message}"):
        read(path)


def test_indices_out_of_range_are_bad_rows(tmp_path):
    indices = sparse_rows().indices.copy()
    indices[3] = -1
    (tmp_path / "rows.npz").write_bytes(broken_matrix(indices=indices))
    stream = open_stream(tmp_path / "rows.npz", on_error="skip")
    assert rows_of(stream)[0].shape[0] == 59
    assert "there is an index above the last feature" in stream.skipped[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sparse", [False, True])
def test_damaged_anywhere(put, sparse):
    path = put(sparse_rows() if sparse else X)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    for k in range(150):
        broken = bytearray(content)
        if k % 3 == 0:
            broken = broken[: rng.integers(0, len(content))]
        else:
            at = rng.integers(200) if k % 3 == 1 else rng.integers(len(content))
            broken[at] ^= 1 << rng.integers(8)
        path.write_bytes(broken)
        with contextlib.suppress(StreamError):
            read(path, format=path.suffix[1:], on_error="skip")


def test_cut_short_is_said(put):
    path = put(X)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StreamError, match="rows.npy is truncated: it should have 200 numbers"):
        read(path)
    matrix = put(sparse_rows())
    matrix.write_bytes(matrix.read_bytes()[:-9])
    with pytest.raises(StreamError, match="rows.npz is damaged or truncated"):
        read(matrix)


def test_columns_first_cannot_come_from_a_pipe(put):
    with pytest.raises(StreamError, match="in column-major order"):
        read(io.BytesIO(put(np.asfortranarray(X)).read_bytes()))


def test_a_zip_with_a_password_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        archive.writestr("format.npy", b"csr")
    content = bytearray((tmp_path / "rows.npz").read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + at] |= 1
    (tmp_path / "rows.npz").write_bytes(content)
    with pytest.raises(StreamError, match="rows.npz is damaged or truncated.*password"):
        open_stream(tmp_path / "rows.npz")
