"""Accuracy without tuning: SketchedNewtonClassifier with default options compared with five modes of Vowpal Wabbit.

70/30 split, five random orders; test accuracy and progressive error in percent. Constants of the learner were chosen on
the sets with a *. Run it with `make bench ARGS=untuned`, or `python -m benchmarks.untuned NAMES` to measure some data
sets and keep the other lines. With `--here`, the columns of Vowpal Wabbit, which do not depend on this library, are
kept as well. Data sets missing in ROBUSTFD_DATA are skipped.
"""

import lzma
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from benchmarks import tables, vowpal
from benchmarks.common import RESULTS, save_markdown
from benchmarks.data import folder, load
from robustfd import SketchedNewtonClassifier

ORDERS = 5
PASSES = (
    "Vowpal Wabbit learns each row once. `fit` learns 8 to 100 rows a feature twice and fewer than 256 rows three "
    "times, which counts for the accuracy, not for the progressive error."
)


def _real(name: str, label: Callable[[Any], Any], rows: int | None = None) -> tuple[Any, Any]:
    x, y = load(name)
    return x[:rows], label(y[:rows]).astype(int)


def _sector() -> tuple[Any, Any]:
    path = folder()
    assert path is not None
    with lzma.open(path / "sector.scale.xz") as file:
        x, y = datasets.load_svmlight_file(file, n_features=55_197)
    return sp.csr_array(x), y.astype(int) - 1


def _covtype() -> tuple[Any, Any]:
    x, y = tables._covtype()
    return x, (y == y.max()).astype(int)


def _raw(x: Any, seed: int) -> Any:
    """Return the columns with random means and scales."""
    rng = np.random.default_rng(seed)
    return (x + rng.standard_normal(x.shape[1])) * 10 ** rng.uniform(-3, 4, x.shape[1])


