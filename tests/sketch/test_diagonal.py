"""Frequent directions with a diagonal: exact on the diagonal at any time, certified, and best in the Frobenius norm.

That it is a sketch like the others is tested with them, as "DFD" of the table in family.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import robustfd
from robustfd import DiagonalFrequentDirections, FrequentDirections, LowRankPlusDiagonal, RobustFrequentDirections
from tests import reference as ref
from tests.sketch.family import EPS, FORMATS, RULES, Ledger

seeds = st.integers(0, 2**32 - 1)
DFD = RULES["DFD"]


def columns_squared(sketch) -> np.ndarray:
    """Return the diagonal of B'B + R, which must equal that of A'A."""
    v = sketch.components_.astype(float)
    return (sketch.singular_values_**2) @ v**2 + sketch.diagonal_


# ------------------------------------------------------------- the diagonal


@given(
    seed=seeds,
    form=st.sampled_from(list(FORMATS)),
    wide=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
    scale=st.sampled_from([1e-100, 1e-30, 1.0, 1e30, 1e100]),
    decay=st.sampled_from([1.0, 0.99, 0.8]),
    center=st.booleans(),
    weighted=st.booleans(),
    buffer_size=st.sampled_from([None, 4, 5, 30]),
)
def test_the_diagonal_is_exact_after_every_batch(seed, form, wide, dtype, scale, decay, center, weighted, buffer_size):
    """For any rows and batches, including queued rows."""
    rng = np.random.default_rng(seed)
    dtype = np.float64 if abs(np.log10(scale)) > 30 else dtype
    d = 4 * (buffer_size or 8) + 3 if wide else 6
    ledger = Ledger(d, decay)
    sketch = DiagonalFrequentDirections(4, buffer_size=buffer_size, decay=decay, center=center)
    for n in rng.integers(1, 25, 5):
        X = ((rng.standard_normal((n, d)) + 0.5) * (rng.random((n, d)) < (0.06 if wide else 1.0)) * scale).astype(dtype)
        weights = np.append(rng.choice([0.0, 0.3, 1.0, 9.0], n - 1), 1.0) if weighted else None
        sketch.partial_fit(FORMATS[form](X), sample_weight=weights)
        ledger.add(X, weights)
        truth = np.diag(ledger.target(center))
        # Centring squares rows minus one of them, or minus their mean, which may be larger than the centred rows.
        unit = np.square(ledger.A).max(axis=0) * sum(ledger.weights) if center else truth
        eps = 100 * (EPS if dtype == np.float64 else float(np.finfo(np.float32).eps))
        assert np.all(np.abs(columns_squared(sketch) - truth) <= len(ledger.rows) * eps * (unit + EPS * unit.max()))


def test_a_large_constant_column_of_centred_rows_leaves_the_others_exact():
    """Also for sparse rows: they are shifted by the mean before squaring."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 100)) * (rng.random((400, 100)) < 0.05)
    X[:, 0], X[:, 1] = 1e7, 1e7 + rng.standard_normal(400)
    truth = np.diag(ref.target(X, center=True))
    for form in ("dense", "csr array"):
        sketch = DiagonalFrequentDirections(8, center=True)
        for batch in np.array_split(X, 3):
            sketch.partial_fit(FORMATS[form](batch))
        found = columns_squared(sketch)
        np.testing.assert_allclose(found[2:], truth[2:], rtol=1e-9)
        np.testing.assert_allclose(found[:2], truth[:2], atol=1e-5 * truth[1])


