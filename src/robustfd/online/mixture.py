"""The mixture of experts: their shares, and how a row changes them.

The prediction is the mean of the experts' margins by their shares (fixed share, Herbster and Warmuth 1998): a share is
multiplied by the probability that its expert gave to the truth, and a small part of all shares is dealt out again after
every row. So no expert is ever lost, and the mixture follows a stream that changes.

The step of an expert is that of the proximal point, w += eta s H^-1 x, where s solves s = -l'(p + s eta kappa), l' is
the slope of the loss and kappa = x'H^-1 x. No step overshoots.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops

Floats = NDArray[np.float64]

SHARED = 1e-4  # the part of all shares that is dealt out again after each row
OFFERED = 0.5  # of that, what the experts with a better Hessian get
SLACK = 0.1  # predicted numbers stay within the targets seen and this much of their range
# Intercepts that forget: how far each follows a row, and the shares that are dealt out to them.
FOLLOW = (0.0, 0.02, 0.1, 0.5)
FOLLOW_SHARE = (0.97, 0.01, 0.01, 0.01)
LARGEST = 1e30  # targets are cut there, in units of the first ones, since weights are float32
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


# ---------------------------------------------------------- predictions


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
