"""CSV files. A record is a line, unless quotes contain line feeds.

pyarrow reads the records of a block all at once; if that fails, the bad records are searched for.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from robustfd._core import copy_fields, count_letter, find_records, last_record_end
from robustfd.streams.base import Options
from robustfd.streams.columns import classify_fields, converted, kind_of, one_array, pa, pc, pcsv, seen_type
from robustfd.streams.inputs import BYTE_ORDER_MARK, Input, Position, StreamError, chunks_of, endless, shown
from robustfd.streams.layout import NUMBER, TEXT, listed
from robustfd.streams.table import Piece, Schema, TableStream

BEGIN, END, LINE, FIELDS = range(4)  # of a record: start and end of its text, lines before it, number of fields
WIDE = 1024  # columns; with more, the time per column must be small
TEXT_FIELD = pa.dictionary(pa.int32(), pa.string())
_EXPECTED = {pa.bool_(): "true or false", TEXT_FIELD: "text in UTF-8"}
_HEAD = 1 << 20  # bytes from which column types are inferred, for any block_bytes
_WIDE_BYTES = 1 << 25  # the most that is read at once because records are wide
_SAMPLE = 100  # records for the detection of a header
_IN_ORDER = 8  # this many numbers 0, 1, 2, ... in order are names, not data
_CANDIDATES = "\t;,"
# A whole field, among others, that is a number with a comma. Thousands may be grouped by commas, too.
_DECIMAL_FIELD = re.compile(rb"(?:^|(?<=[\t;]))([+-]?[0-9]*),([0-9]+)(?=[\t;]|$)")
_WITH_COMMA = r"^[ \t]*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?[ \t]*$"
_PERHAPS_GROUPED = r"^[ \t]*[+-]?[1-9][0-9]{0,2},[0-9]{3}[ \t]*$"


class CsvStream(TableStream):
    """Rows of CSV files. Column types come from the layout, or from the first megabyte of the first file."""

    def __init__(self, inputs: Sequence[Input], options: Options, layout: dict[str, Any] | None, **common: Any):
        header, delimiter = options.header, options.delimiter
        if header is not None and not isinstance(header, bool | np.bool_):
            raise TypeError(f"header must be True, False or None, got {header!r}.")
        if delimiter is not None and not (
            isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii() and delimiter not in '"\r\n'
        ):
            raise ValueError(f"delimiter must be one ASCII character except quotes and line feeds, got {delimiter!r}.")
        self._header, self._delimiter, self._decimal = header, delimiter or "", options.decimal or ""
        named = [options.target, options.weight, options.id, *(options.columns or ()), *(options.drop or ())]
        self._named_columns = {each for each in named if isinstance(each, str)}  # a header must contain these names
        super().__init__(inputs, options, layout, **common)
        if self._given is None:
            self._layout = replace(self._layout, header=bool(self._header), decimal=self._decimal)

    def _schema(self, file: int) -> Schema:
        """Return the columns of a file: names from its first record, types from the first megabyte of all."""
        text = self._head(file, _HEAD if file == 0 else 1 << 16)
        if _blank(text):
            raise StreamError(f"{self.inputs[file].name} has no rows{self._once()}.")
        self._delimiter = self._delimiter or _likely_delimiter(text)
        begin, end, _, width = _records(text, self._delimiter, 1)[0].tolist()
        self._require_few_columns(file, width)
        try:
            record = Fields(self._delimiter, [""] * max(width, 1), {}).matrix(text[begin:end])
            fields = record.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid as error:
            raise StreamError(f"{self.inputs[file].name}, first line: {error}: {shown(text[begin:end])}") from error
        commas: list[int] = []  # columns of numbers with commas, if it is not known what these mean
        if not self._decimal:
            self._decimal, commas = self._decimal_mark(text if _blank(text[end:]) else text[end:], width)
        if self._header is None:
            self._header = self._is_header(fields, text[end:], file)
        # A block of a few records of a wide file takes no longer than one record.
        few = min(16 * (end - begin), _WIDE_BYTES) if len(fields) > WIDE else 0
        self._at_once = max(self.block_bytes, few)
        names = fields if self._header else [str(k) for k in range(len(fields))]
        if file > 0:
            types = dict(zip(self._first.names, self._first.types))
            return Schema(names, [types.get(name, pa.null()) for name in names])
        self._remark_on_commas([names[k] for k in commas])
        return Schema(names, self._inferred(text[end if self._header else 0 :], names))

    def _head(self, file: int, size: int) -> bytes:
        """Return whole records from the start of a file, including one that is not empty if there is any."""
        while True:
            head = self.inputs[file].head(size)
            short = len(head) < size
            whole = head if short else head[: _cut_records(bytearray(head), size, self._delimiter or ",")]
            whole = whole.removeprefix(BYTE_ORDER_MARK)
            if short or not _blank(whole):
                return whole
            if size > self.max_line_bytes:
                raise endless(self.inputs[file].name, 0, head, self.max_line_bytes)
            size = min(2 * size, self.max_line_bytes + 1)

    def _decimal_mark(self, text: bytes, width: int) -> tuple[str, list[int]]:
        """Return the decimal mark of some records, and the columns of numbers with one comma each.

        It is a comma if the commas of a column cannot all group thousands, and no number has a point; otherwise that of
        the layout. A point where the layout has commas may group thousands, so it is an error.
        """
        known = "." if self._given is None else self._given.decimal
        if not re.search(rb'"[ \t]*[+-]?[0-9]*,[0-9]' if self._delimiter == "," else rb",[0-9]", text):
            return known, []
        how = Fields(self._delimiter, [""] * width, {})
        fields = how.matrix(rest) if (rest := how.whole(text)[0]) else pa.array([], pa.binary())
        found = [pc.match_substring_regex(fields, pattern=each) for each in (_WITH_COMMA, _PERHAPS_GROUPED, r"\.")]
        comma, grouped, point = (mask.to_numpy(zero_copy_only=False).reshape(-1, width) for mask in found)
        missing, _, number = (mask.reshape(-1, width) for mask in classify_fields(fields))
        columns = (missing | comma | (number & ~point)).all(axis=0) & comma.any(axis=0)
        points = (missing | number).all(axis=0) & (number & point).any(axis=0)
        if (comma & ~grouped)[:, columns].any() and not points.any():
            known = ","
        return known, np.flatnonzero(columns).tolist()

    def _remark_on_commas(self, names: list[str]) -> None:
        """Say what was decided about columns of numbers with commas, unless a layout says it."""
        kinds = {} if self._given is None else {column.name: column.kind for column in self._given.columns}
        names = [name for name in names if kinds.get(name, NUMBER) == NUMBER]
        if not names or (self._given is not None and self._given.decimal == self._decimal):
            return
        comma = self._decimal == ","
        meaning, other = ("decimal commas", ".") if comma else ("text, as they may group thousands", ",")
        self.remarks.append(
            f"{self.inputs[0].name}: the commas in the numbers of {listed(names, 5)} are read as {meaning}. "
            f"Use --decimal {other} (in Python decimal={other!r}) to change that."
        )

    def _is_header(self, fields: list[str], rest: bytes, file: int) -> bool:
        """Return whether the first record holds column names: requested names, or as detected."""
        if self._named_columns and self._named_columns <= set(fields):
            return True
        if self._given is not None and {column.name for column in self._given.columns} <= set(fields):
            return True
        if self._given is not None and not self._given.header:
            return False
        how = Fields(self._delimiter, fields, {})
        found = _records(rest, self._delimiter, _SAMPLE)
        below = how.whole(rest[: found[-1, END]])[0] if len(found) else b""
        fields = _with_points(pa.array(fields), self._decimal).to_pylist()
        header = _looks_like_header(fields, _with_points(how.matrix(below), self._decimal) if below else [])
        if any(map(_is_number, fields)):
            what, other = ("column names", "no-header") if header else ("a row, not column names", "header")
            self.remarks.append(
                f"{self.inputs[file].name}: the first line is read as {what}. "
                f"Use --{other}, or header={not header}, to change that."
            )
        return header

    def _inferred(self, text: bytes, names: list[str]) -> list[Any]:
        """Return the types of columns, from the layout or inferred from records."""
        types: list[Any] = [pa.null()] * len(names)
        how = Fields(self._delimiter, names, {}, self._decimal)
        if not _blank(text):
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

    def _pieces(self) -> Iterator[Piece]:
        for file, source in enumerate(self.inputs):
            if file > 0 and source.size == 0:
                continue
            schema = self._first if file == 0 else self._schema(file)
            features, roles = self._places(file, schema)
            how = Fields(self._delimiter, schema.names, self._types(schema, features, roles), self._decimal)
            header, cut = self._header, partial(_cut_records, delimiter=self._delimiter)
            for chunk in chunks_of(self.inputs, file, self._at_once, self.max_line_bytes, cut):
                text, line = bytes(chunk.text), chunk.first
                if header and len(found := _records(text, self._delimiter, 1)):
                    header, end = False, int(found[0, END])
                    text, line = text[end:], line + text.count(b"\n", 0, end)
                yield self._piece(text, line, how, features, roles, chunk.end)

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
        self, text: bytes, line: int, how: "Fields", features: list[int], roles: dict[str, int], end: Position
    ) -> Piece:
        """Return the rows of some records, which start after a line."""
        columns, records, wrong = how.columns(text)
        known: list[Any] = []  # the records, located only for a message

        def message(record: int, reason: str) -> tuple[int, str]:
            known[:] = known or [_records(text, self._delimiter)]
            place = known[0][record]
            where = f"{self.inputs[end.file].name}, line {line + place[LINE] + 1}"
            return int(place[LINE]), f"{where}: {reason}: {shown(text[place[BEGIN] :])}"

        return Piece(
            [columns[k] for k in features],
            {role: columns[k] for role, k in roles.items()},
            end,
            lambda row, reason: message(row if records is None else int(records[row]), reason),
            [message(record, reason) for record, reason in wrong.items()],
        )


def _records(text: bytes, delimiter: str, most: int = sys.maxsize) -> Any:
    """Return an array with a row BEGIN, END, LINE, FIELDS for each nonempty record, or for the first `most`."""
    return find_records(text, ord(delimiter), most)


def _cut_records(text: bytearray, size: int, delimiter: str) -> int:
    """Return the end of the last whole record of text[:size], 0 if there is none."""
    end = text.rfind(b"\n", 0, size) + 1
    if not end or text.find(b'"', 0, end) < 0:
        return end
    with memoryview(text) as whole:
        return last_record_end(whole[:size], ord(delimiter))


def _blank(text: bytes) -> bool:
    """Return whether a text has no records."""
    return not text[:64].strip(b"\r\n") and not text.strip(b"\r\n")


def _looks_like_header(fields: list[str], below: Any) -> bool:
    """Return whether the first record holds column names. `below` are the fields of the next records, in order.

    It does if none of its fields is a number. pandas also writes numbers as names. So a record with numbers holds names
    if they are distinct and differ in type from the columns below: a word above numbers, or whole numbers above
    fractions. If everything is whole numbers, 0, 1, 2, ... in order are names.
    """
    missing, whole, _ = classify_fields(pa.array([field.encode() for field in fields], pa.binary()))
    number = np.array([_is_number(field) for field in fields])
    if not number.any():
        return True
    given = [field for field in fields if field]
    if len(set(given)) < len(given) or not len(below):
        return False
    missing_below, whole_below, number_below = (mask.reshape(-1, len(fields)) for mask in classify_fields(below))
    numbers = (missing_below | number_below).all(axis=0) & ~missing_below.all(axis=0)
    word = np.array([any(map(str.isalpha, field)) for field in fields])
    if (word & ~number & ~missing & numbers).any():
        return True
    if not whole[number].all():
        return False
    fractions = numbers & ~whole_below.any(axis=0)
    in_order = fields == [str(k) for k in range(len(fields))]
    return bool(fractions[number].all()) or (in_order and (len(fields) >= _IN_ORDER or not numbers.all()))


def _is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Fields:
    """How to read the records of a file: the names of all fields, and the types of the needed ones."""

    delimiter: str
    names: list[str]
    types: dict[int, Any]
    decimal: str = "."

    def columns(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns, the indices of their records (None: all), and the problems of the others."""
        if _blank(text):
            return {k: pa.array([], type_) for k, type_ in self.types.items()}, None, {}
        # pyarrow accepts text that ends inside a quote. That can happen only at the end of a file.
        if count_letter(text, ord('"')) % 2 == 0 or last_record_end(text, ord(self.delimiter)) == len(text):
            try:
                return {k: _or_null(array) for k, array in self._read(text, self.types).items()}, None, {}
            except pa.ArrowInvalid:
                pass
        return self._valid(text)

    def inferred(self, text: bytes) -> list[Any]:
        """Return the inferred types of the columns; raise if a record has too few or too many fields."""
        width = len(self.names)
        if width <= WIDE:
            found = _read(text, self.delimiter, width, {}, self.decimal)
            return [seen_type(found[k]) for k in range(width)]
        fields = _with_points(self.matrix(text), self.decimal)
        missing, whole, number = (mask.reshape(-1, width) for mask in classify_fields(fields))
        types = [pa.int64() if each else pa.float64() for each in (missing | whole).all(axis=0)]
        for k in np.flatnonzero(missing.all(axis=0)).tolist():
            types[k] = pa.null()
        for k, array in self._in_groups(text, np.flatnonzero(~(missing | number).all(axis=0)).tolist(), {}):
            types[k] = seen_type(array)
        return types

    def matrix(self, text: bytes) -> Any:
        """Return all fields as one array of bytes, in order; raise if a record has too few or too many fields."""
        return self._as_one(text, range(len(self.names)), pa.binary())

    def whole(self, text: bytes) -> tuple[bytes, Any, dict[int, str]]:
        """Return the text of records with the right number of fields, their indices, and the problems of the others."""
        found, wrong = _records(text, self.delimiter), {}
        fits = found[:, FIELDS] == len(self.names)
        for k in np.flatnonzero(~fits).tolist():
            count = found[k, FIELDS]
            wrong[k] = "a quote is not closed" if count < 0 else f"{count} fields instead of {len(self.names)}"
        records = np.flatnonzero(fits)
        rest = b"".join(text[begin:end] + b"\n" for begin, end in found[records][:, [BEGIN, END]].tolist())
        return rest, records, wrong

    def _read(self, text: bytes, types: dict[int, Any]) -> dict[int, Any]:
        """Return columns of these types; raise if a value is invalid. In wide files numbers are numpy arrays."""
        if len(self.names) <= WIDE:
            return _read(text, self.delimiter, len(self.names), types, self.decimal)
        numbers = sorted(k for k, type_ in types.items() if type_ == pa.float64())
        found: dict[int, Any] = {}
        if numbers:
            column = self._as_one(text, numbers, pa.float64()).to_numpy(zero_copy_only=False)
            found = dict(zip(numbers, column.reshape(-1, len(numbers)).T))
        found.update(self._in_groups(text, sorted(types.keys() - found.keys()), types))
        return {k: found[k] for k in types}

    def _valid(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns of the valid records, their indices, and the problems of the other records."""
        rest, records, wrong = self.whole(text)
        if not rest:
            return {k: pa.array([], type_) for k, type_ in self.types.items()}, records, wrong
        right, columns = np.ones(len(records), bool), {}
        for k, array in self._read(rest, dict.fromkeys(self.types, pa.binary())).items():
            columns[k], misfit = _converted(array, self.types[k], self.decimal)
            if misfit is not None:
                what = _EXPECTED.get(self.types[k], "a number")
                for row in np.flatnonzero(misfit).tolist():
                    wrong.setdefault(int(records[row]), f"the column {self.names[k]!r} should be {what}")
                right &= ~misfit
        return {k: _or_null(array.filter(pa.array(right))) for k, array in columns.items()}, records[right], wrong

    def _as_one(self, text: bytes, which: Sequence[int], type_: Any) -> Any:
        """Return some columns as one array, in the order of records.

        Separated by line feeds the fields form a table of one column, which pyarrow reads without overhead per column.
        """
        return _read(self._some(text, which, "\n"), self.delimiter, 1, {0: type_}, self.decimal, empty=True)[0]

    def _in_groups(self, text: bytes, which: list[int], types: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Yield some columns, read in groups, because pyarrow needs ten kilobytes per column while it reads."""
        for first in range(0, len(which), WIDE):
            group = which[first : first + WIDE]
            known = {j: types[k] for j, k in enumerate(group) if k in types}
            some = self._some(text, group, self.delimiter)
            found = _read(some, self.delimiter, len(group), known, self.decimal, empty=True)
            for j, array in found.items():
                yield group[j], array

    def _some(self, text: bytes, which: Sequence[int], between: str) -> bytes:
        """Return the text of some columns, with a character between fields."""
        keep = np.zeros(len(self.names), bool)
        keep[list(which)] = True
        fields: bytes | None = copy_fields(text, ord(self.delimiter), keep, ord(between))
        if fields is None:
            raise pa.ArrowInvalid(f"a record does not have {len(self.names)} fields")
        return fields


def _likely_delimiter(text: bytes) -> str:
    """Return the candidate that splits the first record into the most fields. A decimal comma is no delimiter."""
    begin, end = _records(text, _CANDIDATES[0], 1)[0, [BEGIN, END]].tolist()
    record = text[begin:end]
    if b";" in record or b"\t" in record:
        record = _DECIMAL_FIELD.sub(rb"\1\2", record)
    return max(_CANDIDATES, key=lambda each: _records(record, each, 1)[0, FIELDS])


def _with_points(values: Any, decimal: str) -> Any:
    """Return text or bytes with decimal points; numbers that have another decimal mark are no longer numbers."""
    if decimal == ".":
        return values
    return pc.replace_substring(pc.replace_substring(values, ".", "_"), decimal, ".")


def _read(
    text: bytes, delimiter: str, width: int, types: dict[int, Any], decimal: str, *, empty: bool = False
) -> dict[int, Any]:
    """Return columns of these types, or all columns with inferred types; raise if a value is invalid.

    With `empty`, an empty line is a record.
    """
    names = [str(k) for k in range(width)]  # the real names may repeat
    table = pcsv.read_csv(
        pa.py_buffer(text),
        pcsv.ReadOptions(column_names=names, block_size=len(text) + 1),
        pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in text, ignore_empty_lines=not empty),
        pcsv.ConvertOptions(
            column_types={names[k]: type_ for k, type_ in types.items()},
            include_columns=[names[k] for k in types],
            decimal_point=decimal,
        ),
    )
    return {int(name): one_array(table.column(name)) for name in table.column_names}


def _converted(array: Any, type_: Any, decimal: str) -> tuple[Any, Any]:
    """Return bytes converted to the type of a column, and a mask of invalid values."""
    if type_ == TEXT_FIELD:
        return converted(array, pa.string())
    array = _with_points(array, decimal)
    result, misfit = converted(array, type_)
    if misfit is not None and type_ == pa.int64():  # a target that had only whole numbers so far
        return converted(array, pa.float64())
    return result, misfit


def _or_null(array: Any) -> Any:
    """Return a column with null in place of empty text."""
    if isinstance(array, np.ndarray):
        return array
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array) if array.type == pa.string() else array
