"""Read a sliding window: an approximation F with -lo I <= A'A - F <= hi I, for any window that is still stored.

The window begins at clock t0. Let c1 be the last mark up to t0, and k the first mark after it. F consists of the pool,
the directions dumped after c1, and the original rows in the window. If t0 is inside step k, that step can be counted as
if all of its rows were in the window or as if none were. The choice with the better certificate is used.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

import robustfd.sketch.window as w
from robustfd.linalg.decompose import EPS, rounding, shrink_stack
from robustfd.sketch.rows import Floats, Matrix, Queue, Rows, energy
from robustfd.sketch.view import View, padded, unit_rows
from robustfd.sketch.window import WindowState, squared_lengths

Bounds = tuple[float, float]  # lo and hi
LEAST_SHARE = 1 / 8  # minimum of alpha / hi, so that the approximation is invertible


@dataclass(frozen=True, kw_only=True)
class WindowView(View):
    """A view with separate bounds for the two sides, rounding included.

    V' diag(lam) V - lo I <= A'A <= V' diag(lam) V + hi I.
    """

    lo: float
    hi: float
    norm_slack: float  # bound on the error of squared_norm
    alpha0: float

    @property
    def certain(self) -> Floats:
        """A certified lower bound on A'A along each row of V, without alpha0."""
        return np.maximum(self.lam - self.lo, 0.0)

    def relative_error_bound(self, rank: int) -> float:
        """Return a bound on the error relative to ||A'A||_2, which a lower bound replaces, for rows of this rank."""
        largest = max(self.lam.max(initial=0.0) - self.lo, (self.squared_norm - self.norm_slack) / rank)
        return float(self.error_bound / largest) if largest > 0 else 0.0 if self.error_bound == 0 else np.inf

    def bracket_eigenvalues(self, count: int) -> tuple[Floats, Floats]:
        """Return bounds by Weyl's inequality, from B'B - lo I <= A'A <= B'B + hi I."""
        lam, most = padded(self.lam, count), self.squared_norm + self.norm_slack
        lower, upper = np.maximum(lam - self.lo, 0.0), np.minimum(lam + self.hi, most)
        return lower + self.alpha0, upper + self.alpha0

    def bracket_logdet(self, d: int) -> tuple[float, float]:
        """Return bounds on log det(A'A + alpha0 I) for d columns."""
        lam = np.pad(self.lam, (0, max(d - len(self.lam), 0)))
        with np.errstate(divide="ignore"):
            low, high = np.maximum(lam - self.lo, 0.0), lam + self.hi
            return float(np.log(low + self.alpha0).sum()), float(np.log(high + self.alpha0).sum())

    def bracket_distances(self, x: Matrix) -> tuple[Floats, Floats]:
        """Return bounds (lower, upper) on x'(A'A + alpha0 I)^-1 x for each row of x."""
        lower, _ = View.bracket_distances(replace(self, floor_lam=self.lam), x)
        return lower, super().bracket_distances(x)[1]


class Bracket(NamedTuple):
    """A choice of F: it includes directions dumped after the clock `after` and has the bounds lo, hi and `rounding`."""

    after: float
    lo: float
    hi: float
    rounding: float

    @property
    def error(self) -> float:
        """The certificate of F + alpha I."""
        return max(self.hi - self.alpha, self.lo + self.alpha)

    @property
    def alpha(self) -> float:
        """The multiple of the identity with the smallest error, but at least a share of hi."""
        return max((self.hi - self.lo) / 2, LEAST_SHARE * self.hi)


def bracket(state: WindowState, start: float) -> Bracket | None:
    """Return the better F for the window after `start`; None if no row of the window went through the pool."""
    marks = state.marks
    k = int(np.searchsorted(marks[w.CLOCK], start, side="right"))
    if k == marks.shape[1]:
        return None
    step, hi, rounded = marks[:, k], float(marks[w.DELTA, k:].sum()), float(marks[w.ROUNDING, k:].sum())
    after, top = (float(marks[w.CLOCK, k - 1]), float(marks[w.TOP, k - 1])) if k else (-np.inf, 0.0)
    if step[w.FIRST] > start:
        return Bracket(after, top, hi, rounded)
    inside, whole = float(step[w.INSIDE]), float(step[w.WHOLE])
    with_step = Bracket(after, min(top + inside, whole), hi, rounded)
    later = float(marks[w.DELTA, k + 1 :].sum())
    without = Bracket(float(step[w.CLOCK]), float(step[w.TOP]), later + min(inside, whole), rounded)
    return min(with_step, without, key=lambda each: each.error)


