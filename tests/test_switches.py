"""Python and numba with their switches: without docstrings and asserts (-OO), and without compilation, to debug."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd

ROOT = Path(__file__).parents[1]


def results():
    """What everything that has compiled loops says about a few rows: {what: numbers}."""
    rng = np.random.default_rng(0)
    dense, wide = rng.standard_normal((12, 4)), sp.random(12, 300, 0.05, "csr", random_state=1)
    y, found = np.where(dense[:, 0] > 0, 1.0, -1.0), {}
    for kind in ("RobustFrequentDirections", "DiagonalFrequentDirections", "RandomProjectionSketch", "OjaSketch"):
        more = {} if "Frequent" in kind else {"random_state": 0}
        for name, x in (("dense", dense), ("wide", wide)):
            found[f"{kind} {name}"] = getattr(robustfd, kind)(3, **more).fit(x).singular_values_
    for sketch in ("rfd", "pfd", "rp", "full"):
        for name, x in (("dense", dense), ("wide", wide[:, :20])):
            learner = robustfd.OnlineNewton(sketch, 3, random_state=0)
            found[f"OnlineNewton {sketch} {name}"] = learner.learn(x, y)
    for kind in ("AdaGrad", "OnlineGradientDescent"):
        found[kind] = getattr(robustfd, kind)().learn(wide, y)
    for size in (0, 3, "auto"):
        for name, x in (("dense", dense), ("wide", wide)):
            model = robustfd.SketchedNewtonClassifier(size).partial_fit(x, y, classes=[-1, 1])
            found[f"SketchedNewton {size} {name}"] = model.predict_proba(x)[:, 1]
    found["RFDSON"] = robustfd.RFDSONRegressor(3).fit(dense, dense[:, 0]).predict(dense)
    eigen = import_module("robustfd.linalg.eigen")
    found["eigenvalues"] = eigen.compiled_eigenpairs(dense.T @ dense, 2)[0]
    found |= {f"read {name}": np.asarray(total) for name, total in read()}
    return {what: np.asarray(values, dtype=float).tolist() for what, values in found.items()}


def read():
    """Yield sums of rows that are read from text."""
    from io import BytesIO

    from robustfd.streams import open_stream

    rows = b"1 1:0.5 3:-2e-3 # x\n-1 2:123456789.125\n"
    for name, options in (("indices", {"n_features": 3}), ("names", {"hash_bits": 8})):
        text = rows if name == "indices" else rows + b"1 colour=red size:2\n"
        yield name, sum(block.X.sum() for block in open_stream(BytesIO(text), format="libsvm", **options))
    table = b'a,b\n1,"x, y"\n2,z\n'
    yield "csv", sum(abs(block.X).sum() for block in open_stream(BytesIO(table), format="csv", hash_bits=8))


@pytest.mark.parametrize("flags", [[], ["-OO"]], ids=["asserts", "-OO"])
def test_everything_works_without_compilation(flags):
    """And says the same, to rounding: the untuned learner computes in float32."""
    code = "import json; from tests.test_switches import results; print(json.dumps(results()))"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", *flags, "-c", code],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), results()
    assert found.keys() == expected.keys()
    for what, values in expected.items():
        np.testing.assert_allclose(found[what], values, rtol=1e-3, atol=1e-4, err_msg=what)


def test_nothing_relies_on_docstrings_or_asserts(tmp_path):
    """Every public name, and the command line with its help."""
    code = """
import sys, robustfd
for name in robustfd.__all__:
    getattr(robustfd, name)
robustfd.RobustFrequentDirections(3).fit([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0], [1.0, 1.0]]).save(sys.argv[1])
from robustfd.cli import main
for arguments in (["train", "--help"], ["info", sys.argv[1]]):
    sys.argv = ["robustfd", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""
    done = subprocess.run(
        [sys.executable, "-OO", "-c", code, str(tmp_path / "sketch")],
        cwd=ROOT, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--resume" in done.stdout and "RobustFrequentDirections" in done.stdout


def test_an_error_while_a_name_is_resolved_shows_its_cause(monkeypatch):
    """`from robustfd import merge` would say "cannot import name 'merge'" and nothing else."""

    def broken(name):
        raise AttributeError("module 'numpy' has no attribute 'float'")

    monkeypatch.delitem(vars(robustfd), "merge", raising=False)
    monkeypatch.setattr("robustfd._lazy.import_module", broken)
    with pytest.raises(ImportError, match="robustfd.merge could not be imported: module 'numpy' has no") as caught:
        from robustfd import merge  # noqa: F401
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        robustfd.nothing  # noqa: B018
