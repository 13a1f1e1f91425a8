"""The parsers of the core, called directly: what they return, and what they refuse."""

import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from robustfd import _core


def test_arrays_are_those_of_a_csr_matrix():
    (values, columns, starts), labels, bad, dropped = _core.parse_libsvm(b"1 3:4 1:2\n\n-1\n", True, 1, 3, -1, False)
    for array, want in ((values, [2.0, 4.0]), (columns, [0, 2]), (starts, [0, 2, 2]), (labels, [1.0, -1.0])):
        np.testing.assert_array_equal(array, want)
    assert (values.dtype, columns.dtype, starts.dtype) == (np.float64, np.int32, np.int32)
    assert bad == [] and dropped == 0


def test_memory_is_used_again_only_when_a_block_is_gone():
    """Large blocks take memory of earlier ones; each block that is still held keeps its numbers."""
    rng, held = np.random.default_rng(0), []
    for k in range(25):
        n = int(rng.integers(8_000, 30_000))
        (values, columns, starts), *_ = _core.parse_libsvm(b"1 1:%d 2:%d\n" % (k, k + 1) * n, True, 1, 2, -1, False)
        held.append((k, values, columns if k % 3 else None, n))
        for _ in range(int(rng.integers(3))):
            held.pop(int(rng.integers(len(held)))) if held else None
        for k_, values_, columns_, n_ in held:
            assert (values_.reshape(n_, 2) == [k_, k_ + 1]).all()
            assert columns_ is None or (columns_.reshape(n_, 2) == [0, 1]).all()


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


def scan_of_file(path, piece=1):
    scan = _core.FileScan(path, 9)
    while scan.advance(piece):
        pass
    return scan.result()


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
@pytest.mark.parametrize("lines", [0, 1, 3, 60_000])
def test_a_file_is_scanned_in_pieces_that_end_anywhere(tmp_path, lines, end):
    path, text = tmp_path / "rows", b"\n".join(b"%d 7:0.5 %d:1" % (k % 3, 9 + k) for k in range(lines)) + end
    path.write_bytes(text)
    for piece in (1, 1 << 26):
        assert scan_of_file(path, piece) == _core.scan_libsvm(text + b"\n", True, False, 9)


@pytest.mark.parametrize("text", [
    b"1 1:1 # remark", b"1 a:1", b"1:1 2:1", b"1 1:1\n" * 70_000 + b"x", b"1" + b" 1:1" * (1 << 23), b"\x1f\x8b", b"{}",
    b"\xef\xbb\xbf1 1:1",
])  # fmt: skip
def test_a_scan_of_a_file_finds_nothing_in_unusual_text(tmp_path, text):
    path = tmp_path / "rows"
    path.write_bytes(text)
    assert scan_of_file(path) is None


def test_a_scan_finds_nothing_in_what_is_no_file(tmp_path):
    assert scan_of_file(tmp_path) is None
    assert scan_of_file(tmp_path / "none") is None


@given(st.binary(max_size=200), st.integers(1, 200))
def test_letters_are_counted(text, times):
    assert _core.count_letter(text * times, 10) == (text * times).count(b"\n")
    assert _core.count_letter(memoryview(text)[3:], 255) == text[3:].count(b"\xff")


@given(st.binary(max_size=20), st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_hashes_are_those_of_scikit_learn(name, seed, bits):
    assert _core.murmur3(name, seed) == murmurhash3_32(name, seed=seed, positive=True)
    h = murmurhash3_32(name, seed=seed)
    assert _core.hash_name(name, bits, seed) == (abs(h) % 2**bits, 1 if h >= 0 else -1)


WHOLE = st.text(max_size=3).filter(lambda text: not any(map(str.isspace, text)))  # other text becomes words
VALUES = st.floats() | st.integers(-9, 9) | st.booleans() | WHOLE | st.just(np.float32(0.5))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(["a", "b"])


@given(st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=6), st.integers(1, 20))
def test_dicts_become_the_rows_of_scikit_learn(rows, bits):
    arrays, bad = _core.hash_rows(rows, bits)
    want = FeatureHasher(2**bits).transform(rows)
    assert bad == []
    for array, other in zip(arrays, (want.data, want.indices, want.indptr)):
        np.testing.assert_allclose(array, other)


def test_what_else_may_be_in_dicts():
    rows = [{b"x": 1}, {3: "a"}, {"d": Decimal(2)}, [("x", 1.0)], {1: 0}]
    assert _core.hash_rows(rows, 10)[1] == []
    rows = [{"a": 1, "b": [2]}, {3: 1.0}, 5, {"\ud800": 1}, {"a": 10**400}, [("x",)], {"a": None}, {"a": 2}]
    (values, _, starts), bad = _core.hash_rows(rows, 10)
    assert [k for k, _ in bad] == [0, 1, 2, 3, 4, 5, 6]
    assert abs(values).tolist() == [2.0] and starts.tolist() == [0] * 8 + [1]


