"""Products of sparse rows for which scipy would allocate a dense temporary array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import compiled
from robustfd.linalg import unlocked

Floats = NDArray[np.float64]


def gram(x: Any) -> Floats:
    """Return the lower triangle of x x' for a CSR matrix x.

    The cost is proportional to the sum of the squared column counts.
    """
    columns = x.tocsc()
    counts = np.diff(columns.indptr)
    # Columns with entries in many rows (common words in text data) are faster as a dense product.
    common = np.flatnonzero(counts > max(x.shape[0] // 8, 8))
    dense = columns[:, common].toarray(order="F")
    out = unlocked.gram(dense) if len(common) else np.zeros((x.shape[0], x.shape[0]))
    starts, stops = columns.indptr[:-1].astype(np.int64), columns.indptr[1:].astype(np.int64)
    stops[common] = starts[common]
    _add_gram(starts, stops, columns.indices.astype(np.int64), columns.data, out)
    return out


def add_product(out: NDArray[np.floating], x: Any, c: Floats) -> None:
    """Add x' c to `out` in place, with 2 r flops per stored value of x.

    x is CSR with k rows, c is k x r, out is d x r in C order.
    """
    _add_product(x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data, np.ascontiguousarray(c), out)


def centre(y: Floats, centring: Any, mean_products: Floats) -> Floats:
    """Apply `Centring.apply` to y in place, in one pass over y where numpy needs several."""
    c = centring
    _centre(np.ascontiguousarray(mean_products), c.scale, c.share, c.rows_coef, c.mean_coef, y)
    return y


def centre_gram(gram: Floats, centring: Any, row_products: Floats, mean_products: Floats) -> Floats:
    """Centre both sides of x x' in place. On entry only the lower triangle is set; the result is the full matrix."""
    _mirror(gram)
    centre(gram, centring, row_products)
    _centre_columns(mean_products, centring.scale, centring.share, centring.rows_coef, centring.mean_coef, gram)
    return gram


@compiled
def _mirror(gram: Any) -> None:
    block = 64  # a tile and its transpose fit in the cache
    for top in range(0, len(gram), block):
        for left in range(0, top + 1, block):
            for i in range(top, min(top + block, len(gram))):
                for j in range(left, min(left + block, i)):
                    gram[j, i] = gram[i, j]


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
def _centre_columns(mean_products: Any, scale: Any, share: Any, rows_coef: Any, mean_coef: Any, y: Any) -> None:
    for i in range(len(y)):
        row, total, mean = y[i], 0.0, mean_products[i]
        for j in range(len(row)):
            value = row[j]
            row[j] = scale[j] * value - rows_coef[j] * total + mean_coef[j] * mean
            total += share[j] * value


@compiled
def _add_gram(starts: Any, stops: Any, rows: Any, data: Any, out: Any) -> None:
    # Row indices ascend within a column, so only the lower triangle is written.
    for column in range(len(starts)):
        for a in range(starts[column], stops[column]):
            value, target = data[a], out[rows[a]]
            for b in range(starts[column], a + 1):
                target[rows[b]] += value * data[b]


@compiled
def _add_product(indptr: Any, columns: Any, data: Any, c: Any, out: Any) -> None:
    for row in range(len(indptr) - 1):
        for a in range(indptr[row], indptr[row + 1]):
            value, target = data[a], out[columns[a]]
            for i in range(c.shape[1]):
                target[i] += value * c[row, i]
