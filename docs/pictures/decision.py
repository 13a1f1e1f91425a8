"""Draw docs/decision.svg: which class answers which question. `python docs/pictures/decision.py`."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

OUT = Path(__file__).parent.parent / "decision.svg"
QUESTION, ANSWER, LINE, INK = "#dbe9f6", "#e3f1df", "#8a929a", "#1a1a1a"
STEPS = [
    ("Do you have labels\nor targets to predict?", "SketchedNewtonClassifier\nSketchedNewtonRegressor"),
    ("Do you want components,\na regression or outliers?", "SketchedPCA, SketchedRidge\nMahalanobisDetector"),
    ("Should old rows\ndrop out?", "SlidingFrequentDirections"),
    ("Are there fewer than\na thousand columns?", "ExactSecondMoment"),
    ("Do single variances\nor units matter?", "DiagonalFrequentDirections"),
]
OTHERWISE = "RobustFrequentDirections"


def draw() -> Figure:
    """Return the picture. Its text is dark on light boxes, so that it can be read on any background."""
    figure = Figure(figsize=(6.2, 6.4))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 6.2), ylim=(-0.1, 6.3))
    ax.axis("off")

    def box(x: float, y: float, text: str, colour: str) -> None:
        style = {"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": LINE}
        ax.text(x, y, text, ha="center", va="center", fontsize=11, color=INK, bbox=style, zorder=3)

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str) -> None:
        ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE, "lw": 1.6}, zorder=1)
        style = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": LINE, "lw": 0.5}
        middle = [(a + b) / 2 for a, b in zip(start, end)]
        ax.text(*middle, text, ha="center", va="center", fontsize=10, color=INK, bbox=style, zorder=4)

    for number, (question, answer) in enumerate(STEPS):
        y = 5.85 - 1.1 * number
        box(1.35, y, question, QUESTION)
        box(4.75, y, answer, ANSWER)
        arrow((2.45, y), (3.4, y), "yes")
        arrow((1.35, y - 0.35), (1.35, y - 0.8), "no")
    box(1.35, 5.85 - 1.1 * len(STEPS), OTHERWISE, ANSWER)
    return figure


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "robustfd"  # the same bytes every time
    draw().savefig(OUT, metadata={"Date": None}, transparent=True)
