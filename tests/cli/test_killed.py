"""Commands that are killed or asked to stop, at any moment: gone on with, they end as if nothing had happened."""

import os
import random
import signal
import subprocess
import time

import pytest

import robustfd as rf
from robustfd._container import load_with_notes
from tests.cli.warm import REAL, until, write_rows

pytestmark = pytest.mark.slow

KEPT = ("--checkpoint", "kept", "--every", "1")
JOBS = {
    "train": ("train", "rows.svm", "-m", "5"),
    "train-rfdson": ("train", "rows.svm", "-m", "5", "--learner", "rfdson", "--task", "regression", "--features=20"),
    "sketch": ("sketch", "rows.svm", "-m", "5", "--center"),
}
KILLS = 7  # of each of the jobs


@pytest.fixture(scope="module")
def whole(warm, tmp_path_factory):
    """A folder with rows, and what each job makes of them if it is left in peace, `name.whole`."""
    folder = tmp_path_factory.mktemp("whole")
    write_rows(folder / "rows.svm", 1500)
    for name, job in JOBS.items():
        done = warm.run(folder, *job, "-o", f"{name}.whole")
        assert done.status == 0, done.err
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    (tmp_path / "rows.svm").symlink_to(whole / "rows.svm")
    return tmp_path


def parts(folder):
    return list(folder.glob(".robustfd-*.part"))


def rows_kept(folder):
    """Rows of the checkpoint, 0 if there is none."""
    if not (folder / "kept").exists():
        return 0
    return load_with_notes(folder / "kept")[1]["checkpoint"]["position"]["rows"]


@pytest.mark.parametrize("name", JOBS)
def test_killed_at_random_moments_it_ends_as_if_left_alone(warm, whole, folder, name):
    """Also at moments when a checkpoint is being written, which every third kill waits for."""
    rng, kills, ends = random.Random(name), 0, 0
    command = (*JOBS[name], "-o", "model", *KEPT, "--resume")
    began = time.monotonic()
    assert warm.run(folder, *command).status == 0
    span = time.monotonic() - began
    while kills < KILLS or not ends:
        job = warm.start(folder, *command)
        if kills < KILLS:
            if kills % 3 == 2:
                until(lambda: parts(folder), job)
            else:
                time.sleep(rng.random() * span)
            job.kill()
        job.wait()
        assert job.status in (0, -signal.SIGKILL), job.err
        kills += job.status != 0
        if (folder / "kept").exists():
            rf.load(folder / "kept")  # it is whole, whatever happened
        for part in parts(folder):  # of what was being written; nobody else could have removed it
            part.unlink()
        if job.status == 0:
            ends += 1
            span /= 2  # the machine is quicker than it was: kill earlier
            assert (folder / "model").read_bytes() == (whole / f"{name}.whole").read_bytes()
            assert {each.name for each in folder.iterdir()} == {"rows.svm", "model", ".stdout", ".stderr"}
            (folder / "model").unlink()


def test_the_real_command_killed(warm, tmp_path):
    """Started as users start it, and killed when it has written its first, and later another checkpoint."""
    write_rows(tmp_path / "rows.svm", 50_000)  # three blocks of the usual size
    command = ("sketch", "rows.svm", "-m", "20", "--features", "20", "-q")
    assert warm.run(tmp_path, *command, "-o", "whole").status == 0
    kills = before = 0
    while kills < 2:
        with subprocess.Popen([*REAL, *command, "-o", "model", *KEPT, "--resume"], cwd=tmp_path) as process:
            while process.poll() is None and rows_kept(tmp_path) <= before:
                time.sleep(0.001)
            process.kill()
        if process.returncode == 0:  # it was quicker than the kill: again
            kills = before = 0
            continue
        assert process.returncode == -signal.SIGKILL
        kills, before = kills + 1, rows_kept(tmp_path)
    assert warm.run(tmp_path, *command, "-o", "model", *KEPT, "--resume", block=1 << 20).status == 0
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()


