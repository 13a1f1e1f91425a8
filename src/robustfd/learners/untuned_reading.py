"""Reading an untuned learner: the linear model behind its predictions, contributions of features, drift, snapshots."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import CENTRE_ROWS, INTERCEPT, WINDOWS
from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_choice
from robustfd.learners import hessian, line
from robustfd.learners.experts import (
    FEATURE,
    FEATURE_AXES,
    Exact,
    Features,
    LowRank,
    Mixture,
    memories_of,
    rungs_of,
    spread,
    start_exact,
    with_better,
    without_padding,
)
from robustfd.learners.rows import LARGEST, CsrRows, Floats, StoredRows, joined, plain_rows, sparse_rows

if TYPE_CHECKING:
    from robustfd.learners.untuned import UntunedState


def linear_model(state: "UntunedState") -> tuple[Floats, Floats]:
    """Return weights (d, outputs) and intercepts (outputs,): the mean effect of features in their original units.

    In regression this is the model itself, for counts the model of their logarithm. In classification some experts
    divide each row by its length; the weights here are for rows of mean length.
    """
    e, mix, (offset, unit), w = state.experts, state.experts.mix, _offset_and_unit(state), state.all_weights()
    effect = _effect(state, w[1:], slice(1, None))
    own = INTERCEPT * np.einsum("ok,ok->o", w[0], mix.steady)
    intercept = offset + unit * (own + np.einsum("oe,oe->o", mix.follow[:, 0], mix.follow[:, 1]))
    centred = e.features.centred
    intercept = intercept - e.features.centre[0] @ effect[centred - 1]
    return effect, intercept


def _effect(state: "UntunedState", w: Floats, which: Any) -> Floats:
    """Return the mean effect of the features `which`, whose weights are w, in their original units."""
    features, mix = state.experts.features, state.experts.mix
    f = np.where(mix.linear > 0, features.totals[0]["length"], features.totals[0]["norm"])
    by_output = np.einsum("fok,ok->fo", w, mix.steady * f)
    return np.asarray(by_output * features.table["inverse"][which][:, None] * _offset_and_unit(state)[1])


def effects(state: "UntunedState") -> Floats:
    """Return the typical contributions (d, outputs) of features to predictions, with the sign of their weights.

    A contribution is the product of the weight, the root mean square of the feature about its centre, and the share of
    rows in which the feature is non-zero.
    """
    table, rows = state.experts.features.table[1:], max(state.experts.features.totals["rows"][0], 1.0)
    share = np.where(table["number"] > 0, 1.0, np.minimum(table["count"] / rows, 1.0))
    effects: Floats = linear_model(state)[0] * (share * np.sqrt(table["square"]))[:, None]
    return effects


def _offset_and_unit(state: "UntunedState") -> tuple[float, float]:
    """Return offset and unit such that offset + unit * output is a prediction, or its logarithm for counts."""
    targets = state.experts.mix.targets[0]
    return (float(np.log(targets["unit"])), 1.0) if targets["counts"] else (targets["offset"], targets["unit"])


def contributions(state: "UntunedState", x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the contributions of features to the predictions of rows in CSR format: indptr, features, values.

    The values have shape (entries, outputs). With the intercepts of `linear_model` they sum to the predictions, before
    predictions are clipped near the range of the targets.
    """
    e, mix, (_, unit) = state.experts, state.experts.mix, _offset_and_unit(state)
    n, x, centred = x.shape[0], plain_rows(x), e.features.centred
    sparse = isinstance(x, CsrRows)
    which = np.union1d(x.indices.astype(np.int64) + 1, centred) if sparse else np.arange(state.d + 1)
    which = which[which <= state.d]
    w, linear = state.all_weights(which), mix.linear > 0
    factors = np.zeros((3, state.d + 1, state.outputs))  # of features in the rows, for both kinds of experts; centres
    for k, kind in enumerate((~linear, linear)):
        factors[k, which] = np.einsum("fok,ok->fo", w, mix.steady * kind) * unit
    effect = _effect(state, w[np.searchsorted(which, centred)], centred)
    factors[2, centred] = e.features.centre[0][:, None] * effect
    most = (len(x.data) if sparse else x.size) + n * len(centred)
    indptr, which, parts = np.zeros(n + 1, np.int64), np.empty(most, np.int64), np.empty((most, state.outputs))
    state.core.explain(x, factors, indptr, which, parts)
    return indptr, which[: indptr[-1]], parts[: indptr[-1]]


