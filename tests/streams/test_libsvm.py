"""LIBSVM text is read as scikit-learn reads it, numbers as Python does; what is wrong is said with its line."""

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction import FeatureHasher

from robustfd.streams import StreamError, open_stream
from tests.streams.reading import read, rows_of, same

SUFFIX = ".svm"  # of the files that `put` writes


SPELLINGS = [
    repr, "{:.3e}".format, "{:g}".format, "{:+.17g}".format, "{:.6f}".format, "{:E}".format, "{:.25e}".format,
    lambda x: f"{x:.3f}".replace("0.", ".", 1) if 0 <= x < 1 else repr(x), lambda x: f"{x:.0f}.",
    lambda x: ("-" if x < 0 else "") + "000" + f"{abs(x):.4f}",
]  # fmt: skip
NUMBER = st.builds(
    lambda x, spell: spell(x), st.floats(-1e15, 1e15, allow_nan=False) | st.integers(-999, 999).map(float),
    st.sampled_from(SPELLINGS),
)  # fmt: skip
ENTRIES = st.dictionaries(st.integers(1, 40), NUMBER, max_size=6).map(lambda row: sorted(row.items()))
LINE = st.builds(
    lambda label, qid, entries, blank, end: blank.join([label, *qid, *(f"{k}:{v}" for k, v in entries)]) + end,
    NUMBER, st.sampled_from([(), (), ("qid:3",)]), ENTRIES, st.sampled_from([" ", "\t", "  "]),
    st.sampled_from(["", " ", " # a comment 5:3", "#", " \t"]),
)  # fmt: skip
EXTRA = st.sampled_from(["", "# 1:2", "   "])


@given(
    st.lists(LINE, min_size=1, max_size=15), st.lists(EXTRA, max_size=4), st.randoms(use_true_random=False),
    st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(64, 200),
)  # fmt: skip
def test_the_rows_scikit_learn_reads(tmp_path_factory, lines, extra, random, feed, final, block_bytes):
    everything = lines + extra
    random.shuffle(everything)
    text = (feed.join(everything) + (feed if final else "")).encode()
    path = tmp_path_factory.mktemp("libsvm") / "rows.svm"
    path.write_bytes(text)
    want, labels = load_svmlight_file(io.BytesIO(text), n_features=40, zero_based=False)
    stream = open_stream(path, n_features=40, zero_based=False, block_bytes=block_bytes)
    same(rows_of(stream), (want.toarray(), labels))
    assert stream.position.offset == len(text)
    path.write_bytes(b"\xef\xbb\xbf" + text)
    same(read(path, n_features=40, zero_based=False), (want.toarray(), labels))


def halves():
    """Return decimals exactly between two doubles, and a digit beside."""
    for x in (1.0, 2**53, 1e22, 5e-324, 2.2250738585072014e-308, 1.7976931348623155e308, 0.1, 123456.789):
        middle = (Fraction(x) + Fraction(float(np.nextafter(x, np.inf)))) / 2
        tiny = Fraction(1, 2**1200)
        yield from (exact(middle), exact(middle + tiny), exact(middle - tiny))


def exact(fraction):
    """Return the decimal digits of a fraction whose denominator is a power of two."""
    power = fraction.denominator.bit_length() - 1
    digits = str(fraction.numerator * 5**power)
    return digits + ".0" if power == 0 else f"{digits.zfill(power + 1)[:-power]}.{digits.zfill(power + 1)[-power:]}"


HARD = [
    *halves(), "0", "-0", "0e999", "1e-999", "-1e-400", "4.9e-324", "2.4703282292062327e-324",
    "2.4703282292062328e-324",
    "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "9007199254740993.0", "1" + "0" * 300,
    "0." + "0" * 320 + "1", "1" * 400 + "e-400", "0" * 50 + "1.5", "8.5e22", "9007199254740992.5", "1e23", "6.02e23",
    "7.2057594037927933e16", "9223372036854775807", "18446744073709551615", "18446744073709551616", ".5", "5.",
    "+.5e+1",
]  # fmt: skip


def bits(x):
    return struct.pack("<d", x)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.integers(1, 25), st.data())
def test_numbers_are_those_of_python(tmp_path_factory, values, digits, data):
    texts = [repr(x) for x in values] + [f"{x:.{digits}e}" for x in values]
    texts += data.draw(
        st.lists(st.from_regex(r"[+-]?[0-9]{0,22}(\.[0-9]{1,25})?[0-9](e[+-]?[0-9]{1,2})?", fullmatch=True))
    )
    texts = [text for text in texts if np.isfinite(float(text))]
    check_numbers(tmp_path_factory.mktemp("numbers") / "rows.svm", texts)


def test_hard_numbers_are_those_of_python(tmp_path):
    check_numbers(tmp_path / "rows.svm", [sign + text.lstrip("+-") for text in HARD for sign in ("", "-", "+")])


def check_numbers(path, texts):
    if not texts:
        return
    path.write_text("".join(f"{text} 1:{text}\n" for text in texts))
    (x, y) = read(path, n_features=1)
    for text, label, value in zip(texts, y, x[:, 0]):
        assert bits(label) == bits(float(text)), text
        assert bits(value) == bits(float(text)) or value == 0, text


