"""Several quantiles of one model: their time relative to one quantile, and their loss relative to one model for each.

`make bench ARGS=quantiles` prints the table and writes results/quantiles.md. The first part of the rows trains, the
rest tests. The constants were chosen on other streams (normal, exponential and t noise, drift, words, Friedman 1).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn import datasets

from benchmarks.common import save_markdown, seconds
from benchmarks.data import folder
from benchmarks.many import _words
from robustfd import SketchedNewtonRegressor

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def _linear(n: int, d: int, seed: int, draw: Callable[[Any, int], Any], growth: float) -> tuple[Any, Any]:
    """Return rows and targets whose noise grows with one direction of the rows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    w, v = rng.standard_normal((2, d)) / np.sqrt(d)
    return x, x @ w + 0.5 * np.exp(growth * np.clip(x @ v, -2, 2)) * draw(rng, n)


def sets() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield names and data. covtype (elevation from the other columns) only if it is in ROBUSTFD_DATA."""
    yield "gamma noise, 5 features", _linear(30000, 5, 100, lambda rng, n: rng.gamma(2.0, size=n), 0.4)
    yield "normal noise, 20 features", _linear(30000, 20, 101, lambda rng, n: rng.standard_normal(n), 0.5)
    yield "Laplace noise, 60 features", _linear(20000, 60, 102, lambda rng, n: rng.laplace(size=n), 0.3)
    yield "uniform noise, 150 features", _linear(15000, 150, 103, lambda rng, n: rng.uniform(-1, 1, n), 0.0)
    yield "Friedman 2", datasets.make_friedman2(20000, noise=100.0, random_state=104)
    yield "Friedman 3", datasets.make_friedman3(20000, noise=0.1, random_state=105)
    x, rng = _words(6000, 4000, 106)[0], np.random.default_rng(106)
    yield "words", (x, x @ rng.standard_normal(4000) + rng.exponential(size=6000))
    path = folder()
    if path is not None and (path / "covtype.npz").exists():
        with np.load(path / "covtype.npz") as file:
            x = max((file[name] for name in file.files), key=lambda array: array.ndim)
        some = np.random.default_rng(0).choice(len(x), 30000, replace=False)
        x = x[some].astype(float)
        yield "covtype, elevation", (x[:, 1:], x[:, 0])


def _model(levels: Any) -> SketchedNewtonRegressor:
    return SketchedNewtonRegressor(loss="quantile", quantile=levels, shuffle=False)


def _loss(y: Any, predicted: Any) -> float:
    residual = y[:, None] - predicted
    return float((residual * (np.array(LEVELS) - (residual < 0))).mean())


def quantiles() -> None:
    """Print and save the table."""
    table = [
        "| data | rows x features | time of five levels / one | loss of test rows / five models | progressive loss |",
        "|---|---|---|---|---|",
    ]
    found = []
    for name, (x, y) in sets():
        cut = int(0.7 * len(y))
        alone, together = (
            [_model(level).fit(x[:cut], y[:cut]) for level in LEVELS],
            _model(LEVELS).fit(x[:cut], y[:cut]),
        )
        each = np.column_stack([model.predict(x[cut:]) for model in alone])
        tasks = {str(levels): partial(_model(levels).fit, x[:cut], y[:cut]) for levels in (*LEVELS, LEVELS)}
        times = list(seconds(tasks, 5).values())
        losses = _loss(y[cut:], together.predict(x[cut:])) / _loss(y[cut:], each)
        early = together.progressive_loss_ / np.mean([model.progressive_loss_ for model in alone])
        found.append((times[-1] / np.mean(times[:-1]), losses, early))
        table.append(f"| {name} | {x.shape[0]} x {x.shape[1]} | {found[-1][0]:.2f} | {losses:.4f} | {early:.4f} |")
        print(table[-1], flush=True)
    table.append("| mean | | " + " | ".join(f"{value:.4f}" for value in np.mean(found, axis=0)) + " |")
    print(table[-1])
    save_markdown("quantiles", "\n".join(table))


if __name__ == "__main__":
    quantiles()
