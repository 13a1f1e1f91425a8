"""Newton steps with a random projection and with Oja's algorithm, in O(m nnz + m^3) a row: nothing is of length d.

Rows come as in `_first_order`. Both learners have H = B'B + alpha0 I with an m x d matrix B of which every row of the
data changes every row, so the weights are kept as w = v + B'c (Y for B in Oja's case): w then stays as it is when B
moves by q a' if v moves by -(q'c) a, and H^-1 x is x and B' times something, so a step moves v along x only, and c.

With alpha0 = 0 the pseudo-inverse takes the place of the inverse, and the part x_0 of a row that is outside the row
space of B, if there is one, may move for free in the projection. The domain is a slab or none.
"""

from typing import Any

import numpy as np

from robustfd.linalg._compile import compiled
from robustfd.online._first_order import (
    BALL,
    CURRENT,
    NEXT,
    OUTSIDE,
    REFRESH,
    SLAB,
    Settings,
    gradient,
    rate_at,
    row_of,
)

EPS = 2.220446049250313e-16
WORST = 1e-3  # the smallest diagonal entry of F before Y is made orthonormal again,
LONG = 100.0  # or a step so long that Y is made orthonormal before it


@compiled
def learn_projection(
    settings: Settings,
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    weight: Any,
    normal: Any,
    v: Any,
    bt: Any,
    c: Any,
    gram: Any,
    seen: Any,
    margins: Any,
) -> int:
    """Learn the rows with RP-SON and fill their margins; return 0, or 1 if the numbers ceased to be finite.

    B += r a'/sqrt(m) with a = sqrt(mu + eta_t) g, and r the row's own m standard normals, in `normal` (Luo et al.
    2016). The state is v, B' in `bt` (d, m), c and BB' in `gram`, all zero at the start, and the number of rows,
    seen[0].
    """
    if settings.domain == BALL:
        raise ValueError("random sketches have no projection onto a ball")
    m = len(c)
    b, q, on_b, outside_b = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    lower, other, pivots = np.empty((m, m)), np.empty((m, m)), np.empty(m, np.int64)
    for i in range(len(y)):
        columns, values = row_of(data, indices, indptr, i)
        p, square = _products(columns, values, v, bt, b)
        for j in range(m):
            p += c[j] * b[j]
        if settings.domain == SLAB and settings.projection == NEXT and abs(p) > settings.bound:
            on_x, kappa, n0 = _solve_projection(settings.alpha0, gram, b, square, lower, other, pivots, on_b, outside_b)
            p = _project(settings, columns, values, v, c, p, on_x, on_b, kappa, outside_b, n0)
        margins[i] = p
        if not np.isfinite(p):
            return 1
        seen[0] += 1
        slope = gradient(settings, p, y[i])
        scale = np.sqrt(weight[i] * (settings.mu + rate_at(settings, seen[0]))) * slope
        if scale != 0.0:
            along_c = 0.0
            for j in range(m):
                q[j] = scale * normal[i, j] / np.sqrt(m)
                along_c += q[j] * c[j]
            for k in range(len(columns)):
                x, row = values[k], bt[columns[k]]
                v[columns[k]] -= along_c * x
                for j in range(m):
                    row[j] += x * q[j]
            for j in range(m):
                for l in range(m):
                    gram[j, l] += (b[j] * q[l] + q[j] * b[l]) + square * (q[j] * q[l])
            for j in range(m):
                b[j] += square * q[j]
        step = weight[i] * slope
        if step != 0.0 or abs(p) > settings.bound:
            on_x, kappa, n0 = _solve_projection(settings.alpha0, gram, b, square, lower, other, pivots, on_b, outside_b)
            if not np.isfinite(kappa):
                return 1
            _move(columns, values, v, c, step, on_x, on_b)
            if settings.domain == SLAB and settings.projection == CURRENT:
                p -= step * kappa
                _project(settings, columns, values, v, c, p, on_x, on_b, kappa, outside_b, n0)
        if seen[0] % max(REFRESH, len(v)) == 0:
            _add_basis(v, bt, c)
            _form_gram(bt, gram)
    return 0


