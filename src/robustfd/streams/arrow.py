"""Parquet files, Arrow files (Feather) and Arrow streams."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from robustfd.streams.base import about_row
from robustfd.streams.columns import ipc, kind_of, named_errors, pa, pq, seen_type
from robustfd.streams.inputs import Position, StreamError, stored_before
from robustfd.streams.layout import TEXT, places_of
from robustfd.streams.table import Piece, Schema, TableStream

_BUFFER = 1 << 16  # bytes read ahead of a column of Parquet
_FEWEST = 16  # least rows per block in wide files: a few rows of a column take as long as one


class _BatchStream(TableStream):
    """Rows of files with Arrow batches; the offset of a position counts rows of its file."""

    @abstractmethod
    def _batches(self, file: int, names: list[str]) -> Iterator[tuple[Any, float]]:
        """Yield batches of columns, each with the fraction of the file read so far."""

    def _seen(self, schema: Schema) -> Schema:
        """Return the columns of the first input, where text whose first values are dates has the type of dates."""
        count = Counter(schema.names)
        texts = [k for k, name in enumerate(schema.names) if kind_of(schema.types[k]) == TEXT and count[name] == 1]
        types = list(schema.types)
        if texts and self._given is None:
            names = [schema.names[k] for k in texts]
            for batch, _ in self._batches(0, names):
                for k in texts:
                    types[k] = seen_type(batch.column(schema.names[k]))
                break
        return Schema(schema.names, types)

    def _pieces(self) -> Iterator[Piece]:
        for file, source in enumerate(self.inputs):
            schema = self._first if file == 0 else self._schema(file)
            features, roles = self._places(file, schema)
            names = [schema.names[k] for k in [*features, *roles.values()]]
            size, done, before = self._rows_at_once(names), 0, stored_before(self.inputs, file)
            for batch, fraction in self._batches(file, names):
                where, found = places_of(batch.schema.names), batch.columns
                for begin in range(0, len(batch), size):
                    columns = [found[where[each]].slice(begin, size) for each in names]
                    message = partial(about_row, source.name, done)
                    done += len(columns[0])
                    end = Position(file, done, stored=before + int(fraction * (source.size or 0)))
                    others = dict(zip(roles, columns[len(features) :]))
                    yield Piece(columns[: len(features)], others, end, message, [])

    def _rows_at_once(self, names: list[str]) -> int:
        """Return the number of rows of a block."""
        return max(self.block_bytes // (8 * len(names)), min(self.block_bytes // 64, _FEWEST))


class ParquetStream(_BatchStream):
    """Rows of Parquet files. Only the needed columns are read."""

    @contextmanager
    def _opened(self, file: int) -> Iterator[Any]:
        """Yield an open Parquet file."""
        source = self.inputs[file]
        if source.path is None:
            raise StreamError(f"{source.name}: Parquet files cannot be read from a pipe. Give a path.")
        with named_errors(source.name), ExitStack() as stack:
            where = source.path if source.is_plain else stack.enter_context(source.opened())
            # With pre_buffer, everything read so far stays in memory until the last row group.
            yield stack.enter_context(pq.ParquetFile(where, buffer_size=_BUFFER, pre_buffer=False))

    def _schema(self, file: int) -> Schema:
        """Return the columns of a file."""
        with self._opened(file) as table:
            schema = Schema(list(table.schema_arrow.names), list(table.schema_arrow.types))
        return self._seen(schema) if file == 0 else schema

    def _batches(self, file: int, names: list[str]) -> Iterator[tuple[Any, float]]:
        with self._opened(file) as table:
            done = 0
            for batch in table.iter_batches(self._rows_at_once(names), columns=names):
                done += len(batch)
                yield batch, done / table.metadata.num_rows


class ArrowStream(_BatchStream):
    """Rows of Arrow files (including Feather), and of Arrow streams, which may come from a pipe."""

    def __init__(self, *args: Any, **options: Any):
        self._pipes: dict[int, Any] = {}  # the readers of inputs that can be read only once
        super().__init__(*args, **options)

    @contextmanager
    def _opened(self, file: int, names: list[str] | None = None) -> Iterator[Any]:
        """Yield a reader of a file or stream; for a path, only of the named columns."""
        source = self.inputs[file]
        with named_errors(source.name), ExitStack() as stack:
            if source.path is None:
                if file not in self._pipes and source.head(6) == b"ARROW1":
                    raise StreamError(
                        f"{source.name}: Arrow files cannot be read from a pipe. Give a path, or pipe a stream."
                    )
                pipe = stack.enter_context(source.opened())
                if file not in self._pipes:
                    self._pipes[file] = ipc.open_stream(pipe)
                yield self._pipes[file]
                return
            where = stack.enter_context(pa.memory_map(str(source.path)) if source.is_plain else source.opened())
            opened = ipc.open_file if source.head(6) == b"ARROW1" else ipc.open_stream
            reader = opened(where)
            if names is not None:
                needed = [reader.schema.get_field_index(name) for name in names]
                where.seek(0)
                reader = opened(where, options=ipc.IpcReadOptions(included_fields=sorted(needed)))
            yield reader

    def _schema(self, file: int) -> Schema:
        """Return the columns of a file or stream."""
        with self._opened(file) as reader:
            schema = Schema(list(reader.schema.names), list(reader.schema.types))
        return self._seen(schema) if file == 0 and self.inputs[file].can_be_reread else schema

    def _batches(self, file: int, names: list[str]) -> Iterator[tuple[Any, float]]:
        with self._opened(file, names) as reader:
            count = getattr(reader, "num_record_batches", None)
            for k, batch in enumerate(reader if count is None else map(reader.get_batch, range(count))):
                batch.validate(full=True)  # so that the offsets of text in a damaged file are safe
                yield batch, 0.0 if count is None else (k + 1) / count
