"""PCA and ridge regression compared with scikit-learn: errors of variances and directions, time; R^2 and warnings.

    python -m benchmarks.run pca        (or make bench ARGS=pca)
    python -m benchmarks.pca farm-ads   some data sets only, without saving; "cost" for the last two tables

For each data set and k, the table shows the largest relative error of the k variances, the excess reconstruction error
over the best k directions (in % of the best), and the CPU seconds for fitting and reading the attributes. It compares
`SketchedPCA(k)`, by `fit` and by `partial_fit` in ten batches, with `IncrementalPCA` with its default batches and with
the same number of rows in memory, `PCA` for dense rows, and `TruncatedSVD` for sparse rows (which does not centre, so
its errors are not compared). All use one thread. Cases that would take minutes or gigabytes are marked as not run.

Another table shows CPU seconds for 4000 dense rows with the exact matrix and with a sketch of m rows. The estimators
keep the exact matrix for d <= 20 m, but at most 2000: it then takes less time per row than the sketch and has no error.
Reading the attributes takes longer, regardless of the number of rows. The last tables are those of pca_cost.py.
"""

import copy
import lzma
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.linear_model import Ridge

from benchmarks import pca_cost
from benchmarks.common import save_markdown
from benchmarks.data import folder, load
from robustfd import ExactSecondMoment, SketchedPCA, SketchedRidge, SketchSizeWarning
from robustfd.linalg.threads import one_blas_thread

Floats = NDArray[np.float64]
COMPONENTS = (5, 10, 50)
SLOW, SLOWEST = 6e10, 2e11  # multiplications above which IncrementalPCA runs for k = 10 only, or not at all


def generated(values: Any, n: int = 20_000, seed: int = 0) -> Floats:
    """Return Gaussian rows with these singular values in random directions."""
    rng, d = np.random.default_rng(seed), len(values)
    return rng.standard_normal((n, d)) * values @ np.linalg.qr(rng.standard_normal((d, d)))[0]


