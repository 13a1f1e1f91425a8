"""Sketching speed relative to scikit-learn's incremental PCA and truncated SVD.

All times of a case come from one process in which the tasks run alternately. BLAS has its default number of threads;
robustfd uses one.
"""

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
from sklearn.decomposition import IncrementalPCA, TruncatedSVD

from benchmarks.common import RESULTS, multiply, report, seconds, turns, zipf_rows
from robustfd import RobustFrequentDirections


def _row(what: str, value: float, unit: str = "", *, most: float | None = None, least: float | None = None) -> Any:
    met = None if most is None and least is None else value <= (most or np.inf) and value >= (least or 0)
    goal = f"<= {most:g}" if most is not None else f">= {least:g}" if least is not None else ""
    return {"what": what, "value": value, "unit": unit, "goal": goal, "met": met}


def wide(repeats: int = 15) -> None:
    """Measure dense 8000 x 4000 rows, m = 100, relative to the cost of matrix products and to incremental PCA."""
    n, d, m = 8000, 4000, 100
    x = np.random.default_rng(0).standard_normal((n, d))
    times = turns({"rfd": lambda: RobustFrequentDirections(m).fit(x), "gemm": multiply()}, repeats)
    best = {name: min(each) for name, each in times.items()}
    best |= seconds({"ipca": lambda: IncrementalPCA(m, batch_size=500).fit(x)}, 1)
    flops = 2 * 2000**3
    # The speed of the machine varies, so each time is compared with the matrix product measured next to it.
    ratio = np.median(np.divide(times["rfd"], times["gemm"])) * flops / (7 * n * m * d)
    report(
        "wide",
        [
            _row("matrix product, 2000 x 2000", flops / best["gemm"] / 1e9, "Gflop/s"),
            _row("robustfd, 8000 x 4000, m = 100", best["rfd"], "s"),
            _row("  times 7 n m d flops at the rate of a matrix product", ratio, most=2.2),
            _row("IncrementalPCA(100, batch_size=500)", best["ipca"], "s"),
            _row("  robustfd is faster by", best["ipca"] / best["rfd"], least=11),
        ],
    )


def tall(repeats: int = 3) -> None:
    """Measure dense 20000 x 500 rows, m = 50: time relative to incremental PCA, and errors for several spectra."""
    n, d, m = 20000, 500, 50
    rng = np.random.default_rng(0)
    i = np.arange(1, d + 1)
    spectra = {"exp(-i/30)": np.exp(-i / 30), "i^-2": i**-2.0, "1/i": 1 / i, "i^-0.5": i**-0.5}
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0]
    x = rng.standard_normal((n, d)) * spectra["exp(-i/30)"] @ directions
    batch = 5 * d  # the default batch size of incremental PCA
    best = seconds(
        {
            "rfd": lambda: RobustFrequentDirections(m, center=True, buffer_size=batch).fit(x),
            "rfd, 2 m": lambda: RobustFrequentDirections(m, center=True).fit(x),
            "ipca": lambda: IncrementalPCA(m).fit(x),
        },
        repeats,
    )
    rows = [
        _row("robustfd, 20000 x 500, m = 50, centred, holding 5 d rows", best["rfd"], "s"),
        _row("robustfd, holding 2 m rows, its default", best["rfd, 2 m"], "s"),
        _row("IncrementalPCA(50), holding 5 d rows, its default", best["ipca"], "s"),
        _row("  robustfd, holding as many rows, is faster by", best["ipca"] / best["rfd"], least=5),
        _row("  robustfd, holding 2 m rows, is faster by", best["ipca"] / best["rfd, 2 m"]),
    ]
    for name, scale in spectra.items():
        ours, default, theirs = _errors(rng.standard_normal((n, d)) * scale @ directions, m, batch)
        rows += [
            _row(f"singular values as {name}: error of IncrementalPCA(50)", theirs),
            _row(f"singular values as {name}: error of robustfd, 5 d rows", ours, most=theirs),
            _row(f"singular values as {name}: error of robustfd, 2 m rows", default),
        ]
    report("tall", rows)


