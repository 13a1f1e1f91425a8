"""Shrink rules: which squared singular values lose what when a buffer is cut down to m - 1 rows.

One function serves every member of the family, because the members differ in a single number, the
count j of the m largest values that lose delta = lambda_m:

- FD, RFD, CFD: j = m (Luo et al. 2019, Alg. 1 and 2, line 5),
- PFD: j = max(1, floor(beta m)) (Desai et al. 2016),
- greedy, also known as iSVD: j = 1, only lambda_m itself goes (Luo et al. 2019, Appendix F).
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def shrunk_count(m: int, beta: float) -> int:
    """Return j, how many of the m largest values PFD with this beta shrinks."""
    # 0.29 * 100 is 28.999999999999996 in floating point; the nudge restores the integer that was meant.
    return max(1, math.floor(beta * m + 1e-9))


def shrink(lam: Floats, m: int, j: int, noise: float) -> tuple[Floats, float]:
    """Return (kept, delta): at most m - 1 squared singular values, all positive, and what the shrink took away.

    Parameters
    ----------
    lam : squared singular values of the buffer, descending.
    m : the sketch size.
    j : how many of the m largest lose delta.
    noise : values up to this are round-off. A delta made of round-off must be exactly zero: added to alpha
        it would turn a singular Hessian into an "invertible" one.
    """
    delta = float(lam[m - 1]) if len(lam) >= m else 0.0
    if delta <= noise:
        delta = 0.0
    kept = np.where(lam > noise, lam, 0.0)[: m - 1]
    # A difference of possibly equal numbers: floored, so that no root of a negative is ever taken.
    kept[m - j :] = np.maximum(kept[m - j :] - delta, 0.0)
    return kept[: np.count_nonzero(kept)], delta  # they descend, so those that are zero come last
