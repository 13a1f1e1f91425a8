"""Slow, literal transcription of the learner with nothing to tune (docs/mathematics.md), for the tests to compare with.

Dense float64, one row at a time, an explicit d x d solve with H for every row; only the shrink is a sketch. The
intercept is the last feature. `learn` returns the margins (or predictions) as they stood before each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference import Array

RATES, RATES_OF_NUMBERS = np.array([0.25, 1.0, 4.0, 16.0, 64.0]), np.array([0.0625, 0.25, 1.0, 4.0, 16.0])
PRIOR, INTERCEPT, RAREST, CENTRE = 1 / 8, 1 / 4, 1 / 32, 0.75
FORGET, FORGET_SPREAD = 0.998, 0.99


def sigmoid(z: float) -> float:
    return float(1 / (1 + np.exp(-z)) if z >= 0 else np.exp(z) / (1 + np.exp(z)))


def implicit_step(z: float, a: float) -> float:
    """The s in (0, sigmoid(-z)] with s = sigmoid(-(z + a s)), by bisection."""
    low, high = 0.0, sigmoid(-z)
    for _ in range(200):
        middle = (low + high) / 2
        if middle > sigmoid(-(z + a * middle)):
            high = middle
        else:
            low = middle
    return (low + high) / 2


class Untuned:
    """What classifier and regressor share: scales, the Hessian, the first rows."""

    linear = False

    def __init__(self, d: int, outputs: int, rates: Array, m: int):
        self.d, self.outputs, self.rates, self.m = d, outputs, rates, m
        self.first_rows = 4 * m
        self.length = 0.0  # of all rows, or 0 if each has its own
        self.t = 0
        self.rows: list[Array] = []
        self.labels: list[float] = []
        self.weights: list[float] = []
        self.count, self.square, self.n = np.zeros(d), np.zeros(d), 0
        self.mean, self.centred = np.zeros(d), np.zeros(d, bool)
        self.scale = np.zeros(d)  # S^2, 0 before a feature has been seen
        self.metric = np.append(np.zeros(d), PRIOR)  # D
        self.reset()

    def reset(self) -> None:
        self.W = np.zeros((self.outputs, len(self.rates), self.d + 1))
        self.losses = np.zeros((self.outputs, len(self.rates)))
        self.B = np.zeros((0, self.d + 1))
        self.diagonal = np.zeros(self.d + 1)

    def shifted(self, x: Array) -> Array:
        z = x - self.mean
        return np.where(np.abs(z) <= 1e-9 * np.abs(self.mean), 0.0, z)

    def interpolated(self, v: Array, density: Array) -> Array:
        seen = (self.square > 0) & ~self.centred
        if not seen.any():
            return v
        log_g = (self.count[seen] * np.log(self.square[seen] / self.count[seen])).sum() / self.count[seen].sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(v > 0, np.exp(log_g + (np.log(v) - log_g) * np.minimum(1, 2 * density)), v)

    def renew(self, which: Array) -> None:
        """S^2 and D of these features, and of the intercept."""
        count = np.maximum(self.count, 1)
        density = np.where(self.centred, 1.0, np.minimum(count / max(self.n, 1), 1))
        v = self.square / count
        v = np.where(self.centred, v, self.interpolated(v, density))
        self.scale = np.where(which & (v > 0), v, self.scale)
        rest = np.maximum(self.diagonal - (self.B**2).sum(axis=0), 0)
        prior = PRIOR * np.sqrt(np.maximum(density, RAREST)) * self.scale
        self.metric[:-1] = np.where(which, prior + rest[:-1], self.metric[:-1])
        self.metric[-1] = PRIOR + rest[-1]

    def start_again(self) -> None:
        """Scales from all rows so far."""
        X = np.array(self.rows)
        self.n = len(X)
        nonzero = (X != 0).sum(axis=0).astype(float)
        self.centred = nonzero > CENTRE * self.n if self.n > 1 else np.zeros(self.d, bool)
        self.mean = np.where(self.centred, X.mean(axis=0), 0.0)
        spread = np.array([self.shifted(x) ** 2 for x in X]).sum(axis=0)
        spread = np.where(self.centred, spread * self.n / max(self.n - 1, 1), spread)
        self.count = np.where(spread > 0, np.where(self.centred, self.n, nonzero), 0.0)
        self.square = spread
        whole, rest = self.n * self.centred.sum(), nonzero[~self.centred].sum()
        self.length = float(np.sqrt(self.n / (whole + rest))) if self.linear and whole > rest else 0.0
        self.reset()
        self.scale = np.zeros(self.d)
        self.renew(np.ones(self.d, bool))

    def prepared(self, x: Array, *, learn: bool) -> Array:
        z = self.shifted(x)
        new = (self.scale == 0) & (z != 0)
        scale = np.where(new, self.interpolated(z**2, np.zeros(self.d)), self.scale)
        total = np.where(z != 0, z**2 / np.where(scale > 0, scale, 1), 0).sum()
        count = ((z != 0) | self.centred).sum()
        if learn:
            self.scale = scale
            first = PRIOR * np.sqrt(max(1 / max(self.n, 1), RAREST)) * scale
            self.metric[:-1] = np.where(new, first, self.metric[:-1])
        factor = np.sqrt(2 / (total + count)) if total + count > 0 else 1.0
        if self.length:
            factor = self.length * min(1.0, np.sqrt(1e4 * count / total)) if total > 0 else self.length
        return np.append(z * factor, INTERCEPT)

    def shrink(self) -> None:
        scaled = np.where(self.metric > 0, self.B / np.sqrt(np.where(self.metric > 0, self.metric, 1)), 0)
        u, s, _ = np.linalg.svd(scaled, full_matrices=False)
        s = np.append(s, np.zeros(self.m))
        kept = np.sqrt((s[: self.m - 1] - s[self.m - 1]) * (s[: self.m - 1] + s[self.m - 1]))
        k = min(self.m - 1, u.shape[1])
        ratio = np.where(s[:k] > 0, kept[:k] / np.where(s[:k] > 0, s[:k], 1), 0)
        self.B = np.vstack([ratio[:, None] * (u[:, :k].T @ self.B), np.zeros((self.m - 1 - k, self.d + 1))])

    def learn(self, X: Any, y: Any, weight: Any = None) -> Array:
        weight = np.ones(len(X)) if weight is None else weight
        return np.array([self.learn_row(np.asarray(x, float), t, s) for x, t, s in zip(X, y, weight, strict=True)])

    def learn_row(self, x: Array, y: float, weight: float) -> Any:
        first = self.t < self.first_rows
        out = self.step(x, y, weight)
        self.rows.append(x)
        self.labels.append(y)
        self.weights.append(weight)
        self.t += 1
        power_of_two = self.t & (self.t - 1) == 0
        if first and (power_of_two or self.t == self.first_rows):
            self.start_again()
            self.start_labels()
            for each in zip(self.rows, self.labels, self.weights, strict=True):
                self.step(*each)
        if len(self.B) == self.first_rows:
            X, known = np.array(self.rows), self.t == self.first_rows
            z = np.array([self.shifted(row) for row in X])
            occurred = ((z != 0) | self.centred).any(axis=0)
            self.shrink()
            if not known:
                self.n += len(X)
                self.count = self.count + np.where(self.centred, len(X), (z != 0).sum(axis=0))
                self.square = self.square + (z**2).sum(axis=0)
            self.renew(occurred)
            self.rows, self.labels, self.weights = [], [], []
        return out

    def hessian_solve(self, x: Array) -> tuple[Array, float]:
        live = self.metric > 0
        h = np.zeros(self.d + 1)
        B = self.B[:, live]
        h[live] = np.linalg.solve(np.diag(self.metric[live]) + B.T @ B, x[live])
        return h, float(x @ h)

    def enter(self, x: Array, c2: float) -> None:
        self.B = np.vstack([self.B, np.sqrt(c2) * x])
        self.diagonal = self.diagonal + c2 * x * x

    def shares(self, c: int) -> Array:
        e = np.exp(self.losses[c].min() - self.losses[c])
        return np.asarray(e / e.sum())

    def decision(self, X: Any) -> Array:
        w = np.array([self.shares(c) @ self.W[c] for c in range(self.outputs)])
        return np.array([w @ self.prepared(np.asarray(x, float), learn=False) for x in X])

    def start_labels(self) -> None:
        """What depends on the labels of the first rows."""

    def step(self, x: Array, y: float, weight: float) -> Any:
        raise NotImplementedError


class Classifier(Untuned):
    """Classes 0, 1, ...; of two classes the output is that of class 1."""

    def __init__(self, d: int, classes: int, m: int):
        super().__init__(d, 1 if classes == 2 else classes, RATES, m)

    def step(self, x: Array, y: float, weight: float) -> Any:
        x = self.prepared(x, learn=True)
        h, kappa = self.hessian_solve(x)
        margins = np.array([self.shares(c) @ (self.W[c] @ x) for c in range(self.outputs)])
        v = np.array([sigmoid(p) * (1 - sigmoid(p)) for p in margins])
        for c in range(self.outputs):
            sign = 1.0 if y == (1 if self.outputs == 1 else c) else -1.0
            for e, rate in enumerate(self.rates):
                z = sign * (self.W[c, e] @ x)
                self.W[c, e] += sign * weight * rate * implicit_step(z, weight * rate * kappa) * h
                self.losses[c, e] = FORGET * (self.losses[c, e] + weight * np.logaddexp(0, -z))
        self.enter(x, weight * (v @ v) / v.sum() if v.sum() > 0 else 0.0)
        return margins


class Regressor(Untuned):
    """Targets are numbers; `huber` is in units of the residuals of late."""

    linear = True

    def __init__(self, d: int, m: int, huber: float = np.inf):
        super().__init__(d, 1, RATES_OF_NUMBERS, m)
        self.huber, self.offset, self.spread, self.spread_weight = huber, 0.0, 0.0, 0.0

    def start_labels(self) -> None:
        y = np.array(self.labels)
        self.offset = float(y.mean())
        self.spread = float(np.mean((y - self.offset) ** 2))
        self.spread_weight = float(self.spread > 0)

    def step(self, x: Array, y: float, weight: float) -> Any:
        x = self.prepared(x, learn=True)
        h, kappa = self.hessian_solve(x)
        target, offset = y - self.offset, self.offset
        prediction = float(self.shares(0) @ (self.W[0] @ x))
        s2 = self.spread / self.spread_weight if self.spread_weight > 0 else 0.0
        largest = self.huber * np.sqrt(s2) if s2 > 0 else np.inf
        for e, rate in enumerate(self.rates):
            residual = target - self.W[0, e] @ x
            self.W[0, e] += weight * rate * np.clip(residual / (1 + weight * rate * kappa), -largest, largest) * h
            if s2 > 0:
                u = residual**2 / s2
                u = self.huber * (2 * np.sqrt(u) - self.huber) if u > self.huber**2 else u
                self.losses[0, e] = FORGET * (self.losses[0, e] + weight * u / 2)
        residual = np.clip(target - prediction, -largest, largest)
        self.spread = FORGET_SPREAD * self.spread + residual**2
        self.spread_weight = FORGET_SPREAD * self.spread_weight + 1
        self.enter(x, weight)
        return prediction + offset

    def predict(self, X: Any) -> Array:
        return self.decision(X)[:, 0] + self.offset
