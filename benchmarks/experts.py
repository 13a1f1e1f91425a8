"""The untuned learner on the sets that its experts were chosen on, and on others that had no say.

    python -m benchmarks.experts run FILE [--learner robustfd|lr|vw] [--orders N] [sets ...]
    python -m benchmarks.experts compare OLD NEW [--lr FILE] [--vw FILE]

`run` learns 70 % of the rows in one pass, in random orders (5 below 2,500 rows, 3 below 12,000, else 2), and tests on
the others. It adds the figures of each set and order to a JSON file at once, and skips those that the file has.
Classes: accuracy and progressive error in percent, log loss; numbers: R^2 and progressive R^2; then microseconds of CPU
time a row. LR is LogisticRegression with C of 0.01, 1 and 100 chosen by cross-validation, or RidgeCV for numbers. VW
has five modes. `compare` prints the differences between two files.
"""

import argparse
import json
import lzma
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from sklearn import datasets
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from benchmarks import many, tables, untuned, vowpal
from benchmarks.data import folder, load
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

Rows = tuple[Any, Any]


def _spectrum(d: int, power: float, seed: int, n: int = 8000, *, noise: float = 0.05, easy: bool = False) -> Rows:
    """Return rows with singular values i^-power in a random basis; `noise` is the part of wrong labels.

    The weights are even over directions of unit variance or, if it is easy, over the rows themselves.
    """
    rng = np.random.default_rng(seed)
    z, basis = rng.standard_normal((n, d)), np.linalg.qr(rng.standard_normal((d, d)))[0]
    scaled = z / np.arange(1, d + 1) ** power
    score = (scaled if easy else z) @ rng.standard_normal(d)
    return scaled @ basis, (score > 0) ^ (rng.random(n) < noise)


def _spectrum_of_numbers(d: int, power: float, seed: int, noise: float, n: int = 8000) -> Rows:
    rng = np.random.default_rng(seed)
    z, basis = rng.standard_normal((n, d)), np.linalg.qr(rng.standard_normal((d, d)))[0]
    score = z @ rng.standard_normal(d) / np.sqrt(d)
    return (z / np.arange(1, d + 1) ** power) @ basis, score + noise * rng.standard_normal(n)


def _text(name: str, d: int, *, rows: int | None = None, positive: float = 0.0) -> Rows:
    """Return rows of a LIBSVM file, evenly chosen; a label above `positive` is 1."""
    path = folder()
    assert path is not None
    with lzma.open(path / f"{name}.xz") as file:
        x, y = datasets.load_svmlight_file(file, n_features=d)
    return _some((sp.csr_array(x), y > positive), rows)


def _matlab(name: str) -> Rows:
    path = folder()
    assert path is not None
    with lzma.open(path / f"{name}.mat.xz") as file:
        found = scipy.io.loadmat(file)
    x, y = found["X"], found["Y"].ravel()
    return (sp.csr_array(x) if np.mean(x != 0) < 0.25 else x).astype(float), y == y.max()


def _some(rows: Rows, count: int | None) -> Rows:
    x, y = rows
    which = np.linspace(0, len(y) - 1, min(count or len(y), len(y))).astype(int)
    return x[which], np.asarray(y)[which]


def _labels(rows: Callable[[], Rows], label: Callable[[Any], Any], count: int | None = None) -> Rows:
    x, y = _some(rows(), count)
    return x, label(np.asarray(y))


def _few_rows(seed: int) -> Rows:
    return datasets.make_classification(200, 1000, n_informative=20, n_redundant=20, random_state=seed)


def _digits() -> Rows:
    return datasets.load_digits(return_X_y=True)


