"""Columns of products of features, which `interactions` and Vowpal Wabbit's -q mean, and names of all columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustfd._core import cross
from robustfd.streams.inputs import StreamError
from robustfd.streams.layout import (
    DEFAULT_BITS,
    MOST_COLUMNS,
    TEXT,
    Layout,
    hashed_name,
    is_bits,
    is_width,
    names_in,
    read_layout,
    with_names,
)

MOST_PRODUCTS = 1 << 22  # of a row; a line of 25 kB could have this many
_BY_PARTS = ("vw", "jsonl", "python")  # formats with hashed names: blocks carry the entries of each group


def pair_of(text: str) -> tuple[str, str]:
    """Return the two groups named by "a:b" or by a word of two letters."""
    first, colon, second = (text[0], ":", text[1]) if len(text) == 2 else text.partition(":")
    if not (first and colon and second):
        raise ValueError(f"interactions must be pairs of columns or namespaces, 'a:b', or two letters, got {text!r}.")
    return first, second


def read_products(layout: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]], int]:
    """Return the layout of the features, the pairs and the bits of an untrusted layout with products."""

    def are_pairs(value: Any) -> bool:
        pairs = value if isinstance(value, list) else []
        names = [each for pair in pairs if isinstance(pair, list) and len(pair) == 2 for each in pair]
        return 0 < len(names) == 2 * len(pairs) and all(isinstance(name, str) for name in names)

    def is_base(value: Any) -> bool:
        return isinstance(value, dict) and value.get("kind") != "interactions"

    known = read_layout(layout, "interactions", of=is_base, pairs=are_pairs, hash_bits=is_bits)
    return known["of"], [(left, right) for left, right in known["pairs"]], known["hash_bits"]


@dataclass(frozen=True)
class Pair:
    """The products of two groups: a column for each pair of features, or hashed if their columns are unknown."""

    left: str
    right: str
    columns: tuple[Any, Any] | None = None  # of the two groups, if known and few
    start: int = 0  # the first column of products

    @property
    def width(self) -> int:
        """The number of columns of its own."""
        return 0 if self.columns is None else len(self.columns[0]) * len(self.columns[1])


class Crossing:
    """Columns of products after the n_features columns: first those of pairs with known columns, then 2^bits hashed.

    `name` maps columns to names. A group consists of the column of its name and the columns named "name=value", unless
    it is `hidden` because its features are hashed, as `layout` says.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        layout: dict[str, Any],
        n_features: int,
        name: Callable[[int], str],
        bits: int | None = None,
    ):
        self.n_features, self._name, self.bits = n_features, name, DEFAULT_BITS if bits is None else bits
        groups = list(dict.fromkeys(group for pair in pairs for group in pair))
        self.hidden = tuple(group for group in groups if _is_hidden(group, layout))
        hashed = 2 ** layout["hash_bits"] if layout.get("kind") == "table" and layout.get("hash_bits") else 0
        visible = [group for group in groups if group not in self.hidden]
        self.places = places = _columns_of(visible, n_features - hashed, name)  # hashed columns belong to hidden groups
        self.pairs: list[Pair] = []
        self.width = n_features
        for left, right in pairs:
            pair = Pair(left, right)
            if left in places and right in places and len(places[left]) * len(places[right]) <= 2**self.bits:
                pair = Pair(left, right, (places[left], places[right]), self.width)
            self.pairs.append(pair)
            self.width += pair.width
        self._hashed = self.width
        if any(pair.columns is None for pair in self.pairs):
            self.width += 2**self.bits
        if self.width > MOST_COLUMNS:
            raise ValueError(f"interactions={self.pairs_as_json()!r:.80} would make {self.width} columns, too many.")

    def pairs_as_json(self) -> list[list[str]]:
        """Return the pairs as a JSON document."""
        return [[pair.left, pair.right] for pair in self.pairs]

    def feature_name(self, column: int) -> str:
        """Return the name of a column; the product of a and b is a^b."""
        name = self._name
        if column < self.n_features:
            return name(column)
        for pair in self.pairs:
            if pair.columns is not None and pair.start <= column < pair.start + pair.width:
                i, j = divmod(column - pair.start, len(pair.columns[1]))
                return f"{name(int(pair.columns[0][i]))}^{name(int(pair.columns[1][j]))}"
        return f"interaction {column - self._hashed}"

    def crossed(self, x: Any, parts: Sequence[Any], source: str) -> Any:
        """Return rows with their products: an array, or the arrays of a CSR matrix. `parts` has the hidden groups."""
        if isinstance(x, np.ndarray):
            single = ((pair.columns[0][0], pair.columns[1][0]) for pair in self.pairs if pair.columns)
            return np.hstack([x, *(x[:, [a]] * x[:, [b]] for a, b in single)])
        factors = {group: _arrays(part.indptr, part.indices, part.data) for group, part in zip(self.hidden, parts)}
        for group, columns in self.places.items():
            wanted = np.zeros(x.shape[1], bool)
            wanted[columns] = True
            chosen = wanted[x.indices]
            before = np.concatenate((np.zeros(1, np.int64), np.cumsum(chosen)))
            factors[group] = _arrays(before[x.indptr], x.indices[chosen], x.data[chosen])
        for pair in self.pairs:
            counts = np.diff(factors[pair.left][0]).astype(np.int64) * np.diff(factors[pair.right][0])
            if (most := counts.max(initial=0)) > MOST_PRODUCTS:
                raise StreamError(
                    f"{source}: a row has {most} products of {pair.left!r} and {pair.right!r}, more than "
                    f"{MOST_PRODUCTS}. Leave these interactions out, or the row."
                )
        pairs = [(factors[p.left], factors[p.right], p.left == p.right, *self._ranks(p)) for p in self.pairs]
        return cross(_arrays(x.indptr, x.indices, x.data), self.n_features, pairs, self.bits)

    def _ranks(self, pair: Pair) -> tuple[Any, int, int]:
        """Return the rank of each column in its group, the size of the second group, and the first product column."""
        if pair.columns is None:
            return np.empty((2, 0), np.int32), 0, self._hashed
        ranks = np.zeros((2, self.n_features), np.int32)
        for row, columns in zip(ranks, pair.columns):
            row[columns] = np.arange(len(columns))
        return ranks, len(pair.columns[1]), pair.start


