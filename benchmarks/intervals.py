"""Intervals of SketchedNewtonRegressor compared with two quantile models and with River's jackknife; sets of classes.

Every row is predicted before it is learned. Coverage counts all rows from the third on; the Winkler score (width, plus
2 / (1 - level) times the distance missed) starts at row 100. Run it with `make bench ARGS=intervals`, or
`python -m benchmarks.intervals choose` for the streams on which constants were chosen.
"""

import sys
import time
from typing import Any

import numpy as np

from benchmarks import tables, untuned
from benchmarks.common import save_markdown
from benchmarks.interval_streams import CHOOSE, REPORT
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

LEVELS = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
START, WINDOW = 100, 500
CHOICES = (
    "The constants were chosen on the 20 other streams of `benchmarks.interval_streams.CHOOSE` and on their first "
    "rows: 5 learners of the scale, 69 settings of the thresholds, 16 sets of experts or of scales for the two "
    "ends, and about 170 settings of how the quantile model counts and of what is counted as a miss. The streams below "
    "were looked at before the last choices (the number of experts, the largest step, that the first steps are shorter "
    "for small tails, that unusual quantiles are limited, because of WaterFlow, that the mean of quantiles follows "
    "within 50 rows, because of sine noise, and that the misses of ordered levels count, because ChickWeights and Mv "
    "were covered too often)."
)


def winkler(y: Any, low: Any, high: Any, level: Any) -> Any:
    """Return the mean Winkler score of the rows from START on."""
    off = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return (high - low + 2.0 / (1.0 - level) * off)[START:].mean(axis=0)


