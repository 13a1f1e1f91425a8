"""Arrays (.npy) and sparse matrices (.npz) in files of numpy and scipy, read sequentially."""

import errno
import io
import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from robustfd.streams.base import Block, Options, Stream, as_floats
from robustfd.streams.inputs import Input, Position, StreamError, is_damage, stored_before
from robustfd.streams.layout import MOST_COLUMNS, is_width, not_a_layout, place, read_layout

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_READ_BYTES = 1 << 22
_LONGEST_HEADER = 1 << 16  # bytes; numpy reads up to 10,000
_PARTS = ("shape", "indptr", "indices", "data")  # of a sparse matrix


class ArrayReader:
    """Sequential access to the items of an array in numpy's format. The header of the file is untrusted."""

    def __init__(self, file: Any, name: str):
        self._file, self.name = file, name
        try:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:  # 3.0 is for structured arrays only
                raise ValueError(f"version {version} of the format")
            length = file.read(2 * version[0])  # of the header
            if int.from_bytes(length, "little") > _LONGEST_HEADER:
                raise ValueError(f"a header of {int.from_bytes(length, 'little')} bytes")
            header = io.BytesIO(length + file.read(int.from_bytes(length, "little")))
            self.shape, self.fortran, self.dtype = _HEADERS[version](header)
            self.count = math.prod(self.shape)
        except Exception as error:  # a header is parsed as Python, so any error is possible
            if is_damage(error):
                raise
            raise StreamError(f"{name} is not an array of numbers in numpy's format: {str(error)[:200]}") from error
        if self.dtype.kind not in "biuf":
            raise StreamError(
                f"{name} must have numbers, got an array of {self.dtype!s:.100}"
                + (". Save the columns of its records as a two-dimensional array." if self.dtype.names else ".")
            )

    def take(self, count: int) -> Any:
        """Return the next items."""
        pieces, left = [], count * self.dtype.itemsize
        while left:
            piece = self._file.read(min(left, _READ_BYTES))
            if not piece:
                raise StreamError(f"{self.name} is truncated: it should have {self.count} numbers.")
            pieces.append(piece)
            left -= len(piece)
        return np.frombuffer(b"".join(pieces), self.dtype)


