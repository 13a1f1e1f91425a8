"""Logs of bandits: lines of actions, blocks of lines, and columns of tables."""

import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustfd.streams import StreamError, open_stream
from robustfd.streams.logs import BlockStream
from tests import reference_vw

NAN = float("nan")


def read(text, format, **options):
    """The rows of a text: contexts, rewards and decisions of all blocks."""
    options.setdefault("hash_bits", 4)
    stream = open_stream(io.BytesIO(text), format=format, **options)
    stream.wants_ids = True
    return stream, list(stream)


def one(text, format, **options):
    """The only block."""
    (block,) = read(text, format, **options)[1]
    return block


def test_a_line_has_a_chosen_action_and_others():
    block = one(b"1:2:.5 | 3:1\n2 7:-1.5:.25 3 'who| 1\n4:0 |\n 1 2 | 2:2\n\n| 1\n", "cb")
    found = block.decisions
    assert found.arm.tolist() == [1, 7, 4, -1, -1]
    np.testing.assert_array_equal(block.y, [-2, 1.5, 0, NAN, NAN])
    assert not np.signbit(block.y[2]), "the reward of the cost 0 is 0, not -0"
    np.testing.assert_array_equal(found.probability, [0.5, 0.25, NAN, NAN, NAN])
    assert [found.of_row(i).tolist() for i in range(5)] == [[], [2, 7, 3], [], [1, 2], []]
    assert block.id.tolist() == ["", "who", "", "", ""]
    assert block.X.toarray()[[0, 1, 3]].nonzero()[1].tolist() == [3, 1, 2]
    assert one(b"1:2:.5 | 3\n2:1:.5 | 3\n", "cb").decisions.arms is None


BLOCKS = b"""shared 'first|u a:2
|x b c
0:1.5:0.25 |x b:3

shared | a
0:-1:1 | b |y c

| b:2
| c

"""


def test_a_block_has_a_context_and_a_line_for_each_arm():
    block = one(BLOCKS, "adf")
    found = block.decisions
    assert found.arm.tolist() == [1, 0, -1] and found.starts.tolist() == [0, 2, 3, 5]
    np.testing.assert_array_equal(block.y, [-1.5, 1, NAN])
    assert block.X.shape == (3, 16) and np.diff(block.X.indptr).tolist() == [1, 1, 0]
    assert [row.nnz for row in (found.of_row(0), found.of_row(1), found.of_row(2))] == [3, 2, 2]
    assert block.id.tolist() == ["first", "", ""]
    first, again = found.arms[:1], found.arms[1:2]
    assert set(again.indices) <= set(first.indices), "the same name in the same namespace has the same column"
    some = found.take(np.array([True, False, True]))
    assert some.starts.tolist() == [0, 2, 4] and some.of_row(1).nnz == 2


