"""The learner with nothing to tune: its state, from the first rows on."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.linalg.eigen import LONG
from robustfd.linalg.lapack import routines
from robustfd.online import _features, _mixture, _untuned
from robustfd.online import columns as _columns
from robustfd.online._features import METRIC, Features
from robustfd.online._mixture import FILLED, SHRINKS, Mixture, collect_steps
from robustfd.online.rows import as_rows

Floats = NDArray[np.float64]

RATES = np.array([0.25, 1.0, 4.0, 16.0, 64.0])
RATES_OF_NUMBERS = np.array([0.0625, 0.25, 1.0, 4.0, 16.0])


class UntunedState:
    """The block that is going on, the basis, what is known of the features, and the first rows while they are few.

    The first `first` rows fill the first block. At 1, 2, 4, ... of them, and when there are all, everything is
    thrown away, the scales are taken from all rows so far, and they are learnt again: a prediction is always the
    one made when its row was first seen.
    """

    def __init__(self, d: int, m: int, outputs: int, *, sparse: bool, huber: float | None = None):
        rows, r = 4 * m, m - 1
        rates = RATES if huber is None else RATES_OF_NUMBERS
        q = outputs * len(rates) + r
        self.d, self.sparse, self.first, self.seen, self.long = d, sparse, rows, 0, False
        self.mix: Mixture = _mixture.start(rows, r, outputs, rates, huber=huber)
        self.features: Features = _features.start(d)
        self.shifted = np.empty(0, np.int32)
        self.factors = np.zeros(rows)
        # For every feature its weights times D and its entries in B; dense rows keep the rows of the block beside.
        self.columns: Any = _columns.start(d + 1, q, r, rows) if sparse else None
        self.basis: Floats = np.zeros((0 if sparse else d + 1, q))
        self.rows: Floats = np.zeros((0 if sparse else rows, d + 1))
        self.offset = 0.0  # of targets that are numbers: their mean over the first rows
        self.kept: list[tuple[Any, Floats, Floats]] = []  # the first rows, raw

    # -- learning

    def expect(self, rows: int) -> None:
        """Get ready for so many rows: for many it pays to compile the eigenproblem."""
        self.long = self.long or self.seen + rows > LONG

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        """Learn rows and fill margins (n, outputs); return how many were learnt before the numbers overflowed."""
        done, n = 0, len(y)
        self.expect(n)
        while done < n and self.seen < self.first:
            upto = min(1 << self.seen.bit_length(), self.first)
            part = slice(done, done + min(upto - self.seen, n - done))
            rows = as_rows(x[part].copy(), sparse=self.sparse)  # they may change outside
            self.kept.append((rows, y[part].copy(), weight[part].copy()))
            self._learn(rows, y[part], weight[part], margins[part], close=False)
            self.seen += part.stop - done
            done = part.stop
            if self.seen == upto:
                self._learn_again()
        if done < n:
            rest = as_rows(x[done:], sparse=self.sparse) if done else x
            learnt = self._learn(rest, y[done:], weight[done:], margins[done:], close=True)
            self.seen += learnt
            done += learnt
        return done

    def _learn_again(self) -> None:
        """Begin anew with the scales of all rows so far."""
        x: Any = [rows for rows, _, _ in self.kept]
        if self.sparse:
            same = [sp.csr_array((r.data, r.indices, r.indptr), shape=(r.shape[0], self.d)) for r in x]
            x = as_rows(sp.vstack(same, format="csr"), sparse=True)
        else:
            x = np.vstack(x)
        y, weight = (np.concatenate([each[k] for each in self.kept]) for k in (1, 2))
        mix = self.mix
        mix.counts[FILLED], mix.losses[:] = 0, 0.0
        if mix.counts[_mixture.NUMBERS]:
            self.offset = float(np.average(y, weights=weight))
            spread = float(np.average(np.square(y - self.offset), weights=weight))
            mix.scalars[:2] = spread, float(spread > 0)
        if self.sparse:
            _columns.discard_run(self.columns)
        self.shifted = _features.learn_first(self.features, x, linear=bool(mix.counts[_mixture.NUMBERS]))
        self._learn(x, y, weight, np.empty((len(y), int(mix.counts[_mixture.OUTPUTS]))), close=False)
        self.kept = [(x, y, weight)]
        if self.seen == self.first:
            self.kept = []
            self._end_block()

    def _learn(self, x: Any, y: Any, weight: Floats, margins: Floats, *, close: bool) -> int:
        """Learn rows; return how many. Without `close` a full block is left as it is."""
        mix, done, n = self.mix, 0, len(y)
        y = y - self.offset
        step = _mixture.step_numbers if mix.counts[_mixture.NUMBERS] else _mixture.step_classes
        while done < n:
            stop = min(done + self._room(), n)
            part = slice(done, stop)
            self._enter(x, part)
            if not step(routines(), mix, y[part], weight[part], margins[part]):
                raise np.linalg.LinAlgError("I + M is not positive definite.")
            done = stop
            if close and self._room() == 0:
                self._end_block()
        margins[:done] += self.offset
        return done

    def _enter(self, x: Any, part: slice) -> None:
        """Take rows into the block: their products with the basis and with each other, in the metric of D."""
        mix, first = self.mix, int(self.mix.counts[FILLED])
        last = first + part.stop - part.start
        if self.sparse:
            values, which, starts, factors = _features.prepare_sparse(self.features, self.shifted, x, part, learn=True)
            self.columns = _columns.with_room(self.columns, len(values))
            out = (mix.products[first:last], mix.gram[first:last])
            _untuned.enter_rows(routines(), self.columns, self.features.table, values, which, starts, *out)
            self.factors[first:last] = factors
        else:
            rows, metric = self.rows[first:last], self.features.table[:, METRIC]
            _features.prepare_dense(self.features, x[part], True, rows, self.factors[first:last], np.empty((3, self.d)))
            scaled = rows / np.where(metric > 0, metric, 1.0)
            np.matmul(scaled, self.basis, out=mix.products[first:last])
            np.matmul(scaled, self.rows[:last].T, out=mix.gram[first:last, :last])

    def _room(self) -> int:
        """Return how many rows the block can take: after the first shrink those of B have places of the buffer."""
        mix = self.mix
        return int(len(mix.gram) - mix.counts[FILLED] - (len(mix.lam) if mix.counts[SHRINKS] else 0))

    def _end_block(self) -> None:
        """Shrink, and bring everything up to date."""
        mix, features, p = self.mix, self.features, self.mix.steps.shape[1]
        new = bool(mix.counts[SHRINKS])  # the first rows were counted when their scales were taken
        n = int(mix.counts[FILLED])
        c2, factors = mix.curvature[:n], self.factors[:n]
        on_b, on_x = _mixture.end_block(mix, long=self.long)
        if self.sparse:
            c = self.columns
            which = c.feature[: c.run[0].features].copy()
            sums = np.zeros((3, len(which)))
            _untuned.sum_features(c, factors, c2, sums)
            r = len(mix.lam)
            c.coefficients[:r], c.coefficients[r : r + n] = on_b.T, on_x.T
            _untuned.end_rows(routines(), c, _columns.room_of(c, 0))
            basis = c.basis
        else:
            rows, which = self.rows[:n], np.arange(self.d + 1, dtype=np.int32)
            basis = self.basis[:, p:] @ on_b.T + rows.T @ on_x.T
            basis[:, :p] += self.basis[:, :p]
            self.basis = basis
            sums = np.empty((3, len(which)))
            _features.sum_dense(features.table, rows, factors, c2, sums)
        if new:
            features.totals[_features.ROWS] += n
        if not _features.renew(features, which, sums, new, basis, mix.m):
            raise FloatingPointError("weights are not finite")

    def add_outputs(self, outputs: int) -> None:
        """Make room for classes that appeared; what is known of the others stays, two classes becoming two outputs."""
        before, mix, rates = self.outputs, self.mix, len(self.mix.rates)
        if self.seen >= self.first and mix.counts[FILLED] > 0:
            self._end_block()
        p, r = mix.steps.shape[1], len(mix.lam)
        new = _mixture.start(len(mix.gram), r, outputs, mix.rates)
        for name in ("m", "lam"):
            getattr(new, name)[:] = getattr(mix, name)
        new.counts[SHRINKS] = mix.counts[SHRINKS]

        def relaid(old: Floats) -> Floats:
            """Return an array whose last axis holds weights and then entries of B, with more weights."""
            out = np.zeros((*old.shape[:-1], outputs * rates + r))
            out[..., -r:] = old[..., p:]
            if before == 1:  # of the second class, against the first
                out[..., :rates], out[..., rates : 2 * rates] = -old[..., :p], old[..., :p]
            else:
                out[..., :p] = old[..., :p]
            return out

        new.losses[: 2 if before == 1 else before] = mix.losses
        self.mix = new
        if self.sparse:
            c = self.columns
            wide = {
                name: relaid(getattr(c, name)) for name in ("basis", "history", "reach", "gathered", "coefficients")
            }
            c.run[0].reach = 0  # to be made again, from the history
            self.columns = c._replace(**wide)
        else:
            self.basis = relaid(self.basis)
        if self.seen < self.first and self.kept:
            self._learn_again()

    def widen(self, d: int) -> None:
        """Make room for d features; only for sparse rows."""
        if d > self.d:
            d = max(d, 2 * self.d)
            columns = _columns.with_features(self.columns, d + 1)  # may fail: there may be no memory for it
            self.features = _features.with_features(self.features, d + 1)
            self.columns, self.d = columns, d

    # -- reading

    @property
    def outputs(self) -> int:
        """One for two classes, else the number of classes."""
        return int(self.mix.counts[_mixture.OUTPUTS])

    def weights(self, which: NDArray[np.int32] | None = None) -> Floats:
        """Return the mixed weights (features, outputs) of all features, the intercept first, or of some."""
        mix = self.mix
        p, filled, rates = mix.steps.shape[1], int(mix.counts[FILLED]), len(mix.rates)
        on_b, on_x = collect_steps(mix)
        if which is None:
            which = np.arange(self.d + 1, dtype=np.int32)
        if self.sparse:
            w = _columns.weights_of(routines(), self.columns, which, on_b, on_x)
        else:
            basis, rows = self.basis[which], self.rows[:filled, which]
            w = basis[:, :p] + basis[:, p:] @ on_b.T + rows.T @ on_x.T
        metric = self.features.table[which, METRIC]
        w /= np.where(metric > 0, metric, 1.0)[:, None]
        share = np.exp(mix.losses.min(axis=1, keepdims=True) - mix.losses)
        share /= share.sum(axis=1, keepdims=True)
        return np.einsum("fce,ce->fc", w.reshape(len(which), self.outputs, rates), share)

    def margins(self, x: Any) -> Floats:
        """Return the margins (n, outputs) of rows of the kind that is learnt."""
        if not self.sparse:
            rows = np.empty((len(x), self.d + 1))
            _features.prepare_dense(self.features, x, False, rows, np.empty(len(x)), np.empty((3, self.d)))
            return rows @ self.weights() + self.offset
        whole = slice(0, x.shape[0])
        values, which, starts, _ = _features.prepare_sparse(self.features, self.shifted, x, whole, learn=False)
        some, place = np.unique(which, return_inverse=True)
        rows = sp.csr_array((values, place, starts), shape=(x.shape[0], len(some)))
        return np.asarray(rows @ self.weights(some)) + self.offset
