"""The base of all streams: blocks of rows, checksums of rows to resume after, and messages about skipped rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from robustfd.learners.rows import CsrRows
from robustfd.streams.crossing import namer
from robustfd.streams.decisions import Decisions
from robustfd.streams.inputs import BLOCK_BYTES, LONGEST_LINE, Input, Position, StreamError
from robustfd.streams.layout import MOST_COLUMNS, SeenNames
from robustfd.streams.scan import MOST_LABELS

_EXAMPLES = 10  # messages about skipped rows that a stream keeps


def about_row(name: str, first: int, row: int, reason: str) -> tuple[int, str]:
    """Return the number of a row in its file, where `first` rows precede the block, and the message about it."""
    return first + row, f"{name}, row {first + row} (from 0): {reason}"


def as_floats(values: Any) -> Any:
    """Return numbers as float64; float32 stays float32."""
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4  # in any byte order
    return values.astype(np.float32 if single else np.float64, copy=False)


def is_table(rows: Any) -> bool:
    """Return whether this is a table: a DataFrame of pandas or polars, or a pyarrow table."""
    return hasattr(rows, "__arrow_c_stream__") or is_pandas(rows)


def is_pandas(rows: Any) -> bool:
    """Return whether this is a pandas DataFrame."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def finite_rows(x: Any, y: Any, *, missing: bool = False) -> Any:
    """Return a mask of the rows whose features and labels are finite; None if all are. NaN may stand for `missing`."""
    dense = isinstance(x, np.ndarray)
    values = x if dense else x.data
    fine = ~np.isinf(values) if missing else np.isfinite(values)
    labels = y is not None and y.dtype.kind == "f" and not np.isfinite(y).all()
    if fine.all() and not labels:
        return None
    if dense:
        keep = fine.all(axis=1)
    else:
        keep = np.ones(x.shape[0], bool)
        keep[np.searchsorted(x.indptr, np.flatnonzero(~fine), side="right") - 1] = False
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
    decisions : Decisions or None
        The arms that were chosen, in logs of bandits. Then y are their rewards.
    """

    weight: Any
    id: Any
    parts: tuple[Any, ...]
    decisions: Decisions | None

    def __new__(
        cls,
        X: Any,
        y: Any,
        weight: Any = None,
        id: Any = None,
        parts: tuple[Any, ...] = (),
        decisions: Decisions | None = None,
    ) -> "Block":
        """Return a block; the pair is immutable, so that it is made here."""
        block = super().__new__(cls, X, y)
        block.weight, block.id, block.parts, block.decisions = weight, id, parts, decisions
        return block

    def take(self, keep: Any) -> "Block":
        """Return the rows that a mask or a slice selects."""
        y, weight, id = (None if each is None else each[keep] for each in (self.y, self.weight, self.id))
        x = self.X.take(keep) if isinstance(self.X, CsrRows) else self.X[keep]
        decisions = None if self.decisions is None else self.decisions.take(keep)
        return Block(x, y, weight, id, tuple(part[keep] for part in self.parts), decisions)


def without(block: Block, bad: Iterable[int]) -> Block:
    """Return the rows of a block other than the bad ones."""
    keep = np.ones(block.X.shape[0], bool)
    keep[list(bad)] = False
    return block if keep.all() else block.take(keep)


class Checksum:
    """CRC-32 of the values of rows, of the indices and lengths of sparse rows, and of labels and weights.

    It detects changed files, not forged ones. It processes about a gigabyte per second.
    """

    def __init__(self) -> None:
        self._values = self._columns = self._lengths = self._labels = self._weights = self._rows = 0

    def add(self, block: Block) -> None:
        """Add rows, with their labels, weights and decisions if there are any."""
        (x, y), weight = block, block.weight
        if not isinstance(x, np.ndarray):
            first, last = int(x.indptr[0]), int(x.indptr[-1])
            self._values = crc32(_bytes(x.data[first:last]), self._values)
            self._columns = crc32(_bytes(x.indices[first:last].astype("<i8")), self._columns)
            self._lengths = crc32(_bytes(np.diff(x.indptr).astype("<i8")), self._lengths)
        else:
            self._values = crc32(_bytes(x), self._values)
        if y is not None:
            self._labels = crc32(_bytes_of_labels(y), self._labels)
        if weight is not None:  # a block whose weights are all 1 may come without weights
            others = np.flatnonzero(weight != 1)
            self._weights = crc32(_bytes(np.column_stack((self._rows + others, weight[others]))), self._weights)
        if (found := block.decisions) is not None:
            for values in (found.arm, found.probability, found.arms):
                if values is not None:  # the features of arms count by their values
                    values = values if isinstance(values, np.ndarray) else values.data
                    self._labels = crc32(_bytes_of_labels(values), self._labels)
        self._rows += x.shape[0]

    def __str__(self) -> str:
        weights = f"{self._weights:08x}" if self._weights else ""
        return f"{self._values:08x}{self._columns:08x}{self._lengths:08x}{self._labels:08x}{weights}"


def _bytes(array: Any) -> Any:
    """Return the bytes of an array in row-major, little-endian order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def _bytes_of_labels(y: Any) -> Any:
    """Return the bytes of labels. Equal numbers of any type have the same bytes."""
    y = np.asarray(y)
    if y.dtype.kind in "biuf":
        return _bytes(y.astype(np.float64))
    return "".join(f"{len(str(label))}:{label}" for label in y.tolist()).encode("utf-8", "surrogatepass")