@pytest.mark.parametrize("ending", ["\n", "\r\n", " \n"])
def test_arms_with_a_single_feature_have_names(tmp_path, ending):
    lines = "shared | 1:2", "0:1:.5 | 7", "| sport", "|topic news", "", "shared | 1", "|topic news", "0:2:.5 | 7", "\n"
    (path := tmp_path / "log.vw").write_bytes(ending.join(lines).encode())
    stream = open_stream(path)
    (block,) = stream
    assert stream.layout["kind"] == "adf" and stream.layout["named"]
    assert block.decisions.arms.tolist() == [7, "sport", "topic^news", "topic^news", 7]
    assert block.decisions.arm.tolist() == [7, 7] and block.X.toarray().tolist() == [[2], [1]]
    path.write_text("shared | 1\n| a b\n0:1:1 | c\n")
    with pytest.raises(StreamError, match=r"lines 1 to 3: an arm has no feature, several, or one with a value"):
        list(open_stream(path, layout=stream.layout))
    assert not open_stream(path).layout["named"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1:2:1.5 | a", r"line 2: the probability of an action must be in \(0, 1\], got 1\.5: '1:2:1\.5 \| a'"),
        (b"1:2:0 | a", r"line 2: .*must be in \(0, 1\], got 0:"),
        (b"1:2:-.1 | a", r"got -\.1:"),
        (b"1:1e999:.5 | a", "line 2: a number is not finite"),
        (b"1:inf:.5 | a", r"line 2: there should be an action.*got 1:inf:\.5:"),
        (b"1:2:nan | a", "got 1:2:nan:"),
        (b"x | a", "got x:"),
        (b"1:1:.5 2:3:.5 | a", r"only one action can have a cost.*a second one in 2:3:\.5:"),
        (b"1:1:.5 a", "there is no |"),
    ],
)
def test_a_bad_line_is_named_with_its_value(line, message):
    text = b"1:2:.5 | a\n" + line + b"\n2:1:.5 | b\n"
    with pytest.raises(StreamError, match=message):
        read(text, "cb")
    stream, (block,) = read(text, "cb", on_error="skip")
    assert stream.position.skipped == 1 and block.decisions.arm.tolist() == [1, 2]
    if b"|" in line and b" 2:" not in line and b"x" not in line:
        again = BLOCKS.replace(b"0:1.5:0.25 ", line.split(b"|")[0])
        with pytest.raises(StreamError, match=message.replace("line 2", "line 3").split(": '")[0]):
            read(again, "adf")
        stream, (block,) = read(again, "adf", on_error="skip")
        assert stream.position.skipped == 1 and block.decisions.starts.tolist() == [0, 1, 3]
        assert block.decisions.arms.shape[0] == 3 and block.y[0] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"| a\nshared | b\n", "line 2: the shared features must be in the first line"),
        (b"shared | b\n\n| a\n", "line 1: after the shared features there should be a line for each action"),
        (b"shared x 'tag| b\n| a\n", "line 1: there should be nothing between shared and the bar but a tag, got x"),
        (b"0:1:.5 | a\n0:1:.5 | b\n", "line 2: only one action can have a cost"),
        (b"| a\n| b:x\n", "line 2: the value of a feature"),
    ],
)
def test_a_bad_block_is_named(text, message):
    with pytest.raises(StreamError, match=message):
        read(text, "adf")
    stream, blocks = read(b"shared | c\n0:3:.5 | b\n\n" + text, "adf", on_error="skip")
    assert stream.position.skipped == 1 and blocks[0].y[0] == -3


def test_rows_without_a_decision_are_skipped_if_they_are_not_wanted():
    stream, (block,) = read(BLOCKS, "adf", unlabelled="skip")
    assert (
        len(block.y) == 2
        and block.decisions.starts.tolist() == [0, 2, 3]
        and "no action has a cost" in stream.skipped[0]
    )
    stream, (block,) = read(b"1 2 | a\n1:1:1 | b\n", "cb", unlabelled="skip")
    assert block.decisions.arm.tolist() == [1] and block.decisions.arms is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"shared | a\n0:1:1 | b\n", "adf"),
        (b"| a\n0:1:1 | b\n", "adf"),
        (b"| a\n1:1:.5 | b\n\n| a\n1:1:.5 | b\n", "adf"),
        (b"1:1:.5 | a\n2:1:.5 | b\n", "cb"),
        (b"3 1:1:.5 2 | a\n", "cb"),
        (b"1:1:.5 | a\n\n2:1:.5 | b\n", "cb"),
        (b"| a\n2:1:.5 | b\n", "cb"),
        (b"1 | a:1:1 b\n", "vw"),
        (b"1 1 'x| a\n", "vw"),
    ],
)
def test_the_first_lines_decide_what_a_file_is(tmp_path, text, kind):
    for name, content in (("log.vw", text), ("log.vw.gz", gzip.compress(text))):
        (path := tmp_path / name).write_bytes(content)
        assert open_stream(path, hash_bits=8).layout["kind"] == kind


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.integers(64, 200), st.integers(1, 3), st.booleans())
def test_blocks_and_threads_do_not_matter(sizes, block_bytes, threads, named):
    """No block of lines is torn apart, whatever is read at a time."""
    rows = [
        f"shared | {i}:2\n"
        + "".join(f"{'0:1:.5 ' if k == i % size else ''}| {k}{'' if named else ':2'}\n" for k in range(size))
        for i, size in enumerate(sizes)
    ]
    text = "\n".join([*rows, ""]).encode()
    whole = one(text, "adf", hash_bits=8)
    stream = open_stream(io.BytesIO(text), format="adf", hash_bits=8, block_bytes=block_bytes)
    stream.parse_threads = threads
    parts = list(stream)
    assert [i % size for i, size in enumerate(sizes)] == [arm for part in parts for arm in part.decisions.arm.tolist()]
    assert np.vstack([part.X.toarray() for part in parts]).tolist() == whole.X.toarray().tolist()
    assert [n for part in parts for n in np.diff(part.decisions.starts)] == sizes
    assert (
        np.concatenate([part.decisions.arms.indices for part in parts]).tolist()
        == whole.decisions.arms.indices.tolist()
    )


