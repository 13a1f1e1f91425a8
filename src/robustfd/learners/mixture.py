"""The mixture of experts as arrays: their shares, and the statistics of the targets.

The core predicts with it and updates it (src/core/hot/mixture.hpp).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import FOLLOW_SHARE, LARGEST_TARGET, OFFERED, WINDOWS

Floats = NDArray[np.float64]

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
    targets["low"], targets["high"] = LARGEST_TARGET, -LARGEST_TARGET
    targets["stride"], targets["unit"] = 1, 1.0
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
