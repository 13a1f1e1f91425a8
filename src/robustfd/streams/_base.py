"""The base of all streams: blocks of rows, positions to resume from, and messages about skipped rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from robustfd.learners.rows import CsrRows
from robustfd.streams._checksum import Checksum
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams.feature_names import namer
from robustfd.streams.limits import BLOCK_BYTES, EXAMPLES, MOST_LABELS
from robustfd.streams.seen_names import SeenNames


def about_row(name: str, first: int, row: int, reason: str) -> tuple[int, str]:
    """Return the number of a row in its file, where `first` rows precede the block, and the message about it."""
    return first + row, f"{name}, row {first + row} (from 0): {reason}"


def finite_rows(x: Any, y: Any) -> Any:
    """Return a mask of the rows whose features and labels are finite; None if all are."""
    labels = y is not None and y.dtype.kind == "f" and not np.isfinite(y).all()
    dense = isinstance(x, np.ndarray)
    if np.isfinite(x if dense else x.data).all() and not labels:
        return None
    if not dense:
        keep = np.ones(x.shape[0], bool)
        keep[np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data)), side="right") - 1] = False
    else:
        keep = np.isfinite(x).all(axis=1)
    return keep & np.isfinite(y) if labels else keep


class _Pair(NamedTuple):
    X: Any
    y: Any


class Block(_Pair):
    """Some rows: the pair of X, an array or a CSR matrix, and y, an array or None if rows have no labels.

    Attributes
    ----------
    weight : array or None
        The weights of the rows, if the source has any.
    id : array of str or None
        The names of the rows, if the source has any and `Stream.wants_ids` is set.
    parts : tuple of CSR matrices
        The entries of each group of features in `Stream.groups`.
    """

    weight: Any
    id: Any
    parts: tuple[Any, ...]

    def __new__(cls, X: Any, y: Any, weight: Any = None, id: Any = None, parts: tuple[Any, ...] = ()) -> "Block":
        block = super().__new__(cls, X, y)
        block.weight, block.id, block.parts = weight, id, parts
        return block

    def take(self, keep: Any) -> "Block":
        """Return the rows that a mask or a slice selects."""
        y, weight, id = (None if each is None else each[keep] for each in (self.y, self.weight, self.id))
        x = self.X.take(keep) if isinstance(self.X, CsrRows) else self.X[keep]
        return Block(x, y, weight, id, tuple(part[keep] for part in self.parts))


def _distinct(y: Any) -> list[Any]:
    """Return the distinct labels, without NaN."""
    found = np.unique(y)
    return found[~np.isnan(found)].tolist() if found.dtype.kind == "f" else found.tolist()


@dataclass(frozen=True)
class Position:
    """A position in a stream, between two rows."""

    file: int = 0  # index of the input
    offset: int = 0  # bytes of its uncompressed text, or rows, read so far
    line: int = 0  # lines of this input read so far
    rows: int = 0  # rows of all inputs so far
    stored: int = 0  # stored bytes of all inputs so far, for progress bars
    skipped: int = 0  # bad rows of all inputs so far
    dropped: int = 0  # dropped entries (unknown features) of all inputs so far
    checksum: str = ""  # of all rows so far

    def to_json(self) -> dict[str, int | str]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> "Position":
        """Return the position in a JSON object; raise `StreamError` if it is invalid."""
        names = cls.__dataclass_fields__
        if not isinstance(document, dict) or any(
            name not in names or type(value) is not type(names[name].default) or (type(value) is int and value < 0)
            for name, value in document.items()
        ):
            raise StreamError(f"{document!r:.100} is not a position of a stream.")
        return cls(**document)


@dataclass
class Survey:
    """The result of one pass over a stream.

    Attributes
    ----------
    rows : int
        The number of rows.
    labels : set or None
        The distinct labels, or None if there are more than `limits.MOST_LABELS`.
    """

    rows: int = 0
    labels: set[Any] | None = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Add a block."""
        self.add_labels(block.X.shape[0], () if block.y is None else _distinct(block.y))

    def add_labels(self, rows: int, labels: Iterable[Any]) -> None:
        """Add a number of rows and their distinct labels."""
        self.rows += rows
        if self.labels is not None:
            self.labels.update(labels)
            if len(self.labels) > MOST_LABELS:
                self.labels = None


def _cut(block: Block, n: int) -> tuple[Block, Block]:
    """Return the first n rows of a block, and the rest."""
    return block.take(slice(n)), block.take(slice(n, None))


