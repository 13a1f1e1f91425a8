"""Compiled loops that parse chunks of LIBSVM text into rows, and the parts shared with Vowpal Wabbit text.

`parse_rows` is the loop for LIBSVM. The loop in `_parse_vw.py` uses the same `read_entries`.
"""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops
from robustfd.streams._decimal import FINE, LONG, MOST_DIGITS, NONE, number_at
from robustfd.streams._hash import column_and_sign

# Problems of a line.
BLANK = -1  # no problem, but no row either
NO_LABEL, NO_INDEX, BELOW_FIRST, BEYOND_LAST, NO_VALUE, NOT_FINITE, TOO_LARGE = range(1, 8)
LARGEST_INDEX = 2**31 - 2
BEYOND_ALL = 2**40
LEAST_LONG = MOST_DIGITS + 2  # least size of a number with too many digits, with the byte after it
COMMENT, BAR, COLON = 35, 124, 58  # the bytes # | :

# Indices of the inputs (settings) and of the results (found) of the loops.
LABELLED, FIRST, WIDTH, BITS, DROP = range(5)
ROWS, ENTRIES, LINES, BAD, SLOW, DROPPED, UNSORTED, LAST = range(8)


@compiled
def parse_rows(
    text: Any, settings: Any, powers: Any, labels: Any, ends: Any, columns: Any, values: Any, bad: Any, slow: Any
) -> Any:
    """Parse a text; return the counts of rows, entries, lines, bad lines, long numbers and dropped entries.

    Every line ends with a line feed. Rows are written to labels, ends (of their entries), columns and values. A bad
    line writes nothing there; its offset, line number and problem are written to bad. For each number with too many
    digits, slow gets its offset and the entry that it is the value of (-1 - row for a label).
    """
    found = np.zeros(8, np.int64)
    i = 0
    while i < len(text):
        before, end, wrong = (i, found[SLOW], found[DROPPED]), found[ENTRIES], BLANK
        i = past_blanks(text, i)
        if text[i] != 10 and text[i] != COMMENT:
            wrong = 0
            if settings[LABELLED]:
                labels[found[ROWS]], i, wrong = _label(text, i, found[ROWS], powers, slow, found)
            if wrong == 0:
                found[LAST] = -1
                space = (COMMENT, True, np.uint32(0), 1.0, -1)
                i, end, wrong = read_entries(text, i, end, settings, powers, (columns, values, slow), found, space)
        i = end_line(text, i, ends, bad, found, before, end, wrong)
    return found


@loops
def end_line(text: Any, i: int, ends: Any, bad: Any, found: Any, before: Any, end: int, wrong: int) -> int:
    """Count a line and its row, whose entries end at `end`, or record its problem; return the start of the next line.

    before is the start of the line, and the counts of long numbers and dropped entries before it.
    """
    if wrong == 0:
        ends[found[ROWS]] = end
        found[ENTRIES] = end
        found[ROWS] += 1
    elif wrong != BLANK:
        bad[found[BAD], 0], bad[found[BAD], 1], bad[found[BAD], 2] = before[0], found[LINES], wrong
        found[BAD] += 1
        found[SLOW], found[DROPPED] = before[1], before[2]
    found[LINES] += 1
    while text[i] != 10:
        i += 1
    return i + 1


@loops
def note_long(slow: Any, found: Any, begin: int, entry: int) -> None:
    """Record a number with too many digits."""
    slow[found[SLOW], 0], slow[found[SLOW], 1] = begin, entry
    found[SLOW] += 1


@loops
def _label(text: Any, i: int, row: int, powers: Any, slow: Any, found: Any) -> Any:
    """Return the label of a row, its end, and its problem."""
    value, end, how = number_at(text, i, powers)
    if how == NONE or not ends_token(text[end], COMMENT):
        return value, i, NO_LABEL
    if how == LONG:
        note_long(slow, found, i, -1 - row)
    return value, end, 0 if np.isfinite(value) else NOT_FINITE


