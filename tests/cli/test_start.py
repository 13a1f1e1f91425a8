"""What a command imports: nothing that takes long and is not used."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

HEAVY = ("pandas", "pyarrow", "scipy.stats._stats_py", "matplotlib", "sklearn.linear_model", "safetensors.torch")

TRAIN = """
import sys
from robustfd import cli
sys.argv = ["robustfd", "train", sys.argv[1], "-o", sys.argv[2], "-q"]
try:
    cli.main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_training_from_libsvm_text_imports_nothing_heavy(svm, tmp_path):
    command = [sys.executable, "-c", TRAIN, svm, tmp_path / "model"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (tmp_path / "model").exists(), done.stderr
    loaded = set(done.stderr.split())
    assert "robustfd.estimators.sketched_newton" in loaded
    assert not loaded.intersection(HEAVY)


AFTER = """
import sys
from robustfd.cli._fast_import import import_scikit_learn
import_scikit_learn()
assert "pandas" not in sys.modules
import numpy as np, scipy.stats, pandas
from sklearn.utils.validation import check_array
assert scipy.stats.norm.cdf(0.0) == 0.5
assert check_array(pandas.DataFrame({"a": [1.0, 2.0]})).shape == (2, 1)
"""


def test_what_was_left_out_can_be_used_later():
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", AFTER], cwd=ROOT, check=True, env=dict(os.environ))


TOLD = """
import os, sys
from robustfd import cli
sys.argv = ["robustfd", sys.argv[1]]
cli.main = lambda: print(os.environ.get("OPENBLAS_NUM_THREADS"), "numpy" in sys.modules)
cli.script()
"""


@pytest.mark.parametrize("command, given, threads", [
    ("train", {}, "1"), ("train", {"OPENBLAS_NUM_THREADS": "2"}, "2"), ("train", {"OMP_NUM_THREADS": "2"}, "None"),
    ("sketch", {}, "None"),
])  # fmt: skip
def test_training_has_one_thread_of_blas_unless_somebody_says_otherwise(command, given, threads):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")} | given
    done = subprocess.run(
        [sys.executable, "-c", TOLD, command], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [threads, "False"]


def test_version_is_a_switch_without_an_opposite(run):
    import robustfd

    assert run("--version").out.strip() == robustfd.__version__
    shown = run("--help").out
    assert "--version" in shown and "--no-version" not in shown