def test_the_end_of_the_last_block():
    for text, end in ((b"", 0), (b"a\n", 0), (b"a\n\n", 3), (b"a\n\nb\n", 3), (b"a\r\n\r\nb", 5), (b"\n\na", 2)):
        assert BlockStream._cut(bytearray(text), len(text)) == end


def test_a_table_has_columns_of_decisions(tmp_path):
    (path := tmp_path / "log.csv").write_text("x,arm,cost,p\n1,news,2,.5\n2,sport,0,\n3,news,-1,1\n")
    options = {"arm": ("action", "arm"), "cost": "cost", "probability": "p"}
    stream = open_stream(path, **options)
    (block,) = stream
    assert block.decisions.arm.tolist() == ["news", "sport", "news"] and block.y.tolist() == [-2, 0, 1]
    np.testing.assert_array_equal(block.decisions.probability, [0.5, NAN, 1])
    assert block.X.tolist() == [[1], [2], [3]]
    (again,) = open_stream(path, layout=stream.layout)
    assert again.decisions.arm.tolist() == block.decisions.arm.tolist() and again.y.tolist() == block.y.tolist()
    for bad, message in (
        ("4,news,inf,.5", r"the cost, column 'cost', should be a finite number, got inf"),
        ("4,news,,.5", r"the cost, column 'cost', should be a finite number"),
        ("4,news,1,1.5", r"the probability, column 'p', should be in \(0, 1\], got 1.5"),
        ("4,news,1,0", r"should be in \(0, 1\], got 0"),
    ):
        path.write_text(f"x,arm,cost,p\n1,news,2,.5\n{bad}\n")
        with pytest.raises(StreamError, match=message):
            list(open_stream(path, **options))
    with pytest.raises(ValueError, match="a column of rewards, 'x', and one of costs, 'cost'"):
        open_stream(path, **options, target="x")


def test_a_changed_decision_is_noticed_when_reading_continues(tmp_path):
    (path := tmp_path / "log.vw").write_bytes(BLOCKS + b"\n" + BLOCKS)
    stream = open_stream(path, hash_bits=4, block_bytes=64)
    next(iter(stream))
    for old, new in ((b"0:1.5", b"0:2.5"), (b"0.25", b"0.20"), (b"b:3", b"b:4")):
        path.write_bytes((BLOCKS + b"\n" + BLOCKS).replace(old, new))
        with pytest.raises(StreamError, match="was changed"):
            list(open_stream(path, hash_bits=4, block_bytes=64, start=stream.position))


