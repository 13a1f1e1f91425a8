"""`--jobs` and `robustfd merge` of models: parts of the rows learnt side by side or apart."""

import subprocess
import sys

import numpy as np
import pytest

import robustfd
from robustfd.cli._pass import Pass
from robustfd.sketch import frequent_directions
from robustfd.streams import open_stream
from tests.cli.text import libsvm_text


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6)).round(2)
    y = np.where(X @ rng.standard_normal(6) > 0, 1, -1)
    path = tmp_path_factory.mktemp("rows") / "rows.svm"
    path.write_text(libsvm_text(X, y))
    return path, X, y


def test_jobs_learn_the_merge_of_parts(run, many, tmp_path):
    path, X, y = many
    done = run("train", path, "-o", tmp_path / "m.rfd", "--jobs", 3, "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 3000
    assert "2,048" in done.err  # the lines about progress
    model = robustfd.load(tmp_path / "m.rfd")
    parts = robustfd.SketchedNewtonClassifier().split(3)
    expected = robustfd.merge(part.partial_fit(X[i::3], y[i::3], classes=[-1, 1]) for i, part in enumerate(parts))
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-6)
    assert model.share_ == pytest.approx(1.0)
    assert model.score(X, y) > 0.97


@pytest.mark.parametrize("command", [("train", "--classes=-1,1"), ("sketch", "-m", "4")])
def test_jobs_that_are_killed_go_on_as_if_they_had_not_been(run, many, tmp_path, monkeypatch, command):
    path, *_ = many
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 10_000)
    options = (path, "--jobs", 2, "--every", 800, "--features", 6)
    done = run(*command, *options, "-o", tmp_path / "whole", "--checkpoint", tmp_path / "kept")
    assert done.status == 0, done.err
    kept, times = Pass._save_checkpoint, []

    def killed(self):
        kept(self)
        times.append(self.position.rows)
        if len(times) == 2:
            raise RuntimeError("killed")

    monkeypatch.setattr(Pass, "_save_checkpoint", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(*command, *options, "-o", tmp_path / "other", "--checkpoint", tmp_path / "kept")
    assert not (tmp_path / "other").exists() and 0 < times[-1] < 3000
    assert robustfd.load(tmp_path / "kept").n_samples_seen_ == times[-1]
    monkeypatch.setattr(Pass, "_save_checkpoint", kept)
    done = run(*command, *options, "-o", tmp_path / "other", "--checkpoint", tmp_path / "kept", "--resume")
    assert done.status == 0, done.err
    assert (tmp_path / "other").read_bytes() == (tmp_path / "whole").read_bytes()
    assert robustfd.load(tmp_path / "other").n_samples_seen_ == 3000


def test_sketches_of_parts_have_a_certificate(run, many, tmp_path):
    path, X, _ = many
    done = run("sketch", path, "-o", tmp_path / "s.rfd", "-m", 4, "--jobs", 2, "--json")
    assert done.status == 0, done.err
    sketch = robustfd.load(tmp_path / "s.rfd")
    assert sketch.n_samples_seen_ == 3000
    error = np.linalg.norm(X.T @ X - sketch.second_moment().to_dense(), 2)
    assert error <= sketch.error_bound_ * (1 + 1e-12)
    done = run("sketch", path, "-o", tmp_path / "t.rfd", "--jobs", 2, "--decay", 0.9)
    assert done.status != 0 and "order of the rows" in done.err


def test_processes_make_the_same_sketch_as_threads(run, many, tmp_path, monkeypatch):
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", 30_000)
    for name, rows in (("threads", 10**9), ("processes", 1500)):  # from that row on
        monkeypatch.setattr(frequent_directions, "MANY_ROWS", rows)
        done = run("sketch", many[0], "-o", tmp_path / name, "-m", 4, "--jobs", 2)
        assert done.status == 0, done.err
    assert (tmp_path / "threads").read_bytes() == (tmp_path / "processes").read_bytes()


def test_models_of_files_merge(run, many, tmp_path):
    path, X, y = many
    lines = path.read_text().splitlines(keepends=True)
    for k in range(2):
        (tmp_path / f"{k}.svm").write_text("".join(lines[k::2]))
        run("train", tmp_path / f"{k}.svm", "-o", tmp_path / f"{k}.rfd", "--features", 6)
    done = run("merge", tmp_path / "0.rfd", tmp_path / "1.rfd", "-o", tmp_path / "all.rfd", "--json")
    assert done.status == 0, done.err
    assert done.json["rows"] == 3000 and done.json["files"] == 2
    assert robustfd.load(tmp_path / "all.rfd").score(X, y) > 0.97
    assert run("predict", tmp_path / "all.rfd", path, "-o", tmp_path / "p.csv").status == 0
    run("sketch", path, "-o", tmp_path / "s.rfd")
    done = run("merge", tmp_path / "0.rfd", tmp_path / "s.rfd", "-o", tmp_path / "x.rfd")
    assert done.status != 0 and "holds a RobustFrequentDirections" in done.err


@pytest.mark.slow
def test_processes_end_with_the_command(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((140_000, 4)))
    command = [sys.executable, "-m", "robustfd", "sketch", "x.npy", "-o", "x.rfd", "--sketch-size", "3", "--jobs", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "leaked" not in done.stderr  # the warning of joblib about semaphores