def _is_hidden(group: str, layout: dict[str, Any]) -> bool:
    """Return whether the features of a group are hashed; raise if they cannot be identified."""
    kind, hashed = layout.get("kind"), layout.get("hash_bits") is not None
    if hashed and kind == "libsvm":
        raise StreamError("interactions need the names of features, which hashed LIBSVM text does not keep.")
    if hashed and kind == "table":
        return any(each.get("name") == group and each.get("type") == TEXT for each in layout.get("columns") or ())
    return kind == "vw" or (hashed and kind in _BY_PARTS)


def _columns_of(groups: list[str], n_features: int, name: Callable[[int], str]) -> dict[str, Any]:
    """Return the columns of each group."""
    found: dict[str, list[int]] = {group: [] for group in groups}
    for column in range(n_features if groups else 0):
        called = name(column)
        for group in {called, called.partition("=")[0]} & found.keys():
            found[group].append(column)
    for group, columns in found.items():
        if not columns:
            raise ValueError(f"interactions: there is no column {group!r}.")
    return {group: np.array(columns) for group, columns in found.items()}


def _arrays(*arrays: Any) -> tuple[Any, ...]:
    """Return the arrays of a CSR matrix, in the types that the core reads."""
    return tuple(map(np.ascontiguousarray, arrays, (np.int32, np.int32, np.float64)))


def namer(layout: dict[str, Any]) -> Callable[[int], str]:
    """Return a function from column numbers to names, for an untrusted layout."""
    seen = names_in(layout)
    if layout.get("kind") == "table":
        table = Layout.from_json(layout)
        return lambda column: table.feature_name(column, seen)
    if layout.get("kind") == "interactions":
        base, pairs, bits = read_products(layout)
        width = read_layout(layout, "interactions", n_features=is_width)["n_features"]
        return Crossing(pairs, base, width, namer(with_names(base, seen)), bits).feature_name
    if layout.get("hash_bits") is not None:
        return lambda column: hashed_name(column, seen)
    if isinstance(columns := layout.get("columns"), list):  # the selected columns of an array
        return lambda column: str(columns[column])
    first = int(layout.get("zero_based") is False)
    return lambda column: str(column + first)
