"""Records by pointers: compiled loops read and write the arrays themselves, and arrays of other types are refused."""

import numpy as np
import pytest

from tests.compile.records import OUTER, example, read_record


def expected(record):
    inner = record.inner
    return float((inner.rows * record.count).sum() + 3 * (inner.table["a"] * inner.table["b"]).sum())


def test_a_loop_reads_and_writes_the_arrays_of_a_record():
    record = example()
    pointers, before = OUTER.pointers(record), expected(record)
    assert read_record(pointers, None) == before
    assert read_record(pointers, pointers) == before
    assert record.inner.rows[1, 2] == 6.0
    assert read_record(pointers, None) == expected(record) == before + 3.0


def test_records_of_other_sizes_have_the_same_layout():
    record = example()
    wide = record._replace(count=np.arange(5), inner=record.inner._replace(rows=np.ones((2, 5))))
    assert read_record(OUTER.pointers(wide), None) == 2 * 10 + 5 * 7.5


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 3), np.float32), np.zeros(6), np.zeros((3, 2)).T, np.zeros((2, 6))[:, ::2]]
)
def test_arrays_of_another_type_are_refused(rows):
    record = example()
    with pytest.raises(TypeError, match="Inner.rows must be a contiguous array of float64"):
        OUTER.pointers(record._replace(inner=record.inner._replace(rows=rows)))
