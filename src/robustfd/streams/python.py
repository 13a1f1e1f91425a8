"""Iterables of blocks, or of rows given as dicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from robustfd._core import hash_rows
from robustfd.streams._base import Block, Position, Stream, about_row, finite_rows
from robustfd.streams._errors import StreamError
from robustfd.streams._python_rows import as_block, as_labels, as_pair
from robustfd.streams.limits import DEFAULT_BITS, MOST_BITS, MOST_COLUMNS

_Found = tuple[tuple[str, int], int, Block, dict[int, str]]  # (name, first row), number of rows, block, problems by row
_END = object()
_BYTES_OF_ENTRY = 32  # about the size of an entry as text


class PythonStream(Stream):
    """Blocks X or (X, y), or rows dict or (dict, label), from any iterable; the offset of a position counts rows.

    A dict maps names to features: a number is the value of the feature, and the string v of the name c is the feature
    "c=v" with value 1. Features are hashed into 2^hash_bits columns as in scikit-learn's `FeatureHasher`. NaN and None
    are missing numbers.
    """

    def __init__(
        self,
        source: Iterable[Any],
        *,
        hash_bits: int | None = None,
        missing: Literal["error", "zero", "nan"] = "error",
        layout: dict[str, Any] | None = None,
        **common: Any,
    ):
        super().__init__([], **common)
        self._missing = missing
        self._source: Iterable[Any] = [source] if hasattr(source, "shape") else source  # a single block
        if not isinstance(self._source, Iterable):
            raise TypeError(
                f"source must be a path, a binary file, or an iterable of blocks or rows, got {source!r:.100}."
            )
        items = iter(self._source)
        first = list(zip(range(1), items))
        self._require_rows(len(first), 0)
        self._once_only = chain((item for _, item in first), items)
        self._bits: int | None = None
        width, bits = (None, None) if layout is None else _read_layout(layout)
        if isinstance(as_pair(first[0][1])[0], Mapping):
            bits = (DEFAULT_BITS if hash_bits is None else hash_bits) if layout is None else bits
            if bits is None:
                raise StreamError(f"The layout {layout!r:.100} is for blocks, and these are rows as dicts.")
            self._bits, self.n_features = bits, 2**bits
        else:
            if hash_bits is not None or bits is not None:
                raise ValueError(f"hash_bits={hash_bits or bits} is for rows as dicts, and these are blocks.")
            self.n_features = as_block(*as_pair(first[0][1]), 0).X.shape[1] if width is None else width

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
            raise ValueError(
                "The iterable can be read only once, and this needs an extra pass over it. Make it a list."
            )

    def _names(self) -> str:
        return "The iterable"

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        items = iter(self._source) if self.can_be_reread else self._once_only
        at, rows, skipped = 0, start.rows, start.skipped
        labelled: bool | None = None
        for where, size, block, bad in self._given(items) if self._bits is None else self._hashed(items, self._bits):
            begin, at = max(start.offset - at, 0), at + size
            if begin >= size:
                continue
            if labelled is not None and labelled != (block.y is not None):
                raise StreamError(f"{where[0]}: some blocks or rows have labels and others have none.")
            labelled = block.y is not None
            if self._missing != "error":
                zeroed = _zeroed(block.X)
                keep = finite_rows(zeroed, block.y)
                if self._missing == "zero":
                    block = Block(zeroed, block.y, parts=tuple(map(_zeroed, block.parts)))
            else:
                keep = finite_rows(block.X, block.y)
            keep = np.ones(size, bool) if keep is None else keep
            reasons = bad | {row: "a number is not finite" for row in np.flatnonzero(~keep).tolist() if row not in bad}
            keep[list(bad)] = False
            for row in sorted(reasons):
                if row >= begin:
                    self._bad_row(about_row(*where, row, reasons[row])[1])
            keep[:begin] = False
            if not keep.all():
                block = block.take(keep)
            rows, skipped = rows + block.X.shape[0], skipped + sum(row >= begin for row in reasons)
            yield block, Position(0, at, 0, rows, 0, skipped)

    def _given(self, items: Iterable[Any]) -> Iterator[_Found]:
        """Yield blocks."""
        for k, item in enumerate(items):
            block = as_block(*as_pair(item), k)
            n, width = block.X.shape
            if width != self.n_features:
                raise StreamError(f"Block {k} (from 0) has {width} columns, expected {self.n_features}.")
            yield (f"Block {k} (from 0)", 0), n, block, {}

    def _hashed(self, items: Iterable[Any], bits: int) -> Iterator[_Found]:
        """Yield blocks of rows given as dicts."""
        pairs: list[tuple[Any, Any]] = []
        entries = first = 0
        for item in chain(items, (_END,)):
            if item is not _END:
                pairs.append(as_pair(item))
                entries += 1 + (len(pairs[-1][0]) if isinstance(pairs[-1][0], Mapping) else 0)
            if pairs and (item is _END or entries * _BYTES_OF_ENTRY >= self.block_bytes):
                rows = [row if self._missing == "error" else _filled(row) for row, _ in pairs]
                x, bad = hashed_rows(rows, bits)
                y = as_labels([label for _, label in pairs], bad)
                yield (self._names(), first), len(pairs), Block(x, y, parts=self._parts(rows, bad, bits)), bad
                first, entries, pairs = first + len(pairs), 0, []

    def _parts(self, rows: list[Any], bad: dict[int, str], bits: int) -> tuple[Any, ...]:
        """Return the entries of each group. A group is a name."""
        rows = [{} if k in bad else row for k, row in enumerate(rows)]
        return tuple(
            hashed_rows([{group: row[group]} if group in row else {} for row in rows], bits)[0] for group in self.groups
        )


def hashed_rows(rows: list[Any], bits: int) -> tuple[Any, dict[int, str]]:
    """Return dicts as hashed rows, like those of scikit-learn's `FeatureHasher`, and the problems of bad ones."""
    arrays, bad = hash_rows(rows, bits)
    x = sp.csr_matrix(arrays, shape=(len(rows), 2**bits))
    x.has_canonical_format = True
    what = "it should be a dict of numbers and strings by name"
    return x, {k: f"{what} ({problem}): {rows[k]!r:.80}" for k, problem in bad}


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


def _read_layout(layout: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return n_features and hash_bits, one of them None, of an untrusted layout."""
    width, bits = layout.get("n_features"), layout.get("hash_bits")
    for value, most, found in ((width, MOST_COLUMNS, (width, None)), (bits, MOST_BITS, (None, bits))):
        if layout.get("kind") == "python" and type(value) is int and 0 < value <= most:
            return found
    raise StreamError(f"{layout!r:.100} is not a layout of columns of an iterable.")
