"""Products of features and their columns: the meaning of `interactions` and of Vowpal Wabbit's -q."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustfd._core import cross
from robustfd.streams._errors import StreamError
from robustfd.streams.limits import DEFAULT_BITS, MOST_BITS, MOST_COLUMNS

_BY_PARTS = ("vw", "jsonl", "python")  # formats with hashed names: blocks carry the entries of each group


def pair_of(text: str) -> tuple[str, str]:
    """Return the two groups named by "a:b" or by a word of two letters."""
    first, colon, second = (text[0], ":", text[1]) if len(text) == 2 else text.partition(":")
    if not (first and colon and second):
        raise ValueError(f"interactions must be pairs of columns or namespaces, 'a:b', or two letters, got {text!r}.")
    return first, second


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
    the group is `hidden` because its features are hashed.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        n_features: int,
        name: Callable[[int], str],
        hidden: Callable[[str], bool],
        bits: int | None = None,
    ):
        self.n_features, self._name, self.bits = n_features, name, DEFAULT_BITS if bits is None else bits
        groups = list(dict.fromkeys(group for pair in pairs for group in pair))
        self.hidden = tuple(group for group in groups if hidden(group))
        places = _columns_of([group for group in groups if not hidden(group)], n_features, name)
        self.pairs: list[Pair] = []
        self.width = n_features
        for left, right in pairs:
            pair = Pair(left, right)
            if left in places and right in places and len(places[left]) * len(places[right]) <= 2**self.bits:
                pair = Pair(left, right, (places[left], places[right]), self.width)
            self.pairs.append(pair)
            self.width += pair.width
        self.places, self._hashed = places, self.width
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

    def products(self, x: Any, parts: dict[str, Any]) -> Any:
        """Return the arrays of the CSR matrix x with products as further columns; `parts` are the entries of groups."""
        factors = {group: _arrays(part) for group, part in parts.items()}
        pairs = [
            (factors[pair.left], factors[pair.right], pair.left == pair.right, *self._ranks(pair))
            for pair in self.pairs
        ]
        return cross(_arrays(x), self.n_features, pairs, self.bits)

    def _ranks(self, pair: Pair) -> tuple[Any, int, int]:
        """Return the rank of each column in its group, the size of the second group, and the first product column."""
        if pair.columns is None:
            return np.empty((2, 0), np.int32), 0, self._hashed
        ranks = np.zeros((2, self.n_features), np.int32)
        for row, columns in zip(ranks, pair.columns):
            row[columns] = np.arange(len(columns))
        return ranks, len(pair.columns[1]), pair.start


def crossing_of(
    layout: dict[str, Any], n_features: int, name: Callable[[int], str], pairs: Any, bits: int | None
) -> Crossing:
    """Return the products for features with this layout; raise if the features of a group cannot be identified."""
    kind, hashed = layout.get("kind"), layout.get("hash_bits") is not None
    if hashed and kind == "libsvm":
        raise StreamError("interactions need the names of features, which hashed LIBSVM text does not keep.")
    texts = (
        {each.get("name") for each in layout.get("columns") or () if each.get("type") == "text"}
        if kind == "table"
        else {}
    )
    by_parts = kind == "vw" or (hashed and kind in _BY_PARTS)
    return Crossing(pairs, n_features, name, lambda group: by_parts or (hashed and group in texts), bits)


def read_layout(layout: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]], int]:
    """Return the layout of the features, the pairs and the bits of an untrusted layout with products."""
    base, pairs, bits = (layout.get(name) for name in ("of", "pairs", "hash_bits"))
    if not (
        isinstance(base, dict)
        and base.get("kind") != "interactions"
        and isinstance(pairs, list)
        and pairs
        and all(isinstance(p, list) and len(p) == 2 and all(isinstance(name, str) for name in p) for p in pairs)
        and type(bits) is int
        and 0 < bits <= MOST_BITS
    ):
        raise StreamError(f"{layout!r:.100} is not a layout of columns.")
    return base, [(left, right) for left, right in pairs], bits


def _columns_of(groups: Sequence[str], n_features: int, name: Callable[[int], str]) -> dict[str, Any]:
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


def _arrays(x: Any) -> tuple[Any, Any, Any]:
    """Return the arrays of a CSR matrix, in the types that the core reads."""
    types = zip((x.indptr, x.indices, x.data), (np.int32, np.int32, np.float64))
    starts, columns, values = (np.ascontiguousarray(each, type_) for each, type_ in types)
    return starts, columns, values
