"""What every stream promises, whatever it reads: a table of formats, and one test for each promise."""

import gc
import gzip
import io
import json
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from robustfd.streams import FORMATS, Position, Stream, StreamError, open_stream
from robustfd.streams.base import Block, Checksum
from tests.streams.reading import rows_of, same


class Format(NamedTuple):
    """How rows are written, and read."""

    write: Any  # rows, labels and a path without suffix to a source
    options: dict
    labels: bool = True
    pipe: bool = True  # whether it may come from a pipe
    names: Any = str  # the name of a column


def table(x, y):
    return pa.table({f"x{k}": x[:, k] for k in range(x.shape[1])} | {"y": y})


def several(x):
    """Return how many rows go into a batch, so that there are several and not too many."""
    return 13 if len(x) < 1000 else 1000


def written(write, suffix):
    def to_file(x, y, path):
        path = Path(f"{path}{suffix}")
        write(x, y, path)
        return path

    return to_file


def blocks(x, y, _):
    return [(x[k : k + 10], y[k : k + 10]) for k in range(0, len(x), 10)]


def arrow_stream(x, y, path):
    rows = table(x, y)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=several(x))


def text(suffix, first, *bar):
    """Return the writer of LIBSVM text, or with a bar of Vowpal Wabbit's, with indices from `first` on."""

    def write(x, y, path):
        entries = ([f"{k + first}:{value!r}" for k, value in enumerate(row)] for row in x.tolist())
        lines = [" ".join([str(label), *bar, *row]) for label, row in zip(y.tolist(), entries)]
        path.write_text("".join(f"{line}\n" for line in lines).replace("inf", "1e999"))

    return written(write, suffix)


def jsonl(x, y, path):
    rows = ({str(k): value for k, value in enumerate(row)} | {"y": label} for row, label in zip(x.tolist(), y.tolist()))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def csv(x, y, path):
    pyarrow.csv.write_csv(table(x, y), str(path))


def parquet(x, y, path):
    pq.write_table(table(x, y), str(path), row_group_size=several(x))


def feather(x, y, path):
    pyarrow.feather.write_feather(table(x, y), str(path), chunksize=several(x))


def dicts(x, y, _):
    return [({str(k): value for k, value in enumerate(row)}, label) for row, label in zip(x.tolist(), y.tolist())]


TARGET, NAMES = {"target": "y"}, "x{}".format
CASES = {
    "libsvm": Format(text(".svm", 1), {"n_features": 3}, names=lambda k: str(k + 1)),
    "libsvm hashed": Format(text(".svm", 0), {"hash_bits": 2}),
    "vw": Format(text(".vw", 1, "|"), {"n_features": 3}, names=lambda k: str(k + 1)),
    "vw hashed": Format(text(".vw", 0, "|"), {"hash_bits": 2}),
    "vw namespace": Format(text(".vw", 0, "|a"), {"hash_bits": 5}, names="hash {}".format),
    "jsonl": Format(written(jsonl, ".jsonl"), {"target": "y", "hash_bits": 5}, names="hash {}".format),
    "vw interactions": Format(text(".vw", 0, "|a"), {"hash_bits": 5, "interactions": ["aa"]}, names="hash {}".format),
    "csv interactions": Format(written(csv, ".csv"), {**TARGET, "interactions": ["x0:x2"]}, names=NAMES),
    "csv": Format(written(csv, ".csv"), TARGET, names=NAMES),
    "parquet": Format(written(parquet, ".parquet"), TARGET, pipe=False, names=NAMES),
    "arrow": Format(written(feather, ".arrow"), TARGET, pipe=False, names=NAMES),
    "arrow stream": Format(written(arrow_stream, ".arrow"), TARGET, names=NAMES),
    "npy": Format(written(lambda x, y, path: np.save(path, np.column_stack((x, y))), ".npy"), {"target": -1}),
    "npz": Format(
        written(lambda x, _, path: sp.save_npz(path, sp.csr_matrix(x)), ".npz"), {}, labels=False, pipe=False
    ),
    "python": Format(blocks, {}, pipe=False),
    "dicts": Format(dicts, {"hash_bits": 5}, pipe=False, names="hash {}".format),
}
FILES = [name for name in CASES if name not in ("python", "dicts")]
HASHED = ("libsvm hashed", "vw hashed", "vw namespace", "vw interactions", "jsonl", "dicts")
N = 47
RNG = np.random.default_rng(0)
X, Y = np.round(RNG.standard_normal((N, 3)), 3), RNG.integers(0, 3, N)


