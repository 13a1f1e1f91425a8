"""Boundaries of CSV records, with quotes taken into account."""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops

BEGIN, END, LINE, FIELDS = range(4)  # of a record: start and end of its text, lines before it, number of fields


@loops
def next_record(text: Any, i: int, delimiter: int) -> Any:
    """Return the end of a record, the start of the next, and its number of fields, -1 if a quote is not closed.

    A quote at the start of a field encloses everything up to the next single quote; "" is an escaped one. Elsewhere a
    quote is an ordinary character.
    """
    fields, at_start, size = 1, True, len(text)
    while i < size:
        letter = text[i]
        if letter == 34 and at_start:  # "
            i = closing(text, i)
            if i == size:
                return size, size, -1
            at_start = False
        elif letter == 10:
            return i, i + 1, fields
        elif letter == 13:
            return i, i + 2 if i + 1 < size and text[i + 1] == 10 else i + 1, fields
        else:
            at_start = letter == delimiter
            fields += at_start
        i += 1
    return size, size, fields


@loops
def closing(text: Any, i: int) -> int:
    """Return the end of the quote that starts at text[i]; the size of the text if it is not closed."""
    i += 1
    while i < len(text) and not (text[i] == 34 and (i + 1 == len(text) or text[i + 1] != 34)):
        i += 1 + (text[i] == 34)
    return min(i, len(text))


@compiled
def last_end(text: Any, delimiter: int) -> int:
    """Return the end of the last record that ends with a line feed, 0 if there is none."""
    i = end = 0
    while i < len(text):
        if text[i] == 10:
            end = i + 1
        elif text[i] == 34 and (i == 0 or text[i - 1] == delimiter or text[i - 1] == 10 or text[i - 1] == 13):
            i = closing(text, i)
        i += 1
    return end


@compiled
def find_records(text: Any, delimiter: int, found: Any) -> int:
    """Write BEGIN, END, LINE and FIELDS of nonempty records until `found` is full; return their number."""
    i = k = line = 0
    while i < len(text) and k < len(found):
        begin = i
        end, i, fields = next_record(text, i, delimiter)
        if end > begin:
            found[k, BEGIN], found[k, END], found[k, LINE], found[k, FIELDS] = begin, end, line, fields
            k += 1
        for j in range(begin, i):
            line += text[j] == 10
    return k


@compiled
def copy_fields(text: Any, delimiter: int, keep: Any, between: int, out: Any) -> int:
    """Copy the fields k of each record with keep[k], separated by a byte, with a final line feed; return the end.

    The result is -1 if a record does not have len(keep) fields. Empty records are skipped.
    """
    i = end = 0
    while i < len(text):
        if text[i] == 10 or text[i] == 13:
            i += 1
            continue
        field, first = 0, True
        while True:
            begin = i
            if i < len(text) and text[i] == 34:
                i = min(closing(text, i) + 1, len(text))
            while i < len(text) and text[i] != delimiter and text[i] != 10 and text[i] != 13:
                i += 1
            if field == len(keep):
                return -1
            if keep[field]:
                if not first:
                    out[end] = between
                    end += 1
                out[end : end + i - begin] = text[begin:i]
                end, first = end + i - begin, False
            field += 1
            if i == len(text) or text[i] != delimiter:
                break
            i += 1
        if field != len(keep):
            return -1
        out[end] = 10
        end += 1
    return end


def fields_of(text: bytes, delimiter: str, keep: Any, between: str) -> bytes | None:
    """Return the selected fields of all records, separated by a character; None if a record has too few or too many.

    Separated by line feeds they form a table of one column, which pyarrow reads without overhead per column.
    """
    out = np.empty(len(text) + 1, np.uint8)
    end = copy_fields(np.frombuffer(text, np.uint8), ord(delimiter), keep, ord(between), out)
    return None if end < 0 else out[:end].tobytes()


def records(text: bytes, delimiter: str, most: int | None = None) -> Any:
    """Return an array with a row BEGIN, END, LINE, FIELDS for each nonempty record, or for the first `most`."""
    letters = np.frombuffer(text, np.uint8)
    found = np.empty((text.count(b"\n") + text.count(b"\r") + 1 if most is None else most, 4), np.int64)
    return found[: find_records(letters, ord(delimiter), found)]


def blank(text: bytes) -> bool:
    """Return whether a text has no records."""
    return not text[:64].strip(b"\r\n") and not text.strip(b"\r\n")


def cut_records(text: bytearray, size: int, delimiter: str) -> int:
    """Return the end of the last whole record of text[:size], 0 if there is none."""
    end = text.rfind(b"\n", 0, size) + 1
    if not end or text.find(b'"', 0, end) < 0:
        return end
    return int(last_end(np.frombuffer(text, np.uint8)[:size], ord(delimiter)))
