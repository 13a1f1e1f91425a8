"""Published sketches of sliding windows, implemented from the papers, with error bounds computed from their states.

`DumpSnapshotFD`: DS-FD of Yin et al., "Optimal Matrix Sketching over Sliding Windows", VLDB 2024, for rows of about the
same norm: directions that reach theta leave a frequent-directions sketch with a time stamp. There are two such
sketches, and a new one starts every N rows.
`HeapSnapshotFD`: the faster form that its authors published later (github.com/yinhanyan/DS-FD, dump_fd.py): rows wait
unshrunk, a heap knows the longest, and only that one and the new row are decomposed to see whether a direction of theta
leaves. It has no error bound that its state could compute.
`LogarithmicFD`: LM-FD of Wei et al., "Matrix Sketching Over Sliding Windows", SIGMOD 2016: an
exponential histogram of frequent-directions sketches, merged pairwise.
`Decayed`: robust frequent directions with a decay of 1 - 1/N, which has no error bound for a window.

Each has `partial_fit`, `rows` (the number of rows of length d in memory) and `read`, which returns B, alpha and a bound
on ||A'A - (B'B + alpha I)||_2 for the last N rows.
"""

import heapq
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd import RobustFrequentDirections, SlidingFrequentDirections
from robustfd.sketch.engine import Engine, State
from robustfd.sketch.rows import Contents, Queue, Rows

Floats = NDArray[np.float64]
Reading = tuple[Floats, float, float]


def engine(m: int) -> Engine:
    """Return the shrink step of this library to m - 1 rows, which all sketches use."""
    return Engine(m, 2 * m, m, "auto")


def _queue(x: Floats) -> Queue:
    return Queue().plus(Rows(x, np.ones(len(x)), np.ones(len(x))))


def centred(b: Floats, lo: float, hi: float) -> Reading:
    """Return B with the best alpha >= 0 for an exact matrix between B'B - lo I and B'B + hi I."""
    alpha = max((hi - lo) / 2, 0.0)
    return b, alpha, max(hi - alpha, lo + alpha)


@dataclass
class _Pool:
    """A sketch that large directions leave, with statistics after each of its steps."""

    state: State
    start: int = 0
    left: list[tuple[int, Floats]] = field(default_factory=list)
    marks: list[tuple[int, float, float, float, float]] = field(
        default_factory=list
    )  # clock, top, whole, delta, inside


class DumpSnapshotFD:
    """DS-FD. Its theta needs the mean squared norm of a window in advance."""

    def __init__(self, window: int, m: int, d: int, mass: float):
        self.window, self.m, self.theta = window, m, mass / m
        self.now, self.buffer = 0, np.zeros((0, d))
        self.pools = [_Pool(State.empty(d, False)), _Pool(State.empty(d, False))]  # the older first

    def partial_fit(self, X: Floats) -> None:
        self.buffer = np.concatenate([self.buffer, X])
        while len(self.buffer) > self.m:
            rows, self.buffer = self.buffer[: self.m + 1], self.buffer[self.m + 1 :]
            for pool in self.pools:
                self._step(pool, rows)
            self.now += len(rows)
            if self.now - self.pools[1].start >= self.window:  # the newer pool covers a whole window
                self.pools = [self.pools[1], _Pool(State.empty(rows.shape[1], False), self.now)]
        self.buffer = self.buffer.copy()

    def _step(self, pool: _Pool, rows: Floats) -> None:
        before, end = replace(pool.state, delta=0.0, squared_norm=0.0), self.now + len(rows)
        after = engine(self.m).finish(before, _queue(rows))
        leave = int(np.count_nonzero(after.lam >= self.theta))
        pool.left += [(end, row.copy()) for row in after.b[:leave]]
        whole = after.delta + after.lam.max(initial=0.0)
        pool.state = replace(after, b=after.b[leave:].copy(), lam=after.lam[leave:])
        top = float(pool.state.lam.max(initial=0.0))
        pool.marks.append((end, top, whole, after.delta, after.squared_norm))
        start = end - self.window
        pool.left = [each for each in pool.left if each[0] > start]
        old = [mark for mark in pool.marks if mark[0] <= start]
        pool.marks = old[-1:] + [mark for mark in pool.marks if mark[0] > start]

    @property
    def rows(self) -> int:
        return len(self.buffer) + sum(len(pool.state.b) + len(pool.left) for pool in self.pools)

    def read(self) -> Reading:
        pool, start = self.pools[0], self.now + len(self.buffer) - self.window
        old = [mark for mark in pool.marks if mark[0] <= start]
        later = [mark for mark in pool.marks if mark[0] > start]
        top, hi = (old[-1][1] if old else 0.0), sum(mark[3] for mark in later)
        after, lo = (old[-1][0] if old else -1), top
        if later and start > after and start > later[0][0] - self.m - 1:  # the window starts inside a step
            end, its_top, whole, delta, inside = later[0]
            one = centred(self.buffer, min(top + inside, whole), hi)[2]
            two = centred(self.buffer, its_top, hi - delta + min(inside, whole))[2]
            lo = min(top + inside, whole)
            if two < one:
                after, lo, hi = end, its_top, hi - delta + min(inside, whole)
        left = [row for when, row in pool.left if when > after]
        return centred(
            np.concatenate([pool.state.b, self.buffer, np.reshape(left, (-1, self.buffer.shape[1]))]), lo, hi
        )


