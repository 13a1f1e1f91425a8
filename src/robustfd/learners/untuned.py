"""The state of the untuned learner: how it processes rows and grows, and the events between rows."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._container import Document, Tensors
from robustfd._core import HEAVIEST, INTERCEPT, Lesson, Untuned
from robustfd.learners import hessian, line, untuned_reading
from robustfd.learners.experts import (
    SOON,
    Experts,
    NumberLoss,
    changed_arrays,
    experts_of,
    learn_first,
    robust_cut,
    rungs_of,
    slow_rungs,
    start_experts,
    start_features,
    with_better,
    with_features_at,
    with_rungs,
)
from robustfd.learners.hessian import FIRST, LARGEST_EXACT, OFFER_EXACT, TWO_MEMORIES, Form
from robustfd.learners.rows import CsrRows, Floats, StoredRows, joined, most_entries, plain_rows, stored
from robustfd.learners.snapshot import Parts, check_finite
from robustfd.linalg.threads import one_blas_thread

PRIOR, PRIOR_OF_NUMBERS = 3 / 16, 1 / 2  # a0
ASIDE = 4096  # rows that all parts together set aside; the merged state learns from them to weight its experts
ASIDE_ENTRIES = 2**22  # the largest number of entries of these rows
FARTHEST = 1e9  # a first quantile is at most so many units from the middle one
INTERRUPTIBLE = 2**15  # rows after which Python looks for an interrupt
AT_ONCE = 1024  # up to this number of features a better Hessian is tried during the first rows
SPARE = 64  # spare features to allocate when features appear one at a time


class UntunedState:
    """The experts, which the core holds, the first rows while they are few, and the rows at which events happen."""

    def __init__(
        self, d: int, outputs: int, *, sketch: int | None = None, loss: NumberLoss | None = None, few: bool = False,
        share: float = 1.0,
    ):  # fmt: skip
        """Start with d features.

        `few` saves time for classes: no bettors, no flat priors, and a single prior of the exact Hessian. `share` is
        the share of the prior, below 1 for parts that will be merged.
        """
        self.d, self.outputs, self.sketch, self.loss, self.few = d, outputs, sketch, loss, few
        self.first = FIRST  # number of first rows, which are learned again; 0 if they are not stored
        self.entries = 0  # the largest number of entries of a row
        self.kept: list[StoredRows] = []  # the first rows, unscaled
        self.aside: list[StoredRows] = []  # rows to learn from when all parts are merged
        self.form: Form = "diagonal"
        self.size = 0  # rows of the sketch
        self.renew_at = self.renewed_at = self.look_at = 0
        self.gain = 0.0
        self.lesson = Lesson.fresh
        self.core = Untuned()
        self._experts: Experts | None = None  # views of the arrays of the core
        features = start_features(d, share * self.prior(), by_density=loss is None)
        self.experts = start_experts(features, outputs, loss, few=few)
        own = self.experts.features.table[:1]
        own["inverse"], own["prior"] = 1.0, share * self.prior()

    def prior(self) -> float:
        """Return a0."""
        return PRIOR if self.loss is None else PRIOR_OF_NUMBERS

    @property
    def share(self) -> float:
        """Share of the prior, below 1 for parts that will be merged."""
        return float(self.experts.features.totals["prior"][0]) / self.prior()

    @property
    def seen(self) -> int:
        """The number of rows so far."""
        return self.core.seen

    @seen.setter
    def seen(self, rows: int) -> None:
        self.core.seen = rows

    @property
    def count(self) -> int:
        """Experts in each memory, for each output."""
        return (self.experts.mix.plain.shape[1] - line.count(self)) // 2

    @property
    def shares(self) -> tuple[Floats, ...]:
        """Copies of the shares of experts. Assigning them later has no effect if there are other experts by then."""
        mix = self.experts.mix
        return mix.share.copy(), mix.steady.copy(), mix.plain.copy()

    @shares.setter
    def shares(self, shares: tuple[Floats, ...]) -> None:
        mix = self.experts.mix
        if [mix.share.shape, mix.plain.shape] == [shares[0].shape, shares[2].shape]:
            mix.share[:], mix.steady[:], mix.plain[:] = shares

    @property
    def experts(self) -> Experts:
        """Views of the arrays of the core. Assigning to it replaces the arrays that are not such views by copies."""
        if self._experts is None:
            self._experts = experts_of(self.core)
        return self._experts

    @experts.setter
    def experts(self, new: Experts) -> None:
        self.core.replace(changed_arrays(self._experts, new))
        self._experts = None

    # -- all rows of a call, or none

    def keep(self, rows: int, features: NDArray[np.int32] | None) -> Any:
        """Return what `undo` needs to forget the next rows, which have these features (None for all)."""
        if features is not None and self.kept:  # the first rows may be learned again
            indices = [x.indices if isinstance(x, CsrRows) else np.arange(x.shape[1]) for x, _, _ in self.kept]
            features = np.concatenate([features, *indices]).astype(np.int32, copy=False)
        numbers = vars(self) | {"kept": list(self.kept), "aside": list(self.aside)}
        return numbers, self.seen, self.core.keep(rows, features)

    def undo(self, kept: Any) -> None:
        """Restore the state at the time of `keep`."""
        numbers, seen, arrays = kept
        self.core.undo(arrays)
        self.__dict__.update(numbers)
        self.seen, self._experts = seen, None

    def __deepcopy__(self, memo: Any) -> "UntunedState":
        new = type(self).__new__(type(self))
        vars(new).update(copy.deepcopy(vars(self) | {"_experts": None}, memo))  # a copy has its own arrays
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what a snapshot holds: the core has space for many features that have not occurred."""
        numbers, arrays = self.pack()
        check_finite(type(self).__name__, arrays)
        settings = {"sketch": self.sketch, "loss": self.loss, "few": self.few}
        return _restored, (settings, self.entries, numbers, arrays)

    # -- learning

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats, readings: Floats | None = None) -> None:
        """Learn from dense or sparse rows, and fill margins (n, outputs) with each prediction before the step.

        `readings` gets what `margins` of this class would have returned for each row then.
        """
        y, weight = np.ascontiguousarray(y, np.float64), np.ascontiguousarray(weight, np.float64)
        batch = plain_rows(x), y, weight, margins, readings
        # Few rows rarely update a Hessian, so setting the number of BLAS threads does not pay off.
        with one_blas_thread() if len(y) > FIRST else nullcontext():
            done = 0
            while done < len(y):
                done = self._learn_until_event(batch, done)

    def learn_known(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> None:
        """Learn rows that were learned before. They change neither what experts there are nor their shares.

        They would favour experts that remember them.
        """
        self.lesson = Lesson.known
        self.learn(x, y, weight, margins)
        self.lesson = Lesson.fresh
        self.look_at = max(self.look_at, self.seen + hessian.FIRST_LOOK)
        hessian.reset_gain(self)

    def _learn_until_event(self, batch: Any, done: int) -> int:
        """Learn from rows or set them aside up to the next event, handle it, and return the number of rows done."""
        n = len(batch[1])
        if self.seen < self.first:
            until = self.quiet_until()
            part = slice(done, min(done + until - self.seen, n))
            self.kept.append(stored(batch, part))
            self._learn(batch, part, self.lesson)
            self.seen += part.stop - done
            if self.seen == until:
                self._learn_again()
        elif (wanted := self._to_set_aside()) and (count := self._next_aside(wanted)):
            part = slice(done, min(done + count, n))
            rows = stored(batch, part)
            for out in batch[3:] if batch[4] is not None else batch[3:4]:
                out[part] = self.margins(rows[0], len(rows[1]))
            self.aside.append(rows)
        else:
            until = self.quiet_until()
            if wanted:
                until = min(until, (self.seen // FIRST + 1) * FIRST)
            part = slice(done, min(done + until - self.seen, n))
            self._learn(batch, part, self.lesson)
            self.seen += part.stop - done
            hessian.handle_events(self)
        return part.stop

    def quiet_until(self) -> int:
        """Return the number of rows at which the next event is due; before it, rows are only learned, or also stored.

        It is that of a state with the whole prior.
        """
        return 1 << self.seen.bit_length() if self.seen < self.first else hessian.next_event(self)

    def _to_set_aside(self) -> int:
        """Return how many more rows to set aside: 0 unless this state is a part of several."""
        if is_whole(share := self.share):
            return 0
        rows = share * min(ASIDE, ASIDE_ENTRIES // max(self.entries, 1))
        return max(round(rows) - self.rows_aside(), 0)

    def _next_aside(self, wanted: int) -> int:
        """Return how many of the next rows to set aside now, at most as many as have been learned."""
        return max(min(wanted, self.seen // FIRST * FIRST - self.rows_aside()), 0)

    def rows_aside(self) -> int:
        """Return the number of rows set aside."""
        return sum(len(y) for _, y, _ in self.aside)

    def _learn(self, batch: Any, part: slice, lesson: Lesson) -> None:
        """Learn from the rows between two events; `batch` holds rows, targets, weights, margins and readings."""
        (x, y, weight, margins, readings), done, stop = batch, part.start, part.stop
        self.entries = max(self.entries, most_entries(x, part))
        while done < stop:
            until = min(done + INTERRUPTIBLE, stop)
            done = self.core.learn(x, y, weight, margins, readings, done, until, lesson)
            if done < until:  # the sketch is full
                with one_blas_thread():
                    hessian.shrink(self.experts.low_rank)

    def _learn_again(self) -> None:
        """Start over with the statistics of all rows so far, and learn from these rows again."""
        x, y, weight = self.first_rows()
        self.kept, n, sparse = [(x, y, weight)], len(y), isinstance(x, CsrRows)
        old, shares = self.experts, self.shares
        features, seen = learn_first(old.features, x, n)
        for array in (old.weights, old.bets)[: 2 if len(old.bets) else 1]:
            array[seen if sparse else slice(None)] = 0.0  # all others are 0 already
            array[0] = 0.0
        new = self._fresh_experts(old, old.weights, old.bets)
        self.experts = new._replace(features=features)
        self.core.first_scales(seen if sparse else np.arange(1, self.d + 1))
        if self.loss is not None:
            self._learn_targets(self.loss, y, weight)
        self.form, self.size = "diagonal", 0
        if n == FIRST or self.d <= AT_ONCE:
            hessian.begin_form(self, (len(x.data) if sparse else np.count_nonzero(x)) / n)
        batch, done = (x, y, weight, np.empty((n, self.outputs)), None), 0
        if len(self.experts.exact.past):
            self.core.learn_again(*batch[:4], hessian.renewals(self, n))
            done = n
        while done < n:
            stop = n if self.form == "diagonal" else min(max(self.renew_at, done + 1), n)
            self._learn(batch, slice(done, stop), Lesson.replayed)
            done = stop
            if self.form != "diagonal" and done >= self.renew_at:
                hessian.renew(self, done)
        if self.lesson == Lesson.known:
            self.shares = shares
        if n == FIRST:
            self.kept = []
            self.look_at = hessian.FIRST_LOOK
            hessian.reset_gain(self)

    def first_rows(self) -> StoredRows:
        """Return the first rows, their targets and weights; the rows are sparse if any of them was."""
        return joined(self.kept)

    def _fresh_experts(self, old: Experts, weights: Any = None, bets: Any = None) -> Experts:
        """Return new experts for the same features, which continue the trace of the old ones."""
        new = start_experts(old.features, self.outputs, self.loss, weights, bets, few=self.few)
        new.mix.targets["stride"] = old.mix.targets["stride"]
        return new._replace(mix=new.mix._replace(trace=old.mix.trace))

    def _learn_targets(self, loss: NumberLoss, y: Floats, weight: Floats) -> None:
        """Set the offset and unit of the targets from the first ones, with outliers clipped."""
        cut, targets = robust_cut(y[:, None])[:, 0], self.experts.mix.targets
        weight = np.minimum(weight, HEAVIEST)
        weight = weight / weight.max()  # otherwise the products with squares of targets might overflow
        mean = float(np.average(cut, weights=weight))
        spread = float(np.average(np.square(cut - mean), weights=weight))
        if loss.counts:
            targets["unit"] = mean if mean > 0 else 1.0
            targets["spread"] = targets["spread_weight"] = 1.0
            return
        quantiles = np.quantile(cut, loss.levels) if loss.levels else np.array([mean])
        mean = float(quantiles[self.outputs // 2])
        targets["offset"] = mean
        unit = np.sqrt(spread) if spread > 0 else max(abs(mean), 1e-300)
        # Quantiles ignore weights. With weights of extreme size, they may be too far from each other for float weights.
        targets["unit"] = max(unit, np.abs(quantiles - mean).max() / FARTHEST)
        targets["spread"] = targets["spread_weight"] = float(spread > 0)
        for own in self.experts.weights[0].reshape(2, -1):  # the intercepts of both memories
            own[: self.outputs * self.count] = np.repeat((quantiles - mean) / (targets["unit"] * INTERCEPT), self.count)

    # -- new classes and features

    def add_outputs(self, outputs: int) -> None:
        """Add new classes. The others keep their weights; the single output of two classes becomes two outputs."""
        old, low = self.experts, self.experts.low_rank
        if self.form == "sketch":
            hessian.fold(low)
        own, (bets, mine) = line.slice_of(self), line.with_outputs(self, outputs)
        weights, share = np.delete(self.all_weights(), own, axis=2), np.delete(old.mix.share, own, axis=1)
        steady, calm = np.delete(old.mix.steady, own, axis=1), old.mix.steady[:, own]
        if self.outputs == 1:
            weights, steady = _merge_pairs(weights, steady)  # so that predictions stay the same
            share = share.reshape(1, -1, 2).sum(axis=2)
            calm = calm.reshape(1, 2, -1).sum(axis=2)[:, : mine.shape[1]]  # bettors, and those with a flat prior
        self.outputs = outputs
        rungs = rungs_of(self.form, old.exact)
        new, count = self._fresh_experts(old), weights.shape[2] // (2 + len(rungs))
        new = new._replace(bets=bets, mix=new.mix if len(bets) else line.without(new.mix, slice(2 * count, None)))
        share, n = np.hstack([share[:, : 2 * count], mine, share[:, 2 * count :]]), new.mix.plain.shape[1]
        new = new._replace(weights=np.zeros(new.weights.shape, np.float32))
        better = set_diagonal_weights(new.weights, _with_outputs(weights, outputs), count)
        known = 2 if len(share) == 1 else len(share)
        new.mix.plain[:known] = share[:, :n] / share[:, :n].sum(axis=1, keepdims=True)
        mix = with_better(new.mix, rungs)
        mix.share[:known], mix.steady[:known] = share, np.hstack([steady[:, : 2 * count], calm, steady[:, 2 * count :]])
        mix.targets["age"] = np.minimum(old.mix.targets["age"], SOON)
        mix.follow[:known] = old.mix.follow
        if len(share) == 1:
            mix.follow[0, 0] *= -0.5
            mix.follow[1, 0] *= 0.5
        new = new._replace(mix=mix)
        if self.form == "exact":
            new = new._replace(exact=old.exact._replace(weights=better))
        elif self.form == "sketch":
            new = new._replace(low_rank=low._replace(weights=better, along=np.zeros((len(low.lam), better.shape[1]))))
        self.experts = new
        if self.kept:
            self._learn_again()

    def widen(self, d: int, *, growing: bool = True) -> None:
        """Allocate memory for d features, or for more if their number keeps growing."""
        if d <= self.d:
            return
        if growing:
            d = max(d, 2 * self.d)
        elif d > OFFER_EXACT:  # only a few appear, one at a time
            d += SPARE
        self.widen_to(d)

    def widen_to(self, d: int) -> None:
        """Allocate memory for exactly d features, unless there are as many."""
        if d <= self.d:
            return
        if self.form == "exact" and d > LARGEST_EXACT:
            hessian.set_form(self, "diagonal")
        e = self.experts
        if self.form == "exact" and self.d <= TWO_MEMORIES < d:
            e = with_rungs(e, slow_rungs(e.exact), fast=False)
        self.experts = with_features_at(e, np.arange(self.d + 1), d + 1)
        self.d = d

    # -- reading

    def diagonal_weights(self, which: Any = slice(None)) -> Floats:
        """Return the weights (features, outputs, 2 L) of the diagonal experts, for scaled features."""
        w = self.experts.weights[which].astype(np.float64)
        by_memory = w.reshape(len(w), 2, -1)[:, :, : self.outputs * self.count]
        return np.concatenate([by_memory[:, m].reshape(len(w), self.outputs, self.count) for m in (0, 1)], axis=2)

    def all_weights(self, which: Any = slice(None)) -> Floats:
        """Return the weights (features, outputs, experts) of all experts, for scaled features."""
        e, w = self.experts, np.concatenate([self.diagonal_weights(which), line.weights(self, which)], axis=2)
        if self.form == "diagonal":
            return w
        low = e.low_rank
        better = e.exact.weights[which] if self.form == "exact" else low.weights[which] + low.u[which] @ low.along
        by_memory = better.reshape(len(w), -1, self.outputs, self.count).transpose(0, 2, 1, 3)
        return np.concatenate([w, by_memory.reshape(len(w), self.outputs, -1)], axis=2)

    def margins(self, x: Any, n: int | None = None) -> Floats:
        """Return the predictions (n, outputs) of n rows, by default all. Several threads may predict at once."""
        out = np.empty((x.shape[0] if n is None else n, self.outputs))
        self.core.read(plain_rows(x), out)
        return out

    def doubts(self, x: Any) -> tuple[Floats, Floats]:
        """Return the predictions (n,) of rows of a state with one output, and their variances."""
        margins, variances = np.empty((x.shape[0], 1)), np.empty((x.shape[0], 1))
        self.core.doubt(plain_rows(x), margins, variances)
        return margins[:, 0], variances[:, 0]

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers and arrays from which `unpack` restores this state."""
        return untuned_reading.pack(self)

    @classmethod
    def unpack(cls, parts: Any, check: Callable[[int, int], None], **settings: Any) -> "UntunedState":
        """Return the state in a snapshot; raise an error if its parts are inconsistent.

        `check` raises if the numbers of features and outputs do not fit the model; `settings` are the keyword arguments
        of the constructor.
        """
        return untuned_reading.unpack(lambda d, outputs: cls(d, outputs, **settings), parts, check)


def _restored(settings: dict[str, Any], entries: int, numbers: Document, arrays: Tensors) -> UntunedState:
    """Return the state that was pickled."""
    new = UntunedState.unpack(Parts(dict(numbers), dict(arrays), ""), lambda d, outputs: None, **settings)
    new.entries = entries
    return new


def is_whole(share: float) -> bool:
    """Return whether a state has the whole prior, up to rounding error."""
    return share > 1.0 - 1e-9


def set_diagonal_weights(out: Any, weights: Floats, count: int) -> Floats:
    """Fill `out` with the diagonal experts' part of weights (features, outputs, experts); return the other part.

    The other part has shape (features, memories outputs L), as in the exact and the sketched Hessian; L is `count`.
    """
    n, outputs, _ = weights.shape
    half, by_memory = out.shape[1] // 2, weights.reshape(n, outputs, -1, count).transpose(0, 2, 1, 3)
    for memory in (0, 1):
        out[:, memory * half : memory * half + outputs * count] = by_memory[:, memory].reshape(n, -1)
    return np.ascontiguousarray(by_memory[:, 2:].reshape(n, -1))


def _merge_pairs(weights: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return weights (features, outputs, experts) and shares (outputs, experts) of half as many experts.

    Pairs of adjacent experts become one, with their mean weighted by shares. So the mixture stays the same.
    """
    both = share.reshape(len(share), -1, 2)
    total = both.sum(axis=2)
    part = np.divide(both, total[:, :, None], out=np.full_like(both, 0.5), where=total[:, :, None] > 0)
    return np.einsum("fokp,okp->fok", weights.reshape(len(weights), len(share), -1, 2), part), total


def _with_outputs(weights: Any, outputs: int) -> Any:
    """Return weights (features, outputs, experts) with more outputs, which are 0 for new classes.

    A single output, the margin of the second class, becomes two outputs of half its size with opposite signs. So the
    softmax gives the same probabilities.
    """
    known = np.concatenate([-weights, weights], axis=1) / 2 if weights.shape[1] == 1 else weights
    out = np.zeros((len(known), outputs, known.shape[2]), known.dtype)
    out[:, : known.shape[1]] = known
    return out
