"""A slow, literal transcription of the sliding window, which shares no code with src.

It has one pool, dumps (directions that left the pool, and rows too long for it) and a mark for each step. `read`
returns F, lo and hi with -lo I <= A'A - F <= hi I.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Mark:
    clock: float
    first: float
    rows: int
    top: float
    whole: float
    delta: float
    inside: float
    mass: float
    dumped: bool


@dataclass
class Dump:
    row: np.ndarray
    clock: float
    exact: bool


@dataclass
class Approximation:
    F: np.ndarray
    lo: float
    hi: float

    @property
    def alpha(self) -> float:
        return max((self.hi - self.lo) / 2, self.hi / 8)

    @property
    def error_bound(self) -> float:
        return max(self.hi - self.alpha, self.lo + self.alpha)


@dataclass
class SlidingReference:
    window: float
    m: int
    d: int
    counts_rows: bool = True
    pool: np.ndarray = None
    marks: list[Mark] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)
    queue: list[tuple[float, np.ndarray]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self):
        self.pool = np.zeros((0, self.d))

    @property
    def q(self) -> int:
        return 3 * self.m

    def row(self, clock: float, a: np.ndarray) -> None:
        """Add one row. A step follows as soon as there are enough rows."""
        self.now = clock
        self.queue.append((clock, np.asarray(a, dtype=float)))
        while self.queue:
            if not self.marks:
                self.queue = [(c, x) for c, x in self.queue if c > clock - self.window]
                if len(self.queue) < 4 * self.m + 1:
                    return
            k = self.length()
            if len(self.queue) < k:
                return
            end = self.queue[k - 1][0]
            if self.marks and self.marks[-1].clock <= end - self.window:
                self.pool, self.marks, self.dumps = self.pool[:0], [], []
                continue
            rows, self.queue = self.queue[:k], self.queue[k:]
            self.step(rows)

    def length(self) -> int:
        m = self.m
        if self.counts_rows:
            rows = self.window
        elif not self.marks or self.marks[0].clock > self.marks[-1].clock - self.window:
            return m + 1
        else:
            rows = sum(mark.rows for mark in self.marks if mark.clock > self.marks[-1].clock - self.window)
        return int(min(max(rows / self.q, m / 4, 1), m + 1))

    def recent_mass(self, mass: float, first: float, end: float, length: float) -> float:
        """The mass in `length` units of the clock: the newest steps that cover it, scaled to that length."""
        since = self.marks[-1].clock if self.marks else first
        for i in reversed(range(len(self.marks))):
            if end - since >= length:
                break
            mass += self.marks[i].mass
            since = self.marks[i - 1].clock if i else self.marks[0].first
        return mass * length / (end - since) if end > since else mass

    def step(self, rows: list[tuple[float, np.ndarray]]) -> None:
        m, q, end, first = self.m, self.q, rows[-1][0], rows[0][0]
        start = end - self.window
        before = [mark for mark in self.marks if mark.clock <= start]
        if before:
            c = before[-1].clock
            self.marks = [mark for mark in self.marks if mark.clock >= c]
            self.dumps = [each for each in self.dumps if each.clock > (start if each.exact else c)]
        mass = sum(float(a @ a) for _, a in rows)
        theta = self.recent_mass(mass, first, end, self.window / q)
        if len(self.dumps) < q:
            theta = min(theta, 4 * self.recent_mass(mass, first, end, self.window / q / 4))
        if self.marks and end - self.marks[0].first >= self.window / 2:
            whole = mass + sum(mark.mass for mark in self.marks if mark.clock > start)
            dumped = sum(float(each.row @ each.row) for each in self.dumps)
            theta *= min(1.0, 1.1 * max(dumped / whole if whole > 0 else 0.0, 0.05))
        long_rows = [i for i in range(len(rows)) if theta > 0 and rows[i][1] @ rows[i][1] >= theta]
        long_rows = sorted(long_rows, key=lambda i: -(rows[i][1] @ rows[i][1]))[: 4 * m - len(self.dumps)]
        self.dumps += [Dump(rows[i][1], rows[i][0], True) for i in sorted(long_rows)]
        pooled = [a for i, (_, a) in enumerate(rows) if i not in long_rows]
        removed, inside = 0.0, sum(float(a @ a) for a in pooled)
        for i in range(0, len(pooled), m + 1):
            _, sigma, vt = np.linalg.svd(np.vstack([self.pool, *pooled[i : i + m + 1]]), full_matrices=False)
            lam = sigma**2
            delta = lam[m - 1] if len(lam) >= m else 0.0
            lam = np.maximum(lam[: m - 1] - delta, 0.0)
            self.pool = np.sqrt(lam)[:, None] * vt[: len(lam)]
            self.pool = self.pool[lam > 0]
            removed += delta
        lam = (self.pool**2).sum(axis=1)
        whole = (lam[0] if len(lam) else 0.0) + removed
        leaving = 0
        while leaving < len(lam) and 0 < theta <= lam[leaving] and len(self.dumps) < 4 * m:
            self.dumps.append(Dump(self.pool[leaving], end, False))
            leaving += 1
        self.pool = self.pool[leaving:]
        top = lam[leaving] if leaving < len(lam) else 0.0
        self.mark(Mark(end, first, len(rows), top, whole, removed, inside, mass, leaving > 0))

    def mark(self, new: Mark) -> None:
        if self.marks:
            last = self.marks[-1]
            since = self.marks[-2].clock if len(self.marks) > 1 else last.first
            is_short = not last.dumped and new.clock - since < self.window / (8 * self.q)
            if is_short or last.clock == new.clock:
                new.whole += last.whole if last.dumped else last.delta
                new.first, new.dumped = last.first, last.dumped or new.dumped
                new.rows, new.mass, new.delta, new.inside = (
                    new.rows + last.rows, new.mass + last.mass, new.delta + last.delta, new.inside + last.inside
                )  # fmt: skip
                self.marks.pop()
        self.marks.append(new)

    def read(self, window: float | None = None) -> Approximation:
        start = self.now - (self.window if window is None else window)
        kept = [a for c, a in self.queue if c > start]
        kept += [each.row for each in self.dumps if each.exact and each.clock > start]
        exact_rows = np.array(kept).reshape(-1, self.d)
        later = [mark for mark in self.marks if mark.clock > start]
        if not later:
            return Approximation(exact_rows.T @ exact_rows, 0.0, 0.0)
        earlier = [mark for mark in self.marks if mark.clock <= start]
        c1, top = (earlier[-1].clock, earlier[-1].top) if earlier else (-np.inf, 0.0)
        k, hi = later[0], sum(mark.delta for mark in later)

        def second_moment(after: float) -> np.ndarray:
            left = [each.row for each in self.dumps if not each.exact and each.clock > after]
            rows = np.vstack([self.pool, exact_rows, *left])
            return rows.T @ rows

        if k.first > start:
            return self._clip(Approximation(second_moment(c1), top, hi))
        one = Approximation(second_moment(c1), min(top + k.inside, k.whole), hi)
        two = Approximation(second_moment(k.clock), k.top, hi - k.delta + min(k.inside, k.whole))
        return self._clip(min(one, two, key=lambda each: each.error_bound))

    @staticmethod
    def _clip(each: Approximation) -> Approximation:
        """Limit lo to lambda_1(F), because A'A >= 0."""
        return Approximation(each.F, min(each.lo, float(np.linalg.eigvalsh(each.F)[-1])), each.hi)
