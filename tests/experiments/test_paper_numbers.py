"""The transcribed tables of the paper are consistent."""

import pytest

from robustfd.experiments.protocol import ACCURACY, NAMES, PAPER_DATA, SECONDS, Data, must_be_equal, printed


@pytest.mark.parametrize("table", [ACCURACY, SECONDS], ids=["accuracy", "seconds"])
def test_tables_are_complete(table):
    assert set(table) == set(NAMES)
    for method, lines in table.items():
        assert len(lines) == (1 if method in ("adagrad", "full") else 3)
        for line in lines:
            assert len(line) == 6
            assert (None in line) == (method == "full")


def test_every_accuracy_is_a_fraction_of_the_test_rows():
    """A value with a wrong digit would hardly equal k / n to four decimal places."""
    for lines in ACCURACY.values():
        for line in lines:
            for name, value in zip(PAPER_DATA, line):
                if value is not None:
                    n = PAPER_DATA[name]["test_rows"]
                    assert any(f"{100 * k / n:.4f}" == f"{value:.4f}" for k in range(int(value * n / 100) - 1, n))


def test_test_rows_are_what_a_share_of_70_percent_leaves():
    for name, data in PAPER_DATA.items():
        expected = data["rows"] - int(0.7 * data["rows"])
        assert (data["test_rows"] == expected) == (name != "real-sim")  # a known error in the paper


def test_slips_of_the_paper_are_there():
    fd = ACCURACY["fd"]
    assert fd[1] == fd[2]
    assert all(SECONDS["rp"][k][1:4] == SECONDS["fd"][k][1:4] for k in (1, 2))
    assert all(SECONDS["oja"][k][4:] == SECONDS["fd"][k][4:] for k in (1, 2))


def test_eighteen_cells_must_be_equal():
    cells = [
        (data, method, place) for data in PAPER_DATA for method in NAMES for place in range(3)
        if must_be_equal(data, method, place)
    ]  # fmt: skip
    assert len(cells) == 18
    assert all(printed(ACCURACY, *cell) is not None for cell in cells)


def test_numbers_belong_to_the_papers_rows_only():
    shapes = {("a9a", 32561, 123): True, ("a9a", 500, 123): False, ("mnist", 60000, 784): False}
    assert {shape: Data(*shape, 0, True, "").is_papers for shape in shapes} == shapes
    assert printed(ACCURACY, "mnist", "fd", 0) is None
    assert printed(ACCURACY, "farm-ads", "full", 0) is None
    assert printed(ACCURACY, "farm-ads", "rfd", 2) == 90.3459