class _Heap:
    """A sketch of up to 2 m rows that wait for a shrink, the longest first in a heap."""

    def __init__(self, m: int, d: int, start: int):
        self.m, self.start, self.count = m, start, 0
        self.b, self.longest = np.zeros((2 * m, d)), list[tuple[float, int]]()  # negative squared lengths and places
        self.left: list[tuple[int, Floats]] = []
        self.deltas: list[tuple[int, float]] = []

    def add(self, x: Floats, square: float, now: int, theta: float) -> None:
        if square >= theta:
            self.left.append((now, x))
            return
        if self.longest and square - self.longest[0][0] >= theta and self._dump(x, square, now, theta):
            return
        self.b[self.count] = x
        heapq.heappush(self.longest, (-square, self.count))
        self.count += 1
        if self.count == len(self.b):
            shrunk = engine(self.m).finish(State.empty(self.b.shape[1], False), _queue(self.b.copy()))
            self.count = len(shrunk.b)
            self.b[: self.count], self.b[self.count :] = shrunk.b, 0.0
            self.longest = [(-lam, place) for place, lam in enumerate(shrunk.lam.tolist())]
            heapq.heapify(self.longest)
            self.deltas.append((now, shrunk.delta))

    def _dump(self, x: Floats, square: float, now: int, theta: float) -> bool:
        """Let the larger direction of the row and the longest one leave, if it reaches theta; return whether it did."""
        place = self.longest[0][1]
        other, other_square = self.b[place], -self.longest[0][0]
        cross = float(x @ other)
        mean, half = (square + other_square) / 2, (square - other_square) / 2
        radius = float(np.hypot(half, cross))
        if mean + radius < theta:
            return False
        angle = 0.5 * np.arctan2(cross, half)
        first = np.cos(angle) * x + np.sin(angle) * other
        self.b[place] = np.cos(angle) * other - np.sin(angle) * x
        self.left.append((now, first))
        heapq.heapreplace(self.longest, (-max(mean - radius, 0.0), place))
        return True


