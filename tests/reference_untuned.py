"""A slow, literal transcription of the untuned learner: dense float64, one expert at a time.

It follows docs/online-mathematics.md. Unlike `robustfd.learners`, it stores all numbers as float64.
"""

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, softmax

Array = np.ndarray[Any, np.dtype[np.float64]]

FIRST, GAMMA, SHARED, OFFERED, LINE, INTERCEPT, RAREST, ODD = 64, 0.999, 1e-4, 0.5, 0.25, 0.25, 1 / 64, 30
SLOW = [(0.25, 0), (1, 0), (4, 0), (16, 0), (64, 0), (256, 0), (1, 1), (16, 1)]  # rate, linear
LADDER = (1.0, 0.03, 0.001)
FAST = [(0.25, 0), (1, 0), (4, 0), (16, 0), (1, 1), (4, 1), (16, 1), (64, 1)]
RECENT, LATER, YOUNG, FORGET_LEAD, BEHIND = 1000, 6, 500, 0.98, 6  # of mean shares
BETS, FLAT = [0.5, 1, 2, 4], [(4, 0), (4, 1), (16, 1), (64, 1)]  # alpha of bettors; rate, linear with a flat prior
FOLLOW, FOLLOW_SHARE = np.array([0.0, 0.02, 0.1, 0.5]), np.array([0.97, 0.01, 0.01, 0.01])


def root(z: float, a: float) -> float:
    """Return the root of s = sigmoid(-(z + a s))."""
    high = float(expit(-z))
    if a * high < 1e-12:
        return high
    return float(brentq(lambda s: s - expit(-(z + a * s)), 0.0, high, xtol=1e-300, rtol=1e-12))


def implicit(z: float, a: float) -> float:
    """Return an approximate root: two Newton iterations for u = z + a s, and a first-order correction of s."""
    fraction, exponent = np.frexp(a)
    below = (exponent - 2 + 2 * fraction - 1) * np.log(2)  # log(a / 2), linear in a between two powers of two
    far = below - z
    low = below - 4 * (far**0.25 - 1) if far > 1 else z
    u = max(z, 0.0, low) if z + a / 2 > 0 else min(0.0, z + a)
    for _ in range(2):
        s = expit(-u)
        move = (u - z - a * s) / (1 + a * s * (1 - s))
        u -= move
    s += s * (1 - s) * move
    return float(min(s, (u - z) / a) if a > 0.01 else s)


class Feature:
    """The statistics of one feature."""

    def __init__(self) -> None:
        self.count = self.square = self.reference = self.scale = self.prior = 0.0
        self.slow = self.fast = 0.0
        self.centred, self.centre, self.mean = False, 0.0, 0.0
        self.last, self.step, self.run = 0.0, 0.0, []  # of values, mean square of differences, a run of small ones


