"""The paper's accuracy table, and alpha0 = 0 over many orders of rows. Skipped without the real data."""

import numpy as np
import pytest

from robustfd import AdaGrad, OnlineNewton

# Luo et al. 2019, Table 2: (data, method, m, alpha0, accuracy in percent)
CELLS = [
    ("a9a", "adagrad", 0, 1e6, 83.4783),
    ("a9a", "fd", 5, 1e3, 83.6524),
    ("a9a", "fd", 10, 1e3, 83.6728),
    ("a9a", "pfd", 5, 1e3, 83.6728),
    ("a9a", "pfd", 10, 1e3, 83.7138),
    ("a9a", "pfd", 20, 1e3, 83.6626),
    ("a9a", "rfd", 5, 100.0, 83.6319),
    ("a9a", "rfd", 10, 100.0, 83.6831),
    ("a9a", "rfd", 20, 10.0, 83.9390),
    ("farm_ads", "adagrad", 0, 1e5, 89.3805),
    ("farm_ads", "fd", 20, 1e3, 89.7023),
    ("farm_ads", "fd", 30, 1e3, 89.9437),
    ("farm_ads", "pfd", 20, 1e3, 90.0241),
    ("farm_ads", "pfd", 30, 1e3, 89.8632),
    ("farm_ads", "pfd", 50, 1e3, 90.0241),
    ("farm_ads", "rfd", 20, 100.0, 89.7828),
    ("farm_ads", "rfd", 30, 100.0, 89.8632),
    ("farm_ads", "rfd", 50, 100.0, 90.3459),
]


def accuracy(learner, X, y, order=None):
    """Return the accuracy in percent on the last 30 % of the rows after one pass over the first 70 %."""
    order = np.arange(len(y)) if order is None else order
    n = int(0.7 * len(y))
    train, test = order[:n], order[n:]
    learner.learn(X[train], y[train])
    return 100 * np.mean((learner.decision_function(X[test]) > 0) == (y[test] > 0))


@pytest.mark.parametrize("data, method, m, alpha0, printed", CELLS)
def test_cells_of_table_2(request, data, method, m, alpha0, printed):
    X, y = request.getfixturevalue(data)
    learner = AdaGrad(alpha0) if method == "adagrad" else OnlineNewton(method, m, alpha0=alpha0)
    one_row = 100 / (len(y) - int(0.7 * len(y)))
    assert abs(accuracy(learner, X, y) - printed) <= one_row + 5e-5


@pytest.mark.parametrize("m, printed", [(5, 83.24), (10, 83.26), (20, 83.27)])
def test_rfd0_in_every_order_of_a9a(a9a, m, printed):
    X, y = a9a
    found = [
        accuracy(OnlineNewton("rfd", m), X, y, np.random.default_rng(seed).permutation(len(y))) for seed in range(10)
    ]
    assert np.mean(found) >= printed - 0.3
    assert min(found) >= printed - 2


@pytest.mark.parametrize("seed", range(12))
def test_rounding_error_never_ends_the_phase_of_alpha_zero(seed):
    """For streams of nearly rank 3, or with repeated rows, alpha is 0 or well above rounding error."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 20)) / 8
    X += 10.0 ** -rng.integers(4, 17) * rng.standard_normal(X.shape)
    X[100:200] = X[:100] * (1 + 1e-9 * rng.standard_normal((100, 1)))
    X = X[rng.permutation(300)]
    y = np.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0)
    for m in (3, 5, 8):
        learner = OnlineNewton("rfd", m)
        margins = learner.learn(X, y)
        assert np.isfinite(margins).all()
        assert np.abs(learner.weights_).max() < 1e10
        assert learner.alpha_ == 0 or learner.alpha_ > 1e-15
        assert learner.progressive_error_ < 0.5


def test_memory_of_a_million_features():
    import scipy.sparse as sp

    d, m, n = 1_000_000, 20, 300
    rng = np.random.default_rng(0)
    X = sp.csr_array((np.ones(30 * n), rng.integers(0, d, 30 * n), 30 * np.arange(n + 1)), shape=(n, d))
    learner = OnlineNewton("rfd", m)
    learner.learn(X, np.where(rng.random(n) < 0.5, 1.0, -1.0))
    held = sum(part.nbytes for part in learner._state.arrays.values())
    assert held < 8 * (m + 1) * d + 8e6
