"""Progressive validation: the loss and errors of a stream in which each row is predicted before it is learned.

The plots need matplotlib.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import tally_all as tally_all
from robustfd._core import tally_judged as tally_judged

Floats = NDArray[np.float64]

# Sums over rows: weights, weighted losses, weights of misclassified rows, and the number of rows.
TOTALS = np.dtype([("weight", "f8"), ("loss", "f8"), ("errors", "f8"), ("rows", "f8")])
RECORDS = 63  # one for each power of two that fits into an int64


def start() -> Floats:
    """Return the progress before the first row: the running totals, then their values after 1, 2, 4, ... rows.

    The result is an array of shape (64, 4), as in model files. `records` gives access by name.
    """
    return np.zeros((1 + RECORDS, 4))


def records(progress: Floats) -> Any:
    """Return a view of the progress as TOTALS records, the running totals first."""
    return progress.view(TOTALS)[:, 0]


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


# -- plots


def plot_progress(
    table: dict[str, NDArray[Any]], *, ax: Any = None, label: str | None = None, loss: str = "loss"
) -> Any:
    """Plot error and loss against the number of rows, with the last values in the legend; return the axes.

    For regression, which has no error rate, the loss axis is logarithmic.
    """
    if ax is None:
        _, ax = _pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
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
        ax.set_ylim(bottom=0, auto=True)  # the upper limit adapts to curves added later
    elif np.all(table["loss"] > 0):
        ax.set_yscale("log")
    ax.grid(alpha=0.3)
    # The legend is above the axes, where it hides no curve: errors in one column, losses in the other.
    drawn_so_far = ax.get_legend_handles_labels()[0]
    lines = sorted(drawn_so_far, key=lambda each: getattr(each, "get_linestyle", str)() == "--")
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "frameon": False}
    ax.legend(handles=lines, fontsize="small", ncols=2 if classes else 1, **place)
    return ax


def two_panels() -> Any:
    """Return the axes of a large panel and of a small one below it."""
    return _pyplot().figure(figsize=(6.4, 5.6), layout="constrained").subplots(2, 1, height_ratios=[2, 1])


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_progress needs matplotlib: pip install 'robustfd[plot]'") from error
    return plt


def plot_coverage(coverage: dict[str, NDArray[Any]], ax: Any = None) -> Any:
    """Plot the coverage of windows of rows, with one line for each level and its goal; return the axes."""
    if ax is None:
        _, ax = _pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    lengths = np.diff(coverage["rows"], prepend=0)
    some = slice(
        None, -1 if len(lengths) > 1 and 2 * lengths[-1] < lengths[0] else None
    )  # a short last window is noise
    for level, shares in zip(coverage["level"].tolist(), coverage["coverage"].T, strict=True):
        (drawn,) = ax.plot(coverage["rows"][some], 100.0 * shares[some], linewidth=1, label=f"{100 * level:g} %")
        ax.axhline(100.0 * level, color=drawn.get_color(), linestyle=":", linewidth=1)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylim(top=100.5)
    ax.set_xlabel("rows seen")
    ax.set_ylabel("rows covered, %")
    ax.grid(alpha=0.3)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "frameon": False}
    ax.legend(fontsize="small", ncols=len(coverage["level"]), **place)
    return ax


def plot_drift(drift: dict[str, NDArray[Any]], ax: Any) -> None:
    """Plot the share of forgetting experts against the number of rows."""
    rows, share = drift["rows"], drift["share"]
    ax.stairs(share, np.concatenate([[0], rows]), fill=True, alpha=0.3, color="C0")
    ax.stairs(share, np.concatenate([[0], rows]), baseline=None, color="C0")
    ax.set_ylim(0.0, 1.0)
    ax.set_xlim(0, rows[-1])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rows seen")
    ax.set_ylabel("share of experts\nthat forget")
    ax.grid(alpha=0.3)


def plot_effect(values: NDArray[Any], effect: NDArray[np.float64], name: str, ax: Any = None) -> Any:
    """Plot the effect of a column on predictions against its values, numbers or text; return the axes."""
    if ax is None:
        _, ax = _pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    numbers = values.dtype.kind in "biuf"
    labels, place = (None, values.astype(np.float64)) if numbers else np.unique(values.astype(str), return_inverse=True)
    ax.plot(place, effect, ".", markersize=3, alpha=0.4, rasterized=len(effect) > 5000)
    if labels is not None:
        ax.set_xticks(range(len(labels)), labels, rotation=45 if len(labels) > 6 else 0)
    ax.axhline(0.0, color="0.6", linewidth=0.8)
    ax.set_xlabel(name)
    ax.set_ylabel("contribution to the prediction")
    ax.grid(alpha=0.3)
    return ax
