"""Products of features as additional columns: the meaning of `interactions` and of Vowpal Wabbit's -q."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd._core import cross
from robustfd.streams.base import Block, Stream, Survey
from robustfd.streams.inputs import Position, StreamError
from robustfd.streams.layout import DEFAULT_BITS, MOST_COLUMNS, TEXT, is_bits, namer, read_layout

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

    def crossed(self, block: Block) -> Block:
        """Return the rows with their products."""
        x = block.X
        with np.errstate(over="ignore"):
            if isinstance(x, np.ndarray):
                single = ((pair.columns[0][0], pair.columns[1][0]) for pair in self.pairs if pair.columns)
                x = np.hstack([x, *(x[:, [a]] * x[:, [b]] for a, b in single)])
            else:
                factors = {group: _arrays(entries) for group, entries in self._entries(block)}
                pairs = [
                    (factors[pair.left], factors[pair.right], pair.left == pair.right, *self._ranks(pair))
                    for pair in self.pairs
                ]
                x = sp.csr_matrix(cross(_arrays(x), self.n_features, pairs, self.bits), shape=(x.shape[0], self.width))
                x.has_canonical_format = True
        return Block(x, block.y, block.weight, block.id)

    def _entries(self, block: Block) -> Iterator[tuple[str, Any]]:
        """Yield each group with its entries as rows."""
        yield from zip(self.hidden, block.parts)
        for group, columns in self.places.items():
            wanted = np.zeros(block.X.shape[1], bool)
            wanted[columns] = True
            chosen = wanted[block.X.indices]
            before = np.concatenate((np.zeros(1, np.int64), np.cumsum(chosen)))
            entries = (block.X.data[chosen], block.X.indices[chosen], before[block.X.indptr])
            yield group, sp.csr_matrix(entries, shape=block.X.shape)

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


def _arrays(x: Any) -> tuple[Any, Any, Any]:
    """Return the arrays of a CSR matrix, in the types that the core reads."""
    types = zip((x.indptr, x.indices, x.data), (np.int32, np.int32, np.float64))
    starts, columns, values = (np.ascontiguousarray(each, type_) for each, type_ in types)
    return starts, columns, values


class InteractionStream(Stream):
    """The rows of another stream, each with the products of every feature of one group with every one of another.

    A group is a column of the input, with all its features, or a namespace. The product of single columns a and b is
    named a^b. Products of hashed features are hashed too.
    """

    def __init__(self, base: Stream, pairs: Sequence[tuple[str, str]], bits: int | None = None):
        super().__init__(base.inputs, start=base._start, on_error=base.on_error, block_bytes=base.block_bytes)
        self._base = base
        self._crossing = Crossing(pairs, base.layout, base.n_features, namer(base.layout), bits)
        base.groups = self._crossing.hidden
        self.n_features = self._crossing.width

    @property
    def layout(self) -> dict[str, Any]:
        """The layout of the features, and the pairs of groups."""
        return {
            "kind": "interactions",
            "of": self._base.layout,
            "n_features": self._base.n_features,
            "pairs": self._crossing.pairs_as_json(),
            "hash_bits": self._crossing.bits,
        }

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for name in ("skipped", "_counts", "wants_ids", "seen_names"):
            setattr(self._base, name, getattr(self, name))
        rows = 0
        for features, end in self._base._blocks():
            crossed = self._crossing.crossed(features)
            reason = "a product of features is not finite"
            block = self._good_rows(crossed, self._names(), rows, missing=True, reason=reason)
            rows += block.X.shape[0]
            yield block, end

    def _survey(self) -> Survey:
        return self._base.survey()

    @property
    def can_be_reread(self) -> bool:
        """Whether the features can be read more than once."""
        return self._base.can_be_reread

    def _require_rereading(self) -> None:
        self._base._require_rereading()

    def _names(self) -> str:
        return self._base._names()
