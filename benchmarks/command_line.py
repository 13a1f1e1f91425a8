"""`robustfd train` from text to a model file, compared with Vowpal Wabbit.

`command_line` compares it, including start-up, with --OjaNewton. Vowpal Wabbit runs inside this process, so its
start-up does not count. robustfd is a separate process. Both read their own text format and learn in one pass with
sketches of the same size.

`price` compares it, without options, with the usual mode of Vowpal Wabbit: two processes, started as users start them,
without the start-up time of both. It also measures a short job including start-up.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from benchmarks import vowpal
from benchmarks.common import report, seconds
from benchmarks.data import folder
from benchmarks.online_speed import rows_of
from benchmarks.sketch_speed import _row

COPIES = {"a9a": 10, "farm-ads": 5, "news20": 5, "w8a": 3, "sector": 3}
FEW = 50  # rows whose time is negligible compared with start-up
SHORT = 1000  # rows of a job that is mostly start-up
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def command_line() -> None:
    """Measure seconds of the whole job on three data sets, and the speed-up over Vowpal Wabbit."""
    if folder() is None or not vowpal.available():
        print("\ncommand_line: skipped, it needs ROBUSTFD_DATA and the package vowpalwabbit")
        return
    results = []
    with tempfile.TemporaryDirectory() as place:
        for name in ("a9a", "farm-ads", "news20"):
            x, y = rows_of(name)
            text, theirs = Path(place) / "rows.svm", Path(place) / "rows.vw"
            dump_svmlight_file(x, y, str(text), zero_based=False)
            theirs.write_text("".join(f"{label:.0f} {line}\n" for label, line in zip(y, vowpal.lines(x), strict=True)))
            for m, repeats in ((20, 5), (50, 1)):
                results += _compare(name, text, theirs, x.shape[1], m, repeats)
    report("command_line", results)


def _compare(name: str, text: Path, theirs: Path, d: int, m: int, repeats: int) -> list[dict[str, Any]]:
    """Return the results for one data set and one sketch size."""

    def train(learner: str) -> None:
        command = [sys.executable, "-m", "robustfd", "train", text, "-o", text.with_suffix(".rfd"), "-m", str(m)]
        subprocess.run([*command, "--quiet", "--learner", learner], check=True, stdout=subprocess.DEVNULL)

    for learner in ("rfdson", "newton"):
        train(learner)  # fills the file cache
    options = f"--OjaNewton --sketch_size {m} --loss_function logistic"
    tasks = {
        "vw": lambda: vowpal.run(options, d, theirs),
        "rfdson": lambda: train("rfdson"),
        "newton": lambda: train("newton"),
    }
    best = seconds(tasks, repeats)
    results = [_row(f"{name}, m = {m}: --OjaNewton, without start-up", best["vw"], "s")]
    for learner, called in (("rfdson", "--learner rfdson (RFD-SON)"), ("newton", "default, nothing to tune")):
        results.append(_row(f"{name}, m = {m}: robustfd train, {called}", best[learner], "s"))
        results.append(_row("  faster than --OjaNewton by", best["vw"] / best[learner], "", least=1.0))
    return results


def price(repeats: int = 5) -> None:
    """Measure seconds of a pass and their ratio to Vowpal Wabbit's, and those of a short job."""
    if folder() is None or not vowpal.available():
        print("\nprice: skipped, it needs ROBUSTFD_DATA and the package vowpalwabbit")
        return
    results = []
    with tempfile.TemporaryDirectory() as place:
        for name, copies in COPIES.items():
            files = _write(Path(place), name, copies)
            best = seconds({what: lambda command=command: _run(command) for what, command in files.items()}, repeats)
            ours, theirs = (best[who] - best[f"{who}, few"] for who in ("robustfd", "vw"))
            results.append(_row(f"{name} x {copies}: robustfd train", ours, "s"))
            results.append(_row("  vw --loss_function logistic -b 18", theirs, "s"))
            results.append(_row("  robustfd / vw", ours / theirs, "", most=0.8))
        results.append(_short_job(Path(place), repeats))
    report("price", results)


def _write(place: Path, name: str, copies: int) -> dict[str, list[Any]]:
    """Write copies of a data set, and its first rows, in both formats. Return the commands that learn them."""
    x, y = rows_of(name)
    x, y = sp.vstack([sp.csr_matrix(x)] * copies, format="csr"), np.tile(y, copies)
    commands = {}
    first = np.sort(np.concatenate([np.flatnonzero(y == label)[: FEW // 2] for label in (-1, 1)]))
    for few, rows in (("", slice(None)), (", few", first)):
        text, theirs = place / f"rows{few}.svm", place / f"rows{few}.vw"
        dump_svmlight_file(x[rows], y[rows], str(text), zero_based=False)
        lines = zip(y[rows], vowpal.lines(x[rows]), strict=True)
        theirs.write_text("".join(f"{label:.0f} {line}\n" for label, line in lines))
        commands[f"robustfd{few}"] = _train(text)
        commands[f"vw{few}"] = [
            sys.executable, "-m", "vowpalwabbit", "--loss_function", "logistic", "-b", "18",
            "-f", theirs.with_suffix(".model"), "-d", theirs,
        ]  # fmt: skip
    _run(commands["robustfd"])  # fills the file cache
    return commands


def _train(text: Path) -> list[Any]:
    """Return the training command without options."""
    return [sys.executable, "-m", "robustfd", "train", text, "-o", text.with_suffix(".rfd")]


def _run(command: list[Any]) -> None:
    """Run a command without a setting for the number of threads, as users do."""
    inherited = {name: value for name, value in os.environ.items() if name not in THREADS}
    subprocess.run(command, check=True, env=inherited, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _short_job(place: Path, repeats: int) -> dict[str, Any]:
    """Return the seconds of a command on few rows, including start-up."""
    x, y = rows_of("a9a")
    text = place / "short.svm"
    dump_svmlight_file(x[:SHORT], y[:SHORT], str(text), zero_based=False)
    best = seconds({"it": lambda: _run(_train(text))}, repeats)["it"]
    return _row(f"robustfd train of {SHORT:,} rows of a9a, start-up counted", best, "s", most=0.5)