class Case(NamedTuple):
    """A source of rows of one format."""

    name: str
    format: Format
    source: Any
    folder: Path

    def open(self, source=None, **options) -> Stream:
        return open_stream(self.source if source is None else source, **{**self.format.options, **options})

    def rewritten(self, x, y, name):
        return self.format.write(x, y, self.folder / name)


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    format_ = CASES[request.param]
    return Case(request.param, format_, format_.write(X, Y, tmp_path / "rows"), tmp_path)


def test_all_formats_are_here():
    of_bandits = {"cb", "adf"}  # tests/streams/test_logs.py
    assert {name.split()[0] for name in CASES} | of_bandits == {*FORMATS, "python", "dicts"}


def test_the_rows_and_labels_that_were_written(case):
    x, y = rows_of(case.open())
    if case.name not in HASHED:
        np.testing.assert_array_equal(x[:, :3], X)
    assert x.shape[0] == N
    if case.format.labels:
        np.testing.assert_array_equal(y, Y)
    else:
        assert y is None


def test_blocks_are_rows_and_labels_of_the_same_length(case):
    stream = case.open(block_bytes=300)
    for x, y in stream:
        assert x.shape[1] == stream.n_features
        assert x.shape[0] > 0
        assert x.dtype == np.float64
        assert y is None or y.shape == (x.shape[0],)
        assert not sp.issparse(x) or (x.format == "csr" and x.has_canonical_format)


def test_names_of_columns(case):
    stream = case.open()
    if case.name not in HASHED:
        assert [stream.feature_name(k) for k in range(3)] == [case.format.names(k) for k in range(3)]
    assert isinstance(stream.feature_name(stream.n_features - 1), str)


@pytest.mark.parametrize("block_bytes", [64, 65, 200, 1000])
def test_the_same_rows_from_every_size_of_blocks(case, block_bytes):
    small, large = case.open(block_bytes=block_bytes), case.open()
    same(rows_of(small), rows_of(large))
    assert replace(small.position, stored=0) == replace(large.position, stored=0)


@pytest.mark.parametrize("block_bytes", [64, 300])
def test_every_position_is_one_to_go_on_from(case, block_bytes):
    x, y = rows_of(case.open())
    stream, n = case.open(block_bytes=block_bytes), 0
    for block, _ in stream:
        n += block.shape[0]
        assert stream.rows_read == stream.position.rows == n
        position = Position.from_json(json.loads(json.dumps(stream.position.to_json())))
        rest = case.open(start=position, block_bytes=1000)
        same(rows_of(rest), (x[n:], None if y is None or n == N else y[n:]))
        assert rest.position.rows == N


def test_a_stream_can_be_iterated_again(case):
    stream = case.open(block_bytes=100)
    next(iter(stream))
    same(rows_of(stream), rows_of(stream))
    assert stream.rows_read == N


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_several_sources_one_after_the_other(case):
    other = case.rewritten(2 * X[:20], Y[:20], "second")
    stream = case.open([case.source, other], block_bytes=200)
    x, y = rows_of(stream)
    one, two = rows_of(case.open()), rows_of(case.open(other))
    same((x, y), (np.concatenate((one[0], two[0])), None if y is None else np.concatenate((one[1], two[1]))))
    assert stream.position.file == 1
    assert stream.bytes_total == case.source.stat().st_size + other.stat().st_size
    for _ in stream:
        n = stream.rows_read
        if n < len(x):
            rest = rows_of(case.open([case.source, other], start=stream.position))
            same(rest, (x[n:], None if y is None else y[n:]))
    same(rows_of(case.open(case.folder)), (x, y))  # the names are in this order


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_progress_in_bytes(case):
    stream, before = case.open(block_bytes=100), 0
    for _ in stream:
        assert before <= stream.bytes_read <= stream.bytes_total
        before = stream.bytes_read
    assert before > 0 or case.name == "arrow stream"


