"""RP-SON: Newton steps with a Hessian from a random projection (Luo et al. 2016)."""

import json
from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import compiled, inner
from robustfd._container import Document, Tensors
from robustfd.linalg.lapack import view_as
from robustfd.online.random_basis import (
    Direction,
    add_basis,
    backward,
    change_basis,
    cholesky,
    find_products,
    form_gram,
    forward,
    project,
    take_step,
)
from robustfd.online.rows import Batch, CsrRows, Extent, Floats
from robustfd.online.settings import BALL, NEXT, SETTINGS, SLAB, Settings, as_array, rate_at, slope_at
from robustfd.online.single_row import EXTREME, FINE, OUTSIDE, OVERFLOWED, REFRESH, RowState, is_safe, row_of
from robustfd.online.snapshot import Parts

EPS = 2.220446049250313e-16


class ProjectionModel(NamedTuple):
    """w = v + B'c and the Gram matrix BB', all initially zero."""

    settings: Floats
    seen: Any
    v: Floats
    bt: Floats  # (d, m): B'
    c: Floats
    gram: Floats  # (m, m)


class Scratch(NamedTuple):
    """Scratch memory of `solve_projection`; the first two vectors are part of its result."""

    coef_b: Any
    outside_b: Any
    lower: Any
    other: Any
    pivots: Any


