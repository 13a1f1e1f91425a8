"""Threads that learn and predict on one model.

The promise: nothing crashes, and the results are those of some order of the calls. All learning calls are the same, so
their order does not matter: the final model must be that of the same number of calls in one thread, and each reader
must see the model between two calls.
"""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustfd

SECONDS = 60.0
APART = True  # run in a separate process, as a failure may damage the heap
CALLS = 12  # learning calls per learning thread


def case(rng: np.random.Generator, folder: Path) -> str:
    """Use one model from several threads."""
    name, model, rows, y = setting(rng)
    learners, readers = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    alone = started(model, name, rows, y)
    expected = {read(alone, rows).tobytes() for _ in steps(alone, name, rows, y, CALLS * learners)}
    model, errors, seen = started(model, name, rows, y), [], []
    done = threading.Event()

    def learn() -> None:
        try:
            for _ in steps(model, name, rows, y, CALLS):
                pass
        except Exception as error:
            errors.append(error)

    def watch() -> None:
        try:
            while not done.is_set():
                seen.append(read(model, rows))
        except Exception as error:
            errors.append(error)

    working = [threading.Thread(target=learn) for _ in range(learners)]
    reading = [threading.Thread(target=watch) for _ in range(readers)]
    for thread in (*reading, *working):
        thread.start()
    for thread in working:
        thread.join()
    done.set()
    for thread in reading:
        thread.join()
    if errors:
        raise errors[0]
    assert model.to_bytes() == alone.to_bytes(), f"{name}: the model is not that of any order of the calls"
    wrong = sum(each.tobytes() not in expected for each in seen)
    assert wrong == 0, f"{name}: {wrong} of {len(seen)} reads saw the model in the middle of a call"
    return name


def setting(rng: np.random.Generator) -> tuple[str, Any, Any, Any]:
    """Return the name of a kind of model, a model, and rows and labels for it."""
    d, size = int(rng.choice([5, 40, 300])), int(rng.choice([3, 10, 30]))
    x = rng.standard_normal((int(rng.choice([1, 7, 50])), d))
    rows: Any = x
    if rng.random() < 0.4:
        rows = sp.csr_array(x * (rng.random(x.shape) < 0.3))
    y = np.where(rng.random(len(x)) < 0.5, 1.0, -1.0)
    y[: min(2, len(y))] = [1.0, -1.0][: len(y)]
    name = str(rng.choice(["newton", "rfdson", "untuned", "regression", "sketch"]))
    kinds: dict[str, Any] = {
        "newton": robustfd.OnlineNewton("rfd", size), "rfdson": robustfd.RFDSONClassifier(size),
        "untuned": robustfd.SketchedNewtonClassifier(), "regression": robustfd.SketchedNewtonRegressor(),
        "sketch": robustfd.RobustFrequentDirections(size),
    }  # fmt: skip
    return name, kinds[name], rows, y


def started(model: Any, name: str, rows: Any, y: Any) -> Any:
    """Return a new model like this one that has learned the rows once."""
    from sklearn.base import clone

    fresh = clone(model)
    next(steps(fresh, name, rows, y, 1))
    return fresh


def steps(model: Any, name: str, rows: Any, y: Any, count: int) -> Any:
    """Learn the same rows repeatedly. Yield the model before the first call, if it is fitted, and after each call."""
    if hasattr(model, "n_features_in_"):
        yield model
    for _ in range(count):
        if name == "newton":
            model.learn(rows, y)
        elif name == "sketch":
            model.partial_fit(rows)
        elif name == "regression":
            model.partial_fit(rows, y)
        else:
            model.partial_fit(rows, y, classes=[-1.0, 1.0])
        yield model


def read(model: Any, rows: Any) -> Any:
    """Return what the model says of the rows."""
    if hasattr(model, "decision_function"):
        return np.array(model.decision_function(rows))
    return np.array(model.predict(rows) if hasattr(model, "predict") else model.singular_values_)
