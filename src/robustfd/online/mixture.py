"""The mixture of experts: their shares, and how a row changes them.

The prediction is the mean of the experts' margins, weighted by their shares (fixed share, Herbster and Warmuth 1998).
Each row multiplies the share of an expert by the probability that this expert gave to the label. Then a small part of
all shares is redistributed. So no expert loses its whole share, and the mixture adapts to drift.

An expert takes the proximal point step w += eta s H^-1 x, where s solves s = -l'(p + s eta kappa), l' is the slope of
the loss and kappa = x'H^-1 x. Such a step never overshoots.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd.online.lanes import dot

Floats = NDArray[np.float64]

SHARED = 1e-4  # the part of all shares that is redistributed after each row
OFFERED = 0.5  # the part of it that goes to the experts with a better Hessian
SLACK = 0.1  # predicted numbers may leave the range of the targets by this fraction of it
# Forgetting intercepts: their learning rates, and how redistributed shares are divided among them.
FOLLOW = (0.0, 0.02, 0.1, 0.5)
FOLLOW_SHARE = (0.97, 0.01, 0.01, 0.01)
LARGEST = 1e30  # targets are clipped here, in units of the first ones, since weights are float32
WINDOWS = 128  # windows of the trace of shares

# Statistics of the targets, and the losses that compare the Hessians. For regression, `spread` and `spread_weight` are
# the decaying sums of squared residuals and of weights, and `huber` is the size at which residuals are clipped, in
# units of the root of their quotient. The experts see targets minus `offset`, divided by `unit`; `low` and `high` are
# their range. A `level` above 0 is the level of the quantile to predict. If `counts` is 1 the experts predict the
# logarithm.
TARGETS = np.dtype(
    [
        ("numbers", "i8"), ("spread", "f8"), ("spread_weight", "f8"), ("huber", "f8"), ("offset", "f8"),
        ("unit", "f8"), ("low", "f8"), ("high", "f8"), ("loss", "f8"), ("plain_loss", "f8"), ("stride", "i8"),
        ("level", "f8"), ("counts", "i8"),
    ]
)  # fmt: skip


class Mixture(NamedTuple):
    """Experts in this order: slow diagonal ones, as many fast diagonal ones, then any with a better Hessian."""

    rate: Floats  # (experts,): eta
    linear: Floats  # (experts,): 1 if all rows are multiplied by the same number, 0 if each is divided by its length
    fast: Floats  # (experts,): 1 if the expert's Hessian forgets
    share: Floats  # (outputs, experts)
    plain: Floats  # (outputs, diagonal experts): shares in a mixture of the diagonal experts alone
    follow: Floats  # (outputs, 2, 4): forgetting intercepts and their shares
    trace: Floats  # (WINDOWS,): the share of forgetting experts, summed over `stride` rows for each window
    targets: Any  # (1,) of TARGETS


class NumberLoss(NamedTuple):
    """The loss of regression."""

    huber: float = 8.0  # the loss is linear for residuals above this many root mean squares
    level: float = 0.0  # level of the quantile to predict, 0 for the mean
    counts: bool = False  # Poisson loss with a logarithmic link


def start(outputs: int, rates: Floats, linear: Floats, *, loss: NumberLoss | None) -> Mixture:
    """Return the mixture of diagonal experts; rates (2, L) and linear (2, L) are those of slow and of fast experts.

    The task is regression if a loss is given.
    """
    n = rates.size
    targets = np.zeros(1, TARGETS)
    targets["numbers"] = loss is not None
    if loss is not None:
        targets["huber"], targets["level"], targets["counts"] = loss
    targets["low"], targets["high"], targets["stride"], targets["unit"] = LARGEST, -LARGEST, 1, 1.0
    return Mixture(
        rate=rates.ravel().copy(),
        linear=linear.ravel().copy(),
        fast=np.repeat([0.0, 1.0], n // 2),
        share=np.full((outputs, n), 1.0 / n),
        plain=np.full((outputs, n), 1.0 / n),
        follow=np.tile(np.array([np.zeros(4), FOLLOW_SHARE]), (outputs, 1, 1)),
        trace=np.zeros(WINDOWS),
        targets=targets,
    )


def with_better(mix: Mixture, memories: int) -> Mixture:
    """Return the mixture with experts of a better Hessian that has 0, 1 or 2 memories.

    The new experts copy the settings of the diagonal experts of these memories, and together start with the share
    OFFERED. They replace earlier experts with a better Hessian.
    """
    count = mix.plain.shape[1]
    some = slice(0, memories * (count // 2))
    better = np.full((len(mix.share), some.stop), OFFERED / max(some.stop, 1))
    rest = 1.0 - OFFERED if memories else 1.0
    return mix._replace(
        rate=np.append(mix.rate[:count], mix.rate[some]),
        linear=np.append(mix.linear[:count], mix.linear[some]),
        fast=np.append(mix.fast[:count], mix.fast[some]),
        share=np.column_stack([rest * mix.plain, better]),
    )


# ---------------------------------------------------------- predictions


@loops
def bounds(targets: Any) -> tuple[float, float]:
    """Return the smallest and the largest number to predict, minus the offset."""
    low, high = targets["low"], targets["high"]
    if not targets["numbers"] or low > high:
        return -np.inf, np.inf
    return low - SLACK * (high - low), high + SLACK * (high - low)


@loops
def mixed(share: Any, margin: Any) -> float:
    """Return the mean of the margins weighted by shares."""
    return dot(share, margin, len(share))


@loops
def followed(follow: Any) -> float:
    """Return the contribution of the forgetting intercepts to a prediction."""
    p = 0.0
    for e in range(follow.shape[1]):
        p += follow[1, e] * follow[0, e]
    return p


# ------------------------------------------------------------- learning


@loops
def update_shares(share: Any, chance: Any, count: int) -> None:
    """Multiply shares by the probabilities that experts gave to the label, and redistribute a part of them.

    The first `count` experts are diagonal. The others, if any, get the fraction OFFERED of the redistributed part.
    """
    n = len(share)
    scale, better = (1.0 - SHARED) / max(dot(share, chance, n), 1e-300), n - count
    plain = SHARED * (1.0 - (OFFERED if better > 0 else 0.0)) / count
    for k in range(count):
        share[k] = share[k] * chance[k] * scale + plain
    for k in range(count, n):
        share[k] = share[k] * chance[k] * scale + SHARED * OFFERED / better


@loops
def update_intercept_shares(follow: Any, total: float) -> None:
    """Do the same as `update_shares` for the forgetting intercepts, whose shares now sum to `total`."""
    for e in range(follow.shape[1]):
        follow[1, e] = (1.0 - SHARED) * follow[1, e] / max(total, 1e-300) + SHARED * FOLLOW_SHARE[e]


@loops
def record_shares(mix: Mixture, row: int) -> None:
    """Add the share of forgetting experts to the trace; `row` counts from 0."""
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
