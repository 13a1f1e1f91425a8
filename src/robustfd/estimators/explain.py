"""Explanations of predictions: what each feature, or each column of a table, adds to them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._scipy import scipy_sparse as sp
from robustfd._validation import check_choice
from robustfd.estimators._cells import Owners, cells_of, owners_of
from robustfd.estimators._rows import IS_MISSING, kind_of, rows_to_read, single_row
from robustfd.learners.expansion import by_feature as by_feature_of
from robustfd.learners.rows import Floats, check_numbers, plain_rows, sparse_rows
from robustfd.streams import is_table
from robustfd.streams.layout import Layout, SeenName

REST = "(intercept)"  # the name of what no feature explains
MOST_CELLS = 2**27  # numbers in a table by value, one gigabyte


def contributions(model: Any, X: Any, *, by: str, intercept: bool) -> list[Any]:
    """Return for each output an array or a table with the contributions to the predictions of rows."""
    check_choice("by", by, ("column", "value"))
    check_choice("intercept", intercept, (True, False))
    if not (hasattr(model, "_encoder") and is_table(X)):
        x = model._checked(X)
        found = by_feature(model, x)
        names = getattr(X, "column_names", getattr(X, "columns", None)) if is_table(X) else None
    else:
        x, found, names = _of_table(model, X, by)
    if intercept:
        found = [_with_column(each, rest) for each, rest in zip(found, rests(model, x, found).T, strict=True)]
        names = None if names is None else [*names, REST]
    return found if names is None else [_like(X, each, names) for each in found]


def contributions_of_one(model: Any, x: Any, *, by: str, intercept: bool) -> list[dict[Any, float]]:
    """Return for each output the contributions to the prediction of a single row, by name or index."""
    check_choice("by", by, ("column", "value"))
    check_choice("intercept", intercept, (True, False))
    kind = kind_of(model, x)
    names: list[Any]
    if kind == "rows" and isinstance(x, Mapping) and hasattr(model, "_encoder"):
        row, found, names = _of_table(model, [x], by)
    elif kind == "rows":
        row = single_row(model, x, kind, known_only=True)[0]
        found, names = by_feature(model, row), list(getattr(model, "feature_names_in_", range(model._width)))
    else:
        row = single_row(model, x, kind, known_only=True)[0]
        parts = _parts(model, row)
        which = np.unique(np.concatenate([each.indices for each in parts]))
        found, names = [each[:, which].toarray() for each in parts], which.tolist()
        if kind == "dicts":
            every = list(model._vocabulary)
            names = [_key_of(every[j], x) if by == "column" else every[j] for j in which.tolist()]
        elif model._kind == "rows":  # an index stands for a column, with the indicator of its missing values
            names = [model._missing[j - model._width] if j >= model._width else j for j in which.tolist()]
    totals: list[dict[Any, float]] = [
        dict.fromkeys(x, 0.0) if kind == "dicts" and by == "column" else {} for _ in found
    ]
    for total, each in zip(totals, found, strict=True):
        for name, value in zip(names, each[0].tolist(), strict=True):
            total[name] = total.get(name, 0.0) + value
    if intercept:
        for total, rest in zip(totals, rests(model, row, found)[0].tolist(), strict=True):
            total[REST] = rest
    return totals


def _parts(model: Any, rows: Any, codes: Any = None, texts: Sequence[Any] = ()) -> list[Any]:
    """Return for each output a sparse matrix (n, features) of contributions.

    `codes` are those of columns of text, and `texts` their entries.
    """
    if (own := getattr(model, "_explain", None)) is not None:  # the arm of a bandit
        indptr, which, values = own(rows)
        shape = len(indptr) - 1, int(which.max(initial=-1)) + 1
        return [sp.csr_array((each, which, indptr), shape=shape) for each in values.T]
    if getattr(model, "expand", None) is None or not model._expansion.states:
        return by_feature_of(model._model, rows, rows.shape[0])
    owners = owners_of(model)
    of_features, of_columns = model._expansion.contributions(model._model, rows, cells_of(rows, owners, codes))
    both = zip(of_features, of_columns, strict=True)
    return [each + _of_columns(columns, owners, rows, texts, each.shape[1]) for each, columns in both]


def _of_columns(values: Floats, owners: Owners, rows: Any, texts: Sequence[Any], d: int) -> Any:
    """Return contributions of the columns of trees (n, columns) as contributions of features (n, d).

    Those of a category go to the features of its value in the row.
    """
    n, column, category = len(values), np.array(owners.column, np.int64), np.array(owners.category, bool)
    numbers = np.flatnonzero((column >= 0) & ~category[column])
    total = sp.csr_array(sp.csr_array(values[:, column[numbers]]) @ _selection(numbers, d))
    for k, place in enumerate(np.flatnonzero(category)):
        if texts:
            some = sp.csr_array(texts[k])
        else:
            x = sp.csr_array(sparse_rows(plain_rows(rows))[:3], shape=(n, d))
            some = x[:, np.flatnonzero(column == place)] @ _selection(np.flatnonzero(column == place), d)
        some = sp.csr_array((np.ones(len(some.indices)), some.indices, some.indptr), shape=(n, some.shape[1]))
        some.resize((n, d))
        count = np.maximum(np.diff(some.indptr), 1)
        total = total + sp.csr_array(some.multiply((values[:, place] / count)[:, None]))
    return total


def _selection(which: NDArray[np.int64], d: int) -> Any:
    """Return the matrix that puts columns 0, 1, ... at the places `which` of d."""
    return sp.csr_array((np.ones(len(which)), (np.arange(len(which)), which)), shape=(len(which), d))


def by_feature(model: Any, x: Any, texts: Sequence[Any] = ()) -> list[Any]:
    """Return for each output the contributions of features (n, d), sparse if x is; `texts` as in `_parts`."""
    d, sparse, outputs = model._width, sp.issparse(x), 1 if hasattr(model, "_explain") else model._model.outputs
    found: list[list[Any]] = [[sp.csr_array((0, d)) if sparse else np.empty((0, d))] for _ in range(outputs)]
    codes = getattr(x, "codes", None)
    for here, rows in rows_to_read(x, model._missing):
        more = None if codes is None else codes[here], [text[here] for text in texts]
        for each, parts in zip(found, _parts(model, rows, *more), strict=True):
            columns = np.append(np.arange(d), model._missing)[parts.indices].astype(np.int64)
            sums = sp.csr_array((parts.data.copy(), columns, parts.indptr.copy()), shape=(rows.shape[0], d))
            sums.sum_duplicates()
            each.append(sums if sparse else sums.toarray())
    return [sp.vstack(each, "csr") if sparse else np.vstack(each) for each in found]


def rests(model: Any, x: Any, found: list[Any]) -> Floats:
    """Return what the contributions leave of the predictions (n, outputs), or of their logarithms for counts."""
    margins = model._finite_margins(x)
    loss = model._number_loss()
    sums = [np.asarray(each.sum(axis=1)).reshape(-1) for each in found]
    return (np.log(margins) if loss is not None and loss.counts else margins) - np.column_stack(sums)


def _with_column(values: Any, column: Floats) -> Any:
    """Return an array or a sparse array with one more column."""
    return sp.hstack([values, column[:, None]], "csr") if sp.issparse(values) else np.column_stack([values, column])


def _key_of(name: Any, x: Mapping[Any, Any]) -> Any:
    """Return the key of the dicts that a feature belongs to: "c" for "c", "c=value" and "c is missing"."""
    if name in x or not isinstance(name, str):
        return name
    return name.removesuffix(IS_MISSING) if name.endswith(IS_MISSING) else name.partition("=")[0]


# -- tables


def _of_table(model: Any, table: Any, by: str) -> tuple[Any, list[Any], list[str]]:
    """Return the encoded rows of a table, their contributions by column or by value, and the names of these."""
    expanded = getattr(model, "expand", None) is not None
    block, encoder = model._encoder.encode_named(table, parts=True, codes=expanded)
    x = block.X
    check_numbers(x, missing=True)
    found = by_feature(model, x, block.parts)
    if by == "column":
        columns = by_column(encoder._layout, encoder._names, found, block.parts)
        return x, columns, encoder.column_names
    if not sp.issparse(x):
        return x, found, [encoder.feature_name(j) for j in range(encoder.n_features)]
    first = len(encoder._layout.numbers)
    used = np.unique(np.concatenate([each.indices for each in found]))
    names = {j: encoder.feature_name(j) for j in [*range(first), *used[used >= first].tolist()]}
    order = [*range(first), *sorted(list(names)[first:], key=lambda j: (names[j], j))]
    if x.shape[0] * len(order) > MOST_CELLS:
        raise ValueError(
            f"X must have fewer rows for by='value', got {x.shape[0]} rows, which have {len(order)} values. "
            "Explain some rows at a time, or use by='column'."
        )
    return x, [each[:, order].toarray() for each in found], [names[j] for j in order]


def by_column(layout: Layout, names: Mapping[int, SeenName], found: list[Any], parts: Sequence[Any]) -> list[Floats]:
    """Return contributions of features (n, d), for each output, as contributions of the columns of their table.

    `parts` has the entries of each column of text. Columns whose values share a hashed feature share its contribution.
    A usual value that a row does not have contributes to the column that its name begins with.
    """
    place = {column.name: k for k, column in enumerate(layout.columns)}
    first, width = len(layout.numbers), layout.n_features
    owner = [place[column.name] for column, _ in layout.numbers]
    groups = sp.csr_array((np.ones(first), (np.arange(first), owner)), shape=(first, len(place)))
    entries = [sp.csr_array(abs(part)) for part in parts]
    total = sp.csr_array(sum(entries, sp.csr_array((found[0].shape[0], width))))
    total.eliminate_zeros()  # two words of a cell may have the same hash and opposite signs
    shares = sp.csr_array((1.0 / total.data, total.indices, total.indptr), shape=total.shape)
    results = []
    for values in found:
        columns = np.asarray((values[:, :first] @ groups).toarray() if sp.issparse(values) else values @ groups)
        for column, part in zip(layout.texts, entries, strict=True):
            columns[:, place[column.name]] += values.multiply(part.multiply(shares)).sum(axis=1)
        if layout.texts:
            absent = values[:, first:]
            absent = sp.coo_array(absent - absent.multiply(total[:, first:] > 0))
            owners = {j: place[_owner(layout, names, j)] for j in np.unique(absent.col).tolist()}
            np.add.at(columns, (absent.row, [owners[j] for j in absent.col.tolist()]), absent.data)
        results.append(columns)
    return results


def _owner(layout: Layout, names: Mapping[int, SeenName], number: int) -> str:
    """Return the column of text that a feature belongs to, by its name."""
    name = layout.feature_name(number + len(layout.numbers), names)
    columns = [column.name for column in layout.texts]
    return max((each for each in columns if name.startswith(each)), key=len, default=columns[0])


def _like(table: Any, values: Floats, names: Sequence[Any]) -> Any:
    """Return numbers as a table of the same library, with the same index."""
    kind = type(table).__module__.partition(".")[0]
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(values, index=table.index, columns=names)
    if kind == "polars":
        return type(table)(dict(zip(names, np.ascontiguousarray(values.T), strict=True)))
    import pyarrow as pa

    return pa.table(list(np.ascontiguousarray(values.T)), names=list(names))
