"""`--jobs`: parts of the rows learned in parallel, by workers in threads or processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import robustfd
from robustfd.cli._parallel import ParallelModel, Worker
from robustfd.cli._pass import Pass
from robustfd.sketch import frequent_directions
from tests.cli.conftest import PATIENCE, libsvm_text, until


class Log(list):
    """A value whose module the process can import."""


def add(log, item):
    if item == "bad":
        raise ValueError("refused bad")
    return Log([*log, item])


def process_of(log):
    return os.getpid()


@pytest.fixture(params=["thread", "process"])
def worker(request):
    made = Worker(Log())
    if request.param == "process":
        made.use_process()
        made._started.result(PATIENCE)
    yield made
    made.close()


def change(worker, *items):
    for item in items:
        worker.change(add, lambda item=item: (item,))


def exists(pid):
    return os.path.exists(f"/proc/{pid}")


def test_changes_happen_in_order(worker):
    change(worker, *range(10))
    assert worker.read() == list(range(10))
    assert worker.read(len) == 10
    worker.replace(Log("a"))
    change(worker, "b")
    assert worker.read() == ["a", "b"]
    assert (worker.read(process_of) == os.getpid()) == (worker._process is None)


def test_an_error_is_raised_later_and_changes_nothing(worker):
    change(worker, 1)
    change(worker, "bad")
    with pytest.raises(ValueError, match="refused bad"):
        worker.wait()
    assert worker.read() == [1]


def test_few_changes_wait():
    worker, go = Worker(Log()), threading.Event()
    try:
        worker.change(add, lambda: (go.wait(PATIENCE),))
        change(worker, 1)
        late = threading.Thread(target=change, args=(worker, 2))
        late.start()
        late.join(0.05)
        assert late.is_alive()  # the third change has to wait until the first is done
        go.set()
        late.join(PATIENCE)
        assert worker.read() == [True, 1, 2]
    finally:
        worker.close()


def test_work_continues_in_the_thread_until_the_process_has_started():
    worker = Worker(Log())
    worker.use_process()
    worker._started = threading.Event()
    worker._started.done = worker._started.is_set
    change(worker, 1)
    assert worker.read(process_of) == os.getpid()
    worker._started.set()
    change(worker, 2)
    assert worker.read() == [1, 2]
    child = worker.read(process_of)
    assert child != os.getpid() and exists(child)
    change(worker, 3)
    worker.close()
    worker.close()
    assert not exists(child)


def test_a_killed_process_is_reported():
    worker = Worker(Log())
    worker.use_process()
    try:
        os.kill(worker._started.result(PATIENCE), signal.SIGKILL)
        change(worker, 1)
        with pytest.raises(ChildProcessError, match="ended unexpectedly.*use fewer jobs"):
            worker.wait()
    finally:
        worker.close()


# -- commands


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6)).round(2)
    y = np.where(X @ rng.standard_normal(6) > 0, 1, -1)
    path = tmp_path_factory.mktemp("rows") / "rows.svm"
    path.write_text(libsvm_text(X, y))
    return path, X, y


@pytest.fixture
def processes(monkeypatch):
    """Sketches move to processes after the first block, and wait until these have started. These are their numbers."""
    found, use_process = set(), Worker.use_process

    def use_and_wait(self):
        use_process(self)
        found.add(self._started.result(PATIENCE))

    monkeypatch.setattr(Worker, "use_process", use_and_wait)
    monkeypatch.setattr(frequent_directions, "MANY_ROWS", 1)
    return found


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


@pytest.mark.slow
@pytest.mark.parametrize("command", [("train", "--classes=-1,1"), ("sketch", "-m", "4")])
def test_a_resumed_pass_makes_the_model_of_a_pass_that_wrote_the_checkpoint(
    run, many, tmp_path, monkeypatch, small_blocks, command
):
    command = (*command, many[0], "--jobs", 2, "--every", 800, "--features", 6, "--checkpoint", tmp_path / "kept")
    done = run(*command, "-o", tmp_path / "whole")
    assert done.status == 0, done.err
    save, times = Pass._save_checkpoint, []

    def fail_after_two(self):
        save(self)
        times.append(self.position.rows)
        if len(times) == 2:
            raise RuntimeError("killed")

    monkeypatch.setattr(Pass, "_save_checkpoint", fail_after_two)
    with pytest.raises(RuntimeError, match="killed"):
        run(*command, "-o", tmp_path / "other")
    assert not (tmp_path / "other").exists() and 0 < times[-1] < 3000
    assert robustfd.load(tmp_path / "kept").n_samples_seen_ == times[-1]
    monkeypatch.setattr(Pass, "_save_checkpoint", save)
    done = run(*command, "-o", tmp_path / "other", "--resume")
    assert done.status == 0, done.err
    assert (tmp_path / "other").read_bytes() == (tmp_path / "whole").read_bytes()
    assert robustfd.load(tmp_path / "other").n_samples_seen_ == 3000


def test_progress_is_that_of_all_parts(many):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    _, X, y = many
    model = ParallelModel(robustfd.SketchedNewtonClassifier(), 3)
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


@pytest.mark.slow
def test_processes_make_the_same_sketch_as_threads(run, many, tmp_path, monkeypatch, processes, small_blocks):
    for name, rows in (("processes", 1), ("threads", 10**9)):
        monkeypatch.setattr(frequent_directions, "MANY_ROWS", rows)
        done = run("sketch", many[0], "-o", tmp_path / name, "-m", 4, "--jobs", 2)
        assert done.status == 0, done.err
    assert len(processes) == 2
    assert (tmp_path / "threads").read_bytes() == (tmp_path / "processes").read_bytes()


@pytest.mark.slow
def test_a_bad_line_is_reported_as_with_one_job(run, many, tmp_path, processes, small_blocks):
    """The checkpoint holds the rows before it, and no process is left."""
    bad, lines = tmp_path / "bad.svm", many[0].read_text().splitlines(keepends=True)
    bad.write_text("".join([*lines[:2500], "1 2:two\n", *lines[2500:]]))
    command, told = ("sketch", bad, "-o", tmp_path / "s", "-m", 4, "--features", 6), {}
    for jobs in (1, 2):
        kept = tmp_path / f"kept{jobs}"
        done = run(*command, "--jobs", jobs, "--checkpoint", kept)
        assert done.status == 1
        told[jobs] = done.err.replace(str(kept), "kept")
        assert robustfd.load(kept).n_samples_seen_ > 2000
    assert "line 2501" in told[1] and told[1] == told[2]
    assert len(processes) == 2 and not multiprocessing.active_children()
    bad.write_text("".join(lines))  # mended
    done = run(*command, "--jobs", 2, "--checkpoint", tmp_path / "kept2", "--resume")
    assert done.status == 0, done.err
    assert robustfd.load(tmp_path / "s").n_samples_seen_ == 3000


@pytest.mark.slow
def test_an_error_of_a_process_is_that_of_one_job(run, tmp_path, processes, small_blocks):
    path = tmp_path / "large.svm"
    path.write_text("1 1:1 2:2\n" * 3000 + "1 1:1e300\n" * 9)
    for jobs in (1, 2):
        done = run("sketch", path, "-o", tmp_path / "s", "-m", 2, "--jobs", jobs)
        assert done.status != 0 and "too large" in done.err, done.err
    assert len(processes) == 2 and not multiprocessing.active_children()


# Processes start with the first block. The last argument is the file to which the command writes when they work.
IN_PROCESSES = """
import sys
from robustfd import cli
from robustfd.cli._parallel import Worker
from robustfd.sketch import frequent_directions
from robustfd.streams import open_stream

