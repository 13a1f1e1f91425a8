"""Scans that start before the stream asks for them."""

import numpy as np
import pytest

from robustfd.streams import open_stream, scan


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1\n-1 3:1\n")
    return path


def test_a_scan_that_has_started_is_used_once(rows, monkeypatch):
    scan.start(str(rows))
    with monkeypatch.context() as patched:
        patched.setattr(scan, "FileScan", None)
        assert scan.scan_file(rows) == (2, [1.0, -1.0], 1, 3)
    assert scan.scan_file(rows) == (2, [1.0, -1.0], 1, 3)


def test_a_file_that_has_changed_since_is_scanned_again(rows):
    scan.start(str(rows))
    rows.write_text("2 1:1\n3 5:1\n1 1:1\n")
    stream = open_stream(rows)
    assert stream.n_features == 5 and stream.survey().labels == {1, 2, 3}


@pytest.mark.parametrize("name", ["none", "", "-", ".", "a\0b", "--help", "/dev/null"])
def test_what_is_no_regular_file_is_left_alone(name):
    before = dict(scan._started)
    scan.start(name)
    assert scan._started == before


def test_several_files_have_the_width_of_the_widest(rows, tmp_path):
    other = tmp_path / "other.svm"
    other.write_text("0 0:1 2:1\n")
    scan.start(str(other))
    stream = open_stream([rows, other])
    assert stream.n_features == 4 and stream.survey().labels == {-1, 0, 1}
    assert np.vstack([block.X.toarray() for block in stream]).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 1, 0]]
