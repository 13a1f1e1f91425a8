"""Streams for the benchmarks of windows: rotating subspaces, varying norms, bursts, and real data in file order."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import load

Floats = NDArray[np.float64]
WIDTH, RANK = 200, 20


def turning(seed: int, window: int, windows: float = 4.0, d: int = WIDTH, *, quarter: float = 2.0) -> Floats:
    """Return rows of rank 20 plus noise. The subspace rotates by 90 degrees in `quarter` windows."""
    rng = np.random.default_rng(seed)
    n = int(windows * window)
    basis = np.linalg.qr(rng.standard_normal((d, 2 * RANK)))[0].T
    angle = np.pi / 2 * np.arange(n) / (quarter * window)
    factors = rng.standard_normal((n, RANK)) * np.linspace(2.0, 0.5, RANK)
    rows = (factors * np.cos(angle)[:, None]) @ basis[:RANK] + (factors * np.sin(angle)[:, None]) @ basis[RANK:]
    return rows + 0.1 * rng.standard_normal((n, d))


def varying(seed: int, window: int) -> Floats:
    """Return rotating rows times lognormal norms and a slow oscillation: squared norms over six orders of magnitude."""
    rows = turning(seed, window)
    rng = np.random.default_rng(seed + 1)
    swing = np.exp(2.5 * np.sin(2 * np.pi * np.arange(len(rows)) / (1.7 * window)))
    return rows * (swing * np.exp(0.7 * rng.standard_normal(len(rows))))[:, None]


def burst(seed: int, window: int) -> Floats:
    """Return rotating rows with a burst of 1/20 window (squared norms times 1000), and later one row times 1e6."""
    rows = turning(seed, window).copy()
    start = int(1.2 * window)
    rows[start : start + window // 20] *= np.sqrt(1e3)
    rows[int(2.7 * window)] *= 1e3
    return rows


def flat(seed: int, window: int) -> Floats:
    """Return rows whose singular values decay slowly, as i^-0.5, in fixed directions."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
    return rng.standard_normal((4 * window, WIDTH)) / np.sqrt(np.arange(1, WIDTH + 1)) @ basis


def _real(name: str) -> Callable[[int, int], Any]:
    def rows(seed: int, window: int) -> Any:
        x = load(name)[0]
        return np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float64)[: 4 * window]

    return rows


STREAMS: dict[str, Callable[[int, int], Any]] = {
    "synthetic": turning, "a9a": _real("a9a"), "mnist": _real("mnist"),
    "varnorm": varying, "burst": burst, "flat": flat,
}  # fmt: skip
