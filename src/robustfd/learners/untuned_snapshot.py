"""Packing and unpacking of the untuned learner (docs/snapshot-format.md).

Unpacking checks every number that the core uses as an index, since files are untrusted.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robustfd._core import WINDOWS
from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_choice
from robustfd.learners import exact, feature_stats, low_rank, mixture
from robustfd.learners.feature_stats import Features
from robustfd.learners.mixture import Mixture
from robustfd.learners.rows import LARGEST, CsrRows, join, plain_rows
from robustfd.learners.untuned_state import FIRST, OFFER_EXACT, Experts, ExpertState

Floats = NDArray[np.float64]

State = TypeVar("State", bound=ExpertState)

COUNTS = ("first", "seen", "size", "renew_at", "renewed_at", "look_at")  # numbers of the state in a file
MIXTURE = ("linear", "share", "plain", "follow", "trace")  # arrays of the mixture in a file


def as_numbers(records: Any) -> Floats:
    """Return records (n,) as an array (n, fields)."""
    return np.column_stack([records[name].astype(np.float64) for name in records.dtype.names])


def unpack_records(parts: Any, name: str, records: Any) -> None:
    """Fill records from a file."""
    fields = records.dtype.names or ()
    for field, column in zip(fields, parts.array(name, len(records), len(fields)).T, strict=True):
        records[field] = column


def unpack_features(parts: Any, features: Features, which: NDArray[np.int32]) -> Features:
    """Return the statistics of the features in a file; `features` are those of a new state."""
    some = np.zeros(len(which), feature_stats.FEATURE)
    unpack_records(parts, "table", some)
    unpack_records(parts, "totals", features.totals)
    impossible = np.any(as_numbers(some) < 0) or np.any((some["inverse"] == 0) & (some["number"] == 0))
    if impossible or np.any(as_numbers(features.totals)[:, [0, 1, 3, 4, 5, 6]] < 0):
        raise ValueError("the statistics of the features are inconsistent")
    features.table[which] = some
    order = np.argsort(some["number"], kind="stable")
    centred = order[some["number"][order] > 0]
    if not np.array_equal(some["number"][centred], np.arange(1, len(centred) + 1)):
        raise ValueError("the centred features are not numbered 1, 2, ...")
    return features._replace(centred=which[centred].astype(np.int64), centre=parts.array("centre", 2, len(centred)))


def unpack_mixture(parts: Any, mix: Mixture, memories: int, rows: int) -> Mixture:
    """Return the mixture in a file; `mix` is that of a new state, and `rows` the number of rows so far."""
    mix = mixture.with_better(mix, memories)
    for name in MIXTURE:
        array = getattr(mix, name)
        array[:] = parts.array(name, *array.shape, least=-np.inf if name == "follow" else 0.0)
    kind = mix.targets[["numbers", "level", "counts"]].copy()
    unpack_records(parts, "targets", mix.targets)
    stride = int(mix.targets["stride"][0])
    if mix.targets[["numbers", "level", "counts"]] != kind or not 1 <= stride < 2**53 or rows > WINDOWS * stride:
        raise ValueError("the statistics of the targets are inconsistent")
    return mix


def joined(kept: list[tuple[Any, Floats, Floats]]) -> tuple[Any, Floats, Floats]:
    """Return the concatenation of stored rows, targets and weights; the rows are sparse if any part is."""
    x: Any = [rows for rows, _, _ in kept]
    if any(isinstance(rows, CsrRows) for rows in x):
        x = join([rows if isinstance(rows, CsrRows) else plain_rows(sp.csr_array(rows)) for rows in x])
    else:
        width = max(rows.shape[1] for rows in x)  # features may have been added
        x = np.vstack([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in x])
    y, weight = (np.concatenate([each[k] for each in kept]) for k in (1, 2))
    return x, y, weight


def pack_rows(name: str, x: Any, y: Floats, weight: Floats) -> dict[str, Any]:
    """Return the arrays that store rows in a file."""
    x = x if isinstance(x, CsrRows) else plain_rows(sp.csr_array(x))
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "y": y, "weight": weight}
    return {f"{name}.{part}": array for part, array in parts.items()}


def require_targets(kept: list[tuple[Any, Floats, Floats]], classes: int) -> None:
    """Raise an error unless the targets of stored rows are classes 0 to `classes` - 1; with 0 classes accept any."""
    for _, y, _ in kept:
        if classes and not np.isin(y, np.arange(classes)).all():
            raise ValueError("a stored row has an unknown class")


def unpack_rows(parts: Any, name: str, n: int, d: int) -> tuple[Any, Floats, Floats]:
    """Return stored rows, targets and weights from a file."""
    y, weight, entries = (
        parts.array(f"{name}.y", n),
        parts.array(f"{name}.weight", n, least=0.0),
        parts.shape(f"{name}.data", 1)[0],
    )
    data = parts.array(f"{name}.data", entries, least=-LARGEST, most=LARGEST, missing=True)
    indices = parts.array(f"{name}.indices", entries, dtype=np.int32, least=0, most=d - 1)
    indptr = parts.array(f"{name}.indptr", n + 1, dtype=np.int64)
    if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr) < 0):
        raise ValueError("the indptr of stored rows is invalid")
    if not sp.csr_array((data, indices, indptr), shape=(n, d)).has_canonical_format:
        raise ValueError("the indices of stored rows are not ascending")
    return CsrRows(data, indices, indptr), y, weight


def pack(state: ExpertState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the numbers and arrays from which `unpack` restores this state."""
    e = state.experts
    table = e.features.table
    which = np.flatnonzero((table["inverse"] > 0) | (table["number"] > 0)).astype(np.int32)
    numbers = {"features": state.d, "outputs": state.outputs, "form": state.form}
    numbers |= {name: getattr(state, name) for name in COUNTS} | {"gain": state.gain}
    arrays = {"feature": which, "weights": e.weights[which], "table": as_numbers(table[which])}
    arrays |= {
        "totals": as_numbers(e.features.totals),
        "centre": e.features.centre,
        "targets": as_numbers(e.mix.targets),
    }
    arrays |= {name: getattr(e.mix, name) for name in MIXTURE}
    if state.form == "exact":
        arrays |= {f"exact.{name}": array for name, array in exact.without_padding(e.exact)._asdict().items()}
    elif state.form == "sketch":
        arrays |= {f"sketch.{name}": array for name, array in low_rank.pack(e.low_rank, which).items()}
    for name in ("kept", "aside"):
        if rows := getattr(state, name):
            arrays |= pack_rows(name, *joined(rows))
    return numbers, arrays


