"""Plots of progressive loss, progressive error and drift. They need matplotlib."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def plot_progress(
    table: dict[str, NDArray[Any]], *, ax: Any = None, label: str | None = None, loss: str = "loss"
) -> Any:
    """Plot error and loss against the number of rows, with the last values in the legend; return the axes.

    For regression, which has no error rate, the loss axis is logarithmic.
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
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot_progress needs matplotlib: pip install 'robustfd[plot]'") from error
    figure = plt.figure(figsize=(6.4, 5.6), layout="constrained")
    return figure.subplots(2, 1, height_ratios=[2, 1])


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