def test_rows_that_are_not_finite_are_bad_rows(case):
    x = X.copy()
    x[[5, 30], 1] = np.inf
    source = case.rewritten(x, Y, "bad")
    with pytest.raises(StreamError, match=r"(line|row) \d+"):
        rows_of(case.open(source))
    want = rows_of(case.open())
    for block_bytes in (64, 1 << 20):
        stream = case.open(source, on_error="skip", block_bytes=block_bytes)
        keep = np.delete(np.arange(N), [5, 30])
        same(rows_of(stream), (want[0][keep], None if want[1] is None else want[1][keep]))
        assert (stream.position.skipped, len(stream.skipped), stream.position.rows) == (2, 2, N - 2)
        rows_of(stream)
        assert (stream.position.skipped, len(stream.skipped)) == (2, 2)


def test_skipped_rows_are_counted_on_from_a_position(case):
    x = X.copy()
    x[[5, 30], 1] = np.inf
    source = case.rewritten(x, Y, "bad")
    stream = case.open(source, on_error="skip", block_bytes=64)
    for _ in stream:
        if stream.rows_read > 20:
            break
    rest = case.open(source, on_error="skip", start=stream.position)
    rows_of(rest)
    assert (rest.position.skipped, rest.position.rows) == (2, N - 2)


def test_only_bad_rows(case):
    source = case.rewritten(np.full((3, 3), np.inf), Y[:3], "bad")
    with pytest.raises(StreamError, match="no rows that can be read; 3 were skipped: .*(line|row) "):
        rows_of(case.open(source, on_error="skip"))


def test_survey(case):
    stream = case.open(block_bytes=100)
    survey = stream.survey()
    assert survey.rows == N
    assert survey.labels == ({0, 1, 2} if case.format.labels else set())
    same(rows_of(stream), rows_of(case.open()))  # and then it begins at the beginning


def test_layouts_come_back(case):
    stream = case.open()
    layout = json.loads(json.dumps(stream.layout))
    again = open_stream(case.source, layout=layout)
    assert again.n_features == stream.n_features
    assert again.layout == layout
    same(rows_of(again), rows_of(stream))


def test_layouts_of_others_are_refused(case):
    for layout in ({"kind": "nothing"}, {}, [], "table"):
        with pytest.raises(StreamError, match="layout"):
            open_stream(case.source, layout=layout)


def test_no_rows(case):
    source = case.rewritten(X[:0], Y[:0], "empty")
    with pytest.raises(StreamError, match="has no rows"):
        rows_of(case.open(source))


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_nothing_at_all(case):
    case.source.write_bytes(b"")
    with pytest.raises(StreamError, match=case.source.name):
        rows_of(case.open())


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_a_pipe(case):
    content = case.source.read_bytes()
    if not case.format.pipe:
        with pytest.raises(StreamError, match="cannot be read from a pipe"):
            case.open(io.BytesIO(content))
        return
    stream = case.open(io.BytesIO(content), block_bytes=100)
    same(rows_of(stream), rows_of(case.open()))
    assert stream.bytes_total is None
    with pytest.raises(ValueError, match="can be read only once"):
        case.open(io.BytesIO(content)).survey()
    with pytest.raises(StreamError, match="no rows, or they have already been read"):
        rows_of(stream)
    half = case.open(block_bytes=100)
    next(iter(half))
    x, y = rows_of(case.open())
    n = half.rows_read
    same(rows_of(case.open(io.BytesIO(content), start=half.position)), (x[n:], y[n:]))


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_the_first_bytes_tell_the_format(case):
    bare = case.source.with_suffix("")
    case.source.rename(bare)
    assert rows_of(case.open(bare))[0].shape[0] == N


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_compressed(case):
    packed = Path(f"{case.source}.gz")
    packed.write_bytes(gzip.compress(case.source.read_bytes()))
    if case.name == "npz":
        with pytest.raises(StreamError, match="damaged"):
            case.open(packed)
    else:
        same(rows_of(case.open(packed)), rows_of(case.open()))


