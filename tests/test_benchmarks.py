"""`make bench` says how long it takes, and every file of results says where, when and with what it was made."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import common, run
from robustfd.experiments import machine

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT / "benchmarks" / "results", ROOT / "docs" / "reproduction")
# What is no result: times of the benchmarks, numbers of others that drift.md quotes, and parts of reports.
OTHER = {"minutes.json", "drift_peers.json", "claims.md", "rcv1-subsets-claims.md"}
FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*")) if path.suffix in (".json", ".md")]
FILES = [path for path in FILES if path.name not in OTHER]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_result_has_its_machine_versions_date_and_commit(path):
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        text = ", ".join(f"{key} {value}" for key, value in json.loads(text)["machine"].items())
    for needed in (
        r"robustfd [\d.]+",
        r"numpy [\d.]+",
        r"processor \S+",
        r"date \d{4}-\d\d-\d\d",
        r"commit [0-9a-f]{7,}",
    ):
        assert re.search(needed, text), f"{path.name} has no {needed}"


def test_what_is_saved_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    common.report("some", [{"what": "a", "value": 1.0}])
    common.save_markdown("other", "# Page", "pytest", "a_peer_that_is_not_installed")
    saved = json.loads((tmp_path / "some.json").read_text())["machine"]
    assert {"python", "numpy", "scikit-learn", "robustfd", "processor", "load before", "date", "commit"} <= set(saved)
    page = (tmp_path / "other.md").read_text()
    assert page.startswith("# Page\n\nMeasured with python ") and f"pytest {pytest.__version__}" in page
    assert "a_peer" not in page and f"commit {machine.COMMIT}" in page


def test_every_benchmark_has_a_time_before_it_runs(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(run, "MINUTES", tmp_path / "minutes.json")
    monkeypatch.setattr(run, "CASES", {name: lambda name=name: ran.append(name) for name in run.CASES})
    run.main([])
    assert ran == list(run.CASES)
    said = capsys.readouterr().out
    assert said.startswith("This will take about ") and f"[1 of {len(ran)}, about " in said
    assert set(json.loads(run.MINUTES.read_text())) == set(ran)
    run.main(["wide"])
    assert "wide 0 s." in capsys.readouterr().out  # no longer a guess
    with pytest.raises(SystemExit, match="unknown benchmark slow"):
        run.main(["slow"])
