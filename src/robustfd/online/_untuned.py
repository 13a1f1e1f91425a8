"""Sparse rows of the learner with nothing to tune: compiled loops over the columns that occur (columns.py).

A run of columns is a block here, because D changes after each.
"""

from typing import Any

from robustfd.linalg._compile import entry, loops
from robustfd.online._features import METRIC
from robustfd.online.columns import PIECE, Columns, end_run, enter_row, gather
from robustfd.online.rows import CsrRows


@entry
@loops
def enter_rows(
    routines: Any, columns: Columns, table: Any, data: Any, indices: Any, indptr: Any, products: Any, gram: Any
) -> None:
    """Enter rows in compressed form; fill their products with the basis and, lower triangle, with rows of the block.

    There must be room for their entries. `table` is what is known of the features.
    """
    gather(routines, columns, indices, 0, len(indices))
    for e in range(len(indices)):  # a constant feature, centred, has no D until it changes
        metric = table[indices[e], METRIC]
        columns.scale[columns.place[indices[e]]] = 1.0 / metric if metric > 0 else 0.0
    for i in range(len(products)):
        enter_row(columns, CsrRows(data, indices, indptr), i, products[i], gram[i])


@entry
@loops
def sum_features(columns: Columns, factors: Any, weights: Any, out: Any) -> None:
    """Fill out (3, features): how many entries a feature has, the sum of (x / factor)^2, and of weight x^2."""
    for k in range(out.shape[1]):
        piece, size = columns.latest[k], columns.used[k]
        while piece >= 0:
            for i in range(size):
                x, row = columns.value[piece, i], columns.row[piece, i]
                raw = x / factors[row]
                out[0, k] += 1.0
                out[1, k] += raw * raw
                out[2, k] += weights[row] * x * x
            piece, size = columns.before[piece], PIECE


end_rows = entry(end_run)  # writes the features back; their list stays until the next run begins
