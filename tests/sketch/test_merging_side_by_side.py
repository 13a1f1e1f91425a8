"""`fit` with n_jobs: parts are sketched in parallel and merged."""

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.sketch import _base

SKETCHES = {
    "rfd": lambda: robustfd.RobustFrequentDirections(6),
    "centred": lambda: robustfd.FrequentDirections(6, center=True),
    "rp": lambda: robustfd.RandomProjectionSketch(6, random_state=0),
    "exact": lambda: robustfd.ExactSecondMoment(),
}


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("sparse", [False, True])
def test_parallel_parts_are_merged(name, sparse, monkeypatch):
    monkeypatch.setattr(_base, "MIN_ROWS_PER_PART", 100)
    X = np.random.default_rng(0).standard_normal((300, 10))
    x = sp.csr_array(X) if sparse else X
    weight = np.arange(300.0)
    weight[100:200] = 0.0  # one of the three parts has no rows
    sketch = SKETCHES[name]().fit(x, sample_weight=weight, n_jobs=3)
    cuts = [slice(0, 100), slice(200, 300)]
    parts = [part.fit(x[some], sample_weight=weight[some]) for part, some in zip(SKETCHES[name]().split(2), cuts)]
    expected = robustfd.merge(parts)
    np.testing.assert_allclose(sketch.sketch_, expected.sketch_, rtol=1e-9, atol=1e-9)
    assert sketch.n_samples_seen_ == expected.n_samples_seen_ == 199
    assert sketch.get_params() == SKETCHES[name]().get_params()
    assert sketch.fit(x).n_samples_seen_ == 300
    sketch.partial_fit(x)


def test_decay_is_refused():
    X = np.ones((10, 3))
    with pytest.raises(ValueError, match="order of the rows"):
        robustfd.FrequentDirections(3, decay=0.9).fit(X, n_jobs=2)
    with pytest.raises(ValueError, match="n_jobs must be"):
        robustfd.FrequentDirections(3).fit(X, n_jobs=0)
