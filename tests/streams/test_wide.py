"""Tables of very many columns: work and memory in proportion to the columns, and the same rows as by the short way."""

import csv
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd.streams import StreamError, open_stream
from robustfd.streams import csv as csv_module
from tests.streams.reading import read, rows_of

pytestmark = pytest.mark.slow

COLUMNS = 10_000  # with work in proportion to their square each test would take ten seconds


@pytest.fixture(scope="module")
def wide():
    """A table of many columns: numbers, and one of text."""
    numbers = np.random.default_rng(0).integers(0, 100, (3, COLUMNS - 2)) / 4
    columns = [pa.array(["a", "b", "a"]), *map(pa.array, numbers.T), pa.array([1, 0, 1])]
    return pa.table(columns, names=["who", *(f"c{k}" for k in range(COLUMNS - 2)), "y"])


def _write(table, path):
    if path.suffix == ".csv":
        rows = [table.column_names, *zip(*(column.to_pylist() for column in table.columns))]
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pq.write_table(table, path, use_dictionary=False, write_statistics=False, compression=None)
    else:
        new = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather", ".arrow"])
def test_many_columns(wide, tmp_path, suffix):
    _write(wide, tmp_path / f"rows{suffix}")
    stream = open_stream(tmp_path / f"rows{suffix}", target="y", categories="onehot")
    x, y = rows_of(stream)
    assert x.shape == (3, COLUMNS)
    np.testing.assert_array_equal(x[:, :-2], np.column_stack([each.to_numpy() for each in wide.columns[1:-1]]))
    np.testing.assert_array_equal(x[:, -2:], [[1, 0], [0, 1], [1, 0]])
    assert y.tolist() == [1, 0, 1]
    assert y.dtype == np.int64
    assert [stream.feature_name(k) for k in range(COLUMNS)] == [*wide.column_names[1:-1], "who=a", "who=b"]
    again = open_stream(tmp_path / f"rows{suffix}", layout=stream.layout, columns=None)
    assert again.n_features == COLUMNS


def test_many_columns_chosen_by_name(wide, tmp_path):
    _write(wide, tmp_path / "rows.csv")
    chosen = [f"c{k}" for k in reversed(range(COLUMNS - 2))]
    x, _ = read(tmp_path / "rows.csv", columns=chosen)
    np.testing.assert_array_equal(x, np.column_stack([wide.column(name).to_numpy() for name in chosen]))


def test_a_bad_record_among_many_columns_is_named(tmp_path):
    good = ",".join(["1.5"] * 3000)
    (tmp_path / "rows.csv").write_text(f"{','.join(f'c{k}' for k in range(3000))}\n{good}\n{good},7\n{good}\n")
    with pytest.raises(StreamError, match="line 3: 3001 fields instead of 3000"):
        read(tmp_path / "rows.csv")
    stream = open_stream(tmp_path / "rows.csv", on_error="skip")
    np.testing.assert_array_equal(rows_of(stream)[0], np.full((2, 3000), 1.5))
    assert stream.position.skipped == 1


@contextmanager
def _wide_from(columns):
    with mock.patch.object(csv_module, "WIDE", columns):
        yield


CELL = st.sampled_from(
    ["1", "-2.5", " 3 ", "1e3", "", "NA", "true", "x", 'a"b', "a,b", "two\nlines", "2020-01-01", "é"]
)
ROWS = st.integers(2, 6).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n), min_size=1, max_size=8))


@given(ROWS, st.integers(1, 3), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
def test_the_way_of_many_columns_reads_the_same(tmp_path_factory, rows, most, quoting):
    path = tmp_path_factory.mktemp("wide") / "rows.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=quoting).writerows([[f"c{k}" for k in range(len(rows[0]))], *rows])

    def outcome():
        try:
            stream = open_stream(path, on_error="skip", hash_bits=4, header=True, delimiter=",", block_bytes=64)
            x, _ = rows_of(stream)
        except StreamError as error:
            return str(error)
        return x.tolist(), stream.layout, stream.skipped

    want = outcome()
    with _wide_from(most):
        assert outcome() == want
