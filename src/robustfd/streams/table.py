"""Columns of tables as blocks of rows, by a layout: the common base of CSV, Parquet and Arrow streams."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd._core import table_rows
from robustfd.streams.base import Block, Options, Stream, without
from robustfd.streams.coded import coded, codes_of
from robustfd.streams.columns import (
    as_codes,
    as_floats,
    as_labels,
    as_text,
    as_times,
    can_be,
    distinct_values,
    hashed,
    kind_of,
    named_errors,
    pa,
    pc,
    with_empty,
)
from robustfd.streams.decisions import Decisions, one_reward
from robustfd.streams.inputs import Input, Position, StreamError
from robustfd.streams.layout import KINDS, NUMBER, ROLES, TEXT, Layout, SeenNames, chosen, listed, place, places_of

MOST_VALUES = 100_000  # distinct values of text with a column each
_ADVICE = "missing='zero' reads it as 0, drop=[{!r}] ignores the column, on_error='skip' skips such rows"


class Piece(NamedTuple):
    """Some rows of a file: columns of features, in the order of the layout, and of labels, weights and ids."""

    features: list[Any]
    roles: dict[str, Any]
    end: Position  # after these rows: file, offset, line and stored bytes
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
        self.wants_codes = False

    def block(self, piece: Piece) -> tuple[Block, list[tuple[int, str]], int]:
        """Return the block, messages about bad rows, and the number of values without a column."""
        n, wrong = len(piece.features[0]), _Problems()
        x = self._numbers(piece, n, wrong)
        others = self._roles(piece, wrong)
        unknown, entries = np.zeros(n, np.int64), ()
        if self._layout.texts:
            codes, values = self._codes(piece, n, unknown, wrong)
            x = _sparse(x, codes, values, width := self._layout.n_features)
            texts, none = [column.name for column in self._layout.texts], np.empty((n, 0))
            entries = tuple(_sparse(none, codes[[texts.index(each)]], values, width) for each in self.groups)
            if self.wants_codes:
                each = [_sparse(none, codes[[k]], values, width) for k in range(len(texts))]
                x = coded(x, codes_of(each), len(self._layout.numbers))
        block = Block(x, others.get("target"), others.get("weight"), others.get("id"), entries)
        if "arm" in others:
            block.decisions = Decisions(others["arm"], others.get("probability", np.full(n, np.nan)))
        bad = piece.bad + [piece.message(*each) for each in wrong.items()]
        return without(block, wrong), bad, int(np.delete(unknown, list(wrong)).sum())

    def _roles(self, piece: Piece, wrong: "_Problems") -> dict[str, Any]:
        """Return labels, weights and ids, as far as the table has them."""
        found = {}
        for role, array in piece.roles.items():
            name = f"the {role}, column {getattr(self._layout, role)!r},"
            if role in ("target", "arm"):
                found[role], absent = as_labels(array)
                if "arm" in piece.roles:
                    wrong.add(absent, f"{name} should be a finite number or a name", array)
                else:
                    wrong.add(absent, f"{name} is missing or not finite")
            elif role in ("cost", "probability"):
                values, no_number = as_floats(array)
                values = np.where(np.zeros(len(values), bool) if no_number is None else no_number, np.inf, values)
                right = np.isfinite(values) if role == "cost" else np.isnan(values) | ((values > 0) & (values <= 1))
                wrong.add(~right, f"{name} should be {'a finite number' if role == 'cost' else 'in (0, 1]'}", array)
                found |= {"target": 0.0 - values} if role == "cost" else {role: values}
            elif role == "weight":
                found[role], no_number = as_floats(array)
                bad = ~(np.isfinite(found[role]) & (found[role] >= 0))
                wrong.add(bad if no_number is None else bad | no_number, f"{name} should be a number >= 0")
            else:
                found[role] = as_text(array)
        return found

    def _numbers(self, piece: Piece, n: int, wrong: "_Problems") -> Any:
        """Return the columns of numbers, dates and times as an array of rows."""
        pairs = [(array, column) for array, column in zip(piece.features, self._layout.columns) if not column.text]
        single = not self._layout.texts and all(getattr(array, "type", None) == pa.float32() for array, _ in pairs)
        x = np.empty((n, len(self._layout.numbers)), np.float32 if single else np.float64)
        j = 0
        for array, column in pairs:
            width = len(column.parts)
            if column.kind == NUMBER:
                x[:, j], misfit = as_floats(array)
            else:
                x[:, j : j + width], misfit = as_times(array, column.kind)
            if misfit is not None:
                wrong.add(misfit, f"the column {column.name!r} should be a {column.kind}")
            j += width
        if not np.isfinite(x).all():
            self._not_finite(x, wrong)
        return x

    def _not_finite(self, x: Any, wrong: "_Problems") -> None:
        """Record rows with missing numbers, if these are errors, and rows with infinite numbers."""
        empty = np.isnan(x)
        for j in np.flatnonzero(~np.isfinite(x).all(axis=0)).tolist():
            name = self._layout.numbers[j][0].name
            if self._missing == "error":
                wrong.add(empty[:, j], f"the column {name!r} is missing ({_ADVICE.format(name)})")
            wrong.add(np.isinf(x[:, j]), f"the column {name!r} is not finite")
        if self._missing != "nan":
            x[empty] = 0

    def _codes(self, piece: Piece, n: int, unknown: Any, wrong: "_Problems") -> tuple[Any, tuple[Any, Any, Any]]:
        """Return for each text column the codes of its rows, and the entries of the codes, as `table_rows` reads them.

        These are the first entry of each code, and the column of X and the number of each entry.
        """
        pairs = [(array, column) for array, column in zip(piece.features, self._layout.columns) if column.text]
        codes, starts, columns, numbers = np.empty((len(pairs), n), np.int64), [np.zeros(1, np.int64)], [], []
        before = entries = 0  # values of earlier columns, and their entries
        for t, (array, column) in enumerate(pairs):
            codes[t], values = as_codes(array)
            if self._missing == "nan":
                codes[t], values = with_empty(codes[t], values)
            if column.values is None:
                first, places, number = hashed(column.name, values, self._layout.hash_bits or 0)
                if self.seen_names is not None:
                    self.seen_names.add_values(column.name, values, first, places, number)
            else:
                values = values.cast(pa.string())
                places = pc.index_in(values, value_set=pa.array(column.values, pa.string())).fill_null(-1)
                places = places.to_numpy(zero_copy_only=False).astype(np.int64)
                first, number = np.arange(len(places) + 1), np.ones(len(places))
                unseen = (codes[t] >= 0) & (np.append(places, 0)[codes[t]] < 0)
                if self._missing == "nan":  # a missing value is not a new category
                    empty = pc.equal(values, "").fill_null(False).to_numpy(zero_copy_only=False)
                    codes[t, unseen & np.append(empty, False)[codes[t]]] = -1
                    unseen &= codes[t] >= 0
                if not self._drop:
                    wrong.add(unseen, f"the column {column.name!r} has a new value (unseen='drop' ignores it)")
                unknown += unseen
                codes[t, unseen] = -1
            codes[t, codes[t] >= 0] += before
            before += len(first) - 1
            starts.append(first[1:] + entries)
            entries += int(first[-1])
            columns.append(places + self._layout.starts[t])
            numbers.append(number)
        return codes, (np.concatenate(starts), np.concatenate(columns), np.concatenate(numbers))


class _Problems(dict[int, str]):
    """The first problem of each bad row."""

    def add(self, mask: Any, reason: str, column: Any = None) -> None:
        """Record a problem of the rows in a mask, with their values if a column is given."""
        for row in np.flatnonzero(mask).tolist():
            value: Any = None if column is None else column[row]
            value = value.as_py() if hasattr(value, "as_py") else value
            self.setdefault(row, reason if column is None else f"{reason}, got {value}")


def _sparse(numbers: Any, codes: Any, values: tuple[Any, Any, Any], width: int) -> Any:
    """Return rows of numbers and of text as a CSR matrix."""
    x = sp.csr_matrix(table_rows(numbers, np.ascontiguousarray(codes), *values), shape=(len(numbers), width))
    x.has_canonical_format = True
    return x


class Schema(NamedTuple):
    """The names and the Arrow types of the columns of a file."""

    names: list[str]
    types: list[Any]


class TableStream(Stream):
    """Rows of tables. X is an array if all features are numbers, else a CSR matrix.

    A text column is categorical. By default the value v of the column c is the feature "c=v", which has the column and
    the sign of scikit-learn's `FeatureHasher`, and a value of several words becomes words and pairs of words. With
    `categories="onehot"` each value has its own column. Empty text has no entry. A column of dates or times becomes
    several numbers.
    """

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__(inputs, **common)
        self._given = None if layout is None else Layout.from_json(layout)
        for name in ("columns", "categories", "hash_bits", "drop") if layout is not None else ():
            if (value := getattr(options, name)) is not None:
                raise ValueError(f"{name}={value!r:.100} cannot be combined with a layout, which defines the columns.")
        onehot, hash_bits = options.categories == "onehot", options.hash_bits
        if onehot and hash_bits is not None:
            raise ValueError(f"categories='onehot' and hash_bits={hash_bits}: give one of them only.")
        self._first = self._schema(0)
        self._require_few_columns(0, len(self._first.names))
        if not self._first.names:
            raise StreamError(f"{self.inputs[0].name} has no columns.")
        roles = {role: getattr(options, role) for role in ROLES}
        for role, names in roles.items():
            if isinstance(names, tuple):
                roles[role] = next((name for name in self._first.names if name.lower() in names), None)
        one_reward(roles)
        self._needed = {role for role, which in roles.items() if which is not None}
        if self._given is not None:
            names = self._first.names
            named: dict[str, Any] = {role: names[place(names, roles[role], role)] for role in self._needed}
            self._layout = replace(self._given, **named)
        else:
            kinds = [kind_of(each) for each in self._first.types]
            self._layout = chosen(self._first.names, kinds, options.columns, hash_bits, roles, options.drop or ())
        self._places(0, self._first)
        if onehot and self._layout.texts:
            self._layout = self._layout.with_values(self._values(empty=options.missing == "nan"))
            if not self._layout.n_features:
                raise StreamError(f"{self._names()}: no column of features has a value.")
        self._converter = Converter(self._layout, missing=options.missing, drop=options.unseen == "drop")
        self.n_features = self._layout.n_features

    @abstractmethod
    def _schema(self, file: int) -> Schema:
        """Return the columns of an input."""

    @abstractmethod
    def _pieces(self) -> Iterator[Piece]:
        """Yield all rows."""

    @property
    def layout(self) -> dict[str, Any]:
        """How the columns of the table become columns of X, as a JSON document."""
        return self._layout.to_json()

    def _places(self, file: int, schema: Schema) -> tuple[list[int], dict[str, int]]:
        """Return the places of the features of an input, and of its columns of labels, weights and ids."""
        names, layout, name = schema.names, self._layout, self.inputs[file].name
        self._require_few_columns(file, len(names))
        if self._given is None and sorted(names) != sorted(self._first.names):
            others = f"{self.inputs[0].name} has others: {listed(self._first.names)}"
            raise StreamError(f"{name} has the columns {listed(names)}, and {others}.")
        count, where = Counter(names), places_of(names)
        roles = {role: each for role, each in layout.roles.items() if role in self._needed or each in where}
        for wanted in [*(each.name for each in layout.columns), *roles.values()]:
            if count[wanted] != 1:
                number = "more than one column" if count[wanted] else "no column"
                raise StreamError(f"{name} has {number} {wanted!r}; its columns are {listed(names)}.")
        require_kinds(name, layout, {each: schema.types[k] for each, k in where.items()})
        return [where[each.name] for each in layout.columns], {role: where[each] for role, each in roles.items()}

    def _values(self, *, empty: bool) -> list[list[str]]:
        """Read all rows once, and return the sorted values of each text column, with "" for null if `empty`."""
        self._require_rereading()
        found: list[set[str]] = [set() for _ in self._layout.texts]
        for piece in self._pieces():
            texts = [array for array, column in zip(piece.features, self._layout.columns) if column.text]
            with named_errors(self.inputs[piece.end.file].name):
                for values, array in zip(found, texts):
                    values.update(distinct_values(array, empty=empty))
            require_few(self._names(), found)
        return [sorted(values) for values in found]

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for name in ("groups", "seen_names", "wants_codes"):
            setattr(self._converter, name, getattr(self, name))
        for piece in self._pieces():
            with named_errors(self.inputs[piece.end.file].name):
                block, bad, unseen = self._converter.block(piece)
            for _, message in sorted(bad):
                self._bad_row(message)
            self._counts.dropped += unseen
            yield block, piece.end


def require_kinds(name: str, layout: Layout, types: Mapping[str, Any], *, strict: bool = False) -> None:
    """Raise unless the columns of a table, given their Arrow types, can be read as the kinds of the layout."""
    kinds: list[tuple[str, tuple[str, ...]]] = [(column.name, KINDS) for column in layout.columns]
    kinds += [(each, (NUMBER, TEXT)) for role, each in layout.roles.items() if role != "id" and each in types]
    for each, allowed in kinds:
        if kind_of(types[each]) not in allowed:
            raise StreamError(
                f"{name}: the column {each!r} is of type {types[each]}, which is not one of {', '.join(allowed)}. "
                "Exclude it with drop= or columns=, or convert it."
            )
    for column in layout.columns:
        found = types[column.name]
        if not can_be(column.kind, found, strict=strict):
            raise StreamError(f"{name}: the column {column.name!r} is of type {found}, and should be a {column.kind}.")


def require_few(name: str, values: Sequence[Any]) -> None:
    """Raise if text columns have too many values for a column each."""
    if sum(map(len, values)) > MOST_VALUES:
        raise StreamError(
            f"{name}: columns of text have more than {MOST_VALUES} values, too many for a column each "
            "(categories='onehot'). Use categories='hash'."
        )
