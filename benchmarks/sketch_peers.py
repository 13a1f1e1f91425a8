"""Sketches of dense and sparse rows beside randomised forms of frequent directions: error against time, one figure.

- Sparse FD: Ghashami, Liberty and Phillips, "Efficient Frequent Directions Algorithm for Sparse Matrices", KDD 2016. A
  block of rows with m d non-zeros is reduced to m rows by simultaneous iteration, then merged by a shrink step.
- SpFD: Huang, "Near Optimal Frequent Directions for Sketching Dense and Sparse Matrices", ICML 2018, and Teng and Chu,
  "Fast Frequent Directions for Low Rank Approximation", TPAMI 2019. The rows of a block are added up in m buckets with
  random signs, then merged.
- r-BKIFD: Wang et al., "Frequent Directions based on Block Krylov Iteration", 2021. A block is reduced to m rows by
  two steps of block Krylov iteration, then merged.

Errors are ||A'A - B'B||_2 / ||A||_2^2, for RFD with alpha I. Times are CPU seconds of one pass. All use
the shrink step of this library, and the peers blocks of max(4 m, 1000) rows. RFD waits for 2 m rows by default; "same
rows" waits for as many as the peers.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from benchmarks.common import RESULTS, report
from benchmarks.data import load
from benchmarks.window_peers import Floats
from robustfd import FrequentDirections, RobustFrequentDirections
from robustfd.linalg.decompose import shrink_stack
from robustfd.linalg.threads import one_blas_thread

SIZES = (10, 20, 50, 100)
STEPS = 2  # of simultaneous and of Krylov iteration
REPEATS = 2
COLOURS = {"RFD": "C0", "RFD, same rows": "C9", "FD": "C1", "sparse FD": "C2", "SpFD": "C3", "r-BKIFD": "C4"}


def block(m: int) -> int:
    """Return the number of rows of a block."""
    return max(4 * m, 1000)


def _dense(product: Any) -> Floats:
    return np.asarray(product.toarray() if sp.issparse(product) else product)


def _reduced(basis: Floats, x: Any) -> Floats:
    """Return the rows of x projected onto orthonormal columns."""
    return np.asarray((x.T @ np.linalg.qr(basis)[0]).T)


def simultaneous(x: Any, m: int, rng: np.random.Generator) -> Floats:
    """Return m rows for the block x by simultaneous iteration."""
    y = x @ rng.standard_normal((x.shape[1], m))
    for _ in range(STEPS):
        y = x @ (x.T @ np.linalg.qr(y)[0])
    return _reduced(y, x)


def krylov(x: Any, m: int, rng: np.random.Generator) -> Floats:
    """Return m rows for the block x: the best in the Krylov space of STEPS + 1 blocks."""
    parts = [x @ rng.standard_normal((x.shape[1], m))]
    for _ in range(STEPS):
        parts.append(x @ (x.T @ np.linalg.qr(parts[-1])[0]))
    rows = _reduced(np.hstack(parts), x)
    return shrink_stack(rows[:0], np.zeros(0), rows, m + 1, 1).rows


def buckets(x: Any, m: int, rng: np.random.Generator) -> Floats:
    """Return the sums of the rows of x in m buckets, with random signs."""
    n = x.shape[0]
    signs = sp.csr_array((rng.choice([-1.0, 1.0], n), (rng.integers(m, size=n), np.arange(n))), shape=(m, n))
    return _dense(signs @ x)


def merged(reduce: Callable[..., Floats]) -> Callable[[Any, int], tuple[Floats, float]]:
    """Return a sketch of all rows that reduces each block and merges it by a shrink step."""

    def sketch(a: Any, m: int) -> tuple[Floats, float]:
        rng, size = np.random.default_rng(0), block(m)
        b, lam = np.zeros((0, a.shape[1])), np.zeros(0)
        for start in range(0, a.shape[0], size):
            shrunk = shrink_stack(b, lam, reduce(a[start : start + size], m, rng), m, m)
            b, lam = shrunk.rows, shrunk.lam
        return b, 0.0

    return sketch


def ours(kind: Any, *, same_rows: bool = False) -> Callable[[Any, int], tuple[Floats, float]]:
    """Return a sketch of this library with its default buffer of 2 m rows, or with one for the rows of a block."""

    def sketch(a: Any, m: int) -> tuple[Floats, float]:
        found = kind(m, buffer_size=m + block(m) if same_rows else None).fit(a)
        return found.sketch_, found.alpha_

    return sketch


METHODS = {
    "RFD": ours(RobustFrequentDirections),
    "RFD, same rows": ours(RobustFrequentDirections, same_rows=True),
    "FD": ours(FrequentDirections),
    "sparse FD": merged(simultaneous),
    "SpFD": merged(buckets),
    "r-BKIFD": merged(krylov),
}


def error(a: Any, b: Floats, alpha: float) -> float:
    """Return ||A'A - (B'B + alpha I)||_2 / ||A||_2^2."""
    d = a.shape[1]

    def difference(v: Floats) -> Floats:
        return np.asarray(a.T @ (a @ v) - b.T @ (b @ v) - alpha * v)

    norm = eigsh(LinearOperator((d, d), lambda v: a.T @ (a @ v), dtype=float), 1, return_eigenvectors=False)[0]
    largest = eigsh(LinearOperator((d, d), difference, dtype=float), 1, which="LM", tol=1e-2, return_eigenvectors=False)
    return float(abs(largest[0]) / norm)


@one_blas_thread()
def peers() -> None:
    """Measure all sketches on sparse and dense rows, and draw the figure."""
    rows, points = [], {}
    for name in ("news20", "farm-ads", "mnist"):
        a = load(name)[0]
        a = sp.csr_array(a).astype(float) if sp.issparse(a) else np.asarray(a, float)[:20000]
        for method, sketch in METHODS.items():
            for m in SIZES:
                seconds = np.inf
                for _ in range(REPEATS):
                    start = time.process_time()
                    b, alpha = sketch(a, m)
                    seconds = min(seconds, time.process_time() - start)
                off = error(a, b, alpha)
                rows += [{"what": f"{name}, {method}, m = {m}: seconds", "value": seconds, "unit": "s"},
                         {"what": f"{name}, {method}, m = {m}: error", "value": off}]  # fmt: skip
                points.setdefault(name, {}).setdefault(method, []).append((seconds, off))
                print(f"{name:>9} {method:>10} m = {m:<4} {seconds:7.2f} s  error {off:.4f}", flush=True)
    report("peers", rows)
    draw(points)


def draw(points: dict[str, dict[str, list[tuple[float, float]]]]) -> None:
    """Draw a panel of error against time for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(points), figsize=(3.6 * len(points), 3.4), squeeze=False)
    for ax, (name, methods) in zip(axes[0], points.items(), strict=True):
        for method, found in methods.items():
            ax.loglog(*zip(*found, strict=True), COLOURS[method], marker="o", markersize=4, label=method)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("CPU seconds of one pass")
    axes[0][0].set_ylabel("relative spectral error")
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=len(COLOURS), frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(RESULTS.parents[1] / "docs" / "peers.png", dpi=110)