def started(warm, folder, name):
    """A job that has written a checkpoint and goes on; it may be over by the time one looks."""
    job = warm.start(folder, *JOBS[name], "-o", "model", *KEPT)
    assert until((folder / "kept").exists, job), "it ended before its first checkpoint"
    return job


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["train", "sketch"])
def test_asked_to_stop_it_finishes_the_block_and_says_how_to_go_on(warm, whole, folder, name, signum):
    for _ in range(5):
        job = started(warm, folder, name)
        job.kill(signum)
        if job.wait().status:
            break
        (folder / "kept").unlink(missing_ok=True)  # it was quicker than the signal: again
    assert job.status == 128 + signum, job.err
    assert f"stopped after {rows_kept(folder):,} rows, which kept holds" in job.err
    assert "Run the same command with --resume to continue." in job.err
    assert not (folder / "model").exists() and not parts(folder) and "Traceback" not in job.err
    refused = warm.run(folder, *JOBS[name], "-o", "model", *KEPT)
    assert refused.status == 2 and "Add --resume" in refused.err
    done = warm.run(folder, *JOBS[name], "-o", "model", *KEPT, "--resume")
    assert done.status == 0 and "Continuing from row" in done.err
    assert (folder / "model").read_bytes() == (whole / f"{name}.whole").read_bytes()
    assert not (folder / "kept").exists()


def test_a_second_signal_ends_it_at_once(warm, whole, folder):
    job = started(warm, folder, "train")
    for _ in range(100):  # two that come too close count as one
        job.kill(signal.SIGINT)
    assert job.wait().status in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "Traceback" not in job.err
    for part in parts(folder):
        part.unlink()
    assert warm.run(folder, *JOBS["train"], "-o", "model", *KEPT, "--resume").status == 0
    assert (folder / "model").read_bytes() == (whole / "train.whole").read_bytes()


# -- a pipe that gives nothing


class Feed:
    """A named pipe that stays open for writing."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path, self.handle = path, os.open(path, os.O_RDWR)

    def write(self, data):
        while data:
            data = data[os.write(self.handle, data[:4096]) :]

    def close(self):
        os.close(self.handle)
        self.path.unlink()


@pytest.fixture
def feed(folder):
    feeds = []

    def make():
        feeds.append(Feed(folder / f"pipe{len(feeds)}"))
        return feeds[-1]

    yield make
    for each in feeds:
        each.close()


PIPED = {
    "train": ("train", "-", "--format", "libsvm", "--features", "20", "--classes=-1,1", "-m", "5"),
    "sketch": ("sketch", "-", "--format", "libsvm", "--features", "20", "-m", "5"),
}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", PIPED)
def test_asked_to_stop_while_it_waits_for_rows(warm, whole, folder, feed, name, signum):
    text, command = (whole / "rows.svm").read_bytes(), (*PIPED[name], "-o", "model", *KEPT)
    assert warm.run(folder, *PIPED[name], "-o", "whole", stdin="rows.svm").status == 0
    pipe = feed()
    job = warm.start(folder, *command, stdin=str(pipe.path))
    pipe.write(text[: len(text) // 2])
    until((folder / "kept").exists, job)
    until(lambda: _sleeps(job.pid), job)
    job.kill(signum)
    assert job.wait().status == 128 + signum, job.err
    assert "--resume to continue" in job.err and "Traceback" not in job.err
    assert 0 < rows_kept(folder) <= 750 + 10
    done = warm.run(folder, *command, "--resume", stdin="rows.svm")  # all again, which begins with what was read
    assert done.status == 0, done.err
    assert (folder / "model").read_bytes() == (folder / "whole").read_bytes()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("format", ["libsvm", "auto"])
def test_asked_to_stop_before_the_first_row(warm, folder, feed, format, signum):
    job = warm.start(folder, "sketch", "-", "--format", format, "-o", "model", *KEPT, stdin=str(feed().path))
    until(lambda: _sleeps(job.pid), job)
    job.kill(signum)
    assert job.wait().status == 128 + signum, job.err
    assert "stopped" in job.err and "Traceback" not in job.err
    assert not (folder / "kept").exists() and not (folder / "model").exists()


def _sleeps(pid, looks=20):
    """Whether a process waits for something, at each of some looks."""
    for _ in range(looks):
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] != "S":
                return False
        time.sleep(0.005)
    return True


def test_a_stop_without_a_checkpoint_says_that_nothing_was_kept(warm, folder, feed):
    pipe = feed()
    job = warm.start(folder, *PIPED["sketch"], "-o", "model", stdin=str(pipe.path))
    pipe.write((folder / "rows.svm").read_bytes()[:20_000])
    until(lambda: _sleeps(job.pid), job)
    job.kill(signal.SIGTERM)
    assert job.wait().status == 143
    assert "Nothing was saved; --checkpoint FILE would" in job.err