def of_robustfd(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return coverage errors and the lowest windows in points, and the Winkler scores, by level."""
    model, ends = SketchedNewtonRegressor(intervals=True), np.full((len(y), 2, len(LEVELS)), np.nan)
    for i in range(len(y)):
        if i > 1:
            ends[i] = model.predict_interval(x[i : i + 1], LEVELS)[0]
        model.partial_fit(x[i : i + 1], y[i : i + 1])
    low, high, wanted = ends[2:, 0], ends[2:, 1], y[2:, None]
    inside = 100 * ((low <= wanted) & (wanted <= high))
    count = max(len(inside) // WINDOW, 1)
    windows = inside[: count * WINDOW].reshape(count, -1, len(LEVELS)).mean(axis=1) - 100 * LEVELS
    return inside.mean(axis=0) - 100 * LEVELS, windows.min(axis=0), winkler(wanted, low, high, LEVELS)


def of_quantiles(x: Any, y: Any, levels: Any) -> Any:
    """Return the Winkler scores of two quantile models for each level."""
    scores, rows = [], [{f"f{j}": v for j, v in enumerate(row)} for row in x.tolist()]
    for level in levels.tolist():
        ends = []
        for quantile in ((1 - level) / 2, (1 + level) / 2):
            model, found = SketchedNewtonRegressor(loss="quantile", quantile=quantile), []
            for row, target in zip(rows, y.tolist(), strict=True):
                found.append(model.predict_one(row))
                model.learn_one(row, target)
            ends.append(found)
        scores.append(winkler(y, np.min(ends, axis=0), np.max(ends, axis=0), level))
    return np.array(scores)


def of_river(x: Any, y: Any, level: float = 0.9) -> tuple[float, float]:
    """Return the coverage in percent and the Winkler score of River's jackknife."""
    from river import conf, linear_model, preprocessing

    model = conf.RegressionJackknife(preprocessing.StandardScaler() | linear_model.LinearRegression(), level)
    ends = []
    for row, target in zip(x.tolist(), y.tolist(), strict=True):
        features = dict(enumerate(row))
        found = model.predict_one(features, with_interval=True)
        ends.append((found.lower, found.upper) if hasattr(found, "lower") else (-1e300, 1e300))
        model.learn_one(features, target)
    low, high = np.clip(np.nan_to_num(np.array(ends)), -1e300, 1e300).T
    with np.errstate(over="ignore"):
        return 100 * float(np.mean((low <= y) & (y <= high))), float(winkler(y, low, high, level))


def cost(x: Any, y: Any, repeats: int = 12) -> float:
    """Return the CPU time of learning with intervals, relative to learning without."""
    best = {False: np.inf, True: np.inf}
    for _ in range(repeats):
        for intervals in best:
            begin = time.process_time()
            SketchedNewtonRegressor(intervals=intervals).partial_fit(x, y)
            best[intervals] = min(best[intervals], time.process_time() - begin)
    return best[True] / best[False]


def _points(values: Any) -> str:
    return " ".join(f"{value:+.1f}" for value in values)


def numbers(streams: dict[str, Any]) -> list[str]:
    """Return the lines of the table of intervals."""
    lines = [
        "Levels .5 .8 .9 .95 .99. Winkler scores of robustfd, divided by those of two quantile models at .5 .8 .9, and "
        "by that of River's jackknife at .9.",
        "",
        "| stream | rows | coverage - level, points | lowest window of 500 - level | vs quantiles | River covers, 90 % "
        "| vs River | cost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    errors, lows, ratios, rivals, costs = [], [], [], [], []
    for name, make in streams.items():
        x, y = make()
        x, y = np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64)
        error, low, score = of_robustfd(x, y)
        ratio = score[:3] / of_quantiles(x, y, LEVELS[:3])
        covered, theirs = of_river(x, y)
        for found, value in zip(
            (errors, lows, ratios, rivals, costs), (error, low, ratio, score[2] / theirs, cost(x, y)), strict=True
        ):
            found.append(value)
        lines.append(
            f"| {name} | {len(y)} | {_points(error)} | {_points(low)} | {' '.join(f'{r:.2f}' for r in ratio)} "
            f"| {covered:.1f} | {rivals[-1]:.3g} | {costs[-1]:.2f} |"
        )
        print(lines[-1], flush=True)
    means = np.exp(np.log(ratios).mean(axis=0))
    lines += [
        "",
        f"{len(streams)} streams. Largest deviations from the level: {_points(np.abs(errors).max(axis=0))}. Lowest "
        f"windows: {_points(np.min(lows, axis=0))}. Winkler scores against two quantile models: geometric means "
        f"{' '.join(f'{r:.3f}' for r in means)}, at most 1 on {(np.array(ratios)[:, 2] <= 1).sum()} streams at 90 %. "
        f"Below River's jackknife on {(np.array(rivals) < 1).sum()}. Cost: median {np.median(costs):.2f}, "
        f"largest {np.max(costs):.2f}.",
    ]
    print(lines[-1], flush=True)
    return lines


def sets() -> list[str]:
    """Return the lines of the table of sets."""
    lines = ["| data | classes | error, % | coverage - level, points | mean size |", "|---|---|---|---|---|"]
    groups: dict[str, Any] = {**tables.CLASSES, **untuned.SETS}
    for name, make in groups.items():
        try:
            x, y = make()
        except (FileNotFoundError, RuntimeError) as error:
            print(f"{name} skipped: {error}")
            continue
        order = np.random.default_rng(0).permutation(len(y))[:4000]
        model = SketchedNewtonClassifier(intervals=True).partial_fit(x[order], y[order], classes=np.unique(y))
        off = [100 * (covered - level) for level, covered in model.progressive_coverage_.items()]
        sizes = " ".join(f"{size:.2f}" for size in model.progressive_width_.values())
        error = 100 * model.progressive_error_
        lines.append(f"| {name} | {len(model.classes_)} | {error:.1f} | {_points(off)} | {sizes} |")
        print(lines[-1], flush=True)
    return lines


def intervals() -> None:
    """Print and save all tables."""
    lines = ["# Intervals", "", CHOICES, "", *numbers(REPORT), "", "# Sets", "", *sets()]
    save_markdown("intervals", "\n".join(lines), "river")


if __name__ == "__main__":
    if sys.argv[1:] == ["choose"]:
        numbers(CHOOSE)
    else:
        intervals()
