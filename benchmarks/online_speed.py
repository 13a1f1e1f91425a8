"""Speed of online learning on one core: microseconds per row, and compared with Vowpal Wabbit's sketched Newton.

Only learning is compared: the time of Vowpal Wabbit minus its time with --noop, which reads and parses the same file
and learns nothing.
"""

import lzma
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from benchmarks import vowpal
from benchmarks.common import RESULTS, report, seconds, zipf_rows
from benchmarks.data import folder, load
from benchmarks.sketch_speed import _row
from robustfd import OnlineNewton, SketchedNewtonClassifier

# data, dense, m, goal and long-term goal in microseconds per row
GOALS = [
    ("a9a", True, 5, 2.0, 1.5), ("a9a", True, 10, 3.0, 2.0), ("a9a", True, 20, 5.0, 3.8),
    ("a9a", False, 5, 2.0, 1.5), ("a9a", False, 10, 3.0, 2.0), ("a9a", False, 20, 5.0, 3.8),
    ("mnist", True, 20, 9.0, 6.5), ("generated", True, 20, 32.0, 24.0),
    ("farm-ads", False, 20, 25.0, 16.0), ("farm-ads", False, 30, 35.0, 24.0), ("farm-ads", False, 50, 60.0, 40.0),
    ("news20", False, 20, 13.0, 9.5), ("news20", False, 50, 35.0, 26.0),
]  # fmt: skip


LIBSVM_FILES = {"w8a": "w8a.xz", "sector": "sector.scale.xz"}  # not among robustfd.datasets


def rows_of(name: str) -> tuple[Any, Any]:
    """Return rows with labels -1 and +1."""
    if name == "generated":
        rng = np.random.default_rng(0)
        x = rng.standard_normal((6000, 5000))
        return x, np.sign(x @ rng.standard_normal(5000))
    if name in LIBSVM_FILES:
        with lzma.open(Path(str(folder())) / LIBSVM_FILES[name]) as file:
            x, y = load_svmlight_file(file)
        return x, np.where(y <= 52, 1.0, -1.0) if name == "sector" else y
    x, y = load(name)
    if name == "mnist":
        y = np.where(y % 2 == 0, 1.0, -1.0)
    if name == "news20":
        y = np.where(y <= 10, 1.0, -1.0)
    return x, y


def newton(repeats: int = 9) -> None:
    """Measure microseconds per row of OnlineNewton("rfd") with its public interface, the best of several runs."""
    if folder() is None:
        print("\nnewton: skipped, it needs ROBUSTFD_DATA")
        return
    results = []
    for name, dense, m, goal, aim in GOALS:
        x, y = rows_of(name)
        x = x.toarray() if dense and sp.issparse(x) else x
        best = seconds({"it": lambda x=x, y=y, m=m: OnlineNewton(sketch_size=m).learn(x, y)}, repeats)["it"]
        form = "dense" if dense else "CSR"
        results.append(_row(f"{name}, {form}, m = {m} (aim {aim:g})", best / len(y) * 1e6, "us/row", most=goal))
    x, y = load("a9a")
    x = x.toarray()
    learner = OnlineNewton(sketch_size=10)
    learner.learn(x[:1000], y[:1000])
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        for i in range(5000):
            learner.learn(x[i : i + 1], y[i : i + 1])
        best = min(best, (time.perf_counter() - start) / 5000)
    results.append(_row("a9a, one row a call, m = 10 (aim 3.5)", best * 1e6, "us/row", most=5.0))
    report("newton", results)


