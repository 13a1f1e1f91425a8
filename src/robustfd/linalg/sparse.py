"""Products of sparse rows for which scipy would allocate a dense temporary array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import compiled
from robustfd.linalg import unlocked

Floats = NDArray[np.float64]


class Columns:
    """A sparse matrix by columns, as compiled loops read it.

    The loops below read and write whole rows of dense matrices. In this order each row of the matrix with one row per
    column of x is needed once, so it is read from memory once.
    """

    def __init__(self, x: Any):
        self.matrix = x.tocsc().astype(np.float64, copy=False)
        self.starts, self.rows = (getattr(self.matrix, name).astype(np.int64) for name in ("indptr", "indices"))
        self.data = self.matrix.data


def gram(x: Columns) -> Floats:
    """Return the lower triangle of x x'.

    The cost is proportional to the sum of the squared column counts.
    """
    n, counts = x.matrix.shape[0], np.diff(x.starts)
    # Columns with entries in many rows (common words in text data) are faster as a dense product.
    common = np.flatnonzero(counts > max(n // 8, 8))
    dense = x.matrix[:, common].toarray(order="F")
    out = unlocked.gram(dense) if len(common) else np.zeros((n, n))
    starts, stops = x.starts[:-1], x.starts[1:].copy()
    stops[common] = starts[common]
    _add_gram(starts, stops, x.rows, x.data, out)
    return out


def product(x: Columns, y: Floats) -> Floats:
    """Return x y, with 2 r flops per stored value of x. y is d x r in C order."""
    out = np.zeros((x.matrix.shape[0], y.shape[1]))
    _add_product(x.starts, x.rows, x.data, y, out)
    return out


def add_transposed(out: Floats, x: Columns, c: Floats, start: int = 0) -> None:
    """Add rows start, start + 1, ... of x' c to `out` in place, which is C-ordered and has r columns.

    x is n x d, c is n x r.
    """
    _add_transposed(x.starts[start : start + len(out) + 1], x.rows, x.data, np.ascontiguousarray(c), out)


def centre(y: Floats, centring: Any, mean_products: Floats) -> Floats:
    """Apply `Centring.apply` to y in place, in one pass over y where numpy needs several."""
    c = centring
    _centre(np.ascontiguousarray(mean_products), c.scale, c.share, c.rows_coef, c.mean_coef, y)
    return y


def centre_gram(gram: Floats, centring: Any, row_products: Floats, mean_products: Floats) -> Floats:
    """Centre both sides of x x' in place. Only the lower triangle is read and written."""
    c = centring
    _centre_gram(row_products, mean_products, c.scale, c.share, c.rows_coef, c.mean_coef, gram)
    return gram


@compiled
def _centre(mean_products: Any, scale: Any, share: Any, rows_coef: Any, mean_coef: Any, y: Any) -> None:
    sums = np.zeros(y.shape[1])
    for i in range(len(y)):
        row, a, s, rows_factor, mean_factor = y[i], scale[i], share[i], rows_coef[i], mean_coef[i]
        for j in range(len(sums)):
            value = row[j]
            row[j] = a * value - rows_factor * sums[j] + mean_factor * mean_products[j]
            sums[j] += s * value


@compiled
def _centre_gram(
    row_products: Any, mean_products: Any, scale: Any, share: Any, rows_coef: Any, mean_coef: Any, gram: Any
) -> None:
    # sums[j] is the sum of share_s gram[s, j] over the rows s before i. For s < j these entries are above the diagonal,
    # so they are read from row j instead.
    sums = np.zeros(len(gram))
    for i in range(len(gram)):
        row, before, left = gram[i], 0.0, 0.0
        a, s, rows_factor, mean_factor, mean = scale[i], share[i], rows_coef[i], mean_coef[i], mean_products[i]
        for j in range(i):
            value = row[j]
            half = a * value - rows_factor * sums[j] + mean_factor * row_products[j]  # centred on the left
            row[j] = scale[j] * half - rows_coef[j] * left + mean_coef[j] * mean
            sums[j] += s * value
            before += share[j] * value
            left += share[j] * half
        half = a * row[i] - rows_factor * before + mean_factor * row_products[i]
        sums[i] = before + s * row[i]
        row[i] = a * half - rows_factor * left + mean_factor * mean


@compiled
def _add_gram(starts: Any, stops: Any, rows: Any, data: Any, out: Any) -> None:
    # Row indices ascend within a column, so only the lower triangle is written.
    for column in range(len(starts)):
        for a in range(starts[column], stops[column]):
            value, target = data[a], out[rows[a]]
            for b in range(starts[column], a + 1):
                target[rows[b]] += value * data[b]


@compiled
def _add_product(starts: Any, rows: Any, data: Any, y: Any, out: Any) -> None:
    for column in range(len(starts) - 1):
        source = y[column]
        for a in range(starts[column], starts[column + 1]):
            value, target = data[a], out[rows[a]]
            for i in range(out.shape[1]):
                target[i] += value * source[i]


@compiled
def _add_transposed(starts: Any, rows: Any, data: Any, c: Any, out: Any) -> None:
    for column in range(len(starts) - 1):
        target = out[column]
        for a in range(starts[column], starts[column + 1]):
            value, source = data[a], c[rows[a]]
            for i in range(out.shape[1]):
                target[i] += value * source[i]