def unpack(make: Callable[[int, int], State], parts: Any, check: Callable[[int, int], None]) -> State:
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
    if state.first not in (0, FIRST):
        raise ValueError(f"the number of first rows is {state.first}, expected 0 or {FIRST}")
    which = parts.array("feature", n := parts.shape("feature", 1)[0], dtype=np.int32, least=0, most=d)
    if n < 1 or which[0] != 0 or np.any(which[1:] <= which[:-1]):
        raise ValueError("the features are not ascending")
    e = state.experts
    e.weights[which] = parts.array("weights", n, e.weights.shape[1], dtype=np.float32)
    features = unpack_features(parts, e.features, which)
    mix = unpack_mixture(parts, e.mix, state.memories(form), int(features.totals["rows"][0]))
    state.experts = _unpack_form(state, e._replace(features=features, mix=mix), parts, which)
    if 0 < state.seen < state.first:
        state.kept = [unpack_rows(parts, "kept", state.seen, d)]
    if parts.has("aside.y"):
        state.aside = [unpack_rows(parts, "aside", parts.shape("aside.y", 1)[0], d)]
    require_targets([*state.kept, *state.aside], 0 if state.loss is not None else max(outputs, 2))
    parts.close()
    return state


def _unpack_form(state: ExpertState, e: Experts, parts: Any, which: NDArray[np.int32]) -> Experts:
    """Return the experts with the better Hessian of a file."""
    if state.form == "exact":
        if state.d > OFFER_EXACT:
            raise ValueError(f"an exact Hessian has at most {OFFER_EXACT} features, got {state.d}")
        whole = exact.start(state.d + 1, state.memories("exact"), state.outputs, state.count)
        for name, array in exact.without_padding(whole)._asdict().items():
            array[:] = parts.array(f"exact.{name}", *array.shape)
        return e._replace(exact=whole)
    if state.form == "sketch":
        if state.size < 2 or state.sketch not in (None, state.size):
            raise ValueError(f"the sketch has an unexpected size of {state.size} rows")
        return e._replace(low_rank=low_rank.unpack(parts, which, state.d + 1, state.size, state.outputs * state.count))
    return e