CHOOSE: dict[str, Callable[[], Rows]] = {
    "spec150/1.3": partial(_spectrum, 150, 1.3, 0, 20_000),
    "spec40/1": partial(_spectrum, 40, 1.0, 0),
    "spec60/1.5": partial(_spectrum, 60, 1.5, 0, 12_000, noise=0.0),
    "a9a": untuned.SETS["a9a"],
    "breast": untuned.SETS["breast cancer"],
    "splice": partial(_text, "splice", 60),
    "phishing": partial(_text, "phishing", 68),
    "ijcnn1 20k": partial(_text, "ijcnn1.trn", 22, rows=20_000),
    "words10": partial(many._words, 3000, 8000, 10),
    "words11": partial(many._words, 3000, 8000, 11),
    **{f"200x1000 {seed}": partial(_few_rows, seed) for seed in (10, 11, 12, 13)},
    "reuters": partial(_text, "reuters.trn", 8315),
    "RELATHE": partial(_matlab, "RELATHE"),
    "PCMAC": partial(_matlab, "PCMAC"),
    "farm": untuned.SETS["farm-ads"],
}
REPORT: dict[str, Callable[[], Rows]] = {
    "mushrooms": untuned.SETS["mushrooms"],
    "w8a 20k": partial(_text, "w8a", 300, rows=20_000),
    "splice.t": partial(_text, "splice.t", 60),
    "BASEHOCK": partial(_matlab, "BASEHOCK"),
    "madelon": partial(_matlab, "madelon"),
    "sector 2": partial(_text, "sector.scale", 55_197, positive=52),
    "news20 2": untuned.SETS["news20, 1-10 against the rest"],
    "rcv1-sub 10k": partial(_text, "rcv1-subsets", 47_236, rows=10_000),
    "spam 2": partial(_text, "spam-stream", 39_916),
    "covtype 30k": partial(_labels, tables._covtype, lambda y: y == y.max(), 30_000),
    "mnist 8k": partial(_labels, partial(load, "mnist"), lambda y: y % 2 == 0, 8000),
    "elec2 iid": tables.IN_TIME["elec2 (time order)"],
    "noaa iid": tables.IN_TIME["weather (time order)"],
    **{f"words{seed}": partial(many._words, 3000, 8000, seed) for seed in range(3)},
    **{f"200x1000 {seed}": partial(_few_rows, seed) for seed in range(3)},
    "spec150/1.3 b": partial(_spectrum, 150, 1.3, 1, 20_000, noise=0.0),
    "spec100/1": partial(_spectrum, 100, 1.0, 1),
    "spec60/2": partial(_spectrum, 60, 2.0, 1),
    "spec200/1.5": partial(_spectrum, 200, 1.5, 1, noise=0.1),
    "spec20/1.5": partial(_spectrum, 20, 1.5, 1),
    "correlated": partial(untuned._correlated, 8000, 60, 1),
    "easy120/1": partial(_spectrum, 120, 1.0, 1, easy=True),
    "diabetes": partial(_labels, partial(datasets.load_diabetes, return_X_y=True), lambda y: y > 140),
    "wine 1": untuned.SETS["wine, class 1"],
    "digits odd": untuned.SETS["digits, even against odd"],
    "digits 3/8": partial(many._pair, _digits, 3, 8),
    "iris 1": partial(_labels, partial(datasets.load_iris, return_X_y=True), lambda y: y == 1),
    "normal wide": partial(many._normal, 4000, 200, 0),
    "binary": partial(many._binary, 3000, 60, 0),
    "counts": partial(many._counts, 3000, 40, 0),
    "skewed": partial(many._skewed, 3000, 20, 0),
    "one-hot": partial(untuned._one_hot, 3000, 5),
    "gen 3000x100": partial(untuned._generated, 3000, 100, 20, flip_y=0.05),
    "gen 2000x500": partial(untuned._generated, 2000, 500, 20, flip_y=0.05),
}
# Sets that the trial did not have: several classes, generated rows of untuned.py, more features than its exact Hessian.
MORE: dict[str, Callable[[], Rows]] = {
    name: rows
    for name, rows in untuned.SETS.items()
    if "classes" in name or "generated" in name or name in ("digits", "wine", "iris")
} | {"spec300/1.3": partial(_spectrum, 300, 1.3, 0), "spec400/1": partial(_spectrum, 400, 1.0, 0)}
CHOOSE_NUMBERS: dict[str, Callable[[], Rows]] = {
    "R spec150/1.3": partial(_spectrum_of_numbers, 150, 1.3, 0, 0.1),
    "R spec50/1": partial(_spectrum_of_numbers, 50, 1.0, 0, 0.4),
    "R bike": tables.NUMBERS["bike"],
    "R elevators": tables.NUMBERS["elevators"],
    "R diabetes": tables.NUMBERS["diabetes"],
    "R friedman": partial(datasets.make_friedman1, 5000, noise=1.0, random_state=0),
}
REPORT_NUMBERS: dict[str, Callable[[], Rows]] = {
    "R spec100/1.5": partial(_spectrum_of_numbers, 100, 1.5, 1, 1 / 3),
    "R spec200/1": partial(_spectrum_of_numbers, 200, 1.0, 1, 0.03),
    **{f"R {name}": tables.NUMBERS[name] for name in ("gas", "protein", "kin40k", "keggundirected")},
    "R make_regression": partial(datasets.make_regression, 3000, 40, noise=50.0, random_state=0),
}
GROUPS = {
    "CHOOSE": CHOOSE, "REPORT": REPORT, "MORE": MORE, "NUMBERS, CHOOSE": CHOOSE_NUMBERS,
    "NUMBERS, REPORT": REPORT_NUMBERS,
}  # fmt: skip


