"""Known numerical traps (T1 to T7), one test each, and regression tests."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from robustfd.linalg import decompose
from tests import reference as ref
from tests.sketch.family import EPS, RULES, SKETCHES, largest_eigenvalue

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
every_solver = pytest.mark.parametrize("solver", ["auto", "svd"])


@every_rule
@every_solver
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("rank", [2, 3])
def test_t1_round_off_is_never_added_to_alpha(rule, solver, sparse, rank):
    """For rows of rank m - 1 or less, Delta is exactly zero, not 1e-29, for every order of the rows."""
    for order, scale in enumerate([1.0, 1e-120]):
        rng = np.random.default_rng(order)
        base = rng.standard_normal((rank, 90)) * (rng.random((rank, 90)) < 0.1)
        X = scale * base[rng.integers(0, rank, 300)]
        for m in (rank + 1, rank + 2):
            sketch = rule.make(m, solver=solver).fit(sp.csr_array(X) if sparse else X)
            assert rule.delta(sketch) == 0.0
            assert sketch.alpha_ == 0.0
            assert len(sketch.sketch_) <= rank
            T = ref.target(X)
            np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, T, atol=1e-11 * largest_eigenvalue(T))


@every_rule
def test_t1_a_small_but_real_delta_is_not_lost_by_svd(rule):
    """delta = 1e-18 lambda_1 is far above the rounding error of an SVD, (eps sigma_1)^2."""
    X = np.diag([1.0, 1e-9])
    sketch = rule.make(2, buffer_size=2, solver="svd").fit(X)
    np.testing.assert_allclose(rule.delta(sketch), 1e-18, rtol=1e-6)
    assert rule.make(2, buffer_size=2, solver="auto").fit(X).error_bound_ > 0


@every_rule
@every_solver
def test_t2_equal_singular_values_give_no_nan(rule, solver):
    """lambda_i - delta of equal numbers is sometimes one ulp below zero."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        Q = np.linalg.qr(rng.standard_normal((6, 6)))[0] * rng.lognormal(0, 3)
        sketch = rule.make(3, buffer_size=6, solver=solver).fit(Q)
        assert np.isfinite(sketch.sketch_).all()
        assert np.isfinite(sketch.error_bound_)
        assert rule.delta(sketch) >= largest_eigenvalue(Q.T @ Q) * (1 - 1e-12)


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_t3_reading_counts_the_rows_still_in_the_buffer(name, sparse):
    X = np.random.default_rng(2).standard_normal((7, 50)) * 0.5  # one row fewer than the buffer holds
    X[:, 4:] = 0
    sketch = SKETCHES[name]()
    for n, row in enumerate(X, start=1):
        sketch.partial_fit(sp.csr_array(row[None]) if sparse else row[None])
        np.testing.assert_allclose(sketch.squared_norm_, (X[:n] ** 2).sum())
        if name in RULES:
            B = sketch.sketch_
            error = np.linalg.norm(ref.target(X[:n]) - B.T @ B, 2)
            assert error <= RULES[name].delta(sketch) + 1e-12


@every_rule
@pytest.mark.parametrize("ragged", range(1, 16))
def test_t4_a_ragged_last_batch_counts_no_row_twice(rule, ragged):
    X = np.random.default_rng(3).standard_normal((32 + ragged, 9))
    sketch = rule.make(4)
    for start in range(0, len(X), 16):
        sketch.partial_fit(X[start : start + 16])
    np.testing.assert_allclose(sketch.squared_norm_, (X**2).sum())
    whole = rule.make(4).fit(X)
    np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, whole.sketch_.T @ whole.sketch_, atol=1e-11)


@every_rule
@pytest.mark.parametrize("center", [False, True])
def test_t5_rows_whose_entries_sum_to_zero_are_rows(rule, center):
    X = np.random.default_rng(4).standard_normal((50, 8))
    X -= X.mean(axis=1, keepdims=True)
    X[7] = 0
    sketch = rule.make(4, center=center).fit(X)
    expected = ref.final(rule.transcription(X, 4, 8, center=center))
    np.testing.assert_allclose(sketch.squared_norm_, expected.squared_norm)
    np.testing.assert_allclose(rule.delta(sketch), expected.Delta, rtol=1e-9)


