"""Scratch memory of the experts' compiled loops, for one row at a time."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd.online.mixture import Mixture, bounds, followed, mixed

Floats = NDArray[np.float64]


class Work(NamedTuple):
    """Scratch memory of a row."""

    feature: NDArray[np.int64]  # (entries,): the features that occur
    raw: Floats  # (entries,): x
    value: Floats  # (entries,): zeta
    step_slow: Floats  # (entries,): zeta divided by the diagonal of the slow Hessian
    step_fast: Floats  # (entries,): zeta divided by the diagonal of the fast Hessian
    sums: NDArray[np.float32]  # products of the row with the diagonal experts' weights; then changes of the weights
    kappa: Floats  # (experts,)
    lanes: NDArray[np.float32]  # (4, experts): the arguments of `implicit_steps`
    chance: Floats  # (experts,)
    margin: Floats  # (outputs, experts)
    step: Floats  # (outputs, experts)
    better: Floats  # (3, memories outputs L): like `sums`, for experts with a better Hessian
    direction: Floats  # (3, features): directions of experts with a better Hessian
    output: Floats  # (outputs,): the prediction
    plain: Floats  # (outputs,): the prediction of the diagonal experts alone
    softmax: NDArray[np.float32]  # (outputs, experts): class probabilities
    total: Floats  # (experts,): log-sum-exp of the margins of all classes


class Row(NamedTuple):
    """Numbers that describe a row in the units of the features."""

    size: int  # number of entries
    norm: float  # factor of the row for experts that divide each row by its own length
    length: float  # factor of the row for linear experts
    curve: float  # factor of the row in the Hessians
    slow: float  # x'H^-1 x for the slow diagonal Hessian
    fast: float  # x'H^-1 x for the fast diagonal Hessian


def work_for(mix: Mixture, entries: int, width: int, direction_size: int) -> Work:
    """Return scratch memory for rows of at most `entries` entries.

    `width` is the number of diagonal weights of a feature, `direction_size` the length of a direction of a better form.
    """
    outputs, n = mix.share.shape
    return Work(
        feature=np.zeros(entries, np.int64),
        raw=np.zeros(entries),
        value=np.zeros(entries),
        step_slow=np.zeros(entries),
        step_fast=np.zeros(entries),
        sums=np.zeros(width, np.float32),
        kappa=np.zeros(n),
        lanes=np.zeros((4, n), np.float32),
        chance=np.zeros(n),
        margin=np.zeros((outputs, n)),
        step=np.zeros((outputs, n)),
        better=np.zeros((3, outputs * (n - mix.plain.shape[1]))),
        direction=np.zeros((3, direction_size)),
        output=np.zeros(outputs),
        plain=np.zeros(outputs),
        softmax=np.zeros((outputs, n), np.float32),
        total=np.zeros(n),
    )


@loops
def set_kappa(mix: Mixture, work: Work, first: int, last: int, norm: float, length: float) -> None:
    """Set the kappa of experts first to last - 1: `length` for linear experts and `norm` for the others."""
    for k in range(first, last):
        work.kappa[k] = max(length if mix.linear[k] > 0 else norm, 1e-300)


@loops
def predict(mix: Mixture, work: Work) -> None:
    """Fill work.output with the predictions of the mixture, clipped near the range of the targets in regression."""
    targets, n = mix.targets[0], len(mix.rate)
    low, high = bounds(targets)
    for c in range(len(work.output)):
        margin = work.margin[c]
        if targets["numbers"]:
            for k in range(n):
                work.chance[k] = min(max(margin[k], low), high)
            margin = work.chance
        work.output[c] = min(max(mixed(mix.share[c], margin) + followed(mix.follow[c]), low), high)