class ProjectionState(RowState):
    """The state of RP-SON, with the generator of its random numbers."""

    shapes = {"v": "d", "bt": "dm", "c": "m", "gram": "mm"}

    def __init__(self, settings: Settings, d: int, m: int, generator: np.random.Generator, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.generator = generator
        self.model = ProjectionModel(
            as_array(settings), np.zeros(1, np.int64), np.zeros(d), np.zeros((d, m)), np.zeros(m), np.zeros((m, m))
        )

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        generator = self.generator.bit_generator
        before = None if self.kept else generator.state
        normal = self.generator.standard_normal((len(y), len(self.model.c)))
        status = learn_projection((data, indices, indptr), y, weight, margins, normal, self.model, self.kept)
        if before is not None and status != FINE:
            generator.state = before
        return int(status)

    def keep(self, extent: Extent) -> Any:
        """Return the copies that `undo` needs to revert rows of this extent."""
        return (*super().keep(extent), self.generator.bit_generator.state)

    def undo(self, kept: Any) -> None:
        """Restore the state from the result of `keep`."""
        *of_model, self.generator.bit_generator.state = kept
        super().undo(of_model)

    def weights(self) -> Floats:
        """Return w."""
        return self.model.v + self.model.bt @ self.model.c

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        bt = self.model.bt + other.bt  # the projection of all rows, since each row has its own random numbers
        return {"v": w, "bt": bt, "c": np.zeros_like(self.model.c), "gram": bt.T @ bt}

    def fraction(self, k: int, i: int) -> Any:
        """Return part i of k, with the same weights and an independent random sequence."""
        part = super().fraction(k, i)
        if i > 0:  # jump far ahead in the sequence, so that the parts do not overlap
            part.generator = np.random.Generator(part.generator.bit_generator.jumped(i))
        return part

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {"bt": self.model.bt / k, "c": self.model.c * k, "gram": self.model.gram / k**2}

    def pack(self) -> tuple[Document, Tensors]:
        """Return the numbers and arrays of the state, for a snapshot."""
        numbers, arrays = super().pack()
        return numbers | {"generator": json.dumps(self.generator.bit_generator.state)}, arrays

    def _unpack_more(self, parts: Parts) -> None:
        self.generator.bit_generator.state = json.loads(parts.text("generator"))


@compiled
def learn_projection(
    entries: Any, y: Any, weight: Any, margins: Any, normal: Any, model: ProjectionModel, kept: bool
) -> int:
    """Learn from the rows and fill their margins; return FINE, EXTREME or OVERFLOWED.

    Unless the caller has a copy of the model (`kept`), restore the model if the result is not FINE.
    """
    rows, batch = CsrRows(entries[0], entries[1], entries[2]), Batch(y, weight, margins)
    if kept:
        return _learn_rows(rows, batch, normal, model)
    seen, v, bt, c, gram = model.seen[0], model.v.copy(), model.bt.copy(), model.c.copy(), model.gram.copy()
    status = _learn_rows(rows, batch, normal, model)
    if status != FINE:
        model.seen[0], model.v[:], model.bt[:], model.c[:], model.gram[:] = seen, v, bt, c, gram
    return status


@inner
def _learn_rows(rows: CsrRows, batch: Batch, normal: Any, model: ProjectionModel) -> int:
    """Do the same as `learn_projection`, without restoring the model.

    The update is B += r a'/sqrt(m), where a = sqrt(mu + eta_t) g and r are m standard normal numbers from `normal`.
    """
    settings, seen = view_as(model.settings, 0, (1,), SETTINGS)[0], model.seen
    if settings.domain == BALL:
        raise ValueError("random sketches cannot project onto a ball")
    v, bt, c, gram, m = model.v, model.bt, model.c, model.gram, len(model.c)
    b, q = np.empty(m), np.empty(m)
    scratch = Scratch(np.empty(m), np.empty(m), np.empty((m, m)), np.empty((m, m)), np.empty(m, np.int64))
    status = FINE
    for i in range(len(batch.y)):
        row = row_of(rows, i)
        p, square = find_products(row, v, bt, b)
        for j in range(m):
            p += c[j] * b[j]
        if settings.domain == SLAB and settings.projection == NEXT and abs(p) > settings.bound:
            direction = solve_projection(settings.alpha0, gram, b, square, scratch)
            p = project(settings, row, v, c, p, direction)
        batch.margins[i] = p
        if not np.isfinite(p):
            return OVERFLOWED
        seen[0] += 1
        slope = slope_at(settings, p, batch.y[i])
        if not is_safe(p, slope, batch.weight[i], square):
            status = EXTREME
        scale = np.sqrt(batch.weight[i] * (settings.mu + rate_at(settings, seen[0]))) * slope
        if scale != 0.0:
            for j in range(m):
                q[j] = scale * normal[i, j] / np.sqrt(m)
            change_basis(row, v, bt, c, q)
            for j in range(m):
                for l in range(m):
                    gram[j, l] += (b[j] * q[l] + q[j] * b[l]) + square * (q[j] * q[l])
            for j in range(m):
                b[j] += square * q[j]
        step = batch.weight[i] * slope
        if step != 0.0 or abs(p) > settings.bound:
            direction = solve_projection(settings.alpha0, gram, b, square, scratch)
            if not np.isfinite(direction.kappa):
                return OVERFLOWED
            take_step(settings, row, v, c, p, step, direction)
        if seen[0] % max(REFRESH, len(v)) == 0:
            add_basis(v, bt, c)
            form_gram(bt, gram)
    return status


@inner
def solve_projection(alpha: float, gram: Any, b: Any, square: float, scratch: Scratch) -> Direction:
    """Return H^-1 x for a row with B x = b and x'x = square, from the Cholesky factor L of BB' + alpha I.

    With u = L^-1 B x, x'B'(BB' + alpha I)^-1 B x is u'u. When alpha = 0, pivoting puts r independent rows of B first,
    and the other rows of B are combinations of them. Then u = L_r^-1 B_r x, and H^+ x is B_r' L_r^-T (L'L)^-1 u.
    """
    m, (coef_b, outside_b, lower, other, pivots) = len(b), scratch
    u, z, n0, smallest, largest = np.zeros(m), np.zeros(m), square, np.inf, 0.0
    rank = _ranked_cholesky(gram, alpha, lower, pivots)
    for i in range(rank):
        u[i] = b[pivots[i]]
    forward(lower, rank, u)
    for i in range(rank):
        n0 -= u[i] * u[i]
        z[i] = u[i]
        smallest, largest = min(smallest, lower[i, i]), max(largest, lower[i, i])
    coef_x, kappa = 0.0, 0.0
    if alpha > 0.0:
        coef_x, kappa, n0 = 1.0 / alpha, max(n0, 0.0) / alpha, 0.0
        if rank < m:  # alpha is below the rounding error of BB', so there is no solution
            kappa = np.nan
    else:
        for i in range(rank):
            for j in range(i + 1):
                other[i, j] = 0.0
            for k in range(i, m):
                for j in range(i + 1):
                    other[i, j] += lower[k, i] * lower[k, j]
        if not cholesky(other, rank):
            kappa = np.nan
        forward(other, rank, z)
        for i in range(rank):
            kappa += z[i] * z[i]
        backward(other, rank, z)
        # the relative error of u'u is eps times the condition number
        if not n0 > square * max(OUTSIDE, 16.0 * m * EPS * (largest / smallest) ** 2 if rank > 0 else 0.0):
            n0 = 0.0
    backward(lower, rank, z)
    backward(lower, rank, u)
    for i in range(m):
        coef_b[pivots[i]] = z[i] if alpha == 0.0 else -z[i] / alpha
        outside_b[pivots[i]] = u[i]
    return Direction(coef_x, coef_b, kappa, outside_b, n0)


@inner
def _ranked_cholesky(a: Any, alpha: float, lower: Any, pivots: Any) -> int:
    """Fill L with (a + alpha I)[pivots][:, pivots] = L L' and return the rank r, the number of columns of L.

    For alpha = 0, a row counts as independent of the earlier ones if more than the fraction OUTSIDE of its squared
    length is outside their span. For alpha > 0, any positive fraction is enough.
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
