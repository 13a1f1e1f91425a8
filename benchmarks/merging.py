"""Accuracy of merged learners: k partitions, each learned alone and merged, compared with one pass over all rows.

`python -m benchmarks.merging` prints the table and writes results/merging.md. Rows are shuffled by a seed, and 70 % of
them are learned. Values are means over three seeds. mnist and news20 are also learned as two classes.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import robustfd
from benchmarks.common import save_markdown
from benchmarks.data import folder, load
from robustfd import SketchedNewtonClassifier

PARTITIONS = (2, 8, 64)
SEEDS = (0, 1, 2)
GOAL = 0.2  # points that 8 partitions may lose


def _halves(y: Any) -> Any:
    classes = np.unique(y)
    return np.isin(y, classes[: len(classes) // 2]).astype(int)


# Name in the table: the data set, and the function applied to its labels.
SETS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a9a": ("a9a", np.asarray),
    "ijcnn1": ("ijcnn1", np.asarray),
    "mnist, even or odd": ("mnist", lambda y: np.asarray(y) % 2),
    "mnist, ten digits": ("mnist", np.asarray),
    "news20, two halves": ("news20", _halves),
    "news20, twenty classes": ("news20", np.asarray),
}


def accuracies(x: Any, y: Any, seed: int, partitions: tuple[int, ...] = PARTITIONS) -> list[float]:
    """Return the accuracy of one pass, then that of each number of partitions, in percent."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: int(0.7 * len(y))], order[int(0.7 * len(y)) :]
    classes = np.unique(y)
    found = []
    for k in (1, *partitions):
        parts = SketchedNewtonClassifier().split(k)
        for i, part in enumerate(parts):
            part.partial_fit(x[train[i::k]], y[train[i::k]], classes=classes)
        found.append(100 * robustfd.merge(parts).score(x[test], y[test]))
    return found


def table(names: list[str]) -> list[str]:
    """Return the lines of the table, each printed when its set is done."""
    header = " | ".join(f"k = {k}" for k in PARTITIONS)
    lines = [f"| rows | one pass | {header} |", "|---" * (len(PARTITIONS) + 2) + "|"]
    for name in names:
        source, labels = SETS[name]
        x, y = load(source)
        mean = np.mean([accuracies(x, labels(y), seed) for seed in SEEDS], axis=0)
        lost = " | ".join(f"{value:+.2f}" for value in mean[1:] - mean[0])
        lines.append(f"| {name}, {int(0.7 * len(y)):,} | {mean[0]:.2f} | {lost} |")
        print(lines[-1], flush=True)
    return lines


def merging(*names: str) -> None:
    """Run the named sets, all if none is named. Only the table of all sets is written to a file."""
    if folder() is None:
        print("\nmerging: skipped, it needs ROBUSTFD_DATA")
        return
    print("\nmerging")
    lines = table(list(names or SETS))
    if not names:
        about = (
            "Accuracy in percent of one pass of `SketchedNewtonClassifier` over shuffled rows, and the points that k\n"
            f"merged partitions differ from it: means of {len(SEEDS)} orders, tested on the other 30 % of the rows.\n"
            f"The goal is a loss of at most {GOAL} points for k = 8.\n"
        )
        save_markdown("merging", "# Merged learners\n\n" + about + "\n" + "\n".join(lines))


if __name__ == "__main__":
    merging(*sys.argv[1:])
