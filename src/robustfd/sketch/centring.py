"""Centre each row at the mean of the rows before it, without losing digits to cancellation.

A mean is stored in double-double form, as two rows: the rounded mean and its rounding error. So rows may be 1e12 away
from the origin, where a single step of the mean is far below the last digit of its entries.
"""

from dataclasses import dataclass

import numpy as np

from robustfd.linalg.decompose import EPS
from robustfd.sketch.rows import Floats, Rows

MAX_LOG_DECAY = 300.0  # exp(x) times the largest rows stays within the range of float64
CHUNK = 64  # dense rows that are centred together
LOSS = 1e4  # largest acceptable ratio of the squared terms to the square of their sum; above it, cancellation is severe


@dataclass(frozen=True)
class Centring:
    """The linear map that centres each of k rows a_0, a_1, ... at the mean of all rows before it.

    Row t becomes e_t = sqrt(w n / (n + w)) (a_t - mean_t), where n is the (decayed) weight before it and w its own
    weight. The sum of the e_t e_t' is then the scatter about the final mean (Welford 1962; Chan, Golub and LeVeque
    1983). Written in terms of the mean before all k rows,

        e_t = scale_t a_t - rows_coef_t (sum of share_s a_s over s < t) + mean_coef_t mean,

    so running sums apply it, to the rows or to any products with them.
    """

    root: Floats  # square roots of the weights
    scale: Floats
    share: Floats
    rows_coef: Floats
    mean_coef: Floats
    mean_step: Floats  # the new mean is old + sum of mean_step_t (a_t - old)
    weight: float

    @classmethod
    def of(cls, rows: Rows, weight: float) -> "Centring":
        """Return the centring of these rows, given the total weight of the rows before them."""
        log = np.cumsum(np.log(rows.decay))
        unit = np.ldexp(1.0, np.frexp(rows.weight.max())[1] - 1)  # a power of two, so that dividing by it is exact
        share, old = rows.weight / unit * np.exp(-log), weight * np.exp(log)
        sums = np.cumsum(share)
        before = unit * (np.exp(log) * np.concatenate([[0.0], sums[:-1]])) + old
        after = before + rows.weight
        scale = np.sqrt(rows.weight * (before / after))  # in this order, so that extreme weights do not overflow
        per_unit = np.divide(scale, before, out=np.zeros_like(before), where=before > 0)
        mean_step = share * np.exp(log[-1]) * (unit / after[-1])
        rows_coef, mean_coef = unit * per_unit * np.exp(log), -per_unit * old
        return cls(np.sqrt(rows.weight), scale, share, rows_coef, mean_coef, mean_step, after[-1])

    def apply(self, y: Floats) -> Floats:
        """Return the centred rows, given rows y relative to the mean (or products with them)."""
        centred = self.scale[:, None] * y
        centred[1:] -= self._sums_before(y)

        return centred

    def adjoint(self, c: Floats) -> Floats:
        """Convert coefficients of the centred rows to coefficients of the raw rows (the transposed map)."""
        sums = np.cumsum((self.rows_coef[1:, None] * c[1:])[::-1], axis=0)[::-1]
        raw = self.scale[:, None] * c
        raw[:-1] -= self.share[:-1, None] * sums
        return np.asarray(raw)

    def terms(self, row_lengths: Floats, mean_length: float = 0.0) -> Floats:
        """Return, for each centred row, the sum of the lengths of its terms. Rounding errors are relative to this."""
        terms = self.scale * row_lengths - self.mean_coef * mean_length
        terms[1:] += self._sums_before(row_lengths[:, None])[:, 0]
        # The contribution of a row to the mean is rounded in proportion to the weight of the row.
        return np.maximum(terms, self.root * (row_lengths + mean_length))

    def _sums_before(self, y: Floats) -> Floats:
        sums = np.cumsum(self.share[:-1, None] * y[:-1], axis=0)
        sums *= self.rows_coef[1:, None]
        return np.asarray(sums)


def row_lengths(x: Floats) -> Floats:
    """Return the lengths of the rows."""
    return np.sqrt(np.einsum("ij,ij->i", x, x))


