"""Stored results depend on everything that affects them, and only complete files count."""

import json

import pytest

from robustfd.experiments import cells
from robustfd.experiments.cells import Store, cell, run_cells

ONE = cell("pass", "a9a", effort=1.0, method="fd", m=5, alpha0=0.001, order=None, seed=None)
TWO = cell("pass", "a9a", effort=2.0, method="fd", m=5, alpha0=0.01, order=None, seed=None)
RESULT = {"accuracy": 83.6524, "curve": [1, 2]}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, {"a9a": "0123"})


def test_what_was_written_is_read(store):
    assert store.read(ONE) is None
    store.write(ONE, RESULT, 0.1)
    assert store.read(ONE) == RESULT
    assert store.read(TWO) is None
    assert [path.suffix for path in store.folder.rglob("*") if path.is_file()] == [".json"]  # no temporary files


def test_effort_is_not_part_of_a_cell():
    assert cell("pass", "a9a", effort=5.0, m=1) == cell("pass", "a9a", effort=1.0, m=1)


@pytest.mark.parametrize("change", ["data", "version", "code"])
def test_a_result_of_other_data_or_code_does_not_count(store, tmp_path, monkeypatch, change):
    store.write(ONE, RESULT, 0.1)
    if change == "version":
        monkeypatch.setattr("robustfd.__version__", "9.9.9")
    if change == "code":
        monkeypatch.setattr(cells, "code_digest", lambda: "other")
    other = Store(tmp_path, {"a9a": "4567" if change == "data" else "0123"})
    assert other.read(ONE) is None


@pytest.mark.parametrize("damage", ["empty", "cut", "digit", "swapped", "list"])
def test_a_damaged_file_is_as_none(store, damage):
    store.write(ONE, RESULT, 0.1)
    path = store.path(ONE)
    text = path.read_text()
    if damage == "swapped":  # the file of another cell under this name
        store.write(TWO, RESULT, 0.1)
        text = store.path(TWO).read_text()
    broken = {"empty": "", "cut": text[:-9], "digit": text.replace("83.6524", "83.6525"), "swapped": text, "list": "[]"}
    path.write_text(broken[damage])
    assert store.read(ONE) is None
    results = run_cells([ONE], store, lambda _: RESULT, jobs=0, on_end=lambda *_: None)
    assert results == {ONE: RESULT}
    assert store.read(ONE) == RESULT


def test_a_cell_that_fails_stops_no_other(store):
    heard = {}

    def run(each):
        if each == TWO:
            raise ZeroDivisionError("no rows")
        return RESULT

    results = run_cells([ONE, TWO, ONE], store, run, jobs=0, on_end=lambda each, how: heard.update({each: how}))
    assert results == {ONE: RESULT}
    assert heard == {ONE: "done", TWO: "ZeroDivisionError: no rows"}
    assert store.read(TWO) is None
    run_cells([ONE], store, run, jobs=0, on_end=lambda each, how: heard.update({each: how}))
    assert heard[ONE] == "kept"


def test_numbers_that_json_does_not_know_are_refused(store):
    with pytest.raises(ValueError, match="JSON compliant"):
        store.write(ONE, {"x": float("nan")}, 0.1)
    assert not list(store.folder.rglob("*.json"))


def test_labels_are_file_names():
    assert ONE.label == "a9a-fd-5-0.001"
    assert json.loads(json.dumps(ONE.label)) == ONE.label
