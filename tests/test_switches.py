"""Python with its switches: without docstrings and asserts (-OO)."""

import subprocess
import sys
from pathlib import Path

import pytest

import robustfd

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
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
        cwd=ROOT, capture_output=True, text=True, timeout=300,
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
