"""Parquet and Arrow files and streams give the rows of their table; damaged ones are errors with a name."""

import contextlib
import io
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from robustfd.streams import open_stream
from robustfd.streams.columns import as_codes
from tests.streams.reading import read, rows_of, same

RNG = np.random.default_rng(0)
TABLE = pa.table({
    "a": RNG.standard_normal(1000), "c": RNG.choice(["u", "v", "w"], 1000), "b": RNG.integers(0, 100, 1000),
    "y": RNG.choice(["no", "yes"], 1000),
})  # fmt: skip


def parquet(path, **options):
    pq.write_table(TABLE, path, **{"row_group_size": 128, **options})


def arrow_file(path, new=pa.ipc.new_file, rows=128):
    with pa.OSFile(str(path), "wb") as file, new(file, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=rows)


def arrow_stream(path):
    arrow_file(path, pa.ipc.new_stream)


WRITERS = {
    "rows.parquet": parquet, "one.parquet": lambda path: parquet(path, row_group_size=1000, compression="none"),
    "rows.arrow": arrow_file, "one.arrow": lambda path: arrow_file(path, rows=1000),
    "stream.arrow": arrow_stream,
    "rows.feather": lambda path: pyarrow.feather.write_feather(TABLE, str(path), compression="lz4"),
}  # fmt: skip
WANT = (
    np.column_stack(
        [TABLE["a"].to_numpy(), TABLE["b"].to_numpy(), *(TABLE["c"].to_numpy() == value for value in "uvw")]
    ),
    TABLE["y"].to_numpy(),
)


@pytest.fixture(params=WRITERS)
def path(request, tmp_path):
    """A file of the table, in each format."""
    WRITERS[request.param](tmp_path / request.param)
    return tmp_path / request.param


@pytest.mark.parametrize("block_bytes", [64, 5000, 1 << 20])
def test_all_rows(path, block_bytes):
    stream = open_stream(path, target="y", categories="onehot", block_bytes=block_bytes)
    same(rows_of(stream), WANT)
    assert stream.position.offset == stream.rows_read == 1000
    assert 0 <= stream.bytes_read <= stream.bytes_total


def test_damaged_anywhere(path):
    """Whatever byte is changed, or wherever a file ends: the same rows, other rows, or a ValueError, never a crash."""
    content = path.read_bytes()
    rng = np.random.default_rng(2)
    other = path.with_name("damaged" + path.suffix)
    kind = "parquet" if path.suffix == ".parquet" else "arrow"
    for k in range(60):
        if k % 3 == 0:
            broken = content[: rng.integers(0, len(content))]
        else:
            broken = bytearray(content)
            broken[rng.integers(len(content)) if k % 3 == 1 else -rng.integers(1, 400)] ^= 1 << rng.integers(8)
        other.write_bytes(broken)
        # A letter of a name may be changed too: then a column is missing, and that is a ValueError.
        with contextlib.suppress(ValueError):
            read(other, format=kind, target="y", hash_bits=3, on_error="skip")


def test_a_column_for_each_value_needs_a_second_pass(tmp_path):
    arrow_stream(tmp_path / "rows.arrow")
    with pytest.raises(ValueError, match="can be read only once"):
        open_stream(io.BytesIO((tmp_path / "rows.arrow").read_bytes()), target="y", categories="onehot")


def test_only_needed_columns_are_looked_at(tmp_path):
    table = TABLE.append_column("when", pa.array([0] * 1000, pa.timestamp("s")))
    pq.write_table(table, tmp_path / "rows.parquet")
    x, y = read(tmp_path / "rows.parquet", columns=["b", "a"])
    np.testing.assert_array_equal(x, WANT[0][:, 1::-1])
    assert y is None


def test_names_with_dots(tmp_path):
    pq.write_table(pa.table({"a": [1.0], "a.b": [2.0], "a.b.c": [3.0]}), tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet", columns=["a.b", "a"])[0].tolist() == [[2, 1]]


def test_without_pyarrow_it_is_said_what_to_install(tmp_path, monkeypatch):
    parquet(tmp_path / "rows.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("columns", "table", "arrow"):
        monkeypatch.delitem(sys.modules, f"robustfd.streams.{name}", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'robustfd\[arrow\]'"):
        open_stream(tmp_path / "rows.parquet")


def test_a_column_of_categories_with_codes_beyond_its_values_is_refused():
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 1, 5]), pa.array(["a", "b", "c"]), safe=False)
    with pytest.raises(pa.ArrowInvalid, match="refers to other values than the 3 it has"):
        as_codes(broken)
