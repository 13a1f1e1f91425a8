"""Workers that own a value, in a thread or in a process: order, errors, and their end."""

import os
import threading
import time

import pytest

from robustfd.cli import _workers
from robustfd.cli._workers import Worker

PATIENCE = 60  # seconds


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
        assert made._process._pipe.poll(PATIENCE)  # it has started
    yield made
    made.close()


def change(worker, *items):
    for item in items:
        worker.change(add, lambda item=item: (item,))


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


def test_few_changes_wait(monkeypatch):
    worker, go = Worker(Log()), threading.Event()
    try:
        monkeypatch.setattr(_workers, "AHEAD", 2)
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


def test_work_continues_in_the_thread_until_the_process_has_started(monkeypatch):
    worker = Worker(Log())
    monkeypatch.setattr(_workers._Process, "has_started", lambda self: False)
    worker.use_process()
    child = worker._process._process.pid
    change(worker, 1, 2)
    assert worker.read() == [1, 2] and worker.read(process_of) == os.getpid()
    worker.close()
    assert not alive(child)


def test_no_process_is_left():
    worker = Worker(Log())
    worker.use_process()
    assert worker._process._pipe.poll(PATIENCE)
    change(worker, 1)
    child = worker.read(process_of)
    assert alive(child)
    change(worker, 2, 3)
    worker.close()
    worker.close()
    assert not alive(child)


def test_a_killed_process_is_reported():
    worker = Worker(Log())
    worker.use_process()
    assert worker._process._pipe.poll(PATIENCE)
    try:
        change(worker, 1)
        worker.wait()
        worker._process._process.kill()
        change(worker, 2)
        with pytest.raises(ChildProcessError, match="ended unexpectedly, with status -9"):
            worker.wait()
    finally:
        worker.close()


def alive(pid):
    """Whether a process runs; one that has just ended may take a moment."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.01)
    return True
