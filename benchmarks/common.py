"""Shared code of the benchmarks: interleaved timing, the speed of a matrix product, results as JSON and Markdown."""

import datetime
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn

import robustfd
from robustfd.linalg.threads import one_blas_thread

RESULTS = Path(__file__).parent / "results"


def turns(tasks: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return all times of each task. The tasks run alternately, so that other load affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - start)
    return times


def seconds(tasks: Mapping[str, Callable[[], Any]], repeats: int = 3) -> dict[str, float]:
    """Return the best time of each task."""
    return {name: min(times) for name, times in turns(tasks, repeats).items()}


def multiply(size: int = 2000) -> Callable[[], Any]:
    """Return a task of 2 size^3 flops: one square matrix product with one BLAS thread, as in the library."""
    a = np.random.default_rng(0).standard_normal((size, size))
    return one_blas_thread()(lambda: a @ a)


def zipf_rows(n: int, d: int, nnz: int, seed: int = 0) -> sp.csr_array:
    """Return n sparse rows with about nnz entries in d columns drawn with probability 1/rank, like words."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, d + 1)
    columns = rng.choice(d, size=n * nnz, p=share / share.sum())
    x = sp.csr_array((rng.standard_normal(n * nnz), (np.repeat(np.arange(n), nnz), columns)), shape=(n, d))
    x.sum_duplicates()
    return x


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """Print results as a table and save them with machine, versions, date and commit."""
    print(f"\n{name}")
    for row in rows:
        verdict = {True: "ok", False: "MISSED", None: ""}[row.get("met")]
        print(f"  {row['what']:<66} {row['value']:>10.4g} {row.get('unit', ''):<6} {row.get('goal', ''):<12} {verdict}")
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, "rows": rows, "machine": machine()}, indent=1, default=float)
    (RESULTS / f"{name}.json").write_text(text + "\n")


def save_markdown(name: str, text: str) -> None:
    """Save a page of results."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(signed(text))


def signed(text: str) -> str:
    """Return a page of results that ends with machine, versions, date and commit."""
    about = ", ".join(f"{key} {value}" for key, value in machine().items())
    return f"{text.rstrip()}\n\nMeasured with {about}.\n"


def machine() -> dict[str, str]:
    """Return the machine, the versions, the date and the commit; "+" marks files that were not committed."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "robustfd": robustfd.__version__,
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD") + "+" * bool(_git("status", "--porcelain", "-uno")),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    """Return the output of a git command, or "unknown" where there is no git."""
    try:
        command = ["git", "-C", str(RESULTS.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def origin(command: str, *peers: str) -> str:
    """Return a sentence about the command that made a table, and what `machine` returns, with versions of peers."""
    found = {name: version(name) for name in peers if find_spec(name)}
    parts = ", ".join(f"{name} {value}" for name, value in (machine() | found).items())
    return f"Made by `{command}` on a machine that had other work: {parts}."
