"""The printed numbers of the paper: Tables 1 to 3 (paper.json), for comparison."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

# The cells of Table 2 that are reproduced in every printed digit; for FD only with the two smaller sketches.
EXACT_DATA = ("a9a", "farm-ads")
EXACT_METHODS = {"adagrad": (0,), "fd": (0, 1), "pfd": (0, 1, 2), "rfd": (0, 1, 2)}


@cache
def numbers() -> Any:
    """Return all numbers transcribed from the paper."""
    return json.loads((files(__package__) / "paper.json").read_text("utf-8"))


def sizes(data: str, n_features: int) -> tuple[int, int, int]:
    """Return the sketch sizes m1, m2, m3 of a data set: the paper's, or those of its data sets of similar width."""
    known = numbers()["data"].get(data)
    if known is None:
        return (5, 10, 20) if n_features <= 5000 else (20, 30, 50)
    m1, m2, m3 = known["sizes"]
    return m1, m2, m3


def is_papers(data: str, n_rows: int, n_features: int) -> bool:
    """Return whether rows of this shape are the paper's data set of that name."""
    known = numbers()["data"].get(data)
    return known is not None and (known["rows"], known["features"]) == (n_rows, n_features)


def printed(table: str, data: str, method: str, place: int) -> float | None:
    """Return the "accuracy" (percent) or "seconds" (per row) of a method. place is 0 to 2 for m1 to m3."""
    everything = numbers()
    if data not in everything["columns"]:
        return None
    value = everything[table][method][place][everything["columns"].index(data)]
    return None if value is None else float(value)


def must_be_equal(data: str, method: str, place: int) -> bool:
    """Return whether a cell of Table 2 is one of the 18 that are reproduced in every printed digit."""
    return data in EXACT_DATA and place in EXACT_METHODS.get(method, ())
