"""The state of the untuned learner: how it processes rows, and the events between rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import HEAVIEST
from robustfd.learners import (
    feature_stats,
    hessian_choice,
    low_rank,
    untuned_growth,
    untuned_reading,
    untuned_snapshot,
)
from robustfd.learners.rows import Batch, CsrRows, most_entries, part_of, plain_rows
from robustfd.learners.untuned_snapshot import joined
from robustfd.learners.untuned_state import FIRST, ExpertState
from robustfd.linalg.threads import one_blas_thread

Floats = NDArray[np.float64]

ASIDE = 4096  # rows that all parts together set aside; the merged state learns from them to weight its experts
ASIDE_ENTRIES = 2**22  # the largest number of entries of these rows
INTERRUPTIBLE = 2**15  # rows after which Python looks for an interrupt
AT_ONCE = 1024  # up to this number of features a better Hessian is tried during the first rows


class UntunedState(ExpertState):
    """A state that learns from rows, grows, predicts, and packs itself into files."""

    def learn(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> None:
        """Learn from dense or sparse rows, and fill margins (n, outputs) with each prediction before the step."""
        y, weight = np.ascontiguousarray(y, np.float64), np.ascontiguousarray(weight, np.float64)
        if len(y) <= FIRST:  # few rows rarely update a Hessian, so setting the number of BLAS threads does not pay off
            self._learn_all(plain_rows(x), y, weight, margins)
            return
        with one_blas_thread():
            self._learn_all(plain_rows(x), y, weight, margins)

    def _learn_all(self, x: Any, y: Floats, weight: Floats, margins: Floats) -> None:
        """Learn from rows in parts that end at the next event."""
        done, n = 0, len(y)
        while done < n:
            if self.seen < self.first:
                until = 1 << self.seen.bit_length()
                part = slice(done, min(done + until - self.seen, n))
                self.kept.append(_copied(x, y, weight, part))
                self._learn(x, Batch(y, weight, margins), part)
                self.seen += part.stop - done
                if self.seen == until:
                    self._learn_again()
            elif (wanted := self._to_set_aside()) and (count := self._next_aside(wanted)):
                part = slice(done, min(done + count, n))
                self._set_aside(x, Batch(y, weight, margins), part)
            else:
                until = hessian_choice.next_event(self)
                if wanted:
                    until = min(until, (self.seen // FIRST + 1) * FIRST)
                part = slice(done, min(done + until - self.seen, n))
                self._learn(x, Batch(y, weight, margins), part)
                self.seen += part.stop - done
                hessian_choice.handle_events(self)
            done = part.stop

    def _next_aside(self, wanted: int) -> int:
        """Return how many of the next rows to set aside now, at most as many as have been learned."""
        return max(min(wanted, self.seen // FIRST * FIRST - self._rows_aside()), 0)

    def _to_set_aside(self) -> int:
        """Return how many more rows to set aside: 0 unless this state is a part of several."""
        if is_whole(share := self.share):
            return 0
        rows = share * min(ASIDE, ASIDE_ENTRIES // max(self.entries, 1))
        return max(round(rows) - self._rows_aside(), 0)

    def _rows_aside(self) -> int:
        return sum(len(y) for _, y, _ in self.aside)

    def _set_aside(self, x: Any, batch: Batch, part: slice) -> None:
        """Store rows until all parts are merged, and fill their predictions now."""
        rows, y, weight = _copied(x, batch.y, batch.weight, part)
        batch.margins[part] = untuned_reading.margins(self, rows, len(y))
        self.aside.append((rows, y, weight))

    def _learn(self, x: Any, batch: Batch, part: slice, update_stats: bool = True) -> None:
        """Learn from the rows between two events."""
        done, stop = part.start, part.stop
        self.entries = max(self.entries, most_entries(x, part))
        while done < stop:
            until = min(done + INTERRUPTIBLE, stop)
            done = self.core.learn(x, batch.y, batch.weight, batch.margins, done, until, update_stats)
            if done < until:  # the sketch is full
                with one_blas_thread():
                    low_rank.shrink(self.experts.low_rank)

    def _learn_again(self) -> None:
        """Start over with the statistics of all rows so far, and learn from these rows again."""
        x, y, weight = self.first_rows()
        self.kept, n = [(x, y, weight)], len(y)
        weights = self.experts.weights
        weights[x.indices + 1 if isinstance(x, CsrRows) else slice(None)] = 0.0  # all other weights are 0 already
        weights[0] = 0.0
        fresh = self.fresh_experts(self.experts.features, self.experts.mix, weights)
        self.experts = fresh._replace(features=feature_stats.learn_first(fresh.features, x, n))
        self.core.first_scales(
            np.unique(x.indices).astype(np.int64) + 1 if isinstance(x, CsrRows) else np.arange(1, self.d + 1)
        )
        if self.loss is not None:
            self._learn_targets(y, weight)
        self.form, self.size = "diagonal", 0
        if n == FIRST or self.d <= AT_ONCE:
            hessian_choice.begin_form(self, (len(x.data) if isinstance(x, CsrRows) else np.count_nonzero(x)) / n)
        batch, done = Batch(y, weight, np.empty((n, self.outputs))), 0
        while done < n:
            stop = n if self.form == "diagonal" else min(max(self.renew_at, done + 1), n)
            self._learn(x, batch, slice(done, stop), update_stats=False)
            done = stop
            if self.form != "diagonal" and done >= self.renew_at:
                hessian_choice.renew(self, done)
        if n == FIRST:
            self.kept = []
            self.look_at = hessian_choice.FIRST_LOOK
            hessian_choice.reset_gain(self)

    def first_rows(self) -> tuple[Any, Floats, Floats]:
        """Return the first rows, their targets and weights; the rows are sparse if any of them was."""
        return joined(self.kept)

    def _learn_targets(self, y: Floats, weight: Floats) -> None:
        """Set the offset and unit of the targets from the first ones, with outliers clipped."""
        cut, targets = feature_stats.robust_cut(y[:, None])[:, 0], self.experts.mix.targets
        weight = np.minimum(weight, HEAVIEST)
        weight = weight / weight.max()  # otherwise the products with squares of targets might overflow
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

    def add_outputs(self, outputs: int) -> None:
        """Add new classes. The others keep their weights; the single output of two classes becomes two outputs."""
        untuned_growth.add_outputs(self, outputs)
        if self.kept:
            self._learn_again()

    def widen(self, d: int, *, growing: bool = True) -> None:
        """Allocate memory for d features, or for more if their number keeps growing."""
        untuned_growth.widen(self, d, growing=growing)

    def margins(self, x: Any, n: int | None = None) -> Floats:
        """Return the predictions (n, outputs) of n rows (`untuned_reading.margins`)."""
        return untuned_reading.margins(self, x, n)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers and arrays from which `unpack` restores this state."""
        return untuned_snapshot.pack(self)

    @classmethod
    def unpack(cls, parts: Any, check: Callable[[int, int], None], **settings: Any) -> "UntunedState":
        """Return the state in a snapshot; raise an error if its parts are inconsistent.

        `check` raises if the numbers of features and outputs do not fit the model; `settings` are the keyword arguments
        of the constructor.
        """
        return untuned_snapshot.unpack(lambda d, outputs: cls(d, outputs, **settings), parts, check)


def _copied(x: Any, y: Floats, weight: Floats, part: slice) -> tuple[Any, Floats, Floats]:
    """Return copies of some rows, their targets and their weights."""
    return part_of(x, part) if isinstance(x, CsrRows) else x[part].copy(), y[part].copy(), weight[part].copy()


def is_whole(share: float) -> bool:
    """Return whether a state has the whole prior, up to rounding error."""
    return share > 1.0 - 1e-9
