"""What a command imports, its help, and the commands in docs/, which run as they are."""

import json
import os
import subprocess
import sys

import pytest

from robustfd.cli import COMMANDS
from robustfd.cli._command import Commands
from tests.cli.conftest import ROOT

WITHOUT_THREADS = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
HEAVY = ("pandas", "pyarrow", "scipy.stats", "scipy.linalg", "matplotlib", "sklearn", "safetensors.torch")

RUN = """
import json, os, sys
from robustfd import cli
status = []
os._exit = status.append
for command in json.loads(sys.argv[1]):
    sys.argv = ["robustfd", *command]
    cli.script()
print(*sys.modules, file=sys.stderr)
sys.exit(any(status))
"""


def modules_of(*commands):
    """Run commands in one process and return the modules that they imported."""
    names = json.dumps([[str(each) for each in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", RUN, names], cwd=ROOT, env=WITHOUT_THREADS, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_learning_and_predicting_from_libsvm_text_imports_nothing_heavy(svm, tmp_path):
    model = tmp_path / "model"
    loaded = modules_of(["train", svm, "-o", model, "-q"], ["predict", model, svm])
    assert model.exists() and "robustfd.estimators.newton" in loaded
    assert not loaded.intersection(HEAVY)


def test_bandits_of_text_import_nothing_heavy(tmp_path):
    commands, block = [], "shared | age:{0}\n{1}| sport long:2\n{2}| news long:1\n\n"
    for i, text in enumerate(
        (
            "".join(f"{1 + i % 2}:{i % 3 % 2}:0.5 | age:{i % 7} sex=f\n" for i in range(200)),
            "".join(block.format(i, *(("0:1:0.5 ", "") if i % 2 else ("", "0:0:0.5 "))) for i in range(100)),
        )
    ):
        model, log = tmp_path / f"policy{i}", tmp_path / f"log{i}"
        log.write_text(text)
        commands += [["train", log, "-o", model, "-q"], ["predict", model, log], ["evaluate", model, log]]
    loaded = modules_of(*(["bandit", *command] for command in commands))
    assert "robustfd.estimators.bandit" in loaded
    assert not loaded.intersection([*HEAVY, "scipy"])


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
    done = subprocess.run(
        [sys.executable, "-c", TOLD, command],
        cwd=ROOT,
        env=WITHOUT_THREADS | given,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [threads, "False"]


def test_version_is_a_switch_without_an_opposite(run):
    import robustfd

    assert run("--version").out.strip() == robustfd.__version__
    shown = run("--help").out
    assert "--version" in shown and "--no-version" not in shown


def test_help_of_every_command_reads(run):
    whole = run("--help")
    assert whole.status == 0
    for name, (_, about) in [each for names in COMMANDS.values() for each in names.items()]:
        assert f"\n  {name} " in whole.out
        done = run(name, "--help")
        assert done.status == 0 and "Usage" in done.out
        found = Commands(COMMANDS).get_command(None, name).help
        assert about == " ".join(found.split("\n\n")[0].split()), "the first paragraph of its help"


def test_the_help_imports_no_command():
    code = (
        "import sys; sys.argv[1:] = ['--help']; from robustfd.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    code += "assert not {'numpy', 'rich.console', 'robustfd.cli.train'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


STARTED = """
import os, sys
from robustfd import cli
from robustfd.streams import scan
scan.start = lambda name: print(repr(name))
cli.main = lambda: None
cli.script()
"""


@pytest.mark.parametrize("arguments, name", [
    (["train", "rows", "-o", "model"], "rows"), (["train", "-o", "model", "rows", "more"], "rows"), (["train"], ""),
    (["train", "--passes=2", "rows"], ""), (["train", "-", "-o", "model"], ""), (["predict", "model", "rows"], None),
])  # fmt: skip
def test_training_starts_to_scan_the_first_file(arguments, name):
    command = [sys.executable, "-c", STARTED, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=WITHOUT_THREADS, capture_output=True, text=True, check=True)
    assert done.stdout == ("" if name is None else f"{name!r}\n")
