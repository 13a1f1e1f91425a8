"""Draw docs/decision.svg: which class answers which question. `python docs/pictures/decision.py`."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

OUT = Path(__file__).parent.parent / "decision.svg"
ASK, ANSWER, EDGE = "#dbe9f6", "#e3f1df", "#8a929a"

# name: (x, y, text, colour)
BOXES = {
    "start": (0.12, 0.50, "What do you\nneed?", ASK),
    "predict": (0.37, 0.90, "predictions", ASK),
    "matrix": (0.37, 0.37, "a covariance,\nor a summary\nof the rows", ASK),
    "learner": (0.63, 0.90, "SketchedNewtonClassifier\nSketchedNewtonRegressor", ANSWER),
    "task": (0.63, 0.70, "SketchedPCA\nSketchedRidge\nMahalanobisDetector", ANSWER),
    "window": (0.63, 0.50, "SlidingFrequentDirections", ANSWER),
    "exact": (0.63, 0.35, "ExactSecondMoment", ANSWER),
    "wide": (0.63, 0.15, "which error\nmatters?", ASK),
    "rfd": (0.88, 0.26, "RobustFrequent-\nDirections", ANSWER),
    "diagonal": (0.88, 0.08, "DiagonalFrequent-\nDirections", ANSWER),
}
# from, to, text
ARROWS = [
    ("start", "predict", "labels or targets"),
    ("start", "matrix", "no labels"),
    ("predict", "learner", ""),
    ("matrix", "task", "a task"),
    ("matrix", "window", "newest rows"),
    ("matrix", "exact", "d < 1000"),
    ("matrix", "wide", "more columns"),
    ("wide", "rfd", "any direction"),
    ("wide", "diagonal", "variances"),
]


def draw() -> Figure:
    """Return the picture: boxes with dark text on light colours, so that it can be read on any background."""
    figure = Figure(figsize=(10, 5.2))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    for x, y, text, colour in BOXES.values():
        style = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": EDGE}
        ax.text(x, y, text, ha="center", va="center", fontsize=11, color="#1a1a1a", bbox=style, zorder=3)
    for begin, end, text in ARROWS:
        (x0, y0), (x1, y1) = BOXES[begin][:2], BOXES[end][:2]
        ax.annotate(
            "", (x1 - 0.085, y1), (x0 + 0.06, y0), arrowprops={"arrowstyle": "-|>", "color": EDGE, "lw": 1.4}, zorder=1
        )
        if text:
            style = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
            x, y = (x0 + x1) / 2 - 0.01, (y0 + y1) / 2
            ax.text(x, y, text, ha="center", va="center", fontsize=9, color="#444", bbox=style, zorder=2)
    return figure


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "robustfd"  # the same bytes every time
    draw().savefig(OUT, metadata={"Date": None}, transparent=True)
