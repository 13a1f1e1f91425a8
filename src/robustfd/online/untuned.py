"""The learner with nothing to tune: its state, from the first rows on, and which Hessians it pays for."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._validation import check_choice
from robustfd.linalg.threads import one_blas_thread
from robustfd.online import diagonal, exact, experts, feature_stats, low_rank, mixture
from robustfd.online.experts import Diagonal, Experts
from robustfd.online.feature_stats import Features
from robustfd.online.lanes import padded
from robustfd.online.mixture import Mixture, NumberLoss, Work
from robustfd.online.rows import Batch, CsrRows, part_of, plain_rows
from robustfd.online.untuned_snapshot import (
    MIXTURE,
    as_numbers,
    joined,
    pack_rows,
    require_targets,
    unpack_features,
    unpack_mixture,
    unpack_rows,
)

Floats = NDArray[np.float64]
Form = Literal["diagonal", "exact", "sketch"]

EDITION = 2  # of the state in a file
COUNTS = ("first", "seen", "size", "renew_at", "renewed_at", "look_at")  # numbers of the state in a file
ASIDE = 4096  # rows that all parts together set aside, so that the experts of the merged state earn by them
ASIDE_ENTRIES = 2**22  # and how many entries they may have
FIRST = 64  # rows that are learnt again whenever their number doubles
PRIOR, PRIOR_OF_NUMBERS = 3 / 16, 1 / 2  # a0
AT_ONCE = 1024  # features up to which a better Hessian is there before all of the first rows are
ALWAYS_EXACT = 32  # features up to which the exact Hessian costs next to nothing
TWO_MEMORIES = 64  # features up to which there is one for recent rows, too
OFFER_EXACT = 256  # features up to which it may pay
OFFER_SKETCH = 32  # a sketch may pay if there are at most so many features for each entry of a row
SKETCH = 20  # rows of the first sketch
LARGEST_SKETCH = 320
FIRST_LOOK = 1024  # rows after which a better Hessian is judged for the first time
AGAIN = 8  # it is tried again when there are so many times the rows
KEEP, GROW = 0.005, 0.02  # the least gain in loss for which it is kept, or made larger
RENEW = 8  # an exact Hessian of few features is renewed when there are 1/8 more rows, others more rarely
OFTEN = 256  # and after so many rows, if it forgets

# Rates of the experts, and whether they are linear: those that never forget, and those that do.
SPARE = 64  # room for more features where a few may come
RATES = np.array([[0.25, 1, 4, 16, 64, 256, 1, 16], [0.25, 1, 4, 16, 1, 4, 16, 64]])
LINEAR = np.array([[0.0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]])
FEW = [1, 2, 4, 6]  # one of each pair of these, for each of several classes: all would take long
RATES_OF_NUMBERS = 4.0 ** np.array([np.arange(-2, 6), np.arange(-3, 5)])


class Pointers(NamedTuple):
    """The experts and scratch memory as compiled loops take them."""

    shared: Any
    whole: Any
    low: Any
    work: Any


class Held(NamedTuple):
    """Pointers, and what they point to."""

    pointers: Pointers
    experts: Experts
    work: Work
    sparse: bool


class UntunedState:
    """Experts, the first rows while they are few, and when to look at the better Hessian next."""

    def __init__(
        self,
        d: int,
        outputs: int,
        *,
        sketch: int | None = None,
        loss: NumberLoss | None = None,
        share: float = 1.0,
    ):
        """Begin with d features; `share` is the part of the prior, below 1 for one of several to be merged."""
        self.d, self.outputs, self.sketch, self.loss = d, outputs, sketch, loss
        self.first = FIRST  # rows that are learnt again; none if a file does not have them
        self.seen = self.entries = 0  # rows, and the most entries that a row had
        self.kept: list[tuple[Any, Floats, Floats]] = []  # the first rows, raw
        self.aside: list[tuple[Any, Floats, Floats]] = []  # rows that are learnt when all parts are merged
        self.form: Form = "diagonal"
        self.size = 0  # rows of the sketch
        self.renew_at = self.look_at = 0
        self.renewed_at = 0
        self.gain = 0.0
        self._held: Held | None = None
        self.experts = self._fresh(feature_stats.start(d, prior=share * self.prior(), by_density=loss is None))
        self.count = self.experts.mix.plain.shape[1] // 2  # experts in each memory, for each output
        self.make_room()

    def prior(self) -> float:
        """Return a0."""
        return PRIOR if self.loss is None else PRIOR_OF_NUMBERS

    @property
    def share(self) -> float:
        """The part of the prior that this state has: 1, or less if it is one of several to be merged."""
        return float(self.experts.features.totals["prior"][0]) / self.prior()

    def _fresh(self, features: Features, before: Mixture | None = None, weights: Any = None) -> Experts:
        """Return experts that know nothing but the features; the trace of the mixture before goes on.

        `weights` are zeros of the right shape, if there are any yet.
        """
        rates, linear = self._lanes()
        mix = mixture.start(self.outputs, rates, linear, loss=self.loss)
        if before is not None:
            mix = mix._replace(trace=before.trace)
            mix.targets["stride"] = before.targets["stride"]
        count = rates.shape[1]
        width = 2 * padded(self.outputs * count)
        if weights is None or weights.shape[1] != width:
            weights = feature_stats.aligned(self.d + 1, np.float32, width)
        none = exact.start(0, 0, self.outputs, count), low_rank.start(0, 0, self.outputs, count)
        return Experts(features, mix, weights, *none)

    def _lanes(self) -> tuple[Floats, Floats]:
        """Return rates and whether they are linear, of the slow and of the fast experts."""
        if self.loss is not None:
            return RATES_OF_NUMBERS, np.ones_like(RATES_OF_NUMBERS)
        if self.outputs == 1:
            return RATES, LINEAR
        return RATES[:, FEW], LINEAR[:, FEW]

    def make_room(self) -> None:
        """Make scratch memory for learning rows of `entries` entries."""
        self.work = self._work_for(self.entries)

    def _work_for(self, entries: int) -> Work:
        """Return scratch memory for rows of so many entries."""
        e = self.experts
        wide = max(len(e.exact.block), len(e.low_rank.lam))
        return mixture.work_for(e.mix, entries + len(e.features.centred), e.weights.shape[1], wide)

    # -- learning

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> None:
        """Learn rows, dense or sparse, and fill margins (n, outputs) with predictions made before."""
        if len(y) <= FIRST:  # hardly any of so few comes when a Hessian is renewed: not worth the call
            self._learn_all(plain_rows(x), y, weight, margins)
            return
        with one_blas_thread():
            self._learn_all(plain_rows(x), y, weight, margins)

    def _learn_all(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> None:
        """Learn rows, cut where something is to be done between two of them."""
        done, n = 0, len(y)
        while done < n:
            if self.seen < self.first:
                until = 1 << self.seen.bit_length()
                part = slice(done, min(done + until - self.seen, n))
                self.kept.append(_taken(x, y, weight, part))
                self._learn(x, Batch(y, weight, margins), part)
                self.seen += part.stop - done
                if self.seen == until:
                    self._learn_again()
            elif (wanted := self._to_set_aside()) and (room := self._room_aside(wanted)):
                part = slice(done, min(done + room, n))
                self._set_aside(x, Batch(y, weight, margins), part)
            else:
                until = self._until_hessian()
                if wanted:
                    until = min(until, (self.seen // FIRST + 1) * FIRST)
                part = slice(done, min(done + until - self.seen, n))
                self._learn(x, Batch(y, weight, margins), part)
                self.seen += part.stop - done
                self._attend()
            done = part.stop

    def _room_aside(self, wanted: int) -> int:
        """Return how many of the next rows are to be set aside now: never more than were learnt."""
        return max(min(wanted, self.seen // FIRST * FIRST - self._rows_aside()), 0)

    def _to_set_aside(self) -> int:
        """Return how many rows are to be set aside from now on, 0 for a state that is not one of several."""
        if is_whole(share := self.share):
            return 0
        rows = share * min(ASIDE, ASIDE_ENTRIES // max(self.entries, 1))
        return max(round(rows) - self._rows_aside(), 0)

    def _rows_aside(self) -> int:
        return sum(len(y) for _, y, _ in self.aside)

    def _set_aside(self, x: Any, batch: Batch, part: slice) -> None:
        """Keep rows for the time when all parts are merged; they are judged now."""
        rows, y, weight = _taken(x, batch.y, batch.weight, part)
        batch.margins[part] = self.margins(rows, len(y))
        self.aside.append((rows, y, weight))

    def _check_room(self, x: Any, part: slice) -> None:
        """Make more scratch memory if there are rows with more entries than before."""
        entries = _most_entries(x, part)
        if entries > self.entries:
            self.entries = entries
            self.make_room()

    def _learn(self, x: Any, batch: Batch, part: slice, note: bool = True) -> None:
        """Learn rows between two events."""
        done, stop = part.start, part.stop
        self._check_room(x, part)
        while done < stop:
            if self.form == "sketch" and self.experts.low_rank.filled[0] == len(self.experts.low_rank.buffer):
                with one_blas_thread():
                    low_rank.shrink(self.experts.low_rank)
            rest, some, these = slice(done, stop), x, batch
            if stop - done < len(batch.y):
                some = x._replace(indptr=x.indptr[done : stop + 1]) if isinstance(x, CsrRows) else x[rest]
                these = Batch(*(each[rest] for each in batch))
            learn = experts.learn_sparse if isinstance(x, CsrRows) else experts.learn_dense
            shared, whole, low, work = self._pointers(sparse=isinstance(x, CsrRows))
            done += learn(shared, None if self.loss is None else True, whole, low, work, some, these, note)

    def _pointers(self, *, sparse: bool) -> Pointers:
        """Return what compiled loops take: the experts and scratch memory, made again after any of them was replaced.

        Instead of a better Hessian that will hardly come into use there is None.
        """
        held = self._held
        if held is None or held.experts is not self.experts or held.work is not self.work or held.sparse != sparse:
            e = self.experts
            shared = experts.DIAGONAL.pointers(Diagonal(e.features, e.mix, e.weights))
            whole = experts.EXACT.pointers(e.exact) if self.sketch is None and self.d <= OFFER_EXACT else None
            sketched = self.sketch is None and self.d > OFFER_EXACT and not sparse
            in_use = self.sketch or sketched or self.form == "sketch"
            low = experts.LOW_RANK.pointers(e.low_rank) if in_use else None
            held = Held(Pointers(shared, whole, low, experts.WORK.pointers(self.work)), e, self.work, sparse)
            self._held = held
        return held.pointers

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_held": None}  # a copy has arrays of its own

    def _learn_again(self) -> None:
        """Begin again with the statistics of all rows so far."""
        x, y, weight = self.first_rows()
        self.kept, n = [(x, y, weight)], len(y)
        weights = self.experts.weights
        weights[x.indices + 1 if isinstance(x, CsrRows) else slice(None)] = 0.0  # those of others are 0 already
        weights[0] = 0.0
        fresh = self._fresh(self.experts.features, self.experts.mix, weights)
        self.experts = fresh._replace(features=feature_stats.learn_first(fresh.features, x, n))
        if self.loss is not None:
            self._learn_targets(y, weight)
        self.form, self.size = "diagonal", 0
        if n == FIRST or self.d <= AT_ONCE:
            self.begin_form((len(x.data) if isinstance(x, CsrRows) else np.count_nonzero(x)) / n)
        self.make_room()
        batch, done = Batch(y, weight, np.empty((n, self.outputs))), 0
        while done < n:
            stop = n if self.form == "diagonal" else min(max(self.renew_at, done + 1), n)
            self._learn(x, batch, slice(done, stop), note=False)
            done = stop
            if self.form != "diagonal" and done >= self.renew_at:
                self._renew(done)
        if n == FIRST:
            self.kept = []
            self.look_at = FIRST_LOOK
            self._reset_gain()

    def first_rows(self) -> tuple[Any, Floats, Floats]:
        """Return the first rows, sparse if any were, their targets and weights."""
        return joined(self.kept)

    def _learn_targets(self, y: Floats, weight: Floats) -> None:
        """Set offset and unit of the targets from the first ones, outliers cut."""
        cut, targets = feature_stats.robust_cut(y[:, None])[:, 0], self.experts.mix.targets
        weight = np.minimum(weight, experts.HEAVIEST)  # the sum of others might overflow
        mean = float(np.average(cut, weights=weight))
        spread = float(np.average(np.square(cut - mean), weights=weight))
        if self.loss is not None and self.loss.counts:
            targets["unit"] = mean if mean > 0 else 1.0
            targets["spread"] = targets["spread_weight"] = 1.0
            return
        if self.loss is not None and self.loss.level > 0:
            mean = float(np.quantile(cut, self.loss.level))
        targets["offset"] = mean
        targets["unit"] = np.sqrt(spread) if spread > 0 else max(abs(mean), 1e-300)
        targets["spread"] = targets["spread_weight"] = float(spread > 0)

    # -- the better Hessian

    def set_form(self, form: Form, size: int = 0, rows: int = 0) -> None:
        """Take a form of the Hessian in use, its experts beginning where the mixture of the diagonal ones is."""
        e = self.experts
        self.form, self.size = form, size
        memories = self._memories(form)
        mix = mixture.with_better(e.mix, memories)
        same = self.outputs, self.count
        whole = exact.start(self.d + 1, memories if form == "exact" else 0, *same)
        low = low_rank.start(self.d + 1, size if form == "sketch" else 0, *same)
        better = whole.weights if form == "exact" else low.weights
        if form != "diagonal":
            better[:] = self._begin_weights(memories)
        # Of the rows before, an exact Hessian that begins later knows the diagonal.
        past = e.features.table["slow"], e.features.table["fast"] * e.features.totals["fade"][0]
        for matrix, diagonal_of_past in zip(whole.past, past):
            np.fill_diagonal(matrix, diagonal_of_past)
        self.experts = e._replace(mix=mix, exact=whole, low_rank=low)
        self.renewed_at = self.renew_at = rows
        if form != "diagonal":
            self._renew(rows)

    def _memories(self, form: Form) -> int:
        """Return in how many memories, slow and fast, there are experts with that form."""
        return {"diagonal": 0, "sketch": 1, "exact": 2 if self.d <= TWO_MEMORIES else 1}[form]

    def _begin_weights(self, memories: int) -> Floats:
        """Return weights (features, experts) of a better form: of each kind of scaling the mean of its experts."""
        w = self._diagonal_weights()  # (features, outputs, 2 L)
        mix, n = self.experts.mix, memories * self.count
        out = np.zeros((len(w), self.outputs, n))
        for linear in (0.0, 1.0):
            share = mix.plain * (mix.linear[: 2 * self.count] == linear)
            total = share.sum(axis=1, keepdims=True)
            mean = np.einsum("fok,ok->fo", w, np.divide(share, total, out=np.zeros_like(share), where=total > 0))
            out[:, :, mix.linear[:n] == linear] = mean[:, :, None]
        parts = out.reshape(len(w), self.outputs, memories, self.count)
        return parts.transpose(0, 2, 1, 3).reshape(len(w), -1)

    def _diagonal_weights(self) -> Floats:
        """Return the weights (features, outputs, 2 L) of the diagonal experts, of features in their units."""
        w, half = self.experts.weights.astype(np.float64), self.experts.weights.shape[1] // 2
        used = self.outputs * self.count
        parts = [w[:, m * half : m * half + used].reshape(len(w), self.outputs, self.count) for m in (0, 1)]
        return np.concatenate(parts, axis=2)

    def begin_form(self, entries: float) -> None:
        """Decide which better Hessian to try for rows of so many entries in the mean."""
        if self.sketch is not None:
            if self.sketch > 0:
                self.set_form("sketch", self.sketch)
        elif self.d <= OFFER_EXACT:
            if self.d <= TWO_MEMORIES or self.seen >= FIRST:  # for more features it takes long to renew
                self.set_form("exact")
        elif self.d <= OFFER_SKETCH * entries:
            self.set_form("sketch", SKETCH)

    def _renew(self, rows: int) -> None:
        """Renew the better Hessian after so many rows, and set when to do so next."""
        table, e = self.experts.features.table, self.experts
        with one_blas_thread():
            if self.form == "exact":
                exact.renew(e.exact, table["prior"], experts.GAMMA ** (rows - self.renewed_at))
            else:
                low_rank.renew(e.low_rank, table["prior"], table["slow"])
        soon = max(2 * (rows - self.renewed_at), FIRST)  # one that began late takes in its first rows soon
        self.renewed_at = rows
        more = max(rows // RENEW, 1)
        if self.form == "sketch":
            more = max(rows // 4, 1)
        elif self.d > TWO_MEMORIES:  # it takes long
            more = max(rows // 2, self.d // 8)
        if self.form == "exact" and len(e.exact.past) > 1:
            soon = min(soon, OFTEN)
        self.renew_at = rows + min(more, soon)

    def renew_now(self) -> None:
        """Renew the better Hessian."""
        self._renew(self.seen)

    def _until_hessian(self) -> int:
        """Return the number of rows at which something is to be done with the better Hessian."""
        if self.form == "diagonal":
            return max(self.look_at, self.seen + 1) if self.sketch is None and self._offered() else 2**62
        if self.sketch is None:
            return max(min(self.renew_at, self.look_at), self.seen + 1)
        return max(self.renew_at, self.seen + 1)

    def _offered(self) -> bool:
        return self.d <= OFFER_EXACT or self.size > 0

    def _attend(self) -> None:
        """Do what is to be done after so many rows."""
        if self.form != "diagonal" and self.seen >= self.renew_at:
            self._renew(self.seen)
        if self.sketch is None and self.seen >= self.look_at:
            self._look()

    def _look(self) -> None:
        """Keep the better Hessian, make it larger, drop it, or try it again."""
        targets = self.experts.mix.targets[0]
        if self.form == "diagonal":
            if self._offered():
                self.set_form("exact" if self.d <= OFFER_EXACT else "sketch", self.size, self.seen)
                self.make_room()
                self.look_at = self.seen + FIRST_LOOK
        else:
            gain = 1.0 - targets["loss"] / targets["plain_loss"] if targets["plain_loss"] > 0 else 0.0
            self.look_at = 2 * self.seen
            if gain < KEEP and self.d > ALWAYS_EXACT:
                size = self.size
                self.set_form("diagonal")
                self.size = size
                self.make_room()
                self.look_at = AGAIN * self.seen
            elif self.form == "sketch" and gain > self.gain + GROW and self.size < LARGEST_SKETCH:
                self.gain = gain
                self.grow(2 * self.size)
        self._reset_gain()

    def grow(self, size: int) -> None:
        """Make the sketch larger."""
        self.size = size
        with one_blas_thread():
            low = low_rank.with_size(self.experts.low_rank, size)
        self.experts = self.experts._replace(low_rank=low)
        self.make_room()
        self._renew(self.seen)

    def _reset_gain(self) -> None:
        self.experts.mix.targets["loss"] = self.experts.mix.targets["plain_loss"] = 0.0

    # -- classes and features that appear later

    def add_outputs(self, outputs: int) -> None:
        """Make room for classes that appeared; what is known of the others stays, two classes becoming two outputs."""
        old, form, memories = self.experts, self.form, self._memories(self.form)
        if form == "sketch":
            low_rank.fold(old.low_rank)
        weights, share = self.all_weights(), old.mix.share
        if self.outputs == 1:
            weights, share = _merge_pairs(weights, share)
        self.outputs = outputs
        new = self._fresh(old.features, old.mix)
        self.count = new.mix.plain.shape[1] // 2
        better = self.set_diagonal_weights(new.weights, _with_outputs(weights, outputs))
        known = 2 if len(share) == 1 else len(share)
        plain = share[:, : 2 * self.count]
        new.mix.plain[:known] = plain / plain.sum(axis=1, keepdims=True)
        mix = mixture.with_better(new.mix, memories)
        mix.share[:known] = share
        mix.follow[:known] = old.mix.follow
        if len(share) == 1:
            mix.follow[0, 0] *= -0.5
            mix.follow[1, 0] *= 0.5
        whole, low = new.exact, new.low_rank
        if form == "exact":
            whole = old.exact._replace(weights=better)
        elif form == "sketch":
            low = old.low_rank._replace(weights=better, along=np.zeros((len(old.low_rank.lam), better.shape[1])))
        self.experts = new._replace(mix=mix, exact=whole, low_rank=low)
        self.make_room()
        if self.kept:
            self._learn_again()

    def set_diagonal_weights(self, out: Any, weights: Floats) -> Floats:
        """Fill `out` with those of weights (features, outputs, experts) that are of diagonal experts; return the rest.

        The rest is (features, memories outputs L), as exact and sketched Hessians have it.
        """
        n, half, used = len(weights), out.shape[1] // 2, self.outputs * self.count
        parts = weights.reshape(n, self.outputs, -1, self.count).transpose(0, 2, 1, 3)
        for memory in (0, 1):
            out[:, memory * half : memory * half + used] = parts[:, memory].reshape(n, -1)
        return np.ascontiguousarray(parts[:, 2:].reshape(n, -1))

    def all_weights(self) -> Floats:
        """Return the weights (features, outputs, experts) of all experts, of features in their units."""
        e, w = self.experts, self._diagonal_weights()
        if self.form == "diagonal":
            return w
        better = e.exact.weights if self.form == "exact" else e.low_rank.weights + e.low_rank.u @ e.low_rank.along
        parts = better.reshape(len(w), -1, self.outputs, self.count).transpose(0, 2, 1, 3)
        return np.concatenate([w, parts.reshape(len(w), self.outputs, -1)], axis=2)

    def widen(self, d: int, *, growing: bool = True) -> None:
        """Make room for d features; for more than that if they keep growing."""
        if d <= self.d:
            return
        if growing:
            d = max(d, 2 * self.d)
        elif d > OFFER_EXACT:  # few of them come, one by one
            d += SPARE
        self.widen_to(d)

    def widen_to(self, d: int) -> None:
        """Make room for exactly d features."""
        e, more = self.experts, d - self.d
        weights = feature_stats.aligned(d + 1, np.float32, e.weights.shape[1])
        weights[: self.d + 1] = e.weights
        whole, low = e.exact, e.low_rank
        if self.form == "exact" and d > OFFER_EXACT:
            self.set_form("diagonal")
            whole, e = self.experts.exact, self.experts
        elif self.form == "exact":
            if self.d <= TWO_MEMORIES < d:
                e = self._with_one_memory()
            whole = exact.with_features(e.exact, more)
        elif self.form == "sketch":
            low = low_rank.with_features(low, more)
        features = feature_stats.with_features(e.features, d)
        self.experts = e._replace(features=features, weights=weights, exact=whole, low_rank=low)
        self.d = d
        self.make_room()

    def _with_one_memory(self) -> Experts:
        """Return the experts without those whose exact Hessian forgets; the others have their shares."""
        e, n = self.experts, 2 * self.count
        some = slice(0, n + self.count)
        mix = mixture.with_better(e.mix, 1)
        mix.share[:] = e.mix.share[:, some]
        mix.share[:, n:] += e.mix.share[:, some.stop :]
        past, inverse = (each[:1] for each in (e.exact.past, e.exact.inverse))
        whole = e.exact._replace(past=past, inverse=inverse, weights=e.exact.weights[:, : self.outputs * self.count])
        return e._replace(mix=mix, exact=whole)

    # -- snapshots: only features that were seen

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return numbers and arrays from which `unpack` makes this state again."""
        e = self.experts
        table = e.features.table
        which = np.flatnonzero((table["inverse"] > 0) | (table["number"] > 0)).astype(np.int32)
        numbers = {"edition": EDITION, "features": self.d, "outputs": self.outputs, "form": self.form}
        numbers |= {name: getattr(self, name) for name in COUNTS} | {"gain": self.gain}
        arrays = {"feature": which, "weights": e.weights[which], "table": as_numbers(table[which])}
        arrays |= {
            "totals": as_numbers(e.features.totals),
            "centre": e.features.centre,
            "targets": as_numbers(e.mix.targets),
        }
        arrays |= {name: getattr(e.mix, name) for name in MIXTURE}
        if self.form == "exact":
            arrays |= {f"exact.{name}": getattr(e.exact, name) for name in e.exact._fields}
        elif self.form == "sketch":
            arrays |= {f"sketch.{name}": array for name, array in low_rank.pack(e.low_rank, which).items()}
        for name in ("kept", "aside"):
            if rows := getattr(self, name):
                arrays |= pack_rows(name, *joined(rows))
        return numbers, arrays

    @classmethod
    def unpack(cls, parts: Any, check: Callable[[int, int], None], **settings: Any) -> "UntunedState":
        """Return the state that was packed; what is impossible is an error.

        `check` raises if there cannot be so many features and outputs; `settings` are those of a new state.
        """
        if parts.count("edition") != EDITION:
            raise ValueError("the state is of an unknown edition")
        d, outputs, form = parts.count("features"), parts.count("outputs"), parts.text("form")
        check_choice("form", form, ("diagonal", "exact", "sketch"))
        check(d, outputs)  # before memory is taken
        state = cls(d, outputs, **settings)
        for name in COUNTS:
            setattr(state, name, parts.count(name))
        state.form, state.gain = form, parts.number("gain")
        if state.first not in (0, FIRST):
            raise ValueError(f"{state.first} first rows")
        which = parts.array("feature", n := parts.shape("feature", 1)[0], dtype=np.int32, least=0, most=d)
        if n < 1 or which[0] != 0 or np.any(which[1:] <= which[:-1]):
            raise ValueError("the features are not ascending")
        e = state.experts
        e.weights[which] = parts.array("weights", n, e.weights.shape[1], dtype=np.float32)
        features = unpack_features(parts, e.features, which)
        mix = unpack_mixture(parts, e.mix, state._memories(form), int(features.totals["rows"][0]))
        state.experts = e._replace(features=features, mix=mix)
        state._unpack_form(parts, which)
        if 0 < state.seen < state.first:
            state.kept = [unpack_rows(parts, "kept", state.seen, d)]
        if parts.has("aside.y"):
            state.aside = [unpack_rows(parts, "aside", parts.shape("aside.y", 1)[0], d)]
        require_targets([*state.kept, *state.aside], 0 if state.loss is not None else max(outputs, 2))
        parts.close()
        state.make_room()
        return state

    def _unpack_form(self, parts: Any, which: NDArray[np.int32]) -> None:
        """Take the better Hessian out of a file."""
        if self.form == "exact":
            if self.d > OFFER_EXACT:
                raise ValueError(f"an exact Hessian of {self.d} features")
            whole = exact.start(self.d + 1, self._memories("exact"), self.outputs, self.count)
            for name, array in whole._asdict().items():
                array[:] = parts.array(f"exact.{name}", *array.shape)
            self.experts = self.experts._replace(exact=whole)
        elif self.form == "sketch":
            if self.size < 2 or self.sketch not in (None, self.size):
                raise ValueError(f"a sketch of {self.size} rows")
            low = low_rank.unpack(parts, which, self.d + 1, self.size, self.outputs * self.count)
            self.experts = self.experts._replace(low_rank=low)

    # -- reading

    def linear_model(self) -> tuple[Floats, Floats]:
        """Return weights (d, outputs) and intercepts (outputs,): the mean effect of features in their own units.

        For numbers that is the model itself, for counts that of their logarithm. Experts on classes may divide each row
        by its length; here all rows have the mean length.
        """
        e, mix = self.experts, self.experts.mix
        table, totals, (offset, unit) = e.features.table, e.features.totals[0], self._offset_and_unit()
        w = self.all_weights()
        f = np.where(mix.linear > 0, totals["length"], totals["norm"])
        effect = np.einsum("fok,ok->fo", w[1:], mix.share * f) * table["inverse"][1:, None] * unit
        own = diagonal.INTERCEPT * np.einsum("ok,ok->o", w[0], mix.share)
        intercept = offset + unit * (own + np.einsum("oe,oe->o", mix.follow[:, 0], mix.follow[:, 1]))
        centred = e.features.centred
        intercept = intercept - e.features.centre[0] @ effect[centred - 1]
        return effect, intercept

    def effects(self) -> Floats:
        """Return what features (d, outputs) usually add to predictions, with the sign of their weights.

        That is the weight times the usual size of the feature, the root of its mean square about its centre, and the
        share of rows where it is not 0.
        """
        table, rows = self.experts.features.table[1:], max(self.experts.features.totals["rows"][0], 1.0)
        share = np.where(table["number"] > 0, 1.0, np.minimum(table["count"] / rows, 1.0))
        effects: Floats = self.linear_model()[0] * (share * np.sqrt(table["square"]))[:, None]
        return effects

    def _offset_and_unit(self) -> tuple[float, float]:
        """Return by which offset and unit the output of the experts becomes a prediction, or the logarithm of one."""
        targets = self.experts.mix.targets[0]
        return (float(np.log(targets["unit"])), 1.0) if targets["counts"] else (targets["offset"], targets["unit"])

    def contributions(self, x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return what features add to the predictions of rows, as sparse rows: indptr, features, parts (n, outputs).

        With the intercepts of `linear_model` they sum to the predictions, before numbers are kept near the targets.
        """
        e, mix, (_, unit) = self.experts, self.experts.mix, self._offset_and_unit()
        w, linear = self.all_weights(), mix.linear > 0
        by_kind = [np.einsum("fok,ok->fo", w, mix.share * kind) * unit for kind in (~linear, linear)]
        centres = np.zeros_like(by_kind[0])
        centres[e.features.centred] = e.features.centre[0][:, None] * self.linear_model()[0][e.features.centred - 1]
        n, x = x.shape[0], plain_rows(x)
        sparse = isinstance(x, CsrRows)
        most = (len(x.data) if sparse else x.size) + n * len(e.features.centred)
        indptr, which, parts = np.zeros(n + 1, np.int64), np.empty(most, np.int64), np.empty((most, self.outputs))
        explain = experts.explain_sparse if sparse else experts.explain_dense
        shared, work = self._pointers(sparse=sparse).shared, self._work_for(_most_entries(x, slice(0, n)))
        explain(shared, np.array([*by_kind, centres]), experts.WORK.pointers(work), x, indptr, which, parts)
        return indptr, which[: indptr[-1]], parts[: indptr[-1]]

    def drift(self) -> dict[str, NDArray[Any]]:
        """Return arrays "rows" and "share": the share of experts that forget, by windows of rows that end there."""
        stride, rows = int(self.experts.mix.targets["stride"][0]), self.seen
        ends = np.minimum(np.arange(1, -(-rows // stride) + 1) * stride, rows)
        counts = np.diff(ends, prepend=0)
        return {"rows": ends, "share": self.experts.mix.trace[: len(ends)] / counts}

    def margins(self, x: Any, n: int | None = None, *, alone: bool = False) -> Floats:
        """Return the predictions (n, outputs) of n rows, by default as many as their shape says.

        Many may read at a time. With `alone` no other does, and the scratch memory for learning is used.
        """
        n, x = x.shape[0] if n is None else n, plain_rows(x)
        entries, out = _most_entries(x, slice(0, n)), np.empty((n, self.outputs))
        sparse = isinstance(x, CsrRows)
        pointers = self._pointers(sparse=sparse)
        if not (alone and entries <= self.entries):
            own = self._work_for(entries)  # held until the loop ends
            pointers = pointers._replace(work=experts.WORK.pointers(own))
        read = experts.read_sparse if sparse else experts.read_dense
        read(*pointers, x, out)
        return out


def _taken(x: Any, y: Floats, weight: Floats, part: slice) -> tuple[Any, Floats, Floats]:
    """Return copies of some rows, of their targets and of their weights."""
    return part_of(x, part) if isinstance(x, CsrRows) else x[part].copy(), y[part].copy(), weight[part].copy()


def is_whole(share: float) -> bool:
    """Return whether a state has all of the prior, up to rounding."""
    return share > 1.0 - 1e-9


def _most_entries(x: Any, part: slice) -> int:
    """Return the most entries that one of these rows has."""
    if isinstance(x, CsrRows):
        if len(x.indptr) == 2:  # a single row
            return x.indptr.item(1) - x.indptr.item(0)
        return int(np.diff(x.indptr[part.start : part.stop + 1]).max(initial=0))
    return int(x.shape[1])


def _merge_pairs(weights: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return weights (features, outputs, experts) and shares (outputs, experts) of half as many experts.

    Experts that are neighbours become one, with the mean of their weights by their shares: the mixture is the same.
    """
    both = share.reshape(len(share), -1, 2)
    total = both.sum(axis=2)
    part = np.divide(both, total[:, :, None], out=np.full_like(both, 0.5), where=total[:, :, None] > 0)
    return np.einsum("fokp,okp->fok", weights.reshape(len(weights), len(share), -1, 2), part), total


def _with_outputs(weights: Any, outputs: int) -> Any:
    """Return weights (features, outputs, experts) of more outputs, those of new classes 0.

    One output, the margin of the second class, becomes two of half its size, so that their softmax is the same.
    """
    known = np.concatenate([-weights, weights], axis=1) / 2 if weights.shape[1] == 1 else weights
    out = np.zeros((len(known), outputs, known.shape[2]), known.dtype)
    out[:, : known.shape[1]] = known
    return out
