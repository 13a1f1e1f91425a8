"""`robustfd train --passes N`: every tenth row is never learned, and the best pass makes the model."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.cli import _passes, train
from tests.cli.conftest import libsvm_text


def expected(rows, passes, task):
    """Return the model and the held-out loss after each pass; later passes learn known rows."""
    X, y = rows
    held = np.arange(1, len(y) + 1) % 10 == 0
    model = robustfd.SketchedNewtonClassifier() if task == "classification" else robustfd.SketchedNewtonRegressor()
    classes = {"classes": [-1, 1]} if task == "classification" else {}
    y = y.astype(int) if task == "classification" else y
    models, losses = [], []
    for k in range(passes):
        model._relearns = k > 0
        model.partial_fit(sp.csr_matrix(X[~held]), y[~held], **({} if k else classes))
        models.append(model.to_bytes())
        if task == "classification":
            right = model.predict_proba(X[held])[np.arange(held.sum()), (y[held] > 0).astype(int)]
            losses.append(-np.log(right).mean())
        else:
            losses.append(np.square(y[held] - model.predict(X[held])).mean())
    return models, losses


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("blocks", ["small_blocks", "monkeypatch"])
def test_the_model_is_that_of_the_best_pass(run, svm, rows, tmp_path, task, blocks, request):
    request.getfixturevalue(blocks)
    models, losses = expected(rows, 4, task)
    done = run("train", svm, "-o", tmp_path / "m.rfd", "--passes", 4, "--task", task, "--json")
    assert done.status == 0, done.err
    np.testing.assert_allclose([each["holdout_loss"] for each in done.json["passes"]], losses, rtol=1e-9)
    best = int(np.argmin(losses))
    assert done.json["best_pass"] == best + 1 and done.json["holdout_rows"] == 40
    assert done.json["holdout_loss"] == done.json["passes"][best]["holdout_loss"]
    assert done.json["rows"] == 360  # each row counts once
    assert robustfd.load(tmp_path / "m.rfd").to_bytes() == models[best]
    assert done.err.count("pass ") >= 4 and "best so far" in done.err


def test_the_rows_held_out_are_never_learned(run, svm, rows, tmp_path):
    X, y = rows
    held = np.arange(1, len(y) + 1) % 10 == 0
    other = tmp_path / "other.svm"
    other.write_text(libsvm_text(np.where(held[:, None], -9 * X, X), np.where(held, -y, y)))
    for path, name in ((svm, "a"), (other, "b")):
        assert run("train", path, "-o", tmp_path / name, "--passes", 2, "--features", 12).status == 0
    models, losses = expected(rows, 2, "classification")
    # Whichever pass is the best, its model depends on the learned rows alone.
    assert robustfd.load(tmp_path / "a").to_bytes() == models[int(np.argmin(losses))]
    assert robustfd.load(tmp_path / "b").to_bytes() in models


class Crash(Exception):
    """Stands for kill -9."""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("where, calls", [("learn", 3), ("learn", 14), ("learn", 17), ("score", 1), ("score", 2)])
def test_a_run_that_was_killed_continues(run, svm, tmp_path, small_blocks, monkeypatch, jobs, where, calls):
    command = ("train", svm, "--passes", 3, "--jobs", jobs, "--every", 90, "--json")
    whole = run(*command, "-o", tmp_path / "whole", "--checkpoint", tmp_path / "kept")
    assert whole.status == 0, whole.err
    place, name = (train, "learn_block") if where == "learn" else (_passes, "_scores")
    original, left = getattr(place, name), [calls]

    def crash(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return original(*arguments, **named)

    monkeypatch.setattr(place, name, crash)
    with pytest.raises(Crash):
        run(*command, "-o", tmp_path / "model", "--checkpoint", tmp_path / "kept")
    monkeypatch.setattr(place, name, original)
    done = run(*command, "-o", tmp_path / "model", "--checkpoint", tmp_path / "kept", "--resume")
    assert done.status == 0, done.err
    assert (tmp_path / "model").read_bytes() == (tmp_path / "whole").read_bytes()
    assert done.json["passes"] == whole.json["passes"] and not (tmp_path / "kept").exists()


def test_a_best_pass_that_is_gone_is_an_error(run, svm, tmp_path, monkeypatch):
    command = ("train", svm, "--passes", 3, "-o", tmp_path / "model", "--checkpoint", tmp_path / "kept")
    best = _passes._best
    monkeypatch.setattr(_passes, "_best", lambda passes: best(passes) if len(passes) < 2 else crash())
    with pytest.raises(Crash):
        run(*command, "--every", 10)
    monkeypatch.setattr(_passes, "_best", best)
    # The checkpoint is of the end of the second pass, and the model is that of the first.
    (tmp_path / "model").unlink()
    done = run(*command, "--every", 10, "--resume")
    assert done.status == 2 and "best pass so far, is gone" in done.err
    done = run(*command[:3], 2, *command[4:], "--resume")
    assert done.status == 2 and "was made with passes 3, not 2" in done.err


def crash():
    raise Crash


def test_what_passes_do_not_go_with(run, svm, tmp_path):
    output = ("-o", tmp_path / "m.rfd")
    done = run("train", "-", *output, "--passes", 2, "--format", "libsvm", stdin=svm.read_bytes())
    assert done.status == 2 and "--passes 2 needs files that can be read again" in done.err
    done = run("train", svm, *output, "--passes", 2, "--holdout", 0.2)
    assert done.status == 2 and "--holdout and --passes cannot be combined" in done.err
    assert run("train", svm, *output, "--passes", 0).status == 2
    few = tmp_path / "few.svm"
    few.write_text("".join(svm.read_text().splitlines(keepends=True)[:9]))
    done = run("train", few, *output, "--passes", 2, "--json")
    assert done.status == 0 and done.json["rows"] == 9 and done.json["best_pass"] == 2 and "too few rows" in done.err


@pytest.mark.parametrize("loss", [("absolute",), ("huber",), ("poisson",), ("quantile", "--quantile", "0.9")])
def test_passes_are_compared_by_the_loss_of_the_model(run, rows, tmp_path, loss):
    X, y = rows
    path = tmp_path / "counts.svm"
    path.write_text(libsvm_text(X, np.floor(np.exp(y + X[:, 0]))))
    options = ("--task", "regression", "--passes", 2, "--json", "--loss", *loss)
    done = run("train", path, "-o", tmp_path / "m.rfd", *options)
    assert done.status == 0, done.err
    absolute = done.json["holdout_loss"] == pytest.approx(done.json["holdout_mean_absolute_error"])
    assert absolute == (loss[0] in ("absolute", "huber"))
    more = run("train", path, "-o", tmp_path / "n.rfd", "--from", tmp_path / "m.rfd", "--passes", 2, "--json")
    assert more.status == 0 and more.json["rows"] > done.json["rows"], more.err
