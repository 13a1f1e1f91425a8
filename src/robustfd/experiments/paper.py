"""What the paper prints: its Tables 1 to 3 (paper.json), to be set beside what is found here."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

# The cells of Table 2 that come out equal in every printed digit; FD only for the two smaller sketches.
EXACT_DATA = ("a9a", "farm-ads")
EXACT_METHODS = {"adagrad": (0,), "fd": (0, 1), "pfd": (0, 1, 2), "rfd": (0, 1, 2)}


@cache
def numbers() -> Any:
    """Return all that was transcribed from the paper."""
    return json.loads((files(__package__) / "paper.json").read_text("utf-8"))


def sizes(data: str, n_features: int) -> tuple[int, int, int]:
    """Return m1, m2, m3 of a data set: the paper's, for others those of its data sets of about that width."""
    known = numbers()["data"].get(data)
    if known is None:
        return (5, 10, 20) if n_features <= 5000 else (20, 30, 50)
    m1, m2, m3 = known["sizes"]
    return m1, m2, m3


def is_papers(data: str, n_rows: int, n_features: int) -> bool:
    """Whether rows of this shape are the paper's data set of that name."""
    known = numbers()["data"].get(data)
    return known is not None and (known["rows"], known["features"]) == (n_rows, n_features)


def printed(table: str, data: str, method: str, place: int) -> float | None:
    """Return what "accuracy" (per cent) or "seconds" (a row) has for a method; place is 0 to 2 for m1 to m3."""
    everything = numbers()
    if data not in everything["columns"]:
        return None
    value = everything[table][method][place][everything["columns"].index(data)]
    return None if value is None else float(value)


def must_be_equal(data: str, method: str, place: int) -> bool:
    """Whether a cell of Table 2 is one of the 18 that are found again in every printed digit."""
    return data in EXACT_DATA and place in EXACT_METHODS.get(method, ())
