"""Parquet and Arrow files and streams give the rows of their table; damaged ones are errors with a name."""

import contextlib
import gzip
import io
import os
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from robustfd.streams import StreamError, open_stream
from robustfd.streams.columns import as_codes
from tests.streams.reading import read, rows_of, same

RNG = np.random.default_rng(0)
TABLE = pa.table({
    "a": RNG.standard_normal(1000), "c": RNG.choice(["u", "v", "w"], 1000), "b": RNG.integers(0, 100, 1000),
    "y": RNG.choice(["no", "yes"], 1000),
})  # fmt: skip


def parquet(path, **options):
    pq.write_table(TABLE, path, **{"row_group_size": 128, **options})


def arrow_file(path, **options):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, TABLE.schema) as writer:
        writer.write_table(TABLE, **{"max_chunksize": 128, **options})


def arrow_stream(path, **options):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE, **{"max_chunksize": 128, **options})


WRITERS = {
    "rows.parquet": parquet, "one.parquet": lambda path: parquet(path, row_group_size=1000, compression="none"),
    "rows.arrow": arrow_file, "one.arrow": lambda path: arrow_file(path, max_chunksize=1000),
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


@pytest.mark.parametrize("block_bytes", [1000, 10_000])
def test_every_position_is_one_to_go_on_from(path, block_bytes):
    options = {"target": -1, "categories": "onehot", "block_bytes": block_bytes}
    stream, n = open_stream([path, path], **options), 0
    both = np.concatenate((WANT[0], WANT[0])), np.concatenate((WANT[1], WANT[1]))
    for block, _ in stream:
        n += block.shape[0]
        assert stream.position.rows == n
        if n < 2000 and n % 7 == 0:
            rest = rows_of(open_stream([path, path], start=stream.position, **options))
            same(rest, (both[0][n:], both[1][n:]))


def test_the_first_bytes_tell_the_format(path):
    other = path.with_name("rows")
    path.rename(other)
    same(read(other, target="y", categories="onehot"), WANT)


def test_compressed_as_a_whole(path):
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    same(read(packed, target="y", categories="onehot"), WANT)


def test_a_position_behind_the_end(path):
    stream = open_stream(path, target="y", hash_bits=2)
    rows_of(stream)
    shorter = TABLE.slice(0, 10)
    if path.suffix == ".parquet":
        pq.write_table(shorter, path)
    else:
        pyarrow.feather.write_feather(shorter, str(path))
    with pytest.raises(StreamError, match="ends before row 1000"):
        read(path, target="y", hash_bits=2, start=stream.position)


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


def test_parquet_does_not_come_from_a_pipe(tmp_path):
    parquet(tmp_path / "rows.parquet")
    with pytest.raises(StreamError, match="<file object>: Parquet files cannot be read from a pipe"):
        open_stream(io.BytesIO((tmp_path / "rows.parquet").read_bytes()))


def test_an_arrow_file_does_not_come_from_a_pipe(tmp_path):
    arrow_file(tmp_path / "rows.arrow")
    with pytest.raises(StreamError, match="<file object>: Arrow files cannot be read from a pipe"):
        open_stream(io.BytesIO((tmp_path / "rows.arrow").read_bytes()))


def test_an_arrow_stream_from_a_pipe(tmp_path):
    arrow_stream(tmp_path / "rows.arrow")
    os.mkfifo(tmp_path / "pipe")
    content = (tmp_path / "rows.arrow").read_bytes()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content))
    writer.start()
    got = read(tmp_path / "pipe", target="y", hash_bits=2)
    writer.join()
    same(got, read(tmp_path / "rows.arrow", target="y", hash_bits=2))


def test_an_arrow_stream_that_can_be_read_once_only(tmp_path):
    arrow_stream(tmp_path / "rows.arrow")
    content = (tmp_path / "rows.arrow").read_bytes()
    stream = open_stream(io.BytesIO(content), target="y", hash_bits=2)
    want = read(tmp_path / "rows.arrow", target="y", hash_bits=2)
    same(rows_of(stream), want)
    with pytest.raises(ValueError, match="can be read only once"):
        stream.survey()
    with pytest.raises(ValueError, match="can be read only once"):
        open_stream(io.BytesIO(content), target="y", categories="onehot")
    half = open_stream(tmp_path / "rows.arrow", target="y", hash_bits=2, block_bytes=4000)
    next(iter(half))
    rest = open_stream(io.BytesIO(content), target="y", hash_bits=2, start=half.position)
    same(rows_of(rest), (want[0][125:], want[1][125:]))


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
