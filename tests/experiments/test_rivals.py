"""The comparison with methods since the paper, and data sets that stand in for others."""

import numpy as np
import pytest

from robustfd import AdaGrad
from robustfd.experiments import accuracy, rivals
from robustfd.experiments.cells import cell, shown
from robustfd.experiments.protocol import ACCURACY, Data, printed
from robustfd.experiments.reproduce import Section, claims, page, summarise
from tests.learners.test_newton import stream

DATA = Data("a9a", 1000, 20, 20000, True, "")


def test_every_method_has_49_settings_or_none():
    found = rivals.cells(DATA, quick=False)
    counts = {method: sum(each["method"] == method for each in found) for method in rivals.STYLES}
    assert counts == dict.fromkeys(rivals.TUNED, 49) | dict.fromkeys(rivals.UNTUNED, 1)
    assert len(set(found)) == len(found) and len(rivals.cells(DATA, quick=True)) < 60
    assert not rivals.cells(Data("mnist", 1000, 20, 20000, False, ""), quick=False)


@pytest.fixture
def rows(monkeypatch):
    x, y = stream(0, 300, 6)
    monkeypatch.setattr(rivals, "rows", lambda name: (x, y))
    return np.hstack([x, np.ones((300, 1))]), y


def test_scaled_rows_give_adagrad_its_learning_rate(rows):
    x, y = rows
    w, squares, margins = np.zeros(7), np.zeros(7), []
    for row, label in zip(x, y, strict=True):
        margins.append(w @ row)
        g = -label / (1 + np.exp(label * margins[-1])) * row
        squares += g**2
        w -= 0.3 * np.divide(g, np.sqrt(squares), out=np.zeros(7), where=squares > 0)
    found = AdaGrad(0.0, loss="logistic", projection=None).learn(0.3 * x, y)
    np.testing.assert_allclose(found, margins, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", rivals.STYLES)
def test_every_method_runs(rows, method):
    each = next(each for each in rivals.cells(DATA, quick=True) if each["method"] == method)
    result = rivals.run(each)
    assert result["diverged"] or 0 <= result["error"] <= 100


def results(**errors):
    out = {}
    for method, (loss, error) in errors.items():
        method = {"s_adagrad": "s-adagrad"}.get(method, method)
        rate = None if method in rivals.UNTUNED else 0.1
        each = cell("rivals", "a9a", effort=1.0, method=method, rate=rate, alpha0=0.0 if rate else None)
        out[each] = {"diverged": False, "loss": loss, "error": error}
    return out


def test_verdicts_say_who_is_best():
    found = rivals.table(results(s_adagrad=(0.3, 15.5), fd=(0.4, 15.4), rfd0=(None, 16.0), untuned=(0.3, 15.2)))
    best, paper, ours = rivals.verdicts(found)
    assert [each.status for each in (best, paper, ours)] == ["holds", "differs", "holds"]
    assert "untuned learner 15.20 %, FD-SON 15.40 %" in best.found
    assert "1 of S-AdaGrad's 1 learning rates that converged have fewer errors." in paper.reason
    sections = [Section("rivals", rivals.TITLE, rivals.CLAIM, found, [best, paper, ours], [], rivals.display(found))]
    table, others = claims(sections).split("\n\n")
    assert table.startswith("| claim | a9a |\n") and table.count("differs") == 1 and others.count("\n") == 3
    assert summarise(sections)[0] == {"what": "claims", "value": 3}
    about = {"data": [], "machine": {"robustfd": "0"}, "jobs": 1, "seconds": 1.0, "quick": False}
    assert "<h1>Methods since the paper</h1>" in page(sections, about, [])


def test_a_stand_in_is_called_one_and_has_the_numbers_of_the_paper_beside_it():
    assert shown("rcv1-subsets") == "rcv1-subsets, a stand-in for rcv1" and shown("a9a") == "a9a"
    assert printed(ACCURACY, "rcv1-subsets", "rfd0", 2) == printed(ACCURACY, "rcv1", "rfd0", 2) == 96.4762
    sizes = {}
    for m, right in ((20, 6800), (30, 6700), (50, 6868)):
        each = cell("pass", "rcv1-subsets", effort=1.0, method="rfd0", m=m, alpha0=0.0, order=None, seed=None)
        sizes[each] = {"diverged": False, "right": right, "of": 7130, "accuracy": 100 * right / 7130}
    rows = accuracy.table(sizes)
    assert [row["paper"] for row in rows] == [96.3280, 96.3115, 96.4762] and not rows[0]["must_be_equal"]
    (verdict,) = accuracy.verdicts(rows)
    assert verdict.status == "differs" and verdict.claim.startswith("rcv1-subsets, a stand-in for rcv1: every cell")
    assert "other rows of the same corpus" in verdict.reason
