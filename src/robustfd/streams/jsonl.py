"""JSON lines: one object per line, which is a row."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustfd._core import text_terms
from robustfd.streams.base import Block, Options, Stream, finite_rows, without
from robustfd.streams.decisions import Decisions, one_reward
from robustfd.streams.inputs import Chunk, Input, Position, chunks, shown
from robustfd.streams.layout import DEFAULT_BITS, ROLES, are_names, is_bits, is_name, read_layout
from robustfd.streams.python import hashed_rows, typed_labels

_LAYOUT = {"hash_bits": is_bits, **dict.fromkeys(ROLES, is_name), "columns": are_names, "drop": are_names}
NO_LABEL = "it has no label"


class JsonlStream(Stream):
    """Rows of JSON lines as CSR matrices. Features have names, which are hashed like those of dicts (`python.py`).

    A number is the value of the feature of its name; true is 1 and false is 0. The text v of the name c is the feature
    "c=v" with value 1, or becomes words and pairs of words if it has several. null and NaN are ignored. The member b of
    an object a has the name "a.b". The numbers in a list a have the names "a.0", "a.1" and so on, and each text v in it
    is a feature "a=v".

    `target`, `weight`, `id`, `arm`, `cost`, `probability` and the names in `drop` are not features; "a.b" also refers
    to the member b of a. A row without a weight has the weight 1, and a row without an id has the id "".
    """

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__(inputs, **common)
        roles: dict[str, Any] = {role: getattr(options, role) for role in ROLES}
        columns, drop, hash_bits = options.columns, options.drop, options.hash_bits
        if layout is not None:
            known = read_layout(layout, "jsonl", **_LAYOUT)
            hash_bits, columns, drop = known["hash_bits"], known["columns"], known["drop"]
            for role, name in roles.items():
                roles[role] = known[role] if name is None or isinstance(name, tuple) else name
        named = [each for each in roles.values() if each is not None and not isinstance(each, tuple)]
        for name in [*(columns or ()), *(drop or ()), *named]:
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is not a name; columns of JSON lines are given by name.")
        for role, names in roles.items():
            if isinstance(names, tuple):
                roles[role] = next((name for name in self._first_row() if name.lower() in names), None)
        one_reward(roles)
        self._first_label: Any = None  # decides whether labels are text
        self._roles, self._decides = roles, roles["arm"] is not None
        self._target, self._weight, self._id = roles["target"] or roles["cost"], roles["weight"], roles["id"]
        self._columns, self._left_out = columns, drop
        self._skip_unlabelled = options.unlabelled == "skip"
        self._bits = DEFAULT_BITS if hash_bits is None else hash_bits
        self.n_features = 2**self._bits

    def _first_row(self) -> dict[str, Any]:
        """Return the object in the first line; an empty one if the line is not an object."""
        lines = self.inputs[0].head(1 << 20, line=True).split(b"\n")
        try:
            row = json.loads(next((line for line in lines if line.strip()), b""))
        except (ValueError, RecursionError):  # reported when the line is read
            return {}
        return row if isinstance(row, dict) else {}

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns that names are hashed into, and the selected names."""
        others = {role: self._roles[role] for role in ROLES[1:]} | {"drop": self._left_out}
        layout = {"kind": "jsonl", "hash_bits": self._bits, "target": self._roles["target"], "columns": self._columns}
        return layout | {name: value for name, value in others.items() if value}

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for chunk in chunks(self.inputs, self.block_bytes, self.max_line_bytes):
            yield self._block(chunk), chunk.end

    def _block(self, chunk: Chunk) -> Block:
        """Return the rows of a chunk."""
        lines = bytes(chunk.text).split(b"\n")
        places = [k for k, line in enumerate(lines) if line.strip()]
        found, wrong = [], {}
        for k, place in enumerate(places):
            try:
                found.append(self._row(lines[place]))
            except (ValueError, OverflowError, RecursionError) as error:
                found.append(_Row({}))
                wrong[k] = str(error)
        rows = [row.features for row in found]
        x, bad = hashed_rows(rows, self._bits)
        if self.seen_names is not None:
            self.seen_names.add_dicts(rows, self._bits)
        wrong |= bad
        y = None if self._target is None else self._labels([row.label for row in found], wrong)
        weight = None if self._weight is None else np.array([row.weight for row in found])
        id = None
        if self._id is not None and self.wants_ids:
            id = np.array([row.id for row in found], dtype=object)
        if (finite := finite_rows(x, None)) is not None:
            wrong = dict.fromkeys(np.flatnonzero(~finite).tolist(), "a number is not finite") | wrong
        for k in sorted(wrong):
            where = f"{self.inputs[chunk.file].name}, line {chunk.first + places[k] + 1}"
            self._bad_row(f"{where}: {wrong[k]}: {shown(lines[places[k]])}", harmless=wrong[k] == NO_LABEL)
        block = Block(x, y, weight, id, self._parts(rows))
        if self._decides:
            arms, chances = [row.arm for row in found], [row.probability for row in found]
            block.decisions = Decisions(np.array([*arms, None], dtype=object)[:-1], np.array(chances, np.float64))
        return without(block, wrong)

    def _labels(self, labels: list[Any], wrong: dict[int, str]) -> Any:
        """Return labels as an array, NaN or None where missing; record bad ones in `wrong`."""
        for k, label in enumerate(labels):
            if k in wrong or (label is None and not self._skip_unlabelled):
                continue
            if label is None:
                wrong[k] = NO_LABEL
            elif not _is_label(label):
                wrong[k] = f"its label is {label!r:.40}"
            elif self._first_label is None:
                self._first_label = label
            elif isinstance(label, str) != isinstance(self._first_label, str):
                wrong[k] = f"its label is {label!r:.40}, and that of another line {self._first_label!r:.40}"
        good = [k for k in range(len(labels)) if k not in wrong]
        if isinstance(self._first_label, str):
            y = np.full(len(labels), None, dtype=object)
            y[good] = [labels[k] for k in good]
            return y
        found = typed_labels(np.array([np.nan if labels[k] is None else labels[k] for k in good]))
        y = np.zeros(len(labels), found.dtype)
        y[good] = found
        return y

    def _parts(self, rows: list[dict[str, Any]]) -> tuple[Any, ...]:
        """Return the entries of each group: those of a name and of its members."""
        groups = ([{k: v for k, v in row.items() if within(k, group)} for row in rows] for group in self.groups)
        return tuple(hashed_rows(some, self._bits)[0] for some in groups)

    def _row(self, line: bytes) -> "_Row":
        """Return the features of a line, and its label, weight and id."""
        if len(line) > self.max_columns and line.count(b",") >= self.max_columns:  # a value takes up to 300 bytes
            raise ValueError(
                f"it has {line.count(b',')} commas, so more than max_columns={self.max_columns} values. If it is "
                "right, raise that limit (--max-columns)"
            )
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"it is not valid JSON ({error})") from error
        if not isinstance(found, dict):
            raise ValueError('it should be an object, {"name": value, ...}')
        label, weight, id = (_pop(found, name) for name in (self._target, self._weight, self._id))
        arm, probability = self._decision(found)
        if self._roles["cost"] is not None and label is not None:
            if type(label) not in (int, float):
                raise ValueError(f"its cost {self._target!r} is {label!r:.40}, which should be a number")
            label = 0 - label
        for name in self._left_out or ():
            _pop(found, name)
        if weight is not None and not (type(weight) in (int, float) and 0 <= weight < math.inf):
            raise ValueError(f"its weight {self._weight!r} is {weight!r:.40}, which should be a number >= 0")
        features: dict[str, Any] = {}
        _flatten("", found, features)
        if self._columns is not None:
            features = {
                name: value for name, value in features.items() if any(within(name, each) for each in self._columns)
            }
        weight = 1.0 if weight is None else float(weight)
        return _Row(features, label, weight, "" if id is None else str(id), arm, probability)

    def _decision(self, found: dict[str, Any]) -> tuple[Any, float]:
        """Remove the chosen arm and its probability from an object, and return them."""
        arm, probability = (_pop(found, self._roles[role]) for role in ("arm", "probability"))
        if self._decides and not _is_label(arm):
            raise ValueError(f"its arm {self._roles['arm']!r} is {arm!r:.40}, which should be text or a number")
        if probability is None:
            return arm, math.nan
        if not (type(probability) in (int, float) and 0 < probability <= 1):
            name = self._roles["probability"]
            raise ValueError(f"its probability {name!r} is {probability!r:.40}, which should be in (0, 1]")
        return arm, float(probability)