@loops
def read_entries(text: Any, i: int, k: int, settings: Any, powers: Any, rows: Any, found: Any, space: Any) -> Any:
    """Write entries from k on, up to the end of the line or a mark; return their end, the next k and the problem.

    rows is columns, values and slow. space is the namespace of the entries: the mark (COMMENT in LIBSVM text, BAR in
    Vowpal Wabbit text); whether it has no name; the hash of its name; the weight of its values; and the offset of the
    weight if it has too many digits, else -1.

    The function is long because a separate function for the value of an entry made it a fifth slower.
    """
    columns, values, slow = rows
    mark, nameless, seed, scale, long_scale = space
    first, width, bits = settings[FIRST], settings[WIDTH], settings[BITS]
    last, anonymous = found[LAST], np.int64(0)
    while True:
        i = past_blanks(text, i)
        if text[i] == 10 or text[i] == mark:
            found[LAST] = last
            return i, k, 0
        begin, column, value, how = i, np.int64(0), scale, 0
        while np.uint8(text[i] - 48) < 10:
            column = min(10 * column + np.int64(text[i] - 48), np.int64(BEYOND_ALL))
            i += 1
        unnamed = mark == BAR and i == begin and text[i] == COLON  # its name is its number among the unnamed features
        if unnamed:
            column = anonymous
            anonymous += 1
        if bits < 0 and nameless and (i > begin or unnamed) and (text[i] == COLON or _lone(text[i], mark)):
            column -= first
            if column < 0:
                return i, k, BELOW_FIRST
            if column > LARGEST_INDEX:
                if mark == COMMENT or not settings[DROP]:
                    return i, k, TOO_LARGE
                column = np.int64(-1)
        elif unnamed:
            column = np.int64(-1) if bits < 0 else (np.int64(seed) + column) & ((np.int64(1) << bits) - 1)
        else:
            i, column, sign = _named(text, begin, bits, mark, seed)
            value *= sign
            if column < 0 and mark == COMMENT and i > begin:  # a qid
                continue
            if i == begin:
                return i, k, NO_INDEX
        if column < 0 and not settings[DROP]:
            return i, k, NO_INDEX
        if text[i] == COLON:
            i += 1
            digit = np.uint8(text[i] - 48)
            single = digit < 10 and ends_token(text[i + 1], mark)
            if single:  # the most common form
                value *= float(digit)
                i += 1
            else:
                begin = i
                number, i, how = number_at(text, i, powers)
                if how == NONE or not ends_token(text[i], mark):
                    return i, k, NO_VALUE
                if how == FINE:
                    value *= number
            if (mark == BAR or not single) and not np.isfinite(value):
                return i, k, NOT_FINITE
        elif not ends_token(text[i], mark):
            return i, k, NO_INDEX
        if column < 0 or (width >= 0 and column >= width):
            if not settings[DROP]:
                return i, k, BEYOND_LAST
            found[DROPPED] += 1
            continue
        if how == LONG:
            note_long(slow, found, begin, k)
        if long_scale >= 0:
            note_long(slow, found, long_scale, k)
        if column <= last:
            found[UNSORTED] = 1
        last = column
        columns[k] = column
        values[k] = value
        k += 1


@loops
def _named(text: Any, begin: int, bits: int, mark: int, seed: Any) -> Any:
    """Return the end of the name of a feature, its column and its sign; the column is -1 for LIBSVM's qid:...

    The column is also -1 if names are not hashed. If there is no valid name, the end equals the start.
    """
    i, column = begin, np.int64(0)
    while not (text[i] <= 32 or text[i] == COLON or (text[i] == BAR and mark == BAR)):
        column = 10 * column + np.int64(text[i] - 48)
        i += 1
    if mark == COMMENT:
        if (
            i - begin == 3 and text[begin] == 113 and text[begin + 1] == 105 and text[begin + 2] == 100
            and text[i] == COLON
        ):  # fmt: skip
            while text[i] > 32:
                i += 1
            return i, np.int64(-1), 1.0
        if bits < 0:
            return begin, np.int64(-1), 1.0
    if i == begin or bits < 0:
        return i, np.int64(-1), 1.0
    for j in range(begin, i):
        if np.uint8(text[j] - 48) >= 10:
            column, sign = column_and_sign(text, begin, i, bits, seed)
            return i, column, sign
    return i, (np.int64(seed) + column) & ((np.int64(1) << bits) - 1), 1.0


@loops
def _lone(letter: int, mark: int) -> bool:
    """Return whether an index that ends here is a feature of value 1, as in Vowpal Wabbit text."""
    return mark == BAR and ends_token(letter, mark)


@loops
def past_blanks(text: Any, i: int) -> int:
    """Return the start of the next token."""
    while text[i] == 32 or text[i] == 9 or text[i] == 13:
        i += 1
    return i


@loops
def ends_token(letter: int, mark: int) -> bool:
    """Return whether a byte ends a token: a blank, a line feed or a mark."""
    return letter == 32 or letter == 10 or letter == 9 or letter == 13 or letter == mark
