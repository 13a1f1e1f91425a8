"""A record of arrays and a loop that reads and writes it."""

from typing import Any, NamedTuple

import numpy as np

from robustfd._compile import Layout, entry, loops, open_record


class Inner(NamedTuple):
    rows: Any
    table: Any


class Outer(NamedTuple):
    count: Any
    inner: Inner


def example() -> Outer:
    """Return a record with numbers in it."""
    table = np.zeros(2, [("a", "f8"), ("b", "i8")])
    table["a"], table["b"] = [0.5, 1.5], [3, 4]
    return Outer(np.array([1, 2, 3]), Inner(np.arange(6.0).reshape(2, 3), table))


OUTER = Layout(example())


@loops
def add_all(record: Any, other: Any) -> float:
    total = 0.0
    for i in range(len(record.inner.rows)):
        for j in range(record.inner.rows.shape[1]):
            total += record.inner.rows[i, j] * record.count[j] + record.inner.table[i]["a"] * record.inner.table[i]["b"]
    if other is not None:
        other.inner.rows[1, 2] += 1.0
    return total


@entry
@loops
def read_record(pointers: Any, other: Any) -> float:
    """Return a sum over all arrays, and write to the other record, if there is one."""
    return add_all(open_record(pointers, OUTER), open_record(other, OUTER))
