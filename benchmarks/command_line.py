"""`robustfd train` from text to a file of a model, start-up and parsing counted, against Vowpal Wabbit's --OjaNewton.

Vowpal Wabbit runs inside this process, so that its own start-up is not counted; the command is a process of its own,
its loops compiled by an earlier run. Both read text of their own format and learn in one pass, with equal sketches.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sklearn.datasets import dump_svmlight_file

from benchmarks import vowpal
from benchmarks.common import report, seconds
from benchmarks.data import folder
from benchmarks.online_speed import rows_of
from benchmarks.sketch_speed import _row


def command_line() -> None:
    """Seconds of the whole job on three sets, and how many times faster than Vowpal Wabbit that is."""
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
    """Return the rows of one set and one size of the sketch."""

    def train(learner: str) -> None:
        command = [sys.executable, "-m", "robustfd", "train", text, "-o", text.with_suffix(".rfd"), "-m", str(m)]
        subprocess.run([*command, "--quiet", "--learner", learner], check=True, stdout=subprocess.DEVNULL)

    for learner in ("rfdson", "newton"):
        train(learner)  # compiles
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
