"""The common part of RP-SON and Oja-SON: H = B'B + alpha0 I where each row of the data changes every row of B.

B is m x d, and the weights are stored as w = v + B'c (for Oja-SON, Y takes the place of B). When B changes by q a', a
change of v by -(q'c) a keeps w the same. H^-1 x is a combination of x and the rows of B, so a step changes only c and
the entries of v at the non-zeros of x. A row costs O(m nnz + m^3), and no operation has length d.

With alpha0 = 0 the steps use the pseudo-inverse of H. Moving w along x_0, the part of a row outside the row space of B,
then costs nothing in the projection. The domain is a slab or unbounded.
"""

from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import loops
from robustfd.online.settings import CURRENT, SLAB
from robustfd.online.single_row import Row


class Direction(NamedTuple):
    """H^-1 x = coef_x x + B' coef_b and x_0 = x - B' outside_b, for a row x."""

    coef_x: float
    coef_b: Any
    kappa: float  # x'H^-1 x
    outside_b: Any
    n0: float  # x_0'x_0, or 0 if x_0 counts as zero


@loops
def find_products(row: Row, v: Any, bt: Any, b: Any) -> Any:
    """Fill b with B x and return v'x and x'x."""
    (columns, values), p, square = row, 0.0, 0.0
    for j in range(len(b)):
        b[j] = 0.0
    for k in range(len(columns)):
        x, entries = values[k], bt[columns[k]]
        p += v[columns[k]] * x
        square += x * x
        for j in range(len(b)):
            b[j] += x * entries[j]
    return p, square


@loops
def change_basis(row: Row, v: Any, bt: Any, c: Any, q: Any) -> None:
    """Replace B by B + q x' and keep w the same."""
    columns, values = row
    along_c = 0.0
    for j in range(len(q)):
        along_c += q[j] * c[j]
    for k in range(len(columns)):
        x, entries = values[k], bt[columns[k]]
        v[columns[k]] -= along_c * x
        for j in range(len(q)):
            entries[j] += x * q[j]


@loops
def take_step(settings: Any, row: Row, v: Any, c: Any, p: float, step: float, direction: Direction) -> None:
    """Move w by -step H^-1 x, and project it if the settings ask for it; p is w'x before the step."""
    _move(row, v, c, step, direction.coef_x, direction.coef_b)
    if settings.domain == SLAB and settings.projection == CURRENT:
        project(settings, row, v, c, p - step * direction.kappa, direction)


@loops
def project(settings: Any, row: Row, v: Any, c: Any, p: float, direction: Direction) -> float:
    """Project w onto |w'x| <= bound in the norm of H, given p = w'x; return the margin after the projection."""
    n0, kappa, outside_b = direction.n0, direction.kappa, direction.outside_b
    if not abs(p) > settings.bound or (n0 == 0.0 and not kappa > 0.0):
        return p
    clipped = np.copysign(settings.bound, p)
    if n0 > 0.0:
        for j in range(len(c)):
            outside_b[j] = -outside_b[j]
        _move(row, v, c, (p - clipped) / n0, 1.0, outside_b)
    else:
        _move(row, v, c, (p - clipped) / kappa, direction.coef_x, direction.coef_b)
    return clipped


@loops
def _move(row: Row, v: Any, c: Any, step: float, coef_x: float, coef_b: Any) -> None:
    """Move w by -step (coef_x x + B' coef_b)."""
    columns, values = row
    if coef_x != 0.0 and step != 0.0:
        for k in range(len(columns)):
            v[columns[k]] -= step * coef_x * values[k]
    for j in range(len(c)):
        c[j] -= step * coef_b[j]


@loops
def add_basis(v: Any, bt: Any, c: Any) -> None:
    """Add B'c to v and reset c to 0."""
    for i in range(len(v)):
        for j in range(len(c)):
            v[i] += bt[i, j] * c[j]
    for j in range(len(c)):
        c[j] = 0.0


@loops
def form_gram(bt: Any, gram: Any) -> None:
    """Fill gram with BB', computed from scratch."""
    m = len(gram)
    for j in range(m):
        for l in range(m):
            gram[j, l] = 0.0
    for i in range(len(bt)):
        row = bt[i]
        for j in range(m):
            for l in range(m):
                gram[j, l] += row[j] * row[l]


@loops
def cholesky(a: Any, size: int) -> bool:
    """Overwrite the lower triangle of a's leading block with its Cholesky factor; return whether it succeeded."""
    for i in range(size):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            if j < i:
                a[i, j] = total / a[j, j]
            elif total > 0.0:
                a[i, i] = np.sqrt(total)
            else:
                return False
    return True


@loops
def forward(factor: Any, rank: int, x: Any) -> None:
    """Solve L z = x for z in place, where L is the leading block of size `rank` of the factor."""
    for i in range(rank):
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]


@loops
def backward(factor: Any, rank: int, x: Any) -> None:
    """Solve L'z = x for z in place, where L is the leading block of size `rank` of the factor."""
    for i in range(rank - 1, -1, -1):
        x[i] /= factor[i, i]
        for j in range(i):
            x[j] -= factor[i, j] * x[i]
