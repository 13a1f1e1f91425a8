"""The layout of a table: how its columns become columns of X."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from robustfd.streams._errors import StreamError
from robustfd.streams.limits import DEFAULT_BITS, MOST_BITS, MOST_COLUMNS
from robustfd.streams.seen_names import SeenName

MOST_VALUES = 100_000  # distinct values of text with a column each


NUMBER, TEXT, DATE, TIME = KINDS = ("number", "text", "date", "time")
_PARTS = {
    NUMBER: ("",),
    TEXT: (),
    DATE: ("", ":time_sin", ":time_cos", ":weekday_sin", ":weekday_cos", ":yearday_sin", ":yearday_cos"),
    TIME: ("", ":time_sin", ":time_cos"),
}  # the numbers that a column becomes, as suffixes of its name


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. `values` are those of text with a column of X each; None if text is hashed."""

    name: str
    kind: str = NUMBER
    values: tuple[str, ...] | None = None

    @property
    def text(self) -> bool:
        """Whether it is text."""
        return self.kind == TEXT

    @property
    def parts(self) -> tuple[str, ...]:
        """The suffixes of the names of the numbers that it becomes."""
        return _PARTS[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        document: dict[str, Any] = {"name": self.name, "type": self.kind}
        return document if self.values is None else {**document, "values": list(self.values)}


@dataclass(frozen=True)
class Layout:
    """The columns of X: first numbers, then text, with one column per value or 2^hash_bits columns for all text.

    A table may also have columns of labels (`target`), of weights, of row names (`id`), and dropped columns. If the
    columns were `chosen` by name, any other columns are allowed. Without a `header`, column names are numbers.
    """

    columns: tuple[Column, ...]
    hash_bits: int | None = None
    target: str | None = None
    weight: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    chosen: bool = False
    header: bool = True

    @cached_property
    def numbers(self) -> list[tuple[Column, str]]:
        """The columns of X that are numbers: the table column, and the suffix of its name."""
        return [(column, part) for column in self.columns for part in column.parts]

    @cached_property
    def texts(self) -> list[Column]:
        """The text columns."""
        return [column for column in self.columns if column.text]

    @cached_property
    def starts(self) -> list[int]:
        """The first column of X of each text column, and the total number of columns."""
        sizes = [len(column.values or ()) for column in self.texts]
        starts = [len(self.numbers), *(len(self.numbers) + np.cumsum(sizes, dtype=np.int64)).tolist()]
        return starts if self.hash_bits is None else [*starts[:-1], starts[-1] + 2**self.hash_bits]

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return self.starts[-1]

    @property
    def roles(self) -> dict[str, str]:
        """The names of the target, weight and id columns, as far as they exist."""
        named = {role: getattr(self, role) for role in ("target", "weight", "id")}
        return {role: name for role, name in named.items() if name is not None}

    def feature_name(self, column: int, seen: Mapping[int, SeenName] = MappingProxyType({})) -> str:
        """Return the name of a column of X; `seen` has names of hashed features by number."""
        if column < len(self.numbers):
            source, part = self.numbers[column]
            return source.name + part
        if self.hash_bits is not None:
            return hashed_name(column - len(self.numbers), seen)
        k = int(np.searchsorted(self.starts, column, side="right")) - 1
        return f"{self.texts[k].name}={(self.texts[k].values or ())[column - self.starts[k]]}"

    def with_values(self, values: Sequence[Sequence[str]]) -> "Layout":
        """Return the layout with one column of X for each of these values of the text columns."""
        known = iter(values)
        columns = (replace(each, values=tuple(next(known))) if each.text else each for each in self.columns)
        return replace(self, columns=tuple(columns), hash_bits=None)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        columns = [column.to_json() for column in self.columns]
        others = {"weight": self.weight, "id": self.id, "drop": list(self.drop), "chosen": self.chosen}
        document = {"kind": "table", "columns": columns, "hash_bits": self.hash_bits, "target": self.target}
        return (
            document
            | {name: value for name, value in others.items() if value}
            | ({} if self.header else {"header": False})
        )

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Layout":
        """Return the layout in a JSON object; raise `StreamError` if it is invalid."""
        if document.get("kind") != "table":
            kind = document.get("kind")
            raise StreamError(f"The layout of columns is that of {kind!r:.30}, and these are rows of a table.")
        columns, bits, drop = document.get("columns"), document.get("hash_bits"), document.get("drop", [])
        roles: dict[str, Any] = {role: document.get(role) for role in ("target", "weight", "id")}
        if not (
            isinstance(columns, list)
            and all(_is_column(each, hashed=bits is not None) for each in columns)
            and (bits is None or (type(bits) is int and 0 < bits <= MOST_BITS))
            and all(name is None or isinstance(name, str) for name in roles.values())
            and (bits is None or any(each["type"] == TEXT for each in columns))
            and isinstance(drop, list)
            and all(isinstance(name, str) for name in drop)
            and isinstance(document.get("chosen", False), bool)
            and isinstance(document.get("header", True), bool)
        ):
            raise StreamError(f"{document!r:.100} is not a layout of columns.")
        read = tuple(
            Column(each["name"], each["type"], tuple(each["values"]) if "values" in each else None) for each in columns
        )
        said: dict[str, Any] = {"chosen": document.get("chosen", False), "header": document.get("header", True)}
        result = cls(read, bits, **roles, drop=tuple(drop), **said)
        names = [each["name"] for each in columns] + list(result.roles.values()) + drop
        if len(set(names)) != len(names) or not 0 < result.n_features <= MOST_COLUMNS:
            raise StreamError(f"{document!r:.100} is not a layout of columns.")
        return result


def hashed_name(number: int, seen: Mapping[int, SeenName]) -> str:
    """Return the name of the hashed feature of this number."""
    return seen[number].name if number in seen else f"hash {number}"


def chosen(
    names: Sequence[str],
    kinds: Sequence[str | None],
    columns: list[Any] | None,
    hash_bits: int | None,
    roles: Mapping[str, str | int | None],
    drop: Sequence[str | int] = (),
) -> Layout:
    """Return the layout of a table with columns of these names and kinds.

    `roles` selects the target, weight and id columns; the columns in `drop` are ignored.
    """
    where = places_of(names)
    others = {role: place(names, which, role, where) for role, which in roles.items() if which is not None}
    left_out = [place(names, which, "drop", where) for which in drop]
    for role, which in others.items():
        if which in left_out or list(others.values()).count(which) > 1:
            raise ValueError(
                f"The column {names[which]!r} is the {role} and has another role too. A column can have only one role."
            )
    if columns is None:
        features = sorted({*range(len(names))} - {*others.values()} - {*left_out})
    else:
        features = [place(names, which, "columns", where) for which in columns]
        for role, which in [*others.items(), *(("column to drop", each) for each in left_out)]:
            if which in features:
                raise ValueError(f"columns={columns!r:.100} has the {role} in it, {names[which]!r}; leave it out.")
    if not features:
        roles_said = ", ".join(f"the {role} is {names[which]!r}" for role, which in others.items())
        raise ValueError(
            f"There is no column of features: there are {listed(names)}{roles_said and ', and '}{roles_said}."
        )
    used = [names[k] for k in [*features, *others.values()]]
    among_used, among_all = Counter(used), Counter(names)
    for name in used:
        if among_used[name] > 1 or among_all[name] > 1:
            raise StreamError(f"There are two columns {name!r}: columns= must pick others, each once, or rename one.")
    bits = (hash_bits or DEFAULT_BITS) if any(kinds[k] == TEXT for k in features) else None
    found = tuple(Column(names[k], kinds[k] or NUMBER) for k in features)
    named: dict[str, Any] = {role: names[which] for role, which in others.items()}
    return Layout(found, bits, **named, drop=tuple({names[k]: None for k in left_out}), chosen=columns is not None)


def places_of(names: Sequence[str]) -> dict[str, int]:
    """Return the number of each column by name; of equal names the first."""
    return {name: k for k, name in reversed(list(enumerate(names)))}


def place(names: Sequence[str], which: Any, argument: str, where: dict[str, int] | None = None) -> int:
    """Return the number of the column with this name or number; negative numbers count from the end."""
    where = places_of(names) if where is None else where
    if isinstance(which, str) and which in where:
        return where[which]
    if isinstance(which, int | np.integer) and not isinstance(which, bool) and -len(names) <= which < len(names):
        return int(which) % len(names)
    raise ValueError(f"{argument}: {which!r} is not a column; there are {listed(names)}, numbered from 0.")


def too_many_values(name: str) -> StreamError:
    """Return the error about text with too many values for one column each."""
    return StreamError(
        f"{name}: columns of text have more than {MOST_VALUES} values, too many for a column each "
        "(categories='onehot'). Use categories='hash'."
    )


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return column names for a message."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"


def _is_column(document: Any, *, hashed: bool) -> bool:
    """Return whether this is a valid column in JSON."""
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return False
    kind = document.get("type")
    values = document.get("values", [] if kind != TEXT or hashed else None)
    return (
        kind in KINDS
        and ("values" in document) == (kind == TEXT and not hashed)
        and isinstance(values, list)
        and all(isinstance(value, str) for value in values)
        and len(set(values)) == len(values)
    )
