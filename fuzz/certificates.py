"""Error bounds of centred and weighted streams with a moving mean.

The promise: ||A'A + alpha0 I - M|| <= error_bound_, where M is the matrix of the sketch, for every mean, decay, weight
and dtype. The exact matrix is computed in extended precision.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustfd

SECONDS = 60.0
ROUNDING = {"float64": 1e-12, "float32": 1e-6}  # accuracy of the dtype, relative to the largest eigenvalue
KINDS = (
    robustfd.FrequentDirections, robustfd.RobustFrequentDirections, robustfd.CompensativeFrequentDirections,
    robustfd.SpectralCompensationFrequentDirections,
    robustfd.DiagonalFrequentDirections, robustfd.ExactSecondMoment,
)  # fmt: skip


def case(rng: np.random.Generator, folder: Path) -> str:
    """Sketch one stream and compare it with the exact matrix."""
    n, d, m = int(rng.choice([3, 30, 200, 600])), int(rng.choice([2, 5, 12, 60])), int(rng.choice([2, 4, 9]))
    x = rng.standard_normal((n, d)) * 10.0 ** -rng.uniform(0, rng.choice([0, 6]), d)
    level = 10.0 ** rng.uniform(0, 12)
    x[int(rng.integers(n)) :] += level * rng.standard_normal(d)
    w = None
    if rng.random() < 0.6:
        w = 10.0 ** rng.uniform(-12, 12, n) if rng.random() < 0.5 else np.ones(n)
        w[0] = rng.choice([1e-12, 1e-6, 1.0])
    rows: Any = x.astype(rng.choice(["float32", "float64"]))
    exact = np.asarray(rows, np.longdouble)
    if rng.random() < 0.3:
        rows = sp.csr_array(rows)
    decay, center = float(rng.choice([1.0, rng.uniform(0.5, 1.0), 0.999])), bool(rng.random() < 0.8)
    kind = KINDS[int(rng.integers(len(KINDS)))]
    options: dict[str, Any] = {"center": center, "decay": decay}
    if kind is not robustfd.ExactSecondMoment:
        options |= {"sketch_size": m, "solver": str(rng.choice(["auto", "svd"]))}
        if rng.random() < 0.5:
            options["buffer_size"] = m + int(rng.choice([1, 10, 200]))
    sketch, cuts = kind(**options), np.sort(rng.integers(1, n + 1, int(rng.integers(0, 5))))
    for part in np.split(np.arange(n), cuts):
        if len(part):
            sketch.partial_fit(rows[part], sample_weight=None if w is None else w[part])
    true = _moment(exact, np.ones(n) if w is None else w, decay, center)
    found = np.asarray(sketch.second_moment().to_dense(), np.longdouble)
    error = np.abs(np.linalg.eigvalsh(np.asarray(true - found, float))).max()
    largest = np.linalg.eigvalsh(np.asarray(true, float)).max()
    # The exact matrix itself has rounding errors, which matter if all rows are equal and centring leaves nothing.
    blur = float(np.finfo(np.longdouble).eps * np.abs(exact).max()) ** 2 * n * (1.0 if w is None else w.max()) * d
    assert np.isfinite(error) and error <= sketch.error_bound_ + ROUNDING[str(rows.dtype)] * largest + blur, (
        f"{kind.__name__}({options}) of {n} x {d} {type(rows).__name__} {rows.dtype}, level {level:.2g}: error "
        f"{error / largest:.2e}, certified {sketch.error_bound_ / largest:.2e}, in units of the largest eigenvalue"
    )
    return kind.__name__


def _moment(x: Any, w: Any, decay: float, center: bool) -> Any:
    """Return sum u (x - mean)(x - mean)' in extended precision, where u are the weights after decay."""
    u = np.asarray(w, np.longdouble) * np.longdouble(decay) ** np.arange(len(x) - 1, -1, -1)
    if center:
        x = x - (u @ x) / u.sum()
    return (x.T * u) @ x
