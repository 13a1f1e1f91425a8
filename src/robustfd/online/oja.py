"""Oja-SON: Newton steps with a Hessian from Oja's algorithm (Luo et al. 2016).

The update is V = orth(V + (1/t)(V a) a'), Lambda = (1 - 1/t) Lambda + (1/t) (V a)^2, B = sqrt(t Lambda) V, with a as in
RP-SON. orth orthonormalizes the rows in order. The implementation stores V = F Y with F lower triangular. With h = V a,
the Gram matrix of V + h a'/t is I + gamma h h'. So orth multiplies F by the inverse of the Cholesky factor of this
matrix, and Y only changes by F^-1 h a'/t.
"""

from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import compiled, inner
from robustfd.linalg.lapack import view_as
from robustfd.online.random_basis import (
    Direction,
    add_basis,
    change_basis,
    cholesky,
    find_products,
    form_gram,
    forward,
    project,
    take_step,
)
from robustfd.online.rows import Batch, CsrRows, Floats
from robustfd.online.settings import BALL, NEXT, SETTINGS, SLAB, Settings, as_array, rate_at, slope_at
from robustfd.online.single_row import EXTREME, FINE, OUTSIDE, OVERFLOWED, REFRESH, Row, RowState, is_safe, row_of

WORST = 1e-3  # Y is orthonormalized again when a diagonal entry of F is below this,
LONG = 100.0  # and before a step whose squared length is above this


class OjaModel(NamedTuple):
    """w = v + Y'c, with V = F Y orthonormal and the energy along each of its rows."""

    settings: Floats
    seen: Any
    v: Floats
    yt: Floats  # (d, m): Y', initially with orthonormal columns
    c: Floats
    energy: Floats  # (m,): t Lambda
    f: Floats  # (m, m): F, initially I


class Scratch(NamedTuple):
    """Scratch memory of a row."""

    b: Any  # Y x
    z: Any  # V x
    h: Any  # V a
    q: Any
    coef_b: Any
    outside_b: Any


class OjaState(RowState):
    """The state of Oja-SON."""

    shapes = {"v": "d", "yt": "dk", "c": "k", "energy": "k", "f": "kk"}

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        m = min(m, d)
        yt = np.ascontiguousarray(np.linalg.qr(generator.standard_normal((d, m)))[0])
        self.model = OjaModel(
            as_array(settings), np.zeros(1, np.int64), np.zeros(d), yt, np.zeros(m), np.zeros(m), np.eye(m)
        )

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        return int(learn_oja(data, indices, indptr, y, weight, margins, self.model, self.kept))

    def weights(self) -> Floats:
        """Return w."""
        return self.model.v + self.model.yt @ self.model.c

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        m, models = len(self.model.c), (self.model, other)
        directions = [each.f @ each.yt.T for each in models]
        rows = np.vstack([np.sqrt(each.energy)[:, None] * v for each, v in zip(models, directions, strict=True)])
        # The iteration needs m directions, even those without energy.
        little = 1e-12 * max(float(np.abs(rows).max()), 1e-150) * directions[0]
        _, s, v = np.linalg.svd(np.vstack([rows, little]), full_matrices=False)
        energy = np.where(s[:m] > 1e-9 * s[0], np.square(s[:m]), 0.0)
        yt = np.ascontiguousarray(v[:m].T)
        return {"v": w, "yt": yt, "c": np.zeros(m), "energy": energy, "f": np.eye(m)}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {"energy": self.model.energy / k}


@compiled
def learn_oja(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, margins: Any, model: OjaModel, kept: bool
) -> int:
    """Learn from the rows and fill their margins; return FINE, EXTREME or OVERFLOWED.

    Unless the caller has a copy of the model (`kept`), restore the model if the result is not FINE.
    """
    rows = CsrRows(data, indices, indptr)
    if kept:
        return _learn_rows(rows, Batch(y, weight, margins), model)
    seen, v, yt, c = model.seen[0], model.v.copy(), model.yt.copy(), model.c.copy()
    energy, f = model.energy.copy(), model.f.copy()
    status = _learn_rows(rows, Batch(y, weight, margins), model)
    if status != FINE:
        model.seen[0], model.v[:], model.yt[:], model.c[:] = seen, v, yt, c
        model.energy[:], model.f[:] = energy, f
    return status


