"""Layouts, JSON documents of how the input becomes columns of X, and the names of these columns."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from robustfd._core import hash_name, murmur3, text_terms
from robustfd.streams.inputs import StreamError

DEFAULT_BITS = 18  # 2^18 columns for named features, the default of Vowpal Wabbit
MOST_BITS = 30
MOST_COLUMNS = 2**31 - 1  # the most that 32-bit indices can address
MOST_NAMES = 1 << 16
WHOLE = 4 << 20  # bytes of text that are searched completely for names
SAMPLE = 1 << 13  # bytes searched of each later chunk: important features are not rare
LONGEST_INDEX = 18  # digits that fit into 64 bits


def read_layout(layout: dict[str, Any], kind: str, **fits: Callable[[Any], bool]) -> dict[str, Any]:
    """Return the named values of an untrusted layout; raise unless it is of this kind and each value fits."""
    if layout.get("kind") != kind:
        raise StreamError(f"The layout is that of {layout.get('kind')!r:.30}, which is not a layout of rows of {kind}.")
    values = {name: layout.get(name) for name in fits}
    if not all(fit(values[name]) for name, fit in fits.items()):
        raise not_a_layout(layout)
    return values


def not_a_layout(layout: Any) -> StreamError:
    """Return the error about an invalid layout."""
    return StreamError(f"{layout!r:.100} is not a layout of columns.")


def is_width(value: Any) -> bool:
    """Return whether this can be a number of columns."""
    return type(value) is int and 0 < value <= MOST_COLUMNS


def is_bits(value: Any) -> bool:
    """Return whether this can be a number of bits for hashing."""
    return type(value) is int and 0 < value <= MOST_BITS


def is_name(value: Any) -> bool:
    """Return whether this is a name, or None."""
    return value is None or isinstance(value, str)


def are_names(value: Any) -> bool:
    """Return whether this is a list of names, or None."""
    return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def is_flag(value: Any) -> bool:
    """Return whether this is true or false, or None."""
    return value is None or isinstance(value, bool)


Feature = tuple[bytes, bytes]  # its namespace, which may have no name, and its name


class SeenName(NamedTuple):
    """The name of a hashed feature, and the sign that hashing gives to its values."""

    name: str
    sign: int


class SeenNames:
    """Names of features by the number that they were hashed to.

    The names are for display only. Two features may share a number, rare features of long text may have no name here,
    and at most `MOST_NAMES` names are kept.
    """

    def __init__(self, known: Mapping[int, SeenName] = MappingProxyType({})) -> None:
        self.names: dict[int, SeenName] = dict(known)
        self._known: set[Any] = set()
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more names are recorded."""
        return len(self.names) >= MOST_NAMES

    def add_values(self, column: str, values: Any, starts: Any, numbers: Any, signs: Any) -> None:
        """Record the terms of the values of a table column, an Arrow array, with their hashes and signs."""
        starts, numbers = starts.tolist(), numbers.tolist()
        for place, (first, last) in enumerate(pairwise(starts)):
            if self.full:
                return
            if all(number in self.names for number in numbers[first:last]):
                continue
            terms = text_terms(values[place].as_py() or "")
            for (term, _), number, sign in zip(terms, numbers[first:last], signs[first:last]):
                self.names.setdefault(number, SeenName(f"{column}={term}", 1 if sign > 0 else -1))

    def add_dicts(self, rows: Iterable[dict[str, Any]], bits: int) -> None:
        """Record the names of the features of rows."""
        for row in rows:
            if self.full:
                return
            for name in row.keys() - self._known:
                self._add(name, hash_name(name.encode("utf-8", "surrogatepass"), bits), name)

    def add_text(self, text: Any, features_of: Callable[[list[bytes]], Iterator[Feature]], bits: int) -> None:
        """Record the names of the features of lines."""
        if self.full:
            return
        size = len(text) if self._bytes < WHOLE else SAMPLE
        self._bytes += size
        lines = bytes(text[:size]).split(b"\n")
        for space, name in set(features_of(lines[:-1])) - self._known:
            shown = (space + b"^" + name if space else name).decode("utf-8", "backslashreplace")
            self._add((space, name), column_of(space, name, bits), shown)

    def _add(self, key: Any, found: tuple[int, int] | None, shown: str) -> None:
        self._known.add(key)
        if found is not None and not self.full:
            self.names.setdefault(found[0], SeenName(shown, found[1]))


def column_of(space: bytes, name: bytes, bits: int) -> tuple[int, int] | None:
    """Return the number and the sign of a feature in text, as the core reads it; None without a name."""
    seed = murmur3(space) if space else 0
    if not name.isdigit():
        return hash_name(name, bits, seed) if name else None
    return ((seed + int(name)) & (2**bits - 1), 1) if len(name) <= LONGEST_INDEX else None


