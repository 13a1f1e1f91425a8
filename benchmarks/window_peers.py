"""Sketches of a sliding window by others, written from their papers, with the certificates that their states allow.

`DumpSnapshotFD`: DS-FD of Yin et al., "Optimal Matrix Sketching over Sliding Windows", VLDB 2024, for rows of about the
same norm: directions that reach theta leave a frequent-directions sketch with their date; two such sketches, the
younger begun every N rows.
`LogarithmicFD`: LM-FD of Wei et al., "Matrix Sketching Over Sliding Windows", SIGMOD 2016: an
exponential histogram of frequent-directions sketches, merged two by two.
`Decayed`: robust frequent directions with a decay of 1 - 1/N, which has no certificate for a window.

Each has `partial_fit`, `rows` (how many rows of length d it holds) and `read`, which returns B, alpha and the
certificate of ||A'A - (B'B + alpha I)||_2 for the last N rows.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd import RobustFrequentDirections, SlidingFrequentDirections
from robustfd.sketch._engine import Engine, State
from robustfd.sketch._rows import Contents, Queue, Rows

Floats = NDArray[np.float64]
Reading = tuple[Floats, float, float]


def engine(m: int) -> Engine:
    """Return the library's shrink of m - 1 rows, which all of them use."""
    return Engine(m, 2 * m, m, "auto")


def _queue(x: Floats) -> Queue:
    return Queue().plus(Rows(x, np.ones(len(x)), np.ones(len(x))))


def centred(b: Floats, lo: float, hi: float) -> Reading:
    """Return B with the best alpha >= 0 for a truth between B'B - lo I and B'B + hi I."""
    alpha = max((hi - lo) / 2, 0.0)
    return b, alpha, max(hi - alpha, lo + alpha)


@dataclass
class _Pool:
    """A sketch whose long directions leave it, with what is known after each of its steps."""

    state: State
    start: int = 0
    left: list[tuple[int, Floats]] = field(default_factory=list)
    marks: list[tuple[int, float, float, float, float]] = field(
        default_factory=list
    )  # clock, top, whole, delta, inside


class DumpSnapshotFD:
    """DS-FD, told the mean squared norm of a window beforehand, as its theta wants."""

    def __init__(self, window: int, m: int, d: int, mass: float):
        self.window, self.m, self.theta = window, m, mass / m
        self.now, self.waiting = 0, np.zeros((0, d))
        self.pools = [_Pool(State.empty(d, False)), _Pool(State.empty(d, False))]  # the older first

    def partial_fit(self, X: Floats) -> None:
        self.waiting = np.concatenate([self.waiting, X])
        while len(self.waiting) > self.m:
            rows, self.waiting = self.waiting[: self.m + 1], self.waiting[self.m + 1 :]
            for pool in self.pools:
                self._step(pool, rows)
            self.now += len(rows)
            if self.now - self.pools[1].start >= self.window:  # it has seen a whole window
                self.pools = [self.pools[1], _Pool(State.empty(rows.shape[1], False), self.now)]
        self.waiting = self.waiting.copy()

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
        return len(self.waiting) + sum(len(pool.state.b) + len(pool.left) for pool in self.pools)

    def read(self) -> Reading:
        pool, start = self.pools[0], self.now + len(self.waiting) - self.window
        old = [mark for mark in pool.marks if mark[0] <= start]
        later = [mark for mark in pool.marks if mark[0] > start]
        top, hi = (old[-1][1] if old else 0.0), sum(mark[3] for mark in later)
        after, lo = (old[-1][0] if old else -1), top
        if later and start > after and start > later[0][0] - self.m - 1:  # the window begins inside a step
            end, its_top, whole, delta, inside = later[0]
            one = centred(self.waiting, min(top + inside, whole), hi)[2]
            two = centred(self.waiting, its_top, hi - delta + min(inside, whole))[2]
            lo = min(top + inside, whole)
            if two < one:
                after, lo, hi = end, its_top, hi - delta + min(inside, whole)
        left = [row for when, row in pool.left if when > after]
        return centred(
            np.concatenate([pool.state.b, self.waiting, np.reshape(left, (-1, self.waiting.shape[1]))]), lo, hi
        )


@dataclass
class _Block:
    first: int
    last: int
    state: State


class LogarithmicFD:
    """LM-FD: levels of blocks, each of about twice the mass of the level below, at most b on each."""

    def __init__(self, window: int, m: int, d: int, b: int = 2):
        self.window, self.m, self.b = window, m, b
        self.now, self.waiting = 0, np.zeros((0, d))
        self.levels: list[list[_Block]] = []

    def partial_fit(self, X: Floats) -> None:
        self.waiting = np.concatenate([self.waiting, X])
        while len(self.waiting) >= self.m:
            rows, self.waiting = self.waiting[: self.m], self.waiting[self.m :]
            state = engine(self.m).finish(State.empty(rows.shape[1], False), _queue(rows))
            self._put(0, _Block(self.now + 1, self.now + len(rows), state))
            self.now += len(rows)
        start = self.now + len(self.waiting) - self.window
        self.levels = [[block for block in level if block.last > start] for level in self.levels]
        self.waiting = self.waiting.copy()

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
        return len(self.waiting) + sum(len(block.state.b) for level in self.levels for block in level)

    def read(self) -> Reading:
        start = self.now + len(self.waiting) - self.window
        parts, lo, hi = [self.waiting[max(0, start - self.now) :]], 0.0, 0.0
        for block in (block for level in self.levels for block in level):
            live = min(1.0, (block.last - start) / (block.last - block.first + 1))
            top = float(block.state.lam.max(initial=0.0))
            parts.append(np.sqrt(live) * block.state.b)
            hi += block.state.delta + (1 - live) * top
            lo += live * top if live < 1 else 0.0
        return centred(np.concatenate(parts), lo, hi)


class Decayed:
    """Robust frequent directions whose past fades; what it approximates is not a window."""

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
    """This library's."""

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
