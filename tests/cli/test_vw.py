"""`robustfd train file.vw`: one command for somebody who has files of Vowpal Wabbit."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.cli._vowpal_wabbit import REPLACEMENTS


def vw_text(X, y, heads=None):
    lines = []
    for i, (row, label) in enumerate(zip(X, y)):
        entries = " ".join(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row))
        lines.append(f"{label:.17g} {'' if heads is None else heads[i]}| {entries}\n")
    return "".join(lines)


@pytest.fixture
def vw(tmp_path, rows):
    path = tmp_path / "rows.vw"
    path.write_text(vw_text(*rows))
    return path


def test_the_model_is_that_of_the_libsvm_file(run, svm, vw, tmp_path):
    for source, name in ((svm, "svm"), (vw, "vw")):
        done = run("train", source, "-o", tmp_path / f"{name}.rfd", "-q")
        assert done.status == 0, done.err
    one, other = (robustfd.load(tmp_path / f"{name}.rfd") for name in ("svm", "vw"))
    assert one.to_bytes() == other.to_bytes()
    judged = [run("evaluate", tmp_path / f"{k}.rfd", f, "--json").json for k, f in (("svm", svm), ("vw", vw))]
    assert judged[0]["log_loss"] == judged[1]["log_loss"]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_importance_is_the_weight_of_rows(run, rows, tmp_path, task):
    X, y = rows
    weight = np.random.default_rng(3).choice([0.0, 0.5, 1.0, 3.0], len(y))
    weight[:2] = 0
    path = tmp_path / "weighted.vw"
    path.write_text(vw_text(X, y, [f"{each} " for each in weight]))
    done = run("train", path, "-o", tmp_path / "m.rfd", "--task", task, "--json")
    assert done.status == 0, done.err
    if task == "classification":
        expected = robustfd.SketchedNewtonClassifier()
        expected.partial_fit(sp.csr_matrix(X), y.astype(int), classes=[-1, 1], sample_weight=weight)
    else:
        expected = robustfd.SketchedNewtonRegressor().partial_fit(sp.csr_matrix(X), y, sample_weight=weight)
    assert robustfd.load(tmp_path / "m.rfd").to_bytes() == expected.to_bytes()
    assert done.json["rows"] == int((weight > 0).sum())


def test_a_beginning_without_weight_is_no_trouble(run, rows, tmp_path):
    """More than a block of rows that do not count, and then those that do."""
    X, y = rows
    path = tmp_path / "late.vw"
    path.write_text("1 0 | 1:1\n" * 120_000 + vw_text(X, y))
    done = run("train", path, "-o", tmp_path / "m.rfd", "--json")
    assert done.status == 0 and done.json["rows"] == len(y), done.err
    path.write_text("1 0 | 1:1\n-1 0 | 1:2\n")
    done = run("train", path, "-o", tmp_path / "n.rfd")
    assert done.status != 0 and "no rows to learn" in done.err


def test_lines_without_a_label_are_predicted_and_not_learnt(run, rows, tmp_path, vw):
    X, y = rows
    assert run("train", vw, "-o", tmp_path / "m.rfd").status == 0
    mixed = tmp_path / "mixed.vw"
    mixed.write_text(vw.read_text() + "| 1:1\n'who| 2:1\n")
    done = run("train", mixed, "-o", tmp_path / "n.rfd")
    assert done.status == 0 and "skipped 2 rows" in done.err and "no label" in done.err
    assert robustfd.load(tmp_path / "m.rfd").to_bytes() == robustfd.load(tmp_path / "n.rfd").to_bytes()
    assert len(run("predict", tmp_path / "m.rfd", mixed).out.splitlines()) == 1 + len(y) + 2
    assert run("evaluate", tmp_path / "m.rfd", mixed, "--json").json["rows"] == len(y)
    unlabelled = tmp_path / "unlabelled.vw"
    unlabelled.write_text("| 1:1\n| 2:1\n")
    done = run("train", unlabelled, "-o", tmp_path / "o.rfd")
    assert done.status == 1 and "no label" in done.err


def test_tags_are_passed_through_by_predict(run, vw, tmp_path):
    assert run("train", vw, "-o", tmp_path / "m.rfd").status == 0
    done = run("predict", tmp_path / "m.rfd", "-", "--format", "vw", stdin=b"'first| 1:1\n1 second| 2:1\n| 3:1\n")
    lines = [line.split(",") for line in done.out.splitlines()]
    assert lines[0] == ["prediction", "id"] and [line[1] for line in lines[1:]] == ["first", "second", ""]


def test_names_and_namespaces(run, tmp_path):
    path = tmp_path / "named.vw"
    path.write_text("1 |weather hot:2 sunny |day monday\n0 |weather cold |day monday\n" * 100)
    done = run("train", path, "-o", tmp_path / "m.rfd", "--json")
    assert done.status == 0 and done.json["features"] == 2**18, done.err
    assert done.json["progressive_error"] < 0.05
    out = run("predict", tmp_path / "m.rfd", "-", "--format", "vw", stdin=b"|weather hot |other x\n|weather cold\n").out
    assert out.splitlines() == ["prediction", "1", "0"]


def exclusive_or(path):
    """Write rows whose label is told by products alone."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 600))
    path.write_text("".join(f"{int(i ^ j)} |left {'xy'[i]} |right {'uv'[j]}\n" for i, j in zip(a, b)))
    return path


