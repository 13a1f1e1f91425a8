"""Products of sparse rows for which scipy would allocate a dense temporary array; the core has the loops."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustfd._core as _core
from robustfd.linalg import products

Floats = NDArray[np.float64]


class Columns:
    """A sparse matrix by columns, as the core reads it.

    In this order each row of the dense matrix with one row per column of x is read from memory once.
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
    out = products.gram(dense) if len(common) else np.zeros((n, n))
    starts, stops = x.starts[:-1], x.starts[1:].copy()
    stops[common] = starts[common]
    _core.sparse_add_gram(np.ascontiguousarray(starts), stops, x.rows, x.data, out)
    return out


def product(x: Columns, y: Floats) -> Floats:
    """Return x y, with 2 r flops per stored value of x. y is d x r in C order."""
    out = np.zeros((x.matrix.shape[0], y.shape[1]))
    _core.sparse_add_product(x.starts[:-1], x.starts[1:], x.rows, x.data, np.ascontiguousarray(y), out)
    return out


def add_transposed(out: Floats, x: Columns, c: Floats, start: int = 0) -> None:
    """Add rows start, start + 1, ... of x' c to `out` in place, which is C-ordered and has r columns.

    x is n x d, c is n x r.
    """
    starts, stops = (x.starts[i : i + len(out)] for i in (start, start + 1))
    _core.sparse_add_transposed(starts, stops, x.rows, x.data, np.ascontiguousarray(c), out)


def centre(y: Floats, centring: Any, mean_products: Floats) -> Floats:
    """Apply `Centring.apply` to y in place, in one pass over y where numpy needs several."""
    c = centring
    _core.centre(c.scale, c.share, c.rows_coef, c.mean_coef, np.ascontiguousarray(mean_products), y)
    return y


def centre_gram(gram: Floats, centring: Any, row_products: Floats, mean_products: Floats) -> Floats:
    """Centre both sides of x x' in place. Only the lower triangle is read and written."""
    c = centring
    _core.centre_gram(c.scale, c.share, c.rows_coef, c.mean_coef, row_products, mean_products, gram)
    return gram
