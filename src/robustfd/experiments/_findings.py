"""Types that experiments pass to the report: rows of numbers, tables and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Row = dict[str, Any]
Status = Literal["holds", "differs", "fails"]


@dataclass(frozen=True)
class Verdict:
    """A claim and its outcome. "differs" means not as printed in the paper, with one reason per line."""

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
    """Return the distinct data set names of the rows, in order."""
    return list(dict.fromkeys(row["data"] for row in rows))


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def listed(words: Sequence[str], most: int = 8) -> str:
    """Return words joined by commas. After `most` words, give only the number of the others."""
    shown = [*words[:most], *([f"{len(words) - most} more"] if len(words) > most else [])]
    return ", ".join(shown)


def power(value: float) -> str:
    """Return a power of ten as text such as 10⁻³. 0, 1 and 10 stay plain numbers."""
    from math import log10

    if value in (0.0, 1.0, 10.0):
        return f"{value:g}"
    return "10" + str(round(log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