@compiled
def learn_oja(
    settings: Settings,
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    weight: Any,
    v: Any,
    yt: Any,
    f: Any,
    energy: Any,
    c: Any,
    seen: Any,
    margins: Any,
) -> int:
    """Learn the rows with Oja-SON and fill their margins; return 0, or 1 if the numbers ceased to be finite.

    V = orth(V + (1/t)(V a) a'), Lambda = (1 - 1/t) Lambda + (1/t) (V a)^2, B = sqrt(t Lambda) V (Luo et al. 2016), with
    a as in RP-SON and orth in the order of the rows. V = F Y with F lower triangular: V + h a'/t has the Gram matrix
    I + gamma h h', so orth is its Cholesky factor, which goes into F, and Y only takes the row, F^-1 h a'/t.

    The state is v, Y' in `yt` (d, m), orthonormal columns at the start, F in `f`, I at the start, t Lambda in `energy`
    and c, zero at the start, and the number of rows, seen[0]. The weights are v + Y'c.
    """
    if settings.domain == BALL:
        raise ValueError("random sketches have no projection onto a ball")
    m = len(c)
    b, h, z, q, on_b, outside_b = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for i in range(len(y)):
        columns, values = row_of(data, indices, indptr, i)
        p, square = _products(columns, values, v, yt, b)
        for j in range(m):
            p += c[j] * b[j]
            z[j] = 0.0
            for l in range(j + 1):
                z[j] += f[j, l] * b[l]
        if settings.domain == SLAB and settings.projection == NEXT and abs(p) > settings.bound:
            on_x, kappa, n0 = _solve_oja(settings.alpha0, f, energy, z, square, on_b, outside_b)
            p = _project(settings, columns, values, v, c, p, on_x, on_b, kappa, outside_b, n0)
        margins[i] = p
        if not np.isfinite(p):
            return 1
        seen[0] += 1
        t = float(seen[0])
        slope = gradient(settings, p, y[i])
        scale = np.sqrt(weight[i] * (settings.mu + rate_at(settings, seen[0]))) * slope
        if scale != 0.0:
            along_c, step2 = 0.0, 0.0
            gamma = (2.0 + scale * scale * square / t) / t
            for j in range(m):
                h[j] = scale * z[j]
                step2 += gamma * h[j] * h[j]
            if step2 > LONG and not _fold(v, yt, c, f):
                return 1
            for j in range(m):
                energy[j] += h[j] * h[j]
                total = h[j]
                for l in range(j):
                    total -= f[j, l] * q[l]
                q[j] = total / f[j, j]
            for j in range(m):
                q[j] *= scale / t
                along_c += q[j] * c[j]
            for k in range(len(columns)):
                x, row = values[k], yt[columns[k]]
                v[columns[k]] -= along_c * x
                for j in range(m):
                    row[j] += x * q[j]
            _orthonormal_step(f, z, h, gamma, (1.0 + scale * scale * square / t) / scale)
        step = weight[i] * slope
        if step != 0.0 or abs(p) > settings.bound:
            on_x, kappa, n0 = _solve_oja(settings.alpha0, f, energy, z, square, on_b, outside_b)
            if not np.isfinite(kappa):
                return 1
            _move(columns, values, v, c, step, on_x, on_b)
            if settings.domain == SLAB and settings.projection == CURRENT:
                p -= step * kappa
                _project(settings, columns, values, v, c, p, on_x, on_b, kappa, outside_b, n0)
        smallest = 1.0
        for j in range(m):
            smallest = min(smallest, f[j, j])
        if (smallest < WORST or seen[0] % max(REFRESH, len(v)) == 0) and not _fold(v, yt, c, f):
            return 1
    return 0


# ------------------------------------------------------------- for both
# H^-1 x = on_x x + B' on_b, kappa = x'H^-1 x; x_0 = x - B' outside_b and n0 = x_0'x_0, or 0 if x_0 counts as zero.


@compiled
def _products(columns: Any, values: Any, v: Any, bt: Any, b: Any) -> Any:
    """Fill b with B x and return v'x and x'x."""
    p, square = 0.0, 0.0
    for j in range(len(b)):
        b[j] = 0.0
    for k in range(len(columns)):
        x, row = values[k], bt[columns[k]]
        p += v[columns[k]] * x
        square += x * x
        for j in range(len(b)):
            b[j] += x * row[j]
    return p, square


@compiled
def _move(columns: Any, values: Any, v: Any, c: Any, step: float, on_x: float, on_b: Any) -> None:
    """Move w by -step (on_x x + B' on_b)."""
    if on_x != 0.0 and step != 0.0:
        for k in range(len(columns)):
            v[columns[k]] -= step * on_x * values[k]
    for j in range(len(c)):
        c[j] -= step * on_b[j]