def test_interactions_are_in_the_model(run, tmp_path):
    path = exclusive_or(tmp_path / "rows.vw")
    assert run("train", path, "-o", tmp_path / "plain.rfd").status == 0
    for pairs in ("lr", "left:right"):
        done = run("train", path, "--interactions", pairs, "-o", tmp_path / "m.rfd", "--json")
        assert done.status == 0 and done.json["features"] == 2**19, done.err
        assert run("evaluate", tmp_path / "m.rfd", path, "--json").json["accuracy"] == 1
    assert run("evaluate", tmp_path / "plain.rfd", path, "--json").json["accuracy"] < 0.85  # of rows that it learned
    weights = run("inspect", tmp_path / "m.rfd", "--json").json["weights"]["1"]
    assert any(each["feature"].startswith("interaction ") for each in weights)


def test_interactions_of_columns_have_names(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 2))
    lines = [f"{a},{b},{int(a * b > 0)}" for a, b in x]
    (tmp_path / "rows.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    done = run("train", tmp_path / "rows.csv", "--interactions", "a:b", "-o", tmp_path / "m.rfd", "--json")
    assert done.status == 0 and done.json["progressive_error"] < 0.1, done.err
    weights = run("inspect", tmp_path / "m.rfd", "--json").json["weights"]["1"]
    assert weights[0]["feature"] == "a^b"
    assert run("predict", tmp_path / "m.rfd", tmp_path / "rows.csv").status == 0


def test_json_lines(run, tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"colour": ["red", "blue"][k], "size": {"cm": float(s)}, "label": ["yes", "no"][k]}
            for k, s in zip(rng.integers(0, 2, 300), rng.random(300))]  # fmt: skip
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = run("train", path, "-o", tmp_path / "m.rfd", "--json")
    assert done.status == 0 and done.json["classes"] == ["no", "yes"], done.err
    assert run("evaluate", tmp_path / "m.rfd", path, "--json").json["accuracy"] == 1
    out = run("predict", tmp_path / "m.rfd", "-", stdin=b'{"colour": "red"}\n{"colour": "blue", "label": null}\n').out
    assert out.splitlines() == ["prediction", "yes", "no"]


def test_every_option_of_vowpal_wabbit_has_an_answer(run, vw):
    for names, answer in REPLACEMENTS.items():
        for name in set(names.split()) - {"-q", "--passes"}:
            done = run("train", vw, "-o", "m.rfd", name, "xyz")
            assert done.status == 2 and f"{name} is an option of Vowpal Wabbit." in done.err
            assert answer.replace("{}", "xyz") in " ".join(done.err.split())


@pytest.mark.parametrize("given, answer", [
    ("-b22", "Use --hash-bits 22."), ("--bit_precision=22", "Use --hash-bits 22."), ("-b", "Use --hash-bits ...."),
    ("-q ab", "use --interactions a:b."), ("-qab", "use --interactions a:b."), ("-q ::", "use --interactions ::."),
    ("--unheard_of", "No such option"), ("-q", None), ("-qj1", None),
])  # fmt: skip
def test_options_are_answered_with_their_values(run, vw, tmp_path, given, answer):
    done = run("train", vw, "-o", tmp_path / "m.rfd", *given.split())
    assert done.status == (2 if answer else 0) and (answer or "") in done.err


def test_quiet_may_be_followed_by_a_file_of_two_letters(run, vw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab").write_text(vw.read_text())
    assert run("train", "-q", "ab", "-o", "m.rfd").status == 0
    done = run("-d", "ab")
    assert done.status == 2 and "robustfd train ab -o model.rfd" in done.err
