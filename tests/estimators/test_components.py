"""`SketchedPCA.fit`, which reads all rows several times: exact for small rows, certified otherwise."""

import copy
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from robustfd import ExactSecondMoment, SketchedPCA
from robustfd.estimators import _components

SHAPES = [(300, 90), (90, 300), (150, 150)]


@pytest.fixture
def large(monkeypatch):
    """Treat small rows as large ones are treated, and make so few steps that the result is not exact."""
    few_steps(monkeypatch.setattr)


def few_steps(set_attribute):
    for name, value in (("SMALL", 0), ("DENSE_STEPS", 2), ("SPARSE_STEPS", 2)):
        set_attribute(_components, name, value)


def rows(shape, rng, sparse=False, ratio=0.95, offset=1.0):
    """Return rows with a decaying spectrum in random directions, or sparse rows."""
    n, d = shape
    if sparse:
        x = sp.random_array(shape, density=0.2, random_state=rng, format="csr")
        x.data *= 1.0 + 4.0 * (x.indices < 4)
        return x
    return rng.standard_normal((n, d)) * ratio ** np.arange(d) @ np.linalg.qr(rng.standard_normal((d, d)))[0] + offset


def scatter(x, weight):
    x = x.toarray() if sp.issparse(x) else np.asarray(x, np.float64)
    centred = x - weight @ x / weight.sum()
    return centred.T @ (weight[:, None] * centred)


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from(SHAPES),
    sparse=st.booleans(),
    scale=st.sampled_from([1e-110, 1e-3, 1.0, 1e8, 1e140]),
    single=st.booleans(),
    weighted=st.booleans(),
    decay=st.sampled_from([1.0, 0.99]),
    k=st.integers(1, 5),
)
def test_sketch_and_components_are_certified(seed, shape, sparse, scale, single, weighted, decay, k):
    rng = np.random.default_rng(seed)
    x = rows(shape, rng, sparse, ratio=rng.uniform(0.7, 1.0), offset=rng.choice([0.0, 1.0, 100.0]))
    x = x.astype(np.float32) if single else x * scale
    weight = rng.integers(0, 3, shape[0]).astype(float) if weighted else np.ones(shape[0])
    weight[0] = 1.0
    with pytest.MonkeyPatch.context() as patch:
        few_steps(patch.setattr)
        found = _components.analyse(x, weight, decay, k, k + int(rng.integers(1, 30)))
    assert found is not None
    state, ritz = found
    live = weight[weight > 0] * decay ** np.arange(np.count_nonzero(weight) - 1.0, -1.0, -1.0)
    exact = scatter(x[weight > 0], live)
    total, off = np.trace(exact), ritz.rounding
    values = np.linalg.eigvalsh(exact)[::-1]
    # B'B <= A'A <= B'B + Delta I
    gap = np.linalg.eigvalsh(exact - state.b.T @ state.b)
    assert -2 * off <= gap[0] and gap[-1] <= state.delta + 2 * off
    np.testing.assert_allclose(state.b @ state.b.T, np.diag(state.lam), atol=1e-12 * total, rtol=0)
    assert state.squared_norm == pytest.approx(total) and state.weight == pytest.approx(live.sum())
    # the components
    v, r = ritz.directions, len(ritz.values)
    np.testing.assert_allclose(v @ v.T, np.eye(k), atol=1e-11)
    np.testing.assert_allclose(np.diag(v @ exact @ v.T), ritz.values[:k], rtol=1e-9, atol=1e-12 * total)
    assert np.all(ritz.values - off <= values[:r]) and np.all(values[:r] <= ritz.upper)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sparse", [False, True])
def test_small_rows_are_analysed_exactly(shape, sparse):
    x = rows(shape, np.random.default_rng(0), sparse)
    pca = SketchedPCA(5, sketch_size=12).fit(x)
    exact = np.linalg.eigvalsh(scatter(x, np.ones(shape[0])))[::-1][:5] / (shape[0] - 1)
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-12)
    assert np.ptp(pca.explained_variance_interval_, axis=1).max() < 1e-9 * exact[0]
    assert pca.sketch_.error_bound_ > 0.1 * exact[-1]  # the sketch has 11 rows and is not exact


@pytest.mark.parametrize("rank", [1, 3, 12])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("large")
def test_the_sketch_is_exact_while_the_rank_is_below_its_size(shape, rank):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    pca = SketchedPCA(2, sketch_size=22).fit(x)
    exact = scatter(x, np.ones(shape[0]))
    error = np.linalg.norm(pca.sketch_.second_moment().to_dense() - exact, 2)
    assert error <= pca.sketch_.error_bound_ < 1e-9 * np.trace(exact)
    pca.partial_fit(x[:50])
    assert pca.sketch_.error_bound_ < 1e-9 * np.trace(exact)


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from(SHAPES),
    sparse=st.booleans(),
    offset=st.sampled_from([0, 1, 30]),
)
def test_single_precision_is_as_accurate_as_assumed(seed, shape, sparse, offset):
    rng = np.random.default_rng(seed)
    x = rows(shape, rng, sparse, ratio=rng.uniform(0.5, 1.0), offset=offset)
    some = _components._Rows.of(x, rng.random(shape[0]) + 0.1, 1.0)
    v = np.linalg.qr(rng.standard_normal((some.short, 8)))[0]
    one, two = some.times(v, np.float32), some.times(v, np.float64)
    assert np.linalg.norm(one - two, 2) <= some.noise(np.float32)


