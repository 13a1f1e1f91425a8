"""The mixture of experts: what each of them earns by a row, and the steps that they take.

The prediction is the mean of the experts' margins by their shares (fixed share, Herbster and Warmuth 1998): a share is
multiplied by the probability that its expert gave to the truth, and a small part of all shares is dealt out again after
every row. So no expert is ever lost, and the mixture follows a stream that changes.

The step of an expert is that of the proximal point, w += eta s H^-1 x, where s solves s = -l'(p + s eta kappa), l' is
the slope of the loss and kappa = x'H^-1 x. No step overshoots.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd.online.lanes import exp_of_negative, implicit_steps, sigmoid

Floats = NDArray[np.float64]

SHARED = 1e-4  # the part of all shares that is dealt out again after each row
OFFERED = 0.5  # of that, what the experts with a better Hessian get
FORGET_SPREAD = 0.99  # what a squared residual counts a row later
SLACK = 0.1  # predicted numbers stay within the targets seen and this much of their range
# Intercepts that forget: how far each follows a row, and the shares that are dealt out to them.
FOLLOW = (0.0, 0.02, 0.1, 0.5)
FOLLOW_SHARE = (0.97, 0.01, 0.01, 0.01)
SLOWER = 0.2  # intercepts follow numbers by this much of it
LARGEST = 1e30  # targets are cut there, in units of the first ones, since weights are float32
LEAST_REST = 1e-6  # the probability of all classes but one, at least
SMALL_LENGTH, ITERATIONS = 1e-9, 40  # of steps on counts: below which they are explicit, and how many at most
FEWEST = 0.01  # a count of 0 is this, in units of the mean, where it has a logarithm
WINDOWS = 128  # of the trace of shares

# What is known of the targets, and the losses by which a better Hessian is judged. For numbers: `spread` and
# `spread_weight` are the fading sums of squared residuals and of weights, `huber` is where a residual is cut, in roots
# of their quotient. The learner sees targets minus `offset`, divided by `unit`; `low` and `high` are their range. If
# `level` is above 0 it is that of the quantile to predict. If `counts` is 1 the learner predicts the logarithm.
TARGETS = np.dtype(
    [
        ("numbers", "i8"), ("spread", "f8"), ("spread_weight", "f8"), ("huber", "f8"), ("offset", "f8"),
        ("unit", "f8"), ("low", "f8"), ("high", "f8"), ("loss", "f8"), ("plain_loss", "f8"), ("stride", "i8"),
        ("level", "f8"), ("counts", "i8"),
    ]
)  # fmt: skip


class Mixture(NamedTuple):
    """Experts in this order: diagonal slow, as many diagonal fast, then those with a better Hessian, if any."""

    rate: Floats  # (experts,): eta
    log_rate: Floats  # (experts,): its logarithm
    linear: Floats  # (experts,): 1 if all rows are multiplied by the same number, 0 if each by its own
    fast: Floats  # (experts,): 1 if the expert's Hessian forgets
    share: Floats  # (outputs, experts)
    plain: Floats  # (outputs, diagonal experts): shares in a mixture of those alone
    follow: Floats  # (outputs, 2, 4): intercepts that forget, and their shares
    trace: Floats  # (WINDOWS,): sums over `stride` rows each of the share of experts that forget
    targets: Any  # (1,) of TARGETS


class Work(NamedTuple):
    """Scratch memory of a row."""

    feature: NDArray[np.int64]  # the features that occur
    raw: Floats  # x of each
    value: Floats  # zeta of each
    step_slow: Floats  # zeta over the diagonal of the slow Hessian
    step_fast: Floats  # and of the fast one
    sums: NDArray[np.float32]  # products of the row with the diagonal experts' weights; then the moves of the weights
    kappa: Floats  # (experts,)
    log_kappa: Floats  # (experts,)
    lanes: NDArray[np.float32]  # (5, experts): what `implicit_steps` takes
    chance: Floats  # (experts,)
    margin: Floats  # (outputs, experts)
    step: Floats  # (outputs, experts)
    better: Floats  # (3, memories outputs L): sums and moves of the weights of experts with a better Hessian
    direction: Floats  # (3, features): of experts with a better Hessian
    output: Floats  # (outputs,): the prediction
    plain: Floats  # (outputs,): and that of the diagonal experts alone
    softmax: NDArray[np.float32]  # (outputs, experts): probabilities of several classes
    total: Floats  # (experts,): log sum exp of their margins


class Row(NamedTuple):
    """What a row is in units of the features."""

    size: int  # how many entries it has
    norm: float  # what experts that scale each row on its own multiply it by
    length: float  # what linear experts multiply it by
    curve: float  # what it is multiplied by in the Hessians
    slow: float  # x'H^-1 x of the diagonal, slow memory
    fast: float  # and of the fast one


class NumberLoss(NamedTuple):
    """The loss of targets that are numbers."""

    huber: float = 8.0  # a residual of more than so many usual ones counts in proportion only
    level: float = 0.0  # of the quantile to predict; 0 for the mean
    counts: bool = False  # Poisson's loss of the logarithm


def start(outputs: int, rates: Floats, linear: Floats, *, loss: NumberLoss | None) -> Mixture:
    """Return the mixture of diagonal experts; rates (2, L) and linear (2, L) are of the slow and of the fast ones.

    Targets are numbers if a loss is given.
    """
    n = rates.size
    targets = np.zeros(1, TARGETS)
    targets["numbers"] = loss is not None
    if loss is not None:
        targets["huber"], targets["level"], targets["counts"] = loss
    targets["low"], targets["high"], targets["stride"], targets["unit"] = LARGEST, -LARGEST, 1, 1.0
    return Mixture(
        rate=rates.ravel().copy(),
        log_rate=np.log(rates.ravel()),
        linear=linear.ravel().copy(),
        fast=np.repeat([0.0, 1.0], n // 2),
        share=np.full((outputs, n), 1.0 / n),
        plain=np.full((outputs, n), 1.0 / n),
        follow=np.tile(np.array([np.zeros(4), FOLLOW_SHARE]), (outputs, 1, 1)),
        trace=np.zeros(WINDOWS),
        targets=targets,
    )


def with_better(mix: Mixture, memories: int) -> Mixture:
    """Return the mixture with as many more experts, of a better Hessian, as there are diagonal ones in 0 to 2 memories.

    They begin with the share OFFERED; those that there were are dropped.
    """
    count = mix.plain.shape[1]
    some = slice(0, memories * (count // 2))
    better = np.full((len(mix.share), some.stop), OFFERED / max(some.stop, 1))
    rest = 1.0 - OFFERED if memories else 1.0
    return mix._replace(
        rate=np.append(mix.rate[:count], mix.rate[some]),
        log_rate=np.append(mix.log_rate[:count], mix.log_rate[some]),
        linear=np.append(mix.linear[:count], mix.linear[some]),
        fast=np.append(mix.fast[:count], mix.fast[some]),
        share=np.column_stack([rest * mix.plain, better]),
    )


def work_for(mix: Mixture, entries: int, width: int, wide: int) -> Work:
    """Return scratch memory: of rows of so many entries, so many diagonal weights, and a better Hessian's rows."""
    outputs, n = mix.share.shape
    return Work(
        feature=np.zeros(entries, np.int64),
        raw=np.zeros(entries),
        value=np.zeros(entries),
        step_slow=np.zeros(entries),
        step_fast=np.zeros(entries),
        sums=np.zeros(width, np.float32),
        kappa=np.zeros(n),
        log_kappa=np.zeros(n),
        lanes=np.zeros((5, n), np.float32),
        chance=np.zeros(n),
        margin=np.zeros((outputs, n)),
        step=np.zeros((outputs, n)),
        better=np.zeros((3, outputs * (n - mix.plain.shape[1]))),
        direction=np.zeros((3, wide)),
        output=np.zeros(outputs),
        plain=np.zeros(outputs),
        softmax=np.zeros((outputs, n), np.float32),
        total=np.zeros(n),
    )


