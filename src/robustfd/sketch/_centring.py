"""Rows centred at the mean of the rows before them, without loss of digits.

A mean is kept as two rows, the second what rounding took from the first: rows may be 1e12 away from the origin and a
step of the mean far below the last digit of its entries.
"""

from dataclasses import dataclass

import numpy as np

from robustfd.linalg.eigen import EPS
from robustfd.sketch._rows import Floats, Rows

LARGEST_DECAY = 600.0  # exp of more would overflow
CHUNK = 64  # dense rows centred at once
LOSS = 1e4  # squares of the terms over those of their sum: beyond this too many digits have cancelled


@dataclass(frozen=True)
class Centring:
    """What k rows a_0, a_1, ... enter as when each is centred at the mean of all rows before it.

    Row t enters as sqrt(w n / (n + w)) (a_t - mean), n the (decayed) weight before it. That is linear in the
    rows, e_t = own_t a_t - on_rows_t (sum of share_s a_s over s < t) + on_mean_t mean, mean the one before all
    of them, so running sums apply it, to the rows themselves or to any products of them.
    """

    root: Floats  # of the weights
    own: Floats
    share: Floats
    on_rows: Floats
    on_mean: Floats
    to_mean: Floats  # the new mean is the old one plus the sum of to_mean_t (a_t - old)
    weight: float

    @classmethod
    def of(cls, rows: Rows, weight: float) -> "Centring":
        """Return the centring of these rows after others of total weight `weight`."""
        log = np.cumsum(np.log(rows.decay))
        share, old = rows.weight * np.exp(-log), weight * np.exp(log)
        sums = np.cumsum(share)
        before = np.exp(log) * np.concatenate([[0.0], sums[:-1]]) + old
        after = before + rows.weight
        own = np.sqrt(rows.weight * (before / after))  # in this order, or tiny and huge weights are lost
        per_unit = np.divide(own, before, out=np.zeros_like(before), where=before > 0)
        to_mean = share * np.exp(log[-1]) / after[-1]
        on_rows, on_mean = per_unit * np.exp(log), -per_unit * old
        return cls(np.sqrt(rows.weight), own, share, on_rows, on_mean, to_mean, after[-1])

    def apply(self, y: Floats, of_mean: Floats | None = None) -> Floats:
        """Return what the rows enter as, y being the rows (or products of them) and of_mean the mean (or its), or 0."""
        entered = self.own[:, None] * y
        entered[1:] -= self._of_rows_before(y)
        if of_mean is not None:
            entered += np.outer(self.on_mean, of_mean)
        return entered

    def adjoint(self, c: Floats) -> Floats:
        """Return c as coefficients of the raw rows, given as coefficients of the entering ones."""
        sums = np.cumsum((self.on_rows[1:, None] * c[1:])[::-1], axis=0)[::-1]
        raw = self.own[:, None] * c
        raw[:-1] -= self.share[:-1, None] * sums
        return np.asarray(raw)

    def terms(self, lengths: Floats, of_mean: float = 0.0) -> Floats:
        """Return the lengths of the terms of each entering row, added up: rounding errors are relative to that."""
        terms = self.own * lengths - self.on_mean * of_mean
        terms[1:] += self._of_rows_before(lengths[:, None])[:, 0]
        return np.maximum(terms, self.root * (lengths + of_mean))  # what a row adds to the mean counts by its weight

    def _of_rows_before(self, y: Floats) -> Floats:
        sums = np.cumsum(self.share[:-1, None] * y[:-1], axis=0)
        sums *= self.on_rows[1:, None]
        return np.asarray(sums)


def lengths(x: Floats) -> Floats:
    """Return the lengths of the rows."""
    return np.sqrt(np.einsum("ij,ij->i", x, x))


def noise(terms: Floats, t: Floats) -> float:
    """Return eps times the sum of the squares of t times the terms."""
    return float(np.square(np.sqrt(EPS) * (t * terms)).sum())  # in this order squares do not overflow


def is_lost(noise: float, squared_norm: float) -> bool:
    """Tell whether rows of this squared norm are what is left of terms that have cancelled."""
    return not noise <= LOSS * EPS * squared_norm


def centred(rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Floats, Floats, float]:
    """Return the dense entering rows, the lengths of their terms, the new mean and the total weight."""
    x, start = rows.dense(), 0
    entered, terms = np.empty_like(x), np.empty(len(x))
    while start < len(rows):
        part = rows[start : _safe_stop(rows, start)]
        stop, t = start + len(part), part.fading()[1]
        y, centring, after = shifted(x[start:stop], part, mean, weight)
        # As a matrix, since a product is faster than running sums.
        e = np.matmul(centring.apply(np.eye(len(part))), y, out=entered[start:stop])
        terms[start:stop], sizes = centring.terms(lengths(y)), lengths(e)
        if is_lost(noise(terms[start:stop], t), float(np.square(t * sizes).sum())):
            after = _centred_one_by_one(x[start:stop], part, mean, weight, e)
            terms[start:stop] = lengths(e)
        mean, weight, start = after, centring.weight, stop
    return entered, terms, mean, weight


def shifted(x: Floats, rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Centring, Floats]:
    """Return (y, centring, new mean): y is x minus the mean, or minus a row if there is no mean yet."""
    centring = Centring.of(rows, weight)
    mean = mean if weight > 0 else mean_at(x[0])  # any vector does, a near one is exact
    y = x - mean[0]
    y -= mean[1]
    return y, centring, moved(mean, centring.to_mean @ y)


def _centred_one_by_one(x: Floats, rows: Rows, mean: Floats, weight: float, out: Floats) -> Floats:
    """Fill `out` with the entering rows and return the new mean; nothing cancels, whatever the rows."""
    for i, (row, w, decay) in enumerate(zip(x, rows.weight, rows.decay, strict=True)):
        before, off = decay * weight, (row - mean[0]) - mean[1]
        weight = before + w
        np.multiply(np.sqrt(w * (before / weight)), off, out=out[i])
        # From whichever is nearer, so that the step is the smaller one.
        mean = moved(mean, (w / weight) * off) if before >= w else moved(mean_at(row), -(before / weight) * off)
    return mean


def _safe_stop(rows: Rows, start: int) -> int:
    """Return where to stop so that the decay from start on stays within what exp can hold, a row at least."""
    if rows.decay.min() == 1.0:
        return start + CHUNK
    log = np.cumsum(np.log(rows.decay[start : start + CHUNK]))
    return start + max(1, int(np.searchsorted(-log, LARGEST_DECAY)))


# -- means in two parts


def mean_at(x: Floats) -> Floats:
    """Return the mean that is x."""
    return np.stack([x, np.zeros_like(x)])


def moved(mean: Floats, step: Floats) -> Floats:
    """Return the mean plus a step; what rounding takes from the sum is kept (Knuth's two-sum)."""
    high, step = mean[0], mean[1] + step
    total = high + step
    added = total - high
    return np.stack([total, (high - (total - added)) + (step - added)])


def apart(one: Floats, two: Floats) -> Floats:
    """Return the second mean minus the first."""
    return np.asarray((two[0] - one[0]) + (two[1] - one[1]))


def joined(one: Floats, two: Floats, n: float, k: float) -> tuple[Floats, Floats]:
    """Return the row that enters when rows of these means and of weights n and k are put together, and the new mean."""
    off = apart(one, two)
    row = np.sqrt(n * (k / (n + k))) * off
    return row, moved(one, (k / (n + k)) * off) if n >= k else moved(two, -(n / (n + k)) * off)
