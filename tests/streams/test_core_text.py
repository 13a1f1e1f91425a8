"""The parsers of the core, called directly: what they return, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd import _core


def test_arrays_are_those_of_a_csr_matrix():
    (values, columns, starts), labels, bad, dropped = _core.parse_libsvm(b"1 3:4 1:2\n\n-1\n", True, 1, 3, -1, False)
    for array, want in ((values, [2.0, 4.0]), (columns, [0, 2]), (starts, [0, 2, 2]), (labels, [1.0, -1.0])):
        np.testing.assert_array_equal(array, want)
    assert (values.dtype, columns.dtype, starts.dtype) == (np.float64, np.int32, np.int32)
    assert bad == [] and dropped == 0


def test_bad_lines_have_offset_number_and_problem():
    found = _core.parse_libsvm(b"1 1:1\n x\n1 1:1e308 1:1e308\n1 2:y\n", True, 1, 3, -1, False)
    assert found[2] == [
        (6, 1, _core.Problem.NO_LABEL),
        (9, 2, _core.Problem.NOT_FINITE),
        (27, 3, _core.Problem.NO_VALUE),
    ]
    assert found[0][2].tolist() == [0, 1]
    found = _core.parse_vw(b"| 1\n1 -1 | 1\n1 1 1 | 1\n1\n|:1 a\n", False, 0, 3, -1, False, [])
    assert [each[2] for each in found[2]] == [
        _core.Problem.BAD_WEIGHT, _core.Problem.HAS_BASE, _core.Problem.NO_BAR, _core.Problem.NO_SPACE,
    ]  # fmt: skip


def test_weights_tags_and_groups():
    text = b"1 2 'one|a x:3 |b y\n-1 | z\n"
    rows, labels, bad, dropped, weights, tags, parts = _core.parse_vw(text, False, 0, 8, 3, False, [(97, -1), (58, -1)])
    assert labels.tolist() == [1, -1] and weights.tolist() == [2, 1]
    assert [text[begin:end] for begin, end in tags.tolist()] == [b"one", b""]
    assert [part[2].tolist() for part in parts] == [[0, 1, 1], rows[2].tolist()]
    assert _core.parse_vw(b"1 | a\n", False, 0, 8, 3, False, [])[4] is None


@pytest.mark.parametrize("text", [b"1 1:1", b"1", b"1 1:1\n2", b"\n1:", b"| a", b" "])
def test_text_without_a_final_line_feed_is_refused(text):
    for call in (
        lambda: _core.parse_libsvm(text, True, 0, 9, -1, False),
        lambda: _core.parse_vw(text, False, 0, 9, 3, False, []),
        lambda: _core.scan_libsvm(text, True, False, 9),
    ):
        with pytest.raises(ValueError, match="line feed"):
            call()


def test_an_empty_text_has_no_rows():
    assert _core.parse_libsvm(b"", True, 0, 9, -1, False)[0][2].tolist() == [0]
    assert _core.scan_libsvm(b"", True, False, 9) == (0, [], 1, 0)


def test_a_scan_finds_as_many_labels_as_asked_for():
    text = b"".join(b"%d %d:1\n" % (k % 7, k) for k in range(2, 50))
    assert _core.scan_libsvm(text, True, False, 100) == (48, [2, 3, 4, 5, 6, 0, 1], 1, 49)
    assert _core.scan_libsvm(text, True, False, 3) == (48, [2, 3, 4], 1, 49)
    assert _core.scan_libsvm(text + b"1 1:1 # remark\n", True, False, 3) is None


@given(st.binary(max_size=200), st.integers(1, 200))
def test_lines_are_counted(text, times):
    assert _core.count_lines(text * times) == (text * times).count(b"\n")
    assert _core.count_lines(memoryview(text)[3:]) == text[3:].count(b"\n")
