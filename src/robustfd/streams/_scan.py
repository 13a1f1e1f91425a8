"""A scan of LIBSVM text for labels and indices only, in a compiled loop twice as fast as `parse_rows`."""

from typing import Any

import numpy as np

from robustfd._compile import compiled, loops
from robustfd.streams._decimal import FINE, number_at
from robustfd.streams._parse import LARGEST_INDEX

ROWS, LABELS, LEAST, LARGEST = range(4)  # results of scan_rows; indices are those in the text


@compiled
def scan_rows(text: Any, labelled: bool, named: bool, powers: Any, labels: Any, found: Any) -> bool:
    """Add the counts of a text to `found`, and its distinct labels to `labels`; return whether the scan succeeded.

    Each line must be empty, or have a label if `labelled`, and entries index:value, or any entries if `named`. Values
    are only checked for impossible characters. If the scan fails, `found` stays unchanged and `parse_rows` must read
    the text. Once `labels` is full, further labels are ignored.
    """
    i = rows = 0
    least, largest, label = found[LEAST], found[LARGEST], np.nan
    while i < len(text):
        i = _past_spaces(text, i)
        if text[i] != 10:
            rows += 1
            if labelled:
                value, i, how = number_at(text, i, powers)
                if how != FINE or text[i] > 32 or not np.isfinite(value):
                    return False
                if value != label:
                    label = value
                    found[LABELS] = _add_label(labels, found[LABELS], label)
            if named:
                while text[i] != 10 and text[i] != 35:
                    i += 1
            else:
                i, least, largest = _indices(text, i, least, largest)
        if text[i] != 10:
            return False
        i += 1
    found[ROWS] += rows
    found[LEAST], found[LARGEST] = least, largest
    return True


@loops
def _indices(text: Any, i: int, least: Any, largest: Any) -> Any:
    """Return where a line ends or the scan fails, and the smallest and the largest index up to there."""
    while True:
        i = _past_spaces(text, i)
        begin, index = i, np.int64(0)
        while np.uint8(text[i] - 48) < 10:
            index = 10 * index + np.int64(text[i] - 48)
            i += 1
        if text[i] != 58 or i == begin or i - begin > 10 or index > LARGEST_INDEX:
            return begin, least, largest  # a line feed, or an unexpected byte
        least, largest = min(least, index), max(largest, index)
        i += 1
        if np.uint8(text[i] - 48) < 10 and text[i + 1] == 32:  # the most common form
            i += 2
            continue
        begin = i
        while _in_number(text[i]):
            i += 1
        if i == begin or text[i] > 32:
            return begin - 1, least, largest


@loops
def _add_label(labels: Any, count: int, label: float) -> int:
    """Add a label if it is new and `labels` is not full; return the number of distinct labels."""
    for k in range(count):
        if labels[k] == label:
            return count
    if count == len(labels):
        return count
    labels[count] = label
    return count + 1


@loops
def _past_spaces(text: Any, i: int) -> int:
    """Return the start of the next token."""
    while text[i] == 32 or text[i] == 9 or text[i] == 13:
        i += 1
    return i


@loops
def _in_number(letter: Any) -> Any:
    """Return whether this byte can be part of a number: a digit, or one of . + - e E."""
    return np.uint8(letter - 48) < 10 or letter == 46 or letter == 45 or letter == 43 or letter | 32 == 101
