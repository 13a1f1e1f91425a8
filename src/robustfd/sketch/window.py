"""The state of a sliding window, and how rows are added to it (docs/mathematics.md, "A sliding window").

Rows pass in steps through a pool, a frequent-directions sketch with m - 1 rows. A direction whose squared length
reaches the window's mass / (3 m) is dumped: it leaves the pool and is stored with the clock of its step. A row as long
as that is stored as it is and never joins the pool. Each step leaves a mark, which records the mass that its shrink
steps removed and the largest direction of the pool after it. Let P_c be the pool after the step that ends at clock c, U
the dumped directions and D the mass removed by shrink steps. Then

    (rows after c) = P_now - P_c + sum of U'U after c + sum of D after c,

so the window that begins at c is known up to P_c and the Ds, and the marks bound both. The pool is never restarted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp

from robustfd.linalg.decompose import EPS, rounding, shrink_stack
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch.engine import Engine, State
from robustfd.sketch.rows import TINY, Contents, Floats, Matrix, Queue, Rows, check_total, concatenate, energy

TARGET_DUMPS, MAX_DUMPS = 3, 4  # target and maximum number of dumps, in units of m
RAW = 4  # rows that are stored as they are before the first step, in units of m
SLACK = 1.1  # factor of the threshold, to allow for the mass that shrink steps remove
MIN_DUMPED_SHARE = 0.05  # share of the mass in dumps below which the threshold is not lowered further
MARKS_PER_DUMP = 8  # maximum number of marks in the average time between two dumps
COLUMN_SHARE = 0.25  # squared entry of the constant column, relative to the mean squared length of the first rows
MAX_SPARSE_STEP = 2048  # sparse rows per step; with more, their Gram matrix does not fit in the cache

# The rows of `WindowState.marks`, which has a column for each step: its last and first clock; the number and weight of
# its rows; lambda_1 of the pool after it, and before its dumps plus the mass removed; the mass that its shrink steps
# removed; the squared norm of its rows in the pool, as a bound for a window that begins in the step and as a sum (they
# differ after a merge), and of all its rows; whether it dumped directions; a bound on its rounding errors.
CLOCK, FIRST, ROWS, WEIGHT, TOP, WHOLE, DELTA, INSIDE, POOLED, MASS, DUMPED, ROUNDING = range(12)
# The rows of `WindowState.dates`, which has a column for each dump: its clock; its squared length; whether it is an
# original row (else a direction from the pool); whether this sketch dumped it (else one that was merged in).
WHEN, NORM, EXACT, OWN = range(4)
SUMMED_AT_END = [ROWS, WEIGHT, DELTA, POOLED, MASS, ROUNDING]  # added at the end of a step
SUMS = [ROWS, WEIGHT, DELTA, INSIDE, POOLED, MASS, ROUNDING]  # added when steps are joined


def stacked(dumps: Sequence[Floats], like: Floats) -> Floats:
    """Return the dumps as an array with as many columns as `like`."""
    return np.stack(dumps) if len(dumps) else np.zeros((0, like.shape[1]))


def squared_lengths(x: Matrix) -> Floats:
    """Return the squared lengths of float64 rows."""
    if sp.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", x, x)


@dataclass(frozen=True)
class WindowState:
    """The pool, the dumps and the marks. All rows are in the frame defined by `framed`."""

    ARRAYS: ClassVar[dict[str, str]] = {
        "b": "r w", "lam": "r", "dumps": "n w", "dates": "4 n", "marks": "12 s", "shift": "d"
    }  # fmt: skip
    LEAST: ClassVar[dict[str, float]] = {"lam": TINY}

    clock: str  # the unit of the clock: "rows", "time" or "weight"
    now: float
    b: Floats  # the pool: orthogonal rows
    lam: Floats  # squared lengths of the rows of b
    dumps: tuple[Floats, ...]  # a tuple of rows, because a few change with every step
    dates: Floats  # (4, n): WHEN to OWN of each dump
    marks: Floats  # (12, n): CLOCK to ROUNDING of each step
    shift: Floats | None = None  # with centring: the vector subtracted from each row,
    unit: float = 0.0  # and the entry of the constant column; 0.0 before the first step

    @classmethod
    def empty(cls, d: int, center: bool, clock: str = "rows", now: float = 0.0) -> Self:
        """Return the state before any row, with the clock at `now`."""
        shift = np.zeros(d) if center else None
        return cls(clock, now, np.zeros((0, d + center)), np.zeros(0), (), np.zeros((4, 0)), np.zeros((12, 0)), shift)

    @property
    def pool(self) -> State:
        """The pool as a state of the engine, with all sums at zero."""
        return State(self.b, self.lam, True, 0.0, 0.0, 0.0, None, 0.0)

    @property
    def squared_norm(self) -> float:
        """An upper bound on the squared norm of the stored rows."""
        return float(self.marks[MASS].sum() + self.dates[NORM].sum())

    @property
    def own(self) -> int:
        """The number of dumps of this sketch, without merged ones."""
        return int(self.dates[OWN].sum())

    def cleared(self) -> Self:
        """Return an empty state with the same clock."""
        d = self.b.shape[1] if self.shift is None else len(self.shift)
        return type(self).empty(d, self.shift is not None, self.clock, self.now)

    def with_frame(self, rows: Rows) -> Self:
        """Return the state with a frame chosen from these rows. Without centring there is no frame."""
        if self.shift is None:
            return self
        share = rows.weight / rows.weight.sum()
        if rows.is_sparse:  # no shift, so that they stay sparse
            shift, norms = np.zeros(len(self.shift)), squared_lengths(rows.x.astype(np.float64))
        else:
            x = rows.dense()
            shift = share @ x
            norms = squared_lengths(x - shift)
        return replace(self, shift=shift, unit=float(np.sqrt(COLUMN_SHARE * (share @ norms))) or 1.0)

    def framed(self, rows: Rows) -> Matrix:
        """Return the rows in the frame: scaled by the root of their weight and, with centring, shifted and extended."""
        x = rows.x
        if self.shift is not None:
            if rows.is_sparse and not self.shift.any():
                x = sp.hstack([x, np.full((len(rows), 1), self.unit)], format="csr")
            else:
                x = np.hstack([rows.dense() - self.shift, np.full((len(rows), 1), self.unit)])
        x = x.astype(np.float64, copy=False)
        if (rows.weight == 1.0).all():
            return x
        root = np.sqrt(rows.weight)
        return sp.csr_array(x.multiply(root[:, None])) if sp.issparse(x) else x * root[:, None]

    def reframed(self, other: "WindowState") -> Self:
        """Return the state in the frame of another state. Its bounds grow by the norm of the transformation."""
        if self.shift is None or other.shift is None or not self.marks.size:
            return self
        change = np.append((self.shift - other.shift) / self.unit, other.unit / self.unit)
        if not change[:-1].any() and change[-1] == 1.0:
            return self
        # Rows (x, c) become (x + c s, t c). The squared norm of this map is the larger eigenvalue of a 2 x 2 matrix.
        s, t = float(np.linalg.norm(change[:-1])), float(change[-1])
        a = 1.0 + s * s + t * t
        growth = 0.5 * (a + np.sqrt(max(a * a - 4.0 * t * t, 0.0)))
        marks = self.marks.copy()
        marks[[TOP, WHOLE, DELTA, INSIDE, ROUNDING]] *= growth
        rows = self.b, stacked(self.dumps, self.b)
        b, dumps = (np.hstack([r[:, :-1] + r[:, -1:] * change[:-1], t * r[:, -1:]]) for r in rows)
        dates = self.dates.copy()
        dates[NORM] = squared_lengths(dumps)
        marks[ROUNDING, -1] += 8.0 * EPS * growth * (float(self.lam.sum()) + self.dates[NORM].sum())
        return replace(self, b=b, dumps=tuple(dumps), dates=dates, marks=marks, shift=other.shift, unit=other.unit)

    def check(self, m: int) -> None:
        """Raise an error if a state from a snapshot makes no sense."""
        marks, dates = self.marks, self.dates
        if np.any(marks[ROWS:] < 0) or np.any(np.diff(marks[CLOCK]) <= 0) or np.any(dates[NORM:] < 0):
            raise ValueError("the marks of the window have invalid values")
        if np.any(dates[OWN] > 1) or dates[OWN].sum() > MAX_DUMPS * m or (len(self.lam) and not marks.size):
            raise ValueError("the window has more dumps than possible, or a pool without marks")
        if self.shift is not None and marks.size and not self.unit > 0:
            raise ValueError(f"unit is {self.unit}")

    def trimmed(self, start: float) -> Self:
        """Return the state without the marks and dumps that a window from `start` on no longer needs."""
        # Keep the last mark before the window, and the directions dumped after it.
        gone = int(self.marks[CLOCK].searchsorted(start, side="right")) - 1
        if gone < 0:
            return self
        when, _, exact, _ = self.dates
        keep = (when > self.marks[CLOCK, gone]) & ((when > start) | (exact == 0.0))
        if keep.all():
            return replace(self, marks=self.marks[:, gone:]) if gone else self
        dumps = tuple(compress(self.dumps, keep.tolist()))
        return replace(self, marks=self.marks[:, gone:], dumps=dumps, dates=self.dates[:, keep])


@dataclass(frozen=True)
class WindowEngine:
    """Adds rows to a `WindowState`, for a window of this length and a pool of m - 1 rows."""

    m: int
    window: float

    @property
    def engine(self) -> Engine:
        """The engine of the pool."""
        return Engine(self.m, 2 * self.m, self.m, "auto")

    @one_blas_thread()  # set once for all steps
    def absorb(self, state: WindowState, queue: Queue, *, at_once: bool = False) -> tuple[WindowState, Queue]:
        """Return the state after all complete steps, and the queue of remaining rows (empty with `at_once`).

        The boundaries of the steps depend only on the rows, never on the batches.
        """
        if len(queue):
            clock = queue.pieces[-1].clock
            assert clock is not None
            state = replace(state, now=max(state.now, float(clock[-1])))
        while len(queue):
            if not state.marks.size:
                queue, full = self._drop_expired(queue)
                if not len(queue) or not (full or at_once):
                    break
                state = state.with_frame(_take_rows(queue, min(len(queue), RAW * self.m + 1))[0])
            size = min(self._length(state, queue), len(queue) if at_once else 2**62)
            if len(queue) < size:
                break
            rows, rest = _take_rows(queue, size)
            assert rows.clock is not None
            end = float(rows.clock[-1])
            if state.marks.size and state.marks[CLOCK, -1] <= end - self.window:
                state = state.cleared()  # everything stored has left the window
            else:
                state, queue = self.step(state, rows, end), rest
        return state, queue

    def _drop_expired(self, queue: Queue) -> tuple[Queue, bool]:
        """Return the queue without rows that left the window, and whether the window ever held more than 4 m rows."""
        kept = RAW * self.m
        while True:
            clock = queue.clocks(64 * kept)
            full = np.flatnonzero(clock[: max(len(clock) - kept, 0)] > clock[kept:] - self.window)
            if len(full):
                return (queue.take(int(full[0]))[1] if full[0] else queue), True
            if len(clock) == len(queue):
                gone = int(np.count_nonzero(clock <= clock[-1] - self.window))
                return (queue.take(gone)[1] if gone else queue), False
            queue = queue.take(len(clock) - kept)[1]

    def _length(self, state: WindowState, queue: Queue) -> int:
        """Return the number of rows in the next step."""
        m, clock = self.m, state.marks[CLOCK]
        if state.clock == "rows":
            rows = self.window
        elif not len(clock) or clock[0] > clock[-1] - self.window:  # no whole window yet
            return m + 1
        else:
            rows = float(state.marks[ROWS, clock.searchsorted(clock[-1] - self.window, side="right") :].sum())
        target = rows / (TARGET_DUMPS * m)  # about the number of rows between two dumps
        limit = m + 1
        if queue.is_sparse:  # larger steps are faster for sparse rows
            limit = max(limit, int(min(np.sqrt(m * state.b.shape[1] / 3), MAX_SPARSE_STEP)))
        return int(min(max(target, m / 4, 1), limit))

    def step(self, state: WindowState, rows: Rows, end: float) -> WindowState:
        """Return the state after one step that adds these rows (possibly none) and ends at clock `end`."""
        state = state.trimmed(end - self.window)
        x = state.framed(rows)
        norms = squared_lengths(x)
        mass = float(norms.sum())
        if not np.isfinite(mass):
            energy(rows)  # raises an error that names the cause
        check_total(state.squared_norm + mass)
        first = float(rows.clock[0]) if rows.clock is not None and len(rows) else end
        free = MAX_DUMPS * self.m - state.own
        theta = self._threshold(state, mass, first, end)
        dumps, dates = list(state.dumps), [state.dates]
        if theta > 0 and norms.max(initial=0.0) >= theta and free > 0:
            x, long_rows, long_dates = _split_long(x, norms, theta, free, rows)
            dumps += long_rows
            dates.append(long_dates)
            free -= len(long_rows)
        after = self._pooled(state.pool, x)
        b, lam = after.b, after.lam
        leaving = min(int(np.count_nonzero(lam >= theta)), free) if theta > 0 else 0
        if leaving:
            dumps += [row.copy() for row in b[:leaving]]
            dates.append(np.array([[end] * leaving, lam[:leaving], [0.0] * leaving, [1.0] * leaving]))
            b = b[leaving:].copy()
        top, whole = lam[leaving] if leaving < len(lam) else 0.0, after.delta + (lam[0] if len(lam) else 0.0)
        inside, delta, weight = after.squared_norm, after.delta, float(rows.weight.sum())
        mark = [end, first, len(rows), weight, top, whole, delta, inside, inside, mass, float(leaving > 0)]
        marks = self._append_mark(state.marks, np.array([*mark, after.rounding]))
        all_dates = dates[0] if len(dates) == 1 else np.concatenate(dates, axis=1)
        return replace(state, b=b, lam=lam[leaving:], dumps=tuple(dumps), dates=all_dates, marks=marks)

    def _pooled(self, pool: State, x: Matrix) -> State:
        """Return the pool after a shrink step with these rows."""
        if not x.shape[0]:
            return pool
        if sp.issparse(x):
            ones = np.ones(x.shape[0])
            return self.engine.finish(pool, Queue().plus(Rows(x, ones, ones)))
        # The same by a shorter way, because Python takes much of the time of a small step.
        shrunk = shrink_stack(pool.b, pool.lam, x, self.m, self.m)
        inside = float(np.vdot(x, x))
        bound = rounding(len(pool.b) + len(x), x.shape[1], 1.0, pool.lam, EPS * inside)
        return State(shrunk.rows, shrunk.lam, True, shrunk.delta, inside, 0.0, None, bound)

    def _append_mark(self, marks: Floats, new: Floats) -> Floats:
        """Return the marks with one more, or with the last one extended to cover both steps."""
        if marks.size:
            last = marks[:, -1]
            length = new[CLOCK] - (marks[CLOCK, -2] if marks.shape[1] > 1 else last[FIRST])
            is_short = not last[DUMPED] and length < self.window / (MARKS_PER_DUMP * TARGET_DUMPS * self.m)
            if is_short or last[CLOCK] == new[CLOCK]:  # two marks at the same clock would be ambiguous
                # P + X_1'X_1 + X_2'X_2 is the start of the second step plus the mass that the first removed or dumped.
                new[WHOLE] += last[WHOLE] if last[DUMPED] else last[DELTA]
                new[FIRST], new[DUMPED] = last[FIRST], max(last[DUMPED], new[DUMPED])
                new[SUMS] += last[SUMS]
                marks = marks[:, :-1]
        return np.concatenate([marks, new[:, None]], axis=1)

    def _threshold(self, state: WindowState, mass: float, first: float, end: float) -> float:
        """Return theta: rows and directions with a squared length of at least theta are dumped."""
        marks, length = state.marks, self.window / (TARGET_DUMPS * self.m)
        _, dumped, _, own = np.add.reduce(state.dates, axis=1).tolist()
        theta = self._recent_mass(marks, mass, first, end, length)
        if own < TARGET_DUMPS * self.m:  # react faster to a burst of long rows
            theta = min(theta, 4.0 * self._recent_mass(marks, mass, first, end, length / 4))
        if marks.size and end - marks[FIRST, 0] >= self.window / 2:
            out = int(marks[CLOCK, 0] <= end - self.window)  # 1 if the first mark is before the window
            whole = mass + float(np.add.reduce(marks[MASS, out:]))
            theta *= min(1.0, SLACK * max(dumped / whole if whole > 0 else 0.0, MIN_DUMPED_SHARE))
        return theta

    def _recent_mass(self, marks: Floats, mass: float, first: float, end: float, length: float) -> float:
        """Return the mass that arrives in `length` units of the clock, estimated from the newest steps."""
        if marks.size:
            at = int(marks[CLOCK].searchsorted(end - length, side="right"))  # the first mark in the interval
            first = float(marks[CLOCK, at - 1] if at else marks[FIRST, 0])
            mass += float(np.add.reduce(marks[MASS, at:]))
        return mass * length / (end - first) if end > first else mass

    # -- merging

    def merge(self, one: Contents, two: Contents) -> tuple[WindowState, Queue]:
        """Return the state of the rows of both, which share a clock, and the queue."""
        now = max(one.state.now, two.state.now)
        if not one.state.marks.size and not two.state.marks.size:
            queue = _merge_queues(one.queue, two.queue, now - self.window)
            if len(queue) <= RAW * self.m:
                return replace(one.state, now=now), queue
        first, second = (self._finished(each, now) for each in (one, two))
        if not first.marks.size:
            return second, Queue()
        second = second.reframed(first)
        if not second.marks.size:
            return first, Queue()
        check_total(first.squared_norm + second.squared_norm)
        pool = self.engine.merge(Contents(first.pool, Queue(), 1.0), Contents(second.pool, Queue(), 1.0))
        marks, inherited = _merge_marks(first.marks, second.marks), second.dates.copy()
        marks[DELTA, -1] += pool.delta
        marks[ROUNDING, -1] += pool.rounding
        marks[TOP, -1] = pool.lam[0] if len(pool.lam) else 0.0
        inherited[OWN] = 0.0  # else the limit would stop dumps for a whole window
        dumps, dates = first.dumps + second.dumps, np.concatenate([first.dates, inherited], axis=1)
        return replace(first, b=pool.b, lam=pool.lam, dumps=dumps, dates=dates, marks=marks), Queue()

    def _finished(self, contents: Contents, now: float) -> WindowState:
        """Return the state with no queued rows and a last step that ends at `now`."""
        state, queue = self.absorb(contents.state, contents.queue, at_once=True)
        state = replace(state, now=now)
        if not state.marks.size or state.marks[CLOCK, -1] <= now - self.window:
            return state.cleared()
        if state.marks[CLOCK, -1] == now:
            return state
        d, none = state.b.shape[1] - (state.shift is not None), np.zeros(0)
        return self.step(state, Rows(np.zeros((0, d)), none, none, none), now)


def _take_rows(queue: Queue, size: int) -> tuple[Rows, Queue]:
    """Return the first rows of a queue and the rest. They are sparse only if all queued rows are, as in snapshots."""
    rows, rest = queue.take(size)
    if rows.is_sparse and not queue.is_sparse:
        rows = replace(rows, x=rows.dense())
    return rows, rest


def _split_long(x: Matrix, norms: Floats, theta: float, free: int, rows: Rows) -> tuple[Matrix, list[Floats], Floats]:
    """Return the other rows, the rows of squared length >= theta (the longest `free` of them), and their dates."""
    assert rows.clock is not None
    found = np.flatnonzero(norms >= theta)
    found = np.sort(found[np.argsort(-norms[found], kind="stable")[:free]])
    rest = np.ones(len(norms), bool)
    rest[found] = False
    long_rows = x[found].toarray() if sp.issparse(x) else x[found]
    ones = np.ones(len(found))
    return x[rest], list(long_rows), np.array([rows.clock[found], norms[found], ones, ones])


def _merge_queues(one: Queue, two: Queue, start: float) -> Queue:
    """Return the rows of both queues after clock `start`, sorted by clock."""
    pieces = [queue.all() for queue in (one, two) if len(queue)]
    if not pieces:
        return Queue()
    both = concatenate(pieces)
    assert both.clock is not None
    both = both[np.argsort(both.clock, kind="stable")]
    return Queue().plus(both[both.clock > start] if both.clock is not None else both).owned(0.0)


def _merge_marks(one: Floats, two: Floats) -> Floats:
    """Return the marks of the union of two streams, whose last marks have the same clock."""
    clock = np.union1d(one[CLOCK], two[CLOCK])
    marks = np.zeros((len(one), len(clock)))
    marks[CLOCK], marks[FIRST] = clock, np.inf
    before = np.concatenate([[-np.inf], clock[:-1]])
    for each in (one, two):
        at = np.searchsorted(each[CLOCK], clock)
        step = each[:, at]  # the step that ends at, or spans, each clock
        ends = step[CLOCK] == clock
        top = np.concatenate([[0.0], each[TOP, :-1]])[at]  # the pool before that step
        continuing = np.minimum(np.where(at > 0, top + step[INSIDE], np.inf), step[WHOLE])
        marks[TOP] += np.where(ends, step[TOP], np.where(step[FIRST] > clock, top, continuing))
        marks[FIRST] = np.minimum(marks[FIRST], np.maximum(step[FIRST], before))
        marks[[WHOLE, INSIDE]] += step[[WHOLE, INSIDE]]
        marks[SUMMED_AT_END] += np.where(ends, step[SUMMED_AT_END], 0.0)
        marks[DUMPED] = np.maximum(marks[DUMPED], np.where(ends, step[DUMPED], 0.0))
    return marks
