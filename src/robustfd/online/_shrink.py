"""The shrink of a block: the eigenvectors of its small Gram matrix as coefficients of the new rows of B."""

from typing import Any

import numpy as np

from robustfd.linalg._compile import loops
from robustfd.linalg.eigen import EIGENPAIRS, EPS, GRADED
from robustfd.linalg.lapack import at, call, view

LONG = 2000  # rows of a stream from which on it pays to compile the eigenproblem


@loops
def shrink_block(
    routines: Any, stack: Any, had: int, c: Any, shrunk: int, graded: bool, most: int,
    lam: Any, on_b: Any, on_x: Any, sizes: Any, room: Any,
) -> float:  # fmt: skip
    """Fill lam with the squared lengths of the new rows, and return what the shrink took away, or -1 if it failed.

    `stack` is the Gram matrix, its lower triangle, of the `had` rows of B and of the rows c x of the block. The last
    rows of on_b and on_x are filled: B becomes on_b[-r:] B + on_x[-r:] X. Of the r + 1 largest eigenvalues the last
    `shrunk` lose the least of them (linalg/rules.py). With `graded`, small eigenvalues are right relative to
    themselves. The rank of the stack is at most `most`, and of one of rank r or less nothing is taken. `sizes` (3) and
    `room` are scratch memory.
    """
    r, size, filled = len(lam), len(stack), on_x.shape[1]
    wanted, offset, most = min(r, size), len(on_b) - r, min(most, size)
    values, vectors = room[:size], view(room, size, (wanted, size))
    sizes[0], sizes[1], sizes[2] = size, wanted, most
    call(routines[GRADED if graded else EIGENPAIRS], (at(routines, 0), at(sizes, 0), stack, values, vectors))
    told = sizes[2]
    sizes[0] = sizes[1] = sizes[2] = 0  # they lie beside what two learners alike have alike
    if told < (0 if graded else 1):
        return -1.0
    rank = told if graded else most
    delta = values[r] if size > r and rank > r else 0.0
    if delta <= 4.0 * EPS * size * values[0]:
        delta = 0.0  # round-off is not signal
    for j in range(r):
        kept = 0.0
        if j < min(wanted, rank) and values[j] > EPS * EPS * values[0]:
            kept = max(values[j] - delta, 0.0) if j >= r + 1 - shrunk else values[j]
        factor = np.sqrt(kept / values[j]) if kept > 0 else 0.0
        from_b, from_x = on_b[offset + j], on_x[offset + j]
        for i in range(r):
            from_b[i] = 0.0
        for i in range(filled):
            from_x[i] = 0.0
        if factor > 0:
            left, right = vectors[j], vectors[j, had:]
            for i in range(had):
                from_b[i] = factor * left[i]
            for i in range(filled):
                from_x[i] = factor * right[i] * c[i]
        lam[j] = kept
    return delta
