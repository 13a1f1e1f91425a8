"""This checkout beside an earlier one: CPU time of fitting, of single rows, of small batches and of sketches.

    python -m benchmarks.core ../earlier-checkout [--python ../earlier-checkout/.venv/bin/python]

Both run in processes of their own, in turns, with one BLAS thread. The best of all rounds counts. "Experts of then" is
this checkout without the experts that came after the core: bettors, flat priors and a ladder of priors. The table is
saved as results/core.md.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROUNDS = 3
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def _jobs(*, then: bool) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yield name, job and the number of rows or calls that its time is divided by; `then` for the experts of then."""
    import numpy as np

    import robustfd as rf
    from benchmarks.data import load

    class OfThen(rf.SketchedNewtonClassifier):
        @property
        def _settings(self) -> dict[str, Any]:
            return super()._settings | {"few": True}

    learner = OfThen if then else rf.SketchedNewtonClassifier

    def fit(x: Any, y: Any, **options: Any) -> Callable[[], Any]:
        return lambda: learner(**options).partial_fit(x, y, classes=np.unique(y))

    rng = np.random.default_rng(0)
    for name, cut in (("a9a", 0.0), ("farm-ads", 0.0), ("news20", 10.0)):
        x, y = load(name)
        order = rng.permutation(len(y))
        x, y = x[order], y[order]
        if name == "a9a":
            yield "fit a9a, diagonal", fit(x, (y > cut).astype(int), sketch_size=0), len(y)
        yield f"fit {name}, two classes", fit(x, (y > cut).astype(int)), len(y)
        if name == "news20":
            yield "fit news20, 20 classes", fit(x, y.astype(int)), len(y)
        else:
            signs = np.where(y > cut, 1.0, -1.0)
            job = lambda x=x, y=signs: rf.OnlineNewton("rfd", 10).learn(x, y)  # noqa: E731
            yield f"OnlineNewton {name}, m = 10", job, len(y)
    for d in (22, 60):
        x = rng.standard_normal((30_000, d)) @ rng.standard_normal((d, d))
        y = (x @ rng.standard_normal(d) + 3 * rng.standard_normal(len(x)) > 0).astype(int)
        yield f"fit {d} correlated features, exact Hessian", fit(x, y), len(y)
    x, y = load("mnist")
    yield "fit mnist, 10 classes", fit(x[:10_000].astype(float), y[:10_000]), 10_000
    yield from _small_jobs()
    x, y = rng.standard_normal((10_000, 100)), np.where(rng.random(10_000) > 0.5, 1.0, -1.0)
    for m in (10, 50):
        yield f"OnlineNewton 10000 x 100, m = {m}", lambda m=m, x=x, y=y: rf.OnlineNewton("rfd", m).learn(x, y), 10_000
    for (n, d), m in (((8000, 4000), 100), ((20_000, 500), 50)):
        x = rng.standard_normal((n, d))
        yield f"RobustFrequentDirections {n} x {d}, m = {m}", lambda m=m, x=x: rf.RobustFrequentDirections(m).fit(x), n


def _small_jobs() -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yield jobs with one dict, or an array of seven rows, in a call."""
    import numpy as np

    import robustfd as rf

    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 30))
    y = (x @ rng.standard_normal(30) > 0).astype(int)
    rows, labels = [{f"f{j}": float(value) for j, value in enumerate(row)} for row in x], y.tolist()
    model, batches = rf.SketchedNewtonClassifier(), rf.SketchedNewtonClassifier().partial_fit(x, y, classes=[0, 1])

    def learn() -> None:
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(row, label)

    yield "learn_one of a dict with 30 numbers", learn, len(rows)
    yield "predict_one", lambda: [model.predict_one(row) for row in rows], len(rows)
    yield "partial_fit of 7 rows", lambda: [batches.partial_fit(x[:7], y[:7]) for _ in range(100)], 100
    yield "predict of 7 rows", lambda: [batches.predict(x[:7]) for _ in range(100)], 100


def _measure(repeats: int, *, then: bool = False) -> None:
    """Print the best CPU time of each job in microseconds per row or call, as JSON."""
    found = {}
    for name, job, count in _jobs(then=then):
        if then and not name.startswith("fit"):
            continue
        best = float("inf")
        for _ in range(repeats + 1):  # the first run imports, and compiles where that happens at first use
            start = time.process_time()
            job()
            best = min(best, time.process_time() - start)
        found[name] = 1e6 * best / count
    print(json.dumps(found))


def _run(python: str, checkout: Path, *, then: bool = False) -> dict[str, float]:
    """Return the results of a checkout. Its sources take precedence over an editable installation."""
    code = (
        "import sys; sys.meta_path = [each for each in sys.meta_path if 'ScikitBuild' not in type(each).__name__]\n"
        if checkout != ROOT
        else ""
    ) + f"from benchmarks import core; core._measure(3, then={then})"
    paths = [str(checkout / "src")] if checkout != ROOT else []
    environment = {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": os.pathsep.join([*paths, str(ROOT)])}
    done = subprocess.run([python, "-c", code], env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measure both, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("earlier", type=Path, help="an earlier checkout")
    parser.add_argument("--python", default=sys.executable, help="the interpreter for it")
    given = parser.parse_args()
    earlier = given.earlier.resolve()
    rounds = [
        (_run(given.python, earlier), _run(sys.executable, ROOT), _run(sys.executable, ROOT, then=True))
        for _ in range(ROUNDS)
    ]
    columns = ["us per row or call", "earlier", "now", "earlier / now", "now, experts of then", "earlier / this"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for name in rounds[0][1]:
        before, now, then = (min(each[side].get(name, float("nan")) for each in rounds) for side in (0, 1, 2))
        both = f" {then:.2f} | {before / then:.2f} |" if then == then else " | |"
        lines.append(f"| {name} | {before:.2f} | {now:.2f} | {before / now:.2f} |{both}")
    text = "# The core beside numba\n\n" + (__doc__ or "").split("\n\n")[2] + "\n\n" + "\n".join(lines) + "\n"
    from benchmarks.common import signed  # imports numpy, which a measured process does on its own

    (ROOT / "benchmarks/results/core.md").write_text(signed(text))
    print(text)


if __name__ == "__main__":
    main()
