"""After `robustfd warm-up` nothing is compiled any more."""

import json
import os
import subprocess
import sys
from pathlib import Path

from robustfd import _compile
from robustfd.cli import warm_up
from tests.cli.conftest import ROOT

LATER = """
import sys
from pathlib import Path
import numpy as np
import scipy.sparse as sp
import robustfd
from robustfd import _compile
from robustfd.cli import main

folder = Path(sys.argv[1])
rng = np.random.default_rng(1)
x = rng.standard_normal((90, 4))
y = (x[:, 0] > 0).astype(int)
(folder / "a.svm").write_text("".join(f"{label} 1:{row[0]} 3:{row[1]}\\n" for label, row in zip(y, x)))
header = "a,b,colour,y\\n"
text = "".join(f"{r[0]},{r[1]},{'r' if r[2] > 0 else 'b'},{v}\\n" for v, r in zip(y, x))
(folder / "a.csv").write_text(header + text)
import pyarrow.csv, pyarrow.parquet
pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "a.csv"), folder / "a.parquet")
np.save(folder / "a.npy", x)


def command(*arguments):
    sys.argv = ["robustfd", *map(str, arguments), "-q"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
    seconds = _compile.compile_seconds()
    assert seconds == 0.0, (arguments, seconds)


for name in ("a.svm", "a.csv", "a.parquet"):
    for more in ((), ("--task", "regression"), ("--learner", "rfdson"), ("-m", 7)):
        command("train", folder / name, "-o", folder / "m.rfd", *more)
        command("predict", folder / "m.rfd", folder / name, "-o", folder / "p.csv")
    command("sketch", folder / name, "-m", 3, "-o", folder / "s.rfd")
command("sketch", folder / "a.npy", "-m", 3, "-o", folder / "s.rfd")
wide = sp.random_array((300, 3000), density=0.01, format="csr", rng=rng)
forms = [x, x.astype(np.float32), np.asfortranarray(x), sp.csr_matrix(x), sp.csc_matrix(x.astype(np.float32)), wide]
for form in forms:
    targets = np.where(np.arange(form.shape[0]) % 3 == 0, 1.0, -1.0)
    sketches = ("rfd", "fd", "pfd", "rp", "oja")
    learners = [robustfd.OnlineNewton(sketch, 5, alpha0=100.0, random_state=0) for sketch in sketches]
    for model in (*learners, robustfd.AdaGrad(), robustfd.OnlineGradientDescent()):
        model.learn(form, targets)
        model.decision_function(form)
    for model in (
        robustfd.SketchedNewtonClassifier(), robustfd.SketchedNewtonClassifier(4), robustfd.RFDSONClassifier(5),
        robustfd.SketchedNewtonRegressor(), robustfd.RFDSONRegressor(5), robustfd.SketchedRidge(),
        robustfd.SketchedPCA(2), robustfd.MahalanobisDetector(5), robustfd.RobustFrequentDirections(5),
        robustfd.FrequentDirections(5, center=True), robustfd.DiagonalFrequentDirections(5), robustfd.GreedySketch(5),
        robustfd.RandomProjectionSketch(5), robustfd.OjaSketch(5),
    ):
        model.fit(form, targets)
        if hasattr(model, "predict"):
            model.predict(form)
        assert _compile.compile_seconds() == 0.0, (model, type(form), form.dtype)
"""


def test_nothing_is_compiled_afterwards(tmp_path):
    # In the folder that other tests use as well: most of it has been compiled there before.
    done = subprocess.run([sys.executable, "-m", "robustfd", "warm-up", "--json"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["folder"]).is_dir()
    later = subprocess.run(
        [sys.executable, "-c", LATER, tmp_path], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True
    )
    assert later.returncode == 0, later.stderr


def test_what_cannot_be_kept_is_said_with_what_to_set(run, monkeypatch):
    monkeypatch.setattr(warm_up, "workloads", lambda folder: iter(()))
    monkeypatch.setattr(_compile._watch, "reason", "no locator available")
    done = run("warm-up", "--json")
    assert done.status == 1
    assert json.loads(done.out)["folder"] == ""
    assert "NUMBA_CACHE_DIR" in done.err and "no locator available" in done.err


def test_nothing_is_compiled_where_that_is_switched_off(run, monkeypatch):
    monkeypatch.setattr(_compile, "JIT", False)
    done = run("warm-up")
    assert done.status == 2
    assert "NUMBA_DISABLE_JIT" in done.err
