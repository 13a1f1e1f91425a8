"""Vowpal Wabbit's text, a chunk of whole lines at a time, to rows: the compiled loop.

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

# What may be wrong with a line, beside what `_parse.py` has.
NO_BAR, BAD_WEIGHT, HAS_BASE, NO_SPACE, UNLABELLED = range(8, 13)
QUOTE, ANY = 39, 58  # the letter '; a group : is of all namespaces
HEAD = 4


@compiled
def parse_vw_rows(text: Any, settings: Any, powers: Any, heads: Any, rows: Any, left: Any, spaces: Any) -> Any:
    """Return what `parse_rows` returns. heads gets HEAD numbers a row: label (NaN for none), weight, its tag's place.

    rows is ends, columns and values, left is bad and slow, as there. spaces is groups and marks: groups has the first
    letter and the hash of names of namespaces, a letter alone if the hash is -1, and bit g of marks[k] gets whether the
    entry k is of the group g.
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
    """Read what is in front of the first bar; return where that is, and what is wrong."""
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
            heads[first + 2], heads[first + 3] = begin + (text[begin] == QUOTE), i  # a tag: next to the bar, or quoted
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
    """Return where the name of a namespace and its weight end, the namespace, its groups and what is wrong."""
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
