"""What a sketch remembers of a sliding window, and how rows get into it (docs/mathematics.md, "A sliding window").

Rows go in steps through a pool, a frequent-directions sketch of m - 1 rows. A direction that becomes as long as the
window's mass over 3 m leaves the pool with the date of its step, a row that is as long never enters it. Each step
leaves a mark: what its shrinks took, and how long the pool's directions are after it. With P_c the pool after the
step that ends at c, U the directions that left and D what the shrinks took,

    (rows after c) = P_now - P_c + sum of U'U after c + sum of D after c,

so a window that begins at c is known up to P_c and the D's, both bounded by the marks. The pool is never begun anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Self

import numpy as np
import scipy.sparse as sp

from robustfd.linalg.eigen import EPS
from robustfd.linalg.threads import one_blas_thread
from robustfd.sketch._engine import Engine, State
from robustfd.sketch._rows import Floats, Matrix, Queue, Rows, Unread, check_total, concatenate, energy

AIMED, MOST = 3, 4  # dumps in units of m: how many are aimed at, and how many there are at most
RAW = 4  # rows in units of m that are kept as they are before the first step
SLACK = 1.1  # of the threshold, for mass that shrinks take
LEAST_DUMPED = 0.05  # of the mass, below which the threshold is not lowered further
JOINED = 8  # marks in the time in which one direction leaves, at most
COLUMN = 0.25  # squared length of the column of a centred row, in units of the mean squared length of the first rows
MOST_SPARSE = 2048  # sparse rows in a step: beyond, their Gram matrix leaves the cache

# The lines of `WindowState.marks`, a column for each step: its last and its first clock, number and weight of its rows;
# lambda_1 of the pool after it, and before its directions left; what its shrinks took; the squared norms of its rows in
# the pool, as a bound for a window that begins in it and as a sum (which differ after a merge), and of all its rows;
# whether directions left; what rounding can have changed.
CLOCK, FIRST, ROWS, WEIGHT, TOP, WHOLE, DELTA, INSIDE, POOLED, MASS, DUMPED, ROUNDING = range(12)
# The lines of `WindowState.dates`, a column for each row beside the pool: when it came or left the pool, its squared
# length, whether it is a row as it came (else a direction that left the pool), whether this sketch put it there.
WHEN, NORM, EXACT, OWN = range(4)
ENDED = [ROWS, WEIGHT, DELTA, POOLED, MASS, ROUNDING]  # counted where a step ends
SUMS = [ROWS, WEIGHT, DELTA, INSIDE, POOLED, MASS, ROUNDING]  # of several steps


def stacked(dumps: Sequence[Floats], like: Floats) -> Floats:
    """Return rows as an array as wide as another."""
    return np.stack(dumps) if len(dumps) else np.zeros((0, like.shape[1]))


def squared_lengths(x: Matrix) -> Floats:
    """Return the squared lengths of rows of float64."""
    if sp.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", x, x)


@dataclass(frozen=True)
class WindowState:
    """The pool, what left it, and the marks. All rows are those of the frame: see `framed`."""

    clock: str  # what it counts: "rows", "time" or "weight"
    now: float
    b: Floats  # the pool: orthogonal rows
    lam: Floats  # their squared lengths
    dumps: tuple[Floats, ...]  # rows beside the pool; one by one, as a few change with every step
    dates: Floats  # (4, n): WHEN to OWN of each of them
    marks: Floats  # (12, n): CLOCK to ROUNDING of each step
    shift: Floats | None = None  # when centring: what is subtracted from rows,
    unit: float = 0.0  # and what is put into one more column; 0.0 before the first step

    @classmethod
    def empty(cls, d: int, center: bool, clock: str = "rows", now: float = 0.0) -> Self:
        """Return the state before any row; `now` is what the clock says."""
        shift = np.zeros(d) if center else None
        return cls(clock, now, np.zeros((0, d + center)), np.zeros(0), (), np.zeros((4, 0)), np.zeros((12, 0)), shift)

    @property
    def pool(self) -> State:
        """The pool as the engine takes it, with nothing taken and no row counted yet."""
        return State(self.b, self.lam, True, 0.0, 0.0, 0.0, None, 0.0)

    @property
    def squared_norm(self) -> float:
        """At least the squared norm of all that is kept."""
        return float(self.marks[MASS].sum() + self.dates[NORM].sum())

    @property
    def own(self) -> int:
        """How many rows this sketch has put beside the pool."""
        return int(self.dates[OWN].sum())

    def emptied(self) -> Self:
        """Return the state with nothing but the clock."""
        d = self.b.shape[1] if self.shift is None else len(self.shift)
        return type(self).empty(d, self.shift is not None, self.clock, self.now)

    def begun(self, rows: Rows) -> Self:
        """Return the state with a frame for rows like these; without centring there is none."""
        if self.shift is None:
            return self
        share = rows.weight / rows.weight.sum()
        if rows.is_sparse:  # they stay so, and are not shifted, whatever their mean
            shift, norms = np.zeros(len(self.shift)), squared_lengths(rows.x.astype(np.float64))
        else:
            x = rows.dense()
            shift = share @ x
            norms = squared_lengths(x - shift)
        return replace(self, shift=shift, unit=float(np.sqrt(COLUMN * (share @ norms))) or 1.0)

    def framed(self, rows: Rows) -> Matrix:
        """Return the rows as they are kept: times the root of their weight, shifted and with a column if centring."""
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
        """Return the state in the frame of another; its bounds grow by the norm of the change."""
        if self.shift is None or other.shift is None or not self.marks.size:
            return self
        change = np.append((self.shift - other.shift) / self.unit, other.unit / self.unit)
        if not change[:-1].any() and change[-1] == 1.0:
            return self
        # Rows (x, c) become (x + c s, t c); ||T||^2 is the larger eigenvalue of a matrix of two.
        s, t = float(np.linalg.norm(change[:-1])), float(change[-1])
        a = 1.0 + s * s + t * t
        growth = 0.5 * (a + np.sqrt(max(a * a - 4.0 * t * t, 0.0)))
        marks = self.marks.copy()
        marks[[TOP, WHOLE, DELTA, INSIDE, ROUNDING]] *= growth
        changed = [
            np.hstack([r[:, :-1] + r[:, -1:] * change[:-1], t * r[:, -1:]])
            for r in (self.b, stacked(self.dumps, self.b))
        ]
        dates = self.dates.copy()
        dates[NORM] = squared_lengths(changed[1])
        marks[ROUNDING, -1] += 8.0 * EPS * growth * (float(self.lam.sum()) + self.dates[NORM].sum())
        return replace(
            self, b=changed[0], dumps=tuple(changed[1]), dates=dates, marks=marks, shift=other.shift, unit=other.unit
        )

    def trimmed(self, start: float) -> Self:
        """Return the state without what a window that begins at `start` needs no more."""
        # The last mark before the window stays, and directions that left after it.
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
    """How rows get into a `WindowState`, for a window of this length and a pool of m - 1 rows."""

    m: int
    window: float

    @property
    def engine(self) -> Engine:
        """The engine of the pool."""
        return Engine(self.m, 2 * self.m, self.m, "auto")

    @one_blas_thread()  # once for all steps
    def absorb(self, state: WindowState, queue: Queue, *, at_once: bool = False) -> tuple[WindowState, Queue]:
        """Return the state after as many rows as fill whole steps, and the rows that wait; `at_once` none wait.

        When a step begins and ends depends on the rows alone, never on the batches they came in.
        """
        if len(queue):
            clock = queue.pieces[-1].clock
            assert clock is not None
            state = replace(state, now=max(state.now, float(clock[-1])))
        while len(queue):
            if not state.marks.size:
                queue, full = self._live(queue)
                if not len(queue) or not (full or at_once):
                    break
                state = state.begun(_taken(queue, min(len(queue), RAW * self.m + 1))[0])
            size = min(self._length(state, queue), len(queue) if at_once else 2**62)
            if len(queue) < size:
                break
            rows, rest = _taken(queue, size)
            assert rows.clock is not None
            end = float(rows.clock[-1])
            if state.marks.size and state.marks[CLOCK, -1] <= end - self.window:
                state = state.emptied()  # all of it is over
            else:
                state, queue = self.step(state, rows, end), rest
        return state, queue

    def _live(self, queue: Queue) -> tuple[Queue, bool]:
        """Return the queue without rows that left before more than 4 m were in the window; whether more are in it."""
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
        """Return how many rows the next step has."""
        m, clock = self.m, state.marks[CLOCK]
        if state.clock == "rows":
            rows = self.window
        elif not len(clock) or clock[0] > clock[-1] - self.window:  # no whole window yet
            return m + 1
        else:
            rows = float(state.marks[ROWS, clock.searchsorted(clock[-1] - self.window, side="right") :].sum())
        most = rows / (AIMED * m)  # about as many as come until the next direction leaves
        longest = m + 1
        if queue.is_sparse:  # as many as are best worked on together
            longest = max(longest, int(min(np.sqrt(m * state.b.shape[1] / 3), MOST_SPARSE)))
        return int(min(max(most, m / 4, 1), longest))

    def step(self, state: WindowState, rows: Rows, end: float) -> WindowState:
        """Return the state after these rows (there may be none), in one step that ends at `end`."""
        state = state.trimmed(end - self.window)
        x = state.framed(rows)
        norms = squared_lengths(x)
        mass = float(norms.sum())
        if not np.isfinite(mass):
            energy(rows)  # says what is wrong
        check_total(state.squared_norm + mass)
        first = float(rows.clock[0]) if rows.clock is not None and len(rows) else end
        room = MOST * self.m - state.own
        theta = self._threshold(state, mass, first, end)
        dumps, dates = list(state.dumps), [state.dates]
        if theta > 0 and norms.max(initial=0.0) >= theta and room > 0:
            x, long, long_dates = _without_longest(x, norms, theta, room, rows)
            dumps += long
            dates.append(long_dates)
            room -= len(long)
        after = state.pool
        if x.shape[0]:
            ones = np.ones(x.shape[0])
            after = self.engine.finish(after, Queue().plus(Rows(x, ones, ones)))
        b, lam = after.b, after.lam
        leave = min(int(np.count_nonzero(lam >= theta)), room) if theta > 0 else 0
        if leave:
            dumps += [row.copy() for row in b[:leave]]
            dates.append(np.array([[end] * leave, lam[:leave], [0.0] * leave, [1.0] * leave]))
            b = b[leave:].copy()
        top, whole = lam[leave] if leave < len(lam) else 0.0, after.delta + (lam[0] if len(lam) else 0.0)
        inside, delta, weight = after.squared_norm, after.delta, float(rows.weight.sum())
        mark = [end, first, len(rows), weight, top, whole, delta, inside, inside, mass, float(leave > 0)]
        marks = self._marked(state.marks, np.array([*mark, after.rounding]))
        together = dates[0] if len(dates) == 1 else np.concatenate(dates, axis=1)
        return WindowState(
            state.clock, state.now, b, lam[leave:], tuple(dumps), together, marks, state.shift, state.unit
        )

    def _marked(self, marks: Floats, new: Floats) -> Floats:
        """Return the marks with one more, or with the last one changed to be that of both steps."""
        if marks.size:
            last = marks[:, -1]
            length = new[CLOCK] - (marks[CLOCK, -2] if marks.shape[1] > 1 else last[FIRST])
            short = not last[DUMPED] and length < self.window / (JOINED * AIMED * self.m)
            if short or last[CLOCK] == new[CLOCK]:  # of two marks with one clock a window would need both or none
                # P + X_1'X_1 + X_2'X_2 is what the second step began with, plus what the first one took and let go.
                new[WHOLE] += last[WHOLE] if last[DUMPED] else last[DELTA]
                new[FIRST], new[DUMPED] = last[FIRST], max(last[DUMPED], new[DUMPED])
                new[SUMS] += last[SUMS]
                marks = marks[:, :-1]
        return np.concatenate([marks, new[:, None]], axis=1)

    def _threshold(self, state: WindowState, mass: float, first: float, end: float) -> float:
        """Return theta: rows and directions whose squared length is as large do not stay in the pool."""
        marks, length = state.marks, self.window / (AIMED * self.m)
        _, dumped, _, own = np.add.reduce(state.dates, axis=1).tolist()
        theta = self._recent(marks, mass, first, end, length)
        if own < AIMED * self.m:  # a burst is over sooner
            theta = min(theta, 4.0 * self._recent(marks, mass, first, end, length / 4))
        if marks.size and end - marks[FIRST, 0] >= self.window / 2:
            out = int(marks[CLOCK, 0] <= end - self.window)  # the one mark before the window
            whole = mass + float(np.add.reduce(marks[MASS, out:]))
            theta *= min(1.0, SLACK * max(dumped / whole if whole > 0 else 0.0, LEAST_DUMPED))
        return theta

    def _recent(self, marks: Floats, mass: float, first: float, end: float, length: float) -> float:
        """Return the mass that comes in so much of the clock: that of the newest steps, in proportion."""
        if marks.size:
            at = int(marks[CLOCK].searchsorted(end - length, side="right"))  # the first mark that counts
            first = float(marks[CLOCK, at - 1] if at else marks[FIRST, 0])
            mass += float(np.add.reduce(marks[MASS, at:]))
        return mass * length / (end - first) if end > first else mass

    # -- merging

    def merge(self, one: Unread, two: Unread) -> tuple[WindowState, Queue]:
        """Return the state of the rows of both, whose clocks are the same clock, and the rows that wait."""
        now = max(one.state.now, two.state.now)
        if not one.state.marks.size and not two.state.marks.size:
            queue = _in_order(one.queue, two.queue, now - self.window)
            if len(queue) <= RAW * self.m:
                return replace(one.state, now=now), queue
        first, second = (self._finished(each, now) for each in (one, two))
        if not first.marks.size:
            return second, Queue()
        second = second.reframed(first)
        if not second.marks.size:
            return first, Queue()
        check_total(first.squared_norm + second.squared_norm)
        pool = self.engine.merge(Unread(first.pool, Queue(), 1.0), Unread(second.pool, Queue(), 1.0))
        marks, inherited = _united(first.marks, second.marks), second.dates.copy()
        marks[DELTA, -1] += pool.delta
        marks[ROUNDING, -1] += pool.rounding
        marks[TOP, -1] = pool.lam[0] if len(pool.lam) else 0.0
        inherited[OWN] = 0.0  # else nothing would leave the pool for a window
        dumps, dates = first.dumps + second.dumps, np.concatenate([first.dates, inherited], axis=1)
        return replace(first, b=pool.b, lam=pool.lam, dumps=dumps, dates=dates, marks=marks), Queue()

    def _finished(self, unread: Unread, now: float) -> WindowState:
        """Return the state with no rows waiting, its last step ending at `now`."""
        state, queue = self.absorb(unread.state, unread.queue, at_once=True)
        state = replace(state, now=now)
        if not state.marks.size or state.marks[CLOCK, -1] <= now - self.window:
            return state.emptied()
        if state.marks[CLOCK, -1] == now:
            return state
        d, none = state.b.shape[1] - (state.shift is not None), np.zeros(0)
        return self.step(state, Rows(np.zeros((0, d)), none, none, none), now)


def _taken(queue: Queue, size: int) -> tuple[Rows, Queue]:
    """Return the first rows of a queue and the rest; dense unless all that wait are sparse, as a snapshot has them."""
    rows, rest = queue.take(size)
    if rows.is_sparse and not queue.is_sparse:
        rows = replace(rows, x=rows.dense())
    return rows, rest


def _without_longest(
    x: Matrix, norms: Floats, theta: float, room: int, rows: Rows
) -> tuple[Matrix, list[Floats], Floats]:
    """Return the rows but those as long as theta (the longest, if there is no room for all); those, and their dates."""
    assert rows.clock is not None
    found = np.flatnonzero(norms >= theta)
    found = np.sort(found[np.argsort(-norms[found], kind="stable")[:room]])
    rest = np.ones(len(norms), bool)
    rest[found] = False
    long = x[found].toarray() if sp.issparse(x) else x[found]
    ones = np.ones(len(found))
    return x[rest], list(long), np.array([rows.clock[found], norms[found], ones, ones])


def _in_order(one: Queue, two: Queue, start: float) -> Queue:
    """Return the rows of both that came after `start`, in the order of their clocks."""
    pieces = [queue.all() for queue in (one, two) if len(queue)]
    if not pieces:
        return Queue()
    both = concatenate(pieces)
    assert both.clock is not None
    both = both[np.argsort(both.clock, kind="stable")]
    return Queue().plus(both[both.clock > start] if both.clock is not None else both).owned(0.0)


def _united(one: Floats, two: Floats) -> Floats:
    """Return the marks of two streams side by side, whose last marks have the same clock."""
    clock = np.union1d(one[CLOCK], two[CLOCK])
    marks = np.zeros((len(one), len(clock)))
    marks[CLOCK], marks[FIRST] = clock, np.inf
    before = np.concatenate([[-np.inf], clock[:-1]])
    for each in (one, two):
        at = np.searchsorted(each[CLOCK], clock)
        step = each[:, at]  # the one that ends at each clock, or goes on there
        ends = step[CLOCK] == clock
        top = np.concatenate([[0.0], each[TOP, :-1]])[at]  # before that step
        going_on = np.minimum(np.where(at > 0, top + step[INSIDE], np.inf), step[WHOLE])
        marks[TOP] += np.where(ends, step[TOP], np.where(step[FIRST] > clock, top, going_on))
        marks[FIRST] = np.minimum(marks[FIRST], np.maximum(step[FIRST], before))
        marks[[WHOLE, INSIDE]] += step[[WHOLE, INSIDE]]
        marks[ENDED] += np.where(ends, step[ENDED], 0.0)
        marks[DUMPED] = np.maximum(marks[DUMPED], np.where(ends, step[DUMPED], 0.0))
    return marks
