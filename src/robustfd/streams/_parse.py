"""LIBSVM text, a chunk of whole lines at a time, to rows: the compiled loop."""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops
from robustfd.streams._decimal import FINE, LONG, MOST_DIGITS, NONE, number_at
from robustfd.streams._hash import column_and_sign

# What may be wrong with a line.
NO_LABEL, NO_INDEX, BELOW_FIRST, BEYOND_LAST, NO_VALUE, NOT_FINITE, TOO_LARGE = range(1, 8)
LARGEST_INDEX = 2**31 - 2
BEYOND_ALL = 2**40
LEAST_LONG = MOST_DIGITS + 2  # bytes of a number that is too long to be read here, and what is behind it

# What parse_rows is told (settings) and what it tells (found).
LABELLED, FIRST, WIDTH, BITS, DROP = range(5)
ROWS, ENTRIES, LINES, BAD, SLOW, DROPPED, UNSORTED = range(7)


@compiled
def parse_rows(
    text: Any, settings: Any, powers: Any, labels: Any, ends: Any, columns: Any, values: Any, bad: Any, slow: Any
) -> Any:
    """Return how many rows, entries, lines, bad lines, long numbers and dropped entries there are in a text.

    Lines end with a line feed, the last one too. Rows go to labels, ends (of their entries), columns and values; of a
    bad line nothing does, and bad gets its place in the text, its number and what is wrong. slow gets the place of
    each number that has more digits than can be read here, and the entry it is the value of (-1 - row for a label).
    """
    found = np.zeros(7, np.int64)
    i = k = n = line = 0
    while i < len(text):
        begin, noted, dropped, wrong = i, found[SLOW], found[DROPPED], 0
        i = _past_blanks(text, i)
        empty, end = _ends(text[i]), k
        if not empty:
            if settings[LABELLED]:
                labels[n], i, wrong = _label(text, i, n, powers, slow, found)
            if wrong == 0:
                i, end, wrong = _entries(text, i, settings, powers, columns, values, k, slow, found)
            if wrong == 0:
                k = end
                ends[n] = k
                n += 1
            else:
                bad[found[BAD], 0], bad[found[BAD], 1], bad[found[BAD], 2] = begin, line, wrong
                found[BAD] += 1
                found[SLOW], found[DROPPED] = noted, dropped
        while text[i] != 10:
            i += 1
        i += 1
        line += 1
    found[ROWS], found[ENTRIES], found[LINES] = n, k, line
    return found


@loops
def _label(text: Any, i: int, row: int, powers: Any, slow: Any, found: Any) -> Any:
    """Return the label of a row, where it ends, and what is wrong with it."""
    value, end, how = number_at(text, i, powers)
    if how == NONE or not _ends_token(text[end]):
        return value, i, NO_LABEL
    if how == LONG:
        slow[found[SLOW], 0], slow[found[SLOW], 1] = i, -1 - row
        found[SLOW] += 1
    return value, end, 0 if np.isfinite(value) else NOT_FINITE


@loops
def _entries(
    text: Any, i: int, settings: Any, powers: Any, columns: Any, values: Any, k: int, slow: Any, found: Any
) -> Any:
    """Put the entries of a line at k; return where it ended, the next k and what is wrong."""
    first, width, bits, last = settings[FIRST], settings[WIDTH], settings[BITS], np.int64(-1)
    while True:
        i = _past_blanks(text, i)
        if _ends(text[i]):
            return i, k, 0
        begin, column, value, how = i, np.int64(0), 1.0, 0
        while np.uint8(text[i] - 48) < 10:
            column = min(10 * column + np.int64(text[i] - 48), np.int64(BEYOND_ALL))
            i += 1
        if text[i] != 58 or i == begin or bits >= 0:  # not a number and a colon, or these mean something else
            i, column, value = _named(text, begin, bits)
            if column < 0:
                if i > begin:  # a qid
                    continue
                return i, k, NO_INDEX
        else:
            column -= first
            if column < 0:
                return i, k, BELOW_FIRST
            if column > LARGEST_INDEX:
                return i, k, TOO_LARGE
        if text[i] == 58:
            i += 1
            digit = np.uint8(text[i] - 48)
            if digit < 10 and _ends_token(text[i + 1]):  # most values are like this
                value *= float(digit)
                i += 1
            else:
                begin = i
                number, i, how = number_at(text, i, powers)
                if how == NONE or not _ends_token(text[i]):
                    return i, k, NO_VALUE
                if not np.isfinite(number):
                    return i, k, NOT_FINITE
                if how == FINE:
                    value *= number
        if width >= 0 and column >= width:
            if not settings[DROP]:
                return i, k, BEYOND_LAST
            found[DROPPED] += 1
            continue
        if how == LONG:
            slow[found[SLOW], 0], slow[found[SLOW], 1] = begin, k
            found[SLOW] += 1
        if column <= last:
            found[UNSORTED] = 1
        last = column
        columns[k] = column
        values[k] = value
        k += 1


@loops
def _named(text: Any, begin: int, bits: int) -> Any:
    """Return where the name of a feature ends, its column and its sign; the column is -1 for qid:...

    For what is no name, or is not to be hashed, it is -1 too, and the end is where it begins.
    """
    i, column = begin, np.int64(0)
    while not (text[i] <= 32 or text[i] == 58):
        column = 10 * column + np.int64(text[i] - 48)
        i += 1
    if i - begin == 3 and text[begin] == 113 and text[begin + 1] == 105 and text[begin + 2] == 100 and text[i] == 58:
        while text[i] > 32:
            i += 1
        return i, np.int64(-1), 1.0
    if i == begin or bits < 0:
        return begin, np.int64(-1), 1.0
    for j in range(begin, i):
        if np.uint8(text[j] - 48) >= 10:
            column, sign = column_and_sign(text, begin, i, bits)
            return i, column, sign
    return i, column & ((np.int64(1) << bits) - 1), 1.0


@loops
def _past_blanks(text: Any, i: int) -> int:
    """Return where the next token begins."""
    while text[i] == 32 or text[i] == 9 or text[i] == 13:
        i += 1
    return i


@loops
def _ends(letter: int) -> bool:
    """Return whether a line ends here, or a comment begins."""
    return letter == 10 or letter == 35


@loops
def _ends_token(letter: int) -> bool:
    """Return whether a number may end here: with a blank, a line feed or a comment."""
    return letter == 32 or letter == 10 or letter == 9 or letter == 13 or letter == 35
