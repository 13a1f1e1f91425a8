"""Reading an untuned learner: predictions, the linear model behind them, contributions of features, drift."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import INTERCEPT
from robustfd.learners.rows import CsrRows, plain_rows
from robustfd.learners.untuned_state import ExpertState

Floats = NDArray[np.float64]


def linear_model(state: ExpertState) -> tuple[Floats, Floats]:
    """Return weights (d, outputs) and intercepts (outputs,): the mean effect of features in their original units.

    In regression this is the model itself, for counts the model of their logarithm. In classification some experts
    divide each row by its length; the weights here are for rows of mean length.
    """
    e, mix = state.experts, state.experts.mix
    table, totals, (offset, unit) = e.features.table, e.features.totals[0], _offset_and_unit(state)
    w = state.all_weights()
    f = np.where(mix.linear > 0, totals["length"], totals["norm"])
    effect = np.einsum("fok,ok->fo", w[1:], mix.share * f) * table["inverse"][1:, None] * unit
    own = INTERCEPT * np.einsum("ok,ok->o", w[0], mix.share)
    intercept = offset + unit * (own + np.einsum("oe,oe->o", mix.follow[:, 0], mix.follow[:, 1]))
    centred = e.features.centred
    intercept = intercept - e.features.centre[0] @ effect[centred - 1]
    return effect, intercept


def effects(state: ExpertState) -> Floats:
    """Return the typical contributions (d, outputs) of features to predictions, with the sign of their weights.

    A contribution is the product of the weight, the root mean square of the feature about its centre, and the share of
    rows in which the feature is non-zero.
    """
    table, rows = state.experts.features.table[1:], max(state.experts.features.totals["rows"][0], 1.0)
    share = np.where(table["number"] > 0, 1.0, np.minimum(table["count"] / rows, 1.0))
    effects: Floats = linear_model(state)[0] * (share * np.sqrt(table["square"]))[:, None]
    return effects


def _offset_and_unit(state: ExpertState) -> tuple[float, float]:
    """Return offset and unit such that offset + unit * output is a prediction, or its logarithm for counts."""
    targets = state.experts.mix.targets[0]
    return (float(np.log(targets["unit"])), 1.0) if targets["counts"] else (targets["offset"], targets["unit"])


def contributions(state: ExpertState, x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the contributions of features to the predictions of rows in CSR format: indptr, features, values.

    The values have shape (entries, outputs). With the intercepts of `linear_model` they sum to the predictions, before
    predictions are clipped near the range of the targets.
    """
    e, mix, (_, unit) = state.experts, state.experts.mix, _offset_and_unit(state)
    w, linear = state.all_weights(), mix.linear > 0
    by_kind = [np.einsum("fok,ok->fo", w, mix.share * kind) * unit for kind in (~linear, linear)]
    centres = np.zeros_like(by_kind[0])
    centres[e.features.centred] = e.features.centre[0][:, None] * linear_model(state)[0][e.features.centred - 1]
    n, x = x.shape[0], plain_rows(x)
    sparse = isinstance(x, CsrRows)
    most = (len(x.data) if sparse else x.size) + n * len(e.features.centred)
    indptr, which, parts = np.zeros(n + 1, np.int64), np.empty(most, np.int64), np.empty((most, state.outputs))
    state.core.explain(x, np.array([*by_kind, centres]), indptr, which, parts)
    return indptr, which[: indptr[-1]], parts[: indptr[-1]]


def drift(state: ExpertState) -> dict[str, NDArray[Any]]:
    """Return arrays "rows" and "share": the ends of windows of rows, and the share of forgetting experts in each."""
    stride, rows = int(state.experts.mix.targets["stride"][0]), state.seen
    ends = np.minimum(np.arange(1, -(-rows // stride) + 1) * stride, rows)
    counts = np.diff(ends, prepend=0)
    return {"rows": ends, "share": state.experts.mix.trace[: len(ends)] / counts}


def margins(state: ExpertState, x: Any, n: int | None = None) -> Floats:
    """Return the predictions (n, outputs) for n rows, by default all. Several threads may predict at the same time."""
    out = np.empty((x.shape[0] if n is None else n, state.outputs))
    state.core.read(plain_rows(x), out)
    return out
