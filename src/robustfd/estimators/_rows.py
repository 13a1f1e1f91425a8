"""Rows of online estimators: blocks, dicts, (indices, values) pairs, single arrays, tables and missing values."""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustfd._core import text_terms
from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_rows
from robustfd.learners.rows import CHUNK, CsrRows, Floats, as_rows, check_numbers
from robustfd.streams import is_table
from robustfd.streams.layout import NUMBER

Order = NDArray[np.int64] | None  # the order of the rows in one pass; None is the given order
Kind = Literal["dicts", "pairs", "rows"]

LAST = 2**31 - 2  # largest index; indices are int32
IS_MISSING = " is missing"  # suffix of the names of missing-value indicators
PLAIN = {float, bool, np.float64}
KINDS = {"dicts": "dicts", "pairs": "pairs (indices, values)", "rows": "rows of fixed width"}


def blocks(x: Any, *, sparse: bool) -> Iterator[tuple[slice, Any]]:
    """Yield slices and blocks of rows of x that are small enough to convert to dense float64 arrays."""
    n, d = x.shape
    step = max(n if sparse and sp.issparse(x) else CHUNK // max(d, 1), 1)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        yield part, x if step >= n else x[part]


def in_order(x: Any, y: Any, weight: Floats, order: Order) -> Iterator[tuple[Any, Any, Floats]]:
    """Yield rows, targets and weights in the given order, in chunks, as a copy of all rows may not fit into memory."""
    if order is None:
        yield x, y, weight
        return
    step = max(CHUNK * (16 if sp.issparse(x) else 1) // max(x.shape[1], 1), 1024)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        yield x[some], y[some], weight[some]


def one_dimensional(values: Any, *, warn: bool = False) -> Any:
    """Return labels or targets as a one-dimensional array, as scikit-learn does, but without it where possible."""
    if type(values) is np.ndarray and values.ndim == 1:
        return values
    from sklearn.utils.validation import column_or_1d

    return column_or_1d(values, warn=warn)


# -- single rows


def kind_of(model: Any, x: Any) -> Kind:
    """Return the kind of a single row. A dict is a row of fixed width if the model was fitted with named columns."""
    if type(x) is dict and getattr(model, "_kind", None) == "dicts":
        return "dicts"  # the usual case, without a slow check against abstract classes
    if isinstance(x, Mapping):
        return "rows" if hasattr(model, "feature_names_in_") or hasattr(model, "_encoder") else "dicts"
    return "pairs" if isinstance(x, tuple) else "rows"


def single_row(
    model: Any, x: Any, kind: Kind, *, reset: bool = False, known_only: bool = False
) -> tuple[Any, dict[Any, int]]:
    """Return a checked single row, and the indices of new feature names; with `known_only`, drop these features."""
    mine = getattr(model, "_kind", kind)
    if mine != kind and not (mine == "rows" and kind == "pairs"):
        raise ValueError(f"This model was started with {KINDS[mine]} and does not accept {KINDS[kind]}.")
    if kind == "rows":
        return _fixed_row(model, x, reset=reset, learn=not known_only), {}
    return _sparse_row(model, x, kind, known_only)


def _fixed_row(model: Any, x: Any, *, reset: bool, learn: bool) -> Any:
    """Return a one-dimensional array, or a dict keyed by column names, as a checked row (1, d)."""
    if hasattr(model, "_encoder") and isinstance(x, Mapping):
        row = _encoded_rows(model, [x], learn=learn)
    elif hasattr(model, "_encoder") and not _has_only_numbers(model._encoder):
        raise ValueError(f"x must be a dict, as {type(model).__name__} was started with a table, got {x!r:.60}.")
    elif isinstance(x, Mapping):
        nothing = np.nan if model._takes_missing else 0.0
        values = (x.get(name, nothing) for name in model.feature_names_in_)
        try:
            row = np.array([[nothing if value is None else value for value in values]], np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"x must have a number for each column of the model, got {x!r:.60}.") from None
    else:
        flat = np.asarray(x)
        if flat.ndim != 1:
            raise ValueError(
                f"x must be a dict, a pair (indices, values) or an array of one row, got shape {flat.shape}."
            )
        row = check_rows(model, flat[None], reset=reset)
    check_numbers(row, missing=model._takes_missing)
    return row


def _sparse_row(model: Any, x: Any, kind: Kind, known_only: bool) -> tuple[CsrRows, dict[Any, int]]:
    """Return a dict or a pair as a sparse row that is wide enough for new features, and their indices.

    Features that most dicts have and this one has not are missing values.
    """
    new: dict[Any, int] = {}
    if kind == "dicts":
        if absent := getattr(model, "_common_names", set()) - x.keys():
            x = {**x, **dict.fromkeys(absent)}
        indices, values, new = entries_of_dict(x, model._vocabulary, missing=model._takes_missing)
    else:
        indices, values = entries_of_pair(x)
    seen = width_of(model)
    width = max(seen, int(indices[-1]) + 1 if len(indices) else 1)
    if model._kind == "rows" and width > seen:
        raise ValueError(f"x has the index {indices[-1]}, but {type(model).__name__} is expecting {seen} features.")
    check_numbers(values, missing=model._takes_missing and kind == "dicts")
    if known_only and width > seen:
        width, known = seen, int(np.searchsorted(indices, seen))
        indices, values = indices[:known], values[:known]
    return CsrRows(values, indices, np.array([0, len(indices)]), width), new


def entries_of_dict(
    x: Mapping[Any, Any], known: Mapping[Any, int], *, missing: bool = False
) -> tuple[NDArray[np.int32], Floats, dict[Any, int]]:
    """Return the ascending indices and the values of a row, and the indices of new names.

    New names get indices in alphabetical order, so the order of the dict does not matter, not even for rounding errors.
    With `missing`, None and NaN are missing values: a known feature gets the value NaN, and an indicator feature is 1.
    """
    if PLAIN.issuperset(map(type, x.values())):  # fast path for known names, five times as fast
        places = list(map(known.get, x))
        if None not in places:
            indices, numbers = np.array(places, np.int32), np.array(list(x.values()), np.float64)
            if missing and np.isnan(numbers).any():
                return _entries_by_name(x, known, missing=True)
            if places == sorted(places):  # type: ignore[type-var]
                return indices, numbers, {}
            order = np.argsort(indices)
            return indices[order], numbers[order], {}
    return _entries_by_name(x, known, missing=missing)


def _entries_by_name(
    x: Mapping[Any, Any], known: Mapping[Any, int], *, missing: bool
) -> tuple[NDArray[np.int32], Floats, dict[Any, int]]:
    """Do the same as `entries_of_dict`, one feature at a time."""
    named: dict[Any, float] = {}
    for name, value in x.items():
        if missing and (value is None or value != value):
            if name in known:
                named[name] = np.nan
            name, value = f"{name}{IS_MISSING}", 1.0
        entries = [(name, value)]
        if isinstance(value, str):
            entries = [(f"{name}={term}", number) for term, number in text_terms(value)]
        elif type(value) is not float:
            try:
                entries = [(name, float(value))]
                if isinstance(value, bytes | bytearray):  # float(b"1") is 1.0
                    raise TypeError
            except (TypeError, ValueError):
                raise ValueError(f"x[{name!r}] must be a number, a boolean or a string, got {value!r}.") from None
        for feature, number in entries:
            if feature in named:
                raise ValueError(f"x has the feature {feature!r} twice: as a name, and as a name with a string value.")
            named[feature] = number
    unknown = sorted((name for name in named if name not in known), key=str)
    new = {name: index for index, name in enumerate(unknown, len(known))}
    indices = np.array([known[name] if name in known else new[name] for name in named], np.int32)
    order = np.argsort(indices)
    return indices[order], np.array(list(named.values()), np.float64)[order], new


def entries_of_pair(x: tuple[Any, ...]) -> tuple[NDArray[np.int32], Floats]:
    """Return the ascending indices and the values of a row."""
    right = len(x) == 2
    if right:
        indices, values = np.asarray(x[0]), np.asarray(x[1])
        if indices.shape == values.shape == (0,):
            return np.empty(0, np.int32), np.empty(0)
        right = indices.ndim == 1 and indices.shape == values.shape
        right = right and indices.dtype.kind in "iu" and values.dtype.kind in "biuf"
    if not right:
        raise ValueError(
            f"x as a tuple must be (indices, values), integers and numbers of equal length, got {x!r:.60}."
        )
    if indices.min() < 0 or indices.max() > LAST:
        raise ValueError(f"The indices of x must be in [0, {LAST}], got {indices.min()} to {indices.max()}.")
    order = np.argsort(indices, kind="stable")
    indices = indices[order].astype(np.int32)
    if (indices[1:] == indices[:-1]).any():
        raise ValueError(f"The indices of x must be distinct, got {indices[1:][indices[1:] == indices[:-1]][0]} twice.")
    return indices, values[order].astype(np.float64)


# -- tables


def encoded(model: Any, x: Any, *, reset: bool, learn: bool) -> Any:
    """Return a table with columns of text, dates or times as numbers, and None for rows that need no encoding.

    If the first table needed encoding, all later ones are encoded too. With `learn`, record the names of their values.
    """
    if reset and _needs_encoding(x):
        try:
            from robustfd.streams import TableEncoder
        except ImportError as error:
            raise ImportError(
                "A table with text, dates or times needs pyarrow: pip install 'robustfd[arrow]'."
            ) from error
        model._encoder = TableEncoder.learn(x)
        model.feature_names_in_ = np.array(model._encoder.column_names, dtype=object)
        model.n_features_in_ = len(model.feature_names_in_)
    if not hasattr(model, "_encoder") or (not is_table(x) and _has_only_numbers(model._encoder)):
        return None
    if not is_table(x):
        name, found = type(model).__name__, type(x).__name__
        raise ValueError(
            f"X must be a table, as {name} was started with a table that has non-numeric columns, got {found}."
        )
    return _encoded_rows(model, x, learn=learn)


def width_of(model: Any) -> int:
    """Return the number of features that the learner sees. A table with text or dates has more of them than columns."""
    return int(model._encoder.n_features if hasattr(model, "_encoder") else model.n_features_in_)


def _encoded_rows(model: Any, x: Any, *, learn: bool) -> Any:
    """Return a table, or a list with a dict, as rows of numbers."""
    expanded = getattr(model, "expand", None) is not None
    if not learn and not expanded:
        return model._encoder.encode(x)[0]
    block, encoder = model._encoder.encode_named(x, codes=expanded)
    if learn:
        model._encoder = encoder
    return block.X


def _has_only_numbers(encoder: Any) -> bool:
    """Return whether an array can stand for a table: each of its columns is one number."""
    return all(column.kind == NUMBER for column in encoder._layout.columns)


def _needs_encoding(x: Any) -> bool:
    """Return whether x is a table with non-numeric columns, or one that numpy cannot read."""
    if not is_table(x):
        return False
    if hasattr(x, "schema") and not hasattr(x, "dtypes"):  # pyarrow
        return True
    return not all(_is_number(dtype) for dtype in x.dtypes)


def _is_number(dtype: Any) -> bool:
    """Return whether a pandas or polars column is numeric or boolean."""
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


# -- missing values: an indicator feature for each column that has contained NaN


def _missing_entries(x: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and column indices of missing values in row order."""
    values = (x.data if sp.issparse(x) else x).reshape(-1)
    if isfinite(values.dot(values)):  # the usual case, in one pass
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.flatnonzero(np.isnan(values))
    if not sp.issparse(x):
        return at // x.shape[1], at % x.shape[1]
    return np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at].astype(np.int64)


def first_missing(x: Any, known: list[int]) -> list[tuple[int, list[int]]]:
    """Return (row, columns) pairs where a column not in `known` has its first missing value."""
    rows, columns = _missing_entries(x)
    if not len(rows):
        return []
    _, first = np.unique(columns, return_index=True)
    found: dict[int, list[int]] = {}
    for at in np.sort(first):
        if columns[at] not in known:
            found.setdefault(int(rows[at]), []).append(int(columns[at]))
    return list(found.items())


def with_indicators(x: Any, known: list[int]) -> Any:
    """Return x with an indicator column appended for each column in `known`: 1 where it is missing, else 0."""
    n, d = x.shape
    if not known:
        return x
    if not sp.issparse(x):
        return np.hstack([x, np.isnan(x[:, known])])
    rows, columns = _missing_entries(x)
    place = np.full(d, -1)
    place[known] = d + np.arange(len(known))
    rows, columns = rows[place[columns] >= 0], place[columns][place[columns] >= 0]
    more = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, d + len(known)))
    return sp.csr_array((x.data, x.indices, x.indptr), shape=more.shape) + more


def rows_to_read(x: Any, known: list[int]) -> Iterator[tuple[slice, Any]]:
    """Yield slices and blocks of rows with the indicators of the columns in `known`."""
    for part, block in blocks(x, sparse=sp.issparse(x)):
        yield part, with_indicators(as_rows(block, sparse=sp.issparse(x)), known)


def rows_to_learn(model: Any, x: Any, widen: Callable[..., None]) -> Iterator[tuple[slice, Any]]:
    """Yield slices and blocks of rows with indicators. `widen` adds features to the learner for new indicators.

    A column gets an indicator exactly at the row of its first missing value, so the batch sizes do not matter.
    """
    for part, block in blocks(x, sparse=sp.issparse(x)):
        rows, begin = as_rows(block, sparse=sp.issparse(x)), 0
        for end, columns in [*first_missing(rows, model._missing), (rows.shape[0], [])]:
            if end > begin:
                some = rows if end - begin == rows.shape[0] else rows[begin:end]
                yield slice(part.start + begin, part.start + end), with_indicators(some, model._missing)
                begin = end
            if columns:
                model._missing = [*model._missing, *columns]
                widen(width_of(model) + len(model._missing), growing=False)


def as_matrix(x: Any) -> Any:
    """Return a single row in CSR format as a matrix, and other rows unchanged."""
    return sp.csr_array((x.data, x.indices, x.indptr), shape=x.shape) if type(x) is CsrRows else x


def normalized(x: Any) -> Any:
    """Return the rows divided by their Euclidean norms. Rows of zeros are unchanged."""
    # Divide by the largest entry first, so that squares neither underflow nor overflow.
    if sp.issparse(x):
        x = _divided(sp.csr_array(x, dtype=np.float64), np.abs(x).max(axis=1).toarray().ravel())
        row = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
        return _divided(x, np.sqrt(np.bincount(row, x.data * x.data, x.shape[0])))
    x = np.asarray(x, np.float64)
    x = _divided(x, np.abs(x).max(axis=1, initial=0.0))
    return _divided(x, np.linalg.norm(x, axis=1))


def _divided(x: Any, lengths: Floats) -> Any:
    """Return the rows divided by their lengths, where these are positive."""
    lengths = np.where(lengths > 0, lengths, 1.0)
    if sp.issparse(x):
        return sp.csr_array((x.data / np.repeat(lengths, np.diff(x.indptr)), x.indices, x.indptr), shape=x.shape)
    return x / lengths[:, None]
