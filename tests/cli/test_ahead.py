"""A command that reads ahead of what it learns: what it keeps, says and leaves behind is about what it learnt."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from robustfd._container import load_with_notes
from robustfd.cli import train
from robustfd.streams import open_stream
from robustfd.streams.inputs import BLOCK_BYTES
from tests.cli.conftest import ROOT

BLOCK = 2000  # bytes
PATIENCE = 20  # seconds


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", BLOCK)


@pytest.fixture
def ends(svm):
    """Rows after each block."""
    stream = open_stream(svm, n_features=12, block_bytes=BLOCK)
    return [stream.position.rows for _ in stream]


def reading():
    return [each for each in threading.enumerate() if each.name == "robustfd-ahead"]


@pytest.fixture
def slowly(monkeypatch):
    """The learner gives the reading of the next block all the time it may want, and then does something."""

    def make(also):
        count, learn = [], train.learn_block

        def patched(model, block, classes):
            learn(model, block, classes)
            count.append(len(block.y))
            time.sleep(0.02)
            also(len(count))

        monkeypatch.setattr(train, "learn_block", patched)
        return count

    return make


def kept_rows(path):
    return load_with_notes(path)[1]["checkpoint"]["position"]["rows"]


TRAIN = ("-m", "5", "--features", "12", "--classes=-1,1")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_keeps_what_was_learnt_and_not_what_was_read(run, svm, tmp_path, small_blocks, ends, slowly, signum):
    whole, model, kept = (tmp_path / name for name in ("whole", "model", "kept"))
    assert run("train", svm, "-o", whole, *TRAIN).status == 0
    slowly(lambda block: os.kill(os.getpid(), signum) if block == 3 else None)
    done = run("train", svm, "-o", model, *TRAIN, "--checkpoint", kept)
    assert done.status == 128 + signum
    assert f"stopped after {ends[2]:,} rows" in done.err and kept_rows(kept) == ends[2]
    slowly(lambda block: None)
    done = run("train", svm, "-o", model, *TRAIN, "--checkpoint", kept, "--resume")
    assert done.status == 0 and f"Continuing from row {ends[2]:,}" in done.err
    assert model.read_bytes() == whole.read_bytes()
    assert not reading()


def test_each_checkpoint_has_the_position_of_its_model(run, svm, tmp_path, small_blocks, ends, slowly):
    found, kept = [], tmp_path / "kept"

    def look(block):
        if block > 1:
            model, notes = load_with_notes(kept)
            found.append((model.n_samples_seen_, notes["checkpoint"]["position"]["rows"]))

    slowly(look)
    assert run("train", svm, "-o", tmp_path / "model", *TRAIN, "--checkpoint", kept, "--every", "1").status == 0
    assert found == [(rows, rows) for rows in ends[:-1]]


def test_rows_that_cannot_be_read_end_it_after_those_before_them(run, svm, tmp_path, small_blocks, ends, slowly):
    lines = svm.read_text().splitlines(keepends=True)
    bad = ends[2] + 5
    svm.write_text("".join([*lines[:bad], "x" * (len(lines[bad]) - 1) + "\n", *lines[bad + 1 :]]))
    count = slowly(lambda block: None)
    done = run("train", svm, "-o", tmp_path / "model", *TRAIN, "--checkpoint", tmp_path / "kept")
    assert done.status == 1 and f"line {bad + 1}" in done.err
    assert f"holds the {ends[2]:,} rows before" in done.err
    assert sum(count) == kept_rows(tmp_path / "kept") == ends[2]
    assert not reading()


def test_skipped_rows_are_all_counted(run, svm, tmp_path, small_blocks, slowly):
    with open(svm, "a") as file:
        file.write("1 1:one\n" * 12)
    slowly(lambda block: None)
    done = run("train", svm, "-o", tmp_path / "model", *TRAIN, "--on-error", "skip", "--json")
    assert done.json["rows"] == 400
    assert "skipped 12 rows" in done.err and "... and 2 more" in done.err


def test_an_error_of_the_learner_leaves_no_thread(run, svm, tmp_path, small_blocks):
    done = run("train", svm, "-o", tmp_path / "model", "-m", "5", "--features", "12", "--classes=1,2")
    assert done.status == 2
    end = time.monotonic() + PATIENCE
    while reading():
        assert time.monotonic() < end
        time.sleep(0.001)


# -- standard input that never ends


COMMAND = [sys.executable, "-m", "robustfd", "train", "-", "--format", "libsvm", "--features", "12", "-m", "5"]


def test_an_error_ends_the_process_though_its_input_does_not_end(svm, tmp_path):
    command = [*COMMAND, "-o", tmp_path / "model", "--classes=1,2"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        text = svm.read_bytes()
        process.stdin.write(text * (3 * BLOCK_BYTES // 2 // len(text)))  # the reading waits for the rest of a block
        process.stdin.flush()
        assert process.wait(PATIENCE) == 2
        told = process.stderr.read().decode()
    assert "robustfd: " in told and "Traceback" not in told and "Fatal" not in told


UNEXPECTED = """
import sys, threading, time
from robustfd import cli

def main():
    threading.Thread(target=sys.stdin.buffer.read, daemon=True).start()
    time.sleep(0.1)
    raise RuntimeError("unexpected")

cli.main = main
cli.script()
"""


def test_an_unexpected_error_ends_the_process_though_its_input_does_not_end():
    command = [sys.executable, "-c", UNEXPECTED]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(PATIENCE) == 1
        told = process.stderr.read().decode()
    assert told.splitlines()[-1] == "RuntimeError: unexpected" and "Fatal" not in told
