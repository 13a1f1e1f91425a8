"""`robustfd train --from`, `--holdout`: a model that is gone on with, and rows that it is judged by."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from tests.cli.conftest import libsvm_text


@pytest.fixture
def halves(tmp_path, rows):
    X, y = rows
    for name, part in (("a", slice(200)), ("b", slice(200, None))):
        (tmp_path / f"{name}.svm").write_text(libsvm_text(X[part], y[part]))
    return tmp_path


def test_going_on_gives_the_model_of_all_rows(run, svm, halves):
    assert run("train", svm, "-o", halves / "all.rfd", "--features", 12).status == 0
    assert run("train", halves / "a.svm", "-o", halves / "one.rfd", "--features", 12).status == 0
    done = run("train", halves / "b.svm", "--from", halves / "one.rfd", "-o", halves / "two.rfd", "--json")
    assert done.status == 0 and done.json["rows"] == 400, done.err
    assert (halves / "two.rfd").read_bytes() == (halves / "all.rfd").read_bytes()
    assert robustfd.load(halves / "one.rfd").n_samples_seen_ == 200


def test_going_on_with_a_table_keeps_its_columns_and_what_was_said(run, tmp_path):
    lines = [f"{k},{'a' if k % 3 else 'b'},{k % 5 if k % 7 else ''},{'yes' if k % 2 else 'no'}" for k in range(100)]
    for name, part in (("all", lines), ("first", lines[:60]), ("rest", lines[60:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["n,t,x,y", *part]) + "\n")
    said = ("--target", "y", "--id", "n", "--missing", "zero", "--categories", "onehot")
    assert run("train", tmp_path / "all.csv", *said, "-o", tmp_path / "all.rfd").status == 0
    assert run("train", tmp_path / "first.csv", *said, "-o", tmp_path / "one.rfd").status == 0
    done = run("train", tmp_path / "rest.csv", "--from", tmp_path / "one.rfd", "-o", tmp_path / "two.rfd")
    assert done.status == 0, done.err
    assert (tmp_path / "two.rfd").read_bytes() == (tmp_path / "all.rfd").read_bytes()


@pytest.mark.parametrize(
    "more, said",
    [
        (("--task", "regression"), "--task regression does not match"),
        (("--learner", "rfdson"), "--learner rfdson does not match"),
        (("-m", "5"), "-m 5 does not match"),
        (("--classes", "1,2"), "--classes 1,2 does not match"),
        (("--features", "20"), "--features and --from"),
    ],
)
def test_what_a_model_says_already_cannot_be_said_otherwise(run, halves, more, said):
    assert run("train", halves / "a.svm", "-o", halves / "one.rfd").status == 0
    done = run("train", halves / "b.svm", "--from", halves / "one.rfd", "-o", halves / "two.rfd", *more)
    assert done.status == 2 and said in done.err and not (halves / "two.rfd").exists()


def test_files_that_a_model_cannot_go_on_with_are_refused(run, halves, tmp_path):
    assert run("train", halves / "a.svm", "-o", halves / "one.rfd").status == 0
    (tmp_path / "other.svm").write_text("1 1:1\n3 1:2\n")
    done = run("train", tmp_path / "other.svm", "--from", halves / "one.rfd", "-o", tmp_path / "two.rfd")
    assert done.status == 1 and "a label 3" in done.err and "not one of the classes -1, 1" in done.err
    (tmp_path / "other.csv").write_text("a,y\n1,1\n2,-1\n")
    done = run("train", tmp_path / "other.csv", "--from", halves / "one.rfd", "-o", tmp_path / "two.rfd")
    assert done.status == 1 and "layout" in done.err
    done = run("train", halves / "b.svm", "--from", halves / "one.rfd", "-o", halves / "one.rfd")
    assert done.status == 2 and "is a file to read" in done.err


def test_rows_held_out_are_not_learnt_and_judge_the_model(run, svm, rows, tmp_path):
    done = run("train", svm, "--holdout", "0.25", "-o", tmp_path / "m.rfd", "--json")
    assert done.status == 0, done.err
    held = np.random.default_rng(0).random(400) < 0.25
    assert done.json["holdout_rows"] == held.sum() and done.json["rows"] == 400 - held.sum()
    X, y = rows
    model = robustfd.load(tmp_path / "m.rfd")
    expected = robustfd.SketchedNewtonClassifier()
    expected.partial_fit(sp.csr_matrix(X[~held]), y[~held].astype(int), classes=[-1, 1])
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    wrong = np.mean(expected.predict(sp.csr_matrix(X[held])) != y[held])
    assert done.json["holdout_error"] == pytest.approx(wrong, abs=1e-12)


def test_rows_held_out_are_in_no_checkpoint(run, svm, tmp_path):
    more = ("--holdout", "0.25", "--checkpoint", tmp_path / "c")
    done = run("train", svm, *more, "-o", tmp_path / "m.rfd")
    assert done.status == 2 and "--holdout and --checkpoint" in done.err


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_too_many_labels_are_numbers_or_an_error(run, tmp_path, task):
    (tmp_path / "numbers.svm").write_text("".join(f"{k} 1:{k % 7}\n" for k in range(1500)))
    done = run("train", tmp_path / "numbers.svm", "--task", task, "-o", tmp_path / "m.rfd")
    if task == "auto":
        assert done.status == 0 and "regression: labels are numbers" in done.err
    else:
        assert done.status == 2 and "more than 1000 different labels" in done.err
    (tmp_path / "text.jsonl").write_text("".join(f'{{"y": "t{k}", "x": {k % 7}}}\n' for k in range(1500)))
    done = run("train", tmp_path / "text.jsonl", "--task", task, "-o", tmp_path / "t.rfd")
    said = "A regression needs numbers as labels" if task == "auto" else "more than 1000 different labels"
    assert done.status == 2 and said in done.err
