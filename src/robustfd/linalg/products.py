"""Products of dense matrices with the global interpreter lock (GIL) released.

scipy's wrappers hold the GIL, so threads that sketch different rows would run one at a time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustfd._core as _core

Floats = NDArray[np.float64]


def add_product(c: Floats, a: Any, b: Any, keep: float = 1.0) -> None:
    """Set c, in C order, to a b + keep c. The arrays must not be empty. With keep = 0, c may be uninitialised."""
    _core.add_product(c, np.ascontiguousarray(a, np.float64), np.ascontiguousarray(b, np.float64), float(keep))


def gram(a: Any) -> Floats:
    """Return the lower triangle of a a', with zeros above it."""
    a = np.asfortranarray(a, np.float64)
    out = np.zeros((len(a), len(a)))
    _core.fill_gram(a, out)
    return out
