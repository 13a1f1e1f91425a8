"""Progressive predictions of Vowpal Wabbit, River and scikit-learn's SGD with their default settings."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from benchmarks import vowpal

Predictions = Iterator[tuple[str, Any]]
_LOG, _HINGE, _SQUARED = range(3)


def predictions(x: Any, y: Any, learned: int, *, numbers: bool) -> Predictions:
    """Yield the name of each peer and its prediction for every row: the class 0, 1, ... or the number.

    Only the first `learned` rows are learned. River runs only on streams where it takes less than minutes. River and
    SGD get features that are standardised on the fly, which both need.
    """
    if vowpal.available():
        yield from _vowpal(x, y, learned, numbers=numbers)
    if x.shape[1] <= 1000:
        yield from _sgd(x.toarray() if sp.issparse(x) else x, y, learned, numbers=numbers)
    if x.shape[0] <= 32000 and x.shape[1] <= 45:
        yield from _river(x, y, learned, numbers=numbers)


def _vowpal(x: Any, y: Any, learned: int, *, numbers: bool) -> Predictions:
    classes = 0 if numbers else int(y.max()) + 1
    oja = "--OjaNewton --sketch_size 10"
    if numbers:
        labels = [f"{value:.9g} " for value in y]
        modes = {"VW squared": "", "VW coin": "--coin", "VW ftrl": "--ftrl", "VW oja": oja}
    else:
        labels = [f"{label + 1 if classes > 2 else 2 * label - 1} " for label in y]
        modes = {"VW log": "", "VW coin": "--coin", "VW ftrl": "--ftrl"} | ({"VW oja": oja} if classes == 2 else {})
        modes = {name: f"{options} --loss_function logistic" for name, options in modes.items()} | {"VW squared": ""}
    several = f" --oaa {classes}" if classes > 2 else ""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        with open(path, "w") as file:
            for i, line in enumerate(vowpal.lines(x)):
                file.write(f"{labels[i] if i < learned else ''}{line}\n")
        for name, options in modes.items():
            p = vowpal.run(
                options + several, x.shape[1] * (8 * classes if classes > 2 else 1), path,
                predictions=Path(directory) / "p",
            )[1]  # fmt: skip
            yield name, p if numbers else p.astype(int) - 1 if classes > 2 else (p > 0).astype(int)


def _river(x: Any, y: Any, learned: int, *, numbers: bool) -> Predictions:
    try:
        from river import linear_model, multiclass, optim, preprocessing
    except ImportError:
        return
    linear: Callable[..., Any] = linear_model.LinearRegression if numbers else linear_model.LogisticRegression
    models = {
        "River SGD": linear(),
        "River AdaGrad": linear(optim.AdaGrad()),
        "River Adam": linear(optim.Adam()),
        "River PA": linear_model.PARegressor() if numbers else linear_model.PAClassifier(),
    }
    if not numbers:
        models["River Perceptron"] = linear_model.Perceptron()
        if y.max() > 1:
            models = {name: multiclass.OneVsRestClassifier(model) for name, model in models.items()}
    labels = y.tolist() if numbers or y.max() > 1 else (y > 0).tolist()
    # All models share one scaler, which learns a row between prediction and step, as it would in a pipeline.
    scaler, found = preprocessing.StandardScaler(), {name: np.full(len(y), np.nan) for name in models}
    for i, values in enumerate((x.toarray() if sp.issparse(x) else x).tolist()):
        row = dict(enumerate(values))
        scaled = scaler.transform_one(row)
        for name, model in models.items():
            p = model.predict_one(scaled)
            found[name][i] = np.nan if p is None else p
        if i < learned:
            scaler.learn_one(row)
            scaled = scaler.transform_one(row)
            for model in models.values():
                model.learn_one(scaled, labels[i])
    yield from found.items()


def _sgd(x: Any, y: Any, learned: int, *, numbers: bool) -> Predictions:
    x = np.ascontiguousarray(x, dtype=np.float64)
    outputs = 1 if numbers or y.max() < 2 else int(y.max()) + 1
    if numbers:
        yield "SGD squared", _descend(x, y.astype(float)[:, None], learned, _SQUARED)[:, 0]
        return
    signs = np.where(y[:, None] == (np.arange(outputs) if outputs > 1 else 1), 1.0, -1.0)
    for name, loss in (("SGD log", _LOG), ("SGD hinge", _HINGE)):
        margins = _descend(x, signs, learned, loss)
        yield name, margins.argmax(axis=1) if outputs > 1 else (margins[:, 0] > 0).astype(int)


def _descend(x: Any, targets: Any, learned: int, loss: int) -> Any:
    """Return margins before each step of SGDClassifier (loss "log_loss" or "hinge") or SGDRegressor ("squared_error").

    This is scikit-learn's rule with default settings and one pass, on rows that are standardised on the fly.
    """
    (n, d), outputs, alpha = x.shape, targets.shape[1], 1e-4
    # "optimal": eta = 1/(alpha (t0 + t - 1)), where t0 makes the first step as large as typical weights.
    t0 = alpha**0.25 / alpha
    w, b, margins = np.zeros((outputs, d)), np.zeros(outputs), np.zeros((n, outputs))
    mean, squares = np.zeros(d), np.zeros(d)

    def scaled(row: Any, rows: int) -> Any:
        spread = np.sqrt(squares / max(rows, 1))
        return np.divide(row - mean, spread, out=np.zeros(d), where=spread > 0)

    for i in range(n):
        margins[i] = w @ scaled(x[i], min(i, learned)) + b
        if i >= learned:
            continue
        step = x[i] - mean
        mean += step / (i + 1)
        squares += step * (x[i] - mean)
        z, eta = scaled(x[i], i + 1), 0.01 / (i + 1) ** 0.25 if loss == _SQUARED else 1 / (alpha * (t0 + i))
        y, p = targets[i], w @ z + b
        if loss == _SQUARED:
            slope = p - y
        elif loss == _HINGE:
            slope = np.where(y * p <= 1, -y, 0.0)
        else:
            slope = -y * expit(-y * p)
        slope = np.clip(slope, -1e12, 1e12)
        w = max(0.0, 1 - eta * alpha) * w - eta * slope[:, None] * z
        b -= eta * slope
    return margins
