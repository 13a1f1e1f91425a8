"""Decisions, row by row and in plain numbers: estimates of a policy from a log, the betting interval."""

from __future__ import annotations

import math

import numpy as np

from tests import reference_bandits

FRACTIONS = (0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75)


def estimates(policy, rewards, logged, predicted=None):
    """Return ips, snips, dr and the effective number of rows."""
    weights = [p / q for p, q in zip(policy, logged)]
    weighted = math.fsum(w * r for w, r in zip(weights, rewards))
    ips, snips, dr = weighted / len(weights), weighted / math.fsum(weights), None
    if predicted is not None:
        dr = math.fsum(v + w * (r - q) for w, r, q, v in zip(weights, rewards, *predicted)) / len(weights)
    return ips, snips, dr, math.fsum(weights) ** 2 / math.fsum(w * w for w in weights)


def capital(z, m):
    """Return the logarithm of the mean capital of the gamblers who bet that the mean of z is above m."""
    logs = [math.fsum(math.log(1 + f * (each / m - 1)) for each in z) for f in FRACTIONS]
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))


def lower(z, tail):
    """Return the smallest m in [0, 1] at which the capital is below 1 / tail, by bisection."""
    low, high = 0.0, 1.0
    if capital(z, 1.0) >= -math.log(tail):
        return 1.0
    for _ in range(40):
        m = (low + high) / 2
        if capital(z, m) >= -math.log(tail):
            low = m
        else:
            high = m
    return low


def interval(policy, rewards, logged, level, low=0.0, high=1.0):
    """Return the betting interval."""
    weights = [p / q for p, q in zip(policy, logged)]
    scaled, tail = [(r - low) / (high - low) for r in rewards], (1 - level) / 2
    below = lower([w * r for w, r in zip(weights, scaled)], tail)
    above = 1 - lower([w * (1 - r) for w, r in zip(weights, scaled)], tail)
    return low + (high - low) * below, low + (high - low) * above


class DenseLinUCB:
    """SketchedLinUCB with H as a dense matrix, a shrink step as an SVD, and weights by a plain solve."""

    def __init__(self, d, m, method, alpha, grows=False):
        self.m, self.alpha0, self.grows, self.d = (d + 1 if method == "exact" else min(m, d + 1)), alpha, grows, d
        self.share = {"rfd": 0.5, "scfd": 1.0}.get(method, 0.0)
        self.rows, self.b = np.zeros((0, d)), np.zeros(d)
        self.delta = self.grown = self.squares = 0.0
        self.seen = 0

    def read(self, x):
        h = self.rows.T @ self.rows + (self.alpha0 + self.share * self.delta) * np.eye(self.d)
        size = math.sqrt(self.squares / self.seen) if self.seen else 1.0
        inverse = np.linalg.inv(h)
        return x @ inverse @ self.b, [size * math.sqrt(row @ inverse @ row) for row in x]

    def learn(self, x, reward):
        self.squares += (reward - self.read(x[None])[0][0]) ** 2
        self.seen += 1
        self.rows, self.b = np.vstack([self.rows, x]), self.b + reward * x
        if len(self.rows) == 2 * self.m:
            _, s, v = np.linalg.svd(self.rows, full_matrices=False)
            lam = np.pad(s**2, (0, self.m))
            removed = lam[self.m - 1] if self.m <= self.d else 0.0
            if self.grows and self.m <= self.d and self.share * (self.delta + removed - self.grown) > self.alpha0:
                self.m, self.grown = min(2 * self.m, self.d + 1), self.delta
                return
            kept = min(self.m - 1, len(v))
            self.rows = np.sqrt(np.maximum(lam[:kept] - removed, 0))[:, None] * v[:kept]
            self.delta += removed

    def probabilities(self, x):
        means, widths = self.read(x)
        return reference_bandits.probabilities(means, [width**2 for width in widths])