def test_an_interrupt_in_a_dict_is_not_a_bad_row():
    class Stop:
        def __float__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _core.hash_rows([{"a": Stop()}], 10)


@pytest.mark.parametrize("ends", [[], [0, 9], [-1, 2], [2, 1]])
def test_values_beyond_their_text_are_refused(ends):
    with pytest.raises(ValueError, match="within the text"):
        _core.hash_values(b"a=", b"abc", np.array(ends, np.int64), 5)


@given(st.data(), st.integers(0, 6), st.integers(0, 4), st.integers(0, 4))
def test_rows_of_numbers_and_values(data, n, width, texts):
    numbers = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=n * width, max_size=n * width)), float)
    codes = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=n * texts, max_size=n * texts)), np.int64)
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    starts = np.cumsum([0, *sizes])
    places = np.array(data.draw(st.lists(st.integers(0, 9), min_size=sum(sizes), max_size=sum(sizes))), np.int64)
    numbers, codes = numbers.reshape(n, width), codes.reshape(texts, n)
    values = np.where(places % 2, 1.0, -0.5)
    x = sp.csr_matrix(_core.table_rows(numbers, codes, starts, places, values), shape=(n, 10))
    want = np.zeros((n, 10))
    want[:, :width] = numbers
    for t, i in np.argwhere(codes >= 0):
        for k in range(starts[codes[t, i]], starts[codes[t, i] + 1]):
            want[i, places[k]] += values[k]
    np.testing.assert_array_equal(x.toarray(), want)
    assert x.has_canonical_format


def test_codes_without_a_column_are_refused():
    numbers, places = np.zeros((2, 1)), np.zeros(3, np.int64)
    for codes, starts in ([0, 3], range(4)), ([0, 1], [0, 1, 4]), ([0], range(4)), ([0, 1], [1, 0, 3]), ([-1, -1], []):
        with pytest.raises(ValueError, match="code|starts|shapes"):
            _core.table_rows(numbers, np.array([codes]), np.array(starts, np.int64), places, np.ones(3))


def csr(rows, columns=9):
    x = sp.csr_matrix(np.array(rows, float))
    x.resize(len(rows), columns)
    return x.indptr, x.indices, x.data


def test_products_that_do_not_fit_are_refused():
    x, ranks = csr([[1, 2], [0, 3]]), np.zeros((2, 9), np.int32)
    assert _core.cross(x, 9, [(x, x, True, ranks[:, :0].copy(), 0, 9)], 5)[2].tolist() == [0, 5, 7]
    assert _core.cross(x, 9, [], 5)[0].tolist() == [1, 2, 3]
    for bad in (
        (csr([[1, 2]]), x, False, ranks, 1, 9),
        ((x[0][::-1].copy(), *x[1:]), x, False, ranks, 1, 9),
        ((x[0] + np.int32(1), *x[1:]), x, False, ranks, 1, 9),
        ((x[0], x[1] + np.int32(8), x[2]), x, False, ranks, 1, 9),
        (x, x, False, ranks[:, :5].copy(), 1, 9),
    ):
        with pytest.raises(ValueError, match="row pointers|beyond|ranks"):
            _core.cross(x, 9, [bad], 5)


@given(st.text(st.sampled_from('a1,"\n\r'), max_size=40))
def test_records_are_those_between_line_ends_outside_of_quotes(text):
    data = text.encode()
    found = _core.find_records(data, 44, 1000)
    end = _core.last_record_end(data, 44)
    assert found[:, :2].tolist() == sorted(found[:, :2].tolist()) and 0 <= end <= len(data)
    for begin, stop, line, fields in found.tolist():
        assert data.count(b"\n", 0, begin) == line
        if fields > 0:
            keep = np.ones(fields, bool)
            record = data[begin:stop]
            assert _core.copy_fields(record, 44, keep, 44) in (record + b"\n", None)
            if b'"' not in record:
                assert fields == record.count(b",") + 1
                assert _core.copy_fields(record, 44, keep, 10) == record.replace(b",", b"\n") + b"\n"


def test_reading_needs_neither_scikit_learn_nor_scipy_until_there_are_rows(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:2\n")
    code = """
import sys
from robustfd.streams import open_stream
stream = open_stream(sys.argv[1])
assert not {"sklearn", "scipy", "numba", "pyarrow"} & set(sys.modules)
assert next(iter(stream)).X.nnz == 1
assert "sklearn" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "rows.svm"], check=True)
