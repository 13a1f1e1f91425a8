"""CSV files. A record is a line, unless quotes contain line feeds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from robustfd.streams._base import Position
from robustfd.streams._columns import kind_of
from robustfd.streams._convert import Piece
from robustfd.streams._errors import StreamError
from robustfd.streams._fields import TEXT_FIELD, WIDE, Fields
from robustfd.streams._header import header_remark, is_header, is_number
from robustfd.streams._inputs import Input
from robustfd.streams._layout import NUMBER, TEXT
from robustfd.streams._records import BEGIN, END, FIELDS, LINE, blank, cut_records, records
from robustfd.streams._text import LONGEST_LINE, MARK, chunks, shown, undamaged
from robustfd.streams.pyarrow_modules import pa
from robustfd.streams.table import Schema, TableStream

_HEAD = 1 << 20  # bytes from which column types are inferred, for any block_bytes
_SAMPLE = 100  # records for the detection of a header
_CANDIDATES = "\t;,"


class CsvStream(TableStream):
    """Rows of CSV files. Column types come from the layout, or from the first megabyte of the first file."""

    def __init__(
        self, inputs: Sequence[Input], *, header: bool | None = None, delimiter: str | None = None, **options: Any
    ):
        if header is not None and not isinstance(header, bool | np.bool_):
            raise TypeError(f"header must be True, False or None, got {header!r}.")
        if delimiter is not None and not (
            isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n'
        ):
            raise ValueError(
                f"delimiter must be one ASCII character other than a quote or a line feed, got {delimiter!r}."
            )
        self._header, self._delimiter = header, delimiter or ""
        named = [options.get("target"), options.get("weight"), options.get("id")]
        named += [*(options.get("columns") or ()), *(options.get("drop") or ())]
        self._named_columns = {each for each in named if isinstance(each, str)}  # a header must contain these names
        self._header_at: dict[int, int] = {}  # offset of the header of each file
        super().__init__(inputs, **options)
        if self._given is None:
            self._layout = replace(self._layout, header=bool(self._header))

    def _schema(self, file: int) -> Schema:
        """Return the columns of a file: names from its first record, types from the first megabyte of all."""
        head = self._head(file, _HEAD if file == 0 else 1 << 16)
        text = head.removeprefix(MARK)
        if blank(text):
            raise StreamError(f"{self.inputs[file].name} has no rows{self._once()}.")
        if not self._delimiter:  # the candidate that splits the first record into the most fields
            self._delimiter = max(_CANDIDATES, key=lambda each: records(text, each, 1)[0, FIELDS])
        first = records(text, self._delimiter, 1)[0]
        fields = self._names_in(text[first[BEGIN] : first[END]], file)
        if self._header is None:
            self._header = self._is_header(fields, text[first[END] :], file)
        self._at_once = self.block_bytes
        if len(fields) > WIDE:  # a block of a few records takes no longer than one record
            self._at_once = max(self.block_bytes, 16 * int(first[END] - first[BEGIN]))
        self._header_at[file] = len(head) - len(text) + int(first[BEGIN])
        names = fields if self._header else [str(k) for k in range(len(fields))]
        if file > 0:
            types = dict(zip(self._first.names, self._first.types))
            return Schema(names, [types.get(name, pa.null()) for name in names])
        return Schema(names, self._inferred(text[first[END] if self._header else 0 :], names))

    def _head(self, file: int, size: int) -> bytes:
        """Return whole records from the start of a file, including one that is not empty if there is any."""
        while True:
            with undamaged(self.inputs[file]):
                head = self.inputs[file].head(size)
            if len(head) < size or size > LONGEST_LINE:
                return head
            whole = head[: cut_records(bytearray(head), size, self._delimiter or ",")]
            if not blank(whole.removeprefix(MARK)):
                return whole
            size *= 2

    def _names_in(self, record: bytes, file: int) -> list[str]:
        """Return the fields of a record."""
        width = int(records(record, self._delimiter)[0, FIELDS])
        try:
            return Fields(self._delimiter, [""] * width, {}).matrix(record).cast(pa.string()).to_pylist()
        except pa.ArrowInvalid as error:
            raise StreamError(f"{self.inputs[file].name}, first line: {error}: {shown(record)}") from error

    def _is_header(self, fields: list[str], rest: bytes, file: int) -> bool:
        """Return whether the first record holds column names: requested names, or as detected."""
        if self._named_columns and self._named_columns <= set(fields):
            return True
        if self._given is not None and {column.name for column in self._given.columns} <= set(fields):
            return True
        if self._given is not None and not self._given.header:
            return False
        how = Fields(self._delimiter, fields, {})
        found = records(rest, self._delimiter, _SAMPLE)
        below = how.whole(rest[: found[-1, END]])[0] if len(found) else b""
        header = is_header(fields, how.matrix(below) if below else [])
        if any(is_number(field) for field in fields):
            self.remarks.append(header_remark(self.inputs[file].name, header))
        return header

    def _inferred(self, text: bytes, names: list[str]) -> list[Any]:
        """Return the types of columns, from the layout or inferred from records."""
        types: list[Any] = [pa.null()] * len(names)
        how = Fields(self._delimiter, names, {})
        if not blank(text):
            try:
                types = how.inferred(text)
            except pa.ArrowInvalid as error:  # bad records are reported when they are read
                text = how.whole(text)[0]
                if not text:
                    raise StreamError(f"{self.inputs[0].name}: {error}") from error
                types = how.inferred(text)
        known = {} if self._given is None else {column.name: column.kind for column in self._given.columns}
        for k, name in enumerate(names):
            if types[k] == pa.binary() or known.get(name, NUMBER) != NUMBER:
                types[k] = pa.string()
            elif name in known and types[k] != pa.bool_():
                types[k] = pa.float64()
        return types

    def _pieces(self, start: Position) -> Iterator[Piece]:
        for file in range(start.file, len(self.inputs)):
            if file > 0 and self.inputs[file].size == 0:
                continue
            schema = self._first if file == 0 else self._schema(file)
            features, roles = self._places(file, schema)
            how = Fields(self._delimiter, schema.names, self._types(schema, features, roles))
            here = start if file == start.file else Position(file)
            header = self._header and here.offset <= self._header_at[file]
            cut = partial(cut_records, delimiter=self._delimiter)
            for chunk in chunks(self.inputs[: file + 1], here, self._at_once, cut):
                text, line = bytes(chunk.text), chunk.first
                if header and len(found := records(text, self._delimiter, 1)):
                    header, end = False, int(found[0, END])
                    text, line = text[end:], line + text.count(b"\n", 0, end)
                position = Position(file, chunk.offset, chunk.first + chunk.lines, stored=chunk.stored)
                yield self._piece(text, line, how, features, roles, position)

    def _types(self, schema: Schema, features: list[int], roles: dict[str, int]) -> dict[int, Any]:
        """Return the types to read the needed fields as; dates and ids are read as text."""
        types = {}
        for column, k in zip(self._layout.columns, features):
            number = pa.bool_() if schema.types[k] == pa.bool_() else pa.float64()
            types[k] = number if column.kind == NUMBER else TEXT_FIELD
        for role, k in roles.items():
            found = schema.types[k]
            if role == "id" or kind_of(found) == TEXT:
                types[k] = TEXT_FIELD
            else:
                types[k] = pa.float64() if role == "weight" or found == pa.null() else found
        return types

    def _piece(
        self, text: bytes, line: int, how: Fields, features: list[int], roles: dict[str, int], position: Position
    ) -> Piece:
        """Return the rows of some records, which start after a line."""
        columns, kept, wrong = how.columns(text)
        known: list[Any] = []  # the records, located only for a message

        def message(record: int, reason: str) -> tuple[int, str]:
            known[:] = known or [records(text, self._delimiter)]
            place = known[0][record]
            where = f"{self.inputs[position.file].name}, line {line + place[LINE] + 1}"
            return int(place[LINE]), f"{where}: {reason}: {shown(text[place[BEGIN] :])}"

        return Piece(
            [columns[k] for k in features],
            {role: columns[k] for role, k in roles.items()},
            position,
            lambda row, reason: message(row if kept is None else int(kept[row]), reason),
            [message(record, reason) for record, reason in wrong.items()],
        )