@every_rule
def test_t6_below_the_sketch_size_a_sketch_is_exact_and_so_is_the_exact_matrix(rule):
    """For d < m both equal A'A, so tests with small d prove nothing about a sketch."""
    X = np.random.default_rng(5).standard_normal((500, 7))
    exact, sketch = robustfd.ExactSecondMoment().fit(X), rule.make(8).fit(X)
    np.testing.assert_allclose(exact.second_moment().to_dense(), X.T @ X, atol=1e-11)
    np.testing.assert_allclose(sketch.second_moment().to_dense(), X.T @ X, atol=1e-10)
    assert rule.delta(sketch) == 0.0
    assert max(sketch.error_bound_, exact.error_bound_) <= 1e-9 * sketch.squared_norm_  # rounding


def test_t7_a_flat_spectrum_is_worse_for_robust_than_for_plain_and_worse_for_both_than_for_greedy():
    """Gaussian 400 x 300, m = 10, 2 m rows: FD about 1353, RFD about 4178."""
    X = np.random.default_rng(6).standard_normal((400, 300))
    errors = {
        name: np.linalg.norm(X.T @ X - RULES[name].make(10).fit(X).second_moment().to_dense(), 2)
        for name in ("FD", "RFD", "greedy")
    }
    assert errors["greedy"] < errors["FD"] < errors["RFD"]
    assert 1200 < errors["FD"] < 1500
    assert 3800 < errors["RFD"] < 4600


