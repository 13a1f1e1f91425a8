"""What all streams share: blocks of rows, a position to go on from, and an account of what was skipped."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from robustfd.streams._checksum import Checksum
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams.feature_names import namer
from robustfd.streams.limits import BLOCK_BYTES, EXAMPLES, MOST_LABELS
from robustfd.streams.seen_names import SeenNames


def about_row(name: str, first: int, row: int, reason: str) -> tuple[int, str]:
    """Return the number of a row, behind `first` others of its file, and what to say about it."""
    return first + row, f"{name}, row {first + row} (from 0): {reason}"


def finite_rows(x: Any, y: Any) -> Any:
    """Return a mask of the rows, with their labels, that are finite; None if all of them are."""
    labels = y is not None and y.dtype.kind == "f" and not np.isfinite(y).all()
    if np.isfinite(x.data if sp.issparse(x) else x).all() and not labels:
        return None
    if sp.issparse(x):
        keep = np.ones(x.shape[0], bool)
        keep[np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data)), side="right") - 1] = False
    else:
        keep = np.isfinite(x).all(axis=1)
    return keep & np.isfinite(y) if labels else keep


class _Pair(NamedTuple):
    X: Any
    y: Any


class Block(_Pair):
    """Some rows: the pair of X, an array or a CSR matrix, and y, None if rows have no labels.

    Attributes
    ----------
    weight : array or None
        How much rows count, if the source says so.
    id : array of str or None
        What rows are called, if the source says so and the stream was asked for it (`Stream.wants_ids`).
    parts : tuple of CSR matrices
        The entries of each of the groups of features that the stream was asked for (`Stream.groups`).
    """

    weight: Any
    id: Any
    parts: tuple[Any, ...]

    def __new__(cls, X: Any, y: Any, weight: Any = None, id: Any = None, parts: tuple[Any, ...] = ()) -> "Block":
        block = super().__new__(cls, X, y)
        block.weight, block.id, block.parts = weight, id, parts
        return block

    def take(self, keep: Any) -> "Block":
        """Return the rows of a mask or a slice."""
        y, weight, id = (None if each is None else each[keep] for each in (self.y, self.weight, self.id))
        return Block(self.X[keep], y, weight, id, tuple(part[keep] for part in self.parts))


def _distinct(y: Any) -> list[Any]:
    """Return the different labels there are; NaN is none."""
    found = np.unique(y)
    return found[~np.isnan(found)].tolist() if found.dtype.kind == "f" else found.tolist()


@dataclass(frozen=True)
class Position:
    """Where a stream is, after whole rows."""

    file: int = 0  # which of the inputs
    offset: int = 0  # bytes of its plain text, or rows, that were read
    line: int = 0  # lines that were read
    rows: int = 0  # of all inputs so far
    stored: int = 0  # bytes of all inputs so far, as they are stored: for progress only
    skipped: int = 0  # bad rows of all inputs so far
    dropped: int = 0  # numbers of features beyond the last, of all inputs so far
    checksum: str = ""  # of all rows so far; empty if it is not known, as in positions of older versions

    def to_json(self) -> dict[str, int | str]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> "Position":
        """Return the position that `to_json` wrote; raise `StreamError` if it is none."""
        names = cls.__dataclass_fields__
        if not isinstance(document, dict) or any(
            name not in names or type(value) is not type(names[name].default) or (type(value) is int and value < 0)
            for name, value in document.items()
        ):
            raise StreamError(f"{document!r:.100} is no position of a stream.")
        return cls(**document)


@dataclass
class Survey:
    """What one pass over a stream tells: how many rows, and their labels, None if these are too many to be classes."""

    rows: int = 0
    labels: set[Any] | None = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Take in one block."""
        self.add_labels(block.X.shape[0], () if block.y is None else _distinct(block.y))

    def add_labels(self, rows: int, labels: Iterable[Any]) -> None:
        """Take in so many rows, and the distinct labels they have."""
        self.rows += rows
        if self.labels is not None:
            self.labels.update(labels)
            if len(self.labels) > MOST_LABELS:
                self.labels = None


def _cut(block: Block, n: int) -> tuple[Block, Block]:
    """Return the first n rows of a block, and the others."""
    return block.take(slice(n)), block.take(slice(n, None))


