"""Results of single cells are correct: errors, bounds, regret, and no score for diverged runs."""

import numpy as np
import pytest
import scipy.optimize

from robustfd import FrequentDirections, RobustFrequentDirections
from robustfd.experiments import error, protocol, regret
from robustfd.experiments.cells import cell
from robustfd.experiments.regret import best_in_hindsight, span
from tests import reference_online as ro
from tests import reference_regret as rr


@pytest.fixture
def stream(monkeypatch):
    """Return a function that replaces the rows of a data set."""

    def put(X, y=None):
        monkeypatch.setattr(protocol, "rows", lambda name: (X, y))
        monkeypatch.setattr(error, "rows", lambda name: (X, y))
        error._gram.cache_clear()
        error._largest.cache_clear()

    yield put
    error._gram.cache_clear()
    error._largest.cache_clear()


# ------------------------------------------------------------------ spectral error


@pytest.mark.parametrize("n, d", [(60, 150), (300, 50)])
@pytest.mark.parametrize("kind", [FrequentDirections, RobustFrequentDirections])
def test_lanczos_finds_the_ends_of_the_spectrum(stream, monkeypatch, n, d, kind):
    X = np.random.default_rng(n).standard_normal((n, d)) / np.arange(1, d + 1)
    stream(X)
    sketch = kind(8).fit(X)
    exact = error.spectral_ends("made up", sketch.second_moment(), sketch.error_bound_)
    dense = np.linalg.eigvalsh(X.T @ X - sketch.second_moment().to_dense())
    assert exact == (dense[0], dense[-1])
    monkeypatch.setattr(error, "DENSE", 10)
    found = error.spectral_ends("made up", sketch.second_moment(), sketch.error_bound_)
    assert found == pytest.approx(exact, abs=1e-4 * sketch.error_bound_)


@pytest.mark.parametrize("method, beta", [("fd", None), ("rfd", None), ("pfd", 0.4), ("cfd", None)])
def test_error_certificate_and_theory_are_in_order(stream, method, beta):
    X = np.random.default_rng(0).standard_normal((200, 40)) / np.sqrt(np.arange(1, 41))
    stream(X)
    cells = [
        cell("error", "made up", effort=1.0, method=name, beta=b, m=10) for name, b in (("exact", None), (method, beta))
    ]
    (row,) = error.table({each: error.run(each) for each in cells})
    assert 0 < row["error"] <= row["certificate"] * (1 + 1e-12)
    assert row["certificate"] <= row["bound"]


# ------------------------------------------------------------------ passes


def test_a_pass_is_the_papers_protocol(stream):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((201, 6)) / 3
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    stream(X, y)
    each = cell("pass", "made up", effort=1.0, method="rfd0", m=3, alpha0=0.0, order=None, seed=None)
    result = protocol.run(each)
    run = ro.rfd_son(X[:140], y[:140], 3, L=6)
    right = np.count_nonzero((X[140:] @ run.w > 0) == (y[140:] > 0))
    assert (result["right"], result["of"]) == (right, 61)
    wrong = (np.asarray(run.margins) > 0) != (y[:140] > 0)
    assert result["curve"]["rows"][-1] == 140
    assert result["curve"]["error"][-1] == pytest.approx(100 * wrong.mean(), abs=1e-3)


def test_orders_are_permutations_and_seeded(stream):
    X, y = np.arange(20.0).reshape(20, 1), np.ones(20)
    stream(X, y)
    parts = [protocol.split("made up", order)[::2] for order in (None, 3, 3, 4)]
    joined = [np.concatenate(part).ravel() for part in parts]
    assert (joined[0] == X.ravel()).all()
    assert (joined[1] == joined[2]).all()
    assert (joined[1] != joined[3]).any()
    assert sorted(joined[3]) == sorted(X.ravel())


def test_a_run_that_diverges_is_not_scored(stream):
    rng = np.random.default_rng(0)
    X = 1e3 * rng.standard_normal((400, 30))
    y = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    stream(X, y)
    each = cell("pass", "made up", effort=1.0, method="oja", m=5, alpha0=1e-9, order=None, seed=0)
    result = protocol.run(each)
    assert result["diverged"]
    assert "accuracy" not in result


# ------------------------------------------------------------------ regret


@pytest.mark.parametrize("n, d", [(40, 5), (12, 30)])
def test_best_weights_in_hindsight(n, d):
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, d))
    y = np.where(rng.random(n) < 0.7, 1.0, -1.0)
    best = best_in_hindsight(X, y)
    assert np.abs(X @ best.w).max() <= 1
    assert best.loss == pytest.approx(np.sum((X @ best.w - y) ** 2))
    assert best.lower <= best.loss <= best.lower + 2e-5 * max(1.0, best.loss)
    constraint = scipy.optimize.LinearConstraint(X, -1, 1)
    other = scipy.optimize.minimize(
        lambda w: np.sum((X @ w - y) ** 2), np.zeros(d), jac=lambda w: 2 * X.T @ (X @ w - y), method="SLSQP",
        constraints=[constraint], options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    assert best.loss == pytest.approx(other.fun, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("shape, rank", [((30, 8), 8), ((8, 30), 8), ((30, 20), 4)])
def test_span_is_a_decomposition(shape, rank):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    u, s, v = span(X)
    assert len(s) == rank
    np.testing.assert_allclose((u * s) @ v.T, X, atol=1e-9 * s.max())
    np.testing.assert_allclose(u.T @ u, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(v.T @ v, np.eye(rank), atol=1e-9)


@pytest.mark.parametrize("alpha0", [0.0, 0.1, 10.0])
def test_bounds_are_those_of_the_transcribed_theorems(alpha0):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((150, 9)) / 2
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(150) > 0, 1.0, -1.0)
    w = best_in_hindsight(X, y).w
    reference = ro.algorithm_3(X, y, 4, alpha0=alpha0)
    (run,) = regret.follow(X, y, 4, "rfd", alpha0, [150])
    bound, printed = regret.bounds(run, w, alpha0)
    curved = {"C": 1.0, "L": 4.0, "mu": 1 / 8}
    theorem = rr.theorem_5 if alpha0 else rr.theorem_7
    assert bound == pytest.approx(theorem(reference, w, corrected=True, **curved), rel=1e-6)
    if alpha0:
        assert printed == pytest.approx(rr.theorem_5(reference, w, **curved), rel=1e-6)
    assert run.loss == pytest.approx(np.sum((np.asarray(reference.margins) - y) ** 2))


def test_fd_son_is_below_its_bound():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 9)) / 2
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(200) > 0, 1.0, -1.0)
    best = best_in_hindsight(X, y)
    for alpha0 in (0.01, 1.0):
        (run,) = regret.follow(X, y, 4, "fd", alpha0, [200])
        assert run.loss - best.loss <= regret.bounds(run, best.w, alpha0)[0]