@dataclass
class Survey:
    """The result of one pass over a stream.

    Attributes
    ----------
    rows : int
        The number of rows.
    labels : set or None
        The distinct labels, or None if there are more than `scan.MOST_LABELS`.
    """

    rows: int = 0
    labels: set[Any] | None = field(default_factory=set)

    def add(self, block: Block) -> None:
        """Add a block. NaN and None are not labels."""
        found = () if block.y is None else block.y if block.y.dtype == object else np.unique(block.y).tolist()
        self.add_labels(block.X.shape[0], (label for label in found if label is not None and label == label))

    def add_labels(self, rows: int, labels: Iterable[Any]) -> None:
        """Add a number of rows and their distinct labels."""
        self.rows += rows
        if self.labels is not None:
            self.labels.update(labels)
            if len(self.labels) > MOST_LABELS:
                self.labels = None


@dataclass(frozen=True)
class Options:
    """How to read rows, as `open_stream` documents it. A format has some of the options."""

    target: str | int | tuple[str, ...] | None = None
    weight: str | int | None = None
    id: str | int | None = None
    arm: str | int | tuple[str, ...] | None = None
    cost: str | int | tuple[str, ...] | None = None
    probability: str | int | tuple[str, ...] | None = None
    columns: list[Any] | None = None
    drop: list[Any] | None = None
    categories: str | None = None
    hash_bits: int | None = None
    n_features: int | None = None
    zero_based: bool | None = None
    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    missing: str = "error"
    unseen: str = "error"
    unlabelled: str = "keep"


