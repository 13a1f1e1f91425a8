"""Columns of a Spark DataFrame, or of its Arrow batches, as rows, targets and weights."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
from pyspark.ml.linalg import SparseVector, VectorUDT
from pyspark.sql import types

from robustfd.distributed._plan import known_columns

NUMBERS = types.NumericType | types.BooleanType


@dataclass(frozen=True)
class Columns:
    """Names and kinds of the feature, label and weight columns."""

    features: tuple[str, ...]
    kind: str  # "numbers", "array" or "vector"
    sparse: bool | None  # whether rows become sparse; None decides by the vectors of each batch
    label: str | None = None
    weight: str | None = None
    arm: str | None = None
    probability: str | None = None
    named: bool = False  # whether rows of numbers have the names of their columns

    @property
    def needed(self) -> list[str]:
        """The names of all columns to read."""
        others = (self.label, self.weight, self.arm, self.probability)
        return [*self.features, *(name for name in others if name is not None)]

    def read(self, batch: Any) -> tuple[Any, ...]:
        """Return the rows, targets, weights, arms and probabilities of a batch."""
        x = self.rows(batch)
        y, arms = (None if name is None else _values(batch, name) for name in (self.label, self.arm))
        others = (self.weight, self.probability)
        weight, probability = (None if name is None else _numbers(batch.column(name)) for name in others)
        return x, y, weight, arms, probability

    def rows(self, batch: Any) -> Any:
        """Return the rows of a batch."""
        if self.kind == "numbers":
            # Both copy the values out of Arrow's memory. Nulls have become NaN.
            found = {name: _numbers(batch.column(name)) for name in self.features}
            return pd.DataFrame(found) if self.named else np.column_stack(list(found.values()))
        (name,) = self.features
        column = batch.column(name)
        _check_no_nulls(name, column)
        x = _of_lists(name, column) if self.kind == "array" else _of_vectors(name, column)
        if self.sparse is None or self.sparse == sp.issparse(x):
            return x
        return sp.csr_array(x) if self.sparse else x.toarray()


def columns_of(
    df: Any,
    features: Any,
    *,
    label: str | None = None,
    weight: str | None = None,
    arm: str | None = None,
    probability: str | None = None,
    sparse: bool | None = None,
    model: Any = None,
) -> Columns:
    """Return the given columns, for a model that has seen rows or for a new one.

    By default, features are those that the model has learned by name, the column "features", or all numeric columns.
    """
    found = {field.name: field.dataType for field in df.schema.fields}
    known, others = known_columns(model), (label, weight, arm, probability)
    if features is None and known is not None and ("features" not in found or set(known) <= set(found)):
        features = known
    elif features is None:
        numeric = (name for name, kind in found.items() if isinstance(kind, NUMBERS))
        features = ["features"] if "features" in found else [n for n in numeric if n not in others]
    names = (features,) if isinstance(features, str) else tuple(features)
    if not names:
        raise ValueError("features must name at least one column: the DataFrame has no numeric columns to use.")
    roles = [name for name in (*names, *others) if name is not None]
    for i, name in enumerate(roles):
        if name not in found:
            raise ValueError(f"There is no column {name!r}. The columns are {', '.join(found)}.")
        if name in roles[:i]:
            raise ValueError(f"features, label, weight and others must be different columns, got {name!r} twice.")
    kinds = {_kind(name, found[name]) for name in names}
    if len(kinds) > 1 or (len(names) > 1 and kinds != {"numbers"}):
        raise ValueError(f"features must be numeric columns, or one column of arrays or vectors, got {names}.")
    (kind,) = kinds
    if kind == "numbers" and known is not None:
        if set(names) != set(known):
            raise ValueError(f"features must be the columns that the model has learned, {known}, got {list(names)}.")
        names = tuple(known)
    elif kind == "numbers" and model is not None and len(names) != model.n_features_in_:
        d = f"{model.n_features_in_} columns, in the order in which the model has learned them"
        raise ValueError(f"features must name {d}, got {len(names)}: {', '.join(names)}.")
    named = kind == "numbers" and (model is None or known is not None)
    return Columns(names, kind, sparse if kind == "vector" else bool(sparse), *others, named)


def with_known_form(columns: Columns, df: Any) -> Columns:
    """Return columns with `sparse` set. The default is whether the first vector is sparse."""
    if columns.sparse is not None:
        return columns
    first = df.select(*columns.features).head(1)
    sparse = bool(first) and isinstance(first[0][0], SparseVector)
    return replace(columns, sparse=sparse)


def _kind(name: str, type_: Any) -> str:
    if isinstance(type_, NUMBERS):
        return "numbers"
    if isinstance(type_, types.ArrayType) and isinstance(type_.elementType, types.NumericType):
        return "array"
    if isinstance(type_, VectorUDT):
        return "vector"
    raise ValueError(f"The column {name!r} must hold numbers, arrays or vectors, got type {type_.simpleString()}.")


def _check_no_nulls(name: str, column: Any) -> None:
    if column.null_count:
        raise ValueError(f"The column {name!r} must not contain nulls, got {column.null_count}. Drop these rows.")


def _numbers(values: Any) -> Any:
    return np.array(values.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _values(batch: Any, name: str) -> Any:
    """Return a column of labels or numbers as an array."""
    column = batch.column(name)
    _check_no_nulls(name, column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    return np.array(column.to_numpy(zero_copy_only=False))


def _of_lists(name: str, column: Any) -> Any:
    """Return lists of equal length as dense rows."""
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise ValueError(f"The arrays in {name!r} must have one length, got lengths {lengths[0]} to {lengths[-1]}.")
    return _numbers(column.flatten()).reshape(len(column), -1)


def _of_vectors(name: str, column: Any) -> Any:
    """Return vectors as dense rows if all are dense, and as sparse rows otherwise."""
    kind, size, indices, values = column.flatten()
    dense = kind.to_numpy(zero_copy_only=False) == 1
    lengths = values.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    widths = np.where(dense, lengths, np.nan_to_num(size.cast(pa.float64()).to_numpy(zero_copy_only=False)))
    if len(np.unique(widths)) > 1:
        raise ValueError(f"The vectors in {name!r} must have one size, got sizes {widths.min():g} to {widths.max():g}.")
    data, d = _numbers(values.flatten()), int(widths[0]) if len(widths) else 0
    if dense.all():
        return data.reshape(len(column), d)
    places = np.empty(len(data), np.int32)
    of_dense = np.repeat(dense, lengths)
    places[of_dense] = np.tile(np.arange(d, dtype=np.int32), int(dense.sum()))
    places[~of_dense] = indices.flatten().to_numpy(zero_copy_only=False)
    return sp.csr_array((data, places, np.append(0, np.cumsum(lengths))), shape=(len(column), d))
