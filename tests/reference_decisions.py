"""Decisions, row by row and in plain numbers: estimates of a policy from a log, the betting interval."""

from __future__ import annotations

import math

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
