"""Standard input that is closed, standard output that nobody reads, and checkpoints that are links."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT
from tests.cli.warm import write_rows


@pytest.fixture
def sketch(run, svm, tmp_path):
    assert run("sketch", svm, "-m", 5, "-o", tmp_path / "sketch", "-q").status == 0
    return tmp_path / "sketch"


def test_standard_input_is_closed(run, tmp_path, monkeypatch):
    """Python has None for it then."""
    from robustfd.cli import main

    monkeypatch.setattr(sys, "argv", ["robustfd", "train", "-", "-o", str(tmp_path / "model")])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["table", "json"])
def test_nobody_reads_the_result(sketch, more):
    """As in `robustfd info x | true`: the status is that of a process that a broken pipe ends, and nothing is said."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "robustfd", "info", sketch, *more],
            cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_checkpoint_that_is_a_link_to_nothing_yet(warm, tmp_path):
    """The file it leads to is written, gone on from and removed; the link stays for the next run."""
    folder, link = tmp_path / "elsewhere", tmp_path / "kept"
    folder.mkdir()
    link.symlink_to(folder / "kept")
    with open(write_rows(tmp_path / "rows.svm", 300), "a") as file:
        file.write("1 1:x\n")
    command = ("sketch", "rows.svm", "--features", 20, "-m", 5)
    kept = ("--checkpoint", "kept", "--every", 1, "--resume")
    assert warm.run(tmp_path, *command, "-o", "whole", "--on-error", "skip").status == 0
    assert warm.run(tmp_path, *command, "-o", "model", *kept).status == 1
    assert link.is_symlink() and [each.name for each in folder.iterdir()] == ["kept"]
    done = warm.run(tmp_path, *command, "-o", "model", *kept, "--on-error", "skip")
    assert done.status == 0 and "Continuing from row" in done.err
    assert link.is_symlink() and list(folder.iterdir()) == []
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("target, words", [("kept", "link to itself"), ("nowhere/kept", "There is no directory")])
def test_a_checkpoint_that_is_a_link_to_nowhere(run, svm, tmp_path, target, words):
    (tmp_path / "kept").symlink_to(tmp_path / target)
    for option in ("--checkpoint", "-o"):
        other = ("-o", tmp_path / "model") if option == "--checkpoint" else ()
        done = run("train", svm, option, tmp_path / "kept", *other)
        assert done.status == 1 and words in done.err and "Traceback" not in done.err
    assert not (tmp_path / "model").exists() and (tmp_path / "kept").is_symlink()