class _Row(NamedTuple):
    """Features, label, weight, id and decision of a line."""

    features: dict[str, Any]
    label: Any = None
    weight: float = 1.0
    id: str = ""
    arm: Any = None
    probability: float = math.nan


def _is_label(label: Any) -> bool:
    """Return whether this can be a label: text, or a finite number."""
    return isinstance(label, str) or (isinstance(label, int | float) and abs(label) <= sys.float_info.max)


def within(name: str, group: str) -> bool:
    """Return whether a feature has this name, or belongs to a value or a member of this name."""
    return name == group or (name.startswith(group) and name[len(group)] in "=.")


def _pop(row: dict[str, Any], name: str | None) -> Any:
    """Remove a member of an object and return it, None if it is missing; "a.b" may be the member b of a."""
    if name is None:
        return None
    if name not in row and "." in name:
        first, rest = name.split(".", 1)
        return _pop(row[first], rest) if isinstance(row.get(first), dict) else None
    value = row.pop(name, None)
    return None if isinstance(value, float) and math.isnan(value) else value


def _flatten(prefix: str, found: dict[str, Any], features: dict[str, Any]) -> None:
    """Add the features of an object, with a prefix before their names; repeated features are added up."""
    for key, value in found.items():
        name, kind = prefix + key, type(value)
        if kind is str:
            for term, number in text_terms(value):
                features[f"{name}={term}"] = features.get(f"{name}={term}", 0) + number
        elif kind is float or kind is int or kind is bool:
            if value == value:  # not NaN
                features[name] = features.get(name, 0) + float(value)
        elif kind is dict:
            _flatten(f"{name}.", value, features)
        elif kind is list:
            for k, each in enumerate(value):
                _flatten("", {name if type(each) is str else f"{name}.{k}": each}, features)
