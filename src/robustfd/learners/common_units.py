"""Features and targets of untuned learners in common units: scales and centres, offset and unit.

Weights multiply zeta = (x - centre)/S, so a change of units or centres changes the weights and the Hessian of a model.
With ratio = S/S_i, t_j = f (centre - centre_i)_j / S_j and f the typical factor of rows, the conversion is

    w_j *= ratio_j,   w_0 += 4 t'w,   x_j = x_j / ratio_j - 4 t_j x_0   for the rows x whose x x' add up to the Hessian

and is exact if all rows have the same factor.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._core import INTERCEPT, WINDOWS
from robustfd.learners import line, progress
from robustfd.learners.experts import FEATURE, Features
from robustfd.learners.rows import Floats
from robustfd.learners.untuned import UntunedState


class Converted(NamedTuple):
    """Weights and statistics of some features in common units, the intercept first."""

    weights: Floats  # (features, outputs, experts) without those of line.py
    line: Floats  # (4, features, outputs bettors): those of line.py
    prior: Floats  # (features,): P, 0 for features that have not occurred in this part
    flat: Floats  # (features,): the flat prior, likewise
    curvatures: list[Floats]  # (features,) each: the diagonals of the sums of c^2 x x' over all and over recent rows
    past: Floats  # (memories, features, features): the full sums, if the Hessian is exact
    rows: Floats  # (m - 1, features): the sketch of the slow sum, if there is one
    follow: Floats  # (outputs, 2, 4): forgetting intercepts and their shares


def common_features(parts: list[Features], times: Floats) -> Features:
    """Return the merged statistics of features, without curvatures.

    A feature is centred if it is centred in one of the parts. Scales are averaged, weighted by counts. The prior of
    part i is multiplied by `times[i]`.
    """
    tables = np.array([part.table for part in parts])
    centred = np.any(tables["number"] > 0, axis=0)
    known = (tables["inverse"] > 0) | (tables["number"] > 0)
    knows = known & ((tables["number"] > 0) | ~centred)  # has a centre if one is needed
    rows = np.array([part.totals["rows"][0] for part in parts])
    weight = np.where(knows, np.maximum(tables["count"], 1e-300), 0.0)
    new = np.zeros(tables.shape[1], FEATURE)
    new["count"] = np.where(known & ~knows, rows[:, None], tables["count"]).sum(axis=0)
    for name in ("square", "reference"):
        new[name] = _mean(tables[name], weight)
    scaled = np.where(tables["inverse"] > 0, weight, 0.0)
    logarithms = np.log(np.where(tables["inverse"] > 0, tables["inverse"], 1.0))
    new["inverse"] = np.where(scaled.sum(axis=0) > 0, np.exp(_mean(logarithms, scaled)), 0.0)
    new["prior"] = _mean(tables["prior"] * times[:, None], scaled)
    new["number"][centred] = np.arange(1, np.count_nonzero(centred) + 1)
    which = np.flatnonzero(centred)
    centre = np.array([_centres(part, which) for part in parts])  # (parts, CENTRE_ROWS, centred)
    centre[:, 4:] = 0.0  # runs of small differences begin again
    totals, old = parts[0].totals.copy(), np.array([part.totals[0] for part in parts])
    for name in ("rows", "logarithms", "log_weight", "bet_squares", "bet_rows"):
        totals[name] = old[name].sum()
    for name in ("length", "norm", "weight"):
        totals[name] = progress.vote(rows) @ old[name]
    totals["prior"] = (old["prior"] * times).mean()
    return Features(new, totals, which, _mean(centre, weight[:, None, which]))


def _mean(values: Floats, weight: Floats) -> Floats:
    """Return weighted means over the first axis; 0 where the total weight is 0."""
    total = weight.sum(axis=0)
    part = np.divide(weight, total, out=np.zeros(weight.shape), where=total > 0)
    return np.asarray((part * values).sum(axis=0))


def _centres(part: Features, which: NDArray[np.int64]) -> Floats:
    """Return the centres (CENTRE_ROWS, n) of features, 0 for features that are not centred in this part."""
    number = part.table["number"][which]
    known = np.append(part.centre, np.zeros((len(part.centre), 1)), axis=1)
    return known[:, number - 1]


def common_targets(parts: list[Any], n: NDArray[np.int64]) -> Any:
    """Return the merged statistics of the targets."""
    old, vote = np.concatenate(parts), progress.vote(n)
    new = parts[0].copy()
    for name in ("loss", "plain_loss", "spread", "spread_weight", "age", "lead"):
        new[name] = old[name].sum()
    new["stride"], new["turn"] = stride_for(int(n.sum())), old["turn"].sum() % new["turns"]
    new["offset"], new["unit"] = vote @ old["offset"], np.exp(vote @ np.log(old["unit"]))
    if new["numbers"][0]:
        units, offsets = _of_targets(old, new)
        new["spread"] = (old["spread"] * np.where(old["counts"] > 0, 1.0, units**2)).sum()
        new["low"], new["high"] = (old["low"] * units + offsets).min(), (old["high"] * units + offsets).max()
    return new


def _of_targets(old: Any, new: Any) -> tuple[Floats, Floats]:
    """Return the units and offsets that convert predictions of old parts to the new units."""
    if new["counts"][0]:  # predictions are logarithms
        return np.ones(len(old)), np.log(old["unit"] / new["unit"])
    return old["unit"] / new["unit"], (old["offset"] - new["offset"]) / new["unit"]


def in_common_units(state: UntunedState, features: Features, targets: Any, which: NDArray[np.int64]) -> Converted:
    """Return the part of a settled state with features `which`, in the units of `features` and `targets`."""
    e = state.experts
    old, new, mix = e.features.table[which], features.table[which], e.mix
    (unit,), (offset,) = _of_targets(mix.targets, targets)
    both = (old["inverse"] > 0) & (new["inverse"] > 0)
    ratio = np.divide(old["inverse"], new["inverse"], out=np.ones(len(which)), where=both)
    length = float(e.features.totals["length"][0] / features.totals["length"][0])
    numbers, usual = bool(targets["numbers"][0]), float(e.features.totals["norm"][0])
    after = float(features.totals["length"][0])
    # For centred features: the distance of the new centre from that of this part, in the new unit.
    here = np.flatnonzero(new["number"] > 0)
    away = np.zeros(len(which))
    distance = features.centre[0, new["number"][here] - 1] - _centres(e.features, which[here])[0]
    away[here] = distance * new["inverse"][here]
    weights = state.all_weights()[which] * unit
    weights[1:] *= ratio[1:, None, None] * np.where(mix.linear > 0, length, 1.0)
    weights[0] += np.tensordot(away, weights, 1) * np.where(mix.linear > 0, after, usual) / INTERCEPT
    weights[0] += offset / INTERCEPT
    follow = mix.follow.copy()
    follow[:, 0] *= unit
    # The factor of the rows whose outer products add up to the Hessian.
    scale = np.where(which > 0, 1.0 / (ratio * (length if numbers else 1.0)), 1.0)
    if targets["counts"][0]:
        scale = scale * np.exp(offset / 2)  # the curvature is proportional to the unit
    move = away * (after if numbers else usual) / INTERCEPT
    past = e.exact.past * (scale[:, None] * scale) if len(e.exact.past) else e.exact.past
    rows = _moved(e.low_rank.sketch[:, which] * scale, move) if len(e.low_rank.sketch) else np.zeros((0, len(which)))
    curvatures = []
    for memory, name in enumerate(("slow", "fast")):
        diagonal = old[name] * scale**2
        # A centred feature and the intercept have a product sum of 0. For other features the new centre is the mean.
        cross = past[memory, 0] if memory < len(past) else np.where(old["number"] > 0, 0.0, move * diagonal[0])
        curvatures.append(np.maximum(diagonal - 2.0 * move * cross + move**2 * diagonal[0], 0.0))
    past = _moved(_moved(past, move).transpose(0, 2, 1), move) if len(past) else past
    known = np.where(old["inverse"] > 0, state.share / (features.totals["prior"][0] / state.prior()), 0.0)
    flat, own = known * (features.totals["prior"][0] / state.prior()), line.slice_of(state)
    bets = line.converted(state, which, away, weights[:, :, own], float(unit), float(offset))
    weights = np.delete(weights, own, axis=2)
    return Converted(weights, bets, known * new["prior"], flat, curvatures, past, rows, follow)


def _moved(rows: Floats, move: Floats) -> Floats:
    """Return rows (..., features) after a move of the centres."""
    return np.asarray(rows - rows[..., :1] * move)


def stride_for(rows: int) -> int:
    """Return the number of rows in a window of the trace after `rows` rows, a power of two."""
    return 1 << max(-(-rows // WINDOWS) - 1, 0).bit_length()
