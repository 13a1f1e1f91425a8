"""`robustfd compare` as a user runs it, and its parts where a run would take too long."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from robustfd import OnlineNewton, RFDSONClassifier, SketchedNewtonClassifier, SketchedNewtonRegressor
from robustfd.experiments.compare import Comparison, Holdout, need, verdict
from robustfd.experiments.contenders import Problem, Scaling, contenders
from robustfd.experiments.figures import draw_comparison

pytestmark = pytest.mark.slow


def call(*arguments, given=None):
    command = [sys.executable, "-m", "robustfd", "compare", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, input=given, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def result_of(*arguments, given=None):
    code, out, err = call(*arguments, "--json", "-q", given=given)
    assert code == 0, err
    assert err == ""
    return json.loads(out)


def write(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


def found(result, name):
    return next(each for each in result["learners"] if each["learner"] == name)


def at(result, name, value):
    return next(trial for trial in found(result, name)["settings"] if trial["value"] == value)


@pytest.fixture(scope="module")
def two_classes(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5)) * (1, 3, 0.5, 1, 2)
    y = np.where(X @ (1, 1, -2, 0, 0.3) + rng.standard_normal(600) > 0.5, 1, -1)
    return write(tmp_path_factory.mktemp("compare") / "two.svm", X, y)


@pytest.fixture(scope="module")
def picture(two_classes):
    return two_classes.with_name("two.png")


@pytest.fixture(scope="module")
def compared(two_classes, picture):
    return result_of(two_classes, "--plot", picture)


@pytest.fixture(scope="module")
def parts(two_classes):
    """X and y of the rows that are learnt, and of those that are held out, with seed 0."""
    X, y = load_svmlight_file(str(two_classes))
    held = np.random.default_rng(0).random(len(y)) < 0.3
    return X[~held], y[~held], X[held], y[held]


def normalized(rows, X):
    """Rows with columns of size 1 at most and a constant as large as the others, in units of the length of rows X."""
    largest = np.abs(X).max(axis=0)
    rows, X = rows / largest, X / largest
    constant = np.full((len(rows), 1), np.sqrt(np.mean(np.square(X))))
    return np.hstack([rows, constant]) / np.sqrt(np.mean(np.square(X).sum(axis=1)))


# ------------------------------------------------------------------ figures


def test_counts_and_names(compared, parts):
    assert (compared["task"], compared["classes"], compared["error"]) == ("classification", [-1, 1], "share of rows")
    assert (compared["rows"], compared["features"], compared["seed"]) == (600, 5, 0)
    assert (compared["learnt"], compared["held_out"]) == (len(parts[1]), len(parts[3]))
    assert compared["left_out"] == {}
    errors = [each["progressive_error"] for each in compared["learners"]]
    assert errors == sorted(errors)
    assert {each["learner"]: each["setting"] for each in compared["learners"]} == {
        "SketchedNewtonClassifier": None, "RFDSONClassifier": None, "most frequent label": None, "FD-SON": "alpha0",
        "AdaGrad": "rate", "gradient descent": "rate", "SGDClassifier": "alpha",
    }  # fmt: skip


@pytest.mark.parametrize("kind", [SketchedNewtonClassifier, RFDSONClassifier])
def test_learners_with_nothing_to_tune_are_those_of_the_library(kind, compared, parts):
    X, y, X_test, y_test = parts
    model = kind().partial_fit(X, y, classes=[-1, 1])
    mine = found(compared, kind.__name__)
    assert mine["progressive_error"] == model.progressive_error_
    assert mine["test_error"] == pytest.approx(1 - model.score(X_test, y_test), abs=1e-12)
    assert mine["curve"]["rows"] == model.progressive_["rows"].tolist()
    assert mine["curve"]["error"] == model.progressive_["error"].tolist()
    assert mine["diverged"] is False
    assert mine["microseconds_a_row"] == pytest.approx(1e6 * mine["seconds"] / len(y))


def test_fd_son_is_online_newton_of_rows_of_length_one(compared, parts):
    X, y, X_test, y_test = (each.toarray() if sp.issparse(each) else each for each in parts)
    rows, test = (normalized(each, X) for each in (X, X_test))
    for value in (1e-2, 1.0, 1e2):
        learner = OnlineNewton("fd", 20, alpha0=value)
        learner.learn(rows, y)
        mine = at(compared, "FD-SON", value)
        assert mine["progressive_error"] == pytest.approx(learner.progressive_error_, abs=2 / len(y))
        wrong = np.mean((learner.decision_function(test) > 0) != (y_test > 0))
        assert mine["test_error"] == pytest.approx(wrong, abs=2 / len(y_test))


def test_adagrad_has_a_rate(compared, parts):
    """Against the textbook, row by row: w -= rate g / sqrt(sum of g^2)."""
    X, y = parts[0].toarray(), parts[1]
    rows = normalized(X, X)
    for rate in (0.1, 10.0):
        w, squares, wrong = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0
        for x, label in zip(rows, y):
            margin = w @ x
            wrong += (margin > 0) != (label > 0)
            g = -label * x / (1 + math.exp(label * margin))
            squares += g * g
            w -= rate * np.divide(g, np.sqrt(squares), out=np.zeros_like(g), where=squares > 0)
        assert at(compared, "AdaGrad", rate)["progressive_error"] == pytest.approx(wrong / len(y), abs=1e-12)


def test_the_most_frequent_label(compared, parts):
    _, y, _, y_test = parts
    assert found(compared, "most frequent label")["test_error"] == pytest.approx(
        np.mean(y_test != (1 if np.sum(y > 0) > len(y) / 2 else -1)), abs=1e-12
    )


def test_the_spread_over_settings(compared):
    for each in compared["learners"]:
        if each["setting"]:
            for what in ("progressive_error", "test_error"):
                errors = [trial[what] for trial in each["settings"]]
                spread = each["spread"][what]
                assert (spread["best"], spread["median"], spread["worst"]) == tuple(
                    sorted(errors)[i] for i in (0, 2, 4)
                )
                assert spread["default"] == at(compared, each["learner"], each["default"])[what]
            assert each["progressive_error"] == each["spread"]["progressive_error"]["best"]


def test_the_verdict_follows_from_the_figures(compared):
    answer = compared["verdict"]
    tuned = [trial["progressive_error"] for each in compared["learners"] if each["setting"]
             for trial in each["settings"]]  # fmt: skip
    mine = found(compared, "SketchedNewtonClassifier")["progressive_error"]
    assert (answer["untuned"], answer["best_tuned"], answer["settings"]) == (mine, min(tuned), len(tuned))
    assert answer["at_least_as_good_as"] == sum(mine <= error for error in tuned)
    on_rows = need(mine, min(tuned), compared["learnt"], shares=True)
    on_test = need(answer["untuned_on_test"], answer["best_tuned_on_test"], compared["held_out"], shares=True)
    assert (answer["need_by_progressive_error"], answer["need_on_test"]) == (on_rows, on_test)
    assert answer["need"] == max(on_rows, on_test, key=("no", "a little", "yes").index)
    assert answer["words"].startswith(f"{answer['need'].capitalize()}: SketchedNewtonClassifier, with nothing to ")
    assert f"progressive error {mine:.4g} and test error" in answer["words"]
    assert answer["words"].count(". ") == 0  # one sentence


@pytest.mark.parametrize(
    "untuned, tuned, rows, shares, answer",
    [
        (0.10, 0.12, 10**6, True, "no"), (0.105, 0.1, 10**6, True, "no"), (0.11, 0.1, 10**6, True, "a little"),
        (0.126, 0.1, 10**6, True, "yes"), (0.126, 0.1, 400, True, "no"), (0.126, 0.1, 400, False, "yes"),
        (0.0, 0.0, 10, True, "no"), (0.3, math.inf, 10, True, "no"), (math.inf, 0.5, 10, True, "yes"),
        (math.inf, math.inf, 10, False, "yes"),
    ],
)  # fmt: skip
def test_where_the_answer_changes(untuned, tuned, rows, shares, answer):
    assert need(untuned, tuned, rows, shares=shares) == answer


# ------------------------------------------------------------------ runs


def test_the_same_seed_gives_the_same_figures_for_people(compared, two_classes):
    code, out, err = call(two_classes)
    assert code == 0
    assert err == ""  # no terminal, no bar
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f"held out {compared['held_out']}" in lines
    for each in compared["learners"]:
        setting = f"{each['setting']} {each['value']:g}" if each["setting"] else "nothing to tune"
        figures = f"{each['progressive_error']:.4g} {each['test_error']:.4g}"
        assert sum(line.startswith(f"{each['learner']} {setting} {figures} ") for line in lines) == 1
        if each["setting"]:
            spread = each["spread"]["progressive_error"]
            figures = " ".join(f"{spread[which]:.4g}" for which in ("best", "default", "median", "worst"))
            assert sum(line.startswith(each["learner"]) and f" 5 {figures} " in line for line in lines) == 1
    question = lines.index("Do I need tuning on my data?")
    said = " ".join([compared["verdict"]["words"], *compared["verdict"]["remarks"]])
    assert " ".join(" ".join(lines[question + 1 :]).split()) == said


def test_the_picture(compared, picture):
    from matplotlib.image import imread

    assert compared["file"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    height, width, _ = imread(picture).shape
    assert (width, height) == (1500, 720)
    assert 3e4 < picture.stat().st_size < 5e5


def test_regression_where_a_baseline_diverges(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4)) * (1, 10, 0.1, 5)
    path = write(tmp_path / "numbers.svm", X, 1000 + 20 * X @ (1, -1, 3, 0.5) + rng.standard_normal(500))
    result = result_of(path, "--plot", tmp_path / "numbers.svg")
    assert (result["task"], result["error"]) == ("regression", "root of the mean square")
    assert "classes" not in result
    gone = at(result, "gradient descent", 100.0)
    assert gone["diverged"] is True
    assert gone["progressive_error"] is gone["test_error"] is None
    assert found(result, "gradient descent")["spread"]["progressive_error"]["worst"] is None
    X, y = load_svmlight_file(str(path))
    held = np.random.default_rng(0).random(len(y)) < 0.3
    # Of standardised targets, so that the first prediction, 0, is not a thousand off.
    centre, unit = y[~held].mean(), y[~held].std()
    model = SketchedNewtonRegressor(shuffle=False).fit(X[~held], (y[~held] - centre) / unit)
    mine = found(result, "SketchedNewtonRegressor")
    assert mine["progressive_error"] == pytest.approx(unit * model.progressive_loss_**0.5)
    assert mine["test_error"] == pytest.approx(
        np.sqrt(np.mean(np.square(centre + unit * model.predict(X[held]) - y[held])))
    )
    guess = found(result, "mean of labels")
    assert guess["test_error"] == pytest.approx(np.sqrt(np.mean(np.square(centre - y[held]))))
    assert result["verdict"]["need_on_test"] == "no"  # in the first rows, where experts disagree, tuning is ahead
    assert "<svg" in (tmp_path / "numbers.svg").read_text()


def test_three_classes_from_a_pipe_another_seed_and_fewer_settings():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    X = 3 * np.eye(3)[y] + rng.standard_normal((400, 3))
    lines = [f"{label} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(x)) for label, x in zip(y.tolist(), X)]
    result = result_of("-", "--features", 3, "--quick", "--seed", 1, given="\n".join(lines))
    assert result["classes"] == [0, 1, 2]
    held_out = [int(np.sum(np.random.default_rng(seed).random(400) < 0.3)) for seed in (0, 1)]
    assert result["held_out"] == held_out[1] != held_out[0]
    assert result["verdict"]["settings"] == 11  # 3 of each, but 2 of gradient descent
    for each in result["learners"]:
        assert each["test_error"] > 0.5 if each["learner"] == "most frequent label" else each["test_error"] < 0.35


@pytest.mark.parametrize(
    "text, options, status, message",
    [
        (None, (), 1, "No such file"),
        ("1 1:1\n-1 1:x\n", (), 1, "line 2"),
        ("1 1:1\n-1 1:2\n", ("--test", "0.99"), 1, "too few"),
        ("1 1:1\n1 1:2\n", (), 2, "only one label"),
        ("1 1:1\n-1 1:2\n", ("--classes", "1,2"), 1, "label -1"),
        ("1 1:1\n-1 1:2\n", ("--test", "2"), 2, "--test"),
    ],
)
def test_what_cannot_be_compared(run, text, options, status, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.svm"
    if text is not None:
        path.write_text(text)
    done = run("compare", path, *options)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err


# ------------------------------------------------------------------ parts


def test_what_is_held_out_does_not_depend_on_blocks_and_is_bounded():
    X, y = np.arange(5000.0)[:, None], np.arange(5000)
    whole, cut, small = Holdout(0.3, 7), Holdout(0.3, 7), Holdout(0.3, 7, most_rows=100)
    learnt = whole.take(X, y)[1]
    others = [cut.take(X[k : k + 130], y[k : k + 130])[1] for k in range(0, 5000, 130)]
    assert np.array_equal(np.concatenate(others), learnt)
    assert np.array_equal(cut.all()[1], whole.all()[1])
    assert sorted([*learnt, *whole.all()[1]]) == y.tolist()
    assert 1300 < len(whole.all()[1]) < 1700
    late = [small.take(X[k : k + 130], y[k : k + 130])[1] for k in range(0, 5000, 130)]
    kept, drawn = small.all()[1], np.random.default_rng(7).random(5000)
    assert 30 < len(kept) <= 100
    assert np.array_equal(kept, y[drawn < small.share])  # a uniform sample of all, not of the first
    assert len(np.concatenate(late[-5:])) > 0.95 * (5000 - 34 * 130)  # the last ones are learnt instead


def test_what_is_held_out_is_bounded_in_bytes_whatever_the_rows():
    X = sp.random_array((3000, 50), density=0.3, format="csr", random_state=np.random.default_rng(0))
    for rows in (X, X.toarray()):
        held = Holdout(0.5, 0, most_bytes=40_000)
        held.take(rows, np.zeros(3000))
        assert 15_000 < held.bytes <= 40_000
        assert held.all()[0].shape == (held.rows, 50)
    tiny = Holdout(0.9, 0, most_bytes=1)  # smaller than any row
    tiny.take(X, np.zeros(3000))
    assert tiny.rows <= 1


def test_dense_and_sparse_rows_give_the_same_figures():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    y = (X[:, 0] + 0.3 * rng.standard_normal(300) > 0).astype(int)
    errors = []
    for rows in (X, sp.csr_array(X)):
        comparison = Comparison(np.array([0, 1]), 6, share=0.3, seed=0, quick=True)
        comparison.add(rows, y)
        found = {each["learner"]: each["progressive_error"] for each in comparison.learners()}
        found.pop("SGDClassifier")  # scikit-learn has smaller steps of the intercept if rows are sparse
        errors.append(found)
    assert errors[0] == pytest.approx(errors[1], abs=0.02)


def test_learners_that_would_take_too_much_memory_are_left_out():
    chosen, out = contenders(Problem(20, 62_061), quick=False)
    assert list(out) == ["FD-SON"]
    assert "993 MB" in out["FD-SON"]
    assert [each.name for each in chosen][:2] == ["SketchedNewtonClassifier", "RFDSONClassifier"]
    assert contenders(Problem(2, 62_061), quick=False)[1] == {}


def trial(error, *, value=1.0, top=2.0):
    rows = np.array([1, 16, 32, 64])
    curve = {"rows": rows, "error": np.array([1.0, top, error, error])}
    return {
        "value": value, "progressive_error": error, "test_error": error, "diverged": not np.isfinite(error),
        "curve": curve,
    }  # fmt: skip


def test_the_picture_shows_all_curves():
    bad = trial(8.0, top=9.0)  # eight times as bad as a guess
    guess = {"learner": "mean of labels", "setting": None, **trial(1.0, top=1.2)}
    own = {"learner": "SketchedNewtonRegressor", "setting": None, **trial(0.5, top=3.0)}
    tuned = {"learner": "AdaGrad", "setting": "rate", "default": 1.0, **bad, "settings": [bad]}
    figure = draw_comparison([own, guess, tuned], {"learnt": 64, "held_out": 20})
    left = figure.axes[0]
    for line in left.get_lines():
        assert len(line.get_xdata()) and line.get_ydata().max() <= left.get_ylim()[1]


@pytest.mark.parametrize("on_test, answer", [(0.5, "no"), (0.6, "a little"), (0.9, "yes")])
def test_the_verdict_is_one_sentence_and_the_worse_of_two_answers(on_test, answer):
    guess = {"learner": "mean of labels", "setting": None, **trial(1.0)}
    own = {"learner": "SketchedNewtonRegressor", "setting": None, **trial(0.5), "test_error": on_test}
    tuned = {"learner": "AdaGrad", "setting": "rate", **trial(0.5), "settings": [trial(0.5), trial(0.7, value=2.0)]}
    found = verdict([own, guess, tuned], "SketchedNewtonRegressor", 1000, 300, shares=False)
    assert found["need"] == answer and found["words"].startswith(answer.capitalize() + ": ")
    others = {"no", "a little", "yes"} - {answer}
    assert not any(f"{other}." in found["words"].lower() or f"{other}:" in found["words"].lower() for other in others)


def test_rows_before_numbers_ceased_to_be_finite_are_counted():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 3)), rng.standard_normal(400)
    problem = Problem(0, 3, float(np.abs(y).max()))
    (descent,) = (each for each in contenders(problem, quick=False)[0] if each.name == "gradient descent")
    runner = descent.begin(100.0)
    scaling = Scaling()
    scaling.update(X)
    given = scaling.rows(X, y)
    runner.learn(given)
    rows, errors = runner.curve()
    assert runner.diverged
    assert runner.progressive_error() == runner.test_error(given) == math.inf
    assert 0 < rows[-1] < 400
    assert np.isfinite(errors).all()
