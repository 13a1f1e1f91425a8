"""The best approximations of a known matrix by a low-rank matrix plus a multiple of the identity.

They are the yardstick for a sketch of the same rank. They need the whole matrix and O(d^3) flops.
"""

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustfd.linalg.decompose import Floats
from robustfd.linalg.operator import LowRankPlusIdentity


def spectral_optimum(M: ArrayLike, rank: int) -> LowRankPlusIdentity:
    r"""Return the matrix C C' + delta I nearest to M in the spectral norm, where C has at most `rank` columns.

    With the eigenvalues s_1 >= ... >= s_d of M, its first eigenvectors U_k and k = rank,

    .. math::

        \delta = (s_{k+1} + s_d) / 2, \qquad C = U_k (S_k - \xi I)^{1/2}, \qquad
        \|M - C C' - \delta I\|_2 = (s_{k+1} - s_d) / 2,

    which is less than s_{k+1}, the error of the best rank-k matrix, unless both are 0 (Luo et al. 2019, Thm. 1).
    Every xi in [s_d, s_{k+1}] is optimal. This function uses s_{k+1}, which gives the smallest condition number.

    Parameters
    ----------
    M : array-like of shape (d, d)
        Symmetric and positive semi-definite, both up to rounding.
    rank : int
        k, from 0 to d - 1.

    Returns
    -------
    optimum : LowRankPlusIdentity

    See Also
    --------
    frobenius_optimum : The same for the Frobenius norm.
    RobustFrequentDirections : A sketch in this form, from one pass over the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import spectral_optimum
    >>> M = np.diag([9.0, 4.0, 3.0, 0.0])
    >>> best = spectral_optimum(M, rank=1)
    >>> best.low_rank_eigenvalues, best.alpha
    (array([5.]), 2.0)
    >>> float(np.linalg.norm(M - best.to_dense(), 2))
    2.0
    """
    s, components = _eigen(M, rank)
    return LowRankPlusIdentity(components, s[:rank] - s[rank], 0.5 * s[rank] + 0.5 * s[-1])


def frobenius_optimum(M: ArrayLike, rank: int) -> LowRankPlusIdentity:
    r"""Return the matrix C C' + delta I nearest to M in the Frobenius norm, where C has at most `rank` columns.

    With the eigenvalues s_1 >= ... >= s_d of M, its first eigenvectors U_k and k = rank,

    .. math::

        \delta = \frac{1}{d - k} \sum_{i > k} s_i, \qquad C = U_k (S_k - \delta I)^{1/2}

    (Luo et al. 2019, Cor. 1, where the sum starts at j + 1 by a misprint). The trace equals that of M.

    Parameters
    ----------
    M, rank
        As for `spectral_optimum`.

    Returns
    -------
    optimum : LowRankPlusIdentity

    See Also
    --------
    spectral_optimum : The same for the spectral norm.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd import frobenius_optimum
    >>> best = frobenius_optimum(np.diag([9.0, 4.0, 2.0, 0.0]), rank=1)
    >>> best.low_rank_eigenvalues, best.alpha, best.trace()
    (array([7.]), 2.0, 15.0)
    """
    s, components = _eigen(M, rank)
    # Divide before summing, because the sum may overflow.
    delta = float(np.sum(s[rank:] / (len(s) - rank)))
    # The computed mean of equal numbers may exceed them by one ulp.
    return LowRankPlusIdentity(components, np.maximum(s[:rank] - delta, 0.0), delta)


def _eigen(M: ArrayLike, rank: int) -> tuple[Floats, NDArray[Any]]:
    """Return the eigenvalues of M (descending, nonnegative) and the first `rank` eigenvectors, as rows."""
    m = np.asarray(M)
    if m.dtype.kind not in "buif":
        raise ValueError(f"M is of type {m.dtype}, expected a dense array of real numbers")
    if m.ndim != 2 or m.shape[0] != m.shape[1] or m.size == 0:
        raise ValueError(f"M has shape {m.shape}, expected (d, d) with d >= 1")
    d, dtype = len(m), m.dtype if m.dtype == np.float32 else np.dtype(np.float64)
    k = _index(rank, d)
    m, eps = m.astype(np.float64), float(np.finfo(dtype).eps)
    if not np.all(np.isfinite(m)):
        raise ValueError("M holds NaN or infinity, expected finite numbers")
    # Scale by a power of two, which is exact, so that the largest entry is near 1 and no sum below overflows.
    exponent = int(np.frexp(np.abs(m).max())[1])
    m = np.ldexp(m, -exponent)
    i, j = np.unravel_index(np.argmax(np.abs(m - m.T)), m.shape)
    if abs(m[i, j] - m[j, i]) > np.sqrt(eps) * np.abs(m).max():
        pair = f"M[{i}, {j}] = {np.ldexp(m[i, j], exponent)} and M[{j}, {i}] = {np.ldexp(m[j, i], exponent)}"
        raise ValueError(f"M is not symmetric: {pair}, expected equal up to rounding")
    s, u = np.linalg.eigh((m + m.T) / 2)
    # The factor allows for rounding errors in M itself, which may be a sum of many products.
    if s[0] < -100 * d * eps * np.abs(s).max():
        raise ValueError(
            f"M has the eigenvalue {np.ldexp(s[0], exponent):.6g}, expected a positive semi-definite matrix"
        )
    s = np.ldexp(np.maximum(s[::-1], 0.0), exponent)
    return s, np.ascontiguousarray(u[:, ::-1][:, :k].T).astype(dtype, copy=False)


def _index(rank: int, d: int) -> int:
    try:
        k = -1 if isinstance(rank, (bool, np.bool_)) else operator.index(rank)
    except TypeError:
        k = -1
    if not 0 <= k < d:
        raise ValueError(f"rank is {rank!r}, expected an integer from 0 to d - 1 = {d - 1}")
    return k
