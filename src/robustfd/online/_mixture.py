"""Implicit Newton steps at several rates side by side, between two shrinks: nothing here is of length d.

The Hessian is H = D + B'B with a diagonal D that stays as it is for a block. With M = B D^-1 B', Z = X D^-1 B' and
G = X D^-1 X', K = X H^-1 X' = G - Z (I + M)^-1 Z', brought up to date by Sherman and Morrison's formula as rows enter
with their curvature c^2. The margins of a row are those of each rate (and class) on its own; what is predicted is their
mixture, by exponential weights of their losses, older losses counting less. The step is that of the proximal point:
with slope l',

    w += s eta H^-1 x,    s = -l'(p + s eta kappa),    kappa = x'H^-1 x,

so that no step can overshoot. There is nothing to tune.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from robustfd.linalg._compile import entry, loops
from robustfd.linalg.eigen import EPS, all_eigenpairs, compiled_eigenpairs
from robustfd.linalg.lapack import at, gemm, view
from robustfd.linalg.rules import shrink

Floats = NDArray[np.float64]

FILLED, SHRINKS, OUTPUTS, NUMBERS, COUNTS = range(5)  # places in Mixture.counts; NUMBERS: y is no class
SPREAD, SPREAD_WEIGHT, HUBER = range(3)  # places in Mixture.scalars
FORGET = 0.998  # what a loss counts a row later
FORGET_SPREAD = 0.99  # what a squared residual counts a row later


class Mixture(NamedTuple):
    """The rows of a block so far, as seen from the sketch and from each other; q = outputs * rates + r."""

    products: Floats  # (rows, q): x with the weights and with B, in the metric, at the beginning of the block
    gram: Floats  # (rows, rows): G, lower triangle
    k: Floats  # (rows, rows): k[j, i] = K_ij just before row j entered, i >= j
    z: Floats  # (rows, r): Z times the inverse of `root`, transposed
    steps: Floats  # (rows, outputs * rates): s eta
    curvature: Floats  # (rows,): c^2
    factor: Floats  # (rows,): c^2 / (1 + c^2 kappa)
    m: Floats  # (r, r): M
    root: Floats  # (r, r): Cholesky factor of I + M, lower triangle, once there are rows
    lam: Floats  # (r,)
    rates: Floats
    losses: Floats  # (outputs, rates): of each, fading
    scalars: Floats  # for regression: squared residuals of the mixture, fading, their weight, and Huber's threshold
    counts: NDArray[np.int64]
    scratch: Floats  # what it holds is lost from one function to the next


def start(rows: int, r: int, outputs: int, rates: Floats, *, huber: float | None = None) -> Mixture:
    """Return an empty block of so many rows, B empty; for numbers if a threshold is given, which may be infinite."""
    p = outputs * len(rates)
    counts = np.zeros(COUNTS, np.int64)
    counts[OUTPUTS], counts[NUMBERS] = outputs, huber is not None
    return Mixture(
        products=np.zeros((rows, p + r)),
        gram=np.zeros((rows, rows)),
        k=np.zeros((rows, rows)),
        z=np.zeros((rows, r)),
        steps=np.zeros((rows, p)),
        curvature=np.zeros(rows),
        factor=np.zeros(rows),
        m=np.zeros((r, r)),
        root=np.eye(r),
        lam=np.zeros(r),
        rates=rates,
        losses=np.zeros((outputs, len(rates))),
        scalars=np.array([0.0, 0.0, np.inf if huber is None else huber]),
        counts=counts,
        scratch=np.zeros(max(rows * rows, rows + p + len(rates))),
    )


@loops
def begin_rows(routines: Any, mix: Mixture, first: int, last: int) -> bool:
    """Fill k for rows first to last - 1, whose products and gram are known, with what it was before the block.

    Return whether that was possible: I + M must be positive definite.
    """
    root, z, m, r = mix.root, mix.z, mix.m, len(mix.lam)
    for i in range(r if first == 0 else 0):
        for j in range(i + 1):
            x = m[i, j] + (1.0 if i == j else 0.0)
            for l in range(j):
                x -= root[i, l] * root[j, l]
            if i == j and not 0.0 < x < np.inf:
                return False
            root[i, j] = math.sqrt(x) if i == j else x / root[j, j]
    for i in range(first, last):
        own, b = z[i], mix.products[i, mix.steps.shape[1] :]
        for j in range(r):
            x = b[j]
            for l in range(j):
                x -= root[j, l] * own[l]
            own[j] = x / root[j, j]
    inside = view(mix.scratch, 0, (last - first, last))
    gemm(routines, False, True, last - first, last, r, 1.0, at(z, first * r), r, at(z, 0), r, 0.0, at(inside, 0), last)
    for i in range(first, last):
        for j in range(i + 1):
            mix.k[j, i] = mix.gram[i, j] - inside[i - first, j]
    return True


@loops
def sigmoid(z: float) -> float:
    """Return 1 / (1 + exp(-z))."""
    if z >= 0:
        return 1.0 / (1.0 + math.exp(-z))
    e = math.exp(z)
    return e / (1.0 + e)


@loops
def implicit_step(z: float, a: float, high: float) -> float:
    """Return the root s in (0, high] of s = sigmoid(-(z + a s)), high = sigmoid(-z), by a safe Newton's iteration."""
    low = 0.0
    if a * high < 1e-14:
        return high
    s, last = high / (1.0 + a * high * (1.0 - high)), high
    for _ in range(100):
        f = sigmoid(-(z + a * s))
        g = s - f
        if g > 0:
            high = s
        else:
            low = s
        new = s - g / (1.0 + a * f * (1.0 - f))
        safe = low < new < high and abs(new - s) <= 0.5 * last  # else it would leave the bounds, or go in circles
        new = new if safe else 0.5 * (low + high)
        last = abs(new - s)
        s = new
        # An error of `last` leaves one of less than a / 2 times its square after the next step; this was that step.
        if last <= 1e-14 * s or (safe and (1.0 + a * s) * last * last <= 1e-15 * s * s):
            break
    return s


