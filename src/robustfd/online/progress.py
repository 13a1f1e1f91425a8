"""Progressive validation: the loss and errors of a stream in which each row is predicted before it is learned."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import entry, loops, view_as
from robustfd.online.losses import loss_value

Floats = NDArray[np.float64]

# Sums over rows: weights, weighted losses, weights of misclassified rows, and the number of rows.
TOTALS = np.dtype([("weight", "f8"), ("loss", "f8"), ("errors", "f8"), ("rows", "f8")])
RECORDS = 63  # one for each power of two that fits into an int64


class Totals(NamedTuple):
    """A copy of the running totals, for compiled loops."""

    weight: float
    loss: float
    errors: float
    rows: float


def start() -> Floats:
    """Return the progress before the first row: the running totals, then their values after 1, 2, 4, ... rows.

    The result is an array of shape (64, 4), as in model files. `records` gives access by name, in compiled loops
    `view_as`.
    """
    return np.zeros((1 + RECORDS, 4))


def records(progress: Floats) -> Any:
    """Return a view of the progress as TOTALS records, the running totals first."""
    return progress.view(TOTALS)[:, 0]


@loops
def tally(code: int, delta: float, margin: float, y: float, weight: float, progress: Any) -> None:
    """Add a row with this margin and label y; it counts as an error if the signs differ."""
    tally_row(loss_value(code, margin, y, delta), 1.0 if (margin > 0) != (y > 0) else 0.0, weight, progress)


@loops
def tally_row(loss: float, wrong: float, weight: float, progress: Any) -> None:
    """Add a row with this loss; `wrong` is 1 for an error and 0 otherwise."""
    all_totals = view_as(progress, 0, (len(progress),), TOTALS)
    totals = all_totals[0]
    totals["weight"] += weight
    totals["loss"] += weight * loss
    totals["errors"] += weight * wrong
    totals["rows"] += 1.0
    count = int(totals["rows"])
    if count & (count - 1) == 0:
        place = 1
        while count > 1:
            count >>= 1
            place += 1
        all_totals[place] = totals


@loops
def totals_now(progress: Any) -> Totals:
    """Return the totals so far."""
    totals = view_as(progress, 0, (1,), TOTALS)[0]
    return Totals(totals["weight"], totals["loss"], totals["errors"], totals["rows"])


@loops
def restore_totals(progress: Any, before: Totals) -> None:
    """Restore earlier totals, and delete the records made since."""
    all_totals = view_as(progress, 0, (len(progress),), TOTALS)
    totals = all_totals[0]
    totals["weight"], totals["loss"] = before.weight, before.loss
    totals["errors"], totals["rows"] = before.errors, before.rows
    count, place = int(before.rows), 1
    while count > 0:
        count >>= 1
        place += 1
    for i in range(place, len(progress)):
        for j in range(4):
            progress[i, j] = 0.0


def vote(rows: Any) -> Floats:
    """Return weights proportional to numbers of rows, which sum to 1; they are equal if there are no rows."""
    rows = np.asarray(rows, np.float64)
    return rows / rows.sum() if rows.sum() > 0 else np.full(len(rows), 1.0 / len(rows))


def joined(one: Floats, two: Floats) -> Floats:
    """Return the joint progress of two models, as if their rows had been interleaved evenly.

    Totals between recorded numbers of rows are interpolated linearly.
    """
    rows = rows_seen(one) + rows_seen(two)

    def both_at(at: float) -> Floats:
        return np.sum([_totals_at(each, at * rows_seen(each) / rows) for each in (one, two)], axis=0)

    return _record(one[0] + two[0], both_at)


def fraction(progress: Floats, k: int, i: int) -> Floats:
    """Return the progress of part i of k: a k-th of all totals and of the rows."""
    rows = rows_seen(progress)
    mine = (rows + k - 1 - i) // k
    totals = progress[0] / k
    totals.view(TOTALS)["rows"] = mine
    return _record(totals, lambda at: _totals_at(progress, at * rows / mine) * (mine / rows))


def _totals_at(progress: Floats, rows: float) -> Floats:
    """Return the totals after this number of rows, interpolated."""
    known = np.vstack([np.zeros(4), progress[1 : 1 + rows_seen(progress).bit_length()], progress[:1]])
    return np.array([np.interp(rows, records(known)["rows"], column) for column in known.T])


def _record(totals: Floats, at: Callable[[float], Floats]) -> Floats:
    """Return the progress with these running totals, and with `at(n)` as the totals after n rows."""
    new = start()
    new[0] = totals
    for place in range(rows_seen(new).bit_length()):
        new[1 + place] = at(float(1 << place))
        records(new)[1 + place]["rows"] = 1 << place
    return new


@entry
@loops
def tally_all(code: int, delta: float, margins: Any, y: Any, weight: Any, progress: Any) -> None:
    """Add rows with these margins and labels."""
    for i in range(len(y)):
        tally(code, delta, margins[i], y[i], weight[i], progress)


@entry
@loops
def tally_judged(losses: Any, wrong: Any, weight: Any, progress: Any) -> None:
    """Add rows with these losses; `wrong` is 1 for an error and 0 otherwise."""
    for i in range(len(losses)):
        tally_row(losses[i], wrong[i], weight[i], progress)


def rows_seen(progress: Floats) -> int:
    """Return the number of rows."""
    return int(records(progress)[0]["rows"])


def total_loss(progress: Floats) -> float:
    """Return the sum of all losses."""
    return float(records(progress)[0]["loss"])


def mean_loss(progress: Floats) -> float:
    """Return the mean loss so far, nan before the first row."""
    return _mean(records(progress)[0], "loss")


def share_of_errors(progress: Floats) -> float:
    """Return the share of errors so far, nan before the first row."""
    return _mean(records(progress)[0], "errors")


def _mean(totals: Any, name: str) -> float:
    return float(totals[name] / totals["weight"]) if totals["weight"] > 0 else np.nan


def table(progress: Floats) -> dict[str, NDArray[Any]]:
    """Return arrays "rows", "loss" and "error": progressive means after 1, 2, 4, ... rows and after the last row."""
    n, all_totals = rows_seen(progress), records(progress)
    some = all_totals[1 : 1 + n.bit_length()]
    if n & (n - 1):
        some = np.append(some, all_totals[:1])
    return {
        "rows": some["rows"].astype(np.int64),
        "loss": some["loss"] / some["weight"],
        "error": some["errors"] / some["weight"],
    }
