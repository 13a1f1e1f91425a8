"""The methods since the paper: SCFD, S-AdaGrad and Ada-FD equal their transcriptions, and have their properties."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from robustfd import AdaGrad, OnlineNewton
from robustfd.learners.newton import ROOTS
from tests.learners.test_newton import assert_equal_runs, stream

RATES = {"s-adagrad": 0.3, "ada-fd": 0.3, "scfd": "1/t"}


def make(sketch, m=5, **options):
    return OnlineNewton(sketch, m, **{"rate": RATES[sketch], "alpha0": 0.5, **options})


@pytest.mark.parametrize("sketch", RATES)
@pytest.mark.parametrize("projection", ["current", "next", None])
@pytest.mark.parametrize("alpha0", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_every_method_equals_its_transcription(sketch, projection, alpha0, loss):
    X, y = stream(1, 120, 15)
    if sketch == "ada-fd" and alpha0 < 1:
        pytest.skip("Ada-FD adds nothing for what its shrinks remove: steps of rate / alpha0 diverge")
    tolerance = 1e-9 if alpha0 or sketch == "s-adagrad" else 1e-7  # SCFD's pseudo-inverses, as for RFD-SON
    assert_equal_runs(make(sketch, alpha0=alpha0, projection=projection, loss=loss), X, y, tolerance=tolerance)


@pytest.mark.parametrize("sketch", ROOTS)
@pytest.mark.parametrize("rank", [1, 3])
def test_rows_of_low_rank(sketch, rank):
    X, y = stream(5, 100, 12, rank=rank)
    learner = make(sketch, alpha0=0.0)
    assert_equal_runs(learner, X, y, tolerance=1e-8)
    assert learner.alpha_ == 0.0


@pytest.mark.parametrize("sketch", RATES)
def test_wide_sparse_rows_and_weights(monkeypatch, sketch):
    monkeypatch.setattr("robustfd.learners.newton.NARROW", 20)  # the transcription has matrices of d x d
    X, y = stream(7, 150, 120, density=0.1)
    weight = np.random.default_rng(0).exponential(size=150)
    assert_equal_runs(make(sketch), X, y, weight=weight, as_sparse=True)


@settings(deadline=None)
@given(
    sketch=st.sampled_from(sorted(RATES)), seed=st.integers(0, 99), m=st.integers(2, 6), d=st.integers(1, 9),
    alpha0=st.sampled_from([1e-2, 1.0, 100.0]), scale=st.sampled_from([0.1, 1.0, 3.0]),
    projection=st.sampled_from(["current", "next", None]),
)  # fmt: skip
def test_random_streams(sketch, seed, m, d, alpha0, scale, projection):
    X, y = stream(seed, 60, d)
    alpha0 = max(alpha0, scale) if sketch == "ada-fd" else alpha0  # steps of rate / alpha0 diverge
    assert_equal_runs(make(sketch, m, alpha0=alpha0, scale=scale, projection=projection), X, y, tolerance=1e-8)


def test_scfd_adds_twice_what_rfd_adds():
    X, y = stream(0, 10, 30)
    half, whole = (OnlineNewton(sketch, 5, alpha0=1.0) for sketch in ("rfd", "scfd"))
    for learner in (half, whole):
        learner.learn(X, y)  # one shrink, of the same rows
    assert whole.alpha_ - 1.0 == pytest.approx(2 * (half.alpha_ - 1.0)) and half.alpha_ > 1.0


@pytest.mark.parametrize("sketch", ROOTS)
def test_on_one_feature_the_roots_are_adagrad(sketch):
    """With d = 1, B'B is the sum of squared gradients: ADAGRAD's step, with alpha0 under or beside the root."""
    X, y = stream(3, 50, 1)
    rooted, plain = make(sketch, 3, rate=1.0, alpha0=0.0), AdaGrad(0.0)
    np.testing.assert_allclose(rooted.learn(X, y), plain.learn(X, y), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sketch", ROOTS)
def test_rotated_rows_give_the_same_margins(sketch):
    """Unlike ADAGRAD's diagonal, the roots of full matrices do not depend on the axes."""
    X, y = stream(4, 80, 8)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))[0]
    np.testing.assert_allclose(make(sketch).learn(X @ turn, y), make(sketch).learn(X, y), rtol=0, atol=1e-9)


@pytest.mark.parametrize("sketch", ROOTS)
def test_batches_formats_and_snapshots_make_no_difference(sketch):
    X, y = stream(6, 90, 600, density=0.02)
    whole, parts = make(sketch), make(sketch)
    margins = whole.learn(sp.csr_array(X), y)
    found = []
    for start in range(0, 90, 30):
        found.append(parts.learn(sp.csr_array(X[start : start + 30]), y[start : start + 30]))
        parts = OnlineNewton.from_bytes(parts.to_bytes())
    assert np.concatenate(found) == pytest.approx(margins, abs=1e-12)
    np.testing.assert_allclose(make(sketch).learn(X, y), margins, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sketch", ROOTS)
def test_roots_need_a_rate(sketch):
    with pytest.raises(ValueError, match=f"sketch='{sketch}' needs a number as rate, such as 0.1, got '1/t'"):
        OnlineNewton(sketch).learn(np.eye(2), np.ones(2))


def test_scale_multiplies_the_rate():
    X, y = stream(8, 60, 6)
    one, two = OnlineNewton(rate=0.5, alpha0=1.0), OnlineNewton(rate=0.1, scale=5.0, alpha0=1.0)
    np.testing.assert_allclose(one.learn(X, y), two.learn(X, y), rtol=1e-12)
    with pytest.raises(ValueError, match="scale must be"):
        OnlineNewton(scale=0.0).learn(X, y)
