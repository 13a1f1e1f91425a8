"""Blocks of rows from columns of a table, by a layout."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd._core import table_rows
from robustfd.streams._base import Block, Position
from robustfd.streams._columns import (
    as_codes,
    as_floats,
    as_labels,
    as_text,
    hashed,
    is_single,
    with_empty,
)
from robustfd.streams._layout import NUMBER, Layout
from robustfd.streams._times import parts
from robustfd.streams.pyarrow_modules import pa, pc
from robustfd.streams.seen_names import SeenNames

_ADVICE = "missing='zero' reads it as 0, drop=[{!r}] ignores the column, on_error='skip' skips such rows"


class Piece(NamedTuple):
    """Some rows of a file: columns of features, in the order of the layout, and of labels, weights and ids."""

    features: list[Any]
    roles: dict[str, Any]
    position: Position  # after these rows; the counts of rows, skipped and dropped are not set
    message: Callable[[int, str], tuple[int, str]]  # from a row and a reason to a sort key and a message
    bad: list[tuple[int, str]]  # rows that are already left out


class Converter:
    """Converts columns to blocks.

    `missing` decides how to treat a missing number: "error", "zero", or "nan". With "nan", missing text is the category
    ""; otherwise it has no entry. With `drop`, values without a column are ignored.
    """

    def __init__(self, layout: Layout, *, missing: str, drop: bool):
        self._layout, self._missing, self._drop = layout, missing, drop
        self.groups: tuple[str, ...] = ()  # text columns whose entries become the parts of blocks
        self.seen_names: SeenNames | None = None

    def block(self, piece: Piece) -> tuple[Block, list[tuple[int, str]], int]:
        """Return the block, messages about bad rows, and the number of values without a column."""
        n, wrong = len(piece.features[0]), _BadRows()
        x = self._numbers(piece, n, wrong)
        others = self._roles(piece, wrong)
        codes, unknown = np.empty((0, n), np.int64), np.zeros(n, np.int64)
        if self._layout.texts:
            codes, columns, signs = self._codes(piece, n, unknown, wrong)
        if wrong.rows:
            keep = np.ones(n, bool)
            keep[list(wrong.rows)] = False
            x, codes, unknown = x[keep], codes[:, keep], unknown[keep]
            others = {role: values[keep] for role, values in others.items()}
        entries: tuple[Any, ...] = ()
        if self._layout.texts:
            texts = [column.name for column in self._layout.texts]
            x = _sparse(x, codes, columns, signs, width := self._layout.n_features)
            entries = tuple(_part(codes[t], columns[t], signs[t], width) for t in map(texts.index, self.groups))
        block = Block(x, others.get("target"), others.get("weight"), others.get("id"), entries)
        return block, piece.bad + [piece.message(*each) for each in wrong.rows.items()], int(unknown.sum())

    def _roles(self, piece: Piece, wrong: "_BadRows") -> dict[str, Any]:
        """Return labels, weights and ids, as far as the table has them."""
        found = {}
        for role, array in piece.roles.items():
            name = getattr(self._layout, role)
            if role == "target":
                found[role], without = as_labels(array)
                wrong.add(without, f"the target, column {name!r}, is missing or not finite")
            elif role == "weight":
                found[role], no_number = as_floats(array)
                bad = ~(np.isfinite(found[role]) & (found[role] >= 0))
                wrong.add(
                    bad if no_number is None else bad | no_number,
                    f"the weight, column {name!r}, should be a number >= 0",
                )
            else:
                found[role] = as_text(array)
        return found

    def _numbers(self, piece: Piece, n: int, wrong: "_BadRows") -> Any:
        """Return the columns of numbers, dates and times as an array of rows."""
        pairs = [(array, column) for array, column in zip(piece.features, self._layout.columns) if not column.text]
        single = not self._layout.texts and all(is_single(array) for array, _ in pairs)
        x = np.empty((n, len(self._layout.numbers)), np.float32 if single else np.float64)
        j = 0
        for array, column in pairs:
            width = len(column.parts)
            if column.kind == NUMBER:
                x[:, j], misfit = as_floats(array)
            else:
                x[:, j : j + width], misfit = parts(array, column.kind)
            if misfit is not None:
                wrong.add(misfit, f"the column {column.name!r} should be a {column.kind}")
            j += width
        if not np.isfinite(x).all():
            self._not_finite(x, wrong)
        return x

    def _not_finite(self, x: Any, wrong: "_BadRows") -> None:
        """Record rows with missing numbers, if these are errors, and rows with infinite numbers."""
        empty = np.isnan(x)
        for j in np.flatnonzero(~np.isfinite(x).all(axis=0)).tolist():
            name = self._layout.numbers[j][0].name
            if self._missing == "error":
                wrong.add(empty[:, j], f"the column {name!r} is missing ({_ADVICE.format(name)})")
            wrong.add(np.isinf(x[:, j]), f"the column {name!r} is not finite")
        if self._missing != "nan":
            x[empty] = 0

    def _codes(self, piece: Piece, n: int, unknown: Any, wrong: "_BadRows") -> tuple[Any, list[Any], list[Any]]:
        """Return for each text column the codes of its rows, and for each code a column of X and a value."""
        pairs = [(array, column) for array, column in zip(piece.features, self._layout.columns) if column.text]
        codes, columns, signs = np.empty((len(pairs), n), np.int64), [], []
        for t, (array, column) in enumerate(pairs):
            codes[t], values = as_codes(array)
            if self._missing == "nan":
                codes[t], values = with_empty(codes[t], values)
            if column.values is None:
                places, sign = hashed(column.name, values, self._layout.hash_bits or 0)
                if self.seen_names is not None:
                    self.seen_names.add_values(column.name, values, places, sign)
            else:
                values = values.cast(pa.string())
                places = pc.index_in(values, value_set=pa.array(column.values, pa.string())).fill_null(-1)
                places = places.to_numpy(zero_copy_only=False).astype(np.int64)
                sign = np.ones(len(places))
                unseen = (codes[t] >= 0) & (np.append(places, 0)[codes[t]] < 0)
                if self._missing == "nan":  # a missing value is not a new category
                    empty = pc.equal(values, "").fill_null(False).to_numpy(zero_copy_only=False)
                    codes[t, unseen & np.append(empty, False)[codes[t]]] = -1
                    unseen &= codes[t] >= 0
                if not self._drop:
                    wrong.add(unseen, f"the column {column.name!r} has a new value (unseen='drop' ignores it)")
                unknown += unseen
                codes[t, unseen] = -1
            places += self._layout.starts[t]
            columns.append(places)
            signs.append(sign)
        return codes, columns, signs


class _BadRows:
    """The first problem of each bad row."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def add(self, mask: Any, reason: str) -> None:
        """Record a problem of the rows in a mask."""
        for row in np.flatnonzero(mask).tolist():
            self.rows.setdefault(row, reason)


def _part(codes: Any, columns: Any, signs: Any, width: int) -> Any:
    """Return the entries of one text column as a CSR matrix."""
    there = codes >= 0
    starts = np.concatenate((np.zeros(1, np.int32), np.cumsum(there, dtype=np.int32)))
    entries = (signs[codes[there]], columns[codes[there]].astype(np.int32), starts)
    return sp.csr_matrix(entries, shape=(len(codes), width))


def _sparse(numbers: Any, codes: Any, columns: list[Any], signs: list[Any], width: int) -> Any:
    """Return rows of numbers and of text as a CSR matrix."""
    bases = np.cumsum([0, *map(len, columns)])
    rows = table_rows(numbers, np.ascontiguousarray(codes), bases, np.concatenate(columns), np.concatenate(signs))
    x = sp.csr_matrix(rows, shape=(len(numbers), width))
    x.has_canonical_format = True
    return x
