"""Memory is O(buffer_size * d) for any number of rows. Different threads may use different sketches."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from tests.sketch.family import SKETCHES, fingerprint

STREAM = """
import resource, sys
import numpy as np, scipy.sparse as sp
import robustfd

sparse, center, name = sys.argv[1] == "sparse", sys.argv[2] == "centred", sys.argv[3]
d, k = (20_000, 500) if sparse else (2_000, 250)
rng = np.random.default_rng(0)

def block():
    if sparse:
        counts = 100  # stored values per row
        columns = rng.integers(0, d, (k, counts))
        data = rng.standard_normal(k * counts)
        return sp.csr_array((data, columns.ravel(), np.arange(0, k * counts + 1, counts)), shape=(k, d))
    return rng.standard_normal((k, d))

def size(x):
    return x.data.nbytes + x.indices.nbytes + x.indptr.nbytes if sparse else x.nbytes

def address_space():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

sketch = getattr(robustfd, name)(10, center=center)
for _ in range(2):  # the first round loads code, which must not count
    sketch.partial_fit(block())
sketch.error_bound_
budget = int(sys.argv[4]) * 2**20
limit = address_space() + budget
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    np.ones(budget // 8 + 2**20)
except MemoryError:
    pass
else:
    sys.exit("the limit does not hold")
seen = 0
while seen < 10 * budget:
    x = block()
    seen += size(x)
    sketch.partial_fit(x)
    del x
assert 0 < sketch.error_bound_ < np.inf
print(sketch.n_samples_seen_)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on the address space is Linux's")
@pytest.mark.parametrize(
    "form, center, name, megabytes",
    [
        ("dense", "", "RobustFrequentDirections", 24),
        ("dense", "centred", "FrequentDirections", 24),
        ("sparse", "", "RobustFrequentDirections", 24),
        ("dense", "", "RandomProjectionSketch", 24),
        ("dense", "", "OjaSketch", 24),
    ],
)
def test_ten_times_more_rows_than_fit_stream_through(form, center, name, megabytes):
    run = subprocess.run(
        [sys.executable, "-c", STREAM, form, center, name, str(megabytes)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) > 0


@pytest.mark.parametrize("name", ["FD", "RFD", "greedy"])
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_queued_rows_need_no_more_memory_than_a_buffer(name, one_at_a_time):
    """Also for sparse rows, measured in stored values and not only in rows."""
    rng = np.random.default_rng(0)
    X = sp.random_array((600, 400), density=0.05, random_state=rng, format="csr")
    sketch = SKETCHES[name]()
    most = 0
    for start in range(0, 600, 1 if one_at_a_time else 67):
        sketch.partial_fit(X[start : start + (1 if one_at_a_time else 67)])
        most = max(most, len(sketch.to_bytes()))
    buffer = 8 * 8 * 400
    assert most <= 3 * buffer


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
def test_two_threads_give_the_same_result_as_one(make, sparse):
    rng = np.random.default_rng(1)
    streams = [rng.standard_normal((400, 60)) * (rng.random((400, 60)) < 0.1) for _ in range(2)]
    blocks = [[sp.csr_array(b) if sparse else b for b in np.array_split(X, 20)] for X in streams]

    def feed(sketch, rows):
        for b in rows:
            assert sketch.partial_fit(b).error_bound_ >= 0

    alone, together = [make() for _ in streams], [make() for _ in streams]
    for sketch, rows in zip(alone, blocks):
        feed(sketch, rows)
    threads = [threading.Thread(target=feed, args=pair) for pair in zip(together, blocks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [fingerprint(s) for s in alone] == [fingerprint(s) for s in together]
