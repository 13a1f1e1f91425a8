"""First-order steps in compiled loops: ADAGRAD and online gradient descent, in time of a row's non-zeros.

A row is its columns and its values. The kernels take CSR arrays with int32 indices; a dense array goes in as its
flat values, with `indices` all columns and an empty `indptr`.

Common to all learners of single rows: a slope of at most NO_GRADIENT max(1, |y|) is none, as it is the round-off of a
margin that equals its label; a projected w has the margin +-bound at its row.
"""

from typing import Any, NamedTuple

import numpy as np

from robustfd.linalg._compile import compiled
from robustfd.online.losses import loss_slope

NO_DOMAIN, SLAB, BALL = range(3)  # Settings.domain
NO_PROJECTION, CURRENT, NEXT = range(3)  # Settings.projection: onto K_t after the step, or K_{t+1} before predicting
NO_GRADIENT = 1e-9
OUTSIDE = 1e-11  # of its squared length that a row must have outside the span of others to count as outside
REFRESH = 1024  # sums kept by updates are formed again after this many rows, or as many as there are columns
SMALLEST_SCALE = 1e-8
SCALE, SQUARED_NORM = range(2)  # places in the scalars of gradient descent


class Settings(NamedTuple):
    """What a learner of single rows is told; the rate at row t is rate / t^power."""

    loss: int
    delta: float
    mu: float
    rate: float
    power: float
    alpha0: float
    bound: float
    domain: int
    projection: int


@compiled
def row_of(data: Any, indices: Any, indptr: Any, i: int) -> Any:
    """Return the columns and the values of row i."""
    if len(indptr) == 0:
        d = len(indices)
        return indices, data[i * d : (i + 1) * d]
    return indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]


@compiled
def usable(x: Any, y: Any, largest: float) -> bool:
    """Return whether all numbers of both arrays, of one dimension, are at most so large; of NaN it is false."""
    for values in (x, y):
        for i in range(len(values)):
            if not abs(values[i]) <= largest:
                return False
    return True


@compiled
def gradient(settings: Settings, p: float, y: float) -> float:
    """Return the slope of the loss at the margin p, or exactly 0."""
    slope = loss_slope(settings.loss, p, y, settings.delta)
    return slope if abs(slope) > NO_GRADIENT * max(1.0, abs(y)) else 0.0


@compiled
def rate_at(settings: Settings, t: int) -> float:
    """Return the rate at row t, counted from 1."""
    return settings.rate / float(t) ** settings.power


@compiled
def learn_adagrad(
    settings: Settings, data: Any, indices: Any, indptr: Any, y: Any, weight: Any, w: Any, squares: Any, margins: Any
) -> int:
    """Learn the rows and fill their margins; return 0, or 1 if the numbers ceased to be finite.

    S_i += g_i^2, h_i = sqrt(alpha0 + S_i), w_i -= g_i / h_i (Duchi et al. 2011, as run by Luo et al. 2019; the state
    is w and S, in `squares`), then the projection onto the slab in the norm of diag(h). A ball is refused: there every
    weight moves by a factor of its own, h_i / (h_i + nu), and nu itself is a sum over all columns.
    """
    if settings.domain == BALL:
        raise ValueError("AdaGrad cannot project onto a ball in time of a row's non-zeros")
    slab = settings.domain == SLAB
    for i in range(len(y)):
        columns, values = row_of(data, indices, indptr, i)
        p = 0.0
        for k in range(len(columns)):
            p += w[columns[k]] * values[k]
        if slab and settings.projection == NEXT:
            p = _clip_adagrad(settings, columns, values, w, squares, p)
        margins[i] = p
        if not np.isfinite(p):
            return 1
        g = weight[i] * gradient(settings, p, y[i])
        if g != 0.0:
            p = 0.0
            for k in range(len(columns)):
                j, x = columns[k], values[k]
                squares[j] += (g * x) * (g * x)
                h = np.sqrt(settings.alpha0 + squares[j])
                if h > 0.0:
                    w[j] -= g * x / h
                p += w[j] * x
        if slab and settings.projection == CURRENT:
            _clip_adagrad(settings, columns, values, w, squares, p)
    return 0


