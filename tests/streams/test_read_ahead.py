"""A stream read ahead by a thread: the same blocks, positions and errors, one block ahead and no more."""

import itertools
import threading
import time

import numpy as np
import pytest

from robustfd.streams import StreamError, open_stream
from robustfd.streams.read_ahead import ReadAhead

PATIENCE = 20  # seconds
TEXT = "".join(f"{k % 2} {k % 7 + 1}:{k}.5 9:1\n" for k in range(300))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text(TEXT)
    return path


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    until(lambda: not threads())


def threads():
    return [each for each in threading.enumerate() if each.name == "robustfd-ahead"]


def until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.001)


def numbered(handed, stop=None):
    """Yield blocks of one row, and note how many there were."""
    for k in itertools.count() if stop is None else range(stop):
        handed.append(k)
        yield np.full((1, 2), float(k))


def test_blocks_and_positions_are_those_of_the_stream(path):
    alone = open_stream(path, n_features=9, block_bytes=200)
    expected = [(block, alone.position) for block in alone]
    stream = open_stream(path, n_features=9, block_bytes=200)
    with ReadAhead(stream) as source:
        found = list(source)
        assert not threads() and next(source, None) is None
    assert len(found) == len(expected) > 10
    for (one, here), (other, there) in zip(found, expected):
        assert here == there
        np.testing.assert_array_equal(one.X.toarray(), other.X.toarray())
        np.testing.assert_array_equal(one.y, other.y)
    assert stream.position == alone.position


def test_the_next_block_is_read_while_this_one_is_used_and_no_other():
    handed = []
    stream = open_stream(numbered(handed))
    with ReadAhead(stream) as source:
        for k in range(5):
            block, position = next(source)
            until(lambda k=k: stream.position.rows == k + 2)
            time.sleep(0.01)
            assert handed == list(range(k + 2))
            assert (block.X[0, 0], position.rows) == (k, k + 1)


def test_an_error_comes_after_the_blocks_before_it(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text(TEXT + "1 1:one\n")
    alone, found = open_stream(path, n_features=9, block_bytes=200), []
    with pytest.raises(StreamError):
        found.extend(alone.position for _ in alone)
    with ReadAhead(open_stream(path, n_features=9, block_bytes=200)) as source:
        for position in found:
            assert next(source)[1] == position
        with pytest.raises(StreamError, match="line 301.*'1 1:one'"):
            next(source)
        assert not threads() and next(source, None) is None
    assert found[-1].rows > 280


def test_rows_that_are_skipped_belong_to_the_block_they_were_in(tmp_path):
    path = tmp_path / "rows.svm"
    lines = TEXT.splitlines()
    for k in range(5, 300, 10):
        lines[k] = "1 1:one"
    path.write_text("\n".join(lines))
    options = {"n_features": 9, "block_bytes": 200, "on_error": "skip"}
    alone = open_stream(path, **options)
    expected = [alone.position for _ in alone]
    stream = open_stream(path, **options)
    with ReadAhead(stream) as source:
        assert [position for _, position in source] == expected
    assert expected[0].skipped < expected[-1].skipped == 30
    assert stream.skipped == alone.skipped


def test_no_rows_are_an_error_here_too(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("# nothing\n")
    with ReadAhead(open_stream(path, n_features=9)) as source, pytest.raises(StreamError, match="has no rows"):
        next(source)


def test_leaving_ends_the_thread_and_closes_the_file(path):
    stream = open_stream(path, n_features=9, block_bytes=200)
    with ReadAhead(stream) as source:
        next(source)
    until(lambda: not threads())
    assert stream.inputs[0]._file.closed


def test_leaving_does_not_wait_for_input_that_does_not_come():
    release = threading.Event()

    def stuck():
        yield np.ones((1, 2))
        release.wait(PATIENCE)
        yield np.ones((1, 2))

    began = time.monotonic()
    with ReadAhead(open_stream(stuck())) as source:
        next(source)
    assert time.monotonic() - began < PATIENCE / 2
    assert all(each.daemon for each in threads()) and threads()
    release.set()
