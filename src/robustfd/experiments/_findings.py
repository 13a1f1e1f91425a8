"""What experiments hand to the report: rows of numbers, tables to read, verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
Status = Literal["holds", "differs", "fails"]


@dataclass(frozen=True)
class Verdict:
    """A claim and what became of it; "differs" is for what is not as printed, with the reason (a line each)."""

    status: Status
    claim: str
    found: str
    reason: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    opened: bool = False


def data_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of the data sets that rows are about, each once, in their order."""
    return list(dict.fromkeys(row["data"] for row in rows))


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def listed(words: Sequence[str], most: int = 8) -> str:
    """Return words with commas, the last few as a number if there are many."""
    shown = [*words[:most], *([f"{len(words) - most} more"] if len(words) > most else [])]
    return ", ".join(shown)


def power(value: float) -> str:
    """Return a power of ten, as 10⁻³ (0 as 0, 1 as 1)."""
    from math import log10

    if value in (0.0, 1.0, 10.0):
        return f"{value:g}"
    return "10" + str(round(log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