@compiled
def _clip_adagrad(settings: Settings, columns: Any, values: Any, w: Any, squares: Any, p: float) -> float:
    """Project w onto |w'x| <= bound in the norm of diag(h), p being w'x; return the margin after it.

    With alpha0 = 0 a feature that never had a gradient has h = 0 and moves for free.
    """
    if not abs(p) > settings.bound:
        return p
    along, free, square = 0.0, 0.0, 0.0
    for k in range(len(columns)):
        h, x = np.sqrt(settings.alpha0 + squares[columns[k]]), values[k]
        square += x * x
        if h > 0.0:
            along += x * x / h
        else:
            free += x * x
    moves_free = free > OUTSIDE * square
    if not moves_free and along == 0.0:
        return p
    clipped = np.copysign(settings.bound, p)
    step = (p - clipped) / (free if moves_free else along)
    for k in range(len(columns)):
        j = columns[k]
        h = np.sqrt(settings.alpha0 + squares[j])
        if moves_free:
            w[j] -= step * values[k] if h == 0.0 else 0.0
        elif h > 0.0:
            w[j] -= step * values[k] / h
    return clipped


@compiled
def learn_gradient_descent(
    settings: Settings,
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    weight: Any,
    v: Any,
    scalars: Any,
    seen: Any,
    margins: Any,
) -> int:
    """Learn the rows and fill their margins; return 0, or 1 if the numbers ceased to be finite.

    w -= rate_t g, then the Euclidean projection (Zinkevich 2003). The state is w = scalars[SCALE] v, its squared length
    scalars[SQUARED_NORM] (both kept for the ball only; 1 and 0 at the start) and the number of rows, seen[0]. The
    ball is the same for every row, so it is projected onto after the step whichever projection is asked for.
    """
    slab, ball = settings.domain == SLAB, settings.domain == BALL and settings.projection != NO_PROJECTION
    for i in range(len(y)):
        columns, values = row_of(data, indices, indptr, i)
        p, square, move = 0.0, 0.0, 0.0
        for k in range(len(columns)):
            p += v[columns[k]] * values[k]
            square += values[k] * values[k]
        p *= scalars[SCALE]
        if slab and settings.projection == NEXT and abs(p) > settings.bound and square > 0.0:
            move = (p - np.copysign(settings.bound, p)) / square
            p = np.copysign(settings.bound, p)
        margins[i] = p
        if not np.isfinite(p):
            return 1
        seen[0] += 1
        step = rate_at(settings, seen[0]) * weight[i] * gradient(settings, p, y[i])
        after = p - step * square
        if slab and settings.projection == CURRENT and abs(after) > settings.bound and square > 0.0:
            step += (after - np.copysign(settings.bound, after)) / square
        move += step
        if move != 0.0:
            for k in range(len(columns)):
                v[columns[k]] -= move / scalars[SCALE] * values[k]
        if ball:
            norm2 = max(scalars[SQUARED_NORM] - move * (2.0 * p - move * square), 0.0)
            if norm2 > settings.bound * settings.bound:
                scalars[SCALE] *= settings.bound / np.sqrt(norm2)
                norm2 = settings.bound * settings.bound
            scalars[SQUARED_NORM] = norm2
            if scalars[SCALE] < SMALLEST_SCALE or seen[0] % max(REFRESH, len(v)) == 0:
                _unscale(v, scalars)
    return 0


@compiled
def _unscale(v: Any, scalars: Any) -> None:
    """Put the scale into v and form its squared length anew."""
    total = 0.0
    for j in range(len(v)):
        v[j] *= scalars[SCALE]
        total += v[j] * v[j]
    scalars[SCALE], scalars[SQUARED_NORM] = 1.0, total
