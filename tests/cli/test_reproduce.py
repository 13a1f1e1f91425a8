"""`robustfd reproduce` as a user runs it."""

import csv
import json
import os
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "robustfd", "reproduce"]
SMALL = (
    "from tests.experiments.small import expect_small_ones; expect_small_ones(); "
    "from robustfd.cli import main; main()"
)  # fmt: skip


def call(*arguments, **environment):
    done = subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


class Page(HTMLParser):
    """Checks that tags are closed, and collects what the page refers to."""

    OPEN = {"meta", "br", "link", "input"}

    def __init__(self, text):
        super().__init__()
        self.stack, self.ids, self.links, self.uses = [], [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src", "xlink:href") if name in found]
        if tag not in self.OPEN:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.OPEN:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_there_is_progress_without_a_terminal(capfd):
    from rich.console import Console
    from rich.progress import Progress

    from robustfd.cli import reproduce
    from robustfd.experiments.cells import cell
    from robustfd.experiments.reproduce import ProgressListener

    cells = [cell("error", "a9a", effort=2.0, k=k) for k in range(4)]
    with pytest.MonkeyPatch.context() as patch, Progress(console=Console(stderr=True)) as progress:
        patch.setattr(reproduce, "SECONDS", 0.0)
        listener = reproduce._listener(progress, ProgressListener)
        listener.on_message("reading a9a")
        listener.on_plan(cells)
        listener.on_end(cells[0], "kept")
        listener.on_end(cells[1], "done")
    err = capfd.readouterr().err
    lines = ("reading a9a", "running 4 cells, the largest first", "1 of 4 cells after 0 s")
    assert "\n".join((*lines, "2 of 4 cells after 0 s, about 0 s left\n")) in err


@pytest.mark.slow
def test_a_whole_run_and_its_report(tmp_path):
    code, out, err = call(*COMMAND, "all", "--data", "breast-cancer", "--quick", "--out", str(tmp_path), "--jobs", "2")
    assert code == 0, err
    report = tmp_path / "report.html"
    assert out.strip() == str(report)
    text = report.read_text("utf-8")
    assert len(text) < 1.5e6
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)  # nothing from elsewhere
    assert "prefers-color-scheme: dark" in text
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["failed"] == []
    assert {"robustfd", "numpy", "python", "processor", "date", "commit"} <= set(results["about"]["machine"])
    assert results["about"]["seeds"]
    for name in ("error", "sensitivity", "online", "accuracy", "cost", "regret"):
        with open(tmp_path / f"{name}.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(results["experiments"][name]["rows"]) > 0
        assert results["experiments"][name]["verdicts"]
    pictures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"error-pfd-rfd.png", "error-pfd-rfd.svg", "accuracy.png", "cost.svg"} <= pictures
    assert {Path(name).stem for name in pictures if name.endswith(".png")} == {
        Path(name).stem for name in pictures if name.endswith(".svg")
    }

    # Once more: nothing is run again but a file that was damaged.
    kept = sorted((tmp_path / "cells").rglob("*.json"))
    kept[0].write_text(kept[0].read_text()[:40])
    code, _, err = call(*COMMAND, "error", "--data", "breast-cancer", "--quick", "--out", str(tmp_path), "--jobs", "0")
    assert code == 0
    mine = len(list((tmp_path / "cells" / "error").iterdir()))
    damaged = kept[0].parent.name == "error"
    assert f"{mine} cells ({mine - damaged} of them from earlier runs)" in err


@pytest.mark.slow
def test_linear_bandits_have_a_report_of_their_own(tmp_path):
    """Small problems, through the same command."""
    script = (
        "from robustfd.cli import main; from robustfd.experiments import bandits\n"
        "bandits.CASES = {name: case._replace(d=8, quick=30) for name, case in list(bandits.CASES.items())[2:4]}\n"
        "main()"
    )
    command = [sys.executable, "-c", script, "reproduce", "bandits", "--quick", "--jobs", "0", "--out", str(tmp_path)]
    code, out, err = call(*command)
    assert code == 0, err
    text = (tmp_path / "report.html").read_text("utf-8")
    Page(text)
    assert "<h1>Linear bandits with sketches</h1>" in text and "Luo" not in text and "Regret after all rounds" in text
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["failed"] == results["about"]["data"] == [] and list(results["experiments"]) == ["bandits"]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"bandits.png", "bandits.svg"}
    assert "(10 of them from earlier runs)" in call(*command)[2]  # it continues


@pytest.mark.slow
def test_the_data_sets_that_are_not_at_hand(tmp_path):
    """Small files in their formats, through the same command."""
    from tests.experiments import small

    small.write(tmp_path)
    names = ",".join(small.FEATURES)
    code, _, err = call(
        sys.executable, "-c", SMALL, "reproduce", "accuracy", "--data", names, "--quick", "--jobs", "0",
        "--out", str(tmp_path / "out"), ROBUSTFD_DATA=str(tmp_path),
    )  # fmt: skip
    assert code == 0, err
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert [data["name"] for data in results["about"]["data"]] == list(small.FEATURES)
    rows = results["experiments"]["accuracy"]["rows"]
    assert {row["data"] for row in rows} == set(small.FEATURES)
    assert all(row["paper"] is None for row in rows)  # these are not the paper's rows
    assert {row["m"] for row in rows if row["data"] == "rcv1"} == {None, 20, 30, 50}
    assert {row["m"] for row in rows if row["data"] == "sido0"} == {None, 5, 10, 20}


@pytest.mark.slow
def test_a_killed_run_continues(tmp_path):
    command = [*COMMAND, "accuracy", "--data", "breast-cancer", "--quick", "--out", str(tmp_path), "--jobs", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cells = tmp_path / "cells" / "pass"
    until = time.monotonic() + 200
    while (not cells.is_dir() or len(list(cells.glob("*.json"))) < 10) and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    time.sleep(1.5)  # the worker notices, too
    before = len(list(cells.glob("*.json")))
    time.sleep(0.5)
    assert len(list(cells.glob("*.json"))) == before
    code, _, err = call(*command[:-1], "0")
    assert code == 0
    assert f"({before} of them from earlier runs)" in err


@pytest.mark.parametrize(
    "package, extra",
    [("click", "robustfd[cli]"), ("matplotlib", "robustfd[reproduce]"), ("jinja2", "robustfd[reproduce]")],
)
def test_a_missing_package_is_named_with_its_extra(package, extra, tmp_path):
    script = f"import sys; sys.modules[{package!r}] = None; from robustfd.cli import main; main()"
    code, _, err = call(sys.executable, "-c", script, "reproduce", "--out", str(tmp_path))
    assert code == 1
    assert package in err
    assert extra in err


@pytest.mark.slow
def test_a_data_set_that_does_not_exist(tmp_path):
    code, _, err = call(*COMMAND, "--data", "a9b", "--out", str(tmp_path))
    assert code == 1
    assert "There is no data set 'a9b'" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_experiments_that_need_two_classes_are_left_out(tmp_path):
    code, _, err = call(*COMMAND, "accuracy", "--data", "digits", "--out", str(tmp_path), "--jobs", "0")
    assert code == 0, err
    assert "do not have two classes" in (tmp_path / "report.html").read_text("utf-8")