def _orders(n: int) -> int:
    return 5 if n < 2500 else 3 if n < 12_000 else 2


def _ours(x: Any, y: Any, train: Any, test: Any, numbers: bool) -> list[float]:
    model: Any = (SketchedNewtonRegressor if numbers else SketchedNewtonClassifier)(random_state=0)
    rows, start = x[train], time.process_time()
    model.fit(rows, y[train])
    took = 1e6 * (time.process_time() - start) / len(train)
    if numbers:
        return [model.score(x[test], y[test]), 1 - model.progressive_loss_ / np.var(y[train]), took]
    p = model.predict_proba(x[test])
    loss = log_loss(y[test], p, labels=model.classes_)
    return [100 * np.mean(model.classes_[p.argmax(axis=1)] == y[test]), 100 * model.progressive_error_, loss, took]


def _batch(x: Any, y: Any, train: Any, test: Any, numbers: bool) -> list[float]:
    """Return the figures of the batch learner; it has no progressive error."""
    scale = StandardScaler() if not sp.issparse(x) else MaxAbsScaler() if x.shape[1] < 1000 else None
    last: Any = RidgeCV(np.logspace(-3, 3, 13))
    if not numbers:
        solver = "newton-cholesky" if x.shape[1] <= 512 and y.max() == 1 else "lbfgs"
        last = LogisticRegressionCV(Cs=[0.01, 1, 100], cv=3, scoring="neg_log_loss", max_iter=300, solver=solver)
    start = time.process_time()
    model = make_pipeline(scale, last).fit(x[train], y[train])
    took = 1e6 * (time.process_time() - start) / len(train)
    if numbers:
        return [r2_score(y[test], model.predict(x[test])), np.nan, took]
    loss = log_loss(y[test], model.predict_proba(x[test]), labels=model.classes_)
    return [100 * np.mean(model.predict(x[test]) == y[test]), np.nan, loss, took]


def _vowpal(lines: list[str], x: Any, y: Any, train: Any, test: Any) -> dict[str, list[float]]:
    found = {}
    for mode, options in untuned._modes(x.shape[1], int(y.max()) + 1).items():
        early, late = untuned._with_vowpal(options, lines, y, x.shape[1], train, test)
        found[mode] = [100 * np.mean(late == y[test]), 100 * np.mean(early != y[train])]
    return found


def run(path: Path, learner: str, names: list[str], orders: int | None) -> None:
    """Add the figures of the learner to the file."""
    known = json.loads(path.read_text()) if path.exists() else {}
    for group, sets in GROUPS.items():
        numbers = group.startswith("NUMBERS")
        for name, make in sets.items():
            if (names and name not in names) or (numbers and learner == "vw"):
                continue
            data: Any = None
            found = known.setdefault(name, {})
            for order in range(orders or 5):
                if str(order) in found or (data and order >= (orders or data[2])):
                    continue
                if data is None:
                    x, y = make()
                    data = x, np.asarray(y) if numbers else np.asarray(y).astype(int), _orders(len(y))
                    lines = vowpal.lines(x) if learner == "vw" else []
                    if order >= (orders or data[2]):
                        break
                x, y, _ = data
                shuffled = np.random.default_rng(order).permutation(len(y))
                cut = shuffled[: int(0.7 * len(y))], shuffled[int(0.7 * len(y)) :]
                if learner == "vw":
                    found[str(order)] = _vowpal(lines, x, y, *cut)
                else:
                    found[str(order)] = (_ours if learner == "robustfd" else _batch)(x, y, *cut, numbers)
                path.write_text(json.dumps(known, indent=0))
                print(f"{name:24s} {order} {found[str(order)]}", flush=True)


