"""Columns of a table to blocks of rows, by a layout."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd.streams._base import Block, Position
from robustfd.streams._columns import as_codes, as_floats, as_labels, hashed, is_single, sparse_rows
from robustfd.streams._layout import Layout
from robustfd.streams._pyarrow import pa, pc


class Piece(NamedTuple):
    """Some rows of a file: its columns of features, in the order of the layout, and that of labels."""

    features: list[Any]
    target: Any
    position: Position  # behind them, but for rows, skipped and dropped
    message: Callable[[int, str], tuple[int, str]]  # for what is wrong with a row: something to sort by, and the text
    bad: list[tuple[int, str]]  # rows that are left out already


class Converter:
    """Makes blocks of columns: `fill` takes missing numbers for 0, `drop` passes over values that have no column."""

    def __init__(self, layout: Layout, *, fill: bool, drop: bool):
        self._layout, self._fill, self._drop = layout, fill, drop

    def block(self, piece: Piece) -> tuple[Block, list[tuple[int, str]], int]:
        """Return rows, messages about those left out, and how many values have no column."""
        n, wrong = len(piece.features[0]), _Wrong()
        x = self._numbers(piece, n, wrong)
        y, codes, unknown = None, np.empty((0, n), np.int64), np.zeros(n, np.int64)
        if piece.target is not None:
            y, without = as_labels(piece.target)
            wrong.add(without, f"the target, column {self._layout.target!r}, is missing or not finite")
        if self._layout.texts:
            codes, columns, signs = self._codes(piece, n, unknown, wrong)
        if wrong.rows:
            keep = np.ones(n, bool)
            keep[list(wrong.rows)] = False
            x, y, codes, unknown = x[keep], None if y is None else y[keep], codes[:, keep], unknown[keep]
        if self._layout.texts:
            x = _sparse(x, codes, columns, signs, self._layout.n_features)
        return Block(x, y), piece.bad + [piece.message(*each) for each in wrong.rows.items()], int(unknown.sum())

    def _numbers(self, piece: Piece, n: int, wrong: "_Wrong") -> Any:
        """Return the columns of numbers as an array of rows."""
        pairs = [(array, column.name) for array, column in zip(piece.features, self._layout.columns) if not column.text]
        single = not self._layout.texts and all(is_single(array) for array, _ in pairs)
        x = np.empty((n, len(pairs)), np.float32 if single else np.float64)
        for j, (array, name) in enumerate(pairs):
            x[:, j], no_number = as_floats(array)
            if no_number is not None:
                wrong.add(no_number, f"the column {name!r} should be a number")
        if not np.isfinite(x).all():
            empty = np.isnan(x)
            for j in np.flatnonzero(~np.isfinite(x).all(axis=0)).tolist():
                name = pairs[j][1]
                if not self._fill:
                    wrong.add(empty[:, j], f"the column {name!r} is missing (missing='zero' takes it for 0)")
                wrong.add(np.isinf(x[:, j]), f"the column {name!r} is not finite")
            x[empty] = 0
        return x

    def _codes(self, piece: Piece, n: int, unknown: Any, wrong: "_Wrong") -> tuple[Any, list[Any], list[Any]]:
        """Return for each column of text the codes of its rows, and for each code a column of X and a value."""
        pairs = [(array, column) for array, column in zip(piece.features, self._layout.columns) if column.text]
        codes, columns, signs = np.empty((len(pairs), n), np.int64), [], []
        for t, (array, column) in enumerate(pairs):
            codes[t], values = as_codes(array)
            if column.values is None:
                places, sign = hashed(column.name, values, self._layout.hash_bits or 0)
            else:
                values = values.cast(pa.string())
                places = pc.index_in(values, value_set=pa.array(column.values, pa.string())).fill_null(-1)
                places = places.to_numpy(zero_copy_only=False).astype(np.int64)
                sign = np.ones(len(places))
                unseen = (codes[t] >= 0) & (np.append(places, 0)[codes[t]] < 0)
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


def _sparse(numbers: Any, codes: Any, columns: list[Any], signs: list[Any], width: int) -> Any:
    """Return rows of numbers and of text as a CSR matrix."""
    n, most = numbers.shape[0], numbers.size + codes.size
    starts, places, values = np.zeros(n + 1, np.int32), np.empty(most, np.int32), np.empty(most)
    bases = np.cumsum([0, *map(len, columns)])
    end = sparse_rows(numbers, codes, bases, np.concatenate(columns), np.concatenate(signs), starts, places, values)
    x = sp.csr_matrix((values[:end], places[:end], starts), shape=(n, width))
    x.has_canonical_format = True
    return x