ROLES = ("target", "weight", "id", "arm", "cost", "probability")  # of columns that are not features
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
    values: Sequence[str] | None = None

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

    A table may also have columns of labels (`target`), of weights, of row names (`id`), and dropped columns. Logs of
    bandits have columns of arms, of rewards (`target`) or costs, and of probabilities. If the columns were `chosen` by
    name, any other columns are allowed. Without a `header`, column names are numbers. `decimal` is the decimal mark
    of CSV.
    """

    columns: tuple[Column, ...]
    hash_bits: int | None = None
    target: str | None = None
    weight: str | None = None
    id: str | None = None
    arm: str | None = None
    cost: str | None = None
    probability: str | None = None
    drop: tuple[str, ...] = ()
    chosen: bool = False
    header: bool = True
    decimal: str = "."

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
        """The names of the columns that are not features, as far as they exist."""
        named = {role: getattr(self, role) for role in ROLES}
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
        columns = (replace(each, values=next(known)) if each.text else each for each in self.columns)
        return replace(self, columns=tuple(columns), hash_bits=None)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        columns = [column.to_json() for column in self.columns]
        others = {role: getattr(self, role) for role in ROLES[1:]} | {"drop": list(self.drop), "chosen": self.chosen}
        document = {"kind": "table", "columns": columns, "hash_bits": self.hash_bits, "target": self.target}
        return (
            document
            | {name: value for name, value in others.items() if value}
            | ({} if self.header else {"header": False})
            | ({} if self.decimal == "." else {"decimal": self.decimal})
        )

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Layout":
        """Return the layout in a JSON object; raise `StreamError` if it is invalid."""
        roles = dict.fromkeys(ROLES, is_name)
        known = read_layout(
            document, "table", columns=lambda value: isinstance(value, list), drop=are_names, chosen=is_flag,
            header=is_flag, decimal=lambda value: value in (None, ","),
            hash_bits=lambda value: value is None or is_bits(value), **roles,
        )  # fmt: skip
        bits, columns, drop = known["hash_bits"], known["columns"], known["drop"] or []
        if not all(_is_column(each, hashed=bits is not None) for each in columns) or (
            bits is not None and all(each["type"] != TEXT for each in columns)
        ):
            raise not_a_layout(document)
        result = cls(
            tuple(Column(each["name"], each["type"], each.get("values")) for each in columns), bits,
            drop=tuple(drop), chosen=bool(known["chosen"]), header=known["header"] is not False,
            decimal=known["decimal"] or ".",
            **{role: known[role] for role in roles},
        )  # fmt: skip
        names = [each["name"] for each in columns] + list(result.roles.values()) + drop
        if len(set(names)) != len(names) or not is_width(result.n_features):
            raise not_a_layout(document)
        return result


def chosen(
    names: Sequence[str],
    kinds: Sequence[str | None],
    columns: list[Any] | None,
    hash_bits: int | None,
    roles: Mapping[str, str | int | None],
    drop: Sequence[str | int] = (),
) -> Layout:
    """Return the layout of a table with columns of these names and kinds.

    `roles` selects the columns of `ROLES`; the columns in `drop` are ignored.
    """
    where = places_of(names)
    others = {role: place(names, which, role, where) for role, which in roles.items() if which is not None}
    left_out = [place(names, which, "drop", where) for which in drop]
    for role, which in others.items():
        if which in left_out or list(others.values()).count(which) > 1:
            raise ValueError(f"The column {names[which]!r} is the {role} and has another role too. Give each only one.")
    if columns is None:
        features = sorted({*range(len(names))} - {*others.values()} - {*left_out})
    else:
        features = [place(names, which, "columns", where) for which in columns]
        for role, which in [*others.items(), *(("column to drop", each) for each in left_out)]:
            if which in features:
                raise ValueError(f"columns={columns!r:.100} has the {role} in it, {names[which]!r}; leave it out.")
    if not features:
        said = ", ".join(f"the {role} is {names[which]!r}" for role, which in others.items())
        raise ValueError(f"There is no column of features: there are {listed(names)}{said and ', and '}{said}.")
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


def hashed_name(number: int, seen: Mapping[int, SeenName]) -> str:
    """Return the name of the hashed feature of this number."""
    return seen[number].name if number in seen else f"hash {number}"


def with_names(layout: dict[str, Any], seen: Mapping[int, SeenName]) -> dict[str, Any]:
    """Return the layout with more names of hashed features; names that it already has stay."""
    names = {str(number): list(each) for number, each in (dict(seen) | names_in(layout)).items()}
    return layout | ({"names": names} if names else {})


def without_names(layout: dict[str, Any]) -> dict[str, Any]:
    """Return the layout without names of hashed features. If the rest is equal, so are the columns."""
    return {key: value for key, value in layout.items() if key != "names"}


def names_in(layout: dict[str, Any]) -> dict[int, SeenName]:
    """Return the names of hashed features, by number, in an untrusted layout."""
    names = layout.get("names", {})
    try:
        found = {int(number): SeenName(*each) for number, each in names.items()}
    except (AttributeError, TypeError, ValueError):
        found = {-1: SeenName("", 0)}
    if not all(number >= 0 and isinstance(name, str) and sign in (-1, 1) for number, (name, sign) in found.items()):
        raise StreamError(f"{names!r:.100} are not names of features.")
    return found


def signer(layout: dict[str, Any]) -> Callable[[int], int]:
    """Return a function from columns to the signs that hashing gave to their values, 1 by default."""
    seen = names_in(layout)
    base = layout["of"] if layout.get("kind") == "interactions" else layout
    first = len(Layout.from_json(base).numbers) if base.get("kind") == "table" else 0
    return lambda column: seen[column - first].sign if column - first in seen else 1