@pytest.mark.parametrize("case", FILES, indirect=True)
def test_a_file_that_is_not_there(case, tmp_path):
    with pytest.raises(FileNotFoundError):
        case.open(tmp_path / "nowhere")


def test_a_file_that_became_shorter(case):
    stream = case.open()
    rows_of(stream)
    shorter = case.rewritten(X[:3], Y[:3], "shorter")
    if isinstance(shorter, Path):
        with pytest.raises(StreamError, match="ends before"):
            rows_of(case.open(shorter, start=stream.position))


def middle(case, source=None, **options):
    """The position after some of the blocks."""
    stream = case.open(source, block_bytes=200, **options)
    for _ in stream:
        if stream.rows_read >= 20:
            break
    return Position.from_json(json.loads(json.dumps(stream.position.to_json())))


def changes():
    """Changes of one of the first rows: a number, a label, two rows swapped, a row less."""
    x, swapped = X.copy(), np.arange(N)
    x[3, 1] += 0.001
    swapped[[3, 4]] = [4, 3]
    yield "a number", x, Y
    yield "a label", X, np.where(np.arange(N) == 3, (Y + 1) % 3, Y)
    yield "swapped", X[swapped], Y[swapped]
    yield "one less", np.delete(X, 3, axis=0), np.delete(Y, 3)


CHANGES = list(changes())


@pytest.mark.parametrize("how", ["plain", "compressed", "pipe"])
@pytest.mark.parametrize("what, x, y", CHANGES, ids=[what for what, *_ in CHANGES])
def test_a_position_is_no_good_for_other_rows(case, what, x, y, how):
    if what == "a label" and not case.format.labels:
        pytest.skip("there are no labels")
    changed = case.rewritten(x, y, "changed")
    if how != "plain" and (not isinstance(changed, Path) or case.name == "npz"):
        pytest.skip("there is no such thing")
    if how == "compressed":
        packed = Path(f"{changed}.gz")
        packed.write_bytes(gzip.compress(changed.read_bytes()))
        changed = packed
    elif how == "pipe":
        if not case.format.pipe:
            pytest.skip("it is read from files only")
        changed = io.BytesIO(changed.read_bytes())
    stream = case.open(changed, start=middle(case), block_bytes=200)
    with pytest.raises(StreamError, match="was changed: the first [0-9]+ rows are not those"):
        rows_of(stream)
    assert stream.position.rows == middle(case).rows  # no row was handed out


@pytest.mark.parametrize("case", FILES, indirect=True)
@pytest.mark.parametrize("place", [0, 1])
def test_a_change_in_one_of_several_files(case, place):
    sources = [case.rewritten(factor * X, Y, f"part{factor}") for factor in (1, 2, 3)]
    stream = case.open(sources, block_bytes=200)
    for _ in stream:
        if stream.rows_read >= N + 20:
            break
    rest = rows_of(case.open(sources, start=stream.position))
    assert len(rest[0]) == 3 * N - stream.rows_read
    case.rewritten(5 * X, Y, f"part{place + 1}")
    with pytest.raises(StreamError, match="not those that were read"):
        rows_of(case.open(sources, start=stream.position))


def test_rows_may_be_added_behind_a_position(case):
    position = middle(case)
    longer = case.rewritten(np.concatenate((X, 2 * X)), np.concatenate((Y, Y)), "longer")
    x, y = rows_of(case.open(longer))
    n = position.rows
    same(rows_of(case.open(longer, start=position)), (x[n:], None if y is None else y[n:]))


