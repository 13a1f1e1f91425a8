"""Sparse scipy matrices (.npz)."""

import errno
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from robustfd.streams._base import Block, Position, Stream, about_row, finite_rows
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._npy import ArrayReader, as_floats
from robustfd.streams._text import undamaged
from robustfd.streams.limits import MOST_COLUMNS

_PARTS = ("shape", "indptr", "indices", "data")


class NpzStream(Stream):
    """Rows of CSR matrices from `scipy.sparse.save_npz`; the offset of a position counts rows of its file."""

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        n_features: int | None = None,
        layout: dict[str, Any] | None = None,
        **common: Any,
    ):
        super().__init__(inputs, **common)
        if layout is not None:
            n_features = layout.get("n_features")
            if layout.get("kind") != "npz" or type(n_features) is not int or not 0 < n_features <= MOST_COLUMNS:
                raise StreamError(f"{layout!r:.100} is not a layout of columns of npz.")
        with self._matrix(0) as (shape, *_):
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
            format_ = _format_of(archive, source.name)
            if format_ != "csr":
                raise StreamError(f"{source.name} is a matrix in the format {format_!r}. Convert it with .tocsr().")
            if missing := sorted({f"{each}.npy" for each in _PARTS} - set(archive.namelist())):
                raise StreamError(f"{source.name} has no array {missing[0]!r}. Save it with scipy.sparse.save_npz.")
            parts = [
                ArrayReader(stack.enter_context(archive.open(f"{each}.npy")), f"{source.name}, {each}")
                for each in _PARTS
            ]
            shape, indptr, indices, data = parts
            yield _checked_shape(source.name, shape, indptr, indices, data), indptr, indices, data

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        count, skipped, before = start.rows, start.skipped, sum(each.size or 0 for each in self.inputs[: start.file])
        for file in range(start.file, len(self.inputs)):
            source = self.inputs[file]
            with self._matrix(file) as (shape, *parts):
                if self._narrow and shape[1] != self.n_features:
                    raise StreamError(
                        f"{source.name} has {shape[1]} columns, and the first file has {self.n_features}."
                    )
                for first, ends, indices, data in self._rows(
                    source, shape, parts, start.offset if file == start.file else 0
                ):
                    x, bad = self._checked(source.name, first, ends, indices, data, shape[1])
                    count, skipped = count + x.shape[0], skipped + bad
                    share = int((source.size or 0) * (first + len(ends) - 1) / shape[0])
                    yield Block(x, None), Position(file, first + len(ends) - 1, 0, count, before + share, skipped)
            before += source.size or 0

    def _rows(self, source: Input, shape: Any, parts: Any, done: int) -> Iterator[tuple[int, Any, Any, Any]]:
        """Yield blocks of the rows after the first `done`: the number of the first row, and CSR arrays."""
        indptr, indices, data = parts
        if done > shape[0]:
            raise StreamError(f"{source.name} ends before row {done}, where reading should continue.")
        indptr.skip(done)
        at = int(indptr.take(1)[0])
        if not 0 <= at <= data.count or (done == 0 and at != 0):
            raise StreamError(f"{source.name} is damaged: row {done} begins with entry {at} of {data.count}.")
        indices.skip(at)
        data.skip(at)
        most = max(self.block_bytes // (indices.dtype.itemsize + data.dtype.itemsize), 1)
        while done < shape[0]:
            ends = np.concatenate(
                ([at], indptr.take(min(max(self.block_bytes // 8, 1), shape[0] - done)).astype(np.int64))
            )
            if (np.diff(ends) < 0).any() or ends[-1] > data.count:
                raise StreamError(f"{source.name} is damaged: rows from {done} on do not follow each other.")
            begin = 0
            while begin < len(ends) - 1:
                end = max(int(np.searchsorted(ends, ends[begin] + most, side="right")) - 1, begin + 1)
                size = int(ends[end] - ends[begin])
                yield done + begin, ends[begin : end + 1] - ends[begin], indices.take(size), data.take(size)
                begin = end
            done, at = done + len(ends) - 1, int(ends[-1])

    def _checked(self, name: str, first: int, ends: Any, indices: Any, data: Any, width: int) -> tuple[Any, int]:
        """Return the valid rows, and the number of bad rows."""
        outside = (indices < 0) | (indices >= min(width, self.n_features))
        x = sp.csr_matrix(
            (as_floats(data).copy(), np.where(outside, 0, indices).astype(np.int32), ends.astype(np.int32)),
            shape=(len(ends) - 1, self.n_features),
        )
        x.sum_duplicates()  # the sum of two values may be infinite
        keep = finite_rows(x, None)
        keep = np.ones(x.shape[0], bool) if keep is None else keep
        beyond = np.unique(np.searchsorted(ends, np.flatnonzero(outside), side="right") - 1)
        for row in np.flatnonzero(~keep).tolist():
            self._bad_row(about_row(name, first, row, "a number is not finite")[1])
        for row in beyond[keep[beyond]].tolist():
            reason = f"there is an index above the last feature ({self.n_features} features)"
            self._bad_row(about_row(name, first, row, reason)[1])
        keep[beyond] = False
        return x if keep.all() else x[keep], int((~keep).sum())


def _format_of(archive: zipfile.ZipFile, name: str) -> str:
    """Return the storage format of a sparse matrix."""
    if "format.npy" not in archive.namelist():
        raise StreamError(f"{name} is not a matrix from scipy.sparse.save_npz. Save dense arrays with numpy.save.")
    with archive.open("format.npy") as file:
        text = file.read(1000)
    return text[text.find(b"\n") + 1 :].replace(b"\0", b"").decode("ascii", "replace")


def _checked_shape(
    name: str, shape: ArrayReader, indptr: ArrayReader, indices: ArrayReader, data: ArrayReader
) -> tuple[int, int]:
    """Return the shape of a matrix; raise if its arrays do not match it."""
    rows, columns = shape.take(2).tolist() if shape.count == 2 else (-1, -1)
    whole = all(each.dtype.kind in "iu" for each in (shape, indptr, indices))
    flat = all(len(each.shape) == 1 for each in (indptr, indices, data))
    right = whole and flat and indptr.count == rows + 1 and indices.count == data.count
    if not right or not 0 < columns <= MOST_COLUMNS:
        raise StreamError(f"{name} is damaged: its arrays do not make a matrix of {rows} rows and {columns} columns.")
    return rows, columns


@contextmanager
def _sound(source: Input) -> Iterator[None]:
    """Raise `StreamError` for errors of zipfile about damaged or unsupported archives."""
    try:
        with undamaged(source):
            yield
    except StreamError:
        raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error, ValueError, OverflowError) as error:
        raise StreamError(f"{source.name} is damaged or truncated: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a damaged archive may contain a negative offset
            raise
        raise StreamError(f"{source.name} is damaged or truncated: {error}") from error
