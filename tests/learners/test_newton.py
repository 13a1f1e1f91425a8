"""OnlineNewton against the literal transcription of the paper's algorithms."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import lfilter

from robustfd.learners.newton import NARROW, ROOTS, OnlineGradientDescent, OnlineNewton
from tests import reference_online as ref
from tests import reference_rivals as rivals

LOSSES = ("squared", "logistic", "squared_hinge", "hinge", "absolute", "huber")


def stream(seed, n, d, *, rank=None, density=1.0, decay=0.0):
    """Return rows and labels; optionally of low rank, sparse, or with decreasing column scales."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if rank is not None:
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) / np.sqrt(d)
    X *= (rng.random((n, d)) < density) * np.exp(-decay * np.arange(d)) / np.sqrt(d * density)
    y = np.where(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return X, y


def transcribed(learner, X, y, weight=None):
    """Return the run of the transcription with the parameters of a learner."""
    rates = {"1/t": ref.inverse_time, "1/sqrt(t)": lambda t: t**-0.5}
    options = dict(  # noqa: C408
        loss=learner.loss if learner.loss != "huber" else ref.huber(learner.huber_delta),
        bound=learner.bound,
        mu=learner._plan(3)[1][0].mu,
        rate=lambda t: learner.scale * rates.get(learner.rate, lambda t: learner.rate)(t),
        domain="none" if learner.projection is None else "slab",
        projection=learner.projection,
        weight=weight,
        alpha0=learner.alpha0,
    )
    if learner.sketch == "full":
        return ref.full_on(X, y, **options)
    if learner.sketch in ROOTS:
        return {"s-adagrad": rivals.s_adagrad, "ada-fd": rivals.ada_fd}[learner.sketch](
            X, y, learner.sketch_size, **options
        )
    rule = rivals.scfd_rule if learner.sketch == "scfd" else learner.sketch
    return ref.rfd_son(
        X, y, learner.sketch_size, L=learner.buffer_size, rule=rule, beta=learner.beta,
        shrink_first=learner.shrink_first, **options,
    )  # fmt: skip


def assert_equal_runs(learner, X, y, *, weight=None, batches=(7, 1, 30), tolerance=1e-9, as_sparse=False):
    run = transcribed(learner, X, y, weight)
    margins, start = [], 0
    for size in itertools.cycle(batches):
        part = slice(start, start + size)
        rows = sp.csr_array(X[part]) if as_sparse else X[part]
        margins.append(learner.learn(rows, y[part], None if weight is None else weight[part]))
        start += size
        if start >= len(y):
            break
    margins = np.concatenate(margins)
    scale = 1 + np.abs(run.margins).max()
    assert np.abs(margins - run.margins).max() <= tolerance * scale, np.abs(margins - run.margins).max()
    assert np.abs(learner.weights_ - run.w).max() <= tolerance * (1 + np.abs(run.w).max())
    assert learner.alpha_ == pytest.approx(run.alpha, rel=1e-9, abs=1e-12)
    assert learner.decision_function(X) == pytest.approx(X @ run.w, rel=1e-7, abs=1e-7 * scale)


@pytest.mark.parametrize("sketch", ["rfd", "fd", "pfd", "scfd", "full"])
@pytest.mark.parametrize("projection", ["current", "next", None])
@pytest.mark.parametrize("shrink_first", [False, True])
@pytest.mark.parametrize("alpha0", [0.0, 1.0])
def test_every_listing_equals_its_transcription(sketch, projection, shrink_first, alpha0):
    if sketch == "full" and shrink_first:
        pytest.skip("nothing is shrunk")
    if sketch in ("fd", "pfd") and alpha0 == 0 and projection != "current":
        pytest.skip("a pseudo-inverse without a bound on w: margins grow without limit, and round-off with them")
    X, y = stream(1, 120, 15)
    learner = OnlineNewton(sketch, 5, alpha0=alpha0, projection=projection, shrink_first=shrink_first)
    assert_equal_runs(learner, X, y, tolerance=1e-7 if alpha0 == 0 else 1e-10)


@pytest.mark.parametrize("buffer_size", [4, 5, 6, 8, 20])
@pytest.mark.parametrize("alpha0", [0.0, 0.5])
def test_buffer_sizes(buffer_size, alpha0):
    X, y = stream(2, 90, 12)
    assert_equal_runs(OnlineNewton("rfd", 4, alpha0=alpha0, buffer_size=buffer_size), X, y, tolerance=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_equals_its_transcription(loss):
    X, y = stream(3, 80, 10)
    learner = OnlineNewton("rfd", 4, alpha0=1.0, loss=loss, bound=0.7, rate="1/sqrt(t)")
    assert_equal_runs(learner, X, y, tolerance=1e-8)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("shrink_first", [False, True])
def test_a_stream_of_low_rank_stays_in_the_phase_of_alpha_zero(rank, shrink_first):
    X, y = stream(5, 100, 12, rank=rank)
    learner = OnlineNewton("rfd", 5, shrink_first=shrink_first)
    assert_equal_runs(learner, X, y, tolerance=1e-7)
    assert learner.alpha_ == 0


def test_nearly_dependent_first_rows_make_long_weights_if_alpha0_is_zero():
    # Windows of a smooth series. The pseudo-inverse fits the first rows exactly (docs/errata.md, the last section).
    noise = 0.1 * np.random.default_rng(2).standard_normal(612)
    series = lfilter([1.0], [1.0, -0.95], lfilter([1.0], [1.0, -0.9], noise))
    X = np.hstack([sliding_window_view(series, 12)[:600], np.ones((600, 1))])
    y = np.where(X[:, -2] > np.median(X[:, -2]), 1.0, -1.0)
    found = {}
    for alpha0 in (0.0, 1.0):
        first = OnlineNewton("rfd", 5, alpha0=alpha0)
        first.learn(X[:10], y[:10])
        whole = OnlineNewton("rfd", 5, alpha0=alpha0)
        assert_equal_runs(whole, X, y, tolerance=1e-6)
        found[alpha0] = (np.linalg.norm(first.weights_), whole.progressive_error_)
    assert found[0.0][0] > 20 * found[1.0][0]
    assert found[0.0][1] > 3 * found[1.0][1]


@pytest.mark.parametrize("alpha0", [0.0, 1.0])
def test_weights(alpha0):
    X, y = stream(6, 90, 8)
    weight = np.random.default_rng(0).choice([0.0, 0.3, 1.0, 2.5], len(y))
    assert_equal_runs(OnlineNewton("rfd", 4, alpha0=alpha0), X, y, weight=weight, tolerance=1e-7)


@pytest.mark.parametrize("m", [2, 3, 8])
@pytest.mark.parametrize("alpha0", [0.0, 1.0])
@pytest.mark.parametrize("shrink_first", [False, True])
def test_wide_sparse_rows(monkeypatch, m, alpha0, shrink_first):
    monkeypatch.setattr("robustfd.learners.newton.NARROW", 20)  # the transcription has matrices of d x d
    X, y = stream(7, 400, 120, density=0.1)
    learner = OnlineNewton("rfd", m, alpha0=alpha0, shrink_first=shrink_first)
    assert_equal_runs(learner, X, y, as_sparse=True, batches=(50, 1, 3, 120), tolerance=1e-7)
    assert learner._state.sparse


def test_features_absent_for_many_runs_are_updated(monkeypatch):
    monkeypatch.setattr("robustfd.learners.newton_state.RUN_ROWS", 1)
    X, y = stream(8, 1500, NARROW + 8, density=0.01)
    X[:, 5] = 0
    X[[3, 700, 1490], 5] = 1.0
    learner, other = OnlineNewton("rfd", 4, alpha0=1.0), OnlineNewton("rfd", 4, alpha0=1.0)
    margins = learner.learn(sp.csr_array(X), y)
    assert np.abs(margins - other.learn(X, y)).max() < 1e-12
    assert np.abs(learner.weights_ - other.weights_).max() < 1e-12


@given(st.data())
def test_any_shape_scale_and_batching(data):
    n, d, m = (data.draw(st.integers(1, k)) for k in (60, 9, 5))
    m += 1
    kind = data.draw(st.sampled_from(["rfd", "fd", "pfd"]))
    scale = data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    X, y = stream(data.draw(st.integers(0, 99)), n, d, density=data.draw(st.sampled_from([0.3, 1.0])))
    X *= scale
    alpha0 = scale**2 * data.draw(st.sampled_from([0.01, 1.0]))
    batches = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    learner = OnlineNewton(kind, m, alpha0=alpha0)
    assert_equal_runs(learner, X, y, batches=batches, as_sparse=data.draw(st.booleans()), tolerance=1e-7)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_without_any_curvature_it_is_gradient_descent(as_sparse):
    # With mu = eta = 0, H stays alpha0 I.
    X, y = stream(3, 60, NARROW + 1 if as_sparse else 9, density=0.02 if as_sparse else 1.0)
    X = sp.csr_array(X) if as_sparse else X
    newton = OnlineNewton("fd", 3, alpha0=20.0, curvature=0.0, rate=0.0, projection=None)
    descent = OnlineGradientDescent(1 / 20, projection=None)
    np.testing.assert_allclose(newton.learn(X, y), descent.learn(X, y), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(newton.weights_, descent.weights_, rtol=1e-12, atol=1e-12)
    assert np.abs(newton.weights_).max() > 0.01