def _best(entry: Any) -> Any:
    """Return the best accuracy and progressive error of the modes of VW, by their means over the orders."""
    modes = {mode: np.mean([each[mode] for each in entry.values()], axis=0) for mode in next(iter(entry.values()))}
    return np.array([max(m[0] for m in modes.values()), min(m[1] for m in modes.values())])


def _differences(old: Any, new: Any, numbers: bool) -> Any:
    """Return (orders, figures): differences, except quotients of log loss and of time."""
    orders = sorted(old.keys() & new.keys())
    a, b = (np.array([each[order] for order in orders], float) for each in (old, new))
    if numbers:
        return np.column_stack([b[:, :2] - a[:, :2], b[:, 2] / a[:, 2]])
    loss = np.maximum([a[:, 2], b[:, 2]], 1e-4)
    return np.column_stack([b[:, :2] - a[:, :2], 100 * (loss[1] / loss[0] - 1), b[:, 3] / a[:, 3]])


def compare(old: Any, new: Any, lr: Any, vw: Any) -> None:
    """Print the differences of two files by group of sets: means, then every set that changes or is behind."""
    for group, sets in GROUPS.items():
        numbers, names = group.startswith("NUMBERS"), [name for name in sets if old.get(name) and new.get(name)]
        if not names:
            continue
        each = {name: _differences(old[name], new[name], numbers) for name in names}
        means = np.array([d.mean(axis=0) for d in each.values()])
        worst = [names[k] for k in (means[:, 0].argmin(), (means[:, 1] * (-1 if numbers else 1)).argmax())]
        print(f"\n{group} ({len(names)} sets)", end=": ")
        unit = ".4f" if numbers else ".2f"
        loss = "" if numbers else f"log loss {means[:, 2].mean():+.1f} %, "
        print(f"score {means[:, 0].mean():+{unit}} (worst {means[:, 0].min():+{unit}} {worst[0]}), ", end="")
        print(f"progressive {means[:, 1].mean():+{unit}} (worst {worst[1]}), {loss}time x{means[:, -1].mean():.2f}")
        print(f"{'set':22s} old score, progressive{'' if numbers else ', log loss'} -> new; differences +- error; time")
        for name, d in each.items():
            a, b = (np.mean(list(which[name].values()), axis=0) for which in (old, new))
            error = d[:, 0].std(ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.nan
            beside = ""
            for title, other, limit in (("LR", lr, 1.0), ("VW", vw, 2.5)):
                if other.get(name) and not (numbers and title == "VW"):
                    reference = {o: v for o, v in other[name].items() if o in new[name]}
                    mine = np.mean([new[name][o] for o in reference], axis=0)
                    best = _best(reference)[0] if title == "VW" else np.mean([v[0] for v in reference.values()])
                    behind = mine[0] < best - (limit / 100 if numbers else limit)
                    beside += f" {title} {mine[0] - best:+{unit}}{' BEHIND' if behind else ''}"
            figures = (
                " ".join(f"{v:.4f}" if numbers or k == 2 else f"{v:.2f}" for k, v in enumerate(s[:-1])) for s in (a, b)
            )
            change = f"{d[:, 0].mean():+{unit}} +- {error:{unit}} {d[:, 1].mean():+{unit}}"
            worse = d[:, 0].mean() < (-0.003 if numbers else -0.3) and d[:, 0].mean() < -2 * error
            print(
                f"{name:22s} {' -> '.join(figures)}; {change} x{d[:, -1].mean():.2f}{beside}{' WORSE' if worse else ''}"
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("file", type=Path)
    one.add_argument("--learner", choices=("robustfd", "lr", "vw"), default="robustfd")
    one.add_argument("--orders", type=int)
    one.add_argument("names", nargs="*")
    two = commands.add_parser("compare")
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument("--lr", type=Path)
    two.add_argument("--vw", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run(options.file, options.learner, options.names, options.orders)
    else:
        files = (options.old, options.new, options.lr, options.vw)
        compare(*(json.loads(path.read_text()) if path else {} for path in files))


if __name__ == "__main__":
    main()
