"""Snapshots of the learner with nothing to tune (docs/snapshot-format.md)."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd._container import Document, Tensors
from robustfd.online import _features, _mixture
from robustfd.online.rows import LARGEST, Floats
from robustfd.online.snapshot import Parts
from robustfd.online.sparse_basis import pack_columns, unpack_columns

TABLE = [_features.COUNT, _features.SQUARE, _features.MEAN, _features.CENTRED, _features.SCALE, _features.METRIC,
         _features.DIAGONAL]  # fmt: skip


def pack_untuned(state: Any) -> tuple[Document, Tensors]:
    """Return numbers and arrays of an `UntunedState`."""
    mix, n = state.mix, int(state.mix.counts[_mixture.FILLED])
    if state._room() < 1:  # a shrink has failed
        raise OverflowError("The numbers have overflowed, and the model can learn no more: it cannot be saved.")
    numbers = {
        "sparse": bool(state.sparse),
        "seen": int(state.seen),
        "shrinks": int(mix.counts[_mixture.SHRINKS]),
        "offset": float(state.offset),
    }
    arrays = {name: getattr(mix, name)[:n] for name in ("products", "z", "steps", "curvature", "factor")}
    arrays |= {name: getattr(mix, name) for name in ("m", "lam", "rates", "losses")}
    arrays |= {
        "gram": np.tril(mix.gram[:n, :n]),
        "k": np.triu(mix.k[:n, :n]),
        "root": np.tril(mix.root) if n else np.eye(len(mix.root)),  # between blocks it is that of the past
        "spread": mix.scalars[: _mixture.HUBER],
        "features": state.features.table[:, TABLE],
        "totals": state.features.totals,
        "factors": state.factors[:n],
    }
    if state.sparse:
        arrays |= pack_columns(state.columns, n)
    else:
        arrays |= {"basis": state.basis, "rows": state.rows[:n]}
    if state.seen < state.first:
        arrays |= _pack_kept(state)
    return numbers, arrays


def _pack_kept(state: Any) -> Tensors:
    """Return the first rows."""
    x, y, weight = zip(*state.kept) if state.kept else ((), (), ())
    arrays = {"kept.y": np.concatenate([np.empty(0), *y]), "kept.weight": np.concatenate([np.empty(0), *weight])}
    if not state.sparse:
        return arrays | {"kept.x": np.vstack([np.empty((0, state.d)), *x])}
    lengths = [np.diff(rows.indptr) for rows in x]
    return arrays | {
        "kept.data": np.concatenate([np.empty(0), *(rows.data for rows in x)]),
        "kept.indices": np.concatenate([np.empty(0, np.int32), *(rows.indices for rows in x)]).astype(np.int32),
        "kept.indptr": np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64),
    }


def sizes_of_untuned(parts: Parts) -> tuple[int, int, int]:
    """Return d, m and the number of outputs that arrays have: what an `UntunedState` is to be begun with."""
    (n, q), (outputs, rates), (r, other) = (parts.shape(name, 2) for name in ("basis", "losses", "m"))
    if n < 2 or r < 1 or outputs < 1 or rates < 1 or other != r or q != outputs * rates + r:
        raise ValueError(f"a basis of shape {(n, q)} for {outputs} outputs, {rates} rates and {r} rows")
    return n - 1, r + 1, outputs


def unpack_untuned(state: Any, parts: Parts) -> None:
    """Make a fresh state of the right sizes what was packed."""
    mix, d = state.mix, state.d
    (rows, q), (outputs, rates), r = mix.products.shape, mix.losses.shape, len(mix.lam)
    n, state.seen = parts.shape("products", 2)[0], parts.count("seen")
    mix.counts[_mixture.FILLED], mix.counts[_mixture.SHRINKS] = n, parts.count("shrinks")
    first, shrunk = state.seen < state.first, bool(mix.counts[_mixture.SHRINKS])
    if first == shrunk or n >= rows - (r if shrunk else 0) or (first and n != state.seen):
        raise ValueError(f"{n} rows in a block after {state.seen}, shrunk {shrunk}")
    state.offset = parts.number("offset")
    mix = state.mix = mix._replace(rates=parts.array("rates", rates, least=0.0))
    for name, width in (("products", q), ("z", r), ("steps", outputs * rates)):
        getattr(mix, name)[:n] = parts.array(name, n, width)
    for name in ("curvature", "factor"):
        getattr(mix, name)[:n] = parts.array(name, n, least=0.0)
    for name in ("gram", "k"):
        getattr(mix, name)[:n, :n] = parts.array(name, n, n)
    for name in ("m", "root"):
        getattr(mix, name)[:] = parts.array(name, r, r)
    mix.lam[:] = parts.array("lam", r, least=0.0)
    mix.losses[:] = parts.array("losses", outputs, rates)
    mix.scalars[: _mixture.HUBER] = parts.array("spread", 2, least=0.0)
    table = parts.array("features", d + 1, len(TABLE))
    if np.any(np.delete(table, 2, axis=1) < 0) or not np.isin(table[:, 3], (0.0, 1.0)).all() or table[0, 3] != 1.0:
        raise ValueError("what is known of the features is impossible")
    state.features.table[:, TABLE] = table
    # The first files had no place for a factor of all rows: in their models each row has its own.
    known = 3 if parts.shape("totals", 1) == (3,) else 4
    state.features.totals[:known] = parts.array("totals", known)
    state.shifted = _features.number_centred(state.features, np.flatnonzero(table[1:, 3]) + 1)
    state.factors[:n] = parts.array("factors", n, least=0.0)
    if state.sparse:
        state.columns = found = unpack_columns(state.columns, parts, n)
        if found.run[0].rows != n:
            raise ValueError("the run is not the block")
        gathered = found.feature[: found.run[0].features]
        metric = state.features.table[gathered, _features.METRIC]
        found.scale[: len(gathered)] = np.where(metric > 0, 1.0 / metric, 0.0)
    else:
        state.basis = parts.array("basis", d + 1, q)
        state.rows[:n] = parts.array("rows", n, d + 1)
    if first:
        state.kept = _unpack_kept(state, parts)
    parts.close()


def _unpack_kept(state: Any, parts: Parts) -> list[tuple[Any, Floats, Floats]]:
    n = state.seen
    y, weight = parts.array("kept.y", n), parts.array("kept.weight", n, least=0.0)
    x: Any
    if state.sparse:
        entries = parts.shape("kept.data", 1)[0]
        data = parts.array("kept.data", entries, least=-LARGEST, most=LARGEST)
        indices = parts.array("kept.indices", entries, dtype=np.int32, least=0, most=state.d - 1)
        indptr = parts.array("kept.indptr", n + 1, dtype=np.int64)
        if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr) < 0):
            raise ValueError("the first rows are no rows")
        x = sp.csr_array((data, indices, indptr), shape=(n, state.d))
        if not x.has_canonical_format:
            raise ValueError("the entries of the first rows are not ascending")
    else:
        x = parts.array("kept.x", n, state.d, least=-LARGEST, most=LARGEST)
    return [(x, y, weight)] if n else []