@compiled
def _project(
    settings: Settings, columns: Any, values: Any, v: Any, c: Any, p: float,
    on_x: float, on_b: Any, kappa: float, outside_b: Any, n0: float,
) -> float:  # fmt: skip
    """Project w onto |w'x| <= bound in the norm of H, p being w'x; return the margin after it."""
    if not abs(p) > settings.bound or (n0 == 0.0 and not kappa > 0.0):
        return p
    clipped = np.copysign(settings.bound, p)
    if n0 > 0.0:
        for j in range(len(c)):
            outside_b[j] = -outside_b[j]
        _move(columns, values, v, c, (p - clipped) / n0, 1.0, outside_b)
    else:
        _move(columns, values, v, c, (p - clipped) / kappa, on_x, on_b)
    return clipped


@compiled
def _add_basis(v: Any, bt: Any, c: Any) -> None:
    """Put B'c into v."""
    for i in range(len(v)):
        for j in range(len(c)):
            v[i] += bt[i, j] * c[j]
    for j in range(len(c)):
        c[j] = 0.0


@compiled
def _form_gram(bt: Any, gram: Any) -> None:
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


@compiled
def _cholesky(a: Any, size: int) -> bool:
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


@compiled
def _forward(factor: Any, rank: int, x: Any) -> None:
    """Solve L x = x in place, L being the first `rank` rows of the factor."""
    for i in range(rank):
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]


@compiled
def _backward(factor: Any, rank: int, x: Any) -> None:
    """Solve L'x = x in place."""
    for i in range(rank - 1, -1, -1):
        x[i] /= factor[i, i]
        for j in range(i):
            x[j] -= factor[i, j] * x[i]


# --------------------------------------------------- random projection


@compiled
def _solve_projection(
    alpha: float, gram: Any, b: Any, square: float, lower: Any, other: Any, pivots: Any, on_b: Any, outside_b: Any
) -> Any:
    """Fill on_b and outside_b and return on_x, kappa and n0, by Cholesky factors of BB' + alpha I.

    With u = L^-1 B x, x'B'(BB' + alpha I)^-1 B x is u'u. When alpha = 0 the first r rows of L are, after pivoting,
    those of independent rows of B, and the rest of B follows from them: then u = L_r^-1 B_r x, and H^+ x is
    B_r' L_r^-T (L'L)^-1 u.
    """
    m = len(b)
    u, z, n0, smallest, largest = np.zeros(m), np.zeros(m), square, np.inf, 0.0
    rank = _ranked_cholesky(gram, alpha, lower, pivots)
    for i in range(rank):
        u[i] = b[pivots[i]]
    _forward(lower, rank, u)
    for i in range(rank):
        n0 -= u[i] * u[i]
        z[i] = u[i]
        smallest, largest = min(smallest, lower[i, i]), max(largest, lower[i, i])
    on_x, kappa = 0.0, 0.0
    if alpha > 0.0:
        on_x, kappa, n0 = 1.0 / alpha, max(n0, 0.0) / alpha, 0.0
        if rank < m:  # alpha is below the round-off of BB': there is no answer
            kappa = np.nan
    else:
        for i in range(rank):
            for j in range(i + 1):
                other[i, j] = 0.0
            for k in range(i, m):
                for j in range(i + 1):
                    other[i, j] += lower[k, i] * lower[k, j]
        if not _cholesky(other, rank):
            kappa = np.nan
        _forward(other, rank, z)
        for i in range(rank):
            kappa += z[i] * z[i]
        _backward(other, rank, z)
        # u'u is known to eps times the condition number only
        if not n0 > square * max(OUTSIDE, 16.0 * m * EPS * (largest / smallest) ** 2 if rank > 0 else 0.0):
            n0 = 0.0
    _backward(lower, rank, z)
    _backward(lower, rank, u)
    for i in range(m):
        on_b[pivots[i]] = z[i] if alpha == 0.0 else -z[i] / alpha
        outside_b[pivots[i]] = u[i]
    return on_x, kappa, n0


