"""Speed of the untuned learner: microseconds per row with `fit`, and with one dict per call.

`python -m benchmarks.run untuned_speed` uses the default number of BLAS threads; `make bench` uses one.
"""

from typing import Any

import numpy as np

from benchmarks.common import report, seconds
from benchmarks.data import folder, load
from benchmarks.sketch_speed import _row
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor


def _streams() -> list[tuple[str, Any, Any, Any, float | None]]:
    """Return name, learner, rows, targets and the goal in microseconds per row."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50_000, 30))
    found: list[tuple[str, Any, Any, Any, float | None]] = [
        ("dense, 30 features", SketchedNewtonClassifier, x, x @ rng.standard_normal(30) > 0, 2.0),
        ("dense, 26 features, numbers", SketchedNewtonRegressor, x[:, :26], x[:, :26] @ rng.standard_normal(26), 1.5),
    ]
    if folder() is not None:
        for name, goal in (("a9a", 1.2), ("farm-ads", 8.0), ("news20", 4.0)):
            rows, y = load(name)
            found.append((f"{name}, CSR", SketchedNewtonClassifier, rows, y <= 10 if name == "news20" else y > 0, goal))
            if name == "news20":
                found.append((f"{name}, 20 classes", SketchedNewtonClassifier, rows, y, None))
        rows, y = load("mnist")
        order = np.random.default_rng(0).permutation(20_000)
        found.append(("mnist, dense", SketchedNewtonClassifier, rows[order].astype(float), y[order] % 2, 8.0))
    return found


def untuned_speed() -> None:
    """Print and save microseconds per row."""
    results, binary = [], 0.0
    for name, kind, x, y, goal in _streams():
        kind().fit(x[:300], y[:300])  # imports
        best = seconds({"fit": lambda x=x, y=y, kind=kind: kind().fit(x, y)}, 5)["fit"] / len(y) * 1e6
        results.append(_row(name, best, "us/row", most=goal) if goal else _row(name, best, "us/row"))
        binary = best if name == "news20, CSR" else binary
        if name == "news20, 20 classes":
            results.append(_row("  times that of two classes", best / binary, "", most=4.0))
    rng = np.random.default_rng(0)
    rows = [{f"f{j}": float(value) for j, value in enumerate(row)} for row in rng.standard_normal((3000, 30))]
    model = SketchedNewtonClassifier()

    def learn() -> None:
        for row in rows:
            model.learn_one(row, int(row["f0"] > 0))

    def predict() -> None:
        for row in rows:
            model.predict_one(row)

    learn()  # imports
    best = seconds({"learn": learn, "predict": predict}, 5)
    results.append(_row("learn_one of a dict with 30 features", best["learn"] / len(rows) * 1e6, "us", most=20.0))
    results.append(_row("predict_one", best["predict"] / len(rows) * 1e6, "us", most=10.0))
    report("untuned_speed", results)
