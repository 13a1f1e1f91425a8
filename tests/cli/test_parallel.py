"""`--jobs` and `robustfd merge` of models: parts of the rows learnt side by side or apart."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import robustfd
from robustfd.cli import _workers
from robustfd.cli._parallel import ParallelModel
from robustfd.cli._pass import Pass
from robustfd.sketch import frequent_directions
from robustfd.streams import open_stream
from tests.cli.text import libsvm_text

pytestmark = pytest.mark.slow

PATIENCE = 60  # seconds


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6)).round(2)
    y = np.where(X @ rng.standard_normal(6) > 0, 1, -1)
    path = tmp_path_factory.mktemp("rows") / "rows.svm"
    path.write_text(libsvm_text(X, y))
    return path, X, y


def test_jobs_learn_the_merge_of_parts(run, many, tmp_path):
    path, X, y = many
    done = run("train", path, "-o", tmp_path / "m.rfd", "--jobs", 3, "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 3000
    assert "2,048" in done.err  # the lines about progress
    model = robustfd.load(tmp_path / "m.rfd")
    parts = robustfd.SketchedNewtonClassifier().split(3)
    expected = robustfd.merge(part.partial_fit(X[i::3], y[i::3], classes=[-1, 1]) for i, part in enumerate(parts))
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-6)
    assert model.share_ == pytest.approx(1.0)
    assert model.score(X, y) > 0.97


@pytest.mark.parametrize("command", [("train", "--classes=-1,1"), ("sketch", "-m", "4")])
def test_jobs_that_are_killed_go_on_as_if_they_had_not_been(run, many, tmp_path, monkeypatch, command):
    path, *_ = many
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 10_000)
    options = (path, "--jobs", 2, "--every", 800, "--features", 6)
    done = run(*command, *options, "-o", tmp_path / "whole", "--checkpoint", tmp_path / "kept")
    assert done.status == 0, done.err
    kept, times = Pass._save_checkpoint, []

    def killed(self):
        kept(self)
        times.append(self.position.rows)
        if len(times) == 2:
            raise RuntimeError("killed")

    monkeypatch.setattr(Pass, "_save_checkpoint", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(*command, *options, "-o", tmp_path / "other", "--checkpoint", tmp_path / "kept")
    assert not (tmp_path / "other").exists() and 0 < times[-1] < 3000
    assert robustfd.load(tmp_path / "kept").n_samples_seen_ == times[-1]
    monkeypatch.setattr(Pass, "_save_checkpoint", kept)
    done = run(*command, *options, "-o", tmp_path / "other", "--checkpoint", tmp_path / "kept", "--resume")
    assert done.status == 0, done.err
    assert (tmp_path / "other").read_bytes() == (tmp_path / "whole").read_bytes()
    assert robustfd.load(tmp_path / "other").n_samples_seen_ == 3000


def test_progress_is_that_of_all_parts(many):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    _, X, y = many
    model = ParallelModel(robustfd.SketchedNewtonClassifier(), 3, lambda: 0)
    try:
        for block in np.array_split(np.arange(3000), 5):
            model.partial_fit(X[block], y[block], classes=[-1, 1])
        assert model.n_samples_seen_ == model.progressive_["rows"][-1] == 3000
        assert max(model.plot_progress().lines[0].get_xdata()) == 3000
    finally:
        model.close()
        matplotlib.pyplot.close("all")


def test_sketches_of_parts_have_a_certificate(run, many, tmp_path):
    path, X, _ = many
    done = run("sketch", path, "-o", tmp_path / "s.rfd", "-m", 4, "--jobs", 2, "--json")
    assert done.status == 0, done.err
    sketch = robustfd.load(tmp_path / "s.rfd")
    assert sketch.n_samples_seen_ == 3000
    error = np.linalg.norm(X.T @ X - sketch.second_moment().to_dense(), 2)
    assert error <= sketch.error_bound_ * (1 + 1e-12)
    done = run("sketch", path, "-o", tmp_path / "t.rfd", "--jobs", 2, "--decay", 0.9)
    assert done.status != 0 and "order of the rows" in done.err


@pytest.fixture
def processes(monkeypatch):
    """Sketches move to processes after the first block; the test waits until these have started."""
    moved = []
    start = _workers._Process.has_started

    def started(self):
        assert self._pipe.poll(PATIENCE) or self._started
        moved.append(self._process.pid)
        return start(self)

    monkeypatch.setattr(_workers._Process, "has_started", started)
    monkeypatch.setattr(frequent_directions, "MANY_ROWS", 1)
    return moved


def test_processes_make_the_same_sketch_as_threads(run, many, tmp_path, monkeypatch, processes):
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 30_000)
    for name, rows in (("processes", 1), ("threads", 10**9)):
        monkeypatch.setattr(frequent_directions, "MANY_ROWS", rows)
        done = run("sketch", many[0], "-o", tmp_path / name, "-m", 4, "--jobs", 2)
        assert done.status == 0, done.err
    assert len(set(processes)) == 2
    assert (tmp_path / "threads").read_bytes() == (tmp_path / "processes").read_bytes()


def test_a_bad_line_is_reported_as_with_one_job(run, many, tmp_path, monkeypatch, processes):
    """The checkpoint holds the rows before it, and no process is left."""
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 10_000)
    bad, lines = tmp_path / "bad.svm", many[0].read_text().splitlines(keepends=True)
    bad.write_text("".join([*lines[:2500], "1 2:two\n", *lines[2500:]]))
    told = {}
    for jobs in (1, 2):
        kept = tmp_path / f"kept{jobs}"
        done = run("sketch", bad, "-o", tmp_path / "s", "-m", 4, "--jobs", jobs, "--checkpoint", kept, "--features", 6)
        assert done.status == 1
        told[jobs] = done.err.replace(str(kept), "kept")
        assert robustfd.load(kept).n_samples_seen_ > 2000
    assert "line 2501" in told[1] and told[1] == told[2]
    assert len(set(processes)) == 2 and not multiprocessing.active_children()
    bad.write_text("".join(lines))  # mended
    again = ("sketch", bad, "-m", 4, "--jobs", 2, "--features", 6)
    done = run(*again, "-o", tmp_path / "s", "--checkpoint", tmp_path / "kept2", "--resume")
    assert done.status == 0, done.err
    assert robustfd.load(tmp_path / "s").n_samples_seen_ == 3000


def test_an_error_of_a_process_is_that_of_one_job(run, tmp_path, monkeypatch, processes):
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 10_000)
    path = tmp_path / "large.svm"
    path.write_text("1 1:1 2:2\n" * 3000 + "1 1:1e300\n" * 9)
    for jobs in (1, 2):
        done = run("sketch", path, "-o", tmp_path / "s", "-m", 2, "--jobs", jobs)
        assert done.status != 0 and "too large" in done.err, done.err
    assert len(set(processes)) == 2 and not multiprocessing.active_children()


def test_models_of_files_merge(run, many, tmp_path):
    path, X, y = many
    lines = path.read_text().splitlines(keepends=True)
    for k in range(2):
        (tmp_path / f"{k}.svm").write_text("".join(lines[k::2]))
        run("train", tmp_path / f"{k}.svm", "-o", tmp_path / f"{k}.rfd", "--features", 6)
    done = run("merge", tmp_path / "0.rfd", tmp_path / "1.rfd", "-o", tmp_path / "all.rfd", "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 3000 and done.json["files"] == 2
    assert robustfd.load(tmp_path / "all.rfd").score(X, y) > 0.97
    assert run("predict", tmp_path / "all.rfd", path, "-o", tmp_path / "p.csv").status == 0
    run("sketch", path, "-o", tmp_path / "s.rfd")
    done = run("merge", tmp_path / "0.rfd", tmp_path / "s.rfd", "-o", tmp_path / "x.rfd")
    assert done.status != 0 and "holds a RobustFrequentDirections" in done.err


# Processes start with the first block. The last argument is the file to which the command writes when they work.
IN_PROCESSES = """
import os, sys
from robustfd import cli
from robustfd.cli import _workers
from robustfd.sketch import frequent_directions
from robustfd.streams import open_stream