def test_tiny_variances_are_found_in_double_precision():
    # The fifth variance is 1e-9 of the first, which single precision does not resolve.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 2500)) * 1e-7
    x[:, :5] += rng.standard_normal((3000, 5)) * np.logspace(0, -4.5, 5)
    pca = SketchedPCA(5).fit(x)
    np.testing.assert_allclose(pca.explained_variance_, np.linalg.eigvalsh(np.cov(x[:, :5].T))[::-1], rtol=1e-4)
    low, high = pca.explained_variance_interval_.T
    assert np.all(high - low <= 1e-2 * low)


def test_a_mean_that_is_very_far_away():
    x = np.random.default_rng(0).standard_normal((300, 200)) * 0.9 ** np.arange(200)
    far = x + 2.0**40  # keeps 12 binary digits
    pca = SketchedPCA(3, sketch_size=30).fit(far)
    exact = np.linalg.eigvalsh(np.cov((far - 2.0**40).T))[::-1][:3]
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-10)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_far_mean_is_subtracted_without_loss_or_left_to_the_sketch(sparse):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 200)) * 0.9 ** np.arange(200)
    far = x + 2.0**30
    pca = SketchedPCA(3, sketch_size=30).fit(sp.csr_array(far) if sparse else far)
    assert (pca._ritz is None) == sparse  # products with uncentred sparse rows would lose all digits
    exact = np.linalg.eigvalsh(np.cov((far - 2.0**30).T))[::-1][:3]
    np.testing.assert_allclose(pca.explained_variance_, exact, rtol=1e-3 if sparse else 1e-9)
    np.testing.assert_allclose(pca.mean_, 2.0**30 + (far - 2.0**30).mean(axis=0), rtol=1e-15)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sparse", [False, True])
def test_extreme_weights(shape, sparse):
    rng = np.random.default_rng(0)
    x = rows(shape, rng, sparse, offset=0.0)
    plain, heavy = (SketchedPCA(3, sketch_size=20).fit(x, sample_weight=np.full(shape[0], w)) for w in (1.0, 1e200))
    np.testing.assert_allclose(heavy.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-9)
    weight = np.ones(shape[0])
    weight[0] = 1e-90
    x = x * np.where(np.arange(shape[0]) == 0, 1e40, 1.0)[:, None] if not sparse else x  # overflows in single precision
    pca = SketchedPCA(3, sketch_size=20).fit(x, sample_weight=weight)
    exact = np.linalg.eigvalsh(scatter(x[1:], weight[1:]))[::-1][:3] / (shape[0] - 2)
    low, high = pca.explained_variance_interval_.T
    assert np.all((low <= exact * (1 + 1e-9)) & (exact <= high * (1 + 1e-9)))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_rows_give_the_same_bytes_and_others_continue(sparse):
    rng = np.random.default_rng(3)
    x = rows((400, 120), rng, sparse)
    pca, again = (SketchedPCA(3, sketch_size=20).fit(x[:300]) for _ in range(2))
    assert pca.to_bytes() == again.to_bytes()
    merged = copy.copy(pca).merge(SketchedPCA(3, sketch_size=20).fit(x[300:]))
    pca.partial_fit(x[300:])
    exact = np.linalg.eigvalsh(scatter(x, np.ones(400)))[::-1][:3] / 399
    for each in (pca, merged):
        low, high = each.explained_variance_interval_.T
        assert np.all((low <= exact * (1 + 1e-12)) & (exact <= high * (1 + 1e-12)))
        error = np.linalg.norm(each.sketch_.second_moment().to_dense() - scatter(x, np.ones(400)), 2)
        assert error <= each.sketch_.error_bound_


@pytest.mark.slow
def test_fit_agrees_with_the_exact_matrix_on_many_wide_rows():
    rng = np.random.default_rng(0)
    x = sp.random_array((4000, 3000), density=0.01, random_state=rng, format="csr")
    x.data *= 1.0 + 10.0 * (x.indices < 8)
    pca, exact = SketchedPCA(6).fit(x), ExactSecondMoment(center=True).fit(x)
    truth = exact.singular_values_[:7] ** 2 / 3999
    np.testing.assert_allclose(pca.explained_variance_, truth[:6], rtol=1e-6)
    low, high = pca.explained_variance_interval_.T
    assert np.all((low <= truth[:6]) & (truth[:6] <= high)) and np.all(high - low < 1e-4 * low)


@pytest.mark.parametrize(("n", "most"), [(1000, 2.5), (5000, 1.5)])  # the matrix of 1000 rows is formed
def test_memory_for_wide_sparse_rows(n, most):
    d, m = 200_000, 60
    x = sp.random_array((n, d), density=20 / d, random_state=np.random.default_rng(0), format="csr")
    tracemalloc.start()
    SketchedPCA(5, sketch_size=m).fit(x)
    peak = tracemalloc.get_traced_memory()[1] / (8 * m * d)
    tracemalloc.stop()
    assert peak < most