def test_squares_of_sparse_rows_late_in_a_long_stream_do_not_cancel():
    """The contribution of a block must not be computed as the difference of two sums over the whole stream."""
    rng = np.random.default_rng(1)
    X = (3.0 + 0.01 * rng.standard_normal((4000, 60))) * (rng.random((4000, 60)) < 0.05)
    sketch = DiagonalFrequentDirections(4, center=True).fit(sp.csr_array(X), sample_weight=np.full(4000, 1e6))
    sketch.partial_fit(sp.csr_array(X[:50]), sample_weight=np.full(50, 1e-6))
    weights = np.concatenate([np.full(4000, 1e6), np.full(50, 1e-6)])
    truth = np.diag(ref.target(np.vstack([X, X[:50]]), weights, center=True))
    np.testing.assert_allclose(columns_squared(sketch), truth, rtol=1e-11)


@given(seed=seeds, n=st.integers(1, 60), d=st.sampled_from([1, 5, 40]), buffer_size=st.sampled_from([4, 8, 20]))
def test_b_is_that_of_frequent_directions(seed, n, d, buffer_size):
    X = np.random.default_rng(seed).standard_normal((n, d))
    dfd, fd = (make(4, buffer_size=buffer_size).fit(X) for make in (DiagonalFrequentDirections, FrequentDirections))
    np.testing.assert_array_equal(dfd.sketch_, fd.sketch_)
    assert dfd.bracket_logdet()[0] == fd.bracket_logdet()[0]
    for ours, theirs in zip(dfd.bracket_mahalanobis(X), fd.bracket_mahalanobis(X)):
        np.testing.assert_array_equal(ours, theirs)


def test_without_shrinking_the_diagonal_is_zero():
    """For rows of rank below m, R is exactly zero. With 1e-16 a singular matrix would look invertible."""
    rng = np.random.default_rng(2)
    for n in (1, 10, 300):
        X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, 50))
        sketch = DiagonalFrequentDirections(4).fit(X)
        assert not sketch.diagonal_.any()
        assert DFD.delta(sketch) == 0.0
        assert 0 < sketch.error_bound_ <= 1e-9 * sketch.squared_norm_  # rounding
        assert sketch.second_moment().condition_number() == np.inf


@pytest.mark.parametrize("solver", ["auto", "svd"])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_rounding_errors_are_not_added_to_the_diagonal(solver, scale):
    """One shrink step removes the first five rows completely. The next three are kept and span three directions."""
    for seed in range(20):
        X = np.eye(8, 12)
        X[5:] = 0.0
        X[5:, 5:] = np.random.default_rng(seed).standard_normal((3, 7))
        sketch = DiagonalFrequentDirections(5, buffer_size=5, solver=solver).fit(scale * X)
        np.testing.assert_allclose(sketch.diagonal_[:5], scale**2)
        assert not sketch.diagonal_[5:].any()
        M, b = sketch.second_moment(), np.random.default_rng(seed).standard_normal(12)
        expected = np.linalg.pinv(ref.target(X), rcond=1e-9, hermitian=True) @ b
        np.testing.assert_allclose(scale * (scale * M.solve(b)), expected, rtol=1e-8, atol=1e-9)
        assert M.condition_number() == np.inf


# ------------------------------------------------------------- the certificate


@pytest.mark.parametrize("m", [2, 3, 5, 7])
def test_certificate_is_attained(m):
    """m orthogonal rows with entries +-1: one shrink step removes them all, so E = 8 P and R = m in every column."""
    X = scipy.linalg.hadamard(8)[:m]
    sketch = DiagonalFrequentDirections(m, buffer_size=m).fit(X)
    np.testing.assert_allclose(sketch.diagonal_, m)
    error = np.linalg.norm(ref.target(X) - sketch.second_moment().to_dense(), 2)
    assert error == pytest.approx(max(8 - m, m))
    assert sketch.error_bound_ == pytest.approx(error)