def test_indices_unsorted_and_twice(put):
    x, _ = read(put("1 3:1 1:2 3:0.5\n1 2:1 2:1\n"))
    np.testing.assert_array_equal(x, [[2, 0, 1.5], [0, 2, 0]])
    assert all(block.has_canonical_format for block, _ in open_stream(put("1 3:1 1:2 3:0.5\n")))


def test_zero_based(put):
    assert read(put("1 0:5 2:1\n"))[0].tolist() == [[5, 0, 1]]
    assert read(put("1 1:5 2:1\n"))[0].tolist() == [[5, 1]]
    assert read(put("1 1:5 2:1\n"), zero_based=True)[0].tolist() == [[0, 5, 1]]
    stream = open_stream(put("1 1:5 2:1\n"))
    assert stream.feature_name(0) == "1"
    assert open_stream(put("1 0:5\n")).feature_name(0) == "0"


PLAIN = st.builds(
    lambda label, entries, blank: blank.join([*label, *(f"{k}:{v}" for k, v in entries)]),
    st.tuples(NUMBER | st.sampled_from(["1", "-1", "+1"])), st.lists(st.tuples(st.integers(0, 10**9), NUMBER)),
    st.sampled_from([" ", "\t"]),
)  # fmt: skip


@given(
    st.lists(PLAIN | LINE | EXTRA, max_size=15), st.sampled_from(["\n", " \n", "\r\n"]), st.integers(64, 200),
    st.sampled_from([{}, {"hash_bits": 10}, {"n_features": 10**9 + 1}, {"zero_based": True}]),
)  # fmt: skip
def test_looking_through_a_file_tells_what_reading_it_would(tmp_path_factory, lines, feed, block_bytes, options):
    path = tmp_path_factory.mktemp("libsvm") / "rows.svm"
    path.write_bytes(("1 1:1" + feed + feed.join(lines)).encode())
    options = {"max_columns": 10**9 + 1, **options}
    if "n_features" in options and any(" 0:" in line or "\t0:" in line for line in lines):
        options = options | {"zero_based": True}
    quick = open_stream(path, block_bytes=block_bytes, **options)
    thorough = open_stream(path, on_error="skip", **options)  # reads every number
    assert quick.layout == thorough.layout
    assert quick.survey() == thorough.survey()


def test_more_labels_than_classes_may_have(put):
    assert open_stream(put("".join(f"{k} 1:1\n" for k in range(1000)))).survey().labels == set(range(1000))
    many = open_stream(put("".join(f"{k} 1:1\n" for k in range(5000))), block_bytes=200).survey()
    assert many.labels is None and many.rows == 5000


@pytest.mark.parametrize("entry, options", [
    ("1:one", {}), ("1:1 x", {}), ("1:", {}), ("1", {}), (":1", {}), ("2147483648:1", {}), (f"{10**20}:1", {}),
    ("4:1", {"n_features": 3}), ("0:1", {"n_features": 3}),
])  # fmt: skip
def test_most_bad_lines_are_found_before_the_first_row_is_used(put, entry, options):
    path = put("1 1:1 2:0.5\n" * 100 + f"1 {entry}\n" + "1 1:1\n" * 100)
    with pytest.raises(StreamError, match="line 101"):
        open_stream(path, block_bytes=200, **options).survey()


def test_a_bad_number_may_be_found_only_when_it_is_read(put):
    stream = open_stream(put("1 1:1\n" * 100 + "1 1:1e\n"), block_bytes=200)
    assert stream.survey().rows == 101
    with pytest.raises(StreamError, match="line 101: the value of a feature should be a number"):
        rows_of(stream)


def test_lines_without_labels(put):
    x, y = read(put("1:5 2:1\n\n2:7\n"))
    assert x.tolist() == [[5, 1], [0, 7]]
    assert y is None


NAMES = st.text(st.characters(exclude_characters=":#", exclude_categories=["C", "Z"]), min_size=1).filter(
    lambda name: not (name.isascii() and name.isdigit()) and name != "qid"
)


@given(st.lists(st.dictionaries(NAMES, st.integers(-5, 5)), min_size=1, max_size=8), st.integers(1, 20))
def test_names_are_hashed_as_by_scikit_learn(tmp_path_factory, rows, bits):
    path = tmp_path_factory.mktemp("libsvm") / "rows.svm"
    path.write_text("".join(f"{k} {' '.join(f'{n}:{v}' for n, v in row.items())}\n" for k, row in enumerate(rows)))
    want = FeatureHasher(2**bits).transform(rows)
    x = sp.vstack([x for x, _ in open_stream(path, hash_bits=bits)])
    assert abs(x - want).nnz == 0


