"""Classification: steps of the experts with the logistic or softmax loss, and updates of their shares."""

import math
from typing import Any

import numpy as np

from robustfd._compile import loops
from robustfd.online.lanes import exp_of_negative, implicit_steps, sigmoid, sigmoid32
from robustfd.online.mixture import FOLLOW, Mixture, followed, mixed, update_intercept_shares, update_shares
from robustfd.online.scratch import Work

LEAST_REST = 1e-6  # lower bound of the probability of all classes except one


@loops
def logistic_loss(z: float) -> float:
    """Return log(1 + exp(-z))."""
    return math.log1p(math.exp(-abs(z))) - min(z, 0.0)


@loops
def log_of_rest(q: float) -> float:
    """Return log(1 - q) for a probability q; small q, the usual case with many classes, use a series."""
    if q < 0.05:
        return -q * (1.0 + q * (0.5 + q * (1.0 / 3.0 + 0.25 * q)))
    return math.log(max(1.0 - q, LEAST_REST))


@loops
def log_sum_exp(margin: Any) -> float:
    """Return the log-sum-exp of the margins."""
    top, total = margin[0], 0.0
    for c in range(1, len(margin)):
        top = max(top, margin[c])
    for c in range(len(margin)):
        total += math.exp(margin[c] - top)
    return top + math.log(total)


@loops
def softmax_of_experts(work: Work) -> None:
    """Fill work.softmax with each expert's class probabilities and work.total with the log-sum-exp of its margins."""
    outputs, n = work.margin.shape
    top, total = work.chance, work.total
    for k in range(n):
        top[k], total[k] = work.margin[0, k], 0.0
    for c in range(1, outputs):
        for k in range(n):
            top[k] = max(top[k], work.margin[c, k])
    for c in range(outputs):
        margin, chance = work.margin[c], work.softmax[c]
        for k in range(n):
            chance[k] = exp_of_negative(np.float32(margin[k] - top[k]))
            total[k] += chance[k]
    for c in range(outputs):
        for k in range(n):
            work.softmax[c, k] /= total[k]
    for k in range(n):
        total[k] = top[k] + math.log(total[k])


@loops
def learn_classes(mix: Mixture, work: Work, y: float, weight: float, power: float) -> float:
    """Fill the steps of all experts for a row of class y, update their shares, and return the curvature of the row.

    `power` is the weight of the row relative to the mean weight: the shares change as if the row occurred that many
    times. With one output, y is 0 or 1 and the output is the margin of class 1. Otherwise there is one margin for each
    class, and the probabilities are their softmax. The probability of class c is then that of a two-class problem with
    margin m_c minus the log-sum-exp of the other margins. The other margins move as well, so kappa counts twice.
    """
    outputs, n, count = len(work.output), len(mix.rate), mix.plain.shape[1]
    several, squares, total = outputs > 1, 0.0, 0.0
    z, length, chance32, step32 = work.lanes[0], work.lanes[1], work.lanes[2], work.lanes[3]
    times = 2.0 * weight if several else weight
    for k in range(n):
        length[k] = times * mix.rate[k] * work.kappa[k]
    whole = 0.0
    if several:
        softmax_of_experts(work)
        whole = log_sum_exp(work.output)
    compare_forms(mix, work, int(y), power)
    for c in range(outputs):
        sign, margin, step = 1.0 if y == (c if several else 1) else -1.0, work.margin[c], work.step[c]
        for k in range(n):
            z[k] = sign * margin[k]
        others, q = 0.0, 0.0
        if several:
            for k in range(n):
                z[k] -= sign * (work.total[k] + log_of_rest(work.softmax[c, k]))
            q = math.exp(work.output[c] - whole)
            others = whole + log_of_rest(q)
        else:
            q = sigmoid(work.output[c])
        implicit_steps(z, length, chance32, step32)
        for k in range(n):
            step[k] = step32[k] * sign * weight * mix.rate[k]
        follow_class(mix.follow[c], work.output[c], others, sign, power)
        chance = work.softmax[int(y)] if several else chance32
        for k in range(n):
            work.chance[k] = chance[k]
        if power != 1.0:
            for k in range(n):
                work.chance[k] = work.chance[k] ** power
        if n > count:
            update_shares(mix.plain[c], work.chance, count)
        update_shares(mix.share[c], work.chance, count)
        squares += q * q * (1.0 - q) * (1.0 - q)
        total += q * (1.0 - q)
    return weight * squares / total if total > 0 else 0.0


@loops
def compare_forms(mix: Mixture, work: Work, y: int, power: float) -> None:
    """Add the log loss of the row, for all experts and for diagonal ones alone, to the sums that compare Hessians."""
    targets, outputs = mix.targets[0], len(work.output)
    if len(mix.rate) == mix.plain.shape[1]:  # all experts are diagonal
        return
    for c in range(outputs):
        work.plain[c] = mixed(mix.plain[c], work.margin[c]) + followed(mix.follow[c])
    if outputs == 1:
        sign = 1.0 if y == 1 else -1.0
        targets["loss"] += power * logistic_loss(sign * work.output[0])
        targets["plain_loss"] += power * logistic_loss(sign * work.plain[0])
    else:
        targets["loss"] += power * (log_sum_exp(work.output) - work.output[y])
        targets["plain_loss"] += power * (log_sum_exp(work.plain) - work.plain[y])


@loops
def follow_class(follow: Any, p: float, others: float, sign: float, power: float) -> None:
    """Update the forgetting intercepts and their shares; p is the margin of the class, `others` that of the rest."""
    base, total = p - followed(follow) - others, 0.0
    for e in range(follow.shape[1]):
        good = sigmoid32(np.float32(sign * (base + follow[0, e])))
        follow[0, e] += FOLLOW[e] * sign * min(power, 1.0) * (1.0 - good)
        follow[1, e] *= good if power == 1.0 else good**power
        total += follow[1, e]
    update_intercept_shares(follow, total)
