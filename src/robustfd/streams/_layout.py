"""Which columns of a table become which columns of X, as JSON can hold it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from robustfd.streams._base import DEFAULT_BITS, MOST_BITS, MOST_COLUMNS, StreamError

MOST_VALUES = 100_000  # of text, for which there is a column each


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: numbers, or text with the values that have a column of X each (none: they are hashed)."""

    name: str
    text: bool = False
    values: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        document: dict[str, Any] = {"name": self.name, "type": "text" if self.text else "number"}
        return document if self.values is None else {**document, "values": list(self.values)}


@dataclass(frozen=True)
class Layout:
    """The columns of X: those of numbers, then those of text, one for each value or 2^hash_bits for all of it."""

    columns: tuple[Column, ...]
    hash_bits: int | None = None
    target: str | None = None

    @cached_property
    def numbers(self) -> list[Column]:
        """The columns of numbers."""
        return [column for column in self.columns if not column.text]

    @cached_property
    def texts(self) -> list[Column]:
        """The columns of text."""
        return [column for column in self.columns if column.text]

    @cached_property
    def starts(self) -> list[int]:
        """The first column of X of each column of text, and the number of them all."""
        sizes = [len(column.values or ()) for column in self.texts]
        starts = [len(self.numbers), *(len(self.numbers) + np.cumsum(sizes, dtype=np.int64)).tolist()]
        return starts if self.hash_bits is None else [*starts[:-1], starts[-1] + 2**self.hash_bits]

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return self.starts[-1]

    def feature_name(self, column: int) -> str:
        """Return what a column of X is called."""
        if column < len(self.numbers):
            return self.numbers[column].name
        if self.hash_bits is not None:
            return f"hash {column - len(self.numbers)}"
        k = int(np.searchsorted(self.starts, column, side="right")) - 1
        return f"{self.texts[k].name}={(self.texts[k].values or ())[column - self.starts[k]]}"

    def with_values(self, values: Sequence[Sequence[str]]) -> "Layout":
        """Return the layout with a column of X for each of these values of the columns of text."""
        known = iter(values)
        columns = (replace(each, values=tuple(next(known))) if each.text else each for each in self.columns)
        return replace(self, columns=tuple(columns), hash_bits=None)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        columns = [column.to_json() for column in self.columns]
        return {"kind": "table", "columns": columns, "hash_bits": self.hash_bits, "target": self.target}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Layout":
        """Return the layout that `to_json` wrote; raise `StreamError` if it is none."""
        if document.get("kind") != "table":
            kind = document.get("kind")
            raise StreamError(f"The layout of columns is that of {kind!r:.30}, and these are rows of a table.")
        columns, bits, target = (document.get(name) for name in ("columns", "hash_bits", "target"))
        if not (
            isinstance(columns, list)
            and all(_is_column(each, hashed=bits is not None) for each in columns)
            and (bits is None or (type(bits) is int and 0 < bits <= MOST_BITS))
            and (target is None or isinstance(target, str))
            and (bits is None or any(each["type"] == "text" for each in columns))
        ):
            raise StreamError(f"{document!r:.100} is no layout of columns.")
        names = [each["name"] for each in columns]
        read = tuple(
            Column(each["name"], each["type"] == "text", tuple(each["values"]) if "values" in each else None)
            for each in columns
        )
        result = cls(read, bits, target)
        if len({*names, target}) != len(names) + 1 or not 0 < result.n_features <= MOST_COLUMNS:
            raise StreamError(f"{document!r:.100} is no layout of columns.")
        return result


def chosen(
    names: Sequence[str],
    text: Sequence[bool],
    target: str | int | None,
    columns: list[Any] | None,
    hash_bits: int | None,
) -> Layout:
    """Return the layout of a table whose columns have these names and are of text or not."""
    label = None if target is None else place(names, target, "target")
    if columns is None:
        features = [k for k in range(len(names)) if k != label]
    else:
        where = places_of(names)
        features = [place(names, which, "columns", where) for which in columns]
        if label in features:
            raise ValueError(f"columns={columns!r:.100} has the target in it, {target!r}; leave it out.")
    if not features:
        raise ValueError(f"There is no column of features: there are {listed(names)}, and the target is {target!r}.")
    used = [names[k] for k in features] + ([] if label is None else [names[label]])
    among_used, among_all = Counter(used), Counter(names)
    for name in used:
        if among_used[name] > 1 or among_all[name] > 1:
            raise StreamError(f"There are two columns {name!r}: columns= must pick others, each once, or rename one.")
    bits = (hash_bits or DEFAULT_BITS) if any(text[k] for k in features) else None
    return Layout(tuple(Column(names[k], text[k]) for k in features), bits, None if label is None else names[label])


def places_of(names: Sequence[str]) -> dict[str, int]:
    """Return the number of each column by its name, the first of those that have the same."""
    return {name: k for k, name in reversed(list(enumerate(names)))}


def place(names: Sequence[str], which: Any, argument: str, where: dict[str, int] | None = None) -> int:
    """Return the number of the column that is called so, or has this number; negative ones count from the end."""
    where = places_of(names) if where is None else where
    if isinstance(which, str) and which in where:
        return where[which]
    if isinstance(which, int | np.integer) and not isinstance(which, bool) and -len(names) <= which < len(names):
        return int(which) % len(names)
    raise ValueError(f"{argument}: {which!r} is no column; there are {listed(names)}, numbered from 0.")


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names of columns for a message."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"


def _is_column(document: Any, *, hashed: bool) -> bool:
    """Return whether this is a column of a layout as JSON has it."""
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        return False
    values = document.get("values", [] if document.get("type") == "number" or hashed else None)
    return (
        document.get("type") in ("number", "text")
        and ("values" in document) == (document["type"] == "text" and not hashed)
        and isinstance(values, list)
        and all(isinstance(value, str) for value in values)
        and len(set(values)) == len(values)
    )
