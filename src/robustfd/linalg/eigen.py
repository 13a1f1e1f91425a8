"""The largest eigenpairs of a small positive semi-definite matrix, which dominate the cost of a shrink step.

The core has its own solver (src/core/eigen.hpp), since LAPACK's drivers are slower at this size.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustfd._core as _core

Floats = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


def largest_eigenpairs(a: Any, k: int) -> tuple[Floats, Floats]:
    """Return the k + 1 largest eigenvalues (descending, nonnegative) and k eigenvectors (as columns).

    `a` is positive semi-definite. Only its lower triangle is read.
    """
    try:
        values, rows = _core.largest_eigenpairs(np.ascontiguousarray(a, np.float64), k)
    except RuntimeError as error:
        raise np.linalg.LinAlgError(str(error)) from None
    return values, rows.T
