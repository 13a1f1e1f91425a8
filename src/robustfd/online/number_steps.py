"""Regression: steps of the experts with squared, Huber, pinball or Poisson loss, and updates of their shares."""

import math
from typing import Any

import numpy as np

from robustfd._compile import loops
from robustfd.online.lanes import exp_of_negative
from robustfd.online.mixture import (
    FOLLOW,
    LARGEST,
    Mixture,
    bounds,
    followed,
    mixed,
    update_intercept_shares,
    update_shares,
)
from robustfd.online.scratch import Work

FORGET_SPREAD = 0.99  # decay of squared residuals per row
SLOWER = 0.2  # learning rate of forgetting intercepts in regression, relative to classification
SMALL_LENGTH, ITERATIONS = 1e-9, 40  # Poisson: explicit steps below this length, Newton's iterations at most otherwise
FEWEST = 0.01  # replaces a count of 0 in logarithms, in units of the mean


@loops
def huber_loss(off: float, spread: float, huber: float) -> float:
    """Return the Huber loss of a residual, in units of the spread."""
    u = off * off / spread
    far = huber * (2.0 * math.sqrt(u) - huber)
    return 0.5 * (far if u > huber * huber else u)


@loops
def huber_slope(off: float, length: float, largest: float) -> float:
    """Return the root s of s = -l'(p + length s) for the Huber loss, whose slope is at most `largest`."""
    return min(max(off / (1.0 + length), -largest), largest)


@loops
def number_loss(targets: Any, y: float, p: float, spread: float) -> float:
    """Return the loss of a prediction p for the target y, in units of the spread."""
    if targets["counts"]:
        return (math.exp(p) - y * p) / spread
    if targets["level"] > 0.0:
        return 2.0 * (y - p) * (targets["level"] - (1.0 if y < p else 0.0)) / math.sqrt(spread)
    return huber_loss(y - p, spread, targets["huber"])


@loops
def number_slope(targets: Any, y: float, p: float, length: float, largest: float) -> float:
    """Return the root s of s = -l'(p + length s), where l' is the slope of the loss; for length 0 return -l'(p).

    `largest` bounds the slope of the Huber loss and scales the slopes of the pinball loss, see `largest_slope`.
    """
    if targets["counts"]:
        return step_of_counts(y, p, length)
    if targets["level"] > 0.0:
        level, off = targets["level"], y - p
        low, high = (level - 1.0) * largest, level * largest
        if length > 0.0:
            return min(max(off / length, low), high)
        return high if off > 0.0 else low
    return huber_slope(y - p, length, largest)


@loops
def step_of_counts(y: float, p: float, length: float) -> float:
    """Return the root s of s = y - exp(p + length s).

    With u = p + length s, the root of h(u) = u - p - length (y - exp(u)) is needed. h is convex, so Newton's iteration
    from the right does not overshoot. The root is between p and log y.
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
    """Return the largest absolute slope of the loss."""
    if spread <= 0.0:
        return 1.0 if targets["level"] > 0.0 else np.inf
    return math.sqrt(spread) * (1.0 if targets["level"] > 0.0 else targets["huber"])


@loops
def learn_number(mix: Mixture, work: Work, y: float, weight: float, power: float) -> float:
    """Do the same as `learn_classes` for a numeric target y."""
    targets, n, count, margin, step = mix.targets[0], len(mix.rate), mix.plain.shape[1], work.margin[0], work.step[0]
    chance, p = work.chance, work.output[0]
    y = min(max((y - targets["offset"]) / targets["unit"], -LARGEST), LARGEST)
    spread = targets["spread"] / targets["spread_weight"] if targets["spread_weight"] > 0 else 0.0
    largest = largest_slope(targets, spread)
    low, high = bounds(targets)
    if targets["counts"] or targets["level"] > 0.0:
        for k in range(n):
            a = weight * mix.rate[k]
            margin[k] = min(max(margin[k], low), high) if targets["counts"] else margin[k]
            step[k] = a * number_slope(targets, y, margin[k], a * work.kappa[k], largest)
            margin[k] = min(max(margin[k], low), high)
            chance[k] = number_loss(targets, y, margin[k], spread) if spread > 0.0 else 0.0
    else:
        huber_steps(mix, work, y, weight, largest, low, high, spread)
    if spread > 0:
        least = np.inf
        for k in range(n):
            least = min(least, chance[k])
        for k in range(n):
            chance[k] = exp_of_negative(np.float32(power * (least - chance[k])))
        if n > count:
            plain = min(max(mixed(mix.plain[0], margin) + followed(mix.follow[0]), low), high)
            targets["loss"] += power * (number_loss(targets, y, p, spread) - least_loss(targets, y, spread))
            targets["plain_loss"] += power * (number_loss(targets, y, plain, spread) - least_loss(targets, y, spread))
            update_shares(mix.plain[0], chance, count)
        update_shares(mix.share[0], chance, count)
        follow_number(mix.follow[0], targets, y, p, power, spread)
    return weight * record_target(targets, y, p)


@loops
def huber_steps(
    mix: Mixture, work: Work, y: float, weight: float, largest: float, low: float, high: float, spread: float
) -> None:
    """Fill the steps of all experts and their losses with the Huber loss; clip their margins to low and high.

    Unlike a loop with `number_slope` and `number_loss`, this loop has no branches, so the compiler vectorizes it.
    """
    margin, step, chance, kappa, rate = work.margin[0], work.step[0], work.chance, work.kappa, mix.rate
    huber, unit = mix.targets[0]["huber"], spread if spread > 0.0 else 1.0
    for k in range(len(rate)):
        a, p = weight * rate[k], margin[k]
        step[k] = a * huber_slope(y - p, a * kappa[k], largest)
        p = min(max(p, low), high)
        margin[k], chance[k] = p, huber_loss(y - p, unit, huber)


@loops
def least_loss(targets: Any, y: float, spread: float) -> float:
    """Return the loss of the best prediction."""
    return (y - y * math.log(y)) / spread if targets["counts"] and y > 0.0 else 0.0


@loops
def follow_number(follow: Any, targets: Any, y: float, p: float, power: float, spread: float) -> None:
    """Update the forgetting intercepts and their shares."""
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
    update_intercept_shares(follow, total)


@loops
def record_target(targets: Any, y: float, p: float) -> float:
    """Update the spread and the range of the targets; return the curvature of the loss at the prediction p."""
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
