"""Shrink rules: how a shrink step reduces the squared singular values of a buffer to at most m - 1 positive ones.

All sketches use one function. They differ in a single number: j, how many of the m largest values the shrink step
reduces by delta = lambda_m, counted from the smallest of them:

- FD, RFD, CFD: j = m (Luo et al. 2019, Alg. 1 and 2, line 5),
- PFD: j = max(1, floor(beta m)) (Desai et al. 2016),
- greedy, also known as iSVD: j = 1, so only lambda_m itself is removed (Luo et al. 2019, Alg. 8).

This module also defines the rounding error thresholds of sketches.
"""

import math

import numpy as np
from numpy.typing import NDArray

import robustfd._core as _core
from robustfd.linalg.eigen import EPS

Floats = NDArray[np.float64]

LEAST_ROWS = 4  # smaller stacks have no smaller rounding errors, because their rows come from earlier shrink steps


def shrunk_count(m: int, beta: float) -> int:
    """Return j, the number of values that a shrink step of PFD reduces."""
    # 0.29 * 100 is 28.999999999999996 in floating point; adding 1e-9 restores the intended integer.
    return max(1, math.floor(beta * m + 1e-9))


def shrink(lam: Floats, m: int, j: int, noise: float) -> tuple[Floats, float]:
    """Return (kept, delta): at most m - 1 positive squared singular values, and the amount that was subtracted.

    A delta up to `noise` is rounding error and is set to exactly zero.

    Parameters
    ----------
    lam : squared singular values of the buffer, descending.
    m : sketch size.
    j : number of values, of the m largest, that are reduced by delta.
    noise : values up to this threshold are rounding error.
    """
    kept, delta = _core.shrink_values(np.ascontiguousarray(lam, np.float64), m, j, noise)
    return kept, delta


def gram_noise(size: int, largest: float) -> float:
    """Return the threshold below which eigenvalues of the Gram matrix of `size` rows are rounding error."""
    return 4.0 * EPS * max(size, LEAST_ROWS) * largest


def svd_noise(size: int, sigma: float) -> float:
    """Return the threshold below which singular values of a stack of `size` rows are rounding error."""
    # Rounding in earlier shrink steps moves rows of B out of their span by about 20 eps sigma_1, whatever their number.
    return max(size, 32 * LEAST_ROWS) * EPS * sigma


def rounding(size: int, d: int, s: float, lam: Floats, noise: float) -> float:
    """Return a bound on the rounding errors of a shrink step, in the spectral norm.

    The bound covers the error of the new B'B plus that of delta. Its constant 8 is a safety factor.

    Parameters
    ----------
    size : number of rows of length d in the stack.
    s : factor that scales B. It is a product of many decays, so its relative error grows with -log(s).
    lam : squared lengths of the rows of B before scaling.
    noise : eps times the sum of squares of the other rows, or of the terms that they are sums of.
    """
    # Relative errors: about sqrt(d) eps for inner products of length d (Higham and Mary 2019), size * eps for
    # eigenpairs.
    fades = -2.0 * math.log(max(s, 1e-300))
    return 8.0 * (size + math.sqrt(d) + fades) * (EPS * s * s * float(lam.sum()) + noise)
