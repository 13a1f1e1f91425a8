"""Merging of the paper's learners: weights are averaged by numbers of rows, Hessians cover the rows of both."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import robustfd
from robustfd import AdaGrad, OnlineGradientDescent, OnlineNewton
from robustfd.linalg.decompose import shrunk_count

LEARNERS = {
    "rfd": lambda: OnlineNewton(sketch_size=5, alpha0=0.5),
    "rfd, alpha0 = 0": lambda: OnlineNewton(sketch_size=5),
    "fd": lambda: OnlineNewton("fd", 5, alpha0=1.0),
    "pfd": lambda: OnlineNewton("pfd", 6, alpha0=1.0, beta=0.5),
    "full": lambda: OnlineNewton("full", alpha0=0.1),
    "scfd": lambda: OnlineNewton("scfd", 5, alpha0=0.5),
    "s-adagrad": lambda: OnlineNewton("s-adagrad", 5, rate=0.1),
    "ada-fd": lambda: OnlineNewton("ada-fd", 5, alpha0=1.0, rate=0.1),
    "rp": lambda: OnlineNewton("rp", 5, alpha0=10.0, random_state=0),
    "oja": lambda: OnlineNewton("oja", 5, alpha0=10.0, random_state=0),
    "adagrad": AdaGrad,
    "descent": OnlineGradientDescent,
}


def rows(n, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) / 4
    y = np.where(X @ np.random.default_rng(9).standard_normal(d) > 0, 1.0, -1.0)
    return X, y


def hessian(learner, d):
    """Return the rows whose outer products add up to H, and alpha; for the methods with blocks."""
    b = learner._state.hessian_rows()[:, :d]
    return b.T @ b, learner.alpha_


@given(name=st.sampled_from(sorted(LEARNERS)), n=st.integers(1, 120), k=st.integers(1, 4), wide=st.booleans())
def test_merged_parts_of_a_split_are_the_learner(name, n, k, wide):
    X, y = rows(n)
    if wide and name != "full":
        X = sp.csr_array(np.hstack([X, np.zeros((n, 700))]))
    m = LEARNERS[name]()
    m.learn(X, y)
    merged = robustfd.merge(m.split(k))
    np.testing.assert_allclose(merged.weights_, m.weights_, rtol=0, atol=1e-10 * (1e-300 + np.abs(m.weights_).max()))
    assert merged.n_samples_seen_ == n
    assert merged.progressive_loss_ == pytest.approx(m.progressive_loss_)
    more, labels = rows(8, seed=1)
    if wide and name != "full":
        more = sp.csr_array(np.hstack([more, np.zeros((8, 700))]))
    if name in ("full", "adagrad", "descent", "rp"):  # merging shrinks the block of the others
        np.testing.assert_allclose(merged.learn(more, labels), m.learn(more, labels), rtol=1e-6, atol=1e-8)
    assert np.isfinite(merged.learn(more, labels)).all()


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("wide", [False, True])
def test_two_learners_become_one(name, wide, tmp_path):
    X, y = rows(150)
    if wide and name != "full":
        X = sp.csr_array(np.hstack([X, np.zeros((150, 700))]))
    one, two = LEARNERS[name]().split(2)
    one.learn(X[:100], y[:100])
    two.learn(X[100:], y[100:])
    both, other = one + two, two + one
    mean = (100 * one.weights_ + 50 * two.weights_) / 150
    np.testing.assert_allclose(both.weights_, mean, rtol=0, atol=1e-10 * np.abs(mean).max())
    np.testing.assert_allclose(other.weights_, both.weights_, rtol=0, atol=1e-10 * np.abs(mean).max())
    assert both.n_samples_seen_ == 150 and one.n_samples_seen_ == 100
    both.save(tmp_path / "both.rfd")
    loaded = robustfd.load(tmp_path / "both.rfd")
    more, labels = rows(60, seed=2)
    if wide and name != "full":
        more = sp.csr_array(np.hstack([more, np.zeros((60, 700))]))
    np.testing.assert_allclose(loaded.learn(more, labels), both.learn(more, labels), rtol=1e-6, atol=1e-9)
    assert (both + LEARNERS[name]()).n_samples_seen_ == (LEARNERS[name]() + both).n_samples_seen_ == 210


@pytest.mark.parametrize("name", ["rfd", "rfd, alpha0 = 0", "fd", "pfd", "full"])
@pytest.mark.parametrize("wide", [False, True])
def test_the_hessian_is_the_shrink_of_both(name, wide):
    """A shrink keeps m - 1 eigenvalues, minus delta each (only some for "pfd"), and alpha grows by delta/2."""
    X, y = rows(100)
    d = X.shape[1]
    if wide and name != "full":
        X = sp.csr_array(np.hstack([X, np.zeros((100, 700))]))
    one, two = LEARNERS[name]().split(2)
    one.learn(X[:63], y[:63])
    two.learn(X[63:], y[63:])
    (h, alpha), (g, beta) = hessian(one, d), hessian(two, d)
    both = one + two
    m = d + 1 if name == "full" else one.sketch_size
    lam, v = np.linalg.eigh(h + g)
    lam, v = lam[::-1], v[:, ::-1]
    delta = lam[m - 1] if m <= d else 0.0
    j = shrunk_count(m, 0.5) if name == "pfd" else m
    kept = lam[: m - 1].copy()
    kept[max(m - j, 0) :] -= delta
    expected = (v[:, : m - 1] * kept) @ v[:, : m - 1].T
    found, gamma = hessian(both, d)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * lam[0])
    added = 0.5 * delta if name.startswith("rfd") else 0.0
    assert gamma == pytest.approx(alpha + beta - one.alpha0 + added)


def test_learners_that_do_not_fit_together_are_refused():
    X, y = rows(50)
    one = OnlineNewton(sketch_size=5)
    one.learn(X, y)
    before = one.weights_
    wide = OnlineNewton(sketch_size=5)
    wide.learn(X[:, :4], y)
    for other, message in (
        (AdaGrad(), "Cannot merge a OnlineNewton with a AdaGrad"),
        (OnlineNewton(sketch_size=6), "different sketch_size: 5 here, 6 there"),
        (wide, "different n_features_in_: 12 here, 4 there"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            one.merge(other)
    np.testing.assert_array_equal(one.weights_, before)
