"""Many threads may use one model: calls take turns, and every public method and property is one of them."""

import contextlib
import copy
import gc
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import robustfd as rf
from robustfd import _core
from robustfd._guard import Guarded
from tests.meeting_threads import LEARNERS, learn, stream


def _labelled(model, verb="partial_fit", *, low=0, **more):
    """Return a model, and the function with which it learns rows."""
    return model, lambda x: getattr(model, verb)(x, np.where(np.arange(x.shape[0]) % 3 > 0, 1, low), **more)


def _sketch(kind):
    model = getattr(rf, kind)(sketch_size=4)
    return model, model.partial_fit


KINDS = {
    "SketchedNewtonClassifier": lambda: _labelled(rf.SketchedNewtonClassifier(), classes=[0, 1]),
    "SketchedNewtonRegressor": lambda: _labelled(rf.SketchedNewtonRegressor()),
    "RFDSONClassifier": lambda: _labelled(rf.RFDSONClassifier(), classes=[0, 1]),
    "OnlineNewton": lambda: _labelled(rf.OnlineNewton("rfd", 4), "learn", low=-1),
    "AdaGrad": lambda: _labelled(rf.AdaGrad(), "learn", low=-1),
    "RobustFrequentDirections": lambda: _sketch("RobustFrequentDirections"),
    "FrequentDirections": lambda: _sketch("FrequentDirections"),
}

MODELS = [
    kind
    for kind in (getattr(rf, name) for name in rf.__all__)
    if inspect.isclass(kind) and any(hasattr(kind, verb) for verb in ("fit", "learn", "partial_fit"))
]


class Recorder:
    """A lock that counts how often it is taken."""

    def __init__(self):
        self.lock, self.taken = threading.RLock(), 0

    def acquire(self):
        self.taken += 1
        return self.lock.acquire()

    acquire_shared = acquire

    def release(self):
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *args):
        self.release()


def test_all_models_are_guarded():
    assert len(MODELS) >= 16
    assert all(issubclass(kind, Guarded) for kind in MODELS)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_all_that_is_public_takes_the_lock(kind):
    names = [name for name in dir(kind) if not name.startswith("_")] + ["__getstate__"]
    for name in names:
        found = inspect.getattr_static(kind, name)
        if inspect.isfunction(found):
            assert hasattr(found, "_guarded"), name
        elif isinstance(found, property):
            assert hasattr(found.fget, "_guarded"), name
        else:  # for loading, and what scikit-learn has for settings
            assert isinstance(found, classmethod) or name.startswith("set_") or not callable(found), name


@pytest.mark.parametrize("name", LEARNERS)
def test_reading_and_learning_take_the_lock(name):
    (batch, *_), x = stream(sparse=False)
    model = LEARNERS[name]()
    readers = ("predict", "decision_function", "transform", "score_samples", "predict_proba", "bracket_mahalanobis")
    calls = [lambda: learn(model, *batch), lambda: pickle.dumps(model), lambda: copy.copy(model), model.get_params]
    calls += [lambda verb=verb: getattr(model, verb)(x) for verb in readers if hasattr(model, verb)]
    calls += [getattr(model, verb) for verb in ("to_bytes", "second_moment") if hasattr(model, verb)]
    calls += [
        lambda attribute=attribute: getattr(model, attribute, None)
        for attribute in dir(type(model))
        if not attribute.startswith("_") and isinstance(inspect.getattr_static(type(model), attribute), property)
    ]
    calls.append(lambda: setattr(model, next(iter(model.get_params())), next(iter(model.get_params().values()))))
    for call in calls:
        model._lock = lock = Recorder()
        call()
        assert lock.taken > 0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_lock_is_no_part_of_a_model(name):
    (first, second, *_), _ = stream(sparse=False)
    model = LEARNERS[name]()
    assert set(vars(model)) == set(model.get_params())
    learn(model, *first)
    size = joblib.hash(model)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model)):
        assert other._lock is not model._lock
        learn(other, *second)
    assert joblib.hash(model) == size, "copies are independent"


class Own(rf.RobustFrequentDirections):
    """A sketch that somebody made of ours."""

    def loudness(self):
        """Return a number."""
        return float(self.singular_values_.sum())


def test_a_class_made_of_ours_is_guarded_and_shows_its_signatures():
    assert hasattr(Own.loudness, "_guarded")
    assert list(inspect.signature(Own.fit).parameters) == ["self", "X", "y", "sample_weight", "n_jobs"]
    assert rf.RobustFrequentDirections.fit.__doc__.startswith("Sketch the rows of X from scratch")