# ---------------------------------------------------------- predictions


@loops
def set_kappa(mix: Mixture, work: Work, first: int, last: int, norm: float, length: float) -> None:
    """Set kappa of experts first to last - 1: that of a row scaled on its own, and as all rows."""
    norm, length = max(norm, 1e-300), max(length, 1e-300)
    log_norm, log_length = math.log(norm), math.log(length)
    for k in range(first, last):
        work.kappa[k] = length if mix.linear[k] > 0 else norm
        work.log_kappa[k] = log_length if mix.linear[k] > 0 else log_norm


@loops
def predict(mix: Mixture, work: Work) -> None:
    """Fill work.output with the predictions of the mixture; margins of numbers are kept near the targets seen."""
    targets, n = mix.targets[0], len(mix.rate)
    low, high = bounds(targets)
    for c in range(len(work.output)):
        margin = work.margin[c]
        if targets["numbers"]:
            for k in range(n):
                work.chance[k] = min(max(margin[k], low), high)
            margin = work.chance
        work.output[c] = min(max(mixed(mix.share[c], margin) + followed(mix.follow[c]), low), high)


@loops
def bounds(targets: Any) -> tuple[float, float]:
    """Return the least and the largest number to predict, minus the offset."""
    low, high = targets["low"], targets["high"]
    if not targets["numbers"] or low > high:
        return -np.inf, np.inf
    return low - SLACK * (high - low), high + SLACK * (high - low)


@loops
def mixed(share: Any, margin: Any) -> float:
    """Return the mean of margins by shares."""
    p = 0.0
    for k in range(len(share)):
        p += share[k] * margin[k]
    return p


@loops
def followed(follow: Any) -> float:
    """Return what the intercepts that forget add to a prediction."""
    p = 0.0
    for e in range(follow.shape[1]):
        p += follow[1, e] * follow[0, e]
    return p


# ------------------------------------------------------------- learning