def data_sets(only: list[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield names and rows of all data sets, or of some."""
    i = np.arange(1, 501.0)
    makers: dict[str, Callable[[], Any]] = {
        "exp(-i/30)": lambda: generated(np.exp(-i / 30)),
        "1/i": lambda: generated(1 / i),
        "i^-0.5": lambda: generated(i**-0.5),
        "spikes on flat": lambda: generated(np.append(np.linspace(6, 2, 10), np.ones(490))),
        "i^-0.5, 4000 wide": lambda: generated(np.arange(1, 4001.0) ** -0.5, n=6000),
    }
    if folder() is not None:
        makers["mnist"] = lambda: load("mnist")[0]
        makers["farm-ads"] = lambda: sp.csr_array(load("farm-ads")[0])
        makers["news20"] = lambda: sp.csr_array(load("news20")[0])
        makers["connectus"] = connectus
    else:
        print("Real data sets are skipped: they need ROBUSTFD_DATA.")
    for name, make in makers.items():
        if not only or name in only:
            yield name, make()


def connectus() -> Any:
    """Return the rows of connectus."""
    path = folder()
    assert path is not None
    with lzma.open(path / "connectus.mat.xz") as file:
        problem = scipy.io.loadmat(file)["Problem"]
    return sp.csr_array(problem["A"][0, 0].T.astype(np.float64))


@one_blas_thread()
def exact_values(x: Any, most: int) -> tuple[Floats, float]:
    """Return the largest eigenvalues of the exact scatter matrix, and the sum of all eigenvalues."""
    mean = np.asarray(x.mean(axis=0)).ravel()
    n, d = x.shape
    total = float((x.power(2) if sp.issparse(x) else np.square(x)).sum()) - n * float(mean @ mean)
    if d <= 5000:
        gram = x.T @ x
        scatter = (gram.toarray() if sp.issparse(gram) else gram) - n * np.outer(mean, mean)
        return np.linalg.eigvalsh(scatter)[::-1][:most], total

    def product(v: Floats) -> Floats:
        z = x @ v - mean @ v
        return np.asarray(x.T @ z - mean * z.sum())

    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    found = eigsh(operator, most, return_eigenvectors=False, v0=np.ones(d))
    return np.sort(found)[::-1], total


def captured(x: Any, v: Floats) -> float:
    """Return the scatter of the rows along orthonormal directions."""
    mean = np.asarray(x.mean(axis=0)).ravel()
    z = np.asarray(x @ v.T) - v @ mean
    return float(np.square(z).sum())


def timed(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[Any, float]]:
    """Return the result of each task and its smallest CPU time, which other programs affect less than wall time.

    The tasks take turns, so that a slow minute of the machine affects all of them.
    """
    found: dict[str, tuple[Any, float]] = {}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.process_time()
            with one_blas_thread():
                result = task()
                _ = result.components_, result.explained_variance_
            best = found[name][1] if name in found else np.inf
            found[name] = result, min(best, time.process_time() - start)
    return found


def in_batches(model: Any, x: Any) -> Any:
    """Return the model after ten batches."""
    for part in np.array_split(np.arange(x.shape[0]), 10):
        model.partial_fit(x[part[0] : part[-1] + 1])
    return model


def rows_in_memory(pca: Any) -> int:
    """Return the largest number of rows of length d in memory."""
    sketch = pca.sketch_
    if isinstance(sketch, ExactSecondMoment):
        return int(sketch.n_features_in_ + 1024)
    return int(sketch.buffer_size + 2 * sketch.sketch_size)


def contestants(x: Any, k: int, rows: int) -> dict[str, Callable[[], Any] | str]:
    """Return a factory for each model, or the reason why it does not run."""
    (n, d), sparse = x.shape, sp.issparse(x)

    def incremental(batch: int | None) -> Callable[[], Any] | str:
        size = 5 * d if batch is None else batch
        side = min(size + k, d)
        if min(size, n) * d > 2.5e8:
            return f"a batch of {min(size, n) * d * 8 / 1e9:.1f} GB"
        work = n * d * side
        if work > (SLOWEST if k == 10 else SLOW):
            return "minutes" if work > SLOWEST else "minutes; see k = 10"
        return lambda: IncrementalPCA(k, batch_size=batch).fit(x)

    return {
        "SketchedPCA, fit": lambda: SketchedPCA(k).fit(x),
        "SketchedPCA, partial_fit": lambda: in_batches(SketchedPCA(k), x),
        "IncrementalPCA": incremental(None),
        "IncrementalPCA, same rows": incremental(max(rows - k, k)),
        "TruncatedSVD" if sparse else "PCA": (
            (lambda: TruncatedSVD(k, random_state=0).fit(x)) if sparse else lambda: PCA(k, random_state=0).fit(x)
        ),
    }


def compare(name: str, x: Any, values: Floats, total: float, k: int) -> tuple[list[str], list[str]]:
    """Return the lines of a table and the missed goals."""
    lines, missed, found = [], [], {}
    rows = rows_in_memory(SketchedPCA(k).partial_fit(x[:2]))
    tasks = contestants(x, k, rows)
    ready: dict[str, Any] = {who: make for who, make in tasks.items() if not isinstance(make, str)}
    slow = {who: ready.pop(who) for who in list(ready) if "Incremental" in who}
    results = timed(ready, 5) | timed(slow, 1)
    for who, make in tasks.items():
        if isinstance(make, str):
            lines.append(f"| {name} | {k} | {who} | - | - | - | not run: {make} |")
            continue
        model, seconds = results[who]
        error = float(np.abs(model.explained_variance_ / (values[:k] / (x.shape[0] - 1)) - 1).max())
        best = total - values[:k].sum()
        excess = max(0.0, float(values[:k].sum() - captured(x, np.asarray(model.components_)))) / best
        found[who] = error, excess, seconds
        note = ""
        if who.startswith("Sketched"):
            low, high = model.explained_variance_interval_.T
            width = float(((high - low) / low).max())
            note = f"certain to {width:.2g}; {type(model.sketch_).__name__}"
            truth = values[:k] / (x.shape[0] - 1)
            if not np.all((low <= truth * (1 + 1e-9)) & (truth <= high * (1 + 1e-9))):
                missed.append(f"{name}, k={k}: an interval does not hold")
        elif who == "TruncatedSVD":
            note = f"fit takes {found['SketchedPCA, fit'][2] / seconds:.2f} times as long (goal 1.2)"
        lines.append(f"| {name} | {k} | {who} | {error:.2g} | {100 * excess:.2g} | {seconds:.2f} | {note} |")
    error, excess, seconds = found["SketchedPCA, fit"]
    for who, factor in (("IncrementalPCA, same rows", 1.0), ("IncrementalPCA", 1.5)):
        if who in found:
            limits = factor * found[who][0] + 1e-9, factor * found[who][1] + 1e-9, found[who][2]
            for what, got, limit in zip(("variances", "reconstruction", "time"), (error, excess, seconds), limits):
                if got > limit:
                    missed.append(f"{name}, k={k}: {what} {got:.3g}, {who} {limit:.3g}")
    if "TruncatedSVD" in found and seconds > 1.2 * found["TruncatedSVD"][2]:
        ratio = seconds / found["TruncatedSVD"][2]
        missed.append(f"{name}, k={k}: {ratio:.1f} times the time of TruncatedSVD (goal 1.2)")
    return lines, missed


def regressions() -> Iterator[tuple[str, Any, Floats]]:
    """Yield names, rows and targets."""
    rng = np.random.default_rng(1)
    for name, scales in (
        ("flat, 300", np.ones(300)),
        ("i^-0.5, 300", np.arange(1, 301.0) ** -0.5),
        ("1/i, 1000", 1 / np.arange(1, 1001.0)),
        ("1/i, 3000", 1 / np.arange(1, 3001.0)),
        ("exp(-i/30), 3000", np.exp(-np.arange(3000) / 30)),
        ("flat, 3000", np.ones(3000)),
    ):
        x = generated(scales, n=5000)
        y = x @ rng.standard_normal(len(scales))
        yield name, x, y + 0.1 * y.std() * rng.standard_normal(len(y))
    if folder() is not None:
        for name in ("mnist", "a9a", "farm-ads"):
            x, y = load(name)
            yield name, x[:20_000], np.asarray(y[:20_000], dtype=np.float64)


def ridge_line(name: str, x: Any, y: Floats, alpha: float) -> tuple[str, str | None]:
    """Return the line of a table, and the goal if it is missed."""
    test = np.arange(x.shape[0]) % 4 == 0
    start = time.perf_counter()
    exact = Ridge(alpha).fit(x[~test], y[~test])
    exact_time, start = time.perf_counter() - start, time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SketchSizeWarning)
        model = SketchedRidge(alpha).fit(x[~test], y[~test])
        _ = model.coef_
    own_time = time.perf_counter() - start
    one, two = exact.score(x[test], y[test]), model.score(x[test], y[test])
    warned = "; ".join(str(each.message).rsplit(". ", 1)[-1] for each in caught) or "none"
    missed = None if caught or two >= one - 0.01 else f"ridge, {name}, alpha={alpha:g}: R^2 {two:.3f}, Ridge {one:.3f}"
    kept = type(model.sketch_).__name__
    return (
        f"| {name} | {alpha:g} | {one:.4f} | {two:.4f} | {exact_time:.2f} | {own_time:.2f} | {kept} | {warned} |",
        missed,
    )


def cpu(task: Callable[[], Any], repeats: int = 3) -> float:
    """Return the smallest CPU time of a task."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        with one_blas_thread():
            task()
        times.append(time.process_time() - start)
    return min(times)


def exact_or_sketch() -> list[str]:
    """Return a table of the CPU seconds of the exact matrix and of the sketch, over m and d."""
    lines = ["", "| m | d | d / m | exact: rows | exact: reading | sketch: rows | sketch: reading |"]
    lines.append("|---|---|---|---|---|---|---|")
    for m in (60, 100, 200):
        for d in (10 * m, 20 * m, 30 * m):
            if d > 2000:  # the exact matrix is never kept
                continue
            x = generated(np.arange(1, d + 1.0) ** -0.5, n=4000)
            k = (m - 50) // 2
            cells = []
            for empty in (SketchedPCA(k), SketchedPCA(k, sketch_size=m)):
                if empty.sketch_size == "auto":
                    empty._features_per_row = d  # forces the exact matrix
                rows = cpu(lambda model=empty, x=x: copy.copy(model).partial_fit(x))
                both = cpu(lambda model=empty, x=x: copy.copy(model).partial_fit(x).components_)
                cells += [f"{rows:.2f}", f"{max(0.0, both - rows):.2f}"]
            lines.append(f"| {m} | {d} | {d // m} | {' | '.join(cells)} |")
    return lines


HEAD = ["| data | k | | variances off by | excess error % | seconds | |", "|---|---|---|---|---|---|---|"]


def components(only: list[str] | None = None) -> tuple[list[str], list[str]]:
    """Print the table of principal components; return its lines and the missed goals."""
    lines, missed = [], []
    print("\n".join(["", "pca", *HEAD]))
    for name, x in data_sets(only):
        values, total = exact_values(x, max(COMPONENTS))
        for k in COMPONENTS:
            some, wrong = compare(name, x, values, total, k)
            print("\n".join(some), flush=True)
            lines, missed = lines + some, missed + wrong
    return lines, missed


def ridges() -> tuple[list[str], list[str]]:
    """Return the lines of the table of ridge regressions and the missed goals."""
    table = [
        "",
        "| data | alpha | R^2 Ridge | R^2 SketchedRidge | s | s | keeps | warning |",
        "|---|---|---|---|---|---|---|---|",
    ]
    missed = []
    for name, x, y in regressions():
        for alpha in (1.0, 100.0, 10_000.0):
            line, wrong_one = ridge_line(name, x, y, alpha)
            table.append(line)
            missed += [] if wrong_one is None else [wrong_one]
    return table, missed


def verdict(missed: list[str]) -> list[str]:
    """Return the missed goals as lines."""
    return ["", "Missed:", *(f"- {each}" for each in missed)] if missed else ["", "All goals are met."]


def pca() -> None:
    """Run all cases, print the tables and save them."""
    lines, missed = components()
    table, wrong = ridges()
    costs, late = pca_cost.costs()
    table += exact_or_sketch() + costs
    end = verdict(missed + wrong + late)
    print("\n".join(table + end))
    doc = (__doc__ or "").split("\n\n", 2)
    title = "# PCA and ridge regression compared with scikit-learn"
    text = [title, "", doc[-1].strip(), "", *HEAD, *lines, *table, *end]
    save_markdown("pca", "\n".join(text))


if __name__ == "__main__":
    chosen = sys.argv[1:]
    if chosen != ["cost"]:
        print("\n".join(verdict(components(chosen)[1])))
    if not chosen or "cost" in chosen:
        found, late_ones = pca_cost.costs()
        print("\n".join(found + verdict(late_ones)))