def use_and_tell(self):
    if self._process is None:
        use_process(self)
        with open(working, "a") as file:
            file.write(f"{self._started.result(60)}\\n")

if __name__ == "__main__":
    frequent_directions.MANY_ROWS = 1
    open_stream.__kwdefaults__["block_bytes"] = 10_000
    use_process, working = Worker.use_process, sys.argv.pop()
    Worker.use_process = use_and_tell
    cli.script()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals to a group of processes")
@pytest.mark.parametrize("signum", [0, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_however_the_command_ends(many, tmp_path, signum):
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
        tmp_path / "kept",
        "-q",
    )
    command = [sys.executable, "-c", IN_PROCESSES, "sketch", fifo, "-o", tmp_path / "s", *options, working]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        with open(fifo, "wb") as file:
            text = many[0].read_bytes()
            file.write(text[: len(text) // 2])
            file.flush()
            until(lambda: working.exists() and len(working.read_text().split()) == 2)
            if signum == signal.SIGKILL:
                process.kill()
            else:
                os.killpg(process.pid, signum)  # SIGINT to all, as a terminal does
        told = process.stderr.read()
        status = process.wait(PATIENCE)
    until(lambda: not any(map(exists, working.read_text().split())))
    if signum == signal.SIGINT:
        rows = robustfd.load(tmp_path / "kept").n_samples_seen_
        assert 0 < rows < 1600 and status == 128 + signum
        assert told.startswith(f"robustfd: stopped after {rows:,} rows") and told.count("\n") == 1
    else:
        assert status == -signum and (signum or told == "")
