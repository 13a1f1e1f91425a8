"""The frequent-directions engine: buffer rows, shrink when the buffer is full (Luo et al. 2019, Alg. 1, 2, 4, 5).

A `State` is never changed in place: an engine takes one and returns the next, so an error anywhere leaves
the sketch as it was. Where a shrink happens depends on the number of rows alone, never on how the rows were
cut into batches: the first comes when `buffer_size` rows are there, and after a shrink B counts as m - 1
rows, even if some are zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from robustfd.linalg.decompose import Shrunk, Solver, shrink_columns, shrink_gram, shrink_stack, stack_gram
from robustfd.linalg.eigen import EPS
from robustfd.linalg.rules import rounding
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._centring import LARGEST_DECAY, is_lost, joined, noise
from robustfd.sketch._entering import DenseRows, EnteringRows, Entrance, grown
from robustfd.sketch._rows import Floats, Queue, Rows, Unread, check_total, raise_not_finite

# Rows are worked on shrink by shrink, or several shrinks together with the rows dense or left sparse.
Form: TypeAlias = Literal["apart", "dense", "sparse"]


@dataclass(frozen=True)
class State:
    """What a sketch remembers of the rows that have been through a shrink.

    A sketch that remembers more has a state of its own, and says there what `faded`, `plus` and `entered` do to it.
    """

    b: Any  # orthogonal rows; of a state that is only read, perhaps a function that forms them
    lam: Floats  # their squared norms
    shrunk: bool  # whether a shrink has happened
    delta: float  # Delta, the sum of all deltas
    squared_norm: float  # ||A||_F^2
    weight: float  # total weight
    mean: Floats | None  # when centring, in two parts (_centring.py)
    rounding: float  # a bound on what rounding has changed of A'A - B'B

    @classmethod
    def empty(cls, d: int, center: bool) -> Self:
        """Return the state before any row."""
        return cls(np.zeros((0, d)), np.zeros(0), False, 0.0, 0.0, 0.0, np.zeros((2, d)) if center else None, 0.0)

    @property
    def rows(self) -> Floats:
        """B, formed now if it is not yet."""
        return self.b() if callable(self.b) else self.b

    def entered(self, e: EnteringRows, s: float, t: Floats) -> Self:
        """Return the state with what it remembers beside B after diag(t) E has entered, all older scaled by s."""
        return self

    def shrunk_to(self, shrunk: Shrunk) -> Self:
        """Return the state with B as a shrink has left it."""
        return replace(self, b=shrunk.rows, lam=shrunk.lam, shrunk=True, delta=self.delta + shrunk.delta)

    def plus(self, other: "State") -> Self:
        """Return the state with the sums of both, B not yet among them."""
        return replace(
            self,
            delta=self.delta + other.delta,
            squared_norm=self.squared_norm + other.squared_norm,
            weight=self.weight + other.weight,
            rounding=self.rounding + other.rounding,
        )

    def faded(self, factor: float) -> Self:
        """Return the state after everything in it is multiplied by factor; the mean stays."""
        if factor == 1.0:
            return self
        live = factor * self.lam > 0  # what fades below the least number is gone
        return replace(
            self,
            b=np.sqrt(factor) * self.rows[live],
            lam=factor * self.lam[live],
            delta=factor * self.delta,
            squared_norm=factor * self.squared_norm,
            weight=factor * self.weight,
            rounding=factor * self.rounding,
        )


@dataclass(frozen=True)
class Engine:
    """Rules of the game: m, the buffer, how many values a shrink takes delta from, and the solver."""

    m: int
    buffer_size: int
    j: int
    solver: Solver

    def absorb(self, state: State, queue: Queue) -> tuple[State, Queue]:
        """Return the state after as many rows as fill whole buffers, and the rows that wait for more."""
        while len(queue) >= (wanted := self._wanted(state, queue)):
            cuts = self._cuts(state, wanted)
            rows, after = queue.take(cuts[-1])
            state, queue = self._run(state, rows, cuts, self._form(state, queue)), after
        # Rows that enter at once may take the state to ten times the largest norm (`grown` says why). So rows that wait
        # have that much room, too. Otherwise such a state would refuse all rows.
        return state, queue.owned(state.squared_norm / 10)

    def finish(self, state: State, queue: Queue, *, formed: bool = True) -> State:
        """Return the state after all these rows, shrunk to at most m - 1 rows whatever their number.

        Unless it is to be `formed`, its B may be a function: who reads numbers only does not pay for it.
        """
        if not len(queue):
            return state
        cuts = self._cuts(state, len(queue))
        if not cuts or cuts[-1] < len(queue):
            cuts.append(len(queue))
        return self._run(state, queue.all(), cuts, self._form(state, queue), formed=formed)

    def merge(self, one: Unread, two: Unread) -> State:
        """Return the sketch of the union: both buffers stacked, both Deltas added, one shrink."""
        a, stack_one = self._unshrunk(*one)
        b, stack_two = self._unshrunk(*two)
        stacks, both, extra = [stack_one, stack_two], a.plus(b), 0.0
        if a.mean is not None and b.mean is not None and both.weight > 0:
            row, mean = joined(a.mean, b.mean, a.weight, b.weight)
            both = replace(both.entered(DenseRows(row[None]), 1.0, np.ones(1)), mean=mean)
            stacks.append(row[None])
            extra = float(row @ row)
        stack = np.concatenate(stacks)
        norm = check_total(both.squared_norm + extra)
        shrunk = shrink_stack(stack[:0], np.zeros(0), stack, self.m, self.j, solver=self.solver)
        off = both.rounding + rounding(len(stack), stack.shape[1], 1.0, shrunk.lam[:0], EPS * norm)
        return replace(both, squared_norm=norm, rounding=off).shrunk_to(shrunk)

    def _free(self, state: State) -> int:
        return self.buffer_size - (self.m - 1 if state.shrunk else 0)

    def _cuts(self, state: State, upto: int) -> list[int]:
        """Return the row counts, at most `upto`, at which a shrink is due."""
        return list(range(self._free(state), upto + 1, self.buffer_size - self.m + 1))

    def _form(self, state: State, queue: Queue) -> Form:
        """Return how the rows of the queue are best worked on."""
        d = state.b.shape[1]
        if self.solver == "svd" or d < 2 * self.buffer_size:
            return "apart"
        light = queue.is_sparse and queue.nnz <= 0.1 * d * len(queue)
        return "sparse" if light and d > 4 * self.buffer_size else "dense"

    def _wanted(self, state: State, queue: Queue) -> int:
        """Return how many rows must wait before they are worked on, at least as many as the next shrink needs."""
        m, d, free = self.m, state.b.shape[1], self._free(state)
        form = self._form(state, queue)
        # B is formed once for all rows that are worked on together, at a cost of m^2 d.
        if form == "sparse":
            # With more rows B is formed less often, but products of the rows with each other cost more for each row.
            # At sqrt(m d) rows, where these products need as much memory as B, the sum is nearly least. More than 2048
            # save little time, and at a million columns their products would be most of the memory beside B.
            most = min(np.sqrt(m * d), 2048.0)
            if state.mean is not None and len(queue):  # centring needs decays that can be inverted, all together
                most = min(most, LARGEST_DECAY / max(-np.log(queue.pieces[-1].decay[-1]), EPS))
            full = max(int(most), free)
            # They may wait as long as they need no more memory than the buffer itself.
            return full if len(queue) >= full or queue.nnz < self.buffer_size * d // 2 else free
        if form == "dense" and self.buffer_size <= 3 * m:
            # Two buffers at a time need as many flops as one, and the matrix products are of a better shape.
            return free + self.buffer_size - m + 1
        return free

    def _unshrunk(self, state: State, queue: Queue, factor: float) -> tuple[State, Floats]:
        """Return the state after these rows, and its buffer as one dense stack with nothing more taken away."""
        while len(queue) >= self._free(state):
            rows, queue = queue.take(self._free(state))
            state = self._shrink(state, Entrance(rows, state.mean, state.weight))
        stack = state.b
        if len(queue):
            state, e, s, t = _enter(state, Entrance(queue.all(), state.mean, state.weight))
            stack = np.concatenate([s * stack, t[:, None] * e])
        return state.faded(factor), np.sqrt(factor) * stack

    @one_blas_thread()
    def _run(self, state: State, rows: Rows, cuts: Sequence[int], form: Form, *, formed: bool = True) -> State:
        """Return the state after the rows, with shrinks at the cuts."""
        after = None
        if form != "apart":
            whole = Entrance(rows, state.mean, state.weight)
            after = self._run_together(state, whole, cuts, sparse=form == "sparse", formed=formed)
        if after is None:
            after = state
            for start, stop in zip([0, *cuts], cuts, strict=False):
                after = self._shrink(after, Entrance(rows[start:stop], after.mean, after.weight))
        return after

    def _shrink(self, state: State, new: Entrance) -> State:
        solver, invertible = self.solver, state.mean is None or new.rows.fades() <= LARGEST_DECAY
        if solver != "svd" and invertible and len(state.b) + len(new.rows) > state.b.shape[1]:
            columns, resolved = self._shrink_columns(state, new)
            if columns is not None:
                return columns
            solver = self.solver if resolved else "svd"
        after, e, s, t = _enter(state, new)
        shrunk = shrink_stack(state.b, state.lam, e, self.m, self.j, s=s, t=t, solver=solver)
        return after.shrunk_to(shrunk)

    def _shrink_columns(self, state: State, new: Entrance) -> tuple[State | None, bool]:
        """Return the state after more rows than columns, through E'E alone, and whether E'E shows enough.

        There is no state if it does not, or if E'E itself is not accurate.
        """
        e, mean, weight = new.entered(formed=False)
        s, t = new.rows.fading()
        product, size = new.outer(), len(state.b) + len(new.rows)
        added = float(np.trace(product))
        if not np.isfinite(added):
            raise_not_finite(new.rows.x)
        blur = noise(e.term_lengths(), t)
        if is_lost(blur, s * s * state.lam.sum() + added):
            return None, True
        shrunk, resolved = shrink_columns(state.b, product, self.m, self.j, s=s, size=size)
        if not resolved and self.solver == "auto":
            return None, False
        norm = check_total(s * s * state.squared_norm + added, slack=10)
        off = s * s * state.rounding + rounding(size, state.b.shape[1], s, state.lam, blur)
        state = replace(state.entered(e, s, t), delta=s * s * state.delta, rounding=off)
        return replace(state, squared_norm=norm, weight=weight, mean=mean).shrunk_to(shrunk), True

    def _run_together(
        self, state: State, new: Entrance, cuts: Sequence[int], *, sparse: bool, formed: bool = True
    ) -> State | None:
        """Return the state after the rows, never forming the B in between; None if that is not accurate enough.

        With E the entering rows, B = R [B_0; E]. All products of length d are those of E with B_0 and with
        itself, once; the shrinks then touch only R, and B is formed at the end.
        """
        rows = new.rows
        if state.mean is not None and rows.fades() > LARGEST_DECAY:
            return None
        e, mean, weight = new.entered(sparse=sparse, formed=False)
        eb, ee, r0 = e.times(state.b), new.gram(sparse=sparse), len(state.b)
        if not np.isfinite(np.trace(ee)):
            raise_not_finite(rows.x)
        terms = e.term_lengths()
        r = np.eye(max(r0, self.m - 1), r0 + len(rows))  # of which the first len(lam) rows count
        lam, norm, delta, off = state.lam, state.squared_norm, state.delta, state.rounding
        for start, stop in zip([0, *cuts], cuts, strict=False):
            s, t = rows.fading(start, stop)
            q, z = len(lam), eb[start:stop]
            if start > 0:  # before, R is the identity
                z = z @ r[:q, :r0].T + ee[start:stop, :start] @ r[:q, r0 : r0 + start].T
            gram = stack_gram(lam, z, ee[start:stop, start:stop], s, t)
            small = shrink_gram(gram, self.m, self.j, rank=min(len(gram), rows.x.shape[1]))
            if not small.resolved and self.solver == "auto":
                return None
            added, blur = float(np.trace(gram[q:, q:])), noise(terms[start:stop], t)
            if is_lost(blur, s * s * lam.sum() + added):
                return None
            norm, off = s * s * norm + added, s * s * off + rounding(len(gram), rows.x.shape[1], s, lam, blur)
            delta, lam = s * s * delta + small.delta, small.lam
            old = s * small.weights[:, :q]
            r[: len(lam), : r0 + start] = old if start == 0 else old @ r[:q, : r0 + start]
            r[: len(lam), r0 + start : r0 + stop] = small.weights[:, q:] * t
        r = r[: len(lam)]
        b = partial(e.combine, r[:, r0:], r[:, :r0], state.b)
        norm, state = check_total(norm, slack=10), state.entered(e, *rows.fading())
        state = replace(state, squared_norm=norm, weight=weight, mean=mean, rounding=off)
        return replace(state, b=b() if formed else b, lam=lam, shrunk=True, delta=delta)


def _enter(state: State, new: Entrance) -> tuple[State, Floats, float, Floats]:
    """Return (state, E, s, t): E enters scaled by t, B is to be scaled by s; the rest of the state is up to date."""
    rows, (e, mean, weight) = new.rows, new.entered()
    assert isinstance(e, DenseRows)
    s, t = rows.fading()
    norm, blur = grown(state.squared_norm, e, rows), noise(e.term_lengths(), t)
    off = s * s * state.rounding + rounding(len(state.b) + len(rows), state.b.shape[1], s, state.lam, blur)
    state = replace(state.entered(e, s, t), delta=s * s * state.delta, rounding=off)
    return replace(state, mean=mean, weight=weight, squared_norm=norm), e.e, s, t
