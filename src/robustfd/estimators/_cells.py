"""Columns of trees: the numbers and categories of rows, whatever form the rows have."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustfd._core import murmur3
from robustfd._scipy import scipy_sparse as sp
from robustfd.estimators._rows import IS_MISSING
from robustfd.learners.rows import CsrRows, Floats, plain_rows

MOST_COLUMNS = 1024  # further columns are left to the linear learners


class Owners:
    """The column that each feature belongs to, and the code that it stands for in a category.

    The columns of dicts come from names: "city=Oslo" is a value of the category "city".
    """

    def __init__(self, numbers: int = 0, categories: int = 0):
        """Start with features that are numbers, and with categories that no feature belongs to."""
        self.column = list(range(numbers))  # -1 for none
        self.code = [0.0] * numbers
        self.category = [False] * numbers + [True] * categories
        self.places: dict[tuple[Any, bool], int] = {}  # columns of names

    def add_names(self, names: Iterable[Any], outputs: int) -> None:
        """Add the features with these names."""
        for name in names:
            key, is_value, _ = name.partition("=") if isinstance(name, str) else (name, "", "")
            missing = isinstance(name, str) and name.endswith(IS_MISSING)
            place = None if missing else self.places.get((key, bool(is_value)))
            width = len(self.category) + (outputs - 1) * sum(self.category)
            if place is None and not missing and width < MOST_COLUMNS:
                place = self.places[key, bool(is_value)] = len(self.category)
                self.category.append(bool(is_value))
            self.column.append(-1 if place is None else place)
            self.code.append(1.0 + murmur3(name.encode("utf-8", "surrogatepass")) if is_value else 0.0)

    def places_of(self, other: "Owners") -> NDArray[np.int64]:
        """Return the columns here of the columns of another model, -1 for none."""
        if not other.places:
            return np.arange(len(other.category))
        return np.array([self.places.get(key, -1) for key in other.places], np.int64)


def owners_of(model: Any) -> Owners:
    """Return the owners of the features of a model."""
    if model._kind == "dicts":
        owners = model.__dict__.get("_owners")
        names = model._vocabulary
        if owners is None or len(owners.column) > len(names):
            owners = model.__dict__["_owners"] = Owners()
        owners.add_names(list(names)[len(owners.column) :] if len(owners.column) < len(names) else (), model._outputs)
        return owners
    category = model._expansion.category
    return Owners(int((~category).sum()), int(category.sum()))


def first_columns(model: Any, x: Any) -> NDArray[np.bool_]:
    """Return which columns of trees are categories, before the first rows x of a model."""
    if model._kind == "dicts":
        return np.zeros(0, bool)
    if (codes := getattr(x, "codes", None)) is not None:
        return np.arange(x.numbers + codes.shape[1]) >= x.numbers
    return np.zeros(x.shape[1] if x.shape[1] <= MOST_COLUMNS else 0, bool)


def cells_of(x: Any, owners: Owners, codes: Floats | None = None) -> Floats:
    """Return the cells (n, columns) of rows; `codes` are those of categories that the rows themselves do not have.

    An absent number is 0, and an absent category is missing.
    """
    x = plain_rows(x)
    if not isinstance(x, CsrRows):
        return np.ascontiguousarray(x[:, : len(owners.category)])
    n, entries = len(x.indptr) - 1, slice(int(x.indptr[0]), int(x.indptr[-1]))
    row, feature, data = np.repeat(np.arange(n), np.diff(x.indptr)), x.indices[entries], x.data[entries]
    known = feature < len(owners.column)
    row, feature, data = row[known], feature[known], data[known]
    column = np.array(owners.column, np.int64)[feature]
    some = column >= 0
    row, feature, data, column = row[some], feature[some], data[some], column[some]
    category = np.array(owners.category, bool)
    cells = np.zeros((n, len(category)))
    np.add.at(cells, (row, column), np.where(category[column], np.array(owners.code)[feature], data))
    cells[:, category] = np.where(cells[:, category] == 0.0, np.nan, cells[:, category])
    if codes is not None:
        cells[:, category] = codes
    return cells


def has_rows(cells: Floats, category: NDArray[np.bool_]) -> bool:
    """Return whether `rows_of` makes good rows of these cells: at most half of the text has several words."""
    codes = cells[:, category]
    return bool(np.count_nonzero(codes != np.round(codes)) <= np.count_nonzero(np.isnan(codes)) + codes.size / 2.0)


def rows_of(cells: Floats, category: NDArray[np.bool_], width: int) -> Any:
    """Return the rows, of an array or a table with text, that have these cells, without indicators of missing values.

    Cells of several words, whose code does not say which features they have, are left out.
    """
    if not category.any():
        return np.ascontiguousarray(cells)
    numbers, codes = cells[:, ~category], cells[:, category]
    entries = np.hstack([numbers, np.sign(codes)])
    there = entries != 0.0
    there[:, numbers.shape[1] :] &= codes == np.round(codes)
    places = np.hstack([np.indices(numbers.shape)[1], np.abs(np.nan_to_num(codes)) - 1.0])
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    return sp.csr_array((entries[there], places[there].astype(np.int32), indptr), shape=(len(cells), width))
