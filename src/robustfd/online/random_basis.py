"""What RP-SON and Oja-SON share: H = B'B + alpha0 I where every row of the data changes every row of B.

B is m x d, and the weights are kept as w = v + B'c (Y for B in Oja's case). So w stays as it is when B moves by q a' if
v moves by -(q'c) a. And H^-1 x is x and B' times something, so a step moves v along x only, and c. A row costs
O(m nnz + m^3), and nothing is of length d.

With alpha0 = 0 the pseudo-inverse takes the place of the inverse, and the part x_0 of a row that is outside the row
space of B, if there is one, may move for free in the projection. The domain is a slab or none.
"""

from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import loops
from robustfd.online.settings import CURRENT, SLAB
from robustfd.online.single_row import Row


class Direction(NamedTuple):
    """What H says of a row x: H^-1 x = on_x x + B' on_b and x_0 = x - B' outside_b."""

    on_x: float
    on_b: Any
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
    """Let B be B + q x', w staying as it is."""
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
    """Move w by -step H^-1 x, p being w'x before, and project it if that is wanted after the step."""
    _move(row, v, c, step, direction.on_x, direction.on_b)
    if settings.domain == SLAB and settings.projection == CURRENT:
        project(settings, row, v, c, p - step * direction.kappa, direction)


@loops
def project(settings: Any, row: Row, v: Any, c: Any, p: float, direction: Direction) -> float:
    """Project w onto |w'x| <= bound in the norm of H, p being w'x; return the margin after it."""
    n0, kappa, outside_b = direction.n0, direction.kappa, direction.outside_b
    if not abs(p) > settings.bound or (n0 == 0.0 and not kappa > 0.0):
        return p
    clipped = np.copysign(settings.bound, p)
    if n0 > 0.0:
        for j in range(len(c)):
            outside_b[j] = -outside_b[j]
        _move(row, v, c, (p - clipped) / n0, 1.0, outside_b)
    else:
        _move(row, v, c, (p - clipped) / kappa, direction.on_x, direction.on_b)
    return clipped


@loops
def _move(row: Row, v: Any, c: Any, step: float, on_x: float, on_b: Any) -> None:
    """Move w by -step (on_x x + B' on_b)."""
    columns, values = row
    if on_x != 0.0 and step != 0.0:
        for k in range(len(columns)):
            v[columns[k]] -= step * on_x * values[k]
    for j in range(len(c)):
        c[j] -= step * on_b[j]


@loops
def add_basis(v: Any, bt: Any, c: Any) -> None:
    """Put B'c into v."""
    for i in range(len(v)):
        for j in range(len(c)):
            v[i] += bt[i, j] * c[j]
    for j in range(len(c)):
        c[j] = 0.0


@loops
def form_gram(bt: Any, gram: Any) -> None:
    """Fill gram with BB'."""
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
    """Overwrite the lower triangle of a's leading part with its Cholesky factor; return whether there is one."""
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
    """Solve L x = x in place, L being the first `rank` rows of the factor."""
    for i in range(rank):
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]


@loops
def backward(factor: Any, rank: int, x: Any) -> None:
    """Solve L'x = x in place."""
    for i in range(rank - 1, -1, -1):
        x[i] /= factor[i, i]
        for j in range(i):
            x[j] -= factor[i, j] * x[i]
