"""The transcribed tables of the paper are consistent."""

import pytest

from robustfd.experiments import paper
from robustfd.experiments._methods import NAMES

NUMBERS = paper.numbers()


@pytest.mark.parametrize("table", ["accuracy", "seconds"])
def test_tables_are_complete(table):
    assert set(NUMBERS[table]) == set(NAMES)
    for method, lines in NUMBERS[table].items():
        assert len(lines) == (1 if method in ("adagrad", "full") else 3)
        for line in lines:
            assert len(line) == 6
            assert (None in line) == (method == "full")


def test_every_accuracy_is_a_fraction_of_the_test_rows():
    """A value with a wrong digit would hardly equal k / n to four decimal places."""
    for lines in NUMBERS["accuracy"].values():
        for line in lines:
            for name, value in zip(NUMBERS["columns"], line):
                if value is not None:
                    n = NUMBERS["data"][name]["test_rows"]
                    assert any(f"{100 * k / n:.4f}" == f"{value:.4f}" for k in range(int(value * n / 100) - 1, n))


def test_test_rows_are_what_a_share_of_70_percent_leaves():
    for name, data in NUMBERS["data"].items():
        expected = data["rows"] - int(0.7 * data["rows"])
        assert (data["test_rows"] == expected) == (name != "real-sim")  # a known error in the paper


def test_slips_of_the_paper_are_there():
    fd = NUMBERS["accuracy"]["fd"]
    assert fd[1] == fd[2]
    seconds = NUMBERS["seconds"]
    assert all(seconds["rp"][k][1:4] == seconds["fd"][k][1:4] for k in (1, 2))
    assert all(seconds["oja"][k][4:] == seconds["fd"][k][4:] for k in (1, 2))


def test_eighteen_cells_must_be_equal():
    cells = [
        (data, method, place) for data in NUMBERS["columns"] for method in NAMES for place in range(3)
        if paper.must_be_equal(data, method, place)
    ]  # fmt: skip
    assert len(cells) == 18
    assert all(paper.printed("accuracy", *cell) is not None for cell in cells)


def test_numbers_belong_to_the_papers_rows_only():
    assert paper.is_papers("a9a", 32561, 123)
    assert not paper.is_papers("a9a", 500, 123)
    assert not paper.is_papers("mnist", 60000, 784)
    assert paper.printed("accuracy", "mnist", "fd", 0) is None
    assert paper.printed("accuracy", "farm-ads", "full", 0) is None
    assert paper.printed("accuracy", "farm-ads", "rfd", 2) == 90.3459
