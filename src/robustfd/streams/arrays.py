"""Numpy arrays (.npy)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from robustfd.streams._base import Block, Position, Stream, about_row, finite_rows
from robustfd.streams._errors import StreamError
from robustfd.streams._inputs import Input
from robustfd.streams._layout import place
from robustfd.streams._npy import ArrayReader, as_floats
from robustfd.streams._text import undamaged
from robustfd.streams.limits import MOST_COLUMNS


class NpyStream(Stream):
    """Rows of two-dimensional arrays; the offset of a position counts rows of its file."""

    def __init__(
        self,
        inputs: Sequence[Input],
        *,
        target: int | None = None,
        columns: list[int] | None = None,
        layout: dict[str, Any] | None = None,
        **common: Any,
    ):
        super().__init__(inputs, **common)
        self._pipes: dict[int, ArrayReader] = {}  # readers of inputs that can be read only once
        self._spent: set[int] = set()
        with self._open(0) as items:
            width = items.shape[1]
        if layout is not None:
            self._columns, self._target, self._width = _read_layout(layout)
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
        with undamaged(source), source.opened() as opened:
            items = self._pipes.get(file) or ArrayReader(opened, source.name)
            if len(items.shape) != 2 or not 0 < items.shape[1] <= MOST_COLUMNS:
                raise StreamError(
                    f"{source.name} has the shape {items.shape}, expected two dimensions: rows and columns."
                )
            if source.path is None:
                self._pipes[file] = items
            yield items

    def _blocks(self, start: Position) -> Iterator[tuple[Block, Position]]:
        count, skipped, before = start.rows, start.skipped, sum(each.size or 0 for each in self.inputs[: start.file])
        for file in range(start.file, len(self.inputs)):
            source = self.inputs[file]
            if file in self._spent:
                continue
            with self._open(file) as items:
                self._spent |= {file} & self._pipes.keys()
                features, target = self._places(items.shape[1], file)
                for first, rows in self._rows(items, source, start.offset if file == start.file else 0):
                    x, y = as_floats(rows[:, features]), None
                    if target is not None:
                        y = rows[:, target].astype(np.float64 if rows.dtype.kind == "f" else np.int64)
                    keep = finite_rows(x, y)
                    if keep is not None:
                        for row in np.flatnonzero(~keep).tolist():
                            self._bad_row(about_row(source.name, first, row, "a number is not finite")[1])
                        x, y, skipped = x[keep], None if y is None else y[keep], skipped + int((~keep).sum())
                    count += len(x)
                    stored = before + source.stored_position()
                    yield Block(x, y), Position(file, first + len(rows), 0, count, stored, skipped)
            before += source.size or 0

    def _rows(self, items: ArrayReader, source: Input, done: int) -> Iterator[tuple[int, Any]]:
        """Yield blocks of the rows after the first `done`, each with the number of its first row."""
        n, width = items.shape
        if done > n:
            raise StreamError(f"{source.name} ends before row {done}, where reading should continue.")
        size = max(self.block_bytes // (items.dtype.itemsize * width), 1)
        if items.fortran and n > 1 and width > 1:
            array = _mapped(source)
            yield from ((first, np.array(array[first : first + size])) for first in range(done, n, size))
            return
        items.skip(done * width)
        for first in range(done, n, size):
            yield first, items.take(min(size, n - first) * width).reshape(-1, width)


def _mapped(source: Input) -> Any:
    """Return a memory map of an array in column-major order."""
    if not source.is_plain:
        raise StreamError(
            f"{source.name} is compressed and in column-major order. Store it by rows (numpy.ascontiguousarray)."
        )
    try:
        return np.load(str(source.path), mmap_mode="r", allow_pickle=False)
    except ValueError as error:  # shorter than its header states
        raise StreamError(f"{source.name} is truncated: {error}") from error


def _read_layout(layout: dict[str, Any]) -> tuple[list[int], int | None, int]:
    """Return columns, target and width of an untrusted layout."""
    columns, target, width = (layout.get(name) for name in ("columns", "target", "width"))
    if layout.get("kind") == "npy" and isinstance(width, int) and isinstance(columns, list) and columns:
        numbers = columns if target is None else [*columns, target]
        if all(type(each) is int and 0 <= each < width for each in numbers) and len(set(numbers)) == len(numbers):
            return columns, target, width
    raise StreamError(f"{layout!r:.100} is not a layout of columns of npy.")