@pytest.mark.parametrize("L", [6, 12, 18], ids=["m", "2m", "3m"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_appendix_stream_defeats_greedy(L, sparse):
    """Greedy errs by 1998 where FD's bound is 4."""
    m = 6
    X = ref.greedy_adversary(m, L)
    X = np.hstack([X, np.zeros((len(X), 5 * L))])
    greedy, fd = (make(m, buffer_size=L) for make in (robustfd.GreedySketch, robustfd.FrequentDirections))
    for sketch in (greedy, fd):
        sketch.fit(sp.csr_array(X) if sparse else X)
    errors = [np.linalg.norm(X.T @ X - s.sketch_.T @ s.sketch_, 2) for s in (greedy, fd)]
    np.testing.assert_allclose(errors[0], 1998, rtol=1e-9)
    np.testing.assert_allclose(greedy.error_bound_, 1998, rtol=1e-9)
    rounding = 2000 * EPS * largest_eigenvalue(X.T @ X)
    assert errors[1] <= fd.error_bound_
    assert RULES["FD"].delta(fd) <= 4 + rounding
    assert fd.error_bound_ <= 4 + 1e-10 * largest_eigenvalue(X.T @ X)


# ---------------------------------------------------------------- regression tests


@every_rule
@every_solver
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_single_precision_rows_of_low_rank_stay_of_low_rank(rule, solver, sparse):
    """Regression: rounding errors of float32 were kept as signal, and rows of rank 2 gave a sketch of rank m - 1."""
    rng = np.random.default_rng(7)
    base = (rng.standard_normal((2, 90)) * (rng.random((2, 90)) < 0.1)).astype(np.float32)
    X = base[rng.integers(0, 2, 400)] * rng.choice([1, 2, 4], (400, 1)).astype(np.float32)
    sketch = rule.make(6, solver=solver)
    for batch in np.array_split(X, 9):
        sketch.partial_fit(sp.csr_array(batch) if sparse else batch)
    assert sketch.sketch_.dtype == np.float32
    assert len(sketch.sketch_) == 2
    assert rule.delta(sketch) == 0.0
    assert sketch.error_bound_ <= 1e-6 * sketch.squared_norm_  # rounding to single precision


@pytest.mark.slow
@every_rule
def test_rounding_errors_do_not_accumulate_over_many_shrinks(rule):
    """3000 shrinks of one row each: A'A - B'B stays within [0, Delta] to about shrinks * eps."""
    X = np.random.default_rng(8).standard_normal((3000, 12)) / np.arange(1, 13)
    sketch = rule.make(4, buffer_size=4).fit(X)
    V, Delta = sketch.components_, rule.delta(sketch)
    E = X.T @ X - sketch.sketch_.T @ sketch.sketch_ + (Delta * V.T @ V if rule.compensated else 0)
    values, tol = np.linalg.eigvalsh(E), 3000 * 12 * EPS * largest_eigenvalue(X.T @ X)
    assert values[0] >= -tol
    assert values[-1] <= Delta + tol
    np.testing.assert_allclose(V @ V.T, np.eye(len(V)), atol=1e-10)


@every_rule
@every_solver
def test_small_rows_next_to_a_huge_one_are_not_lost(rule, solver):
    """sigma_m / sigma_1 = 1e-8: the Gram matrix does not resolve these rows, but "auto" must."""
    rng = np.random.default_rng(9)
    X = np.vstack([1e8 * np.eye(1, 20), np.hstack([np.zeros((30, 1)), rng.standard_normal((30, 19))])])
    sketch = rule.make(4, solver=solver).fit(X)
    expected = ref.final(rule.transcription(X, 4, 8))
    np.testing.assert_allclose(rule.delta(sketch), expected.Delta, rtol=1e-5)
    read_out = ref.compensate(rule.transcription(X, 4, 8)) if rule.compensated else expected
    np.testing.assert_allclose(sketch.singular_values_, np.linalg.svd(read_out.B)[1][:3], rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in SKETCHES if name not in ("Oja", "random projection")])
def test_large_single_precision_rows_can_be_read(name):
    """Rows of 1e37 are in the range of float32, but their squares are not."""
    X = np.full((6, 3), 1e30, dtype=np.float32) * np.eye(6, 3, dtype=np.float32)
    sketch = SKETCHES[name]().fit(X)
    np.testing.assert_allclose(sketch.singular_values_, 1e30, rtol=1e-6)
    assert np.isfinite(sketch.sketch_).all()
    np.testing.assert_allclose(sketch.squared_norm_, 3e60, rtol=1e-6)


@every_solver
@pytest.mark.parametrize("noise", [1e-4, 1e-5, 1e-6, 1e-8])
def test_components_are_orthonormal_with_a_large_common_mean(solver, noise):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal(100) + noise * rng.standard_normal((40, 100))
    sketch = robustfd.RobustFrequentDirections(30, solver=solver).fit(rows)
    v = sketch.components_
    np.testing.assert_allclose(v @ v.T, np.eye(len(v)), atol=1e-13)
    assert sketch.second_moment().shape == (100, 100)


@pytest.mark.parametrize("ratio", [1e-5, 1e-6, 1e-9, 1e-11])
def test_two_gram_matrices_are_as_accurate_as_an_svd(ratio):
    """Squared lengths down to 1e-22 of the largest are correct to three digits."""
    rng = np.random.default_rng(1)
    q = np.linalg.qr(rng.standard_normal((90, 90)))[0]
    stack = np.linalg.qr(rng.standard_normal((40, 40)))[0] * np.geomspace(1, ratio, 40) @ q[:40]
    refined = decompose._refined(stack, 20, 20)
    exact = decompose._by_svd(stack[:0], stack, 20, 20, 1.0, np.ones(40))
    assert refined is not None
    np.testing.assert_allclose(refined.delta, exact.delta, rtol=1e-3)
    np.testing.assert_allclose(refined.lam, exact.lam, rtol=1e-3)
    v = refined.rows / np.sqrt(refined.lam)[:, None]
    np.testing.assert_allclose(v @ v.T, np.eye(19), atol=1e-3)


def test_a_timestamp_column_does_not_hide_the_others():
    """With a column of 1.7e9, the Gram matrix alone resolves no other column. "auto" does, dense and sparse."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 90)) * (rng.random((300, 90)) < 0.08)
    rows[:, 0] = 1.7e9 + np.arange(300)
    truth = ref.fast_robust_frequent_directions(rows, 5)
    for x in (rows, sp.csr_array(rows)):
        sketch = robustfd.RobustFrequentDirections(5).fit(x)
        np.testing.assert_allclose(sketch.alpha_, ref.final(truth).alpha, rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [robustfd.ExactSecondMoment, robustfd.RandomProjectionSketch, robustfd.OjaSketch, robustfd.FrequentDirections],
)
@pytest.mark.parametrize("decay", [0.9, 0.05, 1e-6])
def test_strong_decay_of_centred_sparse_rows(make, decay):
    """The inverse of the total decay overflows, so the rows are processed as dense rows."""
    rows = np.tile(np.eye(3), (100, 1))
    seed = {"random_state": 0} if hasattr(make(), "random_state") else {}
    sparse = make(center=True, decay=decay, **seed).fit(sp.csr_array(rows))
    dense = make(center=True, decay=decay, **seed).fit(rows)
    np.testing.assert_allclose(sparse.squared_norm_, dense.squared_norm_, rtol=1e-9)
    np.testing.assert_allclose(sparse.mean_, dense.mean_, atol=1e-9)
    make(center=True, decay=decay, **seed).fit(sp.csr_array((300, 3)))


def test_centred_sparse_rows_of_very_different_weight():
    rows, weight = sp.csr_array([[1.0, 1.0], [0.0, 0.0]]), [1e15, 1e-7]
    sketch = robustfd.ExactSecondMoment(center=True).fit(rows, sample_weight=weight)
    np.testing.assert_allclose(sketch.squared_norm_, 2e-7)
    assert robustfd.ExactSecondMoment.from_bytes(sketch.to_bytes()).squared_norm_ == sketch.squared_norm_


def test_rows_that_underflow_are_dropped():
    rows = 1e-50 * np.random.default_rng(0).standard_normal((100, 30))
    sketch = robustfd.RobustFrequentDirections(5).fit(rows).forget(1e-250)
    assert sketch.sketch_.shape == (0, 30)
    assert sketch.alpha_ == 0.0
    assert sketch.partial_fit(np.eye(1, 30)).singular_values_[0] == pytest.approx(1.0)


@pytest.mark.parametrize("center", [False, True])
def test_a_sketch_near_the_largest_norm_accepts_more_rows(center):
    rng = np.random.default_rng(0)
    sketch = robustfd.RobustFrequentDirections(3, center=center).fit(rng.standard_normal((3, 4)))
    rows = rng.standard_normal((3, 4))
    sketch.partial_fit(rows, sample_weight=np.full(3, 4e306 / np.sum(rows**2)))  # fills the buffer
    for _ in range(8):
        sketch.partial_fit(rng.standard_normal((1, 4)))
    assert sketch.n_samples_seen_ == 14
    assert np.isfinite(sketch.sketch_).all()
    assert type(sketch).from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weight", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("decay", [1e-4, 2e-4, 1e-3, 0.5])
def test_large_rows_with_decay_and_centring_do_not_overflow(decay, weight, sparse):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5)) * (rng.random((200, 5)) < 0.5)
    weights = weight * rng.uniform(0.5, 2, 200)
    with np.errstate(all="raise", under="ignore"):
        for kind in (robustfd.ExactSecondMoment, partial(robustfd.RobustFrequentDirections, 3)):
            large, usual = (
                kind(decay=decay, center=True).fit(sp.csr_array(scale * x) if sparse else scale * x, sample_weight=some)
                for scale, some in ((1e100, weights), (1.0, weights / weight))
            )
            size = 1e100 * np.sqrt(weight)
            np.testing.assert_allclose(large.singular_values_ / size, usual.singular_values_, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(large.mean_ / 1e100, usual.mean_, rtol=1e-9, atol=1e-12)