@given(seed=seeds, d=st.integers(1, 12), rank=st.integers(1, 12))
def test_taking_the_diagonal_away_leaves_at_most_1_minus_1_over_d(seed, d, rank):
    """For any 0 <= E <= Delta I, and with equality for E = 11'/d."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((d, d)))[0][:, : min(rank, d)]
    E = q * rng.random(q.shape[1]) @ q.T
    E /= np.linalg.norm(E, 2)
    assert np.linalg.norm(E - np.diag(np.diag(E)), 2) <= ref.diagonal_error_bound(np.diag(E), 1.0) + 1e-14
    ones = np.ones((d, d)) / d
    assert np.linalg.norm(ones - np.eye(d) / d, 2) == pytest.approx(1 - 1 / d)


@given(seed=seeds, n=st.sampled_from([5, 40]), d=st.sampled_from([3, 12]), center=st.booleans(), alpha=st.floats(0, 2))
def test_no_other_diagonal_is_nearer_in_the_frobenius_norm(seed, n, d, center, alpha):
    """Therefore it is never worse than FD, or than RFD with any alpha."""
    X = np.random.default_rng(seed).standard_normal((n, d)) / np.arange(1, d + 1)
    T = ref.target(X, center=center)
    fd, rfd, dfd = (
        make(4, center=center).fit(X)
        for make in (FrequentDirections, RobustFrequentDirections, DiagonalFrequentDirections)
    )
    error = np.linalg.norm(T - dfd.second_moment().to_dense())
    others = [fd.second_moment().to_dense(), rfd.second_moment().to_dense()]
    others.append(fd.second_moment().to_dense() + alpha * fd.error_bound_ * np.eye(d))
    others.append(others[0] + np.diag(np.random.default_rng(seed).random(d)) * fd.error_bound_)
    for other in others:
        assert error <= np.linalg.norm(T - other) + 1e-12 * np.linalg.norm(T)


@given(seed=seeds, n=st.sampled_from([3, 40]), d=st.sampled_from([2, 6, 30]), alpha0=st.sampled_from([1e-3, 1.0]))
def test_log_determinant_is_at_most_that_of_the_diagonal(seed, n, d, alpha0):
    """Hadamard's inequality, which is often tighter than P1."""
    X = np.random.default_rng(seed).standard_normal((n, d)) / np.arange(1, d + 1)
    sketch = DiagonalFrequentDirections(3, alpha0=alpha0).fit(X)
    plain = FrequentDirections(3, alpha0=alpha0).fit(X)
    T = ref.target(X) + alpha0 * np.eye(d)
    low, high = sketch.bracket_logdet()
    truth, hadamard = np.linalg.slogdet(T)[1], np.log(np.diag(T)).sum()
    assert low - 1e-9 <= truth <= high + 1e-9
    assert high == pytest.approx(min(plain.bracket_logdet()[1], hadamard), abs=1e-9)


def test_log_determinant_of_unseen_features():
    sketch = DiagonalFrequentDirections(3).fit(np.eye(20, 5)[:, ::-1] * [0.0, 1.0, 1.0, 1.0, 1.0])
    assert sketch.bracket_logdet() == (-np.inf, -np.inf)


# ------------------------------------------------------------- as an operator


