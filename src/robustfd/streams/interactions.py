"""A stream with products of features as additional columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.streams._base import Block, Position, Stream, Survey, about_row, finite_rows
from robustfd.streams._crossing import crossing_of
from robustfd.streams.feature_names import namer


def _not_infinite(x: Any) -> Any:
    """Return a mask of the rows without infinite numbers; None if there are none. NaN means missing."""
    values = x.data if sp.issparse(x) else x
    if not np.isinf(values).any():
        return None
    known = np.where(np.isnan(values), 0, values)
    return finite_rows(sp.csr_matrix((known, x.indices, x.indptr), shape=x.shape) if sp.issparse(x) else known, None)


class InteractionStream(Stream):
    """The rows of another stream, each with the products of every feature of one group with every one of another.

    A group is a column of the input, with all its features, or a namespace. The product of single columns a and b is
    named a^b. Products of hashed features are hashed too.
    """

    def __init__(self, base: Stream, pairs: Sequence[tuple[str, str]], bits: int | None = None):
        super().__init__(base.inputs, start=base._start, on_error=base.on_error, block_bytes=base.block_bytes)
        self._base = base
        self.crossing = crossing_of(base.layout, base.n_features, namer(base.layout), pairs, bits)
        base.groups = self.crossing.hidden
        self.n_features = self.crossing.width

    @property
    def layout(self) -> dict[str, Any]:
        """The layout of the features, and the pairs of groups."""
        return {
            "kind": "interactions",
            "of": self._base.layout,
            "n_features": self._base.n_features,
            "pairs": self.crossing.pairs_as_json(),
            "hash_bits": self.crossing.bits,
        }

    def feature_name(self, column: int) -> str:
        """Return the name of a column."""
        return self.crossing.feature_name(column)

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        self._base.skipped, self._base.wants_ids, lost, rows = self.skipped, self.wants_ids, 0, start.rows
        self._base.seen_names = self.seen_names
        for block, position in self._base._blocks(start):
            crossed = self._crossed(block)
            keep = _not_infinite(crossed.X)
            if keep is not None:
                for row in np.flatnonzero(~keep).tolist():
                    self._bad_row(about_row(self._names(), rows, row, "a product of features is not finite")[1])
                crossed, lost = crossed.take(keep), lost + int((~keep).sum())
            rows = position.rows - lost
            yield crossed, replace(position, rows=rows, skipped=position.skipped + lost)

    def _crossed(self, block: Block) -> Block:
        """Return the rows with their products."""
        x = block.X
        with np.errstate(over="ignore"):
            if not sp.issparse(x):
                single = [
                    (int(pair.columns[0][0]), int(pair.columns[1][0])) for pair in self.crossing.pairs if pair.columns
                ]
                x = np.hstack([x, *(x[:, [a]] * x[:, [b]] for a, b in single)])
            else:
                arrays = self.crossing.products(x, self._parts(block))
                x = sp.csr_matrix(arrays, shape=(x.shape[0], self.n_features))
                x.has_canonical_format = True
        return Block(x, block.y, block.weight, block.id)

    def _parts(self, block: Block) -> dict[str, Any]:
        """Return the entries of each group as rows."""
        parts = dict(zip(self.crossing.hidden, block.parts))
        for group, columns in self.crossing.places.items():
            wanted = np.zeros(block.X.shape[1], bool)
            wanted[columns] = True
            chosen = wanted[block.X.indices]
            before = np.concatenate((np.zeros(1, np.int64), np.cumsum(chosen)))
            entries = (block.X.data[chosen], block.X.indices[chosen], before[block.X.indptr])
            parts[group] = sp.csr_matrix(entries, shape=block.X.shape)
        return parts

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
