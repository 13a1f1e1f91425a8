"""The untuned learner on ordinary tables beside gradient boosting, a linear model and River's forest.

`make bench ARGS=tables` learns from at most 14,000 rows and tests on at most 10,000 others. Tables in time order are
split in time; the others are shuffled. Numbers are shares of right labels, or R^2. The learner and the forest see each
row once.
"""

import lzma
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import robustfd
from benchmarks.common import save_markdown
from benchmarks.data import folder, load

TRAIN, TEST = 14_000, 10_000
Rows = tuple[Any, Any]


def _of_libsvm(name: str) -> Rows:
    x, y = load(name)
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=float), y


def _of_text(name: str, columns: int) -> Rows:
    path = folder()
    assert path is not None
    with lzma.open(path / f"{name}.xz") as file:
        x, y = datasets.load_svmlight_file(file, n_features=columns)
    return x.toarray(), y


def _of_csv(name: str) -> Rows:
    path = folder()
    assert path is not None
    table = pd.read_csv(path / name).to_numpy(dtype=float)
    return table[:, :-1], table[:, -1]


def _covtype() -> Rows:
    path = folder()
    assert path is not None
    with np.load(path / "covtype.npz") as file:
        return file["X"].astype(float), file["y"]


CLASSES: dict[str, Callable[[], Rows]] = {
    "a9a (income)": partial(_of_libsvm, "a9a"),
    "breast cancer": partial(datasets.load_breast_cancer, return_X_y=True),
    "covtype (2 classes)": _covtype,
    "digits": partial(datasets.load_digits, return_X_y=True),
    "ijcnn1": partial(_of_libsvm, "ijcnn1"),
    "mushrooms": partial(_of_libsvm, "mushrooms"),
    "phishing": partial(_of_text, "phishing", 68),
    "splice": partial(_of_text, "splice", 60),
    "wine": partial(datasets.load_wine, return_X_y=True),
}
IN_TIME = {
    "elec2 (time order)": partial(_of_csv, "elec2.csv.xz"),
    "weather (time order)": partial(_of_csv, "noaa-weather.csv.xz"),
}
NUMBERS = {
    name: partial(_of_csv, f"uci/{name}.csv.gz")
    for name in ("bike", "elevators", "gas", "keggundirected", "kin40k", "protein")
} | {"diabetes": partial(datasets.load_diabetes, return_X_y=True)}


def _split(x: Any, y: Any, in_time: bool) -> tuple[Any, Any, Any, Any]:
    """Return rows and targets to learn from, and to test on."""
    order = np.arange(len(y)) if in_time else np.random.default_rng(0).permutation(len(y))
    train = min(TRAIN, int(0.7 * len(y)))
    first, rest = order[:train], order[train : train + TEST]
    return x[first], y[first], x[rest], y[rest]


def _score_of_forest(x: Any, y: Any, test: Any, truth: Any, numbers: bool) -> float:
    """Return the score of River's adaptive random forest."""
    from river.forest import ARFClassifier, ARFRegressor

    model = (ARFRegressor if numbers else ARFClassifier)(seed=0)
    for row, target in zip(x, y, strict=True):
        model.learn_one(dict(enumerate(row)), target)
    found = np.array([model.predict_one(dict(enumerate(row))) for row in test])
    if not numbers:
        return float(np.mean(found == truth))
    return float(1 - np.mean((found - truth) ** 2) / np.var(truth))


def scores(rows: Callable[[], Rows], *, numbers: bool = False, in_time: bool = False) -> list[float]:
    """Return the scores of the untuned learner, a linear model, gradient boosting and the forest."""
    x, y, test, truth = _split(*rows(), in_time)
    models = [
        robustfd.SketchedNewtonRegressor(random_state=0)
        if numbers
        else robustfd.SketchedNewtonClassifier(random_state=0),
        make_pipeline(StandardScaler(), RidgeCV() if numbers else LogisticRegression(max_iter=2000)),
        HistGradientBoostingRegressor(random_state=0) if numbers else HistGradientBoostingClassifier(random_state=0),
    ]
    found = [float(model.fit(x, y).score(test, truth)) for model in models]
    return [*found, _score_of_forest(x, y, test, truth, numbers)]


def tables() -> None:
    """Compare on all tables, and write results/tables.md."""
    lines = ["| table | robustfd | linear model | gradient boosting | River's forest |", "|---|---|---|---|---|"]
    for kind, group in (("", CLASSES), ("in_time", IN_TIME), ("numbers", NUMBERS)):
        for name, rows in group.items():
            found = scores(rows, **({kind: True} if kind else {}))
            cells = [f"{each:.3f}" if kind == "numbers" else f"{100 * each:.1f} %" for each in found]
            lines.append(f"| {name}{', R^2' if kind == 'numbers' else ''} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    save_markdown("tables", "\n".join(lines))
