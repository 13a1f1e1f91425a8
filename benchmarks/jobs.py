"""Speed-up of two jobs over one: `fit(n_jobs=2)` and `--jobs 2`. Needs two idle cores.

On the command line, one job already reads and parses in a second thread. Two cores can therefore make it faster by at
most 2 / (1 + p), if parsing takes p times as long as learning. Start-up, about a second, counts.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from benchmarks.common import report, seconds, zipf_rows
from benchmarks.data import folder, load
from robustfd import ExactSecondMoment, RobustFrequentDirections, SketchedNewtonClassifier

LEAST = 1.7  # times faster
ROWS = 1_000_000


def jobs(repeats: int = 5) -> None:
    """Measure the speed-up of two jobs for learners and sketches, in Python and on the command line."""
    if folder() is None:
        print("\njobs: skipped, it needs ROBUSTFD_DATA")
        return
    rows = []
    for name, make in CASES.items():
        rows += _compare(name, make(), repeats)
    with tempfile.TemporaryDirectory() as place:
        x, y = _a9a(ROWS)
        path = Path(place) / "rows.svm"
        dump_svmlight_file(x, y, str(path), zero_based=False)
        for name, options in COMMANDS.items():
            rows += _compare(name, _command(path, options), min(repeats, 3))
    report("jobs", rows)


def _compare(name: str, task: Callable[[int], Any], repeats: int) -> list[dict[str, Any]]:
    task(2)  # starts processes
    took = seconds({"one": lambda: task(1), "two": lambda: task(2)}, repeats)
    ratio = took["one"] / took["two"]
    verdict = {"goal": f">= {LEAST:g}", "met": ratio >= LEAST}
    return [
        {"what": f"{name}, one job", "value": took["one"], "unit": "s"},
        {"what": "  times faster with two jobs", "value": ratio, **verdict},
    ]


def _a9a(n: int) -> tuple[Any, Any]:
    x, y = load("a9a")
    some = np.random.default_rng(0).integers(0, len(y), n)
    return sp.csr_matrix(x)[some], y[some]


def _learner(name: str) -> Callable[[int], Any]:
    x, y = _a9a(ROWS) if name == "a9a" else (np.repeat(each, 3, axis=0) for each in load(name))
    return lambda n_jobs: SketchedNewtonClassifier(random_state=0).fit(x, y, n_jobs=n_jobs)


def _sketch(sketch: Any, x: Any) -> Callable[[int], Any]:
    return lambda n_jobs: sketch.fit(x, n_jobs=n_jobs)


def _gaussian(n: int, d: int) -> Any:
    return np.random.default_rng(0).standard_normal((n, d)) * 0.98 ** np.arange(d)


CASES: dict[str, Callable[[], Callable[[int], Any]]] = {
    "classifier, a million rows of a9a": lambda: _learner("a9a"),
    "classifier, ten digits of mnist, each row three times": lambda: _learner("mnist"),
    "sketch of 20, 600,000 x 100": lambda: _sketch(RobustFrequentDirections(20), _gaussian(600_000, 100)),
    "sketch of 50, 200,000 x 300": lambda: _sketch(RobustFrequentDirections(50), _gaussian(200_000, 300)),
    "sketch of 100, mnist": lambda: _sketch(RobustFrequentDirections(100), load("mnist")[0]),
    "sketch of 50, sparse, 200,000 x 20,000": lambda: _sketch(
        RobustFrequentDirections(50), zipf_rows(200_000, 20_000, 50)
    ),
    "exact second moment, mnist": lambda: _sketch(ExactSecondMoment(), load("mnist")[0]),
}
COMMANDS = {
    "robustfd train, a million rows of a9a": ("train",),
    "robustfd sketch -m 20, the same": ("sketch", "-m", "20"),
    "robustfd sketch -m 50, the same": ("sketch", "-m", "50"),
}


def _command(path: Path, options: tuple[str, ...]) -> Callable[[int], Any]:
    command, *more = options
    base = [sys.executable, "-m", "robustfd", command, str(path), "-o", str(path.with_suffix(".rfd")), *more, "--quiet"]
    return lambda n_jobs: subprocess.run([*base, "--jobs", str(n_jobs)], check=True, stdout=subprocess.DEVNULL)
