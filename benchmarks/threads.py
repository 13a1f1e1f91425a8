"""Cost of BLAS threads: time with the default number divided by time with one, on an idle and on a busy machine.

The library limits BLAS to one thread, so the ratios should be 1. Each task runs in a separate process, because BLAS
reads the environment variables only when it is loaded.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import robustfd
from benchmarks.common import report, seconds

NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
MOST = 1.3  # goal for the ratio
BUSY = "while True: pass"


def _sketch() -> Callable[[], Any]:
    x = np.random.default_rng(0).standard_normal((10_000, 300))
    return lambda: robustfd.RobustFrequentDirections(50).fit(x).alpha_


def _ridge() -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((10_000, 300)), rng.standard_normal(300)
    batches = [(rows, rows @ w) for rows in np.array_split(x, 20)]

    def task() -> Any:
        ridge = robustfd.SketchedRidge(regularization=1.0, sketch_size=100)
        for rows, y in batches:
            ridge.partial_fit(rows, y)
        return ridge.predict(x)

    return task


def _pca() -> Callable[[], Any]:
    x = np.random.default_rng(0).standard_normal((10_000, 300)) * 0.98 ** np.arange(300)
    return lambda: robustfd.SketchedPCA(10, sketch_size=50).fit(x).transform(x)


def _predict_one() -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 100))
    model = robustfd.SketchedNewtonClassifier().fit(x, x[:, 0] + rng.standard_normal(2000) > 0)
    return lambda: [model.predict_proba_one(row) for row in x[:300]]


TASKS = {
    "RobustFrequentDirections(50), 10,000 x 300": _sketch,
    "SketchedRidge(sketch_size=100), 10,000 x 300": _ridge,
    "SketchedPCA(10, sketch_size=50), 10,000 x 300": _pca,
    "predict_proba_one, 300 rows": _predict_one,
}


def threads(repeats: int = 3) -> None:
    """Measure time with the default number of BLAS threads relative to one, with and without a busy process."""
    rows = []
    for setting, context in (("alone", contextlib.nullcontext), ("with a busy process", _busy)):
        with context():
            for name in TASKS:
                took = [min(each) for each in zip(*((_run(name, None), _run(name, "1")) for _ in range(repeats)))]
                ratio = took[0] / took[1]
                rows.append({"what": f"{name}, {setting}", "value": took[0], "unit": "s"})
                goal = {"goal": f"<= {MOST:g}", "met": ratio <= MOST}
                rows.append({"what": "  as installed, over one BLAS thread", "value": ratio, **goal})
    report("threads", rows)


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            yield
        finally:
            process.kill()


def _run(name: str, count: str | None) -> float:
    """Return the best time of a task in a process with `count` BLAS threads, or the default number."""
    environment = {k: v for k, v in os.environ.items() if k not in NAMES}
    environment |= {} if count is None else dict.fromkeys(NAMES, count)
    command = [sys.executable, "-m", "benchmarks.threads", name]
    return float(subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    task = TASKS[sys.argv[1]]()
    task()
    print(seconds({"it": task}, 3)["it"])
