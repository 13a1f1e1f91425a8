"""Progressive validation: the loss and the errors of a stream, each row judged before it is learnt."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import entry, loops
from robustfd.online.losses import loss_value

Floats = NDArray[np.float64]

WEIGHT, LOSS, ERRORS, ROWS = range(4)
RECORDS = 63  # doubling numbers of rows, as many as can be


def start() -> Floats:
    """Return the progress before the first row: running totals first, then what they were at 1, 2, 4, ... rows."""
    return np.zeros((1 + RECORDS, 4))


@loops
def tally(code: int, delta: float, margin: float, y: float, weight: float, progress: Any) -> None:
    """Add a row with label y, judged by the sign and the loss of its margin."""
    tally_row(loss_value(code, margin, y, delta), 1.0 if (margin > 0) != (y > 0) else 0.0, weight, progress)


@loops
def tally_row(loss: float, wrong: float, weight: float, progress: Any) -> None:
    """Add a row of this loss."""
    totals = progress[0]
    totals[WEIGHT] += weight
    totals[LOSS] += weight * loss
    totals[ERRORS] += weight * wrong
    totals[ROWS] += 1.0
    count = int(totals[ROWS])
    if count & (count - 1) == 0:
        place = 1
        while count > 1:
            count >>= 1
            place += 1
        for j in range(4):
            progress[place, j] = totals[j]


@loops
def take_back(progress: Any, weight: float, loss: float, errors: float, rows: float) -> None:
    """Let the totals be these earlier ones, and forget what was recorded since."""
    totals = progress[0]
    totals[WEIGHT], totals[LOSS], totals[ERRORS], totals[ROWS] = weight, loss, errors, rows
    count, place = int(rows), 1
    while count > 0:
        count >>= 1
        place += 1
    for i in range(place, len(progress)):
        for j in range(4):
            progress[i, j] = 0.0


def vote(rows: Any) -> Floats:
    """Return how much models of so many rows count in a mean; all the same if none has any."""
    rows = np.asarray(rows, np.float64)
    return rows / rows.sum() if rows.sum() > 0 else np.full(len(rows), 1.0 / len(rows))


def joined(one: Floats, two: Floats) -> Floats:
    """Return the progress of two models together, whose rows came side by side.

    Between the numbers of rows at which totals were recorded they grow evenly.
    """
    rows = one[0, ROWS] + two[0, ROWS]
    return _record(one[0] + two[0], lambda at: sum(_totals_at(each, at * each[0, ROWS] / rows) for each in (one, two)))


def fraction(progress: Floats, k: int, i: int) -> Floats:
    """Return the progress of part i of k: the k-th part of all totals, and of the rows."""
    rows = progress[0, ROWS]
    mine = float((int(rows) + k - 1 - i) // k)
    totals = np.append(progress[0, :ROWS] / k, mine)
    return _record(totals, lambda at: _totals_at(progress, at * rows / mine) * (mine / rows))


def _totals_at(progress: Floats, rows: float) -> Floats:
    """Return the totals after so many rows."""
    known = np.vstack([np.zeros(4), progress[1 : 1 + int(progress[0, ROWS]).bit_length()], progress[:1]])
    return np.array([np.interp(rows, known[:, ROWS], known[:, j]) for j in range(4)])


def _record(totals: Floats, at: Any) -> Floats:
    """Return the progress with these totals and those that `at` returns for numbers of rows."""
    new = start()
    new[0] = totals
    for place in range(int(totals[ROWS]).bit_length()):
        new[1 + place] = at(float(1 << place))
        new[1 + place, ROWS] = 1 << place
    return new


@entry
@loops
def tally_all(code: int, delta: float, margins: Any, y: Any, weight: Any, progress: Any) -> None:
    """Add rows."""
    for i in range(len(y)):
        tally(code, delta, margins[i], y[i], weight[i], progress)


@entry
@loops
def tally_judged(losses: Any, wrong: Any, weight: Any, progress: Any) -> None:
    """Add rows whose losses are known and whether they were judged wrongly."""
    for i in range(len(losses)):
        tally_row(losses[i], wrong[i], weight[i], progress)


def mean(progress: Floats, what: int) -> float:
    """Return the mean loss or the share of errors so far, nan before the first row."""
    return float(progress[0, what] / progress[0, WEIGHT]) if progress[0, WEIGHT] > 0 else np.nan


def table(progress: Floats) -> dict[str, NDArray[Any]]:
    """Return arrays "rows", "loss" and "error": means over all rows at doubling numbers of rows and at the last row."""
    n = int(progress[0, ROWS])
    record = progress[1 : 1 + n.bit_length()]
    if n & (n - 1):
        record = np.vstack([record, progress[:1]])
    return {
        "rows": record[:, ROWS].astype(np.int64),
        "loss": record[:, LOSS] / record[:, WEIGHT],
        "error": record[:, ERRORS] / record[:, WEIGHT],
    }


def plot_progress(
    table: dict[str, NDArray[Any]], *, ax: Any = None, label: str | None = None, loss: str = "loss"
) -> Any:
    """Draw error and loss against the number of rows, with the last values in the legend; return the axes.

    Losses of numbers, which have no error beside them and begin far above where they end, get a logarithmic axis.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_progress needs matplotlib: pip install 'robustfd[plot]'") from error
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    name, color, classes = "" if label is None else f"{label}: ", None, "error" in table
    for what, called, line, marker in (("error", "error", "-", "o"), ("loss", loss, "--" if classes else "-", "s")):
        if what in table:
            text = f"{name}progressive {called} {table[what][-1]:.4g}"
            (drawn,) = ax.plot(table["rows"], table[what], line, marker=marker, markersize=4, color=color, label=text)
            color = drawn.get_color()
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rows seen")
    ax.set_ylabel("mean over all rows so far")
    if classes:
        ax.set_ylim(bottom=0, auto=True)  # there is room for what is drawn later
    elif np.all(table["loss"] > 0):
        ax.set_yscale("log")
    ax.grid(alpha=0.3)
    # Above the axes, where it hides no line: errors in one column, losses in the other.
    drawn_so_far = ax.get_legend_handles_labels()[0]
    lines = sorted(drawn_so_far, key=lambda each: getattr(each, "get_linestyle", str)() == "--")
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "frameon": False}
    ax.legend(handles=lines, fontsize="small", ncols=2 if classes else 1, **place)
    return ax


def two_panels() -> Any:
    """Return the axes of a large panel and of a small one below it, with the same rows."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_progress needs matplotlib: pip install 'robustfd[plot]'") from error
    figure = plt.figure(figsize=(6.4, 5.6), layout="constrained")
    return figure.subplots(2, 1, height_ratios=[2, 1])


def plot_drift(drift: dict[str, NDArray[Any]], ax: Any) -> None:
    """Draw the share of experts that forget against the number of rows."""
    rows, share = drift["rows"], drift["share"]
    ax.stairs(share, np.concatenate([[0], rows]), fill=True, alpha=0.3, color="C0")
    ax.stairs(share, np.concatenate([[0], rows]), baseline=None, color="C0")
    ax.set_ylim(0.0, 1.0)
    ax.set_xlim(0, rows[-1])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rows seen")
    ax.set_ylabel("share of experts\nthat forget")
    ax.grid(alpha=0.3)
