"""Parallel work in threads and in processes: the same results, and errors that reach the caller."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd import _jobs
from robustfd.sketch import base, frequent_directions


def double(x, power):
    return x * 2**power


def fail(x):
    raise ValueError(f"refused {x}")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_results_come_in_order(processes):
    large = np.arange(100_000.0).reshape(1000, 100)
    parts = [(1.0, 1), (large, 2), (sp.csr_array(large % 7), 3), ("ab", 0)]
    one, dense, sparse, text = _jobs.side_by_side(double, parts, processes=processes)
    assert one == 2.0 and text == "ab"
    np.testing.assert_array_equal(dense, 4 * large)
    assert isinstance(sparse, sp.csr_array)
    np.testing.assert_array_equal(sparse.toarray(), 8 * (large % 7))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_errors_are_raised(processes):
    with pytest.raises(ValueError, match="refused [12]"):
        _jobs.side_by_side(fail, [(1,), (2,)], processes=processes)
    x = np.ones((20_000, 5))
    x[-1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        robustfd.FrequentDirections(3).fit(x, n_jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "single", "integers", "sparse", "columns"])
def test_threads_and_processes_make_the_same_sketch(kind, monkeypatch):
    x = np.random.default_rng(0).standard_normal((9001, 37)) * 0.9 ** np.arange(37)
    kinds = {
        "dense": x,
        "single": x.astype(np.float32),
        "integers": (10 * x).astype(int),
        "sparse": sp.csr_matrix(x * (x > 1)),
        "columns": np.asfortranarray(x),
    }
    weight, saved = np.random.default_rng(1).integers(0, 3, 9001), []
    monkeypatch.setattr(_jobs, "SHARED_BYTES", 1000)
    for many in (10**9, 1):
        monkeypatch.setattr(frequent_directions, "MANY_ROWS", many)
        sketch = robustfd.RobustFrequentDirections(8, center=True)
        saved.append(sketch.fit(kinds[kind], sample_weight=weight, n_jobs=2).to_bytes())
    assert saved[0] == saved[1]


def test_few_rows_are_sketched_in_one_part(monkeypatch):
    x = np.random.default_rng(0).standard_normal((2 * base.MIN_ROWS_PER_PART - 1, 5))
    monkeypatch.delattr(base, "side_by_side")
    alone = robustfd.FrequentDirections(3).fit(x)
    assert robustfd.FrequentDirections(3).fit(x, n_jobs=2).to_bytes() == alone.to_bytes()
