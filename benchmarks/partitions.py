"""Simulation of up to 16,384 partitions: how certificate, true error and accuracy depend on the tree of merges.

`python -m benchmarks.partitions` draws docs/scaling.png. The total number of rows is fixed. "tree" is the balanced tree
that Dask and Spark use; fan-ins that are powers of two give the same result. "tree of 10" has a fan-in that is not a
power of two, and "chain" merges one model at a time.
"""

import copy
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

import robustfd
from benchmarks.common import report
from robustfd.distributed._plan import Plan

SKETCH_ROWS, SKETCH_FEATURES = 2**17, 64
LEARN_ROWS, LEARN_FEATURES, TEST_ROWS = 2**17, 20, 50_000
PARTITIONS = (1, 8, 64, 512, 4096, 16_384)
MOST_OTHERS = 512  # most partitions of the learner in the other shapes, as the time of a chain grows quadratically
PICTURE = Path(__file__).parents[1] / "docs" / "scaling.png"


def in_tree(fan_in: int) -> Callable[[Plan, list[Any]], Any]:
    """Return a function that merges the models of partitions in a tree."""

    def merge(plan: Plan, models: list[Any]) -> Any:
        for level, nodes in enumerate(plan.levels[1:], 1):
            groups = [models[i : i + fan_in] for i in range(0, len(models), fan_in)]
            models = [plan.merge(level, j, dict(enumerate(groups[j], j * fan_in))) for j in range(nodes)]
        return plan.finish(models[0])

    return merge


def in_chain(plan: Plan, models: list[Any]) -> Any:
    """Merge the models of partitions one at a time."""
    return plan.finish(reduce(lambda one, two: one.merge(two), models[1:], copy.copy(models[0])))


SHAPES = {"tree, fan-in 2, 8 or 64": (8, in_tree(8)), "tree of 10": (10, in_tree(10)), "chain": (8, in_chain)}


def sketch_errors(k: int, shape: str) -> tuple[float, float]:
    """Return the certificate and the true error for k partitions, relative to ||A'A||_2."""
    rng = np.random.default_rng(0)
    spectrum = 1.0 / np.sqrt(np.arange(1, SKETCH_FEATURES + 1))
    x = rng.standard_normal((SKETCH_ROWS, SKETCH_FEATURES)) * spectrum
    fan_in, merge = SHAPES[shape]
    plan = Plan(robustfd.RobustFrequentDirections(16), k, fan_in=fan_in)
    sketch = merge(plan, [plan.learn(i, [(part, None, None)]) for i, part in enumerate(np.array_split(x, k))])
    gram = x.T @ x
    error = np.linalg.norm(gram - sketch.second_moment() @ np.eye(SKETCH_FEATURES), 2)
    largest = np.linalg.norm(gram, 2)
    assert error <= sketch.error_bound_
    return sketch.error_bound_ / largest, float(error / largest)


def learner_error(k: int, shape: str) -> float:
    """Return the error rate on the test rows for k partitions."""
    rng = np.random.default_rng(1)
    scales = np.exp(rng.uniform(-2, 2, LEARN_FEATURES))
    x = rng.standard_normal((LEARN_ROWS + TEST_ROWS, LEARN_FEATURES)) * scales
    margin = (x / scales) @ rng.standard_normal(LEARN_FEATURES)
    y = (margin + 2.0 * rng.logistic(size=len(margin)) > 0).astype(int)
    fan_in, merge = SHAPES[shape]
    plan = Plan(robustfd.SketchedNewtonClassifier(), k, fan_in=fan_in)
    parts = np.array_split(np.arange(LEARN_ROWS), k)
    model = merge(plan, [plan.learn(i, [(x[part], y[part], None)], [0, 1]) for i, part in enumerate(parts)])
    return float((model.predict(x[LEARN_ROWS:]) != y[LEARN_ROWS:]).mean())


def partitions(most: int = PARTITIONS[-1]) -> None:
    """Run the simulation, report the results and draw them."""
    found: dict[tuple[str, str], list[float]] = {}
    counts = [k for k in PARTITIONS if k <= most]
    for shape in SHAPES:
        for k in counts:
            certificate, error = sketch_errors(k, shape)
            found.setdefault((shape, "certificate"), []).append(certificate)
            found.setdefault((shape, "true error"), []).append(error)
            slow = k > MOST_OTHERS and shape != next(iter(SHAPES))
            found.setdefault((shape, "test errors"), []).append(np.nan if slow else learner_error(k, shape))
            print(
                f"{shape}, {k} partitions: {[values[-1] for (s, _), values in found.items() if s == shape]}", flush=True
            )
    report_and_draw(counts, found)


def report_and_draw(counts: list[int], found: dict[tuple[str, str], list[float]]) -> None:
    """Report the results and draw them."""
    rows = [
        {"what": f"{what}, {shape}, {k} partitions", "value": value}
        for (shape, what), values in found.items()
        for k, value in zip(counts, values, strict=True)
        if np.isfinite(value)
    ]
    report("partitions", rows)
    draw(counts, found)


def draw(counts: list[int], found: dict[tuple[str, str], list[float]]) -> None:
    """Draw the results."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = dict(zip(SHAPES, ("C0", "C2", "C3"), strict=True))
    for (shape, what), values in found.items():
        left = what != "test errors"
        style = {"linestyle": "--" if what == "true error" else "-", "marker": "o", "markersize": 3.5}
        label = f"{what}, {shape}" if left else shape
        scale = 1.0 if left else 100.0
        axes[0 if left else 1].plot(counts, scale * np.array(values), color=colours[shape], label=label, **style)
    rows = f"{SKETCH_ROWS:,} rows"
    axes[0].set(title=f"Sketch of 16 rows, {rows} of {SKETCH_FEATURES} features", ylabel="error over $\\|A'A\\|_2$")
    axes[1].set(title=f"Untuned learner, {rows} of {LEARN_FEATURES} features", ylabel="wrong of the test rows, %")
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set(xlabel="partitions", ylim=(0, None) if ax is axes[0] else None)
        ax.legend(frameon=False, fontsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    partitions(*(int(argument) for argument in sys.argv[1:]))
