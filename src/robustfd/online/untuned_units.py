"""What two learners with nothing to tune have learnt, in the same units: scales, centres, offset and unit of targets.

Weights are of zeta = (x - centre)/S. In other units and about other centres the same model has other numbers, and so
has its Hessian. With ratio = S/S_i, t_j = f (centre - centre_i)_j / S_j and f the usual factor of rows

    w_j *= ratio_j,   w_0 += 4 t'w,   x_j = x_j / ratio_j - 4 t_j x_0   for the rows x that the Hessian is a sum over

which is exact if all rows have the same factor.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd.online import progress
from robustfd.online.diagonal import INTERCEPT
from robustfd.online.feature_stats import FEATURE, Features, aligned
from robustfd.online.mixture import WINDOWS
from robustfd.online.untuned import UntunedState

Floats = NDArray[np.float64]


class Part(NamedTuple):
    """What a state knows of some features, the intercept first, in common units."""

    weights: Floats  # (features, outputs, experts)
    prior: Floats  # (features,): P, 0 for a feature that this part has not seen
    slow: Floats  # (features,): the diagonal of the sum of c^2 x x'
    fast: Floats  # (features,): and of recent rows
    past: Floats  # (memories, features, features): the sums themselves, if the Hessian is exact
    rows: Floats  # (m - 1, features): the sketch of the former, if there is one
    follow: Floats  # (outputs, 2, 4): intercepts that forget, and their shares


def stride_for(rows: int) -> int:
    """Return how many rows a window of the trace has after so many rows: a power of two."""
    return 1 << max(-(-rows // WINDOWS) - 1, 0).bit_length()


def common_features(parts: list[Features], times: Floats) -> Features:
    """Return what two parts know of their features; curvatures are left out.

    A feature that is centred in one part is centred. Scales are means by counts, the prior of part i counts `times[i]`.
    """
    tables = np.array([part.table for part in parts])
    centred = np.any(tables["number"] > 0, axis=0)
    known = (tables["inverse"] > 0) | (tables["number"] > 0)
    knows = known & ((tables["number"] > 0) | ~centred)  # its own centre, if there is to be one
    rows = np.array([part.totals["rows"][0] for part in parts])
    weight = np.where(knows, np.maximum(tables["count"], 1e-300), 0.0)
    new = aligned(tables.shape[1], FEATURE)
    new["count"] = np.where(known & ~knows, rows[:, None], tables["count"]).sum(axis=0)
    for name in ("square", "reference"):
        new[name] = _mean(tables[name], weight)
    scaled = np.where(tables["inverse"] > 0, weight, 0.0)
    logarithms = np.log(np.where(tables["inverse"] > 0, tables["inverse"], 1.0))
    new["inverse"] = np.where(scaled.sum(axis=0) > 0, np.exp(_mean(logarithms, scaled)), 0.0)
    new["prior"] = _mean(tables["prior"] * times[:, None], scaled)
    new["number"][centred] = np.arange(1, np.count_nonzero(centred) + 1)
    which = np.flatnonzero(centred)
    centre = np.array([_centres(part, which) for part in parts])  # (parts, 2, centred)
    totals, old = parts[0].totals.copy(), np.array([part.totals[0] for part in parts])
    for name in ("rows", "logarithms", "log_weight"):
        totals[name] = old[name].sum()
    for name in ("length", "norm", "weight"):
        totals[name] = progress.vote(rows) @ old[name]
    totals["prior"] = (old["prior"] * times).mean()
    return Features(new, totals, which, _mean(centre, weight[:, None, which]))


def _mean(values: Floats, weight: Floats) -> Floats:
    """Return the means over the first axis; 0 where there is no weight."""
    total = weight.sum(axis=0)
    part = np.divide(weight, total, out=np.zeros(np.broadcast_shapes(weight.shape)), where=total > 0)
    return np.asarray((part * values).sum(axis=0))


def _centres(part: Features, which: NDArray[np.int64]) -> Floats:
    """Return the centres (2, n) of features, 0 for those that are not centred here."""
    number = part.table["number"][which]
    known = np.append(part.centre, np.zeros((2, 1)), axis=1)
    return known[:, number - 1]


def common_targets(parts: list[Any], n: NDArray[np.int64]) -> Any:
    """Return what two parts know of their targets."""
    old, vote = np.concatenate(parts), progress.vote(n)
    new = parts[0].copy()
    for name in ("loss", "plain_loss", "spread", "spread_weight"):
        new[name] = old[name].sum()
    new["stride"] = stride_for(int(n.sum()))
    new["offset"], new["unit"] = vote @ old["offset"], np.exp(vote @ np.log(old["unit"]))
    if new["numbers"][0]:
        units, offsets = _of_targets(old, new)
        new["spread"] = (old["spread"] * np.where(old["counts"] > 0, 1.0, units**2)).sum()
        new["low"], new["high"] = (old["low"] * units + offsets).min(), (old["high"] * units + offsets).max()
    return new


def _of_targets(old: Any, new: Any) -> tuple[Floats, Floats]:
    """Return by which unit and offset a prediction of an old part becomes one of the new."""
    if new["counts"][0]:  # of logarithms
        return np.ones(len(old)), np.log(old["unit"] / new["unit"])
    return old["unit"] / new["unit"], (old["offset"] - new["offset"]) / new["unit"]


def in_common_units(state: UntunedState, features: Features, targets: Any, which: NDArray[np.int64]) -> Part:
    """Return what a settled state knows of features `which`, in the units of `features` and `targets`."""
    e = state.experts
    old, new, mix = e.features.table[which], features.table[which], e.mix
    (unit,), (offset,) = _of_targets(mix.targets, targets)
    both = (old["inverse"] > 0) & (new["inverse"] > 0)
    ratio = np.divide(old["inverse"], new["inverse"], out=np.ones(len(which)), where=both)
    length = float(e.features.totals["length"][0] / features.totals["length"][0])
    numbers, usual = bool(targets["numbers"][0]), float(e.features.totals["norm"][0])
    after = float(features.totals["length"][0])
    # Features that are centred now: how far the centre is from that of this part, in the new unit.
    here = np.flatnonzero(new["number"] > 0)
    away = np.zeros(len(which))
    away[here] = (features.centre[0, new["number"][here] - 1] - _centres(e.features, which[here])[0]) * new["inverse"][
        here
    ]
    weights = state.all_weights()[which] * unit
    weights[1:] *= ratio[1:, None, None] * np.where(mix.linear > 0, length, 1.0)
    weights[0] += np.tensordot(away, weights, 1) * np.where(mix.linear > 0, after, usual) / INTERCEPT
    weights[0] += offset / INTERCEPT
    follow = mix.follow.copy()
    follow[:, 0] *= unit
    # The rows that the Hessian is a sum over.
    scale = np.where(which > 0, 1.0 / (ratio * (length if numbers else 1.0)), 1.0)
    if targets["counts"][0]:
        scale = scale * np.exp(offset / 2)  # their curvature is in proportion to the unit
    move = away * (after if numbers else usual) / INTERCEPT
    past = e.exact.past * (scale[:, None] * scale) if len(e.exact.past) else e.exact.past
    rows = _moved(e.low_rank.sketch[:, which] * scale, move) if len(e.low_rank.sketch) else np.zeros((0, len(which)))
    curvatures = []
    for memory, name in enumerate(("slow", "fast")):
        diagonal = old[name] * scale**2
        # The sum of products of a centred feature with the intercept is 0; the mean of one that was not is now known.
        cross = past[memory, 0] if memory < len(past) else np.where(old["number"] > 0, 0.0, move * diagonal[0])
        curvatures.append(np.maximum(diagonal - 2.0 * move * cross + move**2 * diagonal[0], 0.0))
    past = _moved(_moved(past, move).transpose(0, 2, 1), move) if len(past) else past
    prior = np.where(old["inverse"] > 0, new["prior"], 0.0) * (
        state.share / (features.totals["prior"][0] / state.prior())
    )
    return Part(weights, prior, curvatures[0], curvatures[1], past, rows, follow)


def _moved(rows: Floats, move: Floats) -> Floats:
    """Return rows (..., features) about other centres."""
    return np.asarray(rows - rows[..., :1] * move)
