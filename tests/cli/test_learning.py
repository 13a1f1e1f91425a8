"""`robustfd train`, `predict`, `evaluate` and `inspect` give what the library gives."""

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from tests.cli.conftest import libsvm_text

REGRESSION = ("--task", "regression")


def trained(run, svm, tmp_path, *more):
    done = run("train", svm, "-o", tmp_path / "model.rfd", *more)
    assert done.status == 0, done.err
    return done, robustfd.load(tmp_path / "model.rfd")


@pytest.mark.parametrize("learner", ["newton", "rfdson"])
def test_model_is_that_of_the_library(run, svm, rows, tmp_path, learner):
    done, model = trained(run, svm, tmp_path, "--learner", learner, "-m", 5, "--json")
    kind = robustfd.SketchedNewtonClassifier if learner == "newton" else robustfd.RFDSONClassifier
    X, y = sp.csr_matrix(rows[0]), rows[1].astype(int)
    expected = kind(5).partial_fit(X, y, classes=[-1, 1])
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert done.json["progressive_error"] == expected.progressive_error_
    assert done.json["progressive_loss"] == expected.progressive_loss_
    assert done.json["classes"] == [-1, 1] and done.json["rows"] == 400
    predicted = run("predict", tmp_path / "model.rfd", svm, "--probabilities")
    lines = predicted.out.splitlines()
    assert lines[0] == "prediction,p(-1),p(1)" and predicted.err == ""
    table = np.array([[float(v) for v in line.split(",")] for line in lines[1:]])
    np.testing.assert_array_equal(table[:, 0], expected.predict(X))
    np.testing.assert_allclose(table[:, 1:], expected.predict_proba(X), rtol=1e-15)
    judged = run("evaluate", tmp_path / "model.rfd", svm, "--json").json
    assert judged["accuracy"] == pytest.approx(expected.score(X, y), abs=1e-15)
    assert sum(each["rows"] for each in judged["pairs"]) == 400


def test_progress_is_printed_at_doubling_rows_as_vowpal_wabbit_does(run, svm, tmp_path):
    done, model = trained(run, svm, tmp_path)
    lines = [line.split() for line in done.err.splitlines() if line.split()[0].replace(",", "").isdigit()]
    assert [int(line[0]) for line in lines] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 400]
    table = model.progressive_
    for k, line in enumerate(lines):
        assert float(line[1]) == pytest.approx(table["loss"][k], rel=1e-4)
        assert float(line[3]) == pytest.approx(table["error"][k], rel=1e-4)
    errors = table["error"] * table["rows"]
    assert float(lines[-1][4]) == pytest.approx((errors[-1] - errors[-2]) / (400 - 256), rel=1e-4)
    assert trained(run, svm, tmp_path, "-q")[0].err == ""


def test_regression_is_found_from_the_labels(run, rows, tmp_path):
    X = rows[0]
    y = X @ np.arange(12) + 0.25
    path = tmp_path / "numbers.svm"
    path.write_text(libsvm_text(X, y))
    done, model = trained(run, path, tmp_path, "--json")
    assert isinstance(model, robustfd.SketchedNewtonRegressor) and "labels are numbers" in done.err
    judged = run("evaluate", tmp_path / "model.rfd", path, "--json").json
    predicted = model.predict(sp.csr_matrix(X))
    assert judged["mean_squared_error"] == pytest.approx(np.mean((y - predicted) ** 2))
    assert judged["mean_absolute_error"] == pytest.approx(np.mean(np.abs(y - predicted)))
    assert judged["r2"] == pytest.approx(1 - np.mean((y - predicted) ** 2) / np.var(y))


def test_several_classes(run, rows, tmp_path):
    X, y = rows[0], np.argmax(rows[0][:, :4], axis=1)
    path = tmp_path / "classes.svm"
    path.write_text(libsvm_text(X, y))
    done, model = trained(run, path, tmp_path, "--json")
    assert model.classes_.tolist() == done.json["classes"] == [0, 1, 2, 3]
    text = run("evaluate", tmp_path / "model.rfd", path).out
    assert "by true class (down)" in text
    shown = run("inspect", tmp_path / "model.rfd", "-k", 3, "--json").json
    assert set(shown["weights"]) == {"0", "1", "2", "3"}


def test_inspect_names_the_columns_chosen_of_an_array(run, rows, tmp_path):
    np.save(tmp_path / "rows.npy", np.column_stack(rows))
    options = ("--columns", "4,1", "--target", rows[0].shape[1])
    assert run("train", tmp_path / "rows.npy", "-o", tmp_path / "model.rfd", *options).status == 0
    found = run("inspect", tmp_path / "model.rfd", "--json").json["weights"]["1"]
    assert {each["feature"] for each in found} == {"1", "4"}


@pytest.mark.parametrize("learner", ["newton", "rfdson"])
def test_inspect_ranks_features_by_effect_or_by_weight(run, svm, tmp_path, learner):
    _, model = trained(run, svm, tmp_path, "--learner", learner)
    found = run("inspect", tmp_path / "model.rfd", "-k", 4, "--json").json["weights"]["1"]
    weights = model.coef_[0]
    ranked = model.effects_[0] if learner == "newton" else weights
    order = np.argsort(-np.abs(ranked))[:4]
    if learner == "newton":
        assert [each["effect"] for each in found] == ranked[order].tolist()
    assert [each["feature"] for each in found] == [str(column + 1) for column in order]
    assert [each["weight"] for each in found] == weights[order].tolist()