def classes(repeats: int = 5) -> None:
    """Compare twenty classes in one model with two classes, and with twenty models."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5000, 200))
    y = (x @ rng.standard_normal((200, 20))).argmax(axis=1)
    SketchedNewtonClassifier().fit(x[:200], y[:200])
    best = seconds(
        {
            "two": lambda: SketchedNewtonClassifier().fit(x, y < 10),
            "twenty": lambda: SketchedNewtonClassifier().fit(x, y),
            "models": lambda: [SketchedNewtonClassifier().fit(x, y == c) for c in range(20)],
        },
        repeats,
    )
    report(
        "classes",
        [
            _row("2 classes, 200 features", best["two"] / len(y) * 1e6, "us/row"),
            _row("20 classes", best["twenty"] / len(y) * 1e6, "us/row"),
            _row("  times the time of 2", best["twenty"] / best["two"], most=6.0),
            _row("20 models, each of one class against the rest", best["models"] / len(y) * 1e6, "us/row"),
            _row("  times the time of one model of 20 classes", best["models"] / best["twenty"], least=3.0),
        ],
    )


def against_vowpal(repeats: int = 3) -> None:
    """Compare OnlineNewton and SketchedNewtonClassifier with --OjaNewton on the same rows, learning only."""
    if folder() is None or not vowpal.available():
        print("\nvowpal: skipped, it needs ROBUSTFD_DATA and the package vowpalwabbit")
        return
    results = []
    for name, m in (("a9a", 10), ("farm-ads", 20), ("news20", 20)):
        x, y = rows_of(name)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "rows.txt"
            labels = ("1" if label > 0 else "-1" for label in y)
            path.write_text("".join(f"{a} {b}\n" for a, b in zip(labels, vowpal.lines(x), strict=True)))
            best = {}
            for option in ("--noop", "", f"--OjaNewton --sketch_size {m}"):
                best[option] = min(vowpal.run(option, x.shape[1], path)[0] for _ in range(repeats))
        SketchedNewtonClassifier(sketch_size=m).fit(x[:200], y[:200])
        best |= seconds(
            {
                "newton": lambda x=x, y=y, m=m: OnlineNewton(sketch_size=m).learn(x, y),
                "untuned": lambda x=x, y=y, m=m: SketchedNewtonClassifier(sketch_size=m).fit(x, y),
            },
            repeats,
        )
        scale = 1e6 / len(y)
        oja = best[f"--OjaNewton --sketch_size {m}"] - best["--noop"]
        results += [
            _row(f"{name}: Vowpal Wabbit, reading only", best["--noop"] * scale, "us/row"),
            _row(
                f"{name}: Vowpal Wabbit, default update, learning only", (best[""] - best["--noop"]) * scale, "us/row"
            ),
            _row(f"{name}: Vowpal Wabbit, --OjaNewton, m = {m}, learning only", oja * scale, "us/row"),
            _row(f"{name}: OnlineNewton, m = {m}", best["newton"] * scale, "us/row"),
            _row("  faster than --OjaNewton by", oja / best["newton"], least=1.0),
            _row(f"{name}: SketchedNewtonClassifier, m = {m}", best["untuned"] * scale, "us/row"),
            _row("  times the time of OnlineNewton", best["untuned"] / best["newton"], most=6.0),
        ]
    report("vowpal", results)


def linear_online(repeats: int = 3) -> None:
    """Plot time against rows, non-zeros per row and features. Rows with many features cost only their non-zeros."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    tasks = {"OnlineNewton": lambda x, y: OnlineNewton(sketch_size=20).learn(x, y),
             "SketchedNewtonClassifier": lambda x, y: SketchedNewtonClassifier(sketch_size=20).fit(x, y)}  # fmt: skip
    sweeps = {
        "rows (d = 100,000, 30 non-zeros)": [(n, 100_000, 30) for n in (5000, 10000, 20000, 40000)],
        "non-zeros a row (10,000 rows, d = 100,000)": [(10000, 100_000, k) for k in (10, 20, 40, 80, 160)],
        "features (20,000 rows, 30 non-zeros)": [(20000, d, 30) for d in (1000, 10_000, 100_000, 1_000_000)],
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    results = []
    for axis, (title, sizes) in zip(axes, sweeps.items(), strict=True):
        taken: dict[str, list[float]] = {name: [] for name in tasks}
        across = []
        for n, d, nnz in sizes:
            x = zipf_rows(n, d, nnz)
            y = np.where(np.random.default_rng(1).random(n) < 0.5, 1.0, -1.0)
            across.append({"rows": n, "non-zeros": x.nnz / n, "features": d}[title.split(" ")[0]])
            for name, task in tasks.items():
                task(x[:200], y[:200])
                took = seconds({"it": lambda task=task, x=x, y=y: task(x, y)}, repeats)["it"]
                taken[name].append(took)
                results.append(_row(f"{name}: {n} rows, d = {d}, {x.nnz / n:.0f} non-zeros", took / n * 1e6, "us/row"))
        for name, times in taken.items():
            axis.plot(across, times, marker="o", label=name)
        axis.set_xlabel(title)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if title.startswith("features"):
            axis.set_xscale("log")
        else:
            axis.set_xlim(left=0)
            axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter("{x:,.0f}")
    axes[0].set_ylabel("seconds")
    axes[0].legend()
    figure.savefig(RESULTS / "linear_online.png", dpi=110)
    plt.close(figure)
    report("linear_online", results)
