"""The untuned learner on a hundred data sets, most of them small and not used during development.

`make bench ARGS=many` compares its accuracy with Vowpal Wabbit's default and the best of its modes, measured as in
untuned.py, and gives the standard error of the difference over the orders.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from benchmarks import untuned, vowpal
from benchmarks.common import save_markdown
from benchmarks.data import folder, load

Rows = tuple[Any, Any]


def _against_rest(rows: Callable[[], Rows], label: Any, limit: int | None = None) -> Rows:
    x, y = rows()
    return x[:limit], y[:limit] == label


def _pair(rows: Callable[[], Rows], one: Any, other: Any, limit: int | None = None) -> Rows:
    x, y = rows()
    which = np.flatnonzero((y == one) | (y == other))[:limit]
    return x[which], y[which] == one


def _every(rows: Callable[[], Rows], count: int) -> Rows:
    x, y = rows()
    which = np.linspace(0, len(y) - 1, min(count, len(y))).astype(int)
    return x[which], y[which] > 0


def _chance(score: Any, rng: Any) -> Any:
    """Return labels with odds exp(score), about half of them 1."""
    return rng.random(len(score)) < 1 / (1 + np.exp(np.median(score) - score))


def _normal(n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    return x, _chance(x @ rng.standard_normal(d) * 3 / np.sqrt(d), rng)


def _binary(n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = (rng.random((n, d)) < rng.uniform(0.02, 0.6, d)).astype(float)
    return x, _chance(x @ rng.standard_normal(d), rng)


def _counts(n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.poisson(rng.uniform(0.1, 10, d), (n, d)).astype(float)
    return x, _chance(x @ (2 * rng.standard_normal(d) / (1 + x.std(axis=0))), rng)


def _skewed(n: int, d: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d))
    return np.exp(1.5 * z), _chance(1.5 * z @ rng.standard_normal(d), rng)


def _words(n: int, d: int, seed: int) -> Rows:
    """Return rows of words by Zipf's law, one in ten of which is informative."""
    rng = np.random.default_rng(seed)
    often = 1 / np.arange(1, d + 1)
    meaning = 2 * rng.standard_normal(d) * (rng.random(d) < 0.1)
    drawn = [np.bincount(rng.choice(d, rng.poisson(60) + 5, p=often / often.sum()), minlength=d) for _ in range(n)]
    x = sp.csr_array(np.log1p(np.array(drawn)))
    return x, _chance(x @ meaning, rng)


def sets() -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Yield names and functions that return rows. Real data sets are skipped without ROBUSTFD_DATA."""
    for name in ("wine", "iris", "digits"):
        rows = partial(getattr(datasets, f"load_{name}"), return_X_y=True)
        yield f"{name}, all classes", rows
        for label in range(10 if name == "digits" else 3):
            yield f"{name}, {label} against the rest", partial(_against_rest, rows, label)
    for one, other in ((3, 8), (4, 9), (1, 7)):
        yield f"digits, {one} or {other}", partial(_pair, partial(datasets.load_digits, return_X_y=True), one, other)
    yield "breast cancer", partial(datasets.load_breast_cancer, return_X_y=True)
    for scaled in (False, True):
        x, y = datasets.load_diabetes(return_X_y=True, scaled=scaled)
        yield f"diabetes above 140, {'scaled' if scaled else 'raw'}", partial(lambda x, y: (x, y > 140), x, y)
    yield "moons", partial(datasets.make_moons, 3000, noise=0.3, random_state=0)
    yield "circles", partial(datasets.make_circles, 3000, noise=0.2, factor=0.5, random_state=0)
    yield "blobs", partial(datasets.make_blobs, 2000, 10, centers=2, cluster_std=6, random_state=0)
    for seed in range(4):
        for n, d in ((300, 10), (1000, 50), (3000, 100), (2000, 500)):
            rows = partial(untuned._generated, n, d, seed + 20, flip_y=0.05)
            yield f"generated, {n} x {d}, seed {seed}", rows
    for seed in range(3):
        few = {"n_samples": 200, "n_features": 1000, "n_informative": 20, "n_redundant": 20, "random_state": seed}
        yield f"200 x 1000, seed {seed}", partial(datasets.make_classification, **few)
        yield f"one-hot, seed {seed}", partial(untuned._one_hot, 3000, seed + 5)
        for title, make, n, d in (
            ("words", _words, 3000, 8000), ("normal", _normal, 2000, 20), ("normal, wide", _normal, 4000, 200),
            ("binary", _binary, 3000, 60), ("counts", _counts, 3000, 40), ("skewed", _skewed, 3000, 20),
        ):  # fmt: skip
            yield f"{title}, seed {seed}", partial(make, n, d, seed)
    if folder() is None:
        return
    for label in (1, 5, 9, 13, 17):
        yield f"news20, {label} against the rest", partial(_against_rest, partial(load, "news20"), label, 5000)
    for one, other in ((1, 2), (8, 9), (12, 19), (3, 4)):
        yield f"news20, {one} or {other}", partial(_pair, partial(load, "news20"), one, other)
    for one, other in ((3, 8), (4, 9), (1, 7), (0, 6)):
        yield f"mnist, {one} or {other}", partial(_pair, partial(load, "mnist"), one, other, 4000)
    for label in (0, 5, 8):
        yield f"mnist, {label} against the rest", partial(_against_rest, partial(load, "mnist"), label, 5000)
    for name in ("a9a", "farm-ads", "ijcnn1", "mushrooms"):
        for count in (300, 1000, 3000):
            yield f"{name}, {count} rows", partial(_every, partial(load, name), count)


def many() -> None:
    """Print and save the table, worst first, and how often and by how much it is worse than the default."""
    if not vowpal.available():
        print("\nmany: skipped, it needs the package vowpalwabbit")
        return
    found = []
    for name, rows in sets():
        x, y = rows()
        ours, theirs = untuned.compare(x, np.asarray(y).astype(int))
        gain = ours - theirs["squared"]
        best = max(scores[:, 0].mean() for scores in theirs.values())
        error = gain[:, 0].std(ddof=1) / np.sqrt(len(gain))
        found.append((gain[:, 0].mean(), error, ours[:, 0].mean() - best, -gain[:, 1].mean(), name))
        print(f"{name:36s} {found[-1][0]:+6.2f} +- {error:.2f}", flush=True)
    table = [
        "| data | accuracy minus default VW | minus best VW | progressive error below default VW |",
        "|---|---|---|---|",
    ]
    table += [f"| {name} | {a:+.2f} +- {e:.2f} | {b:+.2f} | {p:+.2f} |" for a, e, b, p, name in sorted(found)]
    gains = np.array([row[:4] for row in found])
    below = gains[:, 0] < -0.3
    summary = (
        f"{len(found)} data sets, five orders each. Points of accuracy above Vowpal Wabbit's default: "
        f"{gains[:, 0].mean():+.2f} in the mean, more than 0.3 below on {below.sum()} (by two standard errors on "
        f"{(below & (gains[:, 0] < -2 * gains[:, 1])).sum()}); above the best of its modes: {gains[:, 2].mean():+.2f}. "
        f"Progressive error below the default's: {gains[:, 3].mean():+.2f}."
    )
    print(f"\n{summary}")
    save_markdown("many", "\n".join([summary + " " + untuned.PASSES, "", *table]))