class HeapSnapshotFD:
    """DS-FD with a heap of the rows that wait."""

    def __init__(self, window: int, m: int, d: int, mass: float):
        self.window, self.m, self.d, self.theta, self.now = window, m, d, mass / m, 0
        self.pools = [_Heap(m, d, 0), _Heap(m, d, 0)]  # the older first

    def partial_fit(self, X: Floats) -> None:
        squares = np.einsum("ij,ij->i", X, X).tolist()
        for x, square in zip(X, squares, strict=True):
            self.now += 1
            for pool in self.pools:
                pool.add(x, square, self.now, self.theta)
            if self.now - self.pools[1].start >= self.window:
                self.pools = [self.pools[1], _Heap(self.m, self.d, self.now)]
        start = self.now - self.window
        for pool in self.pools:
            pool.left = [each for each in pool.left if each[0] > start]
            pool.deltas = [each for each in pool.deltas if each[0] > start]

    @property
    def rows(self) -> int:
        return sum(len(pool.b) + len(pool.left) for pool in self.pools)

    def read(self) -> Reading:
        pool = self.pools[0]
        b = np.concatenate([pool.b[: pool.count], np.reshape([row for _, row in pool.left], (-1, self.d))])
        return b, sum(delta for _, delta in pool.deltas) / 2, np.nan


@dataclass
class _Block:
    first: int
    last: int
    state: State


class LogarithmicFD:
    """LM-FD: levels of at most b blocks. The mass of a block is about twice that of the level below."""

    def __init__(self, window: int, m: int, d: int, b: int = 2):
        self.window, self.m, self.b = window, m, b
        self.now, self.buffer = 0, np.zeros((0, d))
        self.levels: list[list[_Block]] = []

    def partial_fit(self, X: Floats) -> None:
        self.buffer = np.concatenate([self.buffer, X])
        while len(self.buffer) >= self.m:
            rows, self.buffer = self.buffer[: self.m], self.buffer[self.m :]
            state = engine(self.m).finish(State.empty(rows.shape[1], False), _queue(rows))
            self._put(0, _Block(self.now + 1, self.now + len(rows), state))
            self.now += len(rows)
        start = self.now + len(self.buffer) - self.window
        self.levels = [[block for block in level if block.last > start] for level in self.levels]
        self.buffer = self.buffer.copy()

    def _put(self, level: int, block: _Block) -> None:
        if level == len(self.levels):
            self.levels.append([])
        blocks = self.levels[level] = [*self.levels[level], block]
        if len(blocks) > self.b:
            one, two = blocks[:2]
            self.levels[level] = blocks[2:]
            merged = engine(self.m).merge(Contents(one.state, Queue(), 1.0), Contents(two.state, Queue(), 1.0))
            self._put(level + 1, _Block(one.first, two.last, merged))

    @property
    def rows(self) -> int:
        return len(self.buffer) + sum(len(block.state.b) for level in self.levels for block in level)

    def read(self) -> Reading:
        start = self.now + len(self.buffer) - self.window
        parts, lo, hi = [self.buffer[max(0, start - self.now) :]], 0.0, 0.0
        for block in (block for level in self.levels for block in level):
            live = min(1.0, (block.last - start) / (block.last - block.first + 1))
            top = float(block.state.lam.max(initial=0.0))
            parts.append(np.sqrt(live) * block.state.b)
            hi += block.state.delta + (1 - live) * top
            lo += live * top if live < 1 else 0.0
        return centred(np.concatenate(parts), lo, hi)


class Decayed:
    """Robust frequent directions with decay, which does not approximate a window exactly."""

    def __init__(self, window: int, m: int):
        self.sketch = RobustFrequentDirections(m, decay=1 - 1 / window)

    def partial_fit(self, X: Floats) -> None:
        self.sketch.partial_fit(X)

    @property
    def rows(self) -> int:
        return 2 * self.sketch.sketch_size

    def read(self) -> Reading:
        return self.sketch.sketch_, self.sketch.alpha_, np.nan


class Sliding:
    """The sliding-window sketch of this library."""

    def __init__(self, window: int, m: int):
        self.sketch = SlidingFrequentDirections(window, m)

    def partial_fit(self, X: Any) -> None:
        self.sketch.partial_fit(X)

    @property
    def rows(self) -> int:
        state = self.sketch._state
        return len(state.b) + len(state.dumps) + len(self.sketch._queue)

    def read(self) -> Reading:
        return self.sketch.sketch_, self.sketch.alpha_, self.sketch.error_bound_