def _generated(n: int, d: int, seed: int, *, raw: bool = False, **options: Any) -> tuple[Any, Any]:
    options = {"n_informative": d // 2, "n_redundant": d // 4, **options}
    x, y = datasets.make_classification(n, d, random_state=seed, **options)
    return (_raw(x, seed) if raw else x), y


def _correlated(n: int, d: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((d, d)) * np.exp(-np.arange(d) / 8)[:, None]
    x = rng.standard_normal((n, d)) @ mixing + 0.1 * rng.standard_normal((n, d))
    score = x @ np.linalg.solve(np.cov(x.T) + 0.01 * np.eye(d), rng.standard_normal(d))
    return x, (score + 0.3 * score.std() * rng.standard_normal(n) > 0).astype(int)


def _one_hot(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    columns, score = [], np.full(n, -1.5)
    for size in (50, 20, 10, 5, 2):
        value = rng.choice(size, size=n, p=rng.dirichlet(np.ones(size)))
        score += rng.standard_normal(size)[value]
        columns.append(np.eye(size)[value])
    return sp.csr_array(np.hstack(columns)), (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


REAL: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a9a": lambda: _real("a9a", lambda y: y > 0),
    "farm-ads": lambda: _real("farm-ads", lambda y: y > 0),
    "ijcnn1": lambda: _real("ijcnn1", lambda y: y > 0),
    "mushrooms": lambda: _real("mushrooms", lambda y: y > 0),
    "news20, 1-10 against the rest": lambda: _real("news20", lambda y: y <= 10),
    "mnist, even against odd": lambda: _real("mnist", lambda y: y % 2 == 0, 20000),
    "mnist, 10 classes": lambda: _real("mnist", lambda y: y, 20000),
    "news20, 20 classes": lambda: _real("news20", lambda y: y - 1),
    "w8a": lambda: _real("w8a", lambda y: y > 0),
    "rcv1-subsets": lambda: _real("rcv1-subsets", lambda y: y > 0),
    "covtype, 2 classes": _covtype,
    "sector, 105 classes": _sector,
}
CHOSEN = ("a9a", "farm-ads", "ijcnn1", "breast cancer")  # constants were chosen on these (benchmarks/experts.py)
SETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    **REAL,
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine, class 1": lambda: (datasets.load_wine().data, (datasets.load_wine().target == 1).astype(int)),
    "digits, even against odd": lambda: (datasets.load_digits().data, datasets.load_digits().target % 2),
    "generated": lambda: _generated(5000, 20, 0),
    "generated, raw scales": lambda: _generated(5000, 20, 1, raw=True),
    "generated, raw scales, 400 rows": lambda: _generated(400, 20, 3, raw=True),
    "generated, 3 % positive": lambda: _generated(8000, 20, 6, weights=[0.97]),
    "generated, noisy": lambda: _generated(5000, 30, 7, flip_y=0.4),
    "correlated": lambda: _correlated(8000, 60, 0),
    "one-hot": lambda: _one_hot(8000, 0),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "generated, 5 classes": lambda: _generated(5000, 20, 11, n_classes=5, n_informative=10),
}


def _modes(d: int, classes: int) -> dict[str, str]:
    m = 10 if d <= 300 else 20
    modes = {"squared": "", "logistic": "--loss_function logistic", "coin": "--coin --loss_function logistic"}
    oja = f"--OjaNewton --sketch_size {m}"
    modes |= {"oja": oja, "oja, logistic": f"{oja} --loss_function logistic"} if classes == 2 else {}
    return {name: f"{options} --oaa {classes}" if classes > 2 else options for name, options in modes.items()}


def _with_vowpal(options: str, lines: list[str], y: Any, d: int, train: Any, test: Any) -> tuple[Any, Any]:
    """Return the progressive predictions and those of the test rows.

    The test rows follow without labels in the same file, because saved models predict 0 in some modes.
    """
    classes = int(y.max()) + 1
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows"
        with open(path, "w") as file:
            for i in train:
                file.write(f"{y[i] + 1 if classes > 2 else 2 * y[i] - 1} {lines[i]}\n")
            for i in test:
                file.write(f"{lines[i]}\n")
        p = vowpal.run(options, d * (8 * classes if classes > 2 else 1), path, predictions=Path(directory) / "p")[1]
    p = p.astype(int) - 1 if classes > 2 else (p > 0).astype(int)
    return p[: len(train)], p[len(train) :]


def _with_robustfd(x: Any, y: Any, train: Any, test: Any) -> tuple[float, float]:
    model = SketchedNewtonClassifier(random_state=0).fit(x[train], y[train])
    return 100 * model.score(x[test], y[test]), 100 * model.progressive_error_


def _cuts(n: int) -> list[tuple[Any, Any]]:
    """Return the rows to learn from and to test on, in each order."""
    orders = [np.random.default_rng(1000 + k).permutation(n) for k in range(ORDERS)]
    return [(order[: int(0.7 * n)], order[int(0.7 * n) :]) for order in orders]


def compare(x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    """Return test accuracy and progressive error of robustfd and of each mode of Vowpal Wabbit, if it is installed.

    Each row of the result is one random order.
    """
    cuts = _cuts(len(y))
    ours = np.array([_with_robustfd(x, y, *cut) for cut in cuts])
    theirs: dict[str, Any] = {}
    if vowpal.available():
        lines = vowpal.lines(x)
        for mode, options in _modes(x.shape[1], int(y.max()) + 1).items():
            scores = []
            for train, test in cuts:
                early, late = _with_vowpal(options, lines, y, x.shape[1], train, test)
                scores.append((100 * np.mean(late == y[test]), 100 * np.mean(early != y[train])))
            theirs[mode] = np.array(scores)
    return ours, theirs


def untuned(arguments: list[str] | None = None) -> None:
    """Print and save the table."""
    here = "--here" in (arguments or [])
    names = [each for each in arguments or [] if each != "--here"]
    head = [
        "| data | accuracy here | best VW | default VW | progressive error here | best VW | default VW | |",
        "|" + "---|" * 8,
    ]
    print("\n".join(head), flush=True)
    path, found = RESULTS / "untuned.md", dict[str, list[float]]()
    for line in path.read_text().splitlines() if (names or here) and path.exists() else ():
        if line.startswith("| ") and line not in head:
            name, *numbers = line.strip("| ").split(" | ")
            found[name.rstrip("*")] = [float(each) for each in numbers[:6]]
    for name in names or SETS:
        if name in REAL and folder() is None:
            continue
        if here:
            x, y = SETS[name]()
            found[name][::3] = np.mean([_with_robustfd(x, y, *cut) for cut in _cuts(len(y))], axis=0).tolist()
        else:
            found[name] = _numbers(*compare(*SETS[name]()))
        print(_line(name, found[name]), flush=True)
    lines = [_line(name, found[name]) for name in SETS if name in found]
    about = f"{len(lines)} data sets. Constants of the learner were chosen on those with a *. {PASSES}"
    if names:
        about += f" This run measured {', '.join(names)}; the other lines are those of earlier runs."
    if here:
        about += " The columns of Vowpal Wabbit are those of earlier runs."
    save_markdown("untuned", "\n".join([about, "", *head, *lines]), "vowpalwabbit")


def _numbers(each: Any, modes: dict[str, Any]) -> list[float]:
    """Return accuracy and progressive error here, of the best and of the default mode of Vowpal Wabbit."""
    ours, theirs = each.mean(axis=0), {mode: scores.mean(axis=0) for mode, scores in modes.items()}
    usual = theirs.get("squared", (np.nan, np.nan))
    accuracy = max((scores[0] for scores in theirs.values()), default=np.nan)
    error = min((scores[1] for scores in theirs.values()), default=np.nan)
    return [float(each) for each in (ours[0], accuracy, usual[0], ours[1], error, usual[1])]


def _line(name: str, numbers: list[float]) -> str:
    """Return a line of the table, with a verdict."""
    right, best, usual, wrong, least, common = numbers
    verdict = "best" if right >= best - 0.005 and wrong <= least + 0.005 else ""
    if right < usual - 0.3 or wrong > common + 0.3:
        verdict = "WORSE than the default"
    return f"| {name + '*' * (name in CHOSEN)} | " + " | ".join(f"{each:.2f}" for each in numbers) + f" | {verdict} |"


if __name__ == "__main__":
    untuned(sys.argv[1:] or None)
