"""CSV records as columns. pyarrow reads all at once; if that fails, the bad records are searched for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustfd._core import count_letter
from robustfd.streams._columns import classify_fields, converted
from robustfd.streams._records import BEGIN, END, FIELDS, blank, closed, fields_of, records
from robustfd.streams._times import seen_type
from robustfd.streams.pyarrow_modules import pa, pc, pcsv

WIDE = 1024  # columns; with more, the time per column must be small
TEXT_FIELD = pa.dictionary(pa.int32(), pa.string())
_EXPECTED = {pa.bool_(): "true or false", TEXT_FIELD: "text in UTF-8"}


@dataclass(frozen=True)
class Fields:
    """How to read the records of a file: the names of all fields, and the types of the needed ones."""

    delimiter: str
    names: list[str]
    types: dict[int, Any]

    def columns(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns, the indices of their records (None: all), and the problems of the others."""
        if blank(text):
            return {k: pa.array([], type_) for k, type_ in self.types.items()}, None, {}
        # pyarrow accepts text that ends inside a quote. That can happen only at the end of a file.
        if count_letter(text, ord('"')) % 2 == 0 or closed(text, self.delimiter):
            try:
                return {k: _or_null(array) for k, array in self.read(text, self.types).items()}, None, {}
            except pa.ArrowInvalid:
                pass
        return self._valid(text)

    def read(self, text: bytes, types: dict[int, Any]) -> dict[int, Any]:
        """Return columns of these types; raise if a value is invalid. In wide files numbers are numpy arrays."""
        if len(self.names) <= WIDE:
            return _read(text, self.delimiter, len(self.names), types)
        numbers = [k for k, type_ in types.items() if type_ == pa.float64()]
        others = [k for k, type_ in types.items() if type_ != pa.float64()]
        found: dict[int, Any] = {}
        if numbers:
            column = self._as_one(text, numbers, pa.float64()).to_numpy(zero_copy_only=False)
            found = dict(zip(sorted(numbers), column.reshape(-1, len(numbers)).T))
        for k, array in self._one_by_one(text, sorted(others), types):
            found[k] = array
        return {k: found[k] for k in types}

    def inferred(self, text: bytes) -> list[Any]:
        """Return the inferred types of the columns; raise if a record has too few or too many fields."""
        width = len(self.names)
        if width <= WIDE:
            found = _read(text, self.delimiter, width, {})
            return [seen_type(found[k]) for k in range(width)]
        values = self._as_one(text, range(width), pa.binary())
        missing, whole, number = (part.reshape(-1, width) for part in classify_fields(values))
        types = [pa.int64() if each else pa.float64() for each in (missing | whole).all(axis=0)]
        for k in np.flatnonzero(missing.all(axis=0)).tolist():
            types[k] = pa.null()
        for k, array in self._one_by_one(text, np.flatnonzero(~(missing | number).all(axis=0)).tolist(), {}):
            types[k] = seen_type(array)
        return types

    def matrix(self, text: bytes) -> Any:
        """Return all fields as one array of bytes, in order; raise if a record has too few or too many fields."""
        return self._as_one(text, range(len(self.names)), pa.binary())

    def _as_one(self, text: bytes, which: Sequence[int], type_: Any) -> Any:
        """Return some columns as one array, in the order of records."""
        return _read(self._some(text, which, "\n"), self.delimiter, 1, {0: type_}, empty=True)[0]

    def _one_by_one(self, text: bytes, which: list[int], types: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Yield some columns, read in groups, because pyarrow needs ten kilobytes per column while it reads."""
        if not which:
            return
        part = self._some(text, which)
        if len(which) <= WIDE:
            known = {j: types[k] for j, k in enumerate(which) if k in types}
            for j, array in _read(part, self.delimiter, len(which), known, empty=True).items():
                yield which[j], array
            return
        narrow, half = Fields(self.delimiter, [""] * len(which), {}), len(which) // 2
        for few in (range(half), range(half, len(which))):
            for j, array in narrow._one_by_one(part, list(few), {j: types[which[j]] for j in few if which[j] in types}):
                yield which[j], array

    def _some(self, text: bytes, which: Sequence[int], between: str = "") -> bytes:
        """Return the text of some columns."""
        keep = np.zeros(len(self.names), bool)
        keep[list(which)] = True
        part = fields_of(text, self.delimiter, keep, between or self.delimiter)
        if part is None:
            raise pa.ArrowInvalid(f"a record does not have {len(self.names)} fields")
        return part

    def _valid(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns of the valid records, their indices, and the problems of the other records."""
        rest, kept, wrong = self.whole(text)
        right, columns = np.ones(len(kept), bool), {}
        plain = self.read(rest, dict.fromkeys(self.types, pa.binary())) if rest else {}
        for k, array in plain.items():
            columns[k], misfit = _converted(array, self.types[k])
            if misfit is not None:
                what = _EXPECTED.get(self.types[k], "a number")
                for row in np.flatnonzero(misfit).tolist():
                    wrong.setdefault(int(kept[row]), f"the column {self.names[k]!r} should be {what}")
                right &= ~misfit
        if not rest:
            columns = {k: pa.array([], type_) for k, type_ in self.types.items()}
        return {k: _or_null(array.filter(pa.array(right))) for k, array in columns.items()}, kept[right], wrong

    def whole(self, text: bytes) -> tuple[bytes, Any, dict[int, str]]:
        """Return the text of records with the right number of fields, their indices, and the problems of the others."""
        found, wrong = records(text, self.delimiter), {}
        fits = found[:, FIELDS] == len(self.names)
        for k in np.flatnonzero(~fits).tolist():
            count = found[k, FIELDS]
            wrong[k] = "a quote is not closed" if count < 0 else f"{count} fields instead of {len(self.names)}"
        kept = np.flatnonzero(fits)
        rest = b"".join(text[begin:end] + b"\n" for begin, end in found[kept][:, [BEGIN, END]].tolist())
        return rest, kept, wrong


def _read(text: bytes, delimiter: str, width: int, types: dict[int, Any], *, empty: bool = False) -> dict[int, Any]:
    """Return columns of these types, or all columns with inferred types; raise if a value is invalid.

    With `empty`, an empty line is a record.
    """
    names = [str(k) for k in range(width)]  # the real names may repeat
    table = pcsv.read_csv(
        pa.py_buffer(text),
        pcsv.ReadOptions(column_names=names, block_size=len(text) + 1),
        pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in text, ignore_empty_lines=not empty),
        pcsv.ConvertOptions(
            column_types={names[k]: type_ for k, type_ in types.items()}, include_columns=[names[k] for k in types]
        ),
    )
    return {int(name): _whole(table.column(name)) for name in table.column_names}


def _converted(array: Any, type_: Any) -> tuple[Any, Any]:
    """Return bytes converted to the type of a column, and a mask of invalid values."""
    result, misfit = converted(array, pa.string() if type_ == TEXT_FIELD else type_)
    if misfit is not None and type_ == pa.int64():  # a target that had only whole numbers so far
        return converted(array, pa.float64())
    return result, misfit


def _whole(column: Any) -> Any:
    """Return a column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _or_null(array: Any) -> Any:
    """Return a column with null in place of empty text."""
    if isinstance(array, np.ndarray):
        return array
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array) if array.type == pa.string() else array
