"""Sliding windows: error, certificate, memory and time compared with DS-FD, LM-FD and plain decay.

    python -m benchmarks.windows [--window 2000] [--rows 100] [--picture docs/windows.png] [streams]

The sketch sizes are chosen so that all hold about the same number of rows at their peak, the column "rows". Errors are
||A'A - (B'B + alpha I)||_2 / ||A||_F^2 for the rows A in the window, at sixteen points per window, starting in the
middle of the first one. Every certificate is compared with the error at each point. DS-FD is given the mean mass of a
window in advance, in both forms, of which the one with a heap has no certificate. Times are for `partial_fit` alone,
compared with robust frequent directions of the same sketch size. Memory is counted in rows of length d; a sliding
window also has twelve numbers for each of its steps.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import RESULTS, save_markdown
from benchmarks.window_peers import Decayed, DumpSnapshotFD, HeapSnapshotFD, LogarithmicFD, Sliding
from benchmarks.window_streams import STREAMS, turning
from robustfd import RobustFrequentDirections

PARTS = 16  # measurements per window
GOAL = 1.3  # for the time of a row, compared with robust frequent directions of the same size
Floats = NDArray[np.float64]
Maker = Callable[[int], Any]


def contestants(A: Floats, window: int, rows: int) -> dict[str, tuple[Maker, list[int]]]:
    """Return a factory for each method, given a size, and the sizes to try."""
    d, mass = A.shape[1], float(np.einsum("ij,ij->", A, A)) * min(window / len(A), 1.0)
    return {
        "sliding": (lambda m: Sliding(window, m), list(range(10, 30)) + list(range(30, 120, 5))),
        "DS-FD": (lambda m: DumpSnapshotFD(window, m, d, mass), list(range(6, 40)) + list(range(40, 120, 4))),
        "DS-FD, heap": (lambda m: HeapSnapshotFD(window, m, d, mass), list(range(3, 40)) + list(range(40, 120, 4))),
        "LM-FD": (lambda m: LogarithmicFD(window, m, d), list(range(3, 40))),
        "decay": (lambda m: Decayed(window, m), [rows // 2]),
    }


def peak(sketch: Any, A: Floats, step: int) -> int:
    """Fit a sketch to all of A and return the most rows that it holds."""
    most = 0
    for start in range(0, len(A), step):
        sketch.partial_fit(A[start : start + step])
        most = max(most, sketch.rows)
    return most


def sized(make: Maker, sizes: list[int], A: Floats, window: int, rows: int) -> int:
    """Return the largest size whose peak is at most `rows`, or the smallest size if there is none."""
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if peak(make(sizes[middle]), A, window // 40) <= rows else (low, middle - 1)
    return sizes[low]


def errors(sketch: Any, A: Floats, window: int) -> tuple[Floats, Floats, int, int]:
    """Return errors and certificates relative to the mass of the window, the peak, and the number of failures."""
    step, grams, found, most, failed = window // PARTS, [], [], 0, 0
    for start in range(0, len(A) - step + 1, step):
        block = A[start : start + step]
        for part in np.array_split(block, 3):
            sketch.partial_fit(part)
            most = max(most, sketch.rows)
        grams = [*grams[-PARTS + 1 :], block.T @ block]
        if len(grams) < PARTS // 2:
            continue
        truth = sum(grams)
        mass = float(np.trace(truth))
        b, alpha, certificate = sketch.read()
        error = np.abs(np.linalg.eigvalsh(truth - b.T @ b) - alpha).max()
        failed += bool(error > certificate * (1 + 1e-9) + 1e-11 * mass)
        found.append((error / mass, certificate / mass))
    return *np.array(found).T, most, failed


def cost(make: Maker, m: int, A: Floats, window: int, repeats: int = 3) -> tuple[float, float]:
    """Return microseconds per row of `partial_fit` and of robust frequent directions of the same size, interleaved."""
    best, step = np.full(2, np.inf), window // 10
    A = A[: max(2 * window, 4000)]
    for _ in range(repeats):
        for i, sketch in enumerate((make(m), RobustFrequentDirections(m))):
            # CPU time, because other programs may run on this machine.
            begin = time.process_time()
            for start in range(0, len(A), step):
                sketch.partial_fit(A[start : start + step])
            best[i] = min(best[i], (time.process_time() - begin) / len(A) * 1e6)
    return float(best[0]), float(best[1])


def table(names: list[str], window: int, rows: int) -> list[str]:
    """Return the lines of a table and print each when it is complete."""
    lines = [
        f"| stream, N = {window} | | m | rows | mean error | median | max | certificate | cert / error "
        "| us | RFD | ratio |",
        "|" + "---|" * 12,
    ]
    print("\n".join(lines), flush=True)
    for name in names:
        A = STREAMS[name](0, window)
        for kind, (make, sizes) in contestants(A, window, rows).items():
            m = sized(make, sizes, A[: int(2.5 * window)], window, rows)
            error, certificate, most, failed = errors(make(m), A, window)
            assert kind in ("decay", "DS-FD, heap") or not failed, f"{kind} on {name}: {failed} certificates failed"
            ours, plain = cost(make, m, A, window)
            ratio = np.median(certificate / error)
            numbers = [error.mean(), np.median(error), error.max(), certificate.mean()]
            cells = [name, kind, str(m), str(most), *(f"{each:.4f}" for each in numbers), f"{ratio:.2f}"]
            cells += [f"{ours:.1f}", f"{plain:.1f}", f"{ours / plain:.2f}"]
            if kind == "sliding":
                cells[-1] += f" (goal {GOAL})"
            lines.append(f"| {' | '.join(cells)} |".replace("nan", "-"))
            print(lines[-1], flush=True)
    return lines


def picture(path: Path, window: int = 2000, rows: int = 100) -> None:
    """Plot the error over time for a stream whose subspace changes abruptly."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    A = np.concatenate([turning(seed, window, 2.5, quarter=np.inf) for seed in (1, 2)])
    shown = {"sliding": "C0", "DS-FD": "C1", "DS-FD, heap": "C4", "LM-FD": "C2", "decay": "C3"}
    figure, axes = plt.subplots(figsize=(9, 4.8))
    for kind, (make, sizes) in contestants(A, window, rows).items():
        m = sized(make, sizes, A, window, rows)
        error, certificate, _, _ = errors(make(m), A, window)
        at = (np.arange(len(error)) + PARTS // 2) * (window // PARTS)
        axes.semilogy(at, error, shown[kind], label=f"{kind}, m = {m}")
        if np.isfinite(certificate).all():
            axes.semilogy(at, certificate, shown[kind], linestyle=":", linewidth=1)
    axes.axvline(len(A) / 2, color="0.7")
    axes.set_xlabel(f"rows; the subspace changes at the line; window of {window} rows, about {rows} rows held")
    axes.set_ylabel("error / ||A||_F^2 (dotted: certificate)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def windows(arguments: list[str] | None = None) -> None:
    """Print and save the tables, or draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windows", description=__doc__.split("\n")[0])
    parser.add_argument("streams", nargs="*", choices=[*STREAMS, []])
    parser.add_argument("--window", type=int, action="append")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args(arguments or [])
    if chosen.picture is not None:
        picture(chosen.picture)
        return
    path = RESULTS / "windows.md"
    kept = path.read_text() if path.exists() else ""
    found = {int(block[1]): block[0] for block in re.finditer(r"\| stream, N = (\d+) .*?(?=\n\n|\Z)", kept, re.DOTALL)}
    now = chosen.window or [2000, 20000]
    found |= {n: "\n".join(table(chosen.streams or list(STREAMS), n, chosen.rows)) for n in now}
    if not chosen.streams:
        about = f"This run measured N = {', '.join(map(str, now))}; other tables are those of earlier runs."
        parts = [(__doc__ or "").split("\n\n")[2].replace("\n", " "), about, *(found[n] for n in sorted(found))]
        save_markdown("windows", "\n\n".join(parts))


if __name__ == "__main__":
    windows(sys.argv[1:])
