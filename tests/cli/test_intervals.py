"""`robustfd train --intervals`, `predict --interval`, and the coverage that train and inspect print."""

import csv
import json

import numpy as np
import pytest

import robustfd


@pytest.fixture
def table(tmp_path):
    def write(classes):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((800, 3))
        y = x @ [1.0, 2.0, 3.0] + np.exp(x[:, 0]) * rng.standard_normal(800)
        names = np.where(y > 2, "red", np.where(y < -2, "green", "blue"))
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["a", "b", "c", "y"])
            out.writerows([*row, label] for row, label in zip(x, names if classes else y, strict=True))
        return tmp_path / "rows.csv"

    return write


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_numbers(run, table, tmp_path):
    rows, model, out = table(False), tmp_path / "m.rfd", tmp_path / "out.csv"
    printed = run("train", rows, "-o", model, "--target", "y", "--intervals")
    assert "Intervals: share of rows covered before they were learned" in printed.out
    run("predict", model, rows, "-o", out, "--interval", "0.8")
    found = read(out)
    assert list(found[0]) == ["prediction", "low", "high"]
    low, high, y = (np.array([float(row[name]) for row in some]) for some, name in
                    ((found, "low"), (found, "high"), (read(rows), "y")))  # fmt: skip
    covered = np.mean((low <= y) & (y <= high))
    assert covered == pytest.approx(0.81, abs=0.07)  # thresholds of one moment: 0.81 +- 0.03 over 12 streams
    result = json.loads(run("inspect", model, "--json").out)
    assert result["progressive_coverage"]["0.9"] == pytest.approx(0.9, abs=0.02)
    assert robustfd.load(model).progressive_width_[0.5] == result["progressive_width"]["0.5"]


def test_classes(run, table, tmp_path):
    rows, model, out = table(True), tmp_path / "m.rfd", tmp_path / "out.csv"
    assert "Sets: share" in run("train", rows, "-o", model, "--target", "y", "--intervals").out
    run("predict", model, rows, "-o", out, "--interval", "0.99")
    found = read(out)
    assert all(row["prediction"] in row["set"].split() for row in found)
    assert np.mean([row["y"] in each["set"].split() for row, each in zip(read(rows), found, strict=True)]) > 0.97


def test_bad_input(run, table, tmp_path):
    rows, plain, model = table(False), tmp_path / "plain.rfd", tmp_path / "m.rfd"
    run("train", rows, "-o", plain, "--target", "y")
    run("train", rows, "-o", model, "--target", "y", "--intervals")
    for given, message in (
        (("predict", model, rows, "--interval", "1.5"), "--interval must be between 0 and 1, both excluded, got 1.5."),
        (("predict", plain, rows, "--interval", "0.9"), "--interval needs a model of train --intervals, and"),
        (("train", rows, "-o", tmp_path / "n.rfd", "--from", plain, "--intervals"), "--intervals does not match"),
        (("train", rows, "-o", tmp_path / "n.rfd", "--target", "y", "--passes", "2", "--intervals"),
         "--intervals and --passes cannot be combined"),
        (("train", rows, "-o", tmp_path / "n.rfd", "--target", "y", "--learner", "rfdson", "--intervals"),
         "--intervals is for the learner newton"),
    ):  # fmt: skip
        done = run(*given)
        assert done.status != 0 and message in done.err
