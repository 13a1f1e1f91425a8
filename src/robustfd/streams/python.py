"""Iterables of blocks, or of rows given as dicts."""

import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd._core import hash_rows
from robustfd.streams.base import Block, Options, Stream, as_floats
from robustfd.streams.inputs import Position, StreamError
from robustfd.streams.layout import DEFAULT_BITS, is_bits, is_width, read_layout

_Found = tuple[tuple[str, int], Block, dict[int, str]]  # (name, first row), block, problems by row
_END = object()
_BYTES_OF_ENTRY = 32  # about the size of an entry as text


class PythonStream(Stream):
    """Blocks X or (X, y), or rows dict or (dict, label), from any iterable; the offset of a position counts rows.

    A dict maps names to features: a number is the value of the feature, and the string v of the name c is the feature
    "c=v" with value 1, or becomes words and pairs of words if it has several. Features are hashed into 2^hash_bits
    columns as in scikit-learn's `FeatureHasher`. NaN and None are missing numbers.
    """

    def __init__(self, source: Iterable[Any], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__([], **common)
        self._missing, hash_bits = options.missing, options.hash_bits
        self._source: Iterable[Any] = [source] if hasattr(source, "shape") else source  # a single block
        if not isinstance(self._source, Iterable):
            raise TypeError(f"source must be a path, binary file, or iterable of blocks or rows, got {source!r:.100}.")
        items = iter(self._source)
        first = list(zip(range(1), items))
        self._require_rows(len(first), 0)
        self._once_only = chain((item for _, item in first), items)
        width = None
        if layout is not None and layout.get("hash_bits") is not None:
            hash_bits = read_layout(layout, "python", hash_bits=is_bits)["hash_bits"]
        elif layout is not None:
            width = read_layout(layout, "python", n_features=is_width)["n_features"]
        x, y = _pair(first[0][1])
        self._bits: int | None = None
        if isinstance(x, Mapping):
            if width is not None:
                raise StreamError(f"The layout {layout!r:.100} is for blocks, and these are rows as dicts.")
            self._bits = DEFAULT_BITS if hash_bits is None else hash_bits
            self.n_features = 2**self._bits
        elif hash_bits is not None:
            raise ValueError(f"hash_bits={hash_bits} is for rows as dicts, and these are blocks.")
        else:
            self.n_features = _as_block(x, y, 0).X.shape[1] if width is None else width

    @property
    def can_be_reread(self) -> bool:
        """Whether it is a sequence."""
        return isinstance(self._source, Sequence)

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns, and whether names are hashed into them."""
        if self._bits is not None:
            return {"kind": "python", "hash_bits": self._bits}
        return {"kind": "python", "n_features": self.n_features}

    def _require_rereading(self) -> None:
        if not self.can_be_reread:
            raise ValueError("The iterable can be read only once, and this needs an extra pass. Make it a list.")

    def _names(self) -> str:
        return "The iterable"

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        items = iter(self._source) if self.can_be_reread else self._once_only
        offset, labelled = 0, None
        for where, block, bad in self._given(items) if self._bits is None else self._hashed(items, self._bits):
            offset += block.X.shape[0]
            if labelled is not None and labelled != (block.y is not None):
                raise StreamError(f"{where[0]}: some blocks or rows have labels and others have none.")
            labelled = block.y is not None
            block = self._good_rows(block, *where, bad, missing=self._missing != "error")
            if self._missing == "zero":
                block = Block(_zeroed(block.X), block.y, parts=tuple(map(_zeroed, block.parts)))
            yield block, Position(0, offset)

    def _given(self, items: Iterable[Any]) -> Iterator[_Found]:
        """Yield blocks."""
        for k, item in enumerate(items):
            block = _as_block(*_pair(item), k)
            if block.X.shape[1] != self.n_features:
                raise StreamError(f"Block {k} (from 0) has {block.X.shape[1]} columns, expected {self.n_features}.")
            yield (f"Block {k} (from 0)", 0), block, {}

    def _hashed(self, items: Iterable[Any], bits: int) -> Iterator[_Found]:
        """Yield blocks of rows given as dicts."""
        pairs: list[tuple[Any, Any]] = []
        entries = first = 0
        for item in chain(items, (_END,)):
            if item is not _END:
                pairs.append(_pair(item))
                entries += 1 + (len(pairs[-1][0]) if isinstance(pairs[-1][0], Mapping) else 0)
            if pairs and (item is _END or entries * _BYTES_OF_ENTRY >= self.block_bytes):
                rows = [row if self._missing == "error" else _filled(row) for row, _ in pairs]
                x, bad = hashed_rows(rows, bits)
                y = _as_labels([label for _, label in pairs], bad)
                good = [{} if k in bad else row for k, row in enumerate(rows)]
                groups = ([{group: row[group]} if group in row else {} for row in good] for group in self.groups)
                parts = tuple(hashed_rows(some, bits)[0] for some in groups)
                yield (self._names(), first), Block(x, y, parts=parts), bad
                first, entries, pairs = first + len(pairs), 0, []


def hashed_rows(rows: list[Any], bits: int) -> tuple[Any, dict[int, str]]:
    """Return dicts as hashed rows, like those of scikit-learn's `FeatureHasher`, and the problems of bad ones."""
    arrays, bad = hash_rows(rows, bits)
    x = sp.csr_matrix(arrays, shape=(len(rows), 2**bits))
    x.has_canonical_format = True
    what = "it should be a dict of numbers and strings by name"
    return x, {k: f"{what} ({problem}): {rows[k]!r:.80}" for k, problem in bad}


def _as_labels(labels: list[Any], bad: dict[int, str]) -> Any:
    """Return labels as an array, None if no row has one. If only some rows have labels, the others are bad."""
    without = [k for k, label in enumerate(labels) if label is None]
    if len(without) == len(labels):
        return None
    for k in without:
        bad.setdefault(k, "it has no label")
    example = next(label for label in labels if label is not None)
    text = isinstance(example, str)
    for k, label in enumerate(labels):
        if k not in bad and not (isinstance(label, str) if text else isinstance(label, numbers.Real | np.bool_)):
            bad[k] = f"its label is {label!r:.40}, and that of another row {example!r:.40}"
    known = [example if k in bad else label for k, label in enumerate(labels)]
    return np.array(known, dtype=object) if text else typed_labels(np.array(known))


def _pair(item: Any) -> tuple[Any, Any]:
    """Return the rows and labels of an item, which is X or the tuple (X, y)."""
    return item if isinstance(item, tuple) and len(item) == 2 else (item, None)


def _as_block(x: Any, y: Any, k: int) -> Block:
    """Return block k: X as an array of floats or a CSR matrix, y as an array."""
    name = f"Block {k} (from 0)"
    try:
        x = x.tocsr() if hasattr(x, "tocsr") else np.asarray(x)
    except ValueError as error:
        raise StreamError(f"{name} is not an array of rows: {error}") from error
    if x.ndim != 2 or x.dtype.kind not in "biuf" or x.shape[1] < 1:
        raise StreamError(
            f"{name} should be numbers in rows and columns, got an array of shape {x.shape} and type {x.dtype}. "
            "A single row is x.reshape(1, -1). Tables with text or dates need TableEncoder.learn(table)."
        )
    x = as_floats(x)
    if not isinstance(x, np.ndarray) and not x.has_canonical_format:
        x = x.copy()  # do not sort the caller's matrix
        x.sum_duplicates()
    if y is not None:
        y = np.asarray(y)
        if y.shape != (x.shape[0],):
            raise StreamError(f"{name} has {x.shape[0]} rows, and labels of the shape {y.shape}.")
        y = typed_labels(y)
    return Block(x, y)


def typed_labels(y: Any) -> Any:
    """Return labels as int64, float64 or objects."""
    kind = y.dtype.kind
    return y.astype(np.int64 if kind in "biu" else np.float64 if kind == "f" else object)


def _filled(row: Any) -> Any:
    """Return a row with NaN in place of None."""
    if not isinstance(row, Mapping) or None not in row.values():
        return row
    return {name: np.nan if value is None else value for name, value in row.items()}


def _zeroed(x: Any) -> Any:
    """Return rows with 0 in place of NaN."""
    values = x.data if sp.issparse(x) else x
    if not np.isnan(values).any():
        return x
    values = np.where(np.isnan(values), 0, values).astype(values.dtype, copy=False)
    return sp.csr_matrix((values, x.indices, x.indptr), shape=x.shape) if sp.issparse(x) else values
