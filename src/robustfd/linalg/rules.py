"""Shrink rules: which squared singular values lose what when a buffer is cut down to m - 1 rows.

One function serves every member of the family, because the members differ in a single number, the
count j of the m largest values that lose delta = lambda_m:

- FD, RFD, CFD: j = m (Luo et al. 2019, Alg. 1 and 2, line 5),
- PFD: j = max(1, floor(beta m)) (Desai et al. 2016),
- greedy, also known as iSVD: j = 1, only lambda_m itself goes (Luo et al. 2019, Appendix F).

Sketches and online learners shrink by the same rule, and what counts as round-off is said here only. Learners call
the compiled functions. Sketches call them as plain Python: the lists are short, and nothing has to be compiled.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd.linalg.tridiagonal import EPS

Floats = NDArray[np.float64]

LEAST_ROWS = 4  # a stack of fewer rows has no less round-off: its rows come from earlier shrinks


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
    noise : values up to this are round-off.
    """
    kept = [0.0] * (m - 1)
    delta = shrink_values.py_func(lam.tolist(), m, j, noise, noise, kept)
    found = np.array(kept)
    return found[: np.count_nonzero(found)], delta  # they descend, so those that are zero come last


@loops
def shrink_values(lam: Any, m: int, j: int, noise: float, least: float, kept: Any) -> float:
    """Fill kept (m - 1) with what is left of lam, descending, and return delta.

    A delta up to `noise` is round-off and must be exactly zero: added to alpha it would turn a singular Hessian into
    an "invertible" one. A value up to `least` is zero.
    """
    delta = lam[m - 1] if len(lam) >= m else 0.0
    if delta <= noise:
        delta = 0.0
    for i in range(m - 1):
        value = 0.0
        if i < len(lam) and lam[i] > least:
            # A difference of possibly equal numbers: floored, so that no root of a negative is ever taken.
            value = max(lam[i] - delta, 0.0) if i >= m - j else lam[i]
        kept[i] = value
    return delta


@loops
def gram_noise(size: int, largest: float) -> float:
    """Return up to what eigenvalues of the Gram matrix of `size` rows are round-off."""
    return 4.0 * EPS * max(size, LEAST_ROWS) * largest


def svd_noise(size: int, sigma: float) -> float:
    """Return up to what singular values of a stack of `size` rows are round-off."""
    # Rows of B that a former shrink rounded stand out of their span by some 20 eps sigma_1, whatever their number.
    return max(size, 32 * LEAST_ROWS) * EPS * sigma


def rounding(size: int, d: int, s: float, lam: Floats, noise: float) -> float:
    """Return what rounding can change, in the spectral norm, of what a shrink leaves and of what it takes.

    Parameters
    ----------
    size : how many rows of length d there are in the stack.
    s : what B is scaled by; it is the exponential of a sum of logarithms, and less accurate the smaller it is.
    lam : the squared lengths of the rows of B before that.
    noise : eps times the squares of the other rows, or of the terms that those were added up from.
    """
    # Products of length d are off by about sqrt(d) eps (Higham and Mary 2019), eigenvalues and rows by size eps.
    fades = -2.0 * math.log(max(s, 1e-300))
    return 8.0 * (size + math.sqrt(d) + fades) * (EPS * s * s * float(lam.sum()) + noise)