@given(seed=seeds, d=st.sampled_from([3, 10, 40]), n=st.sampled_from([1, 9, 60]), alpha0=st.sampled_from([0.0, 0.1]))
def test_second_moment_is_the_operator_of_its_parts(seed, d, n, alpha0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    sketch = DiagonalFrequentDirections(4, alpha0=alpha0).fit(X)
    M = sketch.second_moment()
    assert isinstance(M, LowRankPlusDiagonal)
    assert sketch.alpha_ == alpha0
    np.testing.assert_array_equal(M.diagonal_part, sketch.diagonal_ + alpha0)
    dense = sketch.sketch_.T @ sketch.sketch_ + np.diag(sketch.diagonal_) + alpha0 * np.eye(d)
    np.testing.assert_allclose(M.to_dense(), dense, atol=1e-12 * n * d)
    np.testing.assert_allclose(M.diagonal(), np.diag(ref.target(X)) + alpha0, rtol=1e-11)
    if alpha0 or M.diagonal_part.min() > 0:
        np.testing.assert_allclose(M @ M.solve(X.T), X.T, atol=1e-7)


def test_variances_of_a_centred_sketch_are_exact():
    X = np.random.default_rng(5).standard_normal((200, 30)) * np.arange(1, 31) + 5.0
    covariance = DiagonalFrequentDirections(5, center=True).fit(X).covariance()
    assert isinstance(covariance, LowRankPlusDiagonal)
    np.testing.assert_allclose(covariance.diagonal(), np.var(X, axis=0, ddof=1), rtol=1e-11)


def test_it_is_invertible_once_every_feature_has_been_shrunk():
    X = np.random.default_rng(6).standard_normal((30, 40))
    sketch = DiagonalFrequentDirections(5).fit(X)
    assert sketch.diagonal_.min() > 0
    M = sketch.second_moment()
    np.testing.assert_allclose(M @ M.solve(X[0]), X[0], rtol=1e-9)
    assert M.condition_number() < np.inf


@pytest.mark.parametrize("form", ["dense", "csr array"])
@pytest.mark.parametrize("d", [10, 60])
def test_an_unseen_feature_is_left_out_of_the_inverse(form, d):
    """With alpha0 = 0 the pseudo-inverse is used. With alpha0 > 0 the feature has variance alpha0."""
    X = np.random.default_rng(7).standard_normal((100, d))
    X[:, 3] = 0.0
    M = DiagonalFrequentDirections(5).fit(FORMATS[form](X)).second_moment()
    b = np.random.default_rng(8).standard_normal(d)
    x = M.solve(b)
    assert x[3] == 0.0
    np.testing.assert_allclose((M @ x)[:3], b[:3], rtol=1e-9)
    assert M.mahalanobis(np.eye(1, d, 3))[0] == 0.0
    M = DiagonalFrequentDirections(5, alpha0=0.5).fit(FORMATS[form](X)).second_moment()
    assert M.mahalanobis(np.eye(1, d, 3))[0] == pytest.approx(2.0)
    assert M.solve(b)[3] == pytest.approx(2 * b[3])


def test_single_precision_rows_give_a_double_precision_operator():
    X = np.random.default_rng(9).standard_normal((100, 20)).astype(np.float32)
    sketch = DiagonalFrequentDirections(5).fit(X)
    assert sketch.sketch_.dtype == np.float32
    assert sketch.second_moment().dtype == sketch.diagonal_.dtype == np.float64
    np.testing.assert_allclose(columns_squared(sketch), np.square(X, dtype=float).sum(axis=0), rtol=1e-6)


def test_the_diagonal_attribute_can_be_written_to():
    sketch = DiagonalFrequentDirections(3).fit(np.random.default_rng(10).standard_normal((50, 8)))
    before = sketch.diagonal_
    sketch.diagonal_[:] = 7.0
    np.testing.assert_array_equal(sketch.diagonal_, before)


def test_reading_the_diagonal_before_any_rows_raises_not_fitted():
    with pytest.raises(robustfd.sketch.base.NotFittedError, match="no rows yet"):
        DiagonalFrequentDirections().diagonal_  # noqa: B018


# ------------------------------------------------------------- real data


def test_a9a_as_measured(a9a):
    """m = 10. Frobenius: FD 0.22, RFD 0.41, here 0.15; spectral: 0.087, 0.044, 0.062."""
    X, _ = a9a
    T = (X.T @ X).toarray()
    errors = {}
    for name in ("FD", "RFD", "DFD"):
        E = T - RULES[name].make(10).fit(X).second_moment().to_dense()
        errors[name] = (np.linalg.norm(E) / np.linalg.norm(T), np.linalg.norm(E, 2) / np.linalg.norm(T, 2))
    np.testing.assert_allclose(errors["FD"], (0.223, 0.087), atol=1e-3)
    np.testing.assert_allclose(errors["RFD"], (0.411, 0.044), atol=1e-3)
    np.testing.assert_allclose(errors["DFD"], (0.153, 0.062), atol=1e-3)
