"""Reader for model files of the first version of the untuned learner.

The first version had five learning rates, one Hessian D + B'B, and blocks of 4 m rows. Its model is one linear model
for each output, for rows divided by their own length. Every expert starts from this model: predictions are the same,
and learning continues as if the experts had always agreed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from robustfd.linalg.lapack import routines
from robustfd.online import columns, feature_stats, hessian_choice
from robustfd.online.hessian_choice import FIRST_LOOK
from robustfd.online.mixture import NumberLoss
from robustfd.online.sparse_basis import unpack_columns
from robustfd.online.untuned import UntunedState
from robustfd.online.untuned_snapshot import require_targets, unpack_rows
from robustfd.online.untuned_state import FIRST

Floats = NDArray[np.float64]


def is_first_edition(parts: Any) -> bool:
    """Return whether the first version wrote this state."""
    return bool(parts.has("basis"))


def unpack(
    parts: Any, check: Callable[[int, int], None], *, sketch: int | None, loss: NumberLoss | None
) -> UntunedState:
    """Return the state in a file of the first version; raise if its contents are inconsistent.

    `check` raises if the numbers of features and outputs do not fit the model.
    """
    (n, q), (outputs, rates), (r, other) = (parts.shape(name, 2) for name in ("basis", "losses", "m"))
    if n < 2 or r < 1 or outputs < 1 or rates < 1 or other != r or q != outputs * rates + r:
        raise ValueError(f"a basis of shape {(n, q)} for {outputs} outputs, {rates} rates and {r} rows")
    if sketch not in (None, r + 1):
        raise ValueError(f"{r + 1} rows in a sketch of {sketch}")
    check(n - 1, outputs)
    state = UntunedState(n - 1, outputs, sketch=sketch, loss=loss)
    sparse, seen = parts.flag("sparse"), parts.count("seen")
    parts.count("shrinks")
    weights, losses = _weights(parts, n, outputs * rates, r, sparse), parts.array("losses", outputs, rates)
    parts.array("rates", rates)
    share = np.exp(losses.min(axis=1, keepdims=True) - losses)
    share /= share.sum(axis=1, keepdims=True)
    table = parts.array("features", n, 7)  # count, sum of squares, mean, whether centred, S^2, D, sum of c^2 x^2
    totals = parts.array("totals", parts.shape("totals", 1)[0])
    if np.any(np.delete(table, 2, axis=1) < 0) or len(totals) not in (3, 4) or np.any(totals[[0, 2]] < 0):
        raise ValueError("the statistics of the features are inconsistent")
    mixed = np.einsum("foe,oe->fo", weights.reshape(n, outputs, rates), share)
    mixed /= np.where(table[:, 5] > 0, table[:, 5], 1.0)[:, None]
    _set_features(state, table, totals)
    linear = len(totals) == 4 and bool(totals[3] > 0)
    _set_weights(state, mixed * np.sqrt(table[:, 4])[:, None], linear=linear)
    _set_targets(state, parts.number("offset"), parts.array("spread", 2, least=0.0))
    state.seen = seen
    first = 4 * (r + 1)
    if seen < first:
        kept = _kept(parts, seen, n - 1, sparse)
        require_targets([kept], 0 if loss is not None else max(outputs, 2))
        if 0 < seen < FIRST:
            state.kept = [kept]
    parts.close()
    if not state.kept:
        state.first, state.look_at = 0, max(FIRST_LOOK, 2 * seen)
        hessian_choice.begin_form(state, n - 1 if not sparse else (table[1:, 0].sum() / max(totals[0], 1.0)))
        mix = state.experts.mix
        mix.share[:, mix.linear != float(linear)] = 0.0
        mix.share[:] /= mix.share.sum(axis=1, keepdims=True)
        state.allocate_work()
    return state


def _weights(parts: Any, n: int, p: int, r: int, sparse: bool) -> Floats:
    """Return the weights (features, outputs * rates) times D."""
    k = parts.shape("products", 2)[0]
    arrays = {"products": (k, p + r), "gram": (k, k), "z": (k, r), "steps": (k, p), "k": (k, k), "root": (r, r)}
    found = {name: parts.array(name, *shape) for name, shape in arrays.items()}
    factor, _ = (parts.array(name, k, least=0.0) for name in ("factor", "curvature"))
    parts.array("factors", k, least=0.0)
    parts.array("m", r, r)
    parts.array("lam", r, least=0.0)
    coef_b, coef_x = np.zeros((p, r)), np.zeros((p, k))
    if k:
        a, failed = dtrtrs((factor[:, None] * found["k"]).T, found["steps"], lower=1, trans=1, unitdiag=1)
        along, singular = dtrtrs(found["root"].T, -found["z"].T @ a)
        if failed or singular:
            raise ValueError("the block cannot be solved")
        coef_b, coef_x = np.ascontiguousarray(along.T), np.ascontiguousarray(a.T)
    if sparse:
        basis = unpack_columns(columns.start(n, p + r, r, max(k, 1)), parts, k)
        return np.asarray(columns.weights_of(routines(), basis, np.arange(n, dtype=np.int32), coef_b, coef_x))
    basis, rows = parts.array("basis", n, p + r), parts.array("rows", k, n)
    return np.asarray(basis[:, :p] + basis[:, p:] @ coef_b.T + rows.T @ coef_x.T)


def _set_features(state: UntunedState, table: Floats, totals: Floats) -> None:
    """Set the statistics of the features."""
    features = state.experts.features
    seen = table[:, 4] > 0
    seen[0] = True
    known, count = features.table, np.maximum(table[:, 0], 1.0)
    centred = np.flatnonzero((table[:, 3] > 0) & seen)[1:]  # without the intercept
    known["count"] = np.where(seen, table[:, 0], 0.0)
    known["square"] = known["reference"] = np.where(seen, table[:, 1] / count, 0.0)
    known["inverse"] = np.where(seen, 1.0 / np.sqrt(np.where(seen, table[:, 4], 1.0)), 0.0)
    known["slow"] = np.where(seen, table[:, 6] * np.square(known["inverse"]), 0.0)
    known["fast"] = known["slow"] * min(1.0, 1000.0 / max(totals[0], 1.0))
    known["number"][centred] = np.arange(1, len(centred) + 1)
    density = np.where(known["number"] > 0, 1.0, np.minimum(known["count"] / max(totals[0], 1.0), 1.0))
    scale = features.totals["prior"][0]
    sparse = np.where(known["number"] > 0, 1.0, feature_stats.SPARSE)
    root = np.sqrt(np.maximum(density, feature_stats.RAREST)) if features.totals["by_density"][0] else sparse
    known["prior"] = np.where(seen, scale * root, 0.0)
    known["prior"][0], known["inverse"][0] = scale, 1.0
    all_of, entries = features.totals, known["count"][1:].sum() / max(totals[0], 1.0)
    all_of["rows"], all_of["logarithms"], all_of["log_weight"] = totals[0], totals[1], totals[2]
    all_of["length"] = all_of["norm"] = 1.0 / np.sqrt(max(entries, 1.0))
    if len(totals) == 4 and totals[3] > 0:
        all_of["length"] = totals[3]
    means = table[centred, 2]
    state.experts = state.experts._replace(
        features=features._replace(centred=centred.astype(np.int64), centre=np.vstack([means, means]))
    )


def _set_weights(state: UntunedState, weights: Floats, *, linear: bool) -> None:
    """Give all experts these weights (features, outputs), and all shares to those that scale rows as the model did."""
    e, half = state.experts, state.experts.weights.shape[1] // 2
    for memory in (0, 1):
        part = e.weights[:, memory * half : memory * half + state.outputs * state.count]
        part[:] = np.repeat(weights, state.count, axis=1)
    if state.loss is not None:
        e.mix.linear[:] = float(linear)
    live = e.mix.linear == (1.0 if linear else 0.0)
    e.mix.share[:] = e.mix.plain[:] = live / live.sum()


def _set_targets(state: UntunedState, offset: float, spread: Floats) -> None:
    """Set the statistics of numeric targets; their range is unknown, so predictions are not clipped to it."""
    if state.loss is None:
        return
    targets, e = state.experts.mix.targets, state.experts
    unit = float(np.sqrt(spread[0] / spread[1])) if spread[1] > 0 and spread[0] > 0 else 1.0
    targets["offset"], targets["unit"] = offset, unit
    targets["spread"], targets["spread_weight"] = spread[1] * float(spread[0] > 0), spread[1] * float(spread[0] > 0)
    e.weights[:] /= unit


def _kept(parts: Any, n: int, d: int, sparse: bool) -> tuple[Any, Floats, Floats]:
    """Return the first rows stored in a file."""
    if sparse:
        return unpack_rows(parts, "kept", n, d)
    return parts.array("kept.x", n, d), parts.array("kept.y", n), parts.array("kept.weight", n, least=0.0)
