"""The arrays of the learner with nothing to tune in a file (docs/snapshot-format.md), checked as they are taken out.

Whatever compiled loops use as an index is looked at here, since a file may come from anybody.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustfd.online import feature_stats, mixture
from robustfd.online.feature_stats import Features
from robustfd.online.mixture import WINDOWS, Mixture
from robustfd.online.rows import LARGEST, CsrRows, join, plain_rows

Floats = NDArray[np.float64]

MIXTURE = ("linear", "share", "plain", "follow", "trace")  # arrays of the mixture in a file


def as_numbers(records: Any) -> Floats:
    """Return records (n,) as an array (n, fields)."""
    return np.column_stack([records[name].astype(np.float64) for name in records.dtype.names])


def unpack_records(parts: Any, name: str, records: Any, *, later: int = 0) -> None:
    """Fill records with those of a file; an older one may lack the last fields, `later` of them, which stay."""
    fields = records.dtype.names or ()
    old = later > 0 and parts.shape(name, 2)[1] == len(fields) - later
    for field, column in zip(fields, parts.array(name, len(records), len(fields) - (later if old else 0)).T):
        records[field] = column


def unpack_features(parts: Any, features: Features, which: NDArray[np.int32]) -> Features:
    """Take what is known of the features out of a file; `features` know nothing yet."""
    some = np.zeros(len(which), feature_stats.FEATURE)
    unpack_records(parts, "table", some)
    unpack_records(parts, "totals", features.totals)
    impossible = np.any(as_numbers(some) < 0) or np.any((some["inverse"] == 0) & (some["number"] == 0))
    if impossible or np.any(as_numbers(features.totals)[:, [0, 1, 3, 4, 5, 6]] < 0):
        raise ValueError("what is known of the features is impossible")
    features.table[which] = some
    order = np.argsort(some["number"], kind="stable")
    centred = order[some["number"][order] > 0]
    if not np.array_equal(some["number"][centred], np.arange(1, len(centred) + 1)):
        raise ValueError("the centred features are not numbered")
    return features._replace(centred=which[centred].astype(np.int64), centre=parts.array("centre", 2, len(centred)))


def unpack_mixture(parts: Any, mix: Mixture, memories: int, rows: int) -> Mixture:
    """Take the mixture out of a file; `mix` is a fresh one, and there were so many rows."""
    mix = mixture.with_better(mix, memories)
    for name in MIXTURE:
        array = getattr(mix, name)
        array[:] = parts.array(name, *array.shape, least=-np.inf if name == "follow" else 0.0)
    kind = mix.targets[["numbers", "level", "counts"]].copy()
    unpack_records(parts, "targets", mix.targets, later=2)
    stride = int(mix.targets["stride"][0])
    if mix.targets[["numbers", "level", "counts"]] != kind or not 1 <= stride < 2**53 or rows > WINDOWS * stride:
        raise ValueError("what is known of the targets is impossible")
    return mix


def joined(kept: list[tuple[Any, Floats, Floats]]) -> tuple[Any, Floats, Floats]:
    """Return rows that were kept one after another, sparse if any are, their targets and weights."""
    x: Any = [rows for rows, _, _ in kept]
    if any(isinstance(rows, CsrRows) for rows in x):
        x = join([rows if isinstance(rows, CsrRows) else plain_rows(sp.csr_array(rows)) for rows in x])
    else:
        width = max(rows.shape[1] for rows in x)  # features may have come
        x = np.vstack([np.pad(rows, ((0, 0), (0, width - rows.shape[1]))) for rows in x])
    y, weight = (np.concatenate([each[k] for each in kept]) for k in (1, 2))
    return x, y, weight


def pack_rows(name: str, x: Any, y: Floats, weight: Floats) -> dict[str, Any]:
    """Return rows as arrays of a file."""
    x = x if isinstance(x, CsrRows) else plain_rows(sp.csr_array(x))
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "y": y, "weight": weight}
    return {f"{name}.{part}": array for part, array in parts.items()}


def require_targets(kept: list[tuple[Any, Floats, Floats]], classes: int) -> None:
    """Raise unless the targets of rows that were kept are those of so many classes; of numbers any will do."""
    for _, y, _ in kept:
        if classes and not np.isin(y, np.arange(classes)).all():
            raise ValueError("a row that was kept is of no class")


def unpack_rows(parts: Any, name: str, n: int, d: int) -> tuple[Any, Floats, Floats]:
    """Take rows that were kept out of a file."""
    y, weight, entries = (
        parts.array(f"{name}.y", n),
        parts.array(f"{name}.weight", n, least=0.0),
        parts.shape(f"{name}.data", 1)[0],
    )
    data = parts.array(f"{name}.data", entries, least=-LARGEST, most=LARGEST, missing=True)
    indices = parts.array(f"{name}.indices", entries, dtype=np.int32, least=0, most=d - 1)
    indptr = parts.array(f"{name}.indptr", n + 1, dtype=np.int64)
    if indptr[0] != 0 or indptr[-1] != entries or np.any(np.diff(indptr) < 0):
        raise ValueError("rows that were kept are no rows")
    if not sp.csr_array((data, indices, indptr), shape=(n, d)).has_canonical_format:
        raise ValueError("the entries of rows that were kept are not ascending")
    return CsrRows(data, indices, indptr), y, weight