@loops
def earn(share: Any, chance: Any, count: int) -> None:
    """Multiply shares by the chances that experts gave to the truth, and deal out a part again.

    The first `count` experts are diagonal; the others, if there are any, get the part OFFERED.
    """
    total, n = 0.0, len(share)
    for k in range(n):
        share[k] *= chance[k]
        total += share[k]
    scale, better = (1.0 - SHARED) / max(total, 1e-300), n - count
    plain = SHARED * (1.0 - (OFFERED if better > 0 else 0.0)) / count
    for k in range(count):
        share[k] = share[k] * scale + plain
    for k in range(count, n):
        share[k] = share[k] * scale + SHARED * OFFERED / better


@loops
def deal_following(follow: Any, total: float) -> None:
    """Do as `earn` for the intercepts that forget, whose shares now sum to `total`."""
    for e in range(follow.shape[1]):
        follow[1, e] = (1.0 - SHARED) * follow[1, e] / max(total, 1e-300) + SHARED * FOLLOW_SHARE[e]


@loops
def logistic_loss(z: float) -> float:
    """Return log(1 + exp(-z))."""
    return math.log1p(math.exp(-abs(z))) - min(z, 0.0)


@loops
def log_of_rest(q: float) -> float:
    """Return log(1 - q) of a probability, by a series where it is small, as those of most of many classes are."""
    if q < 0.05:
        return -q * (1.0 + q * (0.5 + q * (1.0 / 3.0 + 0.25 * q)))
    return math.log(max(1.0 - q, LEAST_REST))


@loops
def log_sum_exp(margin: Any) -> float:
    """Return log sum exp of margins."""
    top, total = margin[0], 0.0
    for c in range(1, len(margin)):
        top = max(top, margin[c])
    for c in range(len(margin)):
        total += math.exp(margin[c] - top)
    return top + math.log(total)


@loops
def softmax_of_experts(work: Work) -> None:
    """Fill work.softmax with the probability of each class by each expert, work.total with log sum exp of margins."""
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
    """Fill the steps of all experts for a row of class y, let them earn, and return the curvature of the row.

    `power` is the weight of the row relative to the mean weight: what they earn is as if it came so many times. With
    one output, y is 0 or 1 and the output is the margin of class 1. Otherwise there is one margin for each class, and
    probabilities are their softmax: the probability of class c is that of two classes with the margin m_c less log sum
    exp of the others. The others move, too, which counts as twice the kappa.
    """
    outputs, n, count = len(work.output), len(mix.rate), mix.plain.shape[1]
    several, squares, total = outputs > 1, 0.0, 0.0
    z, length, log_length, chance32, step32 = work.lanes[0], work.lanes[1], work.lanes[2], work.lanes[3], work.lanes[4]
    times = 2.0 * weight if several else weight
    log_times = math.log(times) if times != 1.0 else 0.0
    for k in range(n):
        length[k] = times * mix.rate[k] * work.kappa[k]
        log_length[k] = work.log_kappa[k] + mix.log_rate[k] + log_times
    whole = 0.0
    if several:
        softmax_of_experts(work)
        whole = log_sum_exp(work.output)
    judge_forms(mix, work, int(y), power)
    for c in range(outputs):
        sign, margin, step = 1.0 if y == (c if several else 1) else -1.0, work.margin[c], work.step[c]
        for k in range(n):
            z[k] = sign * margin[k]
        others = 0.0
        if several:
            for k in range(n):
                z[k] -= sign * (work.total[k] + log_of_rest(work.softmax[c, k]))
            others = whole + log_of_rest(math.exp(work.output[c] - whole))
        implicit_steps(z, length, log_length, chance32, step32)
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
            earn(mix.plain[c], work.chance, count)
        earn(mix.share[c], work.chance, count)
        q = sigmoid(work.output[c] - others)
        squares += q * q * (1.0 - q) * (1.0 - q)
        total += q * (1.0 - q)
    return weight * squares / total if total > 0 else 0.0


@loops
def judge_forms(mix: Mixture, work: Work, y: int, power: float) -> None:
    """Add the log loss of the row, and that of the diagonal experts alone, to what a better Hessian is judged by."""
    targets, outputs = mix.targets[0], len(work.output)
    if len(mix.rate) == mix.plain.shape[1]:  # there is none
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
    """Move the intercepts that forget, and let them earn; p is the margin of the class, `others` that of the rest."""
    base, total = p - followed(follow) - others, 0.0
    for e in range(follow.shape[1]):
        good = sigmoid(sign * (base + follow[0, e]))
        follow[0, e] += FOLLOW[e] * sign * min(power, 1.0) * (1.0 - good)
        follow[1, e] *= good if power == 1.0 else good**power
        total += follow[1, e]
    deal_following(follow, total)


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


@loops
def note_shares(mix: Mixture, row: int) -> None:
    """Add the share of experts that forget to the trace; `row` counts from 0."""
    targets = mix.targets[0]
    if row // targets["stride"] >= WINDOWS:
        for i in range(WINDOWS // 2):
            mix.trace[i] = mix.trace[2 * i] + mix.trace[2 * i + 1]
        for i in range(WINDOWS // 2, WINDOWS):
            mix.trace[i] = 0.0
        targets["stride"] *= 2
    total = 0.0
    for c in range(len(mix.share)):
        total += mixed(mix.share[c], mix.fast)
    mix.trace[row // targets["stride"]] += total / len(mix.share)
