"""Draw docs/reproduction.svg, Figure 1 of the paper again, from the table of the report.

`python docs/pictures/reproduction.py`.
"""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

DOCS = Path(__file__).parent.parent
METHODS = {"fd": ("FD", "#c0392b"), "cfd": ("CFD", "#d68910"), "rfd": ("RFD", "#1f5fa8")}


def draw() -> Figure:
    """Return the relative spectral errors against m, one panel for each data set."""
    curves = defaultdict(list)
    with (DOCS / "reproduction" / "error.csv").open() as file:
        for row in csv.DictReader(file):
            curves[row["data"], row["method"]].append((int(row["m"]), float(row["error"])))
    names = ["a9a", "farm-ads", "mnist"]
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for ax, data in zip(figure.subplots(1, len(names)), names):
        for method, (label, colour) in METHODS.items():
            m, error = zip(*sorted(curves[data, method]))
            ax.loglog(m, error, "o-", color=colour, label=label, markersize=4)
        ax.set(title=data, xlabel="sketch size m")
        ax.grid(alpha=0.3)
    figure.axes[0].set_ylabel("relative spectral error")
    figure.axes[0].legend()
    return figure


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "robustfd"
    draw().savefig(DOCS / "reproduction.svg", metadata={"Date": None})