def drift(state: "UntunedState") -> dict[str, NDArray[Any]]:
    """Return arrays "rows" and "share": the ends of windows of rows, and the share of forgetting experts in each."""
    stride, rows = int(state.experts.mix.targets["stride"][0]), state.seen
    ends = np.minimum(np.arange(1, -(-rows // stride) + 1) * stride, rows)
    counts = np.diff(ends, prepend=0)
    return {"rows": ends, "share": state.experts.mix.trace[: len(ends)] / counts}


def shares_of_kinds(state: "UntunedState") -> dict[str, float]:
    """Return the share of each kind of expert that is in use in predictions."""
    e, count, bettors = state.experts, state.count, line.count(state) // 2
    kinds = [("slow", count), ("fast", count), ("bettors", bettors), ("flat prior", bettors)]
    for factor, memory in zip(e.exact.ladder, memories_of(e.exact)):
        kinds.append(("exact, fast" if memory else f"exact, prior x {factor:g}", count))
    if state.form == "sketch":
        kinds.append(("sketch", count))
    ends = np.cumsum([many for _, many in kinds])
    parts = np.split(e.mix.steady.mean(axis=0), ends[:-1])
    return {kind: float(part.sum()) for (kind, many), part in zip(kinds, parts, strict=True) if many}


# -- snapshots (docs/snapshot-format.md); unpacking checks every number that the core uses as an index

COUNTS = ("first", "seen", "size", "renew_at", "renewed_at", "look_at")  # numbers of the state in a file
# arrays of the mixture in a file; others follow from them
MIXTURE = ("linear", "share", "steady", "plain", "earned", "follow", "trace")


def pack(state: "UntunedState") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the numbers and arrays from which `unpack` restores a state, without features that have not occurred."""
    features, mix, weights, bets, exact, low = state.experts
    which = np.flatnonzero((features.table["inverse"] > 0) | (features.table["number"] > 0)).astype(np.int32)
    numbers = {"features": state.d, "outputs": state.outputs, "form": state.form}
    numbers |= {name: getattr(state, name) for name in COUNTS} | {"gain": state.gain}

    def some(array: Any) -> Any:  # without a copy if they are all; `take` copies records faster than an index does
        return array if len(which) == len(array) else array.take(which, axis=0)

    arrays = {"feature": which, "weights": some(weights), "table": _as_numbers(some(features.table))}
    arrays |= {"totals": _as_numbers(features.totals), "centre": features.centre, "targets": _as_numbers(mix.targets)}
    arrays |= {name: getattr(mix, name) for name in MIXTURE}
    if line.count(state):
        arrays["bets"] = some(bets)
    if state.form == "exact":
        arrays |= {f"exact.{name}": array for name, array in without_padding(exact)._asdict().items()}
    elif state.form == "sketch":
        parts = low._replace(buffer=low.buffer[: int(low.filled[0])])._asdict()
        parts |= {name: np.take(parts[name], which, axis) for name, axis in FEATURE_AXES.items()}
        arrays |= {f"sketch.{name}": array for name, array in parts.items() if name != "filled"}
    for name in ("kept", "aside"):
        if rows := getattr(state, name):
            x, y, weight = joined(rows)
            x = sparse_rows(x)
            stored = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "y": y, "weight": weight}
            arrays |= {f"{name}.{part}": array for part, array in stored.items()}
    return numbers, arrays


def unpack(make: Callable[[int, int], "UntunedState"], parts: Any, check: Callable[[int, int], None]) -> "UntunedState":
    """Return the state in a file; raise an error if its parts are inconsistent.

    `check` raises if the numbers of features and outputs do not fit the model; `make` returns a new state with them.
    """
    d, outputs, form = parts.count("features"), parts.count("outputs"), parts.text("form")
    check_choice("form", form, ("diagonal", "exact", "sketch"))
    check(d, outputs)  # before memory is allocated
    state = make(d, outputs)
    for name in COUNTS:
        setattr(state, name, parts.count(name))
    state.form, state.gain = form, parts.number("gain")
    if state.first not in (0, hessian.FIRST):
        raise ValueError(f"the number of first rows is {state.first}, expected 0 or {hessian.FIRST}")
    which = parts.array("feature", n := parts.shape("feature", 1)[0], dtype=np.int32, least=0, most=d)
    if n < 1 or which[0] != 0 or np.any(which[1:] <= which[:-1]):
        raise ValueError("the features are not ascending")
    if line.count(state) and not parts.has("bets"):
        line.drop(state)
    e, lanes, exact = state.experts, state.outputs * state.count, state.experts.exact
    if form == "exact":
        exact = _start_exact(parts, d, lanes)
    e.weights[which] = parts.array("weights", n, e.weights.shape[1], dtype=np.float32)
    if line.count(state):
        e.bets[which] = parts.array("bets", n, *e.bets.shape[1:], dtype=np.float32)
        if np.any(e.bets[:, 1] < 0):
            raise ValueError("the sums of the bets are inconsistent")
    features = _unpack_features(parts, e.features, which)
    mix = _unpack_mixture(parts, with_better(e.mix, rungs_of(form, exact)), int(features.totals["rows"][0]))
    low = e.low_rank
    if form == "exact":
        for name, array in without_padding(exact)._asdict().items():
            if name != "ladder":
                array[:] = parts.array(f"exact.{name}", *array.shape)
    elif form == "sketch":
        if state.size < 2 or state.sketch not in (None, state.size):
            raise ValueError(f"the sketch has an unexpected size of {state.size} rows")
        low = _unpack_low_rank(parts, which, d + 1, state.size, lanes)
    state.experts = e._replace(features=features, mix=mix, exact=exact, low_rank=low)
    if 0 < state.seen < state.first:
        state.kept = [_unpack_rows(parts, "kept", state.seen, d)]
    if parts.has("aside.y"):
        state.aside = [_unpack_rows(parts, "aside", parts.shape("aside.y", 1)[0], d)]
    for _, y, _ in [*state.kept, *state.aside]:
        if state.loss is None and not np.isin(y, np.arange(max(outputs, 2))).all():
            raise ValueError("a stored row has an unknown class")
    parts.close()
    return state


def _as_numbers(records: Any) -> Floats:
    """Return records (n,) of fields of eight bytes as an array (n, fields), which is a view if that is possible."""
    whole = [k for k, name in enumerate(records.dtype.names) if records.dtype[name].kind == "i" and records[name].any()]
    numbers = (
        (np.array(records) if whole else records).view(np.float64).reshape(len(records), -1)
    )  # 0 has the same bits
    for k in whole:
        numbers[:, k] = records[records.dtype.names[k]]
    return numbers


def _unpack_records(parts: Any, name: str, records: Any) -> None:
    """Fill records from a file."""
    fields = records.dtype.names
    for field, column in zip(fields, parts.array(name, len(records), len(fields)).T, strict=True):
        records[field] = column


def _unpack_features(parts: Any, features: Features, which: NDArray[np.int32]) -> Features:
    """Return the statistics of the features in a file; `features` are those of a new state."""
    some = np.zeros(len(which), FEATURE)
    _unpack_records(parts, "table", some)
    _unpack_records(parts, "totals", features.totals)
    impossible = np.any(_as_numbers(some) < 0) or np.any((some["inverse"] == 0) & (some["number"] == 0))
    if impossible or np.any(_as_numbers(features.totals)[:, [0, 1, 3, 4, 5, 6, 9, 10]] < 0):
        raise ValueError("the statistics of the features are inconsistent")
    features.table[which] = some
    order = np.argsort(some["number"], kind="stable")
    centred = order[some["number"][order] > 0]
    if not np.array_equal(some["number"][centred], np.arange(1, len(centred) + 1)):
        raise ValueError("the centred features are not numbered 1, 2, ...")
    return features._replace(
        centred=which[centred].astype(np.int64), centre=parts.array("centre", CENTRE_ROWS, len(centred))
    )


def _unpack_mixture(parts: Any, mix: Mixture, rows: int) -> Mixture:
    """Return the mixture in a file; `mix` is that of a new state, and `rows` the number of rows so far."""
    for name in MIXTURE:
        array = getattr(mix, name)
        array[:] = parts.array(name, *array.shape, least=-np.inf if name == "follow" else 0.0)
    fixed = mix.targets[["numbers", "counts", "turns"]].copy()
    _unpack_records(parts, "targets", mix.targets)
    stride = int(mix.targets["stride"][0])
    known = mix.targets[list(fixed.dtype.names)] == fixed and 0 <= int(mix.targets["turn"][0]) < int(fixed["turns"][0])
    known = known and mix.targets["age"][0] >= 0
    if not known or not 1 <= stride < 2**53 or rows > WINDOWS * stride:
        raise ValueError("the statistics of the targets are inconsistent")
    return mix


def _start_exact(parts: Any, d: int, lanes: int) -> Exact:
    """Return an empty exact Hessian with the rungs of that in a file."""
    if d > hessian.LARGEST_EXACT:
        raise ValueError(f"an exact Hessian has at most {hessian.LARGEST_EXACT} features, got {d}")
    memories = 2 if d <= hessian.TWO_MEMORIES else 1
    ladder = parts.array("exact.ladder", parts.shape("exact.ladder", 1)[0]).tolist()
    slow, fast = ladder[: len(ladder) - memories + 1], ladder[len(ladder) - memories + 1 :]
    if not slow or slow != [f for f in hessian.LADDER if f in slow] or fast not in ([], [1.0]):
        raise ValueError(f"the Hessian has the factors {ladder} of its prior, expected some of {hessian.LADDER}")
    return start_exact(d + 1, ladder, memories, lanes)


def _unpack_low_rank(parts: Any, which: NDArray[np.int32], size: int, m: int, lanes: int) -> LowRank:
    """Return the Hessian with a sketch of m - 1 rows in a file."""
    filled = parts.shape("sketch.buffer", 2)[0]
    if filled > 2 * m:
        raise ValueError(f"the buffer of the sketch has {filled} rows, expected at most {2 * m}")
    n, rows = len(which), m - 1
    shapes = {
        "u": (n, rows), "diagonal": (n,), "weights": (n, lanes), "along": (rows, lanes), "sketch": (rows, n),
        "lam": (rows,), "buffer": (filled, n),
    }  # fmt: skip
    low: dict[str, Any] = {
        name: parts.array(f"sketch.{name}", *shape, least=0.0 if name in ("lam", "diagonal") else -np.inf)
        for name, shape in shapes.items()
    }
    low |= {name: spread(low[name], which, size, axis) for name, axis in FEATURE_AXES.items()}
    low["buffer"] = np.vstack([low["buffer"], np.zeros((2 * m - filled, size))])
    return LowRank(**low, filled=np.array([filled]))


def _unpack_rows(parts: Any, name: str, n: int, d: int) -> StoredRows:
    """Return stored rows, targets and weights from a file."""
    y, weight = parts.array(f"{name}.y", n), parts.array(f"{name}.weight", n, least=0.0)
    entries = parts.shape(f"{name}.data", 1)[0]
    data = parts.array(f"{name}.data", entries, least=-LARGEST, most=LARGEST, missing=True)
    indices = parts.array(f"{name}.indices", entries, dtype=np.int32, least=0, most=d - 1)
    indptr = parts.array(f"{name}.indptr", n + 1, dtype=np.int64)
    if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr) < 0):
        raise ValueError("the indptr of stored rows is invalid")
    if not sp.csr_array((data, indices, indptr), shape=(n, d)).has_canonical_format:
        raise ValueError("the indices of stored rows are not ascending")
    return CsrRows(data, indices, indptr), y, weight
