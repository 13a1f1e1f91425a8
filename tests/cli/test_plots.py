"""Pictures that cannot be drawn: said before the pass where it can be known, a warning behind it, and no model lost."""

import os

import pytest

import robustfd
from robustfd.cli import train


def expected(run, svm, tmp_path):
    """The bytes of the model that is learnt without a picture."""
    assert run("train", svm, "-o", tmp_path / "expected", "-q").status == 0
    return (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("place, status, words", [
    ("nowhere/p.png", 1, "no directory"), ("p.txt", 2, "must end with one of "), ("folder", 1, "is a directory"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["train", "compare", "info"])
def test_what_can_be_known_is_said_before_the_pass(run, svm, tmp_path, monkeypatch, command, place, status, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert run("sketch", svm, "-m", 5, "-o", "sketch", "-q").status == 0
    arguments = {"train": (svm, "-o", "model"), "compare": (svm,), "info": ("sketch",)}[command]
    monkeypatch.setattr("robustfd.streams.Stream.__iter__", lambda self: pytest.fail("rows were read"))
    done = run(command, *arguments, "--plot", place)
    assert done.status == status and words in done.err and done.out == "", done.err


def test_without_matplotlib_it_is_said_before_the_pass(run, svm, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.setattr("robustfd.streams.Stream.__iter__", lambda self: pytest.fail("rows were read"))
    done = run("train", svm, "-o", tmp_path / "model", "--plot", tmp_path / "p.png")
    assert done.status == 1 and "robustfd[plot]" in done.err


def test_a_picture_that_fails_on_the_way_costs_nothing_but_itself(run, svm, tmp_path, monkeypatch):
    content = expected(run, svm, tmp_path)

    def fail(model):
        raise RuntimeError("no ink")

    monkeypatch.setattr(train, "progress_figure", fail)
    done = run("train", svm, "-o", tmp_path / "model", "--plot", tmp_path / "p.png", "--quiet", "--json")
    assert done.status == 0 and done.json["rows"] == 400
    assert done.err.count("robustfd: warning: The plot") == 2 and "p.png could not be drawn: no ink" in done.err
    assert (tmp_path / "model").read_bytes() == content


def test_the_model_is_there_before_the_last_picture_is_drawn(run, svm, tmp_path, monkeypatch):
    seen = []

    def look(model):
        seen.append((tmp_path / "model").exists() and robustfd.load(tmp_path / "model").n_samples_seen_)

    monkeypatch.setattr(train, "progress_figure", look)
    assert run("train", svm, "-o", tmp_path / "model", "--plot", tmp_path / "p.png").status == 0
    assert seen[-1] == 400 and not any(seen[:-1])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_picture_for_a_full_disk(run, svm, tmp_path):
    """A full disk cannot be known beforehand."""
    content = expected(run, svm, tmp_path)
    (tmp_path / "p.png").symlink_to("/dev/full")
    done = run("train", svm, "-o", tmp_path / "model", "--plot", tmp_path / "p.png", "--checkpoint", tmp_path / "kept")
    assert done.status == 0 and "could not be drawn" in done.err and "No space left" in done.err
    assert (tmp_path / "model").read_bytes() == content and not (tmp_path / "kept").exists()
    done = run("compare", svm, "--quick", "--plot", tmp_path / "p.png", "--json")
    assert done.status == 0 and "No space left" in done.err
    assert done.json["verdict"] and "file" not in done.json
    assert run("sketch", svm, "-m", 5, "-o", tmp_path / "sketch", "-q").status == 0
    done = run("info", tmp_path / "sketch", "--plot", tmp_path / "p.png", "--json")
    assert done.status == 1 and done.json["rows"] == 400  # the picture was what it was asked for
