"""What a command imports: nothing that takes long and is not used."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

HEAVY = ("pandas", "pyarrow", "scipy.stats", "scipy.linalg", "matplotlib", "sklearn", "safetensors.torch")

TRAIN = """
import os, sys
from robustfd import cli
sys.argv = ["robustfd", *sys.argv[1:]]
status = []
os._exit = status.append
cli.script()
print(*sys.modules, file=sys.stderr)
sys.exit(status[0])
"""


def test_learning_and_predicting_from_libsvm_text_imports_nothing_heavy(svm, tmp_path):
    model = tmp_path / "model"
    for arguments in (["train", svm, "-o", model, "-q"], ["predict", model, svm]):
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert model.exists(), done.stderr
        loaded = set(done.stderr.split())
        assert "robustfd.estimators.newton" in loaded
        assert not loaded.intersection(HEAVY)


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