class Learner:
    """Plain experts and, with `exact`, exact ones; for two classes or, with `huber`, for numbers.

    For numbers, it predicts the mean, a quantile with `level`, or the logarithm of the mean with `counts`.
    """

    def __init__(
        self, d: int, *, exact: bool = False, huber: float | None = None, level: float = 0.0, counts: bool = False,
        few: bool = False,
    ):  # fmt: skip
        self.d, self.exact, self.huber, self.level, self.counts, self.few = d, exact, huber, level, counts, few
        rates = [SLOW, FAST]
        if huber is not None:
            powers = [[-2, 0, 1, 3], [-2, -1, 1, 3]] if few else [range(-2, 6), range(-3, 5)]
            rates = [[(4.0**k, 1) for k in some] for some in powers]
        self.choose(
            rates, [] if few else BETS, [] if few else FLAT if huber is None else [(4.0**k, 1) for k in range(4)]
        )
        self.a0 = 3 / 16 if huber is None else 0.5
        self.kept: list[tuple[Array, float]] = []
        self.features = [Feature() for _ in range(d)]
        self.seen, self.rows, self.norm, self.times, self.outputs = 0, 0.0, 1.0, 1, 1
        self.start()

    # -- beginning

    def choose(self, rates: Any, bets: Any, flat: Any) -> None:
        """Set the experts without an exact Hessian: rate, linear, memory and form of each."""
        self.diagonal = [(rate, linear, memory, "diagonal") for memory in (0, 1) for rate, linear in rates[memory]]
        self.line = [(alpha, 1, 0, "bet") for alpha in bets] + [(rate, linear, 0, "flat") for rate, linear in flat]

    def start(self) -> None:
        ladder = LADDER if self.seen >= FIRST and not (self.few and self.huber is None) else LADDER[:1]
        self.rungs = [*((0, f) for f in ladder), (1, 1.0)] if self.exact else []  # memory, factor of the prior
        exact = [(r, l, m, f) for memory, f in self.rungs for r, l, m, _ in self.diagonal if m == memory]
        self.experts = self.diagonal + self.line + exact
        part = [1.0 - LINE, LINE, 0.0] if self.line else [1.0, 0.0, 0.0]
        part = [(1 - OFFERED) * part[0], (1 - OFFERED) * part[1], OFFERED] if exact else part
        kinds = (self.diagonal, self.line, exact)
        self.deal = np.concatenate([np.full(len(each), p / max(len(each), 1)) for p, each in zip(part, kinds)])
        n = len(self.experts)
        self.W = np.zeros((n, 1 + self.d))  # of zeta, the intercept first; not of bettors
        self.share = self.deal.copy()
        self.steady, self.age, self.lead = self.share.copy(), 0.0, 0.0
        self.start_bets()
        self.b, self.beta = np.zeros(4), FOLLOW_SHARE.copy()
        self.own = [0.0, 0.0]  # sums of c^2 of the intercept, slow and fast
        self.past = [np.zeros((1 + self.d, 1 + self.d)) for _ in (0, 1)]
        self.block = np.zeros((1 + self.d, 1 + self.d))
        self.inverse = {rung: np.zeros((1 + self.d, 1 + self.d)) for rung in self.rungs}
        self.offset, self.unit, self.low, self.high = 0.0, 1.0, np.inf, -np.inf
        self.spread = self.spread_weight = 0.0
        self.logs = self.log_weight = 0.0
        if not self.kept:
            self.length = 1.0
        self.renewed, self.renew_at = 0, 0

    def start_bets(self) -> None:
        self.z, self.g, self.wealth = (np.zeros_like(self.W) for _ in range(3))
        self.bet_squares = self.bet_rows = 0.0

    def bets(self, e: int) -> Array:
        """Return the bets of a bettor on all features, the intercept first."""
        return (self.experts[e][0] + self.wealth[..., e, :]) * self.z[..., e, :] / (1 + self.g[..., e, :])

    def bet(self, e: int, t: Any) -> None:
        """Settle the bets of a bettor; t is minus the slope of the loss."""
        gain = np.multiply.outer(t, self.clipped)
        self.wealth[..., e, :] += gain * self.bets(e)
        self.z[..., e, :] += gain
        self.g[..., e, :] += np.abs(gain)

    def first_statistics(self) -> None:
        X, y = np.array([x for x, _ in self.kept]), np.array([t for _, t in self.kept])
        n = len(X)
        self.rows, entries = float(n), 0.0
        for j in range(self.d):
            f = self.features[j] = Feature()
            x, count = X[:, j], np.count_nonzero(X[:, j])
            if n > 1 and count > 0.75 * n:
                x = cut_off(x)
                f.centred, f.count, f.centre, f.mean, f.last = True, n, x.mean(), x.mean(), x.mean()
                off = x - x.mean()
                off[np.abs(off) <= 1e-9 * abs(x.mean())] = 0
                f.square = np.sum(off**2) / (n - 1)
            elif count:
                f.count, f.square = count, np.sum(x**2) / count
                self.logs += count * np.log(f.square)
                self.log_weight += count
            entries += f.count
        for f in self.features:
            if f.square > 0:
                self.set_scale(f)
        self.length = self.norm = np.sqrt(n / entries) if entries else 1.0
        if self.huber is not None:
            y = cut_off(y)
            self.offset, spread = y.mean(), np.mean((y - y.mean()) ** 2)
            self.unit = np.sqrt(spread) if spread > 0 else max(abs(self.offset), 1e-300)
            self.spread = self.spread_weight = float(spread > 0)
            if self.counts:
                self.offset, self.unit, self.spread, self.spread_weight = (
                    0.0,
                    y.mean() if y.mean() > 0 else 1.0,
                    1.0,
                    1.0,
                )
            elif self.level:
                self.offset = np.quantile(y, self.level)

    def set_scale(self, f: Feature) -> None:
        density = min(f.count / max(self.rows, 1.0), 1.0)
        square = f.square
        if not f.centred and self.log_weight > 0 and 2 * f.count / max(self.rows, 1.0) < 1:
            g = self.logs / self.log_weight
            square = np.exp(g + 2 * f.count / max(self.rows, 1.0) * (np.log(square) - g))
        f.scale, f.reference = np.sqrt(square), f.square
        f.prior = self.a0
        if not f.centred:
            f.prior *= np.sqrt(max(density, RAREST)) if self.huber is None else 16.0

    # -- rows

    def zeta(self, x: Array, *, learn: bool) -> tuple[Array, float, float]:
        """Return zeta, and two factors of the row: from the row itself, and from all rows."""
        z, total, count, logs, met = np.zeros(self.d), 0.0, 0, 0.0, 0
        for j, f in enumerate(self.features):
            off = x[j] - f.centre if f.centred else x[j]
            if f.centred and abs(off) <= 1e-9 * abs(f.centre):
                off = 0.0
            if f.centred or x[j] != 0:
                count += 1
            if f.scale == 0 and off != 0:
                if learn:
                    f.square, f.count = off**2, 0.0
                    self.set_scale(f)
                    logs, met = logs + np.log(off**2), met + 1
                else:
                    total += off**2 / np.exp(self.logs / self.log_weight) if self.log_weight > 0 else 1
            z[j] = off / f.scale if f.scale > 0 else 0.0
            if f.centred and abs(z[j]) > ODD:
                z[j] = 0.0
        self.logs, self.log_weight = self.logs + logs, self.log_weight + met
        total += z @ z
        length = self.length * (np.sqrt(100 * count / total) if total > 100 * count else 1.0)
        return z, (np.sqrt(2 / (total + count)) if count else 1.0), length

    def hessian(self, memory: int) -> Array:
        """Return the diagonal of the Hessian, the intercept first."""
        H = [self.a0 + self.own[memory]]
        for f in self.features:
            H.append((f.prior + (f.slow, f.fast)[memory]) if f.scale > 0 else 1.0)
        return np.array(H)

    def meet(self, x: Array, *, learn: bool) -> tuple[Array, Array, list[Array], float]:
        """Return margins, kappas and directions of all experts, and the factor of the row in the Hessian."""
        z, norm, length = self.zeta(x, learn=learn)
        margins, kappas, directions = [], [], []
        self.clipped = np.append(1.0, np.clip(z / 2, -1, 1))
        root = np.sqrt(max(self.bet_squares, 1) / max(self.bet_rows, 1))
        for e, (_, linear, memory, form) in enumerate(self.experts):
            row = np.concatenate([[INTERCEPT], (length if linear else norm) * z])
            if form == "bet":
                margins.append(self.bets(e) @ np.append(1.0, z / 2 * length / self.length) / root)
                kappas.append(0.0)
                directions.append(row)
                continue
            flat = np.array([1 + self.own[0], *(1 + f.slow for f in self.features)])
            if form in ("diagonal", "flat"):
                h = row / (flat if form == "flat" else self.hessian(memory))
            else:
                h = self.inverse[memory, form] @ row
            margins.append(self.W[..., e, :] @ row)
            kappas.append(row @ h)
            directions.append(h)
        self.row = np.concatenate([[INTERCEPT], (norm if self.huber is None else length) * z])
        return np.array(margins), np.array(kappas), directions, norm

    def predict(self, margins: Array, share: Array) -> float:
        low, high = self.bounds()
        return float(np.clip(share @ np.clip(margins, low, high) + self.beta @ self.b, low, high))

    def bounds(self) -> tuple[float, float]:
        if self.huber is None or self.low > self.high:
            return -np.inf, np.inf
        slack = 0.1 * (self.high - self.low)
        return self.low - slack, self.high + slack

    def step(self, x: Array, y: float, *, note: bool) -> float:
        margins, kappas, directions, norm = self.meet(x, learn=True)
        p, self.calm = self.predict(margins, self.share), self.predict(margins, self.steady)
        learn = self.step_class if self.huber is None else self.step_number
        c2 = learn(p, y, margins, kappas, directions)
        self.follow_shares()
        self.own = [self.own[0] + c2 * INTERCEPT**2, GAMMA * (self.own[1] + c2 * INTERCEPT**2)]
        for j, f in enumerate(self.features):
            f.slow += c2 * self.row[1 + j] ** 2
            f.fast = GAMMA * (f.fast + c2 * self.row[1 + j] ** 2)
        self.block += c2 * np.outer(self.row, self.row)
        self.bet_squares, self.bet_rows = self.bet_squares + self.clipped @ self.clipped, self.bet_rows + 1
        if note:
            self.rows += 1
            self.norm += (norm - self.norm) / min(self.rows, 1000)
            self.later = [0.0, 0.0]  # of logarithms, and their weight
            for j in range(self.d):
                self.note(j, x[j])
            self.logs, self.log_weight = self.logs + self.later[0], self.log_weight + self.later[1]
        return self.output(p)

    def earn(self, chance: Array) -> None:
        self.share *= chance
        self.share = (1 - SHARED) * self.share / self.share.sum() + SHARED * self.deal

    def follow_shares(self) -> None:
        if self.lead < -BEHIND:
            self.age = self.lead = 0.0
        self.age, self.lead = min(self.age + 1, LATER * RECENT), FORGET_LEAD * self.lead
        self.steady = self.steady + min(LATER / self.age * max(YOUNG / self.age, 1.0), 1.0) * (self.share - self.steady)

    def compare_shares(self, gain: float) -> None:
        self.lead += np.clip(gain, -1, 1)

    def step_class(self, p: float, y: float, margins: Array, kappas: Array, directions: list[Array]) -> float:
        sign = 2 * y - 1
        self.compare_shares(np.logaddexp(0, -sign * p) - np.logaddexp(0, -sign * self.calm))
        for e, (rate, *_, form) in enumerate(self.experts):
            if form == "bet":
                self.bet(e, sign * expit(-sign * margins[e]))
                continue
            self.W[e] += sign * rate * implicit(sign * margins[e], rate * kappas[e]) * directions[e]
        base = p - self.beta @ self.b
        self.earn(expit(sign * margins))
        good = expit(sign * (base + self.b))
        self.b += FOLLOW * sign * (1 - good)
        self.beta = (1 - SHARED) * self.beta * good / (self.beta @ good) + SHARED * FOLLOW_SHARE
        return float(expit(p) * expit(-p))

    def step_number(self, p: float, y: float, margins: Array, kappas: Array, directions: list[Array]) -> float:
        y = (y - self.offset) / self.unit
        spread = self.spread / self.spread_weight if self.spread_weight else 0.0
        low, high = self.bounds()
        if self.counts:
            margins = np.clip(margins, low, high)
        for e, (rate, *_, form) in enumerate(self.experts):
            if form == "bet":
                self.bet(e, self.slope_of_bets(y, np.clip(margins[e], low, high), spread))
                continue
            self.W[e] += rate * self.slope(y, margins[e], rate * kappas[e], spread) * directions[e]
        if spread > 0 and self.times:
            base = p - self.beta @ self.b
            gain = self.loss(y, np.array([p, self.calm]), spread) @ [1, -1]
            self.compare_shares(self.times * gain / self.outputs)
            losses = self.loss(y, np.clip(margins, low, high), spread)
            self.earn(np.exp(self.times * (losses.min() - losses)))
            losses = self.loss(y, base + self.b, spread)
            chance = np.exp(self.times * (losses.min() - losses))
            slopes = np.array([self.slope(y, at, 0.0, spread) for at in base + self.b])
            if self.counts:
                slopes = np.clip(slopes / np.maximum(np.exp(base + self.b), 1), -1, 1)
            self.b += 0.2 * FOLLOW * slopes
            self.beta = (1 - SHARED) * self.beta * chance / (self.beta @ chance) + SHARED * FOLLOW_SHARE
        if self.counts:
            square = (y - np.exp(p)) ** 2 / np.exp(p)
            square, residual = min(square, 64 * spread), np.clip(np.log(max(y, 0.01)) - p, -1, 1)
        else:
            largest = self.huber * np.sqrt(spread) if spread > 0 else np.inf
            residual = np.clip(y - p, -largest, largest)
            square = residual**2
        self.spread, self.spread_weight = 0.99 * self.spread + square, 0.99 * self.spread_weight + 1
        self.low, self.high = min(self.low, p + residual), max(self.high, p + residual)
        return float(np.exp(p)) if self.counts else 1.0

    def slope(self, y: float, p: float, a: float, spread: float) -> float:
        """Return s = -l'(p + a s)."""
        if self.counts:
            if a <= 1e-9:
                return float(y - np.exp(p))
            ends = sorted((p, np.log(y) if y > 0 else p - 50 - a))
            root = brentq(lambda u: u - p - a * (y - np.exp(u)), ends[0] - 1e-9, ends[1] + 1e-9, xtol=1e-14)
            return (root - p) / a
        largest = np.sqrt(spread) if spread > 0 else (1.0 if self.level else np.inf)
        if self.level:
            low, high = (self.level - 1) * largest, self.level * largest
            return float(np.clip((y - p) / a, low, high)) if a > 0 else (high if y > p else low)
        return float(np.clip((y - p) / (1 + a), -self.huber * largest, self.huber * largest))

    def slope_of_bets(self, y: float, p: float, spread: float) -> float:
        if self.counts:
            return float(np.clip((y - np.exp(p)) / max(np.exp(p), 1.0), -1, 1))
        if self.level:
            return self.level if y > p else self.level - 1
        return float(np.clip((y - p) / np.sqrt(spread), -1, 1)) if spread > 0 else 0.0

    def loss(self, y: float, p: Array, spread: float) -> Array:
        if self.counts:
            return (np.exp(p) - y * p) / spread
        if self.level:
            return 2 * (y - p) * (self.level - (y < p)) / np.sqrt(spread)
        u = (y - p) ** 2 / spread
        return 0.5 * np.where(u > self.huber**2, self.huber * (2 * np.sqrt(u) - self.huber), u)

    # -- statistics

    def note(self, j: int, x: float) -> None:
        f = self.features[j]
        if f.scale == 0 or not (f.centred or x != 0):
            return
        if f.centred and self.unit_shrank(f, x):
            return
        f.count += 1
        off = x
        if f.centred:
            off, most = x - f.mean, 4 * np.sqrt(f.square)
            f.mean += np.clip(off, -most, most) / min(f.count, 1000)
        f.square = min(f.square + (off**2 - f.square) * max(1 / f.count, 1 / 1000), 2 * f.square)
        regular = f.count in 4.0 ** np.arange(1, 30)
        due = (regular or f.square > 4 * f.reference or 4 * f.square < f.reference) and f.square > 0
        if f.centred:
            away = (f.mean - f.centre) / f.scale
            if due or abs(away) > 0.5:
                for e, (alpha, linear, _, form) in enumerate(self.experts):
                    factor = self.length if linear else self.norm
                    self.W[..., e, 0] += factor * away / INTERCEPT * self.W[..., e, 1 + j]
                    if form == "bet":  # the bet on the intercept changes through z
                        z, g = self.z[..., e, 0], self.g[..., e, 0]
                        have = np.maximum(alpha + self.wealth[..., e, 0], 1e-6)
                        more = away / 2 * self.bets(e)[..., 1 + j] * (1 + g) / have
                        self.z[..., e, 0] = np.clip(z + more, -g, g)
                f.centre = f.mean
        if due:
            if not f.centred and regular:
                self.later[0] += 0.75 * f.count * np.log(f.square)
                self.later[1] += 0.75 * f.count
            old = f.scale
            self.set_scale(f)
            change = (f.scale / old) ** 2
            most = 4 if f.count > 4 else 1e30
            if 1 / most <= change <= most:
                self.rescale(j, change)

    def unit_shrank(self, f: Feature, x: float) -> bool:
        square, most = (x - f.last) ** 2, 16 * (f.step or f.square)
        f.last = x
        if square == 0:
            return False
        f.run = [*f.run, (square, x)] if square < f.step / 900 and f.count > 128 else []
        if len(f.run) < 32:
            f.step = f.step + (min(square, most) - f.step) / min(f.count, 1000) if f.step else min(square, most)
            return False
        squares, values = zip(*f.run, strict=True)
        ratio = np.mean(squares) / f.step
        f.square, f.step, f.count, f.run = ratio * f.square, ratio * f.step, 32.0, []
        f.scale, f.reference = np.sqrt(f.square), f.square
        f.centre = f.mean = np.mean(values)
        return True

    def rescale(self, j: int, change: float) -> None:
        f, root = self.features[j], np.sqrt(change)
        f.slow, f.fast = f.slow / change, f.fast / change
        self.W[..., 1 + j] *= root
        for matrix in (*self.past, self.block):
            matrix[1 + j] /= root
            matrix[:, 1 + j] /= root
        for matrix in self.inverse.values():
            matrix[1 + j] *= root
            matrix[:, 1 + j] *= root

    # -- the stream

    def renew(self, rows: int) -> None:
        for memory in (0, 1):
            if memory == 1:
                self.past[1] *= GAMMA ** (rows - self.renewed)
            self.past[memory] += self.block
        for (memory, factor), inverse in self.inverse.items():
            prior = [factor * self.a0] + [factor * f.prior if f.prior > 0 else 1.0 for f in self.features]
            h = self.past[memory] + np.diag(prior)
            if np.abs(np.diag(inverse @ h) - 1).max() > 1 / 32:
                inverse[:] = np.linalg.inv(h)
        self.block[:] = 0
        self.renewed, self.renew_at = rows, rows + min(max(rows // 8, 1), 256)

    def learn(self, X: Array, y: Array) -> Array:
        return self.stream(X, y, np.empty(len(y)))

    def stream(self, X: Array, y: Array, out: Array) -> Array:
        for i in range(len(y)):
            if self.seen < FIRST:
                self.kept.append((X[i], y[i]))
            out[i] = self.step(X[i], y[i], note=True)
            self.seen += 1
            if self.seen <= FIRST and self.seen & (self.seen - 1) == 0:
                self.start()
                self.first_statistics()
                if self.exact:
                    self.renew(0)
                for k, (x, target) in enumerate(self.kept):
                    self.step(x, target, note=False)
                    if self.exact and k + 1 >= self.renew_at:
                        self.renew(k + 1)
            elif self.exact and self.seen >= FIRST and self.seen >= self.renew_at:
                self.renew(self.seen)
        return out

    def decision(self, X: Array) -> Array:
        return np.array([self.output(self.predict(self.meet(x, learn=False)[0], self.steady)) for x in X])

    def output(self, p: Any) -> Any:
        return self.unit * np.exp(p) if self.counts else self.offset + self.unit * p


class SeveralClasses(Learner):
    """Several classes: margins (classes, experts), whose softmax is the probability of each class."""

    def __init__(self, d: int, classes: int, *, exact: bool = False):
        self.classes = classes
        super().__init__(d, exact=exact)
        self.choose([[each[k] for k in (1, 2, 4, 6)] for each in (SLOW, FAST)], [0.5], [(16, 1)])
        self.start()

    def start(self) -> None:
        super().start()
        self.W = np.zeros((self.classes, len(self.experts), 1 + self.d))
        self.start_bets()
        self.b, self.beta = np.zeros((self.classes, 4)), np.tile(FOLLOW_SHARE, (self.classes, 1))

    def meet(self, x: Array, *, learn: bool) -> tuple[Array, Array, list[Array], float]:
        margins, *rest = super().meet(x, learn=learn)
        return margins.T, *rest

    def predict(self, margins: Array, share: Array) -> Array:
        return margins @ share + (self.beta * self.b).sum(axis=1)

    def step_class(self, p: Array, y: float, margins: Array, kappas: Array, directions: list[Array]) -> float:
        q, base, c2 = softmax(p), p - (self.beta * self.b).sum(axis=1), []
        self.compare_shares(np.log(softmax(self.calm)[int(y)]) - np.log(q[int(y)]))
        for c in range(self.classes):
            sign = 1 if c == y else -1
            for e, (rate, *_, form) in enumerate(self.experts):
                if form == "bet":
                    continue
                rest = np.log(max(1 - softmax(margins[:, e])[c], 1e-6))  # of the other classes' probability
                z = sign * (margins[c, e] - logsumexp(margins[:, e]) - rest)
                self.W[c, e] += sign * rate * implicit(z, 2 * rate * kappas[e]) * directions[e]
            good = expit(sign * (base[c] + self.b[c] - logsumexp(np.delete(p, c))))
            self.b[c] += FOLLOW * sign * (1 - good)
            self.beta[c] = (1 - SHARED) * self.beta[c] * good / (self.beta[c] @ good) + SHARED * FOLLOW_SHARE
            c2.append(q[c] * (1 - q[c]))
        chance = softmax(margins, axis=0)
        for e, (*_, form) in enumerate(self.experts):
            if form == "bet":
                self.bet(e, (np.arange(self.classes) == y) - chance[:, e])
        self.earn(chance[int(y)])
        return float(np.square(c2).sum() / np.sum(c2))

    def learn(self, X: Array, y: Array) -> Array:
        return self.stream(X, y, np.empty((len(y), self.classes)))


class SeveralQuantiles(Learner):
    """Several quantiles: each has its experts, shares and intercepts; statistics, spread and Hessians are shared."""

    def __init__(self, d: int, levels: tuple[float, ...], *, exact: bool = False, few: bool = False):
        self.levels, self.middle, self.turns = levels, len(levels) // 2, len(levels) if few else 2
        super().__init__(d, exact=exact, huber=8.0, level=levels[self.middle])
        self.choose([[(4.0**k, 1) for k in some] for some in (range(1, 5), range(4))], [], [])
        self.start()

    def start(self) -> None:
        super().start()
        k, n = len(self.levels), len(self.experts)
        self.turn, self.W, self.share = 0, np.zeros((k, n, 1 + self.d)), np.tile(self.deal, (k, 1))
        self.steady, self.outputs = self.share.copy(), k
        self.b, self.beta = np.zeros((k, 4)), np.tile(FOLLOW_SHARE, (k, 1))

    def first_statistics(self) -> None:
        self.level = self.levels[self.middle]
        super().first_statistics()
        targets = cut_off(np.array([y for _, y in self.kept]))
        self.W[:, :, 0] = (np.quantile(targets, self.levels) - self.offset)[:, None] / self.unit / INTERCEPT

    def meet(self, x: Array, *, learn: bool) -> tuple[Array, Array, list[Array], float]:
        margins, *rest = super().meet(x, learn=learn)
        return margins.T, *rest

    def predict(self, margins: Array, share: Array) -> Array:
        low, high = self.bounds()
        mean = (share * np.clip(margins, low, high)).sum(axis=1)
        return np.clip(mean + (self.beta * self.b).sum(axis=1), low, high)

    def step_number(self, p: Array, y: float, margins: Array, kappas: Array, directions: list[Array]) -> float:
        arrays, before = (self.W, self.share, self.b, self.beta), (self.spread, self.spread_weight, self.low, self.high)
        calm = self.calm
        for c, level in enumerate(self.levels):
            self.level, self.calm = level, calm[c]
            self.times = (
                self.turns if (c + self.turn) % self.turns == 0 else 0
            )  # how often the row counts for the shares
            self.spread, self.spread_weight, self.low, self.high = before
            self.W, self.share, self.b, self.beta = (each[c] for each in arrays)
            super().step_number(p[c], y, margins[c], kappas, directions)
            for array, each in zip(arrays, (self.W, self.share, self.b, self.beta), strict=True):
                array[c] = each
            if c == self.middle:
                after = self.spread, self.spread_weight, self.low, self.high
        (self.W, self.share, self.b, self.beta), (self.spread, self.spread_weight, self.low, self.high) = arrays, after
        self.turn = (self.turn + 1) % self.turns
        return 1.0

    def output(self, p: Any) -> Any:
        return np.sort(super().output(p))

    def learn(self, X: Array, y: Array) -> Array:
        return self.stream(X, y, np.empty((len(y), len(self.levels))))


MAPS = [(1.0, 0.0), (0.75, 0.0), (1.0, 0.01), (1.25, 0.02), (1.25, 0.05), (1.5, 0.1)]  # steepness, noise


def recalibrate(margins: Array, y: Array, weight: Array) -> tuple[Array, Array]:
    """Return the log losses of rows of two classes, and the shares of the maps from margins to probabilities."""
    first = np.array([0.999, *[0.0002] * 5])
    share, losses = first, []
    for margin, label, times in zip(margins, y, weight, strict=True):
        chance = np.array([e / 2 + (1 - e) * expit(t * (2 * label - 1) * margin) for t, e in MAPS])
        losses.append(-np.log(share @ chance))
        share = share * chance**times
        share = (1 - SHARED) * share / share.sum() + SHARED * first
    return np.array(losses), share


def cut_off(x: Array) -> Array:
    """Return values clipped at ten robust standard deviations from the median, if there are at least nine."""
    if len(x) < 9:
        return x
    median = np.median(x)
    spread = 14.826 * np.median(np.abs(x - median))
    return np.clip(x, median - spread, median + spread) if spread > 0 else x
