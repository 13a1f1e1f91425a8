"""The compiled loop that parses chunks of Vowpal Wabbit text into rows.

[label [importance [base]]] ['tag]|[namespace[:weight]] feature[:value] ... |namespace ...
"""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops
from robustfd.streams._decimal import LONG, NONE, number_at
from robustfd.streams._hash import murmur3
from robustfd.streams._parse import (
    BAR,
    BLANK,
    COLON,
    DROPPED,
    ENTRIES,
    LABELLED,
    LAST,
    NO_LABEL,
    NO_VALUE,
    NOT_FINITE,
    ROWS,
    SLOW,
    end_line,
    ends_token,
    note_long,
    past_blanks,
    read_entries,
)

# Problems of a line, in addition to those in `_parse.py`.
NO_BAR, BAD_WEIGHT, HAS_BASE, NO_SPACE, UNLABELLED = range(8, 13)
QUOTE, ANY = 39, 58  # the byte '; the group : stands for all namespaces
HEAD = 4


@compiled
def parse_vw_rows(text: Any, settings: Any, powers: Any, heads: Any, rows: Any, left: Any, spaces: Any) -> Any:
    """Parse a text and return the same counts as `parse_rows`.

    heads gets HEAD numbers per row: label (NaN for none), weight, start and end of the tag. rows is ends, columns and
    values; left is bad and slow, as in `parse_rows`. spaces is groups and marks: groups has the first letter and the
    hash of namespaces (-1 for all with this letter), and bit g of marks[k] states whether entry k is in group g.
    """
    (ends, columns, values), (bad, slow), (groups, marks) = rows, left, spaces
    found = np.zeros(8, np.int64)
    i = 0
    while i < len(text):
        before, end, wrong = (i, found[SLOW], found[DROPPED]), found[ENTRIES], BLANK
        i = past_blanks(text, i)
        if text[i] != 10:
            i, wrong = _head(text, i, found[ROWS], powers, heads, slow, found)
            if wrong == 0 and settings[LABELLED] and np.isnan(heads[HEAD * found[ROWS]]):
                wrong = UNLABELLED
            found[LAST] = -1
            while wrong == 0 and text[i] == BAR:
                i, space, group, wrong = _space(text, i + 1, powers, groups)
                if wrong == 0:
                    start = end
                    i, end, wrong = read_entries(text, i, end, settings, powers, (columns, values, slow), found, space)
                    if len(groups):
                        for j in range(start, end):
                            marks[j] = group
        i = end_line(text, i, ends, bad, found, before, end, wrong)
    return found


@loops
def _head(text: Any, i: int, row: int, powers: Any, heads: Any, slow: Any, found: Any) -> Any:
    """Read the head of a line; return the offset of the first bar, and the problem."""
    first, words = HEAD * row, 0
    heads[first], heads[first + 1], heads[first + 2], heads[first + 3] = np.nan, 1.0, 0.0, 0.0
    while True:
        begin = i = past_blanks(text, i)
        if text[i] == BAR:
            return i, 0
        while not ends_token(text[i], BAR):
            i += 1
        after = past_blanks(text, i)
        if text[after] == 10:
            return after, NO_BAR
        if text[after] == BAR and (after == i or text[begin] == QUOTE):
            heads[first + 2], heads[first + 3] = (
                begin + (text[begin] == QUOTE),
                i,
            )  # a tag touches the bar or starts with a quote
            return after, 0
        value, end, how = number_at(text, begin, powers)
        if how == NONE or end != i or words == 3:
            return i, NO_LABEL
        if words == 2 and (value != 0 or how == LONG):
            return i, HAS_BASE
        if words == 1 and (value < 0 or (how == LONG and text[begin] == 45)):  # -
            return i, BAD_WEIGHT
        if not np.isfinite(value):
            return i, NOT_FINITE
        if words < 2:
            heads[first + words] = value
            if how == LONG:
                note_long(slow, found, begin, -1 - (first + words))
        words += 1


@loops
def _space(text: Any, i: int, powers: Any, groups: Any) -> Any:
    """Return the end of the name and weight of a namespace, the namespace, its groups and the problem."""
    begin = i
    while not (text[i] <= 32 or text[i] == COLON or text[i] == BAR):
        i += 1
    seed, scale, place, wrong = np.uint32(0), 1.0, -1, 0
    if i > begin:
        seed = murmur3(text, begin, i, seed)
    group, letter = np.uint64(0), text[begin] if i > begin else 32
    for g in range(len(groups)):
        same = groups[g, 0] == ANY or (groups[g, 0] == letter and (groups[g, 1] < 0 or groups[g, 1] == np.int64(seed)))
        group |= np.uint64(same) << np.uint64(g)
    if text[i] == COLON:
        value, end, how = number_at(text, i + 1, powers)
        if i == begin:
            wrong = NO_SPACE
        elif how == NONE or not ends_token(text[end], BAR):
            wrong = NO_VALUE
        elif not np.isfinite(value):
            wrong = NOT_FINITE
        elif how == LONG:
            place = i + 1
        else:
            scale = value
        i = end
    elif not ends_token(text[i], BAR):
        wrong = NO_SPACE
    return i, (BAR, i == begin, seed, scale, place), group, wrong