@loops
def mixture(losses: Any, margins: Any, share: Any) -> float:
    """Return the mean of margins by exponential weights of losses; `share` is filled with the weights."""
    least, total, mean = losses[0], 0.0, 0.0
    for e in range(len(losses)):
        least = min(least, losses[e])
    for e in range(len(losses)):
        share[e] = math.exp(least - losses[e])
        total += share[e]
    for e in range(len(losses)):
        mean += share[e] / total * margins[e]
    return mean


@loops
def meet_row(mix: Mixture, i: int, margins: Any) -> float:
    """Fill the margins of row i with all rows before it learnt, and return kappa = K_ii."""
    k, steps, p = mix.k, mix.steps, mix.steps.shape[1]
    ki = mix.scratch[: i + 1]  # a copy of column i, since the loops below run along rows
    for j in range(i + 1):
        ki[j] = k[j, i]
    for a in range(p):
        margins[a] = mix.products[i, a]
    for j in range(i):
        kj, x, sj = k[j], ki[j], steps[j]
        kj[i] = x
        for a in range(p):
            margins[a] += x * sj[a]
        x *= mix.factor[j]
        later, rest = ki[j + 1 :], kj[j + 1 :]
        for l in range(i - j):
            later[l] -= x * rest[l]
    k[i, i] = max(ki[i], 0.0)
    return k[i, i]


@loops
def learn_class(mix: Mixture, i: int, y: float, weight: float, mixed: Any) -> None:
    """Take the steps of row i of the block; fill `mixed` (outputs) with what was predicted before.

    y is the class: with one output 0 or 1, the output being of class 1, otherwise one against the rest.
    """
    rates, losses, outputs, count = mix.rates, mix.losses, mix.counts[OUTPUTS], len(mix.rates)
    margins, share = mix.scratch[len(mix.gram) + count :], mix.scratch[len(mix.gram) :]
    kappa = meet_row(mix, i, margins)
    squares, total = 0.0, 0.0
    for c in range(outputs):
        mixed[c] = mixture(losses[c], margins[c * count :], share)
        q = sigmoid(mixed[c])
        c2 = q * (1.0 - q)
        squares += c2 * c2
        total += c2
    for c in range(outputs):
        sign = 1.0 if y == (1 if outputs == 1 else c) else -1.0
        for e in range(count):
            z, a = sign * margins[c * count + e], weight * rates[e]
            small = math.exp(-abs(z))
            wrong = (small if z > 0 else 1.0) / (1.0 + small)  # sigmoid(-z)
            loss = math.log1p(small) - min(z, 0.0)
            mix.steps[i, c * count + e] = sign * a * implicit_step(z, a * kappa, wrong)
            losses[c, e] = FORGET * (losses[c, e] + weight * loss)
    c2 = weight * squares / total if total > 0 else 0.0  # of one output q (1 - q), of several a mean of theirs
    mix.curvature[i], mix.factor[i] = c2, c2 / (1.0 + c2 * kappa)