def noise(terms: Floats, t: Floats) -> float:
    """Return eps times the sum of the squares of t * terms."""
    return float(np.square(np.sqrt(EPS) * (t * terms)).sum())  # in this order, so that squares do not overflow


def has_cancelled(noise: float, squared_norm: float) -> bool:
    """Return whether rows with this squared norm have lost too many digits, because their terms cancelled."""
    return not noise <= LOSS * EPS * squared_norm


def centre_rows(rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Floats, Floats, float]:
    """Return the centred rows as an array, the lengths of their terms, the new mean and the total weight."""
    x, start = rows.dense(), 0
    centred, terms = np.empty_like(x), np.empty(len(x))
    while start < len(rows):
        part = rows[start : _safe_stop(rows, start)]
        stop, t = start + len(part), part.decay_scales()[1]
        y, centring, after = shift_rows(x[start:stop], part, mean, weight)
        # As a matrix product, which is faster than running sums.
        e = np.matmul(centring.apply(np.eye(len(part))), y, out=centred[start:stop])
        terms[start:stop], sizes = centring.terms(row_lengths(y)), row_lengths(e)
        if has_cancelled(noise(terms[start:stop], t), float(np.square(t * sizes).sum())):
            after = _centre_one_at_a_time(x[start:stop], part, mean, weight, e)
            terms[start:stop] = row_lengths(e)
        mean, weight, start = after, centring.weight, stop
    return centred, terms, mean, weight


def shift_rows(x: Floats, rows: Rows, mean: Floats, weight: float) -> tuple[Floats, Centring, Floats]:
    """Return (y, centring, new mean), where y is x minus the mean, or minus the first row if there is no mean yet."""
    centring = Centring.of(rows, weight)
    mean = mean if weight > 0 else exact_mean(x[0])  # any vector is valid; one near the rows avoids cancellation
    y = x - mean[0]
    y -= mean[1]
    return y, centring, shift_mean(mean, centring.mean_step @ y)


def _centre_one_at_a_time(x: Floats, rows: Rows, mean: Floats, weight: float, out: Floats) -> Floats:
    """Fill `out` with the centred rows and return the new mean. Slower, but never loses digits to cancellation."""
    for i, (row, w, decay) in enumerate(zip(x, rows.weight, rows.decay, strict=True)):
        before, offset = decay * weight, (row - mean[0]) - mean[1]
        weight = before + w
        np.multiply(np.sqrt(w * (before / weight)), offset, out=out[i])
        # Step from the nearer of the old mean and the row, so that the step is small.
        if before >= w:
            mean = shift_mean(mean, (w / weight) * offset)
        else:
            mean = shift_mean(exact_mean(row), -(before / weight) * offset)
    return mean


def _safe_stop(rows: Rows, start: int) -> int:
    """Return the end of the chunk, so that its total decay stays in the range of exp. It has at least one row."""
    if rows.decay.min() == 1.0:
        return start + CHUNK
    log = np.cumsum(np.log(rows.decay[start : start + CHUNK]))
    return start + max(1, int(np.searchsorted(-log, MAX_LOG_DECAY)))


# -- means in double-double form


def exact_mean(x: Floats) -> Floats:
    """Return x as a mean with zero rounding error."""
    return np.stack([x, np.zeros_like(x)])


def shift_mean(mean: Floats, step: Floats) -> Floats:
    """Return the mean plus a step, with the rounding error of the sum in the second row (Knuth's TwoSum)."""
    high, step = mean[0], mean[1] + step
    total = high + step
    added = total - high
    return np.stack([total, (high - (total - added)) + (step - added)])


def merge_means(one: Floats, two: Floats, n: float, k: float) -> tuple[Floats, Floats]:
    """Return the row that merging adds to the scatter, and the mean of the union (Chan, Golub and LeVeque 1983).

    `one` and `two` are the means of two sets of rows with total weights n and k.
    """
    offset = (two[0] - one[0]) + (two[1] - one[1])
    row = np.sqrt(n * (k / (n + k))) * offset
    return row, shift_mean(one, (k / (n + k)) * offset) if n >= k else shift_mean(two, -(n / (n + k)) * offset)
