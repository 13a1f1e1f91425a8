"""The frequent-directions engine: buffer rows, shrink when the buffer is full (Luo et al. 2019, Alg. 1, 2, 4, 5).

A `State` is never changed in place: an engine takes one and returns the next, so an error anywhere leaves
the sketch as it was. Where a shrink happens depends on the number of rows alone, never on how the rows were
cut into batches: the first comes when `buffer_size` rows are there, and after a shrink B counts as m - 1
rows, even if some are zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robustfd.linalg.decompose import Shrunk, Solver, shrink_gram, shrink_stack, stack_gram
from robustfd.sketch._entering import DenseRows, enter, squared_norm
from robustfd.sketch._rows import Floats, Queue, Rows, Unread, raise_not_finite


@dataclass(frozen=True)
class State:
    """What a sketch remembers of the rows that have been through a shrink."""

    b: Floats  # orthogonal rows
    lam: Floats  # their squared norms
    shrunk: bool  # whether a shrink has happened
    delta: float  # Delta, the sum of all deltas
    squared_norm: float  # ||A||_F^2
    weight: float  # total weight
    mean: Floats | None  # when centring

    @classmethod
    def empty(cls, d: int, center: bool) -> "State":
        """Return the state before any row."""
        return cls(np.zeros((0, d)), np.zeros(0), False, 0.0, 0.0, 0.0, np.zeros(d) if center else None)

    def faded(self, factor: float) -> "State":
        """Return the state after everything in it is multiplied by factor; the mean stays."""
        if factor == 1.0:
            return self
        return replace(
            self,
            b=np.sqrt(factor) * self.b,
            lam=factor * self.lam,
            delta=factor * self.delta,
            squared_norm=factor * self.squared_norm,
            weight=factor * self.weight,
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
        while len(queue) >= self._wanted(state, queue):
            if self._stays_sparse(state, queue):
                cuts = self._cuts(state, min(len(queue), self._superblock(state)))
                rows, queue = queue.take(cuts[-1])
                state = self._run_sparse(state, rows, cuts)
            else:
                rows, queue = queue.take(self._free(state))
                state = self._shrink_dense(state, rows)
        return state, queue.owned()

    def finish(self, state: State, queue: Queue) -> State:
        """Return the state after all these rows, shrunk to at most m - 1 rows whatever their number."""
        if not len(queue):
            return state
        rows, cuts = queue.all(), self._cuts(state, len(queue))
        if not cuts or cuts[-1] < len(rows):
            cuts.append(len(rows))
        run = self._run_sparse if self._stays_sparse(state, queue) else self._run_dense
        return run(state, rows, cuts)

    def merge(self, one: Unread, two: Unread) -> State:
        """Return the sketch of the union: both buffers stacked, both Deltas added, one shrink."""
        a, stack_one = self._unshrunk(*one)
        b, stack_two = self._unshrunk(*two)
        stacks, weight, mean, extra = [stack_one, stack_two], a.weight + b.weight, a.mean, 0.0
        if a.mean is not None and b.mean is not None and weight > 0:
            apart = b.mean - a.mean
            mean = a.mean + (b.weight / weight) * apart
            row = np.sqrt(a.weight * b.weight / weight) * apart
            stacks.append(row[None])
            extra = float(row @ row)
        stack = np.concatenate(stacks)
        shrunk = shrink_stack(stack[:0], np.zeros(0), stack, self.m, self.j, solver=self.solver)
        return State(
            shrunk.rows,
            shrunk.lam,
            True,
            a.delta + b.delta + shrunk.delta,
            a.squared_norm + b.squared_norm + extra,
            weight,
            mean,
        )

    def _free(self, state: State) -> int:
        return self.buffer_size - (self.m - 1 if state.shrunk else 0)

    def _cuts(self, state: State, upto: int) -> list[int]:
        """Return the row counts, at most `upto`, at which a shrink is due."""
        return list(range(self._free(state), upto + 1, self.buffer_size - self.m + 1))

    def _superblock(self, state: State) -> int:
        """Return how many sparse rows to take at once: B is rebuilt, at a cost of m^2 d, only once for all."""
        # Minimises m^2 d / rows + 3/2 m rows, the flops a row; beyond 2048 the Gram matrix leaves the cache.
        rows = int(min(np.sqrt(2 / 3 * self.m * state.b.shape[1]), 2048))
        return max(rows, self._free(state))

    def _stays_sparse(self, state: State, queue: Queue) -> bool:
        d = state.b.shape[1]
        sparse = queue.is_sparse and queue.nnz <= 0.1 * d * len(queue)
        return sparse and self.solver != "svd" and d > 4 * self.buffer_size

    def _wanted(self, state: State, queue: Queue) -> int:
        """Return how many rows must wait before a step is taken."""
        # Many waiting sparse rows save rebuilding B, but they may not need more memory than the buffer itself.
        light = queue.nnz < self.buffer_size * state.b.shape[1] // 2
        return self._superblock(state) if light and self._stays_sparse(state, queue) else self._free(state)

    def _unshrunk(self, state: State, queue: Queue, factor: float) -> tuple[State, Floats]:
        """Return the state after these rows, and its buffer as one dense stack with nothing more taken away."""
        while len(queue) >= self._free(state):
            rows, queue = queue.take(self._free(state))
            state = self._shrink_dense(state, rows)
        stack = state.b
        if len(queue):
            state, e, s, t = _enter(state, queue.all())
            stack = np.concatenate([s * stack, t[:, None] * e])
        return state.faded(factor), np.sqrt(factor) * stack

    def _run_dense(self, state: State, rows: Rows, cuts: Sequence[int]) -> State:
        for start, stop in zip([0, *cuts], cuts, strict=False):
            state = self._shrink_dense(state, rows[start:stop])
        return state

    def _shrink_dense(self, state: State, rows: Rows) -> State:
        after, e, s, t = _enter(state, rows)
        shrunk = shrink_stack(state.b, state.lam, e, self.m, self.j, s=s, t=t, solver=self.solver)
        return _shrunk(after, shrunk)

    def _run_sparse(self, state: State, rows: Rows, cuts: Sequence[int]) -> State:
        """Return the state after sparse rows with shrinks at the cuts, never forming the B in between.

        With E the entering rows, B = R [B_0; E]. All products of length d are those of E with B_0 and with
        itself, once; the shrinks then touch only R, and B is formed at the end.
        """
        e, mean, weight = enter(rows, state.mean, state.weight, sparse=True)
        bt = np.ascontiguousarray(state.b.T)
        eb, ee, r0 = e.times(bt), e.gram(), len(state.b)
        if not np.isfinite(np.trace(ee)):
            raise_not_finite(rows.x)
        r = np.eye(max(r0, self.m - 1), r0 + len(rows))  # of which the first len(lam) rows count
        lam, norm, delta = state.lam, state.squared_norm, state.delta
        for start, stop in zip([0, *cuts], cuts, strict=False):
            s, t = rows.fading(start, stop)
            q = len(lam)
            z = eb[start:stop] @ r[:q, :r0].T + ee[start:stop, :start] @ r[:q, r0 : r0 + start].T
            gram = stack_gram(lam, z, ee[start:stop, start:stop], s, t)
            small = shrink_gram(gram, self.m, self.j, rank=min(len(gram), len(bt)))
            if not small.resolved and self.solver == "auto":
                return self._run_dense(state, rows, cuts)
            norm = s * s * norm + float(np.trace(gram[q:, q:]))
            delta, lam = s * s * delta + small.delta, small.lam
            r[: len(lam), : r0 + start] = s * small.weights[:, :q] @ r[:q, : r0 + start]
            r[: len(lam), r0 + start : r0 + stop] = small.weights[:, q:] * t
        r = r[: len(lam)]
        new = bt @ r[:, :r0].T
        e.add_to(new, r[:, r0:].T)
        return State(new.T, lam, True, delta, _finite(norm), weight, mean)


def _enter(state: State, rows: Rows) -> tuple[State, Floats, float, Floats]:
    """Return (state, E, s, t): E enters scaled by t, B is to be scaled by s; the rest of the state is up to date."""
    e, mean, weight = enter(rows, state.mean, state.weight)
    assert isinstance(e, DenseRows)
    s, t = rows.fading()
    norm = _finite(s * s * state.squared_norm + squared_norm(e, t, rows))
    return replace(state, mean=mean, weight=weight, squared_norm=norm, delta=s * s * state.delta), e.e, s, t


def _shrunk(state: State, shrunk: Shrunk) -> State:
    return replace(state, b=shrunk.rows, lam=shrunk.lam, shrunk=True, delta=state.delta + shrunk.delta)


def _finite(norm: float) -> float:
    if not np.isfinite(norm):
        raise ValueError("Input X is too large: the squared norm of all rows so far overflows float64. Scale the rows.")
    return norm