def test_numbers_as_names_have_their_last_bits_as_column(put):
    x, _ = read(put("1 5:2 13:1 word\n"), hash_bits=3)
    want = FeatureHasher(8).transform([{"word": 1}]).toarray()
    want[0, 5] += 3
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("text, line, reason", [
    ("1 1:2\nx 1:2\n", 2, "start with a label"),
    ("1 1:2\n\n# c\n1 a:2\n", 4, "whole number as index; names of features"),
    ("1 1:2\n1 0:2\n", 2, "there is an index 0"), ("1 1:2\n1 9:2\n", 2, r"above the last feature \(8 features\)"),
    ("1 1:x\n", 1, "value of a feature should be a number"), ("1 1:2\n1 1:\n", 2, "should be a number"),
    ("1 1:1e999\n", 1, "not finite"), ("1e999 1:1\n", 1, "not finite"), ("1 1:nan\n", 1, "should be a number"),
    ("1 5000000000:1\n", 1, r"above 2\^31"), ("1 1:2:3\n", 1, "should be a number"),
    ("1 1\n", 1, "whole number as index"),
])  # fmt: skip
def test_bad_lines(put, text, line, reason):
    path = put("1 8:1\n" + text)
    with pytest.raises(StreamError, match=rf"rows.svm, line {line + 1}: .*{reason}"):
        read(path, n_features=8, zero_based=False)
    stream = open_stream(path, n_features=8, zero_based=False, on_error="skip")
    rows_of(stream)
    assert stream.position.skipped == 1
    assert stream.skipped[0].count("line") >= 1


def test_numbers_of_many_digits_may_be_infinite_too(put):
    long = "1" * 400
    path = put(f"1 1:2\n1 1:1 2:{long}\n# {long}\n{long} 1:1\n1 1:3 2:{'0' * 400}1\n")
    with pytest.raises(StreamError, match="line 2: a number is not finite"):
        read(path, n_features=2)
    stream = open_stream(path, n_features=2, on_error="skip")
    assert rows_of(stream)[0].tolist() == [[2, 0], [3, 1]]
    assert stream.position.skipped == 2
    assert "line 4: a number is not finite" in stream.skipped[1]


def test_entries_beyond_the_last_may_be_dropped(put):
    stream = open_stream(put("1 1:1 9:2 10:3\n0 9:1\n"), n_features=2, unseen="drop")
    assert rows_of(stream)[0].tolist() == [[1, 0], [0, 0]]
    assert stream.position.dropped == 3


def test_layouts(put):
    path = put("1 1:1 3:2\n")
    stream = open_stream(path)
    layout = json.loads(json.dumps(stream.layout))
    assert read(put("1 2:1\n", "other.svm"), layout=layout)[0].tolist() == [[0, 1, 0]]
    for wrong in ({}, {"kind": "table"}, {"kind": "libsvm"}, {"kind": "libsvm", "n_features": 0, "zero_based": True},
                  {"kind": "libsvm", "hash_bits": 31}, {"kind": "libsvm", "n_features": 3}, "libsvm"):  # fmt: skip
        with pytest.raises(StreamError, match="layout"):
            open_stream(path, layout=wrong)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_cut_short(put, compress):
    rng = np.random.default_rng(0)
    text = "".join(f"1 1:{x}\n" for x in rng.standard_normal(5000))
    for name in ("rows.svm", "rows.gz"):
        path = put(compress(text.encode())[:-50], name)
        with pytest.raises(StreamError, match=f"{name} is damaged or truncated"):
            read(path, n_features=1)


TEXT = "".join(f"{k % 2} {k % 7 + 1}:{k}.5 9:1\n" for k in range(3000))
COUNT = (
    "import sys\nfrom robustfd.streams import open_stream\n"
    "s = open_stream(sys.argv[1], n_features=9, block_bytes=1000)\n"
    "print(sum(X.shape[0] for X, y in s), sum(float(X.sum()) for X, y in ()), s.position.offset)"
)


def test_standard_input_piece_by_piece(put):
    """What comes in small pieces through a pipe is read as a file is."""
    receiving, sending = os.pipe()
    command = [sys.executable, "-c", COUNT, "-"]
    with subprocess.Popen(command, stdin=receiving, stdout=subprocess.PIPE) as process:
        os.close(receiving)
        with os.fdopen(sending, "wb", buffering=0) as pipe:
            for k in range(0, len(TEXT), 777):
                pipe.write(TEXT[k : k + 777].encode())
        assert process.stdout.read().split() == [b"3000", b"0", str(len(TEXT)).encode()]


def test_named_pipe(tmp_path):
    path = tmp_path / "pipe.svm"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(TEXT))
    writer.start()
    stream = open_stream(path, n_features=9, format="libsvm")
    got = rows_of(stream)
    writer.join()
    assert got[0].shape == (3000, 9)
    assert stream.bytes_total is None


def test_open_files_stay_open(put):
    with open(put(TEXT), "rb") as file:
        stream = open_stream(file, n_features=9)
        assert rows_of(stream)[0].shape == (3000, 9)
        del stream
        assert not file.closed
    with open(put(TEXT)) as file, pytest.raises(TypeError, match="Open it in binary"):
        open_stream(file)


def test_a_pipe_without_width_is_hashed():
    stream = open_stream(io.BytesIO(TEXT.encode()))
    assert stream.n_features == 2**18
    with pytest.raises(ValueError, match="can be read only once"):
        stream.survey()
