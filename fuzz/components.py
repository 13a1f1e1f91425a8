"""Error bounds of principal components: variance intervals, reconstruction error and angles.

The promise: the exact variances are in `explained_variance_interval_`, the reconstruction error is at most
`excess_error_bound_` above the best, and the span is within `subspace_error_bound_` of the exact one. Streams drift,
and models are merged, saved and decayed. The exact values are computed from all rows.
"""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

from robustfd import SketchedPCA
from robustfd.estimators import _components

SECONDS = 30.0
ROUNDING = {"float64": 1e-11, "float32": 1e-5}  # relative to the total variance


def case(rng: np.random.Generator, folder: Path) -> str:
    """Analyse one stream and compare the bounds with the exact values."""
    n, d, k = int(rng.choice([2, 10, 60, 300])), int(rng.choice([2, 5, 20, 60, 150])), int(rng.choice([1, 2, 5]))
    k = min(k, d)
    x, name = stream(rng, n, d)
    single = rng.random() < 0.1
    x = x.astype(np.float32) if single else x
    rows: Any = sp.csr_array(x) if rng.random() < 0.3 else x
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n) if rng.random() < 0.3 else np.ones(n)
    weight[0] = 1.0
    weight[-1] = 1.0
    decay = float(rng.choice([1.0, 0.99, 0.9])) if rng.random() < 0.3 else 1.0
    size: Any = "auto" if rng.random() < 0.1 else k + int(rng.choice([1, 2, 5, 20]))
    pca = SketchedPCA(k, sketch_size=size, decay=decay)
    how = str(rng.choice(["fit", "batches", "merge"])) if decay == 1.0 else str(rng.choice(["fit", "batches"]))
    if how == "fit":
        first = int(rng.integers(1, n + 1)) if rng.random() < 0.3 else n  # the others arrive later
        # Small matrices are computed exactly. With fewer steps, and without that, they are treated as large ones are.
        small = 0 if rng.random() < 0.8 else _components.SMALL
        with patch.multiple(_components, SMALL=small, DENSE_STEPS=2, SPARSE_STEPS=2):
            pca.fit(rows[:first], sample_weight=weight[:first])
        if first < n:
            pca.partial_fit(rows[first:], sample_weight=weight[first:])
    else:
        cuts = np.sort(rng.integers(1, n, int(rng.integers(0, 4)))) if n > 1 else []
        for part in np.split(np.arange(n), cuts):
            if how == "merge" and weight[part].any():
                other = SketchedPCA(k, sketch_size=size).partial_fit(rows[part], sample_weight=weight[part])
                pca.merge(SketchedPCA.from_bytes(other.to_bytes()))
            elif how == "batches" and len(part):
                pca.partial_fit(rows[part], sample_weight=weight[part])
    live = weight > 0
    check(pca, np.asarray(x, np.float64)[live], weight[live], decay, k, ROUNDING[str(x.dtype)], f"{name}, {how}, {pca}")
    return how


def stream(rng: np.random.Generator, n: int, d: int) -> tuple[Any, str]:
    """Return rows of a random kind, and the name of the kind."""
    kind = str(rng.choice(["decay", "flat", "drift", "burst", "low rank", "spikes", "sorted"]))
    x = rng.standard_normal((n, d))
    if kind == "decay":
        x *= rng.uniform(0.3, 1.0) ** np.arange(d)
    elif kind == "drift":  # from some row on, different and larger directions
        x *= 0.7 ** np.arange(d)
        start = int(rng.integers(n))
        x[start:] = 3.0 * rng.random() * x[start:, ::-1]
    elif kind == "burst":
        x[int(rng.integers(n))] *= 10.0 ** rng.uniform(0, 6)
    elif kind == "low rank":
        r = int(rng.integers(1, min(n, d) + 1))
        x = x[:, :r] @ rng.standard_normal((r, d))
    elif kind == "spikes":
        x[:, : max(1, d // 4)] *= 5.0
    elif kind == "sorted":  # one direction after the other
        x = 0.01 * x
        x[np.arange(n), (np.arange(n) * d) // n] += 1.0
    return x + 10.0 ** rng.uniform(-2, 3) * (rng.random() < 0.5), kind


def check(pca: Any, x: Any, weight: Any, decay: float, k: int, rounding: float, what: str) -> None:
    """Compare all error bounds with the exact values."""
    u = weight * decay ** np.arange(len(x) - 1.0, -1.0, -1.0)
    if not u.sum() > 1.0 + 1e-9:
        return
    mean = u @ x / u.sum()
    a = np.sqrt(u)[:, None] * (x - mean)
    scatter, freedom = a.T @ a, u.sum() - 1.0
    values, vectors = np.linalg.eigh(scatter)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    total = float(values.sum()) + np.finfo(float).eps * float(u @ np.square(x).sum(axis=1))
    off = rounding * total / freedom
    low, high = pca.explained_variance_interval_.T
    true = values[:k] / freedom
    assert np.all(low - off <= true) and np.all(true <= high + off), f"{what}: {low} <= {true} <= {high}"
    error = np.abs(pca.explained_variance_ - true).max()
    assert error <= pca.explained_variance_error_bound_ + off, f"{what}: off by {error}"
    v = np.asarray(pca.components_, np.float64)
    excess = (values[:k].sum() - np.trace(v @ scatter @ v.T)) / freedom
    assert excess <= pca.excess_error_bound_ + off, f"{what}: excess {excess} > {pca.excess_error_bound_}"
    sine = np.sqrt(max(0.0, k - np.square(v @ vectors[:, :k]).sum()))
    gap = (values[k - 1] - values[k]) / total if k < len(values) and total > 0 else 1.0
    if gap > 1e3 * rounding:  # otherwise the exact span is not well defined
        slack = 1e-6 + np.sqrt(rounding / gap)
        assert sine <= pca.subspace_error_bound_ + slack, f"{what}: sine {sine} > {pca.subspace_error_bound_}"