class NpyStream(Stream):
    """Rows of two-dimensional arrays; the offset of a position counts rows of its file."""

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__(inputs, **common)
        target, columns = options.target, options.columns
        self._pipes: dict[int, ArrayReader] = {}  # readers of inputs that can be read only once
        self._spent: set[int] = set()
        with self._open(0) as items:
            width = items.shape[1]
        if layout is not None:
            self._columns, self._target, self._width = _read_columns(layout)
            if columns is not None or target is not None:
                raise ValueError(f"columns={columns} or target={target} cannot be combined with a layout.")
        else:
            names, self._width = [str(k) for k in range(width)], width
            self._target = None if target is None else place(names, target, "target")
            picked = None if columns is None else [place(names, each, "columns") for each in columns]
            self._columns = [k for k in range(width) if k != self._target] if picked is None else picked
            used = {*self._columns, self._target}
            if not self._columns or len(used) != len(self._columns) + 1:
                raise ValueError(f"columns={columns} and target={target} leave no features, or use a column twice.")
        self._places(width, 0)
        self.n_features = len(self._columns)

    @property
    def layout(self) -> dict[str, Any]:
        """The columns of the array that are features, and the target column."""
        return {"kind": "npy", "width": self._width, "columns": self._columns, "target": self._target}

    def _places(self, width: int, file: int) -> tuple[Any, int | None]:
        """Return the places of the features and of the target in an array of this width, which may lack the target."""
        if width == self._width:
            return np.array(self._columns), self._target
        if self._target is not None and width == self._width - 1:
            return np.array([k - (k > self._target) for k in self._columns]), None
        raise StreamError(f"{self.inputs[file].name} has {width} columns, expected {self._width}.")

    @contextmanager
    def _open(self, file: int) -> Iterator[ArrayReader]:
        """Yield the reader of an input, at its first item."""
        source = self.inputs[file]
        with source.opened() as opened:
            items = self._pipes.get(file) or ArrayReader(opened, source.name)
            if len(items.shape) != 2 or not 0 < items.shape[1] <= MOST_COLUMNS:
                raise StreamError(
                    f"{source.name} has the shape {items.shape}, expected two dimensions: rows and columns."
                )
            self._require_few_columns(file, items.shape[1])
            if source.path is None:
                self._pipes[file] = items
            yield items

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for file, source in enumerate(self.inputs):
            if file in self._spent:
                continue
            before = stored_before(self.inputs, file)
            with self._open(file) as items:
                self._spent |= {file} & self._pipes.keys()
                features, target = self._places(items.shape[1], file)
                for first, rows in self._rows(items, source):
                    y = None
                    if target is not None:
                        y = rows[:, target].astype(np.float64 if rows.dtype.kind == "f" else np.int64)
                    block = self._good_rows(Block(as_floats(rows[:, features]), y), source.name, first)
                    yield block, Position(file, first + len(rows), stored=before + source.stored_position())

    def _rows(self, items: ArrayReader, source: Input) -> Iterator[tuple[int, Any]]:
        """Yield blocks of rows, each with the number of its first row."""
        n, width = items.shape
        size = max(self.block_bytes // (items.dtype.itemsize * width), 1)
        if not items.fortran or n <= 1 or width <= 1:
            for first in range(0, n, size):
                yield first, items.take(min(size, n - first) * width).reshape(-1, width)
            return
        if not source.is_plain:
            raise StreamError(
                f"{source.name} is compressed and in column-major order. Store it by rows (numpy.ascontiguousarray)."
            )
        try:
            mapped = np.load(str(source.path), mmap_mode="r", allow_pickle=False)
        except ValueError as error:  # shorter than its header states
            raise StreamError(f"{source.name} is truncated: {error}") from error
        for first in range(0, n, size):
            yield first, np.array(mapped[first : first + size])


def _read_columns(layout: dict[str, Any]) -> tuple[list[int], int | None, int]:
    """Return columns, target and width of an untrusted layout."""
    known = read_layout(
        layout, "npy", columns=lambda value: isinstance(value, list) and len(value) > 0, target=lambda _: True,
        width=lambda value: isinstance(value, int),
    )  # fmt: skip
    columns, target, width = known.values()
    used = columns if target is None else [*columns, target]
    if not all(type(each) is int and 0 <= each < width for each in used) or len(set(used)) != len(used):
        raise not_a_layout(layout)
    return columns, target, width


class NpzStream(Stream):
    """Rows of CSR matrices from `scipy.sparse.save_npz`; the offset of a position counts rows of its file."""

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        super().__init__(inputs, **common)
        n_features = options.n_features
        if layout is not None:
            n_features = read_layout(layout, "npz", n_features=is_width)["n_features"]
        with self._matrix(0) as (shape, *_):
            if n_features is None:
                self._require_few_columns(0, shape[1])
            self.n_features = shape[1] if n_features is None else n_features
        self._narrow = n_features is None  # whether all files must have the same number of columns

    @property
    def layout(self) -> dict[str, Any]:
        """The number of columns."""
        return {"kind": "npz", "n_features": self.n_features}

    @contextmanager
    def _matrix(self, file: int) -> Iterator[tuple[tuple[int, int], ArrayReader, ArrayReader, ArrayReader]]:
        """Yield the shape of a matrix, and readers of indptr, indices and data."""
        source = self.inputs[file]
        if source.path is None:
            raise StreamError(f"{source.name}: .npz files cannot be read from a pipe. Give a path.")
        with _sound(source), ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(source.path))
            there = archive.namelist()
            if "format.npy" not in there:
                raise StreamError(
                    f"{source.name} is not a matrix from scipy.sparse.save_npz. Save dense arrays with numpy.save."
                )
            with archive.open("format.npy") as opened:
                text = opened.read(1000)
            format_ = text[text.find(b"\n") + 1 :].replace(b"\0", b"").decode("ascii", "replace")
            if format_ != "csr":
                raise StreamError(f"{source.name} is a matrix in the format {format_!r}. Convert it with .tocsr().")
            if missing := sorted({f"{each}.npy" for each in _PARTS} - set(there)):
                raise StreamError(f"{source.name} has no array {missing[0]!r}. Save it with scipy.sparse.save_npz.")
            shape, indptr, indices, data = (
                ArrayReader(stack.enter_context(archive.open(f"{each}.npy")), f"{source.name}, {each}")
                for each in _PARTS
            )
            rows, columns = shape.take(2).tolist() if shape.count == 2 else (-1, -1)
            whole = all(each.dtype.kind in "iu" for each in (shape, indptr, indices))
            flat = all(len(each.shape) == 1 for each in (indptr, indices, data))
            right = whole and flat and indptr.count == rows + 1 and indices.count == data.count
            if not right or not 0 < columns <= MOST_COLUMNS:
                raise StreamError(
                    f"{source.name} is damaged: its arrays do not make a matrix of {rows} rows and {columns} columns."
                )
            yield (rows, columns), indptr, indices, data

    def _blocks(self) -> Iterator[tuple[Block, Position]]:
        for file, source in enumerate(self.inputs):
            before = stored_before(self.inputs, file)
            with self._matrix(file) as ((rows, width), *parts):
                if self._narrow and width != self.n_features:
                    raise StreamError(f"{source.name} has {width} columns, and the first file has {self.n_features}.")
                first = 0
                for arrays in self._rows(source.name, rows, *parts):
                    x, bad = self._checked(*arrays, width)
                    block = self._good_rows(Block(x, None), source.name, first, bad)
                    first += len(arrays[0]) - 1
                    yield block, Position(file, first, stored=before + int((source.size or 0) * first / rows))

    def _rows(
        self, name: str, rows: int, indptr: ArrayReader, indices: ArrayReader, data: ArrayReader
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the arrays indptr, indices and data of blocks of rows."""
        at, done = int(indptr.take(1)[0]), 0
        if at != 0:
            raise StreamError(f"{name} is damaged: row 0 begins with entry {at} of {data.count}.")
        most = max(self.block_bytes // (indices.dtype.itemsize + data.dtype.itemsize), 1)
        while done < rows:
            found = indptr.take(min(max(self.block_bytes // 8, 1), rows - done)).astype(np.int64)
            ends = np.concatenate(([at], found))
            if (np.diff(ends) < 0).any() or ends[-1] > data.count:
                raise StreamError(f"{name} is damaged: rows from {done} on do not follow each other.")
            begin = 0
            while begin < len(ends) - 1:
                end = max(int(np.searchsorted(ends, ends[begin] + most, side="right")) - 1, begin + 1)
                size = int(ends[end] - ends[begin])
                if size > most and size > max(self.max_columns, self.n_features):
                    raise StreamError(
                        f"{name}, row {done + begin} (from 0): it has {size} entries, more than "
                        f"max_columns={self.max_columns}. If the file is right, raise that limit (--max-columns)."
                    )
                yield ends[begin : end + 1] - ends[begin], indices.take(size), data.take(size)
                begin = end
            done, at = done + len(found), int(ends[-1])

    def _checked(self, ends: Any, indices: Any, data: Any, width: int) -> tuple[Any, dict[int, str]]:
        """Return rows, and the problems of those with an index out of range."""
        from scipy.sparse import csr_matrix

        outside = (indices < 0) | (indices >= min(width, self.n_features))
        arrays = as_floats(data).copy(), np.where(outside, 0, indices).astype(np.int32), ends.astype(np.int32)
        x = csr_matrix(arrays, shape=(len(ends) - 1, self.n_features))
        x.sum_duplicates()  # the sum of two values may be infinite
        beyond = np.searchsorted(ends, np.flatnonzero(outside), side="right") - 1
        reason = f"there is an index above the last feature ({self.n_features} features)"
        return x, dict.fromkeys(beyond.tolist(), reason)


@contextmanager
def _sound(source: Input) -> Iterator[None]:
    """Raise `StreamError` for errors of zipfile about damaged or unsupported archives."""
    try:
        yield
    except StreamError:
        raise
    except Exception as error:
        odd = (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error, ValueError, OverflowError)
        # A damaged archive may contain a negative offset.
        if is_damage(error) or isinstance(error, odd) or getattr(error, "errno", None) == errno.EINVAL:
            raise StreamError(f"{source.name} is damaged or truncated: {error}") from error
        raise
