"""Whether the first record of CSV has the names of the columns, or is a row."""

from typing import Any

import numpy as np

from robustfd.streams._columns import looks
from robustfd.streams.pyarrow_modules import pa

_IN_ORDER = 8  # numbers 0, 1, 2, ..., so many of them, are no chance


def is_header(fields: list[str], below: Any) -> bool:
    """Return whether a record has names: `below` are the fields of the next records, one after the other, as bytes.

    It has if none of it is a number. Names may be numbers too, as those that pandas makes. So a record with numbers has
    names if they differ, and if the columns below are of other types: a word is above numbers, or all whole numbers are
    above fractions. Where all are whole numbers, 0, 1, 2, ... in this order are names.
    """
    missing, whole, _ = looks(pa.array([field.encode() for field in fields], pa.binary()))
    number = np.array([is_number(field) for field in fields])
    if not number.any():
        return True
    given = [field for field in fields if field]
    if len(set(given)) < len(given) or not len(below):
        return False
    missing_below, whole_below, number_below = (mask.reshape(-1, len(fields)) for mask in looks(below))
    some = ~missing_below.all(axis=0)
    numbers = (missing_below | number_below).all(axis=0) & some
    word = np.array([any(map(str.isalpha, field)) for field in fields])
    if (word & ~number & ~missing & numbers).any():
        return True
    if not whole[number].all():
        return False
    fractions = numbers & ~whole_below.any(axis=0)
    in_order = fields == [str(k) for k in range(len(fields))]
    return bool(fractions[number].all()) or (in_order and (len(fields) >= _IN_ORDER or not numbers.all()))


def is_number(field: str) -> bool:
    """Return whether a field is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def decided(name: str, header: bool) -> str:
    """Return what to say about a first record that could be either."""
    what = "names of columns" if header else "a row, not names of columns"
    other = "no-header" if header else "header"
    return f"{name}: the first line is taken for {what} (--{other}, or header={not header}, says otherwise)."