frequent_directions.MANY_ROWS = 1
open_stream.__kwdefaults__["block_bytes"] = 10_000
started, working = _workers._Process.has_started, sys.argv.pop()

def wait_and_tell(self):
    assert self._pipe.poll(60) or self._started
    with open(working, "a") as file:
        file.write(f"{self._process.pid}\\n")
    return started(self)

_workers._Process.has_started = wait_and_tell
cli.script()
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals to a group of processes")
def test_ctrl_c_keeps_what_processes_learnt_and_leaves_none_behind(many, tmp_path):
    path, *_ = many
    fifo, working = tmp_path / "pipe", tmp_path / "working"
    os.mkfifo(fifo)
    options = (
        "-m",
        "4",
        "--features",
        "6",
        "--format",
        "libsvm",
        "--jobs",
        "2",
        "--checkpoint",
        str(tmp_path / "kept"),
    )
    command = [sys.executable, "-c", IN_PROCESSES, "sketch", str(fifo), "-o", str(tmp_path / "s"), *options]
    with subprocess.Popen([*command, str(working)], stderr=subprocess.PIPE, start_new_session=True) as process:
        with open(fifo, "wb") as file:
            text = path.read_bytes()
            file.write(text[: len(text) // 2])
            file.flush()
            until(lambda: working.exists() and len(pids(working)) == 2)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            told = process.stderr.read().decode()
        assert process.wait(PATIENCE) == 128 + signal.SIGINT, told
    assert "--resume to continue" in told and "Traceback" not in told
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids(working)))
    rows = robustfd.load(tmp_path / "kept").n_samples_seen_
    assert 0 < rows < 1600 and f"stopped after {rows:,} rows" in told


@pytest.mark.slow
def test_processes_end_with_the_command(run, many, tmp_path):
    options = ("sketch", many[0], "-m", "4", "--jobs", "2")
    command = [sys.executable, "-c", IN_PROCESSES, *options, "-o", tmp_path / "processes", "--quiet"]
    done = subprocess.run([*command, tmp_path / "working"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert len(pids(tmp_path / "working")) == 2
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids(tmp_path / "working")))
    assert run(*options, "-o", tmp_path / "threads").status == 0
    assert (tmp_path / "processes").read_bytes() == (tmp_path / "threads").read_bytes()


def pids(path):
    return set(map(int, path.read_text().split()))


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