def test_merging_both_ways_at_a_time_ends():
    x = np.random.default_rng(0).standard_normal((50, 5))
    one, two = (rf.RobustFrequentDirections(4).fit(x) for _ in range(2))

    def back_and_forth(here, there):
        for _ in range(200):
            here.merge(copy.copy(there).fit(x))
            here.merge(there)
            here.fit(x)

    threads = [threading.Thread(target=back_and_forth, args=pair, daemon=True) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    "meeting",
    [pytest.param("readers", marks=pytest.mark.slow), pytest.param("learners", marks=pytest.mark.slow), "single"],
)
def test_threads_meet_in_one_model(meeting):
    script = Path(__file__).with_name("meeting_threads.py")
    done = subprocess.run([sys.executable, script, meeting], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-2000:]


def test_help_shows_the_parameters():
    for name in rf.__all__:
        kind = getattr(rf, name)
        if isinstance(kind, type) and issubclass(kind, Guarded):
            shown = inspect.signature(kind).parameters
            assert list(shown) == list(inspect.signature(kind.__init__).parameters)[1:], name
            assert "args" not in shown


def test_writers_do_not_wait_for_readers_that_come_later():
    """Threads enter in the order in which they came."""
    lock, order = _core.Lock(), []

    def use(name, acquire):
        acquire()
        order.append(name)
        lock.release()

    lock.acquire_shared()
    threads = []
    for name, acquire in (("writer", lock.acquire), ("reader", lock.acquire_shared)):
        threads.append(threading.Thread(target=use, args=(name, acquire), daemon=True))
        threads[-1].start()
        time.sleep(0.1)  # they queue in this order
    assert order == []
    lock.release()
    for thread in threads:
        thread.join(timeout=10)
    assert order == ["writer", "reader"]


def test_readers_share():
    lock, inside = _core.Lock(), threading.Barrier(3)

    def read():
        lock.acquire_shared()
        inside.wait(timeout=10)  # all three are inside at the same time
        lock.release()

    threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not inside.broken


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_waits_for_a_running_call_and_gets_a_whole_model(kind):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5_000, 20))
    model, call = KINDS[kind]()
    call(x)
    learning = threading.Thread(target=lambda: [call(x) for _ in range(10)], daemon=True)
    learning.start()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a call that hangs ends with the signal
            whole = model.n_samples_seen_ % len(x) == 0
            ways = [each for each in ("decision_function", "predict") if hasattr(model, each)]
            said = getattr(model, ways[0])(x[:5]) if ways else model.singular_values_
            os._exit(0 if whole and np.isfinite(said).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    learning.join(timeout=60)


class Stop(BaseException):
    """An interrupt."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers")
@pytest.mark.parametrize("delay", [0.002, 0.01])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_leaves_the_model_as_it_was(kind, delay, sparse):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300_000, 12)) * (rng.random((300_000, 12)) < 0.3)
    rows = sp.csr_array(x) if sparse else x
    model, call = KINDS[kind]()
    call(rows[:500])
    before = model.to_bytes()
    with stopped_after(delay), pytest.raises(Stop):
        call(rows)  # takes longer than the delay
    assert model.to_bytes() == before
    call(rows[:100])


@contextlib.contextmanager
def stopped_after(delay):
    """Raise in a signal handler after a time; not in a callback of garbage collection, which ignores exceptions."""

    def stop(signum, frame):
        raise Stop

    handler = signal.signal(signal.SIGALRM, stop)
    gc.disable()
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        gc.enable()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers")
@pytest.mark.parametrize("kind", ["RobustFrequentDirections", "OnlineNewton"])
def test_an_interrupt_leaves_no_lock(kind):
    """A signal handler may raise right after a call got the lock, or while it waits for it."""
    model, call = KINDS[kind]()
    x, rng = np.ones((3, 2)), np.random.default_rng(0)
    call(x)

    def use():
        while True:
            _ = model.n_samples_seen_ if rng.random() < 0.5 else call(x)

    for _ in range(1000):
        with contextlib.suppress(Stop), stopped_after(2e-5 + 1e-4 * rng.random()):
            use()
    reader = threading.Thread(target=lambda: model.to_bytes(), daemon=True)
    reader.start()
    reader.join(timeout=20)
    assert not reader.is_alive()
