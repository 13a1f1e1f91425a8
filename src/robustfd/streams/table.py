"""The common base of CSV, Parquet and Arrow streams: columns of numbers and text as blocks of rows."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from robustfd.streams._base import Block, Position, Stream
from robustfd.streams._columns import as_codes, can_be, kind_of, with_empty
from robustfd.streams._convert import Converter, Piece
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._layout import (
    KINDS,
    MOST_VALUES,
    NUMBER,
    TEXT,
    Layout,
    chosen,
    listed,
    place,
    places_of,
    too_many_values,
)
from robustfd.streams.pyarrow_modules import named_errors, pa


class Schema(NamedTuple):
    """The names and the Arrow types of the columns of a file."""

    names: list[str]
    types: list[Any]


class TableStream(Stream):
    """Rows of tables. X is an array if all features are numbers, else a CSR matrix.

    A text column is categorical. By default the value v of the column c is the feature "c=v", which has the column and
    the sign of scikit-learn's `FeatureHasher`. With `categories="onehot"` each value has its own column. Empty text has
    no entry. A column of dates or times becomes several numbers (`_times.py`).
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        target: str | int | tuple[str, ...] | None = None,
        columns: list[str | int] | None = None,
        categories: Literal["hash", "onehot"] | None = None,
        hash_bits: int | None = None,
        missing: Literal["error", "zero", "nan"] = "error",
        unseen: Literal["error", "drop"] = "error",
        layout: dict[str, Any] | None = None,
        weight: str | int | None = None,
        id: str | int | None = None,
        drop: list[str | int] | None = None,
        **common: Any,
    ):
        super().__init__(inputs, **common)
        self._given = None if layout is None else Layout.from_json(layout)
        settings = {"columns": columns, "categories": categories, "hash_bits": hash_bits, "drop": drop}
        for name, value in settings.items():
            if layout is not None and value is not None:
                raise ValueError(
                    f"{name}={value!r:.100} cannot be combined with a layout, which already defines the columns."
                )
        if categories == "onehot" and hash_bits is not None:
            raise ValueError(f"categories='onehot' and hash_bits={hash_bits}: give one of them only.")
        self._first = self._schema(0)
        if not self._first.names:
            raise StreamError(f"{self.inputs[0].name} has no columns.")
        if isinstance(target, tuple):
            target = next((name for name in self._first.names if name.lower() in target), None)
        roles = {"target": target, "weight": weight, "id": id}
        self._needed = {role for role, which in roles.items() if which is not None}
        if self._given is not None:
            named: dict[str, Any] = {role: self._named(roles[role], role) for role in self._needed}
            self._layout = replace(self._given, **named)
        else:
            kinds = [kind_of(each) for each in self._first.types]
            self._layout = chosen(self._first.names, kinds, columns, hash_bits, roles, drop or ())
        self._places(0, self._first)
        if categories == "onehot" and self._layout.texts:
            self._layout = self._layout.with_values(self._values(empty=missing == "nan"))
            if not self._layout.n_features:
                raise StreamError(f"{self._names()}: no column of features has a value.")
        self._converter = Converter(self._layout, missing=missing, drop=unseen == "drop")
        self.n_features = self._layout.n_features

    @abstractmethod
    def _schema(self, file: int) -> Schema:
        """Return the columns of an input."""

    @abstractmethod
    def _pieces(self, start: Position) -> Iterator[Piece]:
        """Yield the rows after a position."""

    @property
    def layout(self) -> dict[str, Any]:
        """How the columns of the table become columns of X, as a JSON document."""
        return self._layout.to_json()

    def feature_name(self, column: int) -> str:
        """Return the name of a column: a name or number, "name=value", or "hash" and a number."""
        return self._layout.feature_name(column)

    def _named(self, which: Any, role: str) -> str:
        """Return the name of a column of the first input."""
        return self._first.names[place(self._first.names, which, role)]

    def _places(self, file: int, schema: Schema) -> tuple[list[int], dict[str, int]]:
        """Return the places of the features of an input, and of its columns of labels, weights and ids."""
        names, layout, name = schema.names, self._layout, self.inputs[file].name
        if self._given is None and sorted(names) != sorted(self._first.names):
            others = f"{self.inputs[0].name} has others: {listed(self._first.names)}"
            raise StreamError(f"{name} has the columns {listed(names)}, and {others}.")
        count, where = Counter(names), places_of(names)
        roles = {role: each for role, each in layout.roles.items() if role in self._needed or each in where}
        for wanted in [*(each.name for each in layout.columns), *roles.values()]:
            if count[wanted] != 1:
                number = "more than one column" if count[wanted] else "no column"
                raise StreamError(f"{name} has {number} {wanted!r}; its columns are {listed(names)}.")
        for column in layout.columns:
            type_ = schema.types[where[column.name]]
            if kind_of(type_) is None:
                self._refuse(file, column.name, type_, KINDS)
            if not can_be(column.kind, type_):
                raise StreamError(
                    f"{name}: the column {column.name!r} is of type {type_}, and should be a {column.kind}."
                )
        for role, each in roles.items():
            if role != "id" and kind_of(schema.types[where[each]]) not in (NUMBER, TEXT):
                self._refuse(file, each, schema.types[where[each]], (NUMBER, TEXT))
        return [where[each.name] for each in layout.columns], {role: where[each] for role, each in roles.items()}

    def _refuse(self, file: int, column: str, type_: Any, kinds: tuple[str, ...]) -> None:
        """Raise the error about a column of an unsupported type."""
        known = ", ".join(kinds)
        raise StreamError(
            f"{self.inputs[file].name}: the column {column!r} is of type {type_}, which is not one of {known}. "
            "Exclude it with drop= or columns=, or convert it."
        )

    def _values(self, *, empty: bool) -> list[list[str]]:
        """Read all rows once, and return the sorted values of each text column, with "" for null if `empty`."""
        self._require_rereading()
        found: list[set[str]] = [set() for _ in self._layout.texts]
        for piece in self._pieces(Position()):
            texts = [array for array, column in zip(piece.features, self._layout.columns) if column.text]
            with named_errors(self.inputs[piece.position.file].name):
                for values, array in zip(found, texts):
                    codes, distinct = with_empty(*as_codes(array)) if empty else as_codes(array)
                    values.update(distinct.take(pa.array(np.unique(codes[codes >= 0]))).to_pylist())
            if sum(map(len, found)) > MOST_VALUES:
                raise too_many_values(self._names())
        return [sorted(values) for values in found]

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        rows, skipped, dropped = start.rows, start.skipped, start.dropped
        self._converter.groups, self._converter.seen_names = self.groups, self.seen_names
        for piece in self._pieces(start):
            with named_errors(self.inputs[piece.position.file].name):
                block, bad, unseen = self._converter.block(piece)
            for _, message in sorted(bad):
                self._bad_row(message)
            rows, skipped, dropped = rows + block.X.shape[0], skipped + len(bad), dropped + unseen
            yield block, replace(piece.position, rows=rows, skipped=skipped, dropped=dropped)
