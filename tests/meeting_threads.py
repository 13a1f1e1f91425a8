"""Threads that meet in one model, run as a process of its own: where they clash, memory is damaged and it dies."""

import copy
import pickle
import sys
import threading

import numpy as np
import scipy.sparse as sp

import robustfd as rf

BATCHES, ROWS, FEATURES = 12, 25, 12

LEARNERS = {
    "rfd": lambda: rf.OnlineNewton("rfd", 10),
    "full": lambda: rf.OnlineNewton("full", alpha0=1.0),
    "rp": lambda: rf.OnlineNewton("rp", 6, alpha0=1e3, random_state=0),
    "oja": lambda: rf.OnlineNewton("oja", 6, alpha0=1e3, random_state=0),
    "adagrad": lambda: rf.AdaGrad(),
    "descent": lambda: rf.OnlineGradientDescent(),
    "RFDSONClassifier": lambda: rf.RFDSONClassifier(10),
    "RFDSONRegressor": lambda: rf.RFDSONRegressor(10),
    "SketchedNewtonClassifier": lambda: rf.SketchedNewtonClassifier(),
    "SketchedNewtonRegressor": lambda: rf.SketchedNewtonRegressor(4),
    "sketch": lambda: rf.RobustFrequentDirections(6),
    "SketchedPCA": lambda: rf.SketchedPCA(3, sketch_size=6),
    "SketchedRidge": lambda: rf.SketchedRidge(1e4, sketch_size=6),
    "MahalanobisDetector": lambda: rf.MahalanobisDetector(6),
}


def stream(sparse):
    """Return batches of rows with labels, and rows to predict."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCHES + 1, ROWS, FEATURES))
    y = np.where(x.sum(axis=2) > 0, 1.0, -1.0)
    wrap = sp.csr_array if sparse else np.asarray
    return [(wrap(each), labels) for each, labels in zip(x[1:], y[1:], strict=True)], wrap(x[0])


def learn(model, x, y):
    """Let the model learn a batch."""
    if hasattr(model, "learn"):
        model.learn(x, y)
    elif hasattr(model, "classes_") or isinstance(model, rf.SketchedNewtonClassifier | rf.RFDSONClassifier):
        model.partial_fit(x, y, classes=[-1.0, 1.0])
    else:
        model.partial_fit(x, y)


def read(model, x):
    """Return what the model says of rows, and how many rows it has seen by then, in as many ways as there are."""
    for name in ("decision_function", "predict", "transform", "bracket_mahalanobis"):
        if hasattr(model, name):
            return np.asarray(getattr(model, name)(x))
    raise AssertionError(model)


def run(*functions):
    """Run functions in threads of their own and raise the first error of any."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def readers_meet_a_learner(make, *, sparse):
    """Three readers see the states between two batches only, whole; so do copies and pickles."""
    batches, x = stream(sparse)
    model, serial = make(), make()
    learn(model, *batches[0])
    learn(serial, *batches[0])
    said = [read(serial, x)]
    for batch in batches[1:]:
        learn(serial, *batch)
        said.append(read(serial, x))
    finished, seen = threading.Event(), []

    def go_on():
        for batch in batches[1:]:
            learn(model, *batch)
        finished.set()

    def look():
        while not finished.is_set():
            seen.append(read(model, x))
            assert model.n_samples_seen_ % ROWS == 0

    def take_copies():
        while not finished.is_set():
            seen.append(read(copy.copy(model), x))
            seen.append(read(pickle.loads(pickle.dumps(model)), x))

    run(go_on, look, look, take_copies)
    assert np.array_equal(read(model, x), said[-1])
    for each in seen:
        assert any(np.allclose(each, state, rtol=1e-9, atol=1e-12) for state in said), "a state between two batches"


def two_learners_meet(make, *, sparse):
    """No row is lost, and two batches are learnt in one order or the other."""
    batches, x = stream(sparse)
    model = make()
    learn(model, *batches[0])
    before = copy.deepcopy(model)
    run(*(lambda part=part: [learn(model, *batch) for batch in part] for part in (batches[1::2], batches[2::2])))
    assert model.n_samples_seen_ == BATCHES * ROWS
    read(model, x)
    for _ in range(6):
        one, orders = copy.deepcopy(before), []
        run(lambda one=one: learn(one, *batches[1]), lambda one=one: learn(one, *batches[2]))
        for order in ((1, 2), (2, 1)):
            serial = copy.deepcopy(before)
            for i in order:
                learn(serial, *batches[i])
            orders.append(read(serial, x))
        assert any(np.array_equal(read(one, x), each) for each in orders), "one order or the other"


def single_rows_meet():
    """Dicts whose features appear meet predictions."""
    for kind in (rf.SketchedNewtonClassifier, rf.RFDSONClassifier):
        model, finished = kind(), threading.Event()
        model.learn_one({"a": 1.0}, 1)

        def go_on(names, model=model):
            for i in range(160):
                model.learn_one({f"{names}{i % 40}": 1.0, "a": 0.5}, i % 2)

        def both(model=model, finished=finished, go_on=go_on):
            run(lambda: go_on("b"), lambda: go_on("c"))
            finished.set()

        def look(model=model, finished=finished):
            while not finished.is_set():
                model.predict_one({"a": 1.0, "b3": 2.0})
                assert abs(sum(model.predict_proba_one({"c3": 1.0}).values()) - 1) < 1e-9

        run(both, look, look)
        assert model.n_samples_seen_ == 321
        assert set(model.vocabulary_) == {"a"} | {f"{name}{i}" for name in "bc" for i in range(40)}
        assert sorted(model.vocabulary_.values()) == list(range(81))


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    meeting = sys.argv[1]
    if meeting == "single":
        single_rows_meet()
    else:
        for sparse in (False, True):
            for name, make in LEARNERS.items():
                print(name, sparse, flush=True)
                (readers_meet_a_learner if meeting == "readers" else two_learners_meet)(make, sparse=sparse)
