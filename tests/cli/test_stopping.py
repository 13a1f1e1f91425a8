"""Commands that are stopped or killed: resumed, they end as if nothing had happened.

A command reads ahead of what it learns. What it saves and says is about the rows that it has learned.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import robustfd
from robustfd._container import load_with_notes
from robustfd.cli._pass import ProgressBar
from robustfd.streams import open_stream
from robustfd.streams.inputs import BLOCK_BYTES
from tests.cli.conftest import BLOCK, PATIENCE, ROOT, rows_kept, start, until

SIGNALS = [signal.SIGINT, signal.SIGTERM]
KEPT = ("--checkpoint", "kept", "--every", "1")
COMMANDS = {
    "train": ("train", "rows.svm", "-m", "5", "--features", "12", "--classes=-1,1"),
    "rfdson": ("train", "rows.svm", "-m", "5", "--learner", "rfdson", "--task", "regression"),
    "sketch": ("sketch", "rows.svm", "-m", "5", "--features", "12", "--center"),
}
KILLS = 6  # of each command


@pytest.fixture(autouse=True)
def _here(svm, small_blocks, monkeypatch):
    monkeypatch.chdir(svm.parent)


@pytest.fixture
def ends(svm):
    """Rows after each block."""
    stream = open_stream(svm, n_features=12, block_bytes=BLOCK)
    return [stream.position.rows for _ in stream]


@pytest.fixture
def after_blocks(monkeypatch):
    """A function that sets what is done after each block, when the next one has been read."""

    def set_action(action):
        learned = []

        def update(self, position, figures):
            learned.append(position.rows)
            time.sleep(0.02)
            action(len(learned))

        monkeypatch.setattr(ProgressBar, "update", update)
        return learned

    return set_action


def readers():
    return [each for each in threading.enumerate() if each.name == "robustfd-ahead"]


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("name", ["train", "sketch"])
def test_a_stop_saves_what_was_learned_and_says_how_to_continue(run, tmp_path, ends, after_blocks, name, signum):
    assert run(*COMMANDS[name], "-o", "whole").status == 0
    command = (*COMMANDS[name], "-o", "model", "--checkpoint", "kept")
    after_blocks(lambda block: os.kill(os.getpid(), signum) if block == 3 else None)
    done = run(*command)
    assert done.status == 128 + signum and "Traceback" not in done.err
    assert f"stopped after {ends[2]:,} rows, which kept holds" in done.err and rows_kept("kept") == ends[2]
    assert "Run the same command with --resume to continue." in done.err and not os.path.exists("model")
    after_blocks(lambda block: None)
    refused = run(*command)
    assert refused.status == 2 and "Add --resume" in refused.err
    done = run(*command, "--resume")
    assert done.status == 0 and f"Continuing from row {ends[2]:,}" in done.err
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not os.path.exists("kept") and not readers()


def test_each_checkpoint_has_the_position_of_its_model(run, ends, after_blocks):
    found = []

    def look(block):
        if block > 1:
            model, notes = load_with_notes("kept")
            found.append((model.n_samples_seen_, notes["checkpoint"]["position"]["rows"]))

    after_blocks(look)
    assert run(*COMMANDS["train"], "-o", "model", *KEPT).status == 0
    assert found == [(rows, rows) for rows in ends[:-1]]


def test_rows_that_cannot_be_read_end_it_after_those_before_them(run, svm, ends, after_blocks):
    lines = svm.read_text().splitlines(keepends=True)
    bad = ends[2] + 5
    svm.write_text("".join([*lines[:bad], "x" * (len(lines[bad]) - 1) + "\n", *lines[bad + 1 :]]))
    learned = after_blocks(lambda block: None)
    done = run(*COMMANDS["train"], "-o", "model", "--checkpoint", "kept")
    assert done.status == 1 and f"line {bad + 1}" in done.err
    assert f"holds the {ends[2]:,} rows before" in done.err
    assert learned[-1] == rows_kept("kept") == ends[2]
    assert not readers()


def test_skipped_rows_are_all_counted(run, svm, after_blocks):
    with open(svm, "a") as file:
        file.write("1 1:one\n" * 12)
    after_blocks(lambda block: None)
    done = run(*COMMANDS["train"], "-o", "model", "--on-error", "skip", "--json")
    assert done.json["rows"] == 400
    assert "skipped 12 rows" in done.err and "... and 2 more" in done.err


def test_an_error_of_the_learner_leaves_no_thread(run):
    done = run(*COMMANDS["train"][:-1], "--classes=1,2", "-o", "model")
    assert done.status == 2
    until(lambda: not readers())


# -- in processes of their own


def parts(folder):
    """Return the files that are being written, or were when their writer was killed."""
    return list(folder.glob(".robustfd-*.part"))


def version(path):
    """Return what changes when a file is replaced."""
    return path.stat().st_ino if path.exists() else None


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments_it_ends_as_if_left_alone(run, svm, tmp_path, name):
    """Also at moments when a checkpoint is being written, which every third kill waits for."""
    svm.write_text(svm.read_text() * 5)
    assert run(*COMMANDS[name], "-o", "whole").status == 0
    rng, kept, kills, ended = random.Random(name), tmp_path / "kept", 0, False
    while kills < KILLS or not ended:
        before = version(kept)
        with start(tmp_path, *COMMANDS[name], "-o", "model", *KEPT, "--resume") as process:
            if kills < KILLS:
                while process.poll() is None and version(kept) == before and not (kills % 3 == 2 and parts(tmp_path)):
                    time.sleep(0.001)
                time.sleep(rng.random() * 0.02 if kills % 3 < 2 else 0.0)
                process.kill()
            told = process.stderr.read()
        assert process.returncode in (0, -signal.SIGKILL), told
        kills, ended = kills + (process.returncode != 0), process.returncode == 0
        if kept.exists():
            robustfd.load(kept)  # it is complete, whatever happened
        if not ended and kills % 3 == 2:  # the next one is killed when it writes
            for part in parts(tmp_path):
                part.unlink()
        if ended:
            assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()
            assert {each.name for each in tmp_path.iterdir()} == {"rows.svm", "whole", "model"}
            (tmp_path / "model").unlink()


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(run, svm, tmp_path):
    svm.write_text(svm.read_text() * 20)
    assert run(*COMMANDS["train"], "-o", "whole").status == 0
    with start(tmp_path, *COMMANDS["train"], "-o", "model", *KEPT) as process:
        until((tmp_path / "kept").exists)
        for _ in range(100):  # two that come too close count as one
            process.send_signal(signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT) and "Traceback" not in told
    for part in parts(tmp_path):
        part.unlink()
    assert run(*COMMANDS["train"], "-o", "model", *KEPT, "--resume").status == 0
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()


def sleeps(process):
    """Whether a process waits for something, at each of some looks."""
    for _ in range(20):
        with open(f"/proc/{process.pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] != "S":
                return False
        time.sleep(0.005)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("name", ["train", "sketch"])
def test_a_stop_while_it_waits_for_rows(run, svm, tmp_path, name, signum):
    piped = (COMMANDS[name][0], "-", *COMMANDS[name][2:], "--format", "libsvm")
    text, command = svm.read_bytes(), (*piped, "-o", "model", *KEPT)
    assert run(*piped, "-o", "whole", stdin=text).status == 0
    with start(tmp_path, *command, stdin=subprocess.PIPE) as process:
        process.stdin.write(text[: len(text) // 2].decode())
        process.stdin.flush()
        until((tmp_path / "kept").exists)
        until(lambda: sleeps(process))
        process.send_signal(signum)
        told = process.stderr.read()
        assert process.wait(PATIENCE) == 128 + signum
    assert "--resume to continue" in told and "Traceback" not in told
    assert 0 < rows_kept("kept") <= 210
    done = run(*command, "--resume", stdin=text)  # all again, which begins with what was read
    assert done.status == 0, done.err
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("format, signum, words, count", [
    ("libsvm", signal.SIGTERM, "stopped", 0),
    ("auto", signal.SIGINT, "stopped", 0),
    ("libsvm", signal.SIGTERM, "Nothing was saved; --checkpoint FILE would", 200),
])  # fmt: skip
def test_a_stop_with_nothing_to_save(svm, tmp_path, format, signum, words, count):
    command = ("sketch", "-", "--format", format, "--features", "12", "-o", "model", *(() if count else KEPT))
    with start(tmp_path, *command, stdin=subprocess.PIPE) as process:
        process.stdin.write("".join(svm.read_text().splitlines(keepends=True)[:count]))
        process.stdin.flush()
        until(lambda: sleeps(process))
        process.send_signal(signum)
        told = process.stderr.read()
        assert process.wait(PATIENCE) == 128 + signum
    assert words in told and "Traceback" not in told
    assert {each.name for each in tmp_path.iterdir()} == {"rows.svm"}


def test_an_error_ends_the_process_though_its_input_does_not_end(svm, tmp_path):
    command = ["train", "-", "--format", "libsvm", "--features", "12", "-o", tmp_path / "model", "--classes=1,2"]
    command = [sys.executable, "-m", "robustfd", *command]
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