def _errors(x: Any, m: int, batch: int) -> list[float]:
    """Return relative spectral errors of the covariance: robustfd with two buffer sizes, and incremental PCA."""
    truth = np.cov(x.T)
    ours = [RobustFrequentDirections(m, center=True, buffer_size=size).fit(x).covariance() for size in (batch, None)]
    ipca = IncrementalPCA(m).fit(x)
    low_rank = ipca.components_.T * ipca.explained_variance_ @ ipca.components_
    approximations = [*(c.to_dense() for c in ours), low_rank, ipca.get_covariance()]
    one, two, *others = (np.linalg.norm(truth - c, 2) / np.linalg.norm(truth, 2) for c in approximations)
    return [float(one), float(two), float(min(others))]


def sparse(repeats: int = 5) -> None:
    """Measure sparse 20000 x 20000 rows, 0.2 %, m = 50, relative to truncated SVD and incremental PCA, and memory."""
    x, m, part = zipf_rows(20000, 20000, 40), 50, 1000
    RobustFrequentDirections(m).fit(x[:2000])  # imports before timing
    best = seconds(
        {
            "rfd": lambda: RobustFrequentDirections(m).fit(x),
            "svd": lambda: TruncatedSVD(m, random_state=0).fit(x),
        },
        repeats,
    )
    best |= seconds({"ipca": lambda: IncrementalPCA(m, batch_size=500).fit(x[:part])}, 1)
    ipca = best["ipca"] * x.shape[0] / part
    command = [sys.executable, "-m", "benchmarks.sparse_memory"]
    memory = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    report(
        "sparse",
        [
            _row(f"robustfd, 20000 x 20000, {x.nnz / x.shape[0]:.1f} non-zeros a row, m = 50", best["rfd"], "s"),
            _row("TruncatedSVD(50), randomised", best["svd"], "s"),
            _row("  robustfd is faster by", best["svd"] / best["rfd"], least=1),
            _row(f"IncrementalPCA(50, batch_size=500), from {part} rows", ipca, "s"),
            _row("  robustfd is faster by", ipca / best["rfd"], least=120),
            _row("peak resident memory of a process that sketches it", memory, "MB", most=250),
        ],
    )


def linear() -> None:
    """Measure and plot time against the number of rows, and for sparse rows against the number of non-zeros."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    dense = np.random.default_rng(0).standard_normal((16000, 1000))
    counts = [1000, 2000, 4000, 8000, 16000]
    by_rows = seconds({str(n): lambda n=n: RobustFrequentDirections(50).fit(dense[:n]) for n in counts}, 9)
    fills = [10, 20, 40, 80, 160]
    rows = {k: zipf_rows(10000, 50000, k) for k in fills}
    by_fill = seconds({str(k): lambda k=k: RobustFrequentDirections(50).fit(rows[k]) for k in fills}, 9)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, x, y, title, label in (
        (axes[0], [n / 1e3 for n in counts], by_rows, "Dense rows, 1000 columns, m = 50", "thousand rows"),
        (
            axes[1],
            [rows[k].nnz / 1e6 for k in fills],
            by_fill,
            "10,000 sparse rows, 50,000 columns, m = 50",
            "million non-zeros",
        ),
    ):
        axis.plot(x, list(y.values()), "o-", color="#1f77b4")
        axis.set(title=title, xlabel=label, ylabel="seconds", xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "linear.png", dpi=120)
    slope = [by_rows[str(b)] / by_rows[str(a)] for a, b in itertools.pairwise(counts)]
    report(
        "linear",
        [
            *(_row(f"dense, {n} rows", by_rows[str(n)], "s") for n in counts),
            _row("  twice the rows take, at most, times", max(slope)),
            *(_row(f"sparse, 10000 rows, {rows[k].nnz} non-zeros", by_fill[str(k)], "s") for k in fills),
            _row(
                "  microseconds a further non-zero",
                1e6 * (by_fill["160"] - by_fill["10"]) / (rows[160].nnz - rows[10].nnz),
            ),
        ],
    )
