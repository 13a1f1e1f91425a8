"""The frequent-directions engine: buffer rows, shrink when the buffer is full (Luo et al. 2019, Alg. 1, 2, 4, 5).

A `State` is immutable: the engine returns a new one, so an error leaves the sketch unchanged. The positions of the
shrink steps depend only on the number of rows, never on the batches: the first comes after `buffer_size` rows, and
after a shrink step B counts as m - 1 rows, even if some of them are zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from robustfd.linalg.decompose import (
    EPS,
    Shrunk,
    Solver,
    rounding,
    shrink_columns,
    shrink_gram,
    shrink_stack,
    stack_gram,
)
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.centring import MAX_LOG_DECAY, has_cancelled, merge_means, noise
from robustfd.sketch.prepared import DenseRows, PreparedBatch, PreparedRows, updated_norm
from robustfd.sketch.rows import TINY, Contents, Floats, Queue, Rows, check_total, raise_not_finite

# How rows are processed: one shrink step at a time, or several together with dense or with sparse rows.
Route: TypeAlias = Literal["separate", "dense", "sparse"]
SUMS = ("delta", "squared_norm", "weight", "rounding")  # over rows, in a state


@dataclass(frozen=True)
class State:
    """The summary of all rows that have been through a shrink step. Subclasses track more statistics."""

    # The arrays in a snapshot, with their shapes, and their least values.
    ARRAYS: ClassVar[dict[str, str]] = {"b": "r d", "lam": "r", "mean": "2 d"}
    LEAST: ClassVar[dict[str, float]] = {"lam": TINY}

    b: Any  # B, orthogonal rows; in a state that is only read, it may be a function that forms B
    lam: Floats  # squared norms of the rows of B
    shrunk: bool  # whether there was a shrink step
    delta: float  # Delta, the sum of all deltas
    squared_norm: float  # ||A||_F^2
    weight: float  # total weight
    mean: Floats | None  # with centring only, in double-double form (centring.py)
    rounding: float  # bound on the rounding error of A'A - B'B, in the spectral norm

    @classmethod
    def empty(cls, d: int, center: bool) -> Self:
        """Return the state before any row."""
        return cls(np.zeros((0, d)), np.zeros(0), False, 0.0, 0.0, 0.0, np.zeros((2, d)) if center else None, 0.0)

    @property
    def rows(self) -> Floats:
        """B as an array."""
        return self.b() if callable(self.b) else self.b

    def updated(self, e: PreparedRows, s: float, t: Floats) -> Self:
        """Return the state with its additional statistics updated by the rows diag(t) E; older rows are scaled by s."""
        return self

    def shrunk_to(self, shrunk: Shrunk) -> Self:
        """Return the state with the result of a shrink step as B."""
        return replace(self, b=shrunk.rows, lam=shrunk.lam, shrunk=True, delta=self.delta + shrunk.delta)

    def with_b(self, *, overwrite: bool) -> Self:
        """Return the state after `Engine._run_batched` with B formed; with `overwrite`, in the memory of the last B."""
        return replace(self, b=self.b(overwrite=overwrite))

    def plus(self, other: "State") -> Self:
        """Return the state with the sums of both added. B is not merged here."""
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in SUMS})

    def faded(self, factor: float) -> Self:
        """Return the state with all sums multiplied by `factor`. The mean does not change."""
        if factor == 1.0:
            return self
        live = factor * self.lam > 0  # drop rows whose squared norm underflows
        sums = {name: factor * getattr(self, name) for name in SUMS}
        return replace(self, b=np.sqrt(factor) * self.rows[live], lam=factor * self.lam[live], **sums)


@dataclass(frozen=True)
class Engine:
    """The settings of a sketch: m, the buffer size, the number j of values that a shrink step reduces, the solver."""

    m: int
    buffer_size: int
    j: int
    solver: Solver

    def absorb(self, state: State, queue: Queue) -> tuple[State, Queue]:
        """Return the state after all complete buffers, and the queue of remaining rows."""
        own = False  # whether B was made here, so that its memory may be used again
        while True:
            route, wanted = self._plan(state, queue)
            if len(queue) < wanted:
                break
            cuts = self._shrink_points(state, wanted)
            rows, queue = queue.take(cuts[-1])
            state, own = self._run(state, rows, cuts, route, overwrite=own), True
        # Processed rows may take the state to ten times the largest norm (see `updated_norm`), so queued rows get the
        # same margin. Otherwise such a state would reject all further rows.
        return state, queue.owned(state.squared_norm / 10)

    def finish(self, state: State, queue: Queue, *, formed: bool = True) -> State:
        """Return the state after all queued rows, with a final shrink step to at most m - 1 rows.

        With `formed=False`, B may be a function that forms it, so that reading only numbers does not pay for B.
        """
        if not len(queue):
            return state
        cuts = self._shrink_points(state, len(queue))
        if not cuts or cuts[-1] < len(queue):
            cuts.append(len(queue))
        return self._run(state, queue.all(), cuts, self._route(state, queue), formed=formed)

    def merge(self, one: Contents, two: Contents) -> State:
        """Return the sketch of the union: stack both buffers, add both Deltas, shrink once."""
        a, stack_one = self._as_stack(*one)
        b, stack_two = self._as_stack(*two)
        stacks, both, extra = [stack_one, stack_two], a.plus(b), 0.0
        if a.mean is not None and b.mean is not None and both.weight > 0:
            row, mean = merge_means(a.mean, b.mean, a.weight, b.weight)
            both = replace(both.updated(DenseRows(row[None]), 1.0, np.ones(1)), mean=mean)
            stacks.append(row[None])
            extra = float(row @ row)
        stack = np.concatenate(stacks)
        norm = check_total(both.squared_norm + extra)
        shrunk = shrink_stack(stack[:0], np.zeros(0), stack, self.m, self.j, solver=self.solver)
        bound = both.rounding + rounding(len(stack), stack.shape[1], 1.0, shrunk.lam[:0], EPS * norm)
        return replace(both, squared_norm=norm, rounding=bound).shrunk_to(shrunk)

    def _free_rows(self, state: State) -> int:
        return self.buffer_size - (self.m - 1 if state.shrunk else 0)

    def _shrink_points(self, state: State, upto: int) -> list[int]:
        """Return the row counts up to `upto` at which a shrink step is due."""
        return list(range(self._free_rows(state), upto + 1, self.buffer_size - self.m + 1))

    def _route(self, state: State, queue: Queue) -> Route:
        """Return the fastest way to process the rows of the queue."""
        d = state.b.shape[1]
        if self.solver == "svd" or d < 2 * self.buffer_size:
            return "separate"
        light = queue.is_sparse and queue.nnz <= 0.1 * d * len(queue)
        return "sparse" if light and d > 4 * self.buffer_size else "dense"

    def _plan(self, state: State, queue: Queue) -> tuple[Route, int]:
        """Return the route and how many rows to collect for it, at least as many as the next shrink step needs."""
        m, d, free = self.m, state.b.shape[1], self._free_rows(state)
        route = self._route(state, queue)
        # B is formed once for all rows that are processed together, at a cost of m^2 d.
        if route == "sparse":
            # With more rows B is formed less often, but the Gram matrix of the rows costs more per row. The total is
            # nearly minimal at sqrt(m d) rows, where the Gram matrix is as large as B. More than 2048 rows save little
            # time, and with a million columns their Gram matrix would need most of the memory.
            most = min(np.sqrt(m * d), 2048.0)
            if state.mean is not None and len(queue):  # centring divides by the total decay, which must not underflow
                most = min(most, MAX_LOG_DECAY / max(-np.log(queue.pieces[-1].decay[-1]), EPS))
            full = max(int(most), free)
            # Collect rows only while they need no more memory than the buffer itself.
            return route, full if len(queue) >= full or queue.nnz < self.buffer_size * d // 2 else free
        if route == "dense" and self.buffer_size <= 3 * m:
            # Two buffers at a time cost as many flops per row as one, in larger and faster matrix products.
            return route, free + self.buffer_size - m + 1
        return route, free

    def _as_stack(self, state: State, queue: Queue, factor: float) -> tuple[State, Floats]:
        """Return the state after these rows, and its buffer as a dense stack, without a final shrink step."""
        while len(queue) >= self._free_rows(state):
            rows, queue = queue.take(self._free_rows(state))
            state = self._shrink(state, PreparedBatch(rows, state.mean, state.weight))
        stack = state.b
        if len(queue):
            state, e, s, t = _update_totals(state, PreparedBatch(queue.all(), state.mean, state.weight))
            stack = np.concatenate([s * stack, t[:, None] * e])
        return state.faded(factor), np.sqrt(factor) * stack

    @one_blas_thread()
    def _run(
        self,
        state: State,
        rows: Rows,
        cuts: Sequence[int],
        route: Route,
        *,
        formed: bool = True,
        overwrite: bool = False,
    ) -> State:
        """Return the state after the rows, with a shrink step at each of the cuts."""
        after = None
        if route != "separate":
            new = PreparedBatch(rows, state.mean, state.weight)
            after = self._run_batched(state, new, cuts, sparse=route == "sparse")
        if after is not None:
            return after.with_b(overwrite=overwrite) if formed else after
        after = state
        for start, stop in zip([0, *cuts], cuts, strict=False):
            after = self._shrink(after, PreparedBatch(rows[start:stop], after.mean, after.weight))
        return after

    def _shrink(self, state: State, new: PreparedBatch) -> State:
        """Return the state after a shrink step with these rows."""
        solver, invertible = self.solver, state.mean is None or new.rows.neg_log_decay() <= MAX_LOG_DECAY
        if solver == "auto" and invertible and len(state.b) + len(new.rows) > state.b.shape[1]:
            columns, resolved = self._shrink_columns(state, new)
            if columns is not None:
                return columns
            solver = "auto" if resolved else "svd"
        after, e, s, t = _update_totals(state, new)
        return after.shrunk_to(shrink_stack(state.b, state.lam, e, self.m, self.j, s=s, t=t, solver=solver))

    def _shrink_columns(self, state: State, new: PreparedBatch) -> tuple[State | None, bool]:
        """Return the state after a shrink step of more rows than columns, from E'E alone, and whether E'E resolves it.

        The state is None if E'E does not resolve the small eigenvalues or is itself inaccurate.
        """
        e, mean, weight = new.prepared(formed=False)
        s, t = new.rows.decay_scales()
        product, size = new.outer(), len(state.b) + len(new.rows)
        added = float(np.trace(product))
        if not np.isfinite(added):
            raise_not_finite(new.rows.x)
        noise_level = noise(e.term_lengths(), t)
        if has_cancelled(noise_level, s * s * state.lam.sum() + added):
            return None, True
        shrunk, resolved = shrink_columns(state.b, product, self.m, self.j, s=s, size=size)
        if not resolved:
            return None, False
        norm = check_total(s * s * state.squared_norm + added, slack=10)
        bound = s * s * state.rounding + rounding(size, state.b.shape[1], s, state.lam, noise_level)
        state = replace(state.updated(e, s, t), delta=s * s * state.delta, rounding=bound)
        return replace(state, squared_norm=norm, weight=weight, mean=mean).shrunk_to(shrunk), True

    def _run_batched(self, state: State, new: PreparedBatch, cuts: Sequence[int], *, sparse: bool) -> State | None:
        """Return the state after the rows, with B as a function that forms it; None if that is not accurate enough.

        With the prepared rows E, every B is R [B_0; E]. The products E B_0' and E E' are computed once. The shrink
        steps then update only the small matrix R. No intermediate B is formed.
        """
        rows = new.rows
        if state.mean is not None and rows.neg_log_decay() > MAX_LOG_DECAY:
            return None
        e, mean, weight = new.prepared(sparse=sparse, formed=False)
        cross, gram_e, rank0 = e.times(state.b), new.gram(sparse=sparse), len(state.b)
        if not np.isfinite(np.trace(gram_e)):
            raise_not_finite(rows.x)
        terms = e.term_lengths()
        r = np.eye(max(rank0, self.m - 1), rank0 + len(rows))  # only the first len(lam) rows are used
        lam, norm, delta, bound = state.lam, state.squared_norm, state.delta, state.rounding
        for start, stop in zip([0, *cuts], cuts, strict=False):
            s, t = rows.decay_scales(start, stop)
            q, z = len(lam), cross[start:stop]
            if start > 0:  # for the first shrink step, R is the identity
                z = z @ r[:q, :rank0].T + gram_e[start:stop, :start] @ r[:q, rank0 : rank0 + start].T
            gram = stack_gram(lam, z, gram_e[start:stop, start:stop], s, t)
            small = shrink_gram(gram, self.m, self.j, rank=min(len(gram), rows.x.shape[1]))
            if not small.resolved:
                return None
            added, noise_level = float(np.trace(gram[q:, q:])), noise(terms[start:stop], t)
            if has_cancelled(noise_level, s * s * lam.sum() + added):
                return None
            norm = s * s * norm + added
            bound = s * s * bound + rounding(len(gram), rows.x.shape[1], s, lam, noise_level)
            delta, lam = s * s * delta + small.delta, small.lam
            old = s * small.weights[:, :q]
            r[: len(lam), : rank0 + start] = old if start == 0 else old @ r[:q, : rank0 + start]
            r[: len(lam), rank0 + start : rank0 + stop] = small.weights[:, q:] * t
        r = r[: len(lam)]
        b = partial(e.combine, r[:, rank0:], r[:, :rank0], state.b)
        norm, state = check_total(norm, slack=10), state.updated(e, *rows.decay_scales())
        state = replace(state, squared_norm=norm, weight=weight, mean=mean, rounding=bound)
        return replace(state, b=b, lam=lam, shrunk=True, delta=delta)


def _update_totals(state: State, new: PreparedBatch) -> tuple[State, Floats, float, Floats]:
    """Return (state, E, s, t): the state with all sums updated, the rows E to be scaled by t, and the scale s of B."""
    rows, (e, mean, weight) = new.rows, new.prepared()
    assert isinstance(e, DenseRows)
    s, t = rows.decay_scales()
    norm, noise_level = updated_norm(state.squared_norm, e, rows), noise(e.term_lengths(), t)
    bound = s * s * state.rounding + rounding(len(state.b) + len(rows), state.b.shape[1], s, state.lam, noise_level)
    state = replace(state.updated(e, s, t), delta=s * s * state.delta, rounding=bound)
    return replace(state, mean=mean, weight=weight, squared_norm=norm), e.e, s, t
