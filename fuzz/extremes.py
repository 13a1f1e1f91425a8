"""Rows and weights from 1e-308 to 1e308.

The promise is that of refused.py: the model learns them, or rejects them and stays unchanged. It can always continue
learning and be saved.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from fuzz.refused import MODELS, learns, try_rows

SECONDS = 60.0


def case(rng: np.random.Generator, folder: Path) -> str:
    """Give a model rows or weights of one extreme size."""
    model = clone(MODELS[int(rng.integers(len(MODELS)))])
    d, size = (
        int(rng.choice([3, 8])),
        float(rng.choice([1e-308, 1e-160, 1e-100, 1e75, 1e100, 1e149, 1e160, 1e300, 1e307])),
    )
    x = rng.standard_normal((int(rng.choice([3, 70])), d))
    if not learns(model, x):
        return f"{type(model).__name__} cannot learn good rows"
    before = model.to_bytes()
    rows: Any = rng.uniform(-1, 1, (int(rng.integers(1, 5)), d)) * (rng.random((1, d)) < 0.7)
    weight = None
    if rng.random() < 0.3:
        weight = np.full(len(rows), size)
    else:
        rows[int(rng.integers(len(rows)))] *= size
    if rng.random() < 0.3:
        rows = sp.csr_array(rows)
    with np.errstate(all="ignore"):
        return f"{type(model).__name__} {try_rows(model, rows, weight, before, x, f'{size:.0e}')}"
