"""Products of sparse rows that neither BLAS nor scipy does without a dense temporary."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import compiled
from robustfd.linalg import unlocked

Floats = NDArray[np.float64]


def gram(x: Any) -> Floats:
    """Return the lower triangle of x x' of a CSR matrix; the cost is about the sum of squared column counts."""
    columns = x.tocsc()
    counts = np.diff(columns.indptr)
    # Columns that many rows share (every text has some) are cheaper as a dense product.
    common = np.flatnonzero(counts > max(x.shape[0] // 8, 8))
    dense = columns[:, common].toarray(order="F")
    out = unlocked.gram(dense) if len(common) else np.zeros((x.shape[0], x.shape[0]))
    starts, stops = columns.indptr[:-1].astype(np.int64), columns.indptr[1:].astype(np.int64)
    stops[common] = starts[common]
    _add_gram(starts, stops, columns.indices.astype(np.int64), columns.data, out)
    return out


def add_product(out: NDArray[np.floating], x: Any, c: Floats) -> None:
    """Add x' c to `out` in place: x is CSR of k rows, c is k x r, out is d x r in C order."""
    _add_product(x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data, np.ascontiguousarray(c), out)


def centre(y: Floats, centring: Any, of_mean: Floats) -> Floats:
    """Do to y, in place, what `Centring.apply` does; running sums of large arrays are several passes in numpy."""
    c = centring
    _centre(np.ascontiguousarray(of_mean), c.own, c.share, c.on_rows, c.on_mean, y)
    return y


def centre_gram(gram: Floats, centring: Any, on_mean: Floats, mean_on_mean: Floats) -> Floats:
    """Centre, in place, both sides of x x', of which the lower triangle is there; the result is whole."""
    _mirror(gram)
    centre(gram, centring, on_mean)
    _centre_columns(mean_on_mean, centring.own, centring.share, centring.on_rows, centring.on_mean, gram)
    return gram


@compiled
def _mirror(gram: Any) -> None:
    block = 64  # of which both triangles stay in the cache
    for top in range(0, len(gram), block):
        for left in range(0, top + 1, block):
            for i in range(top, min(top + block, len(gram))):
                for j in range(left, min(left + block, i)):
                    gram[j, i] = gram[i, j]


@compiled
def _centre(of_mean: Any, own: Any, share: Any, on_rows: Any, on_mean: Any, y: Any) -> None:
    sums = np.zeros(y.shape[1])
    for i in range(len(y)):
        row, a, s, r, m = y[i], own[i], share[i], on_rows[i], on_mean[i]
        for j in range(len(sums)):
            value = row[j]
            row[j] = a * value - r * sums[j] + m * of_mean[j]
            sums[j] += s * value


@compiled
def _centre_columns(of_mean: Any, own: Any, share: Any, on_rows: Any, on_mean: Any, y: Any) -> None:
    for i in range(len(y)):
        row, total, mean = y[i], 0.0, of_mean[i]
        for j in range(len(row)):
            value = row[j]
            row[j] = own[j] * value - on_rows[j] * total + on_mean[j] * mean
            total += share[j] * value


@compiled
def _add_gram(starts: Any, stops: Any, rows: Any, data: Any, out: Any) -> None:
    # Rows ascend within a column, so only the lower triangle is written.
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