class Stream(ABC):
    """An iterable of blocks (X, y) of rows from files, pipes or Python. `open_stream` makes streams.

    Attributes
    ----------
    n_features : int
        The number of columns of X.
    layout : dict
        How the input becomes columns, as a JSON document. Pass it to `open_stream` to read other files of the same
        kind into the same columns.
    position : Position
        The end of the last block. Pass it to `open_stream` as `start` to continue there.
    rows_read, bytes_read : int
        Rows and stored bytes of all inputs so far.
    bytes_total : int or None
        Stored bytes of all inputs, None if unknown.
    skipped : list of str
        Messages about the first ten skipped rows; `position.skipped` is the number of skipped rows.
    remarks : list of str
        Decisions about the inputs that options can change, such as whether a CSV file has a header.

    See Also
    --------
    robustfd.streams.open_stream : Open a stream.

    Examples
    --------
    >>> import numpy as np
    >>> from robustfd.streams import open_stream
    >>> stream = open_stream([np.ones((3, 2)), np.zeros((1, 2))])
    >>> sum(block.X.shape[0] for block in stream), stream.n_features
    (4, 2)
    """

    n_features: int
    groups: tuple[str, ...] = ()  # groups of features whose entries become the parts of blocks
    wants_ids: bool = False  # whether blocks have ids
    plain_rows: bool = False  # whether blocks of text have CsrRows, for learners that need no scipy
    seen_names: SeenNames | None = None  # set it to collect the names of hashed features
    parse_threads: int = 1  # threads that parse, in formats where lines can be parsed independently

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
        """How the input becomes columns, as a JSON document."""

    def feature_name(self, column: int) -> str:
        """Return the name of a column: a name or number, "name=value", or "hash" and a number."""
        return namer(self.layout)(column)

    @abstractmethod
    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        """Yield the blocks after a position, each with the position after it."""

    def __iter__(self) -> Iterator[Block]:
        self.skipped, self.position = [], self._start
        for block, position in self._resume(self._start):
            self.position = position
            if block.X.shape[0]:
                yield block
        self._require_rows(self.position.rows, self.position.skipped)

    def _resume(self, start: Position) -> Iterator[tuple[Block, Position]]:
        """Yield the blocks after a position, each with the position after it; raise if earlier rows have changed.

        The earlier rows are read again and compared with the checksum of the position. Reading continues after that
        number of rows, not at an offset in a file that may have changed. Rows may have been appended.
        """
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
                f"{self._names()} ends before row {start.rows}, where reading should continue: it was changed."
            )

    def survey(self) -> Survey:
        """Read all rows once, and return their number and labels; not for pipes."""
        if self._surveyed is None:
            self._require_rereading()
            self._surveyed = self._survey()
        self._require_rows(self._surveyed.rows, 0)
        return self._surveyed

    def _survey(self) -> Survey:
        """Return the survey of all rows."""
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
        """Return the names of the inputs for a message."""
        return ", ".join(each.name for each in self.inputs[:3]) + (", ..." if len(self.inputs) > 3 else "")

    def _require_rows(self, rows: int, skipped: int) -> None:
        """Raise if there are no rows, so that callers do not continue without data."""
        if not rows and self.skipped:
            raise StreamError(
                f"{self._names()} has no rows that can be read; {skipped or 'all'} were skipped: {self.skipped[0]}"
            )
        if not rows:
            raise StreamError(f"{self._names()} has no rows" + self._once() + ".")

    def _once(self) -> str:
        """Return the end of a message about empty inputs that can be read only once."""
        return "" if self.can_be_reread else ", or they have already been read"

    def _bad_row(self, message: str, *, harmless: bool = False) -> None:
        """Raise, or record the message, about a row that cannot be read. A `harmless` row is always skipped."""
        if self.on_error == "raise" and not harmless:
            raise StreamError(message)
        if len(self.skipped) < EXAMPLES:
            self.skipped.append(message)

    @property
    def rows_read(self) -> int:
        """Rows read so far."""
        return self.position.rows

    @property
    def rows_expected(self) -> int:
        """An estimate of the number of all rows; the rows so far if the inputs have no known size."""
        position, total = self.position, self.bytes_total
        return position.rows if total is None or not position.stored else position.rows * total // position.stored

    @property
    def bytes_read(self) -> int:
        """Stored bytes read so far."""
        return self.position.stored

    @property
    def bytes_total(self) -> int | None:
        """Stored bytes of all inputs, None if unknown."""
        sizes = [each.size for each in self.inputs]
        return None if None in sizes or not sizes else sum(size for size in sizes if size is not None)