@inner
def _learn_rows(rows: CsrRows, batch: Batch, model: OjaModel) -> int:
    """Do the same as `learn_oja`, without restoring the model."""
    settings, seen = view_as(model.settings, 0, (1,), SETTINGS)[0], model.seen
    if settings.domain == BALL:
        raise ValueError("random sketches cannot project onto a ball")
    v, yt, c, f, m = model.v, model.yt, model.c, model.f, len(model.c)
    scratch = Scratch(np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m))
    b, z = scratch.b, scratch.z
    status = FINE
    for i in range(len(batch.y)):
        row = row_of(rows, i)
        p, square = find_products(row, v, yt, b)
        for j in range(m):
            p += c[j] * b[j]
            z[j] = 0.0
            for l in range(j + 1):
                z[j] += f[j, l] * b[l]
        if settings.domain == SLAB and settings.projection == NEXT and abs(p) > settings.bound:
            direction = solve_oja(settings.alpha0, model, square, scratch)
            p = project(settings, row, v, c, p, direction)
        batch.margins[i] = p
        if not np.isfinite(p):
            return OVERFLOWED
        seen[0] += 1
        slope = slope_at(settings, p, batch.y[i])
        if not is_safe(p, slope, batch.weight[i], square):
            status = EXTREME
        scale = np.sqrt(batch.weight[i] * (settings.mu + rate_at(settings, seen[0]))) * slope
        if scale != 0.0 and not _update_basis(row, square, scale, float(seen[0]), model, scratch):
            return OVERFLOWED
        step = batch.weight[i] * slope
        if step != 0.0 or abs(p) > settings.bound:
            direction = solve_oja(settings.alpha0, model, square, scratch)
            if not np.isfinite(direction.kappa):
                return OVERFLOWED
            take_step(settings, row, v, c, p, step, direction)
        smallest = 1.0
        for j in range(m):
            smallest = min(smallest, f[j, j])
        if (smallest < WORST or seen[0] % max(REFRESH, len(v)) == 0) and not _fold(model):
            return OVERFLOWED
    return status


@inner
def _update_basis(row: Row, square: float, scale: float, t: float, model: OjaModel, scratch: Scratch) -> bool:
    """Update V and Lambda with a = scale x at time t, and scratch.z to the new V x; return whether it succeeded."""
    _, z, h, q, _, _ = scratch
    f, m, step2 = model.f, len(z), 0.0
    gamma = (2.0 + scale * scale * square / t) / t
    for j in range(m):
        h[j] = scale * z[j]
        step2 += gamma * h[j] * h[j]
    if step2 > LONG and not _fold(model):
        return False
    for j in range(m):
        model.energy[j] += h[j] * h[j]
        total = h[j]
        for l in range(j):
            total -= f[j, l] * q[l]
        q[j] = total / f[j, j]
    for j in range(m):
        q[j] *= scale / t
    change_basis(row, model.v, model.yt, model.c, q)
    _orthonormal_step(f, z, h, gamma, (1.0 + scale * scale * square / t) / scale)
    return True


@inner
def solve_oja(alpha: float, model: OjaModel, square: float, scratch: Scratch) -> Direction:
    """Return H^-1 x for a row with V x = scratch.z and x'x = square, in terms of Y."""
    f, energy, z, coef_b, outside_b = model.f, model.energy, scratch.z, scratch.coef_b, scratch.outside_b
    m, kappa, n0, largest = len(z), 0.0, square, 0.0
    coef_v, outside_v = np.zeros(m), np.zeros(m)
    for j in range(m):
        largest = max(largest, energy[j])
    for j in range(m):
        if alpha > 0.0:
            coef_v[j] = -energy[j] / (energy[j] + alpha) * z[j] / alpha
            kappa += z[j] * z[j] / (energy[j] + alpha)
            n0 -= z[j] * z[j]
        elif energy[j] > OUTSIDE * largest:
            coef_v[j], outside_v[j] = z[j] / energy[j], z[j]
            kappa += z[j] * z[j] / energy[j]
            n0 -= z[j] * z[j]
    for l in range(m):
        coef_b[l], outside_b[l] = 0.0, 0.0
        for j in range(l, m):
            coef_b[l] += f[j, l] * coef_v[j]
            outside_b[l] += f[j, l] * outside_v[j]
    if alpha > 0.0:
        return Direction(1.0 / alpha, coef_b, kappa + max(n0, 0.0) / alpha, outside_b, 0.0)
    return Direction(0.0, coef_b, kappa, outside_b, n0 if n0 > OUTSIDE * square else 0.0)


@inner
def _orthonormal_step(f: Any, z: Any, h: Any, gamma: float, along: float) -> None:
    """Set F to L^-1 F and z to along L^-1 h, where L is the Cholesky factor of I + gamma h h'.

    With d_j = 1 + gamma (h_1^2 + ... + h_j^2) and r_j = sqrt(d_j d_{j-1}), L^-1 has d_{j-1} / r_j on its diagonal and
    -gamma h_j h_k / r_j below it, and L^-1 h is h_j / r_j. Substitution would lose digits when gamma h'h is large.
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


@inner
def _fold(model: OjaModel) -> bool:
    """Set v to w, Y to F Y (orthonormalized to remove rounding error) and F to I; return whether it succeeded."""
    yt, f, m = model.yt, model.f, len(model.f)
    add_basis(model.v, yt, model.c)
    transposed = np.zeros((m, m))
    for j in range(m):
        for l in range(j + 1):
            transposed[l, j] = f[j, l]
    _multiply(yt, transposed)
    form_gram(yt, f)
    if not cholesky(f, m):
        return False
    for j in range(m):  # row j becomes column j of L^-1
        for l in range(m):
            transposed[j, l] = 1.0 if l == j else 0.0
        forward(f, m, transposed[j])
    _multiply(yt, transposed)
    for i in range(m):
        for j in range(m):
            f[i, j] = 1.0 if i == j else 0.0
    return True


@inner
def _multiply(yt: Any, transposed: Any) -> None:
    """Set Y to T Y for a lower triangular T, given by its transpose."""
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