def test_rows_without_checksums_are_the_same(case):
    stream = case.open(block_bytes=200)
    rows, position, stream._resumable = rows_of(stream), stream.position, False
    same(rows_of(stream), rows)
    assert stream.position == replace(position, checksum="") != position


def test_the_checksum_knows_text_of_any_kind_for_labels():
    """Labels are told apart by where they end too."""
    sums = set()
    for labels in (["a", "bc"], ["ab", "c"], ["abc", ""], ["1:a", "b"], ["1", "a"], [1, 2], [2, 1]):
        checksum = Checksum()
        y = np.array(labels, dtype=object) if isinstance(labels[0], str) else np.array(labels)
        checksum.add(Block(np.ones((2, 1)), y))
        sums.add(str(checksum))
    assert len(sums) == 7


@pytest.mark.slow
@pytest.mark.parametrize("case", FILES, indirect=True)
def test_memory_does_not_grow_with_the_source(case):
    """More than twice the rows take no more memory, but for sources that are in memory anyway."""
    peaks = []
    for count in (15_000, 40_000) if case.name == "jsonl" else (40_000, 100_000):  # more than is read ahead of a block
        rng = np.random.default_rng(count)
        source = case.rewritten(rng.standard_normal((count, 3)), rng.integers(0, 3, count), f"rows{count}")
        for _ in case.open(source, block_bytes=1 << 14):  # what is made once is made
            break
        gc.collect()
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        held = max(pa.total_allocated_bytes() - before for _ in case.open(source, block_bytes=1 << 14))
        peaks.append(held + tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 100_000


def test_positions_are_checked():
    for wrong in (None, [], {"row": 1}, {"rows": -1}, {"rows": 1.0}, {"rows": True}, {"checksum": 1}):
        with pytest.raises(StreamError, match="not a position"):
            Position.from_json(wrong)
    assert pickle.loads(pickle.dumps(Position(rows=3))) == Position(rows=3)


def test_a_directory_without_files(tmp_path):
    (tmp_path / ".hidden").write_text("1 1:1\n")
    with pytest.raises(FileNotFoundError, match="no file in the directory"):
        open_stream(tmp_path)


@pytest.mark.parametrize("options, error", [
    ({"format": "xml"}, ValueError), ({"on_error": "ignore"}, ValueError), ({"missing": "no"}, ValueError),
    ({"unseen": "no"}, ValueError), ({"categories": "no"}, ValueError), ({"block_bytes": 10}, ValueError),
    ({"block_bytes": "1"}, TypeError), ({"hash_bits": 31}, ValueError), ({"hash_bits": 0}, ValueError),
    ({"n_features": 0}, ValueError), ({"target": "y"}, ValueError),
])  # fmt: skip
def test_arguments_are_checked(tmp_path, options, error):
    (tmp_path / "rows.svm").write_text("1 1:1\n")
    with pytest.raises(error, match=next(iter(options))):
        open_stream(tmp_path / "rows.svm", **options)


BAD_ROW = {
    "rows.svm": ("", "1 1:2\n", "1 1:one\n", {"n_features": 3}),
    "rows.vw": ("", "1 | a:2\n", "1 | a:one:two\n", {}),
    "rows.csv": ("y,a\n", "1,2\n", "1,2,3\n", {"target": "y"}),
    "rows.jsonl": ("", '{"y": 1, "a": 2}\n', "{\n", {"target": "y"}),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", BAD_ROW)
def test_a_file_with_a_bad_row_is_closed_while_its_error_lives(tmp_path, name, threads):
    head, good, bad, options = BAD_ROW[name]
    (tmp_path / name).write_text(head + 200 * good + bad + 200 * good)
    stream = open_stream(tmp_path / name, block_bytes=200, **options)
    stream.parse_threads = threads
    with pytest.raises(StreamError, match="20[12]") as kept:
        list(stream)
    files = [each for each in gc.get_objects() if isinstance(each, io.BufferedReader) and not each.closed]
    assert kept.value and str(tmp_path / name) not in [each.name for each in files if hasattr(each, "name")]
