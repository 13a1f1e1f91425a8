"""Steps of the experts on numbers, with squared, Huber, pinball or Poisson loss; how a row changes their shares."""

import math
from typing import Any

import numpy as np

from robustfd._compile import loops
from robustfd.online.mixture import FOLLOW, LARGEST, Mixture, bounds, deal_following, earn, followed, mixed
from robustfd.online.scratch import Work

FORGET_SPREAD = 0.99  # the factor by which a squared residual fades with each row
SLOWER = 0.2  # the speed of intercepts that follow numbers, relative to classes
SMALL_LENGTH, ITERATIONS = 1e-9, 40  # steps on counts: shorter ones are explicit; most iterations of others
FEWEST = 0.01  # stands for a count of 0, in units of the mean, where a logarithm is needed


@loops
def number_loss(targets: Any, y: float, p: float, spread: float) -> float:
    """Return the loss of a prediction p, in units of the spread."""
    if targets["counts"]:
        return (math.exp(p) - y * p) / spread
    if targets["level"] > 0.0:
        return 2.0 * (y - p) * (targets["level"] - (1.0 if y < p else 0.0)) / math.sqrt(spread)
    u, huber = (y - p) * (y - p) / spread, targets["huber"]
    if u > huber * huber:
        u = huber * (2.0 * math.sqrt(u) - huber)
    return 0.5 * u


@loops
def number_slope(targets: Any, y: float, p: float, length: float, largest: float) -> float:
    """Return the root s of s = -l'(p + length s), l' the slope of the loss; with length 0, minus the slope at p.

    `largest` is the size of a slope of the loss at most: by Huber's rule, or of the slopes of a quantile.
    """
    if targets["counts"]:
        return step_of_counts(y, p, length)
    if targets["level"] > 0.0:
        level, off = targets["level"], y - p
        low, high = (level - 1.0) * largest, level * largest
        if length > 0.0:
            return min(max(off / length, low), high)
        return high if off > 0.0 else low
    return min(max((y - p) / (1.0 + length), -largest), largest)


@loops
def step_of_counts(y: float, p: float, length: float) -> float:
    """Return the root s of s = y - exp(p + length s).

    With u = p + length s, h(u) = u - p - length (y - exp(u)) is to be 0. It is convex, and Newton's iteration from the
    right does not overshoot. The root is between p and log y.
    """
    if length <= SMALL_LENGTH:
        return y - math.exp(p)
    u = max(p, math.log(y)) if y > 0.0 else p
    for _ in range(ITERATIONS):
        e = math.exp(u)
        move = (u - p - length * (y - e)) / (1.0 + length * e)
        u -= move
        if move < 1e-9:
            break
    return (u - p) / length


@loops
def largest_slope(targets: Any, spread: float) -> float:
    """Return the size of a slope of the loss at most."""
    if spread <= 0.0:
        return 1.0 if targets["level"] > 0.0 else np.inf
    return math.sqrt(spread) * (1.0 if targets["level"] > 0.0 else targets["huber"])


@loops
def learn_number(mix: Mixture, work: Work, y: float, weight: float, power: float) -> float:
    """Do as `learn_classes` for a target y."""
    targets, n, count, margin, step = mix.targets[0], len(mix.rate), mix.plain.shape[1], work.margin[0], work.step[0]
    chance, p = work.chance, work.output[0]
    y = min(max((y - targets["offset"]) / targets["unit"], -LARGEST), LARGEST)
    spread = targets["spread"] / targets["spread_weight"] if targets["spread_weight"] > 0 else 0.0
    largest = largest_slope(targets, spread)
    low, high = bounds(targets)
    for k in range(n):
        a = weight * mix.rate[k]
        margin[k] = min(max(margin[k], low), high) if targets["counts"] else margin[k]
        step[k] = a * number_slope(targets, y, margin[k], a * work.kappa[k], largest)
        margin[k] = min(max(margin[k], low), high)
    if spread > 0:
        least = np.inf
        for k in range(n):
            chance[k] = number_loss(targets, y, margin[k], spread)
            least = min(least, chance[k])
        for k in range(n):
            chance[k] = math.exp(power * (least - chance[k]))
        if n > count:
            plain = min(max(mixed(mix.plain[0], margin) + followed(mix.follow[0]), low), high)
            targets["loss"] += power * (number_loss(targets, y, p, spread) - least_loss(targets, y, spread))
            targets["plain_loss"] += power * (number_loss(targets, y, plain, spread) - least_loss(targets, y, spread))
            earn(mix.plain[0], chance, count)
        earn(mix.share[0], chance, count)
        follow_number(mix.follow[0], targets, y, p, power, spread)
    return weight * note_target(targets, y, p)


@loops
def least_loss(targets: Any, y: float, spread: float) -> float:
    """Return the loss of the best prediction."""
    return (y - y * math.log(y)) / spread if targets["counts"] and y > 0.0 else 0.0


@loops
def follow_number(follow: Any, targets: Any, y: float, p: float, power: float, spread: float) -> None:
    """Move the intercepts that forget, and let them earn."""
    base, total, least, largest = p - followed(follow), 0.0, np.inf, largest_slope(targets, spread)
    for e in range(follow.shape[1]):
        least = min(least, number_loss(targets, y, base + follow[0, e], spread))
    for e in range(follow.shape[1]):
        at = base + follow[0, e]
        follow[1, e] *= math.exp(power * (least - number_loss(targets, y, at, spread)))
        total += follow[1, e]
        slope = number_slope(targets, y, at, 0.0, largest)
        if targets["counts"]:
            slope = min(max(slope / max(math.exp(at), 1.0), -1.0), 1.0)
        follow[0, e] += SLOWER * FOLLOW[e] * min(power, 1.0) * slope
    deal_following(follow, total)


@loops
def note_target(targets: Any, y: float, p: float) -> float:
    """Bring the spread and the range of targets up to date; return the curvature of the loss at the prediction p."""
    spread, curvature = targets["spread"] / max(targets["spread_weight"], 1e-300), 1.0
    if targets["counts"]:
        curvature = math.exp(p)
        square = min((y - curvature) ** 2 / curvature, 64.0 * spread if spread > 0.0 else np.inf)
        residual = min(max(math.log(max(y, FEWEST)) - p, -1.0), 1.0)
    else:
        most = targets["huber"] * math.sqrt(spread) if spread > 0.0 else np.inf
        residual = min(max(y - p, -most), most)
        square = residual * residual
    targets["spread"] = FORGET_SPREAD * targets["spread"] + square
    targets["spread_weight"] = FORGET_SPREAD * targets["spread_weight"] + 1.0
    targets["low"], targets["high"] = min(targets["low"], p + residual), max(targets["high"], p + residual)
    return curvature