@compiled
def _ranked_cholesky(a: Any, alpha: float, lower: Any, pivots: Any) -> int:
    """Fill L with (a + alpha I)[pivots][:, pivots] = L L' and return the rank r, the number of columns of L.

    A row counts as independent of those before it if more than OUTSIDE of its own squared length is new, with
    alpha > 0 if anything is.
    """
    n, least = len(a), OUTSIDE if alpha == 0.0 else 0.0
    left = np.empty(n)
    for i in range(n):
        pivots[i], left[i] = i, a[i, i] + alpha
    for k in range(n):
        best, share = k, 0.0
        for i in range(k, n):
            own = a[pivots[i], pivots[i]] + alpha
            if own > 0.0 and left[i] > share * own:
                best, share = i, left[i] / own
        if not share > least:
            return k
        pivots[k], pivots[best] = pivots[best], pivots[k]
        left[k], left[best] = left[best], left[k]
        for j in range(k):
            lower[k, j], lower[best, j] = lower[best, j], lower[k, j]
        lower[k, k] = np.sqrt(left[k])
        for i in range(k + 1, n):
            total = a[pivots[i], pivots[k]]
            for j in range(k):
                total -= lower[i, j] * lower[k, j]
            lower[i, k] = total / lower[k, k]
            left[i] -= lower[i, k] * lower[i, k]
    return n


# ------------------------------------------------------------------ Oja


@compiled
def _solve_oja(alpha: float, f: Any, energy: Any, z: Any, square: float, on_b: Any, outside_b: Any) -> Any:
    """Fill on_b and outside_b, in terms of Y, and return on_x, kappa and n0; z is V x."""
    m, kappa, n0, largest = len(z), 0.0, square, 0.0
    on_v, outside_v = np.zeros(m), np.zeros(m)
    for j in range(m):
        largest = max(largest, energy[j])
    for j in range(m):
        if alpha > 0.0:
            on_v[j] = -energy[j] / (energy[j] + alpha) * z[j] / alpha
            kappa += z[j] * z[j] / (energy[j] + alpha)
            n0 -= z[j] * z[j]
        elif energy[j] > OUTSIDE * largest:
            on_v[j], outside_v[j] = z[j] / energy[j], z[j]
            kappa += z[j] * z[j] / energy[j]
            n0 -= z[j] * z[j]
    for l in range(m):
        on_b[l], outside_b[l] = 0.0, 0.0
        for j in range(l, m):
            on_b[l] += f[j, l] * on_v[j]
            outside_b[l] += f[j, l] * outside_v[j]
    if alpha > 0.0:
        return 1.0 / alpha, kappa + max(n0, 0.0) / alpha, 0.0
    return 0.0, kappa, n0 if n0 > OUTSIDE * square else 0.0


@compiled
def _orthonormal_step(f: Any, z: Any, h: Any, gamma: float, along: float) -> None:
    """Set F to L^-1 F and z to along L^-1 h, L the Cholesky factor of I + gamma h h'.

    With d_j = 1 + gamma (h_1^2 + ... + h_j^2) and r_j = sqrt(d_j d_{j-1}), L^-1 has d_{j-1} / r_j on its diagonal and
    -gamma h_j h_k / r_j below it, and L^-1 h is h_j / r_j. Substitution would lose digits where gamma h'h is large.
    """
    m, before = len(h), 1.0
    total = np.zeros(m)
    for j in range(m):
        now = before + gamma * h[j] * h[j]
        root = np.sqrt(before) * np.sqrt(now)
        for l in range(j + 1):
            old = f[j, l]
            f[j, l] = (before * old - gamma * h[j] * total[l]) / root
            total[l] += h[j] * old
        z[j] = along * h[j] / root
        before = now


@compiled
def _fold(v: Any, yt: Any, c: Any, f: Any) -> bool:
    """Set v to w, Y to F Y with its round-off taken away by Gram-Schmidt, and F to I; return whether that worked."""
    m = len(f)
    _add_basis(v, yt, c)
    transposed = np.zeros((m, m))
    for j in range(m):
        for l in range(j + 1):
            transposed[l, j] = f[j, l]
    _multiply(yt, transposed)
    _form_gram(yt, f)
    if not _cholesky(f, m):
        return False
    for j in range(m):  # row j becomes column j of L^-1
        for l in range(m):
            transposed[j, l] = 1.0 if l == j else 0.0
        _forward(f, m, transposed[j])
    _multiply(yt, transposed)
    for i in range(m):
        for j in range(m):
            f[i, j] = 1.0 if i == j else 0.0
    return True


@compiled
def _multiply(yt: Any, transposed: Any) -> None:
    """Set Y to T Y for a lower triangular T, given by its columns."""
    m = len(transposed)
    new = np.empty(m)
    for i in range(len(yt)):
        row = yt[i]
        for j in range(m):
            new[j] = 0.0
        for l in range(m):
            x, column = row[l], transposed[l]
            for j in range(l, m):
                new[j] += x * column[j]
        for j in range(m):
            row[j] = new[j]
