"""Detection of a CSV header."""

from typing import Any

import numpy as np

from robustfd.streams._columns import classify_fields
from robustfd.streams.pyarrow_modules import pa

_IN_ORDER = 8  # this many numbers 0, 1, 2, ... in order are names, not data


def is_header(fields: list[str], below: Any) -> bool:
    """Return whether the first record holds column names. `below` are the fields of the next records, in order.

    It does if none of its fields is a number. pandas also writes numbers as names. So a record with numbers holds names
    if they are distinct and differ in type from the columns below: a word above numbers, or whole numbers above
    fractions. If everything is whole numbers, 0, 1, 2, ... in order are names.
    """
    missing, whole, _ = classify_fields(pa.array([field.encode() for field in fields], pa.binary()))
    number = np.array([is_number(field) for field in fields])
    if not number.any():
        return True
    given = [field for field in fields if field]
    if len(set(given)) < len(given) or not len(below):
        return False
    missing_below, whole_below, number_below = (mask.reshape(-1, len(fields)) for mask in classify_fields(below))
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


def header_remark(name: str, header: bool) -> str:
    """Return the remark about a first record that could be either."""
    what = "column names" if header else "a row, not column names"
    other = "no-header" if header else "header"
    return f"{name}: the first line is read as {what}. Use --{other}, or header={not header}, to change that."