def test_json_lines_have_decisions():
    text = b'{"arm": "a", "reward": 1, "p": 0.5, "x": 2}\n{"arm": 7, "reward": 0.25, "x": 1}\n'
    options = {"arm": ("arm",), "target": ("reward",), "cost": ("cost",), "probability": "p"}
    stream, (block,) = read(text, "jsonl", **options)
    assert block.decisions.arm.tolist() == ["a", 7] and block.y.tolist() == [1, 0.25]
    np.testing.assert_array_equal(block.decisions.probability, [0.5, NAN])
    assert np.diff(block.X.indptr).tolist() == [1, 1], "only x is a feature"
    (again,) = open_stream(io.BytesIO(text), format="jsonl", layout=stream.layout)
    assert again.decisions.arm.tolist() == ["a", 7] and again.y.tolist() == [1, 0.25]
    assert one(text.replace(b"reward", b"cost"), "jsonl", **options).y.tolist() == [-1, -0.25]
    for old, new, message in (
        (b"0.5", b"1.5", r"line 1: its probability 'p' is 1.5, which should be in \(0, 1\]"),
        (b"0.25", b"Infinity", "line 2: .*"),
        (b"7", b"null", "line 2: its arm 'arm' is None"),
    ):
        with pytest.raises(StreamError, match=message):
            read(text.replace(old, new), "jsonl", **options)
    with pytest.raises(StreamError, match="its cost 'reward' is 'x', which should be a number"):
        read(text.replace(b"1,", b'"x",'), "jsonl", arm="arm", cost="reward")


HEADS = [
    *(b"", b"1 ", b"2:1:.5 ", b"0:-1:1 ", b"3:2 ", b"1:1:2 ", b"2:x:1 ", b"'t", b"1:1:.5 't ", b"tag", b"1 2:0:.25 3 "),
    *(b"1:1:.1 2:1:.1 ", b"9999999999 ", b"1:1:0 ", b"1:1e999:.5 "),
    *(b"shared ", b"shared", b"shared 't", b" shared ", b"shared 1 "),
]
BODIES = [
    *(b"|", b"| a", b"| 1:2 1:3", b"|n a:2 b |m c", b"|n:2 a:.5", b"| a:x", b"", b"| :1 :2", b"| a:1e308 a:1e308"),
    b"|  \t7 ",
]
SOME_LINES = st.lists(
    st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES)).map(b"".join) | st.just(b""), max_size=12
)


@given(SOME_LINES, st.sampled_from([b"\n", b"\r\n"]), st.sampled_from(["cb", "adf"]))
def test_logs_are_read_as_the_reference_reads_them(some, ending, format):
    text = ending.join(
        [*some, b"1:1:1 | last" if format == "cb" else b"", b"" if format == "cb" else b"0:1:1 | last", b""]
    )
    reader = reference_vw.read_actions if format == "cb" else reference_vw.read_blocks
    want, bad = reader(text, bits=6)
    stream, blocks = read(text, format, hash_bits=6, on_error="skip")
    assert stream.position.skipped == len(bad)
    for message, line in zip(stream.skipped, bad):
        assert f"line {line}: " in message
    rows = [(block, i) for block in blocks for i in range(len(block.y))]
    assert len(rows) == len(want)
    for (block, i), row in zip(rows, want, strict=True):
        found = block.decisions
        assert found.arm[i] == row.chosen and (block.id is None or block.id[i] == row.tag)
        np.testing.assert_array_equal([0 - block.y[i], found.probability[i]], [row.cost, row.probability])
        assert entries(block.X, i) == pytest.approx(row.entries)
        if format == "adf":
            arms = found.of_row(i)
            assert [entries(arms, k) for k in range(arms.shape[0])] == [pytest.approx(each) for each in row.actions]
        elif found.arms is not None:
            alone = len(row.actions) == 1 and row.chosen >= 0
            assert found.of_row(i).tolist() == ([] if alone else row.actions)


def entries(x, i):
    """{column: value} of a row."""
    part = slice(x.indptr[i], x.indptr[i + 1])
    return dict(zip(x.indices[part].tolist(), x.data[part].tolist(), strict=True))