class Stream(ABC):
    """An iterable of blocks (X, y) of rows from files, pipes or Python; made by `open_stream`.

    Attributes
    ----------
    n_features : int
        Columns of X.
    layout : dict
        How what is read becomes columns, as JSON can hold it: handed to `open_stream` it makes other files of the same
        kind have the same columns.
    position : Position
        Where the last block ended; handed to `open_stream` as `start`, reading goes on there.
    rows_read, bytes_read : int
        So far, in all inputs; bytes as they are stored.
    bytes_total : int or None
        Of all inputs, None if that cannot be known.
    skipped : list of str
        The first ten messages about rows that were skipped; `position.skipped` is how many there were.
    remarks : list of str
        What was decided about the inputs that could have been decided otherwise.
    """

    n_features: int
    groups: tuple[str, ...] = ()  # of features, whose entries blocks shall have as parts
    wants_ids: bool = False  # whether blocks shall have ids
    seen_names: SeenNames | None = None  # set it to learn what hashed features are called

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        start: Position | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        block_bytes: int = BLOCK_BYTES,
    ):
        self.inputs = list(inputs)
        self.on_error = on_error
        self.block_bytes = block_bytes
        self.skipped: list[str] = []
        self.remarks: list[str] = []
        self.position = self._start = start or Position()
        self._surveyed: Survey | None = None

    @property
    @abstractmethod
    def layout(self) -> dict[str, Any]:
        """How what is read becomes columns."""

    def feature_name(self, column: int) -> str:
        """Return what a column is called: its name or number, "name=value", or "hash" and a number."""
        return namer(self.layout)(column)

    @abstractmethod
    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        """Yield blocks from a position on, each with the position after it."""

    def __iter__(self) -> Iterator[Block]:
        self.skipped, self.position = [], self._start
        for block, position in self._going_on(self._start):
            self.position = position
            if block.X.shape[0]:
                yield block
        self._require_rows(self.position.rows, self.position.skipped)

    def _going_on(self, start: Position) -> Iterator[tuple[Block, Position]]:
        """Yield the blocks behind a position, each with the position after it; raise if the rows before are others.

        The rows before are read again: what comes next depends on how many they were, not on a place in a file that
        may have been changed. Rows may have been added behind them.
        """
        if start.rows and not start.checksum:
            yield from self._blocks(start)
            return
        left, checksum = start.rows, Checksum()
        for block, position in self._blocks(Position()):
            if left:
                before, block = _cut(block, left)
                checksum.add(*before, before.weight)
                left -= before.X.shape[0]
                if not left and str(checksum) != start.checksum:
                    raise StreamError(
                        f"{self._names()} was changed: the first {start.rows} rows are not those that were read "
                        "before. Restore the old content, or start over without the position or the checkpoint."
                    )
                if not block.X.shape[0]:
                    continue
            checksum.add(*block, block.weight)
            yield block, replace(position, checksum=str(checksum))
        if left:
            raise StreamError(
                f"{self._names()} ends before row {start.rows}, up to where it was read before: it was changed."
            )

    def survey(self) -> Survey:
        """Read everything once, and return how many rows there are and their labels; not for pipes."""
        if self._surveyed is None:
            self._require_rereading()
            self._surveyed = self._survey()
        self._require_rows(self._surveyed.rows, 0)
        return self._surveyed

    def _survey(self) -> Survey:
        """Read everything once for what `survey` returns."""
        result = Survey()
        for block, _ in self._blocks(Position()):
            result.add(block)
        return result

    @property
    def can_be_reread(self) -> bool:
        """Whether all inputs can be read more than once."""
        return all(each.can_be_reread for each in self.inputs)

    def _require_rereading(self) -> None:
        """Raise unless all inputs can be read more than once."""
        for each in self.inputs:
            each.require_rereading()

    def _names(self) -> str:
        """Return what the inputs are called."""
        return ", ".join(each.name for each in self.inputs[:3]) + (", ..." if len(self.inputs) > 3 else "")

    def _require_rows(self, rows: int, skipped: int) -> None:
        """Raise if there are none: whoever reads rows would go on with nothing learnt."""
        if not rows and self.skipped:
            raise StreamError(
                f"{self._names()} has no rows that can be read; {skipped or 'all'} were skipped: {self.skipped[0]}"
            )
        if not rows:
            raise StreamError(f"{self._names()} has no rows" + self._once() + ".")

    def _once(self) -> str:
        """Return what to say about inputs that can be read only once."""
        return "" if self.can_be_reread else ", or they were read before"

    def _bad_row(self, message: str, *, harmless: bool = False) -> None:
        """Raise, or keep the message, about a row that cannot be read, or is left out and that is `harmless`."""
        if self.on_error == "raise" and not harmless:
            raise StreamError(message)
        if len(self.skipped) < EXAMPLES:
            self.skipped.append(message)

    @property
    def rows_read(self) -> int:
        """Rows so far."""
        return self.position.rows

    @property
    def bytes_read(self) -> int:
        """Bytes so far, as they are stored."""
        return self.position.stored

    @property
    def bytes_total(self) -> int | None:
        """Bytes of all inputs, as they are stored; None if that cannot be known."""
        sizes = [each.size for each in self.inputs]
        return None if None in sizes or not sizes else sum(size for size in sizes if size is not None)
