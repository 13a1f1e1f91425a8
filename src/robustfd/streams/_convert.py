"""Columns of a table to blocks of rows, by a layout."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd.streams._base import Block, Position
from robustfd.streams._columns import (
    as_codes,
    as_floats,
    as_labels,
    as_text,
    hashed,
    is_single,
    sparse_rows,
    with_empty,
)
from robustfd.streams._layout import NUMBER, Layout
from robustfd.streams._times import parts
from robustfd.streams.pyarrow_modules import pa, pc
from robustfd.streams.seen_names import SeenNames

_WHAT_TO_DO = "missing='zero' takes it for 0, drop=[{!r}] leaves the column out, on_error='skip' such rows"


class Piece(NamedTuple):
    """Some rows of a file: its columns of features, in the order of the layout, and those of labels, weights, ids."""

    features: list[Any]
    roles: dict[str, Any]
    position: Position  # behind them, but for rows, skipped and dropped
    message: Callable[[int, str], tuple[int, str]]  # for what is wrong with a row: something to sort by, and the text
    bad: list[tuple[int, str]]  # rows that are left out already


class Converter:
    """Makes blocks of columns.

    `missing` says what becomes of a number that is missing: an "error", "zero", or "nan". With "nan" text that is
    missing is the category "", else it has no entry. `drop` passes over values that have no column.
    """

    def __init__(self, layout: Layout, *, missing: str, drop: bool):
        self._layout, self._missing, self._drop = layout, missing, drop
        self.groups: tuple[str, ...] = ()  # names of columns of text whose entries blocks shall have as parts
        self.seen_names: SeenNames | None = None

    def block(self, piece: Piece) -> tuple[Block, list[tuple[int, str]], int]:
        """Return rows, messages about those left out, and how many values have no column."""
        n, wrong = len(piece.features[0]), _Wrong()
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

    def _roles(self, piece: Piece, wrong: "_Wrong") -> dict[str, Any]:
        """Return labels, weights and ids, those that there are."""
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

    def _numbers(self, piece: Piece, n: int, wrong: "_Wrong") -> Any:
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

    def _not_finite(self, x: Any, wrong: "_Wrong") -> None:
        """Take note of numbers that are missing, unless they may be, and of infinite ones."""
        empty = np.isnan(x)
        for j in np.flatnonzero(~np.isfinite(x).all(axis=0)).tolist():
            name = self._layout.numbers[j][0].name
            if self._missing == "error":
                wrong.add(empty[:, j], f"the column {name!r} is missing ({_WHAT_TO_DO.format(name)})")
            wrong.add(np.isinf(x[:, j]), f"the column {name!r} is not finite")
        if self._missing != "nan":
            x[empty] = 0

    def _codes(self, piece: Piece, n: int, unknown: Any, wrong: "_Wrong") -> tuple[Any, list[Any], list[Any]]:
        """Return for each column of text the codes of its rows, and for each code a column of X and a value."""
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
                if self._missing == "nan":  # that there is no value is nothing new
                    empty = pc.equal(values, "").fill_null(False).to_numpy(zero_copy_only=False)
                    codes[t, unseen & np.append(empty, False)[codes[t]]] = -1
                    unseen &= codes[t] >= 0
                if not self._drop:
                    wrong.add(
                        unseen, f"the column {column.name!r} has a value that is new (unseen='drop' leaves it out)"
                    )
                unknown += unseen
                codes[t, unseen] = -1
            places += self._layout.starts[t]
            columns.append(places)
            signs.append(sign)
        return codes, columns, signs


class _Wrong:
    """What is wrong with which rows; of several things the first."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def add(self, mask: Any, reason: str) -> None:
        """Take note of the rows of a mask."""
        for row in np.flatnonzero(mask).tolist():
            self.rows.setdefault(row, reason)


def _part(codes: Any, columns: Any, signs: Any, width: int) -> Any:
    """Return the entries of one column of text as a CSR matrix."""
    there = codes >= 0
    starts = np.concatenate((np.zeros(1, np.int32), np.cumsum(there, dtype=np.int32)))
    entries = (signs[codes[there]], columns[codes[there]].astype(np.int32), starts)
    return sp.csr_matrix(entries, shape=(len(codes), width))


def _sparse(numbers: Any, codes: Any, columns: list[Any], signs: list[Any], width: int) -> Any:
    """Return rows of numbers and of text as a CSR matrix."""
    n, most = numbers.shape[0], numbers.size + codes.size
    starts, places, values = np.zeros(n + 1, np.int32), np.empty(most, np.int32), np.empty(most)
    bases = np.cumsum([0, *map(len, columns)])
    end = sparse_rows(numbers, codes, bases, np.concatenate(columns), np.concatenate(signs), starts, places, values)
    x = sp.csr_matrix((values[:end], places[:end], starts), shape=(n, width))
    x.has_canonical_format = True
    return x
