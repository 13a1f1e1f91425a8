"""Memory follows the size of a file and documented limits, not what the file claims; options raise the limits."""

import json
import lzma
import re
import subprocess
import sys

import numpy as np
import pytest

from robustfd.streams import StreamError, open_stream
from tests.streams import hostile
from tests.streams.reading import read


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on the address space is Linux's")
def test_small_files_cannot_ask_for_much_memory(tmp_path):
    expected, cases = {}, []
    for name, data, options, words in hostile.files():
        (tmp_path / name).write_bytes(data)
        expected[name] = words
        cases.append([name, options])
        assert len(data) < 1 << 20
    command = [sys.executable, "-m", "tests.streams.hostile", str(tmp_path), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(map(json.loads, done.stdout.splitlines()))
    wrong = {
        name: found[name] for name, words in expected.items() if not re.search(f"StreamError.*{words}", found[name])
    }
    assert not wrong


@pytest.mark.parametrize("name, data, options, rows", [
    ("rows.npy", hostile.npy((1, 4), bytes(32)), {}, [[0, 0, 0, 0]]),
    ("rows.npz", hostile.npz(4, 1), {}, [[0, 0, 0, 0]]),
    ("rows.npz", hostile.npz(4, 1), {"n_features": 4, "max_columns": 3}, [[0, 0, 0, 0]]),
    ("rows.csv", b"1,2,3,4\n", {"header": False}, [[1, 2, 3, 4]]),
    ("rows.svm", b"1 4:4\n", {}, [[0, 0, 0, 4]]),
    ("rows.svm", b"1 4:4\n", {"n_features": 4, "max_columns": 3}, [[0, 0, 0, 4]]),
    ("rows.vw", b"1 | 4:4\n", {}, [[0, 0, 0, 4]]),
])  # fmt: skip
def test_max_columns(tmp_path, name, data, options, rows):
    (tmp_path / name).write_bytes(data)
    np.testing.assert_array_equal(read(tmp_path / name, **{"max_columns": 4, **options})[0], rows)
    if "max_columns" not in options and name != "rows.vw":
        with pytest.raises(StreamError, match="max_columns=3"):
            open_stream(tmp_path / name, **options, max_columns=3)


def test_vowpal_wabbit_text_with_large_numbers_is_hashed(tmp_path):
    (tmp_path / "rows.vw").write_bytes(b"1 | 2000000000:1\n-1 | 1:1\n")
    x, _ = read(tmp_path / "rows.vw")
    assert x.shape == (2, 2**18) and x[0, 2000000000 % 2**18] == x[1, 1] == 1


def test_rows_beyond_the_limit_can_be_skipped(tmp_path):
    (tmp_path / "rows.svm").write_bytes(b"1 2:1\n1 2000000000:1\n-1 3:1\n")
    stream = open_stream(tmp_path / "rows.svm", on_error="skip")
    assert (stream.n_features, sum(X.shape[0] for X, _ in stream), stream.position.skipped) == (3, 2, 1)


@pytest.mark.parametrize("name, line", [
    ("rows.svm", b"1 1:1 2:1"), ("rows.csv", b"1.5,2,3,4"), ("rows.jsonl", b'{"a":1.5}'), ("rows.vw", b"1 | 1:1 2"),
])  # fmt: skip
def test_max_line_bytes(tmp_path, name, line):
    (tmp_path / name).write_bytes(line + b"\n" + line + b"\n")
    how = {"block_bytes": 64, **({"header": False} if name == "rows.csv" else {})}
    assert read(tmp_path / name, max_line_bytes=len(line) + 1, **how)[0].shape[0] == 2
    (tmp_path / name).write_bytes(line + b"\n" + line[:-1] + b" " * 300 + line[-1:] + b"\n")
    with pytest.raises(StreamError, match="line 2: no line feed in 200 bytes.*max_line_bytes"):
        read(tmp_path / name, max_line_bytes=200, **how)


def test_streams_of_xz_follow_each_other(tmp_path):
    (tmp_path / "rows.svm.xz").write_bytes(lzma.compress(b"1 1:1\n") + lzma.compress(b"1 2:1\n") + bytes(8))
    assert read(tmp_path / "rows.svm.xz")[0].shape == (2, 2)
