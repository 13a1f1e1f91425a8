"""Boundaries of CSV records, with quotes taken into account."""

import sys
from typing import Any

from robustfd._core import copy_fields, find_records, last_record_end

BEGIN, END, LINE, FIELDS = range(4)  # of a record: start and end of its text, lines before it, number of fields


def fields_of(text: bytes, delimiter: str, keep: Any, between: str) -> bytes | None:
    """Return the selected fields of all records, separated by a character; None if a record has too few or too many.

    Separated by line feeds they form a table of one column, which pyarrow reads without overhead per column.
    """
    return copy_fields(text, ord(delimiter), keep, ord(between))


def records(text: bytes, delimiter: str, most: int | None = None) -> Any:
    """Return an array with a row BEGIN, END, LINE, FIELDS for each nonempty record, or for the first `most`."""
    return find_records(text, ord(delimiter), sys.maxsize if most is None else most)


def closed(text: bytes, delimiter: str) -> bool:
    """Return whether a text ends with the line feed of a record, not inside of quotes."""
    return last_record_end(text, ord(delimiter)) == len(text)


def blank(text: bytes) -> bool:
    """Return whether a text has no records."""
    return not text[:64].strip(b"\r\n") and not text.strip(b"\r\n")


def cut_records(text: bytearray, size: int, delimiter: str) -> int:
    """Return the end of the last whole record of text[:size], 0 if there is none."""
    end = text.rfind(b"\n", 0, size) + 1
    if not end or text.find(b'"', 0, end) < 0:
        return end
    with memoryview(text) as whole:
        return last_record_end(whole[:size], ord(delimiter))
