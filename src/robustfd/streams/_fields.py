"""Records of CSV to columns: by pyarrow, all at once; where that fails, those that do not fit are looked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustfd.streams._columns import converted
from robustfd.streams._pyarrow import pa, pc, pcsv
from robustfd.streams._records import BEGIN, END, FIELDS, blank, last_end, records

TEXT_FIELD = pa.dictionary(pa.int32(), pa.string())
_WHAT = {pa.bool_(): "true or false", TEXT_FIELD: "text in UTF-8"}


@dataclass(frozen=True)
class Fields:
    """How the records of a file are read: the names of their fields, and the types of those that are needed."""

    delimiter: str
    names: list[str]
    types: dict[int, Any]

    def columns(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns, the records that are their rows (None: all), and what is wrong with the others."""
        if blank(text):
            return {k: pa.array([], type_) for k, type_ in self.types.items()}, None, {}
        # For pyarrow the end of a text closes a quote that is open. Only the end of a file can be like that.
        letters = np.frombuffer(text, np.uint8)
        if np.count_nonzero(letters == 34) % 2 == 0 or last_end(letters, ord(self.delimiter)) == len(text):
            try:
                return {k: _or_null(array) for k, array in self.read(text, self.types).items()}, None, {}
            except pa.ArrowInvalid:
                pass
        return self._fitting(text)

    def read(self, text: bytes, types: dict[int, Any]) -> dict[int, Any]:
        """Return columns of these types, or all of those they seem to be; raise if one does not fit."""
        names = [str(k) for k in range(len(self.names))]  # the true ones may occur twice
        table = pcsv.read_csv(
            pa.py_buffer(text),
            pcsv.ReadOptions(column_names=names, block_size=len(text) + 1),
            pcsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=b'"' in text),
            pcsv.ConvertOptions(
                column_types={names[k]: type_ for k, type_ in types.items()},
                include_columns=[names[k] for k in types],
            ),
        )
        return {int(name): _whole(table.column(name)) for name in table.column_names}

    def _fitting(self, text: bytes) -> tuple[dict[int, Any], Any, dict[int, str]]:
        """Return the needed columns of the records that fit, which these are, and what is wrong with the others."""
        rest, kept, wrong = self.whole(text)
        right, columns = np.ones(len(kept), bool), {}
        plain = self.read(rest, dict.fromkeys(self.types, pa.binary())) if rest else {}
        for k, array in plain.items():
            columns[k], misfit = _converted(array, self.types[k])
            if misfit is not None:
                what = _WHAT.get(self.types[k], "a number")
                for row in np.flatnonzero(misfit).tolist():
                    wrong.setdefault(int(kept[row]), f"the column {self.names[k]!r} should be {what}")
                right &= ~misfit
        if not rest:
            columns = {k: pa.array([], type_) for k, type_ in self.types.items()}
        return {k: _or_null(array.filter(pa.array(right))) for k, array in columns.items()}, kept[right], wrong

    def whole(self, text: bytes) -> tuple[bytes, Any, dict[int, str]]:
        """Return the records that have all their fields, which these are, and what is wrong with the others."""
        found, wrong = records(text, self.delimiter), {}
        fits = found[:, FIELDS] == len(self.names)
        for k in np.flatnonzero(~fits).tolist():
            count = found[k, FIELDS]
            wrong[k] = "a quote is not closed" if count < 0 else f"{count} fields instead of {len(self.names)}"
        kept = np.flatnonzero(fits)
        rest = b"".join(text[begin:end] + b"\n" for begin, end in found[kept][:, [BEGIN, END]].tolist())
        return rest, kept, wrong


def _converted(array: Any, type_: Any) -> tuple[Any, Any]:
    """Return bytes as the type of a column, and a mask of what does not fit."""
    result, misfit = converted(array, pa.string() if type_ == TEXT_FIELD else type_)
    if misfit is not None and type_ == pa.int64():  # a target that was whole numbers up to here
        return converted(array, pa.float64())
    return result, misfit


def _whole(column: Any) -> Any:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _or_null(array: Any) -> Any:
    """Return a column with null where there is no text."""
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
        return pa.DictionaryArray.from_arrays(array.indices, values)
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array) if array.type == pa.string() else array
