"""Is a model good whenever it is frozen? Scores of models at 50 moments of a stream on the 10,000 rows that follow.

`make bench ARGS=frozen` compares each model with those of the last ten moments, on the same rows: its shortfall is how
much the best of them is better. R^2 for diamonds and flights, accuracy for covtype and elec2. Shuffled streams do not
change, so a later model should be as good as an earlier one. In file order the streams change, and the shortfall says
how much an older model fits the rows to come better by chance.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import odd_streams, streams_of_change, tables
from benchmarks.common import save_markdown
from robustfd import SketchedNewtonClassifier, SketchedNewtonRegressor

MOMENTS, LAST, ROWS, LEAST = 50, 10, 10_000, 2000
Rows = tuple[Any, Any]


def _covtype() -> Rows:
    x, y = tables._covtype()
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:60_000])
    return x[some], y[some]


STREAMS: dict[str, tuple[Callable[[], Rows], bool]] = {
    "diamonds": (odd_streams._diamonds, True),
    "flights": (partial(streams_of_change.flight_rows, 1, every=6), True),
    "covtype": (_covtype, False),
    "elec2": (partial(tables._of_csv, "elec2.csv.xz"), False),
}


def shortfalls(x: Any, y: Any, numbers: bool) -> tuple[Any, Any]:
    """Return the scores of the models, and how much the best of the last ones is better on the same rows."""
    model: Any = (SketchedNewtonRegressor if numbers else SketchedNewtonClassifier)(random_state=0)
    moments = np.linspace(LEAST, len(y) - ROWS, MOMENTS).astype(int)
    models, scores, short, start = [], [], [], 0
    for moment in moments:
        rest = {} if numbers else {"classes": np.unique(y)}
        model.partial_fit(x[start:moment], y[start:moment], **rest)
        later = slice(moment, moment + ROWS)
        models = [*models[-LAST:], copy.deepcopy(model)]
        found = [each.score(x[later], y[later]) for each in models]
        scores.append(found[-1])
        short.append(max(found) - found[-1])
        start = moment
    return np.array(scores), np.array(short)


def frozen() -> None:
    """Print and save the table."""
    table = ["| stream | mean score | worst score | mean shortfall | worst shortfall |", "|---|---|---|---|---|"]
    for name, (make, numbers) in STREAMS.items():
        x, y = make()
        for order in ("shuffled", "in file order"):
            which = np.random.default_rng(0).permutation(len(y)) if order == "shuffled" else np.arange(len(y))
            scores, short = shortfalls(x[which], y[which], numbers)
            figures = scores.mean(), scores.min(), short.mean(), short.max()
            table.append(f"| {name}, {order} | " + " | ".join(f"{v:.4f}" for v in figures) + " |")
            print(table[-1], flush=True)
    save_markdown("frozen", "\n".join(table))