def test_standard_input_and_compressed_files_give_the_same_model(run, svm, tmp_path):
    _, model = trained(run, svm, tmp_path)
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress(svm.read_bytes()))
    _, compressed = trained(run, tmp_path / "rows.svm.gz", tmp_path)
    np.testing.assert_array_equal(model.coef_, compressed.coef_)
    done = run("train", "-", "--features", 12, "-o", tmp_path / "piped.rfd", stdin=svm.read_bytes())
    assert done.status == 0, done.err
    np.testing.assert_array_equal(model.coef_, robustfd.load(tmp_path / "piped.rfd").coef_)


def test_named_features_from_a_pipe_are_hashed(run, tmp_path):
    text = b"1 hot:2 sunny\n0 cold sunny:0.5\n1 hot\n0 cold\n" * 50
    done = run("train", "-", "-o", tmp_path / "model.rfd", "--json", stdin=text)
    assert done.status == 0 and done.json["features"] == 2**18, done.err
    predicted = run("predict", tmp_path / "model.rfd", "-", stdin=b"hot\ncold never-seen\n")
    assert predicted.out.splitlines() == ["prediction", "1", "0"]


def test_features_that_the_model_does_not_know_are_left_out_and_counted(run, svm, tmp_path):
    trained(run, svm, tmp_path)
    done = run("predict", tmp_path / "model.rfd", "-", stdin=b"1 1:1 99:5\n1 1:1\n")
    lines = done.out.splitlines()
    assert lines[1] == lines[2] and "dropped 1 entries" in done.err


def test_lines_that_cannot_be_read_end_it_or_are_skipped(run, svm, tmp_path):
    with open(svm, "a") as file:
        file.write("1 1:one\n-1 2:2\n")
    done = run("train", svm, "-o", tmp_path / "model.rfd")
    assert done.status == 1 and f"{svm}, line 401" in done.err and "'1 1:one'" in done.err
    assert not (tmp_path / "model.rfd").exists()
    done = run("train", svm, "-o", tmp_path / "model.rfd", "--on-error", "skip", "--json")
    assert done.json["rows"] == 401 and "skipped 1 rows" in done.err and "line 401" in done.err


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        (["train", "missing.svm", "-o", "m.rfd"], 1, "missing.svm"),
        (["train", "{svm}", "-o", "nowhere/m.rfd"], 1, "nowhere"),
        (["train", "{svm}", "-o", "m.rfd", "--hash-bits", "40"], 2, "--hash-bits must be at most 30"),
        (["train", "{svm}", "-o", "m.rfd", "--resume"], 2, "--checkpoint"),
        (["train", "{svm}", "-o", "m.rfd", "--classes", "3,4"], 2, "classes"),
        (["predict", "{svm}", "{svm}"], 1, "snapshot"),
        (["train", "{svm}"], 2, "output"),
        (["nonsense"], 2, "nonsense"),
        (["train", "{svm}", "-o", "m.rfd", "--max-columns", "1"], 1, "above --max-columns 1. If it is right"),
        (["train", "{svm}", "-o", "m.rfd", "--max-line-bytes", "0"], 2, "--max-line-bytes must be"),
        (["train", "{svm}", "-o", "m.rfd", "--holdout", "0.25", "--checkpoint", "c"], 2, "--holdout and --checkpoint"),
        (["train", "{svm}", "-o", "m.rfd", *REGRESSION, "--loss", "quantile"], 2, "--quantile"),
        (["train", "{svm}", "-o", "m.rfd", *REGRESSION, "--quantile", "0.1"], 2, "--loss quantile"),
        (["train", "{svm}", "-o", "m.rfd", "--loss", "poisson"], 2, "is for regression"),
        (["train", "{svm}", "-o", "m.rfd", *REGRESSION, "--loss", "huber", "--learner", "rfdson"], 2, "learner newton"),
    ],
)
def test_bad_input_has_one_line_and_an_exit_status(run, svm, tmp_path, monkeypatch, arguments, status, message):
    monkeypatch.chdir(tmp_path)
    done = run(*(each.format(svm=svm) for each in arguments))
    assert done.status == status and message in done.err and done.out == ""
    assert "Traceback" not in done.err


def test_too_little_memory_has_a_sentence(run, svm, tmp_path, monkeypatch):
    def train(self, *args, **named):
        np.empty(2**56)

    monkeypatch.setattr("robustfd.SketchedNewtonClassifier.partial_fit", train)
    done = run("train", svm, "-o", tmp_path / "m.rfd")
    assert done.status == 1 and "512. PiB. A model takes memory for each column." in done.err


def test_plot_of_progress(run, svm, tmp_path):
    trained(run, svm, tmp_path, "--plot", tmp_path / "progress.png")
    assert (tmp_path / "progress.png").read_bytes().startswith(b"\x89PNG")


# -- a model that is continued, and rows that are held out


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
