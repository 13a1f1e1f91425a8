"""Streams of rows and numbers for intervals: some to choose constants on, others to report on."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn import datasets

from benchmarks import odd_streams, streams_of_change, tables

ROWS = 8000
Rows = tuple[Any, Any]


def _linear(seed: int, noise: Callable[..., Any], d: int = 10, jumps: int = 0, walk: float = 0.0) -> Rows:
    """Return Gaussian rows whose targets are linear plus noise; `noise` gets the generator, rows and their number."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((ROWS, d)), rng.standard_normal(d)
    weights = np.tile(w, (ROWS, 1))
    for jump in range(jumps):
        weights[(jump + 1) * ROWS // (jumps + 1) :] = rng.standard_normal(d)
    if walk:
        weights = weights + np.cumsum(walk * rng.standard_normal((ROWS, d)), axis=0)
    return x, (x * weights).sum(axis=1) + noise(rng, x, ROWS)


def _normal(rng: Any, x: Any, n: int) -> Any:
    return rng.standard_normal(n)


def _loglinear(rng: Any, x: Any, n: int) -> Any:
    return np.exp(x @ rng.standard_normal(x.shape[1]) / 3) * rng.standard_normal(n)


def _jumping(rng: Any, x: Any, n: int) -> Any:
    return np.repeat(np.tile([1.0, 5.0, 0.5, 3.0], 2), n // 8) * rng.standard_normal(n)


def _shifts(rng: Any, x: Any, n: int) -> Any:
    return np.repeat(10 * rng.standard_normal(8), n // 8) + rng.standard_normal(n)


def _autoregressive(rng: Any, x: Any, n: int) -> Any:
    errors = rng.standard_normal(n)
    for i in range(1, n):
        errors[i] += 0.9 * errors[i - 1]
    return errors


def _sine(rng: Any, x: Any, n: int) -> Any:
    return (1.5 + np.sin(np.arange(n) / 200)) * rng.standard_normal(n)


def _nonlinear(seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, 5))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + x[:, 2] * x[:, 3] + 0.3 * rng.standard_normal(ROWS)


def _two_sides(seed: int) -> Rows:
    """Return targets whose noise above the line and below it depends on the row in different ways."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, 6))
    w, above, below = rng.standard_normal((3, 6))
    size = np.where(rng.random(ROWS) < 0.5, np.exp(x @ above / 3), -np.exp(x @ below / 3))
    return x, x @ w + size * np.abs(rng.standard_normal(ROWS))


def _pieces(seed: int) -> Rows:
    """Return targets without noise that are linear in pieces."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (ROWS, 8))
    rest = np.where(x[:, 2] * x[:, 3] > 0, -4 * x[:, 4], x[:, 5] + 2 * x[:, 0])
    return x, np.where(x[:, 0] > 0.3, 3 * x[:, 1] + 2, rest)


def _column(make: Callable[[], Rows], column: int, seed: int | None = None) -> Rows:
    """Return a column of a table from the others, in order or shuffled."""
    x = make()[0]
    rows = slice(None) if seed is None else np.random.default_rng(seed).permutation(len(x))
    x = x[rows][:ROWS].astype(np.float64)
    return np.delete(x, column, axis=1), x[:, column]


def _of_river(make: Callable[[], Any]) -> Rows:
    """Return the first rows of a stream of River."""
    rows, targets, words = [], [], dict[Any, int]()
    for x, y in make().take(ROWS):
        row: list[float] = []
        for value in x.values():
            if hasattr(value, "timestamp"):
                row += [value.hour, value.weekday(), value.timestamp() / 86400]
            else:
                row.append(words.setdefault(value, len(words)) if isinstance(value, str) else float(value))
        rows.append(row)
        targets.append(y)
    return np.array(rows, np.float64), np.array(targets, np.float64)


def _river(module: str, name: str, **options: Any) -> Rows:
    import importlib

    return _of_river(partial(getattr(importlib.import_module(module), name), **options))


def _shuffled(make: Callable[[], Rows], seed: int) -> Rows:
    x, y = make()
    order = np.random.default_rng(seed).permutation(len(y))[:ROWS]
    return x[order], y[order]


def _demand(column: int, start: int) -> Rows:
    """Return a column of elec2, the price or the demand, from the others, in time order."""
    x = tables._of_csv("elec2.csv.xz")[0][start : start + ROWS]
    return np.delete(x, column, axis=1), x[:, column]


def _flights(target: str) -> Rows:
    """Return flights in time order, and their delay at departure or at arrival."""
    departure = target == "dep_delay"
    x, y = streams_of_change.flight_rows(0, every=40, departure=True)
    return (np.delete(x, 3, axis=1), x[:, 3]) if departure else (x, y)


_NOISES: dict[str, Callable[[int], Rows]] = {
    "gauss": partial(_linear, noise=_normal),
    "heteroscedastic": partial(_linear, noise=_loglinear),
    "skewed": partial(_linear, noise=lambda rng, x, n: rng.exponential(2.0, n)),
    "coefficients jump": partial(_linear, noise=_normal, jumps=3),
    "noise jumps": partial(_linear, noise=_jumping),
    "random walk": partial(_linear, noise=_normal, walk=0.02),
    "nonlinear": _nonlinear,
}
CHOOSE: dict[str, Callable[[], Rows]] = {name: partial(make, 0) for name, make in _NOISES.items()} | {
    "TrumpApproval": partial(_river, "river.datasets", "TrumpApproval"),
    "Friedman": partial(_river, "river.datasets.synth", "Friedman", seed=0),
    "flights, departure": partial(_flights, "dep_delay"),
    "elec2 price": partial(_demand, 3, 0),
    "diabetes": partial(_shuffled, tables.NUMBERS["diabetes"], 0),
    "sine noise": partial(_linear, 0, noise=_sine),
    "two sides": partial(_two_sides, 0),
    "pieces": partial(_pieces, 0),
    "Friedman 2": partial(datasets.make_friedman2, ROWS, noise=0.1, random_state=0),
    "Friedman 3": partial(datasets.make_friedman3, ROWS, noise=0.1, random_state=0),
    "Planes2D": partial(_river, "river.datasets.synth", "Planes2D", seed=0),
    "elevation": partial(_column, tables._covtype, 0, seed=0),
    "weather": partial(_column, tables.IN_TIME["weather (time order)"], 0),
}
REPORT: dict[str, Callable[[], Rows]] = (
    {name: partial(make, 1) for name, make in _NOISES.items()}
    | {
        "t2": partial(_linear, 1, noise=lambda rng, x, n: rng.standard_t(2, n)),
        "noise of size x": partial(_linear, 1, noise=lambda rng, x, n: np.abs(x[:, 0]) * rng.standard_normal(n)),
        "sine noise": partial(_linear, 1, noise=_sine),
        "level shifts": partial(_linear, 1, noise=_shifts),
        "AR(1) errors": partial(_linear, 1, noise=_autoregressive),
        "WaterFlow": partial(_river, "river.datasets", "WaterFlow"),
        "ChickWeights": partial(_river, "river.datasets", "ChickWeights"),
        "FriedmanDrift": partial(_river, "river.datasets.synth", "FriedmanDrift", seed=1, position=(2000, 4000, 6000)),
        "Mv": partial(_river, "river.datasets.synth", "Mv", seed=1),
        "flights, arrival": partial(_flights, "arr_delay"),
        "elec2 demand": partial(_demand, 4, 20000),
        "diamonds": partial(_shuffled, odd_streams._diamonds, 1),
    }
    | {
        f"uci {name}": partial(_shuffled, tables.NUMBERS[name], 1)
        for name in ("bike", "elevators", "gas", "keggundirected", "kin40k", "protein")
    }
)
