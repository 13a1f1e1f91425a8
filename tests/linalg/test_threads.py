"""BLAS has one thread inside this library, and the caller's setting outside."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import robustfd
from robustfd.estimators import _components, pca, ridge
from robustfd.linalg import threads
from robustfd.sketch import baselines, engine, exact, frequent_directions, prepared

X = np.random.default_rng(0).standard_normal((60, 12))
Y = X[:, 0]
SKETCHES = {
    "FD": lambda: robustfd.FrequentDirections(4),
    "wide": lambda: robustfd.FrequentDirections(2, buffer_size=3),
    "RFD, centred": lambda: robustfd.RobustFrequentDirections(4, center=True),
    "exact": robustfd.ExactSecondMoment,
    "Oja": lambda: robustfd.OjaSketch(4, random_state=0),
    "random projection": lambda: robustfd.RandomProjectionSketch(4, random_state=0),
}


class Blas:
    """A fake BLAS with four threads that records its thread count during work."""

    def __init__(self) -> None:
        self.count, self.seen, self.calls = 4, [], 0

    def set(self, count: int) -> None:
        self.count, self.calls = count, self.calls + 1

    def watch(self, monkeypatch: Any, module: Any, *names: str) -> None:
        """Record the number of threads in each call of these functions of a module."""
        for name in names:
            function = getattr(module, name)

            def recorded(*args: Any, _function: Any = function, **options: Any) -> Any:
                self.seen.append(self.count)
                return _function(*args, **options)

            monkeypatch.setattr(module, name, recorded)


@pytest.fixture
def blas(monkeypatch):
    blas = Blas()
    pool = threads._Pool(lambda: blas.count, blas.set)
    monkeypatch.setattr(threads, "_pools", lambda: ([pool], []))
    for module in (prepared, exact, baselines):
        blas.watch(monkeypatch, module, "prepare")
    blas.watch(monkeypatch, engine, "shrink_stack", "shrink_columns", "shrink_gram")
    blas.watch(monkeypatch, frequent_directions, "unit_rows")
    for module in (pca, ridge):
        for name in ("solve", "mahalanobis", "to_dense", "logdet"):
            blas.watch(monkeypatch, module.LowRankPlusIdentity, name)
    blas.watch(monkeypatch, _components, "svd_flip")
    blas.watch(monkeypatch, _components, "form_leading", "find_leading", "orthonormal", "unit_rows")
    blas.watch(monkeypatch, ridge.Moments, "plus")
    return blas


def assert_one_thread(blas: Blas) -> None:
    assert blas.seen and set(blas.seen) == {1}
    assert blas.count == 4
    blas.seen.clear()


@pytest.mark.parametrize("name", SKETCHES)
def test_sketches_learn_read_and_merge_with_one_thread(blas, name):
    one, two = SKETCHES[name](), SKETCHES[name]()
    if name == "random projection":
        two.set_params(random_state=1)
    one.partial_fit(X)
    two.partial_fit(X)
    if name == "exact":  # so far its rows are only queued
        one.sketch_  # noqa: B018
    assert_one_thread(blas)
    if name not in ("exact", "Oja", "random projection"):
        one.sketch_, one.covariance()
        assert_one_thread(blas)
        one.merge(two)
        assert_one_thread(blas)
    one.bracket_mahalanobis(X)
    assert blas.count == 4


def test_estimators_learn_and_are_used_with_one_thread(blas):
    p = robustfd.SketchedPCA(3, sketch_size=5).fit(X)
    assert_one_thread(blas)
    for use in (p.transform, p.score_samples, lambda _: p.get_covariance(), lambda _: p.get_precision()):
        use(X)
        assert_one_thread(blas)
    r = robustfd.SketchedRidge(1e4, sketch_size=5).fit(X, Y)
    assert_one_thread(blas)
    r.predict(X), r.coef_
    assert_one_thread(blas)
    d = robustfd.MahalanobisDetector(5).fit(X)
    assert_one_thread(blas)
    d.predict(X)
    assert_one_thread(blas)


def test_a_queued_row_does_not_change_the_count(blas):
    sketch = robustfd.FrequentDirections(10).partial_fit(X[:1])
    calls = blas.calls
    for row in X[:8]:
        sketch.partial_fit(row[None])
    assert blas.calls == calls == 0


def test_the_count_is_restored_after_an_error(blas, monkeypatch):
    def fails(*args: Any, **options: Any) -> Any:
        assert blas.count == 1
        raise RuntimeError("in the middle")

    monkeypatch.setattr(prepared, "prepare", fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        robustfd.FrequentDirections(4).fit(X)
    assert blas.count == 4


def test_the_last_thread_to_leave_restores_the_count(blas):
    """First enters, second enters, first leaves, second leaves: BLAS has one thread until the last leaves."""
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    counts = []

    def first() -> None:
        with threads.one_blas_thread():
            first_in.set()
            assert second_in.wait(10)
            counts.append(blas.count)
        first_out.set()

    def second() -> None:
        assert first_in.wait(10)
        with threads.one_blas_thread():
            second_in.set()
            assert first_out.wait(10)
            counts.append(blas.count)

    workers = [threading.Thread(target=task) for task in (first, second)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counts == [1, 1]
    assert blas.count == 4


def test_concurrent_sketches_restore_the_count_and_give_the_same_bytes(blas):
    expected = robustfd.FrequentDirections(4).fit(X).to_bytes()
    found = []

    def task() -> None:
        for _ in range(10):
            found.append(robustfd.FrequentDirections(4).fit(X).to_bytes())

    workers = [threading.Thread(target=task) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(found) == {expected} and len(found) == 40
    assert_one_thread(blas)


SCRIPT = """
import threading
import robustfd
from robustfd.linalg import threads
from threadpoolctl import ThreadpoolController, threadpool_limits

def counts():
    return [lib.num_threads for lib in ThreadpoolController().select(user_api="blas").lib_controllers]

def task():
    with threads.one_blas_thread():
        inside.append(counts())

inside = []
with threads.one_blas_thread():
    pass
before = counts()
worker = threading.Thread(target=task)  # not the first thread to set the count
worker.start()
worker.join()
with threads.one_blas_thread():
    inside.append(counts())
assert before == counts(), (before, counts())
assert all(set(each) <= {1} for each in inside), inside
with threadpool_limits(1, user_api="blas"):  # the caller's own limit is respected
    task()
    assert set(counts()) <= {1}
assert before == counts()
print(len(before), set(before))
"""


def test_the_real_libraries_are_limited_from_any_thread():
    """threadpoolctl's own setters work only in the first thread that calls them."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_from_a_clean_state(blas):
    entered, leave = threading.Event(), threading.Event()

    def stays() -> None:
        with threads.one_blas_thread():
            entered.set()
            leave.wait(10)

    worker = threading.Thread(target=stays)
    worker.start()
    assert entered.wait(10)
    before = threads._shared.inside
    try:
        threads._after_fork()  # called in the child
        assert blas.count == 4 and threads._shared.inside == 0
    finally:
        threads._shared.inside = before
        blas.set(1)
        leave.set()
        worker.join()
    assert blas.count == 4 and threads._shared.inside == 0