def read(state: WindowState, queue: Queue, window: float, alpha0: float) -> WindowView:
    """Return the view of the rows after now - window."""
    start = state.now - window
    raw, found = _queued_rows(queue, start), bracket(state, start)
    lo, hi = (0.0, 0.0) if found is None else (found.lo, found.hi)
    weight, norm, slack = _totals(state, raw, start)
    mean, raw_only = None, state.shift is not None and state.unit == 0.0
    if raw_only and state.shift is not None:  # only original rows, to be centred
        stack, mean = _centre_raw_rows(raw, state.shift)
    else:
        stack = _approximation(state, raw, start, found)
    rounding_bound = 0.0 if found is None else found.rounding
    rounding_bound += rounding(len(stack), stack.shape[1], 1.0, np.zeros(0), EPS * float(squared_lengths(stack).sum()))
    low, high = lo + rounding_bound, hi + rounding_bound
    if state.shift is not None and not raw_only:
        stack, mean, schur = _centre_stack(stack, state.shift, state.unit)
        (lo, hi), (low, high) = schur(lo, hi), schur(low, high)
    b, lam = stack[:0], np.zeros(0)
    if stack.any():  # a sketch size above the number of rows: only orthogonalises
        shrunk = shrink_stack(b, lam, stack, len(stack) + 1, len(stack) + 1)
        b, lam = shrunk.rows, shrunk.lam
    if mean is not None:
        norm, slack = (float(lam.sum()), 0.0) if found is None else (_centred_norm(norm, weight, mean, state), np.inf)
    top = float(lam.max(initial=0.0))  # A'A >= 0, so F exceeds it by at most this
    lo, low = min(lo, top), min(low, top + rounding_bound)
    alpha = Bracket(0.0, lo, hi, 0.0).alpha
    floor = alpha0 / (2 * low) if 2 * low > alpha0 else 1.0  # A'A >= s (F - lo I) for every s in [0, 1]
    return WindowView(
        form=partial(unit_rows, b, lam),
        lam=lam,
        alpha=alpha0 + alpha,
        error_bound=max(high - alpha, low + alpha) + EPS * alpha,
        squared_norm=norm,
        weight=weight,
        mean=mean,
        floor_lam=floor * lam,
        floor_alpha=alpha0 - floor * low,
        ceiling_alpha=alpha0 + high,
        lo=low,
        hi=high,
        norm_slack=slack + rounding_bound,
        alpha0=alpha0,
    )


def _approximation(state: WindowState, raw: Rows | None, start: float, found: Bracket | None) -> Floats:
    """Return the rows of F, including queued rows."""
    when, _, exact, _ = state.dates
    if found is None:
        parts, chosen = [state.b[:0]], (exact > 0) & (when > start)
    else:
        parts, chosen = [state.b], when > np.where(exact > 0, start, found.after)
    parts += list(compress((row[None] for row in state.dumps), chosen.tolist()))
    if raw is not None:
        rows = state.framed(raw)
        parts.append(rows.toarray() if sp.issparse(rows) else rows)
    return np.concatenate(parts)


def _queued_rows(queue: Queue, start: float) -> Rows | None:
    """Return the queued rows after clock `start`; None if there are none."""
    if not len(queue):
        return None
    rows = queue.all()
    assert rows.clock is not None
    rows = rows[int(np.searchsorted(rows.clock, start, side="right")) :]
    return rows if len(rows) else None


def _centre_raw_rows(raw: Rows | None, default: Floats) -> tuple[Floats, Floats]:
    """Return the queued rows minus their mean, and the mean; `default` if there are no rows."""
    if raw is None:
        return np.zeros((0, len(default))), default.copy()
    x = raw.dense()
    mean = x[0] + raw.weight / raw.weight.sum() @ (x - x[0])
    return np.sqrt(raw.weight)[:, None] * (x - mean), mean


def _centre_stack(stack: Floats, shift: Floats, unit: float) -> tuple[Floats, Floats, Callable[..., Bounds]]:
    """Return the rows minus their mean, the mean, and the function that converts bounds of F to bounds of the result.

    The scatter about the mean is the Schur complement of the constant column, min over y of (x, y)' M (x, y), which is
    monotone in M. The bounds are the Schur complements of F - lo I and of F + hi I, minus that of F.
    """
    column = stack[:, -1]
    square = float(column @ column)
    if square == 0.0:
        return stack[:, :-1], shift.copy(), lambda lo, hi: (lo, hi)
    with np.errstate(over="ignore"):
        along = column @ stack[:, :-1] / square
        rounding_bound = float(along @ along) * square

    def schur(lo: float, hi: float) -> Bounds:
        if lo < square:
            lo = lo * (1.0 + rounding_bound / (square - lo)) if lo > 0 else 0.0
        else:
            lo = np.inf
        return lo, hi * (1.0 + rounding_bound / (square + hi)) if hi > 0 else 0.0

    return stack[:, :-1] - np.outer(column, along), shift + unit * along, schur


def _centred_norm(norm: float, weight: float, mean: Floats, state: WindowState) -> float:
    """Return the squared norm of the centred rows from that of the framed rows. As approximate as the mean."""
    assert state.shift is not None
    with np.errstate(over="ignore"):
        column = state.unit**2 + float(np.sum(np.square(mean - state.shift)))
        return max(norm - weight * column, 0.0)


def _totals(state: WindowState, raw: Rows | None, start: float) -> tuple[float, float, float]:
    """Return the weight and squared norm of the window, and a bound on the error of the norm.

    The bound is half of the squared norm of the step that the window begins in.
    """
    marks, dates = state.marks, state.dates
    k = int(np.searchsorted(marks[w.CLOCK], start, side="right"))
    weight, norm, slack = float(marks[w.WEIGHT, k:].sum()), float(marks[w.POOLED, k:].sum()), 0.0
    if k < marks.shape[1] and marks[w.FIRST, k] <= start:
        # Assume that the rows of the step are evenly spaced. This is exact if the clock counts rows.
        step = marks[:, k]
        rows, all_of_it = max(float(step[w.ROWS]), 2.0), float(step[w.WEIGHT])
        live = all_of_it * (step[w.CLOCK] - start) * (rows - 1) / ((step[w.CLOCK] - step[w.FIRST]) * rows)
        weight = float(marks[w.WEIGHT, k + 1 :].sum()) + min(float(live), all_of_it)
        slack = min(float(step[w.INSIDE]), norm) / 2
        norm -= slack
    norm += float(dates[w.NORM, (dates[w.EXACT] > 0) & (dates[w.WHEN] > start)].sum())
    if raw is not None:
        weight += float(raw.weight.sum())
        norm += energy(raw) if state.shift is None else float(squared_lengths(state.framed(raw)).sum())
    return weight, norm, slack