@dataclass
class Counts:
    """Rows and entries of a pass that are not in its blocks."""

    skipped: int = 0
    dropped: int = 0


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
    wants_codes: bool = False  # whether sparse rows of tables are CodedRows
    seen_names: SeenNames | None = None  # set it to collect the names of hashed features
    _resumable: bool = True  # whether positions have checksums, without which no stream continues from them
    parse_threads: int = 1  # threads that parse, in formats where lines can be parsed independently

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        start: Position | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        block_bytes: int = BLOCK_BYTES,
        max_columns: int = MOST_COLUMNS,
        max_line_bytes: int = LONGEST_LINE,
    ):
        self.inputs = list(inputs)
        self.max_columns, self.max_line_bytes = max_columns, max_line_bytes
        self.on_error = on_error
        self.block_bytes = block_bytes
        self.skipped: list[str] = []
        self._counts = Counts()
        self.remarks: list[str] = []
        self.position = self._start = start or Position()
        self._surveyed: Survey | None = None

    @property
    @abstractmethod
    def layout(self) -> dict[str, Any]:
        """How the input becomes columns, as a JSON document."""

    def feature_name(self, column: int) -> str:
        """Return the name of a column: a name or number, "name=value", or "hash" and a number."""
        return self._namer(column)

    @cached_property
    def _namer(self) -> Callable[[int], str]:
        return namer(self.layout)

    @abstractmethod
    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        """Yield all blocks, each with its end: file, offset, line and stored bytes."""

    def __iter__(self) -> Iterator[Block]:
        self.skipped, self._counts, self.position = [], Counts(), self._start
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
        rows, checksum = 0, Checksum()
        for block, end in self._blocks():
            left = start.rows - rows
            rows += block.X.shape[0]
            if left > 0:
                before, block = block.take(slice(left)), block.take(slice(left, None))
                checksum.add(before)
                if rows >= start.rows and str(checksum) != start.checksum:
                    raise StreamError(
                        f"{self._names()} was changed: the first {start.rows} rows are not those that were read "
                        "before. Restore the old content, or start over without the position or the checkpoint."
                    )
                if not block.X.shape[0]:
                    continue
            if self._resumable:
                checksum.add(block)
            found = str(checksum) if self._resumable else ""
            yield block, replace(end, rows=rows, checksum=found, **asdict(self._counts))
        if rows < start.rows:
            raise StreamError(
                f"{self._names()} ends before row {start.rows}, where reading should go on: it was changed."
            )

    def survey(self) -> Survey:
        """Read all rows once, and return their number and labels; not for pipes."""
        if self._surveyed is None:
            self._require_rereading()
            counts, self._counts = self._counts, Counts()  # an iteration may be under way
            self._surveyed = self._survey()
            self._counts = counts
        self._require_rows(self._surveyed.rows, 0)
        return self._surveyed

    def _survey(self) -> Survey:
        """Return the survey of all rows."""
        result = Survey()
        for block, _ in self._blocks():
            result.add(block)
        return result

    @property
    def can_be_reread(self) -> bool:
        """Whether all inputs can be read more than once."""
        return all(each.can_be_reread for each in self.inputs)

    def _require_rereading(self) -> None:
        """Raise unless all inputs can be read more than once."""
        for each in self.inputs:
            if not each.can_be_reread:
                raise ValueError(
                    f"{each.name} can be read only once, and this needs an extra pass over it. "
                    "Give n_features or hash_bits, or the classes, to avoid that pass, or read from a file."
                )

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

    def _require_few_columns(self, file: int, columns: int) -> None:
        """Raise if an input has, or claims, more columns than allowed, before memory is allocated for them."""
        if columns > self.max_columns:
            raise StreamError(
                f"{self.inputs[file].name} has {columns} columns, more than max_columns={self.max_columns}. "
                "If the file is right, raise that limit (--max-columns)."
            )

    def _bad_row(self, message: str, *, harmless: bool = False) -> None:
        """Raise, or record the message, about a row that cannot be read. A `harmless` row is always skipped."""
        if self.on_error == "raise" and not harmless:
            raise StreamError(message)
        self._counts.skipped += 1
        if len(self.skipped) < _EXAMPLES:
            self.skipped.append(message)

    def _good_rows(
        self,
        block: Block,
        name: str,
        first: int,
        bad: dict[int, str] | None = None,
        *,
        missing: bool = False,
        reason: str = "a number is not finite",
    ) -> Block:
        """Return the rows of a block that are finite and not bad; report the others, with `first` rows before them."""
        finite = finite_rows(*block, missing=missing)
        infinite = [] if finite is None else np.flatnonzero(~finite).tolist()
        reasons = dict.fromkeys(infinite, reason) | (bad or {})
        for row in sorted(reasons):
            self._bad_row(about_row(name, first, row, reasons[row])[1])
        return without(block, reasons)

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
