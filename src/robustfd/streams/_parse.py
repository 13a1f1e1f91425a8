"""Text of features, a chunk of whole lines at a time, to rows: what LIBSVM's and Vowpal Wabbit's compiled loops share.

`parse_rows` is LIBSVM's loop. `_parse_vw.py` has the other one, which reads entries by the same `read_entries`.
"""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops
from robustfd.streams._decimal import FINE, LONG, MOST_DIGITS, NONE, number_at
from robustfd.streams._hash import column_and_sign

# What may be wrong with a line.
BLANK = -1  # nothing, but there is no row in it
NO_LABEL, NO_INDEX, BELOW_FIRST, BEYOND_LAST, NO_VALUE, NOT_FINITE, TOO_LARGE = range(1, 8)
LARGEST_INDEX = 2**31 - 2
BEYOND_ALL = 2**40
LEAST_LONG = MOST_DIGITS + 2  # bytes of a number that is too long to be read here, and what is behind it
COMMENT, BAR, COLON = 35, 124, 58  # the letters # | :

# What the loops are told (settings) and what they tell (found).
LABELLED, FIRST, WIDTH, BITS, DROP = range(5)
ROWS, ENTRIES, LINES, BAD, SLOW, DROPPED, UNSORTED, LAST = range(8)


@compiled
def parse_rows(
    text: Any, settings: Any, powers: Any, labels: Any, ends: Any, columns: Any, values: Any, bad: Any, slow: Any
) -> Any:
    """Return how many rows, entries, lines, bad lines, long numbers and dropped entries there are in a text.

    Lines end with a line feed, the last one too. Rows go to labels, ends (of their entries), columns and values; of a
    bad line nothing does, and bad gets its place in the text, its number and what is wrong. slow gets the place of
    each number that has more digits than can be read here, and the entry it is the value of (-1 - row for a label).
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
    """Count a line and its row, whose entries end at `end`, or note what is wrong; return where the next line begins.

    before is where the line begins, and the counts of long numbers and dropped entries before it.
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
    """Note a number that is too long to be read here."""
    slow[found[SLOW], 0], slow[found[SLOW], 1] = begin, entry
    found[SLOW] += 1


@loops
def _label(text: Any, i: int, row: int, powers: Any, slow: Any, found: Any) -> Any:
    """Return the label of a row, where it ends, and what is wrong with it."""
    value, end, how = number_at(text, i, powers)
    if how == NONE or not ends_token(text[end], COMMENT):
        return value, i, NO_LABEL
    if how == LONG:
        note_long(slow, found, i, -1 - row)
    return value, end, 0 if np.isfinite(value) else NOT_FINITE


@loops
def read_entries(text: Any, i: int, k: int, settings: Any, powers: Any, rows: Any, found: Any, space: Any) -> Any:
    """Put entries, up to the end of the line or a mark, at k; return where they ended, the next k and what is wrong.

    rows is columns, values and slow. space is the namespace of the entries: the mark, COMMENT in LIBSVM text and BAR in
    Vowpal Wabbit's; whether it has no name; the hash of its name; the weight that values are multiplied by; and the
    place of that if it is too long to be read here, else -1.

    It is long because with the value of an entry as a function of its own a fifth of the speed was lost.
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
        unnamed = mark == BAR and i == begin and text[i] == COLON  # its name is its number among those of its kind
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
            if single:  # most values are like this
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
    """Return where the name of a feature ends, its column and its sign; the column is -1 for LIBSVM's qid:...

    The column is -1 too for what is not to be hashed. For what is no name the end is where it begins.
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
    """Return whether an index that ends here is a feature of value 1, which it is only in Vowpal Wabbit's text."""
    return mark == BAR and ends_token(letter, mark)


@loops
def past_blanks(text: Any, i: int) -> int:
    """Return where the next token begins."""
    while text[i] == 32 or text[i] == 9 or text[i] == 13:
        i += 1
    return i


@loops
def ends_token(letter: int, mark: int) -> bool:
    """Return whether a token may end here: with a blank, a line feed or a mark."""
    return letter == 32 or letter == 10 or letter == 9 or letter == 13 or letter == mark
