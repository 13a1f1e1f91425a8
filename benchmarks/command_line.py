"""`robustfd train` from text to a file of a model, start-up and parsing counted, against Vowpal Wabbit's --OjaNewton.

Vowpal Wabbit runs inside this process, so that its own start-up is not counted; the command is a process of its own, its
loops compiled by an earlier run. Both read text of their own format and learn in one pass; sketches have the same size.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import dump_svmlight_file

from benchmarks import vowpal
from benchmarks.common import report, seconds
from benchmarks.data import folder
from benchmarks.online_speed import rows_of
from benchmarks.sketch_speed import _row


def command_line(m: int = 20, repeats: int = 5) -> None:
    """Seconds of the whole job on three sets, and how many times faster than Vowpal Wabbit that is."""
    if folder() is None or not vowpal.available():
        print("\ncommand_line: skipped, it needs ROBUSTFD_DATA and the package vowpalwabbit")
        return
    results = []
    with tempfile.TemporaryDirectory() as place:
        for name in ("a9a", "farm-ads", "news20"):
            x, y = rows_of(name)
            text, theirs, model = (Path(place) / each for each in ("rows.svm", "rows.vw", "model.rfd"))
            dump_svmlight_file(x, y, str(text), zero_based=False)
            theirs.write_text("".join(f"{label:.0f} {line}\n" for label, line in zip(y, vowpal.lines(x), strict=True)))

            def train(learner: str, text: Path = text, model: Path = model) -> None:
                command = [sys.executable, "-m", "robustfd", "train", text, "-o", model, "-m", str(m), "--quiet"]
                subprocess.run([*command, "--learner", learner], check=True, stdout=subprocess.DEVNULL)

            options, d = f"--OjaNewton --sketch_size {m} --loss_function logistic", x.shape[1]
            for learner in ("rfdson", "newton"):
                train(learner)  # compiles
            best = seconds(
                {
                    "vw": lambda options=options, d=d, theirs=theirs: vowpal.run(options, d, theirs),
                    "rfdson": lambda train=train: train("rfdson"),
                    "newton": lambda train=train: train("newton"),
                },
                repeats if len(y) * np.mean(np.diff(x.indptr)) < 1e6 else 2,
            )
            results.append(_row(f"{name}, m = {m}: --OjaNewton, without start-up", best["vw"], "s"))
            for learner, called in (("rfdson", "--learner rfdson (RFD-SON)"), ("newton", "default, nothing to tune")):
                results.append(_row(f"{name}: robustfd train, {called}", best[learner], "s"))
                results.append(_row("  faster than --OjaNewton by", best["vw"] / best[learner], "", least=1.0))
    report("command_line", results)
