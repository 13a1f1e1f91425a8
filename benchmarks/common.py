"""Shared code of the benchmarks: interleaved timing, the speed of a matrix product, results as JSON and Markdown."""

import json
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.experiments.machine import about
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


def save_markdown(name: str, text: str, *peers: str) -> None:
    """Save a page of results."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(signed(text, *peers))


def signed(text: str, *peers: str) -> str:
    """Return a page of results that ends with machine, versions, those of peers too, date and commit."""
    found = ", ".join(f"{key} {value}" for key, value in machine(*peers).items())
    return f"{text.rstrip()}\n\nMeasured with {found}.\n"


def machine(*peers: str) -> dict[str, str]:
    """Return the machine, the versions of libraries and installed peers, the date and the commit."""
    return about("numpy", "scipy", "scikit-learn", *filter(find_spec, peers))