@loops
def learn_number(mix: Mixture, i: int, y: float, weight: float, mixed: Any) -> None:
    """Do as `learn_class` for a target y, with half the squared loss or Huber's.

    Huber's threshold, and losses, are in units of the residuals of late, so that the scale of targets does not matter.
    """
    rates, losses, scalars, count = mix.rates, mix.losses[0], mix.scalars, len(mix.rates)
    margins, share = mix.scratch[len(mix.gram) + count :], mix.scratch[len(mix.gram) :]
    kappa = meet_row(mix, i, margins)
    mixed[0] = mixture(losses, margins, share)
    spread = scalars[SPREAD] / scalars[SPREAD_WEIGHT] if scalars[SPREAD_WEIGHT] > 0 else 0.0
    huber = scalars[HUBER] if spread > 0 else np.inf
    largest = huber * math.sqrt(spread) if spread > 0 else np.inf
    for e in range(count):
        residual, a = y - margins[e], weight * rates[e]
        slope = residual / (1.0 + a * kappa)
        mix.steps[i, e] = a * min(max(slope, -largest), largest)
        if spread > 0:
            u = residual * residual / spread
            if u > huber * huber:
                u = huber * (2.0 * math.sqrt(u) - huber)
            losses[e] = FORGET * (losses[e] + weight * 0.5 * u)
    residual = min(max(y - mixed[0], -largest), largest)
    scalars[SPREAD] = FORGET_SPREAD * scalars[SPREAD] + residual * residual
    scalars[SPREAD_WEIGHT] = FORGET_SPREAD * scalars[SPREAD_WEIGHT] + 1.0
    mix.curvature[i], mix.factor[i] = weight, weight / (1.0 + weight * kappa)


def collect_steps(mix: Mixture) -> tuple[Floats, Floats]:
    """Return (on_b, on_x): D W becomes D W + on_b B + on_x X by the steps of the block."""
    n = int(mix.counts[FILLED])
    if n == 0:
        return np.zeros((mix.steps.shape[1], len(mix.lam))), mix.steps[:0].T
    factors = mix.factor[:n, None] * mix.k[:n, :n]  # strictly above the diagonal; it is read by columns
    a, _ = dtrtrs(factors.T, mix.steps[:n], lower=1, trans=1, unitdiag=1)
    on_b, _ = dtrtrs(mix.root.T, -mix.z[:n].T @ a)
    return on_b.T, a.T


def end_block(mix: Mixture, *, long: bool) -> tuple[Floats, Floats]:
    """Shrink and return (on_b, on_x), after which M is that of the new B in the same metric.

    With q = p + r rows: D W becomes D W + on_b[:p] B + on_x[:p] X and B becomes on_b[p:] B + on_x[p:] X.
    """
    n, r, p = int(mix.counts[FILLED]), len(mix.lam), mix.steps.shape[1]
    had = r if mix.counts[SHRINKS] else 0
    c = np.sqrt(mix.curvature[:n])
    stack = np.zeros((had + n, had + n))
    stack[:had, :had] = mix.m[:had, :had]
    stack[had:, :had] = c[:, None] * mix.products[:n, p : p + had]
    stack[had:, had:] = c[:, None] * mix.gram[:n, :n] * c
    values, vectors = compiled_eigenpairs(stack, min(r, had + n)) if long else all_eigenpairs(stack)
    kept, _ = shrink(values, r + 1, r + 1, len(stack) * EPS * values[0])
    t = np.sqrt(kept / values[: len(kept)])[:, None] * vectors[:, : len(kept)].T
    on_b, on_x = np.zeros((p + r, r)), np.zeros((p + r, n))
    on_b[:p], on_x[:p] = collect_steps(mix)
    on_b[p : p + len(kept), :had], on_x[p : p + len(kept)] = t[:, :had], t[:, had:] * c
    mix.lam[:] = 0.0
    mix.lam[: len(kept)] = kept
    mix.m.fill(0.0)
    mix.m.flat[:: r + 1] = mix.lam
    mix.counts[FILLED] = 0
    mix.counts[SHRINKS] += 1
    return on_b, on_x


@entry
@loops
def step_classes(routines: Any, mix: Mixture, y: Any, weight: Any, out: Any) -> bool:
    """Take the steps of rows whose products and gram were filled, y their classes; fill `out` with margins before.

    Return whether that was possible.
    """
    first = mix.counts[FILLED]
    if not begin_rows(routines, mix, first, first + len(y)):
        return False
    for i in range(len(y)):
        learn_class(mix, mix.counts[FILLED], y[i], weight[i], out[i])
        mix.counts[FILLED] += 1
    return True


@entry
@loops
def step_numbers(routines: Any, mix: Mixture, y: Any, weight: Any, out: Any) -> bool:
    """Do as `step_classes` for targets y."""
    first = mix.counts[FILLED]
    if not begin_rows(routines, mix, first, first + len(y)):
        return False
    for i in range(len(y)):
        learn_number(mix, mix.counts[FILLED], y[i], weight[i], out[i])
        mix.counts[FILLED] += 1
    return True
