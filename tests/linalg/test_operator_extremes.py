"""LowRankPlusIdentity and LowRankPlusDiagonal at extreme scales, for singular matrices and in small dimensions."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from robustfd.linalg import operator as module
from robustfd.linalg.operator import LowRankPlusDiagonal, LowRankPlusIdentity
from tests.linalg.test_operator import EPS, added, both, literal, make, near, orthonormal, pseudo_inverse, rows

regular_and_singular = pytest.mark.parametrize("zeros", [0, 2])


# ---------------------------------------------------------------- accuracy


@given(
    st.integers(0, 10**6),
    st.integers(2, 14),
    st.integers(1, 14),
    st.integers(1, 3),
    st.sampled_from([1e-4, 1e-8, 1e-16, 1e-40, 1e-300]),
)
@settings(max_examples=5 * settings.default.max_examples)
def test_tiny_entries_of_d_do_no_harm_to_a_well_conditioned_matrix(seed, d, r, k, tiny):
    """Dividing by the root of an entry of 1e-16 would lose all digits: the residual is accurate to eps / 1e-8."""
    r = min(r, d)
    op = make(LowRankPlusDiagonal, r, d, seed=seed, spread=1.0)
    diagonal = op.diagonal_part.copy()
    diagonal[: min(k, r)] *= tiny
    op = LowRankPlusDiagonal(op.components, op.low_rank_eigenvalues, diagonal)
    m, b = literal(op), rows(d, 3)
    tol = 100 * EPS * np.linalg.cond(m)
    near(op.solve(b), np.linalg.solve(m, b), tol)
    near(op.mahalanobis(b.T), np.einsum("ij,ij->j", b, np.linalg.solve(m, b)), tol)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1], abs=tol * d)
    white = op.whiten(np.eye(d)).T
    near(white @ m @ white.T, np.eye(d), tol)


@pytest.mark.parametrize("zeros", [1, 3, 30])
@pytest.mark.parametrize("tiny", [1e-8, 1e-16, 1e-100])
def test_tiny_entries_next_to_uncovered_columns(zeros, tiny):
    """Unseen features, any number of them, together with features that have almost no mass left."""
    one = make(LowRankPlusDiagonal, 4, 12, spread=1.0)
    diagonal = one.diagonal_part * np.where(np.arange(12) < 3, tiny, 1.0)
    one = LowRankPlusDiagonal(one.components, one.low_rank_eigenvalues, diagonal)
    v = np.hstack([one.components, np.zeros((4, zeros))])
    op = LowRankPlusDiagonal(v, one.low_rank_eigenvalues, np.append(diagonal, np.zeros(zeros)))
    m, b = literal(one), rows(12 + zeros, 3)
    near(op.solve(b)[:12], np.linalg.solve(m, b[:12]), 100 * EPS * np.linalg.cond(m))
    assert not op.solve(b)[12:].any()
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1])


@given(st.integers(0, 10**6), st.integers(0, 10), st.floats(-8, 8))
def test_units_of_the_columns_do_not_matter(seed, r, spread):
    """Columns in units of 10^-8 to 10^8: errors depend only on the matrix scaled to a unit diagonal."""
    d = 10
    units = 10.0 ** np.linspace(-spread, spread, d)
    _, s, v = np.linalg.svd(rows(r, d, seed) * units, full_matrices=False)
    diagonal = 10.0 ** np.random.default_rng(seed).uniform(-2, 0, d) * units**2
    op = LowRankPlusDiagonal(v, s**2, diagonal)
    b = s[:, None] * v
    scale = np.sqrt((b * b).sum(axis=0) + diagonal)
    m = (b / scale).T @ (b / scale) + np.diag(diagonal / scale**2)
    x, tol = rows(3, d), 100 * EPS * np.linalg.cond(m)
    near(op.mahalanobis(x * scale), np.einsum("ij,ji->i", x, np.linalg.solve(m, x.T)), tol)
    near(op.solve((x * scale).T) * scale[:, None], np.linalg.solve(m, x.T), tol)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1] + 2 * np.log(scale).sum(), abs=10 * tol)


@both
@pytest.mark.parametrize("tiny", [1e-10, 1e-20])
def test_distance_in_the_span_is_accurate_however_small_the_rest(cls, tiny):
    """Here ||x||^2 - ||V x||^2 and the Woodbury form would lose all digits: eps / 1e-20 is 2e4."""
    several = tiny if cls is LowRankPlusIdentity else tiny * np.arange(1.0, 5.0)
    op, x = cls(np.eye(4)[:2], [4.0, 2.0], several), np.array([[2.0, 2.0, 0.0, 0.0]])
    near(op.mahalanobis(x), [3.0], 1e-9)
    near(op.solve(x[0]), [0.5, 1.0, 0.0, 0.0], 1e-9)
    v = orthonormal(3, 50, 4)
    op, x = cls(v, [3.0, 2.0, 1.0], tiny if cls is LowRankPlusIdentity else np.full(50, tiny)), rows(6, 3) @ v
    near(op.mahalanobis(x), (x @ v.T) ** 2 @ [1 / 3, 1 / 2, 1.0], 1e-4)


@both
def test_full_rank_does_not_divide_by_the_diagonal(cls):
    """r = d: the residual is pure rounding error, and divided by 1e-30 it would dominate the result."""
    added = 1e-30 if cls is LowRankPlusIdentity else 1e-30 * np.arange(1.0, 7.0)
    op, b = cls(orthonormal(6, 6, seed=2), np.arange(1.0, 7.0), added), rows(1, 6)[0]
    near(op.solve(b), np.linalg.solve(literal(op), b), 1e-13)
    near([op.mahalanobis(b)], [b @ np.linalg.solve(literal(op), b)], 1e-13)
    assert op.condition_number() == pytest.approx(6.0)


@both
@given(st.integers(-498, 498), st.integers(1, 10), st.integers(0, 10), st.booleans(), st.integers(0, 10))
@settings(max_examples=5 * settings.default.max_examples)
def test_every_scale_gives_the_same_answers(cls, exponent, d, r, centred, zeros):
    """M has scale 4^e and x has scale 2^e. With powers of two, only the decompositions of D round differently."""
    r, s, tol = min(r, d), 2.0**exponent, 1e-13 if cls is LowRankPlusIdentity else 1e-10
    one, op = (make(cls, r, d, zeros=min(zeros, d), scale=scale) for scale in (1.0, s * s))
    x, mean = rows(4, d, density=0.6), rows(1, d, seed=3)[0] if centred else None
    scaled_mean = None if mean is None else s * mean
    near(op.mahalanobis(s * x, scaled_mean), one.mahalanobis(x, mean), tol)
    sparse = scipy.sparse.csr_array
    near(op.mahalanobis(sparse(s * x), scaled_mean), one.mahalanobis(sparse(x), mean), 1e-9)
    near(np.abs(op.whiten(s * x)), np.abs(one.whiten(x)), tol)
    near(op.solve(s * s * x.T), one.solve(x.T), tol)
    near((op @ x.T) / s / s, one @ x.T, 1e-13)
    near(op.to_dense() / s / s, one.to_dense(), 1e-13)
    near(op.diagonal() / s / s, one.diagonal(), 1e-13)
    rank = np.linalg.matrix_rank(pseudo_inverse(one)[1])
    assert op.logdet() == pytest.approx(one.logdet() + 2 * exponent * rank * np.log(2), abs=1e-8)
    assert op.condition_number() == pytest.approx(one.condition_number())


def test_extreme_numbers_give_no_nan():
    op = LowRankPlusDiagonal(orthonormal(2, 6, 0), [1e300, 1e-300], np.geomspace(5e-324, 1e300, 6))
    x = rows(3, 6)
    with np.errstate(over="ignore"):
        for result in (op @ x.T, op.logdet(), op.mahalanobis(1e-160 * x)):
            assert not np.isnan(result).any()


@both
def test_sparse_rows_of_very_different_size_together(cls):
    op, x = make(cls, 2, 6), rows(3, 6, density=0.7)
    sizes = np.array([1e-150, 1.0, 1e150])
    near(op.mahalanobis(scipy.sparse.csr_array(sizes[:, None] * x)) / sizes / sizes, op.mahalanobis(x), 1e-12)


# ---------------------------------------------------------------- the corners


@both
@pytest.mark.parametrize("r", [0, 1])
@pytest.mark.parametrize("added", [0.0, 0.5])
def test_one_dimension(cls, r, added):
    m = 2.0 * r + added
    op = cls(np.ones((r, 1)), [2.0] * r, added if cls is LowRankPlusIdentity else [added])
    inverse = 1 / m if m else 0.0
    assert (op @ [3.0])[0] == 3 * m
    assert op.solve([3.0])[0] == pytest.approx(3 * inverse)
    assert abs(op.whiten([3.0])[0]) == pytest.approx(3 * np.sqrt(inverse))
    assert op.mahalanobis([3.0]) == pytest.approx(9 * inverse)
    assert op.mahalanobis(scipy.sparse.csr_array([[3.0]]))[0] == pytest.approx(9 * inverse)
    assert op.logdet() == pytest.approx(np.log(m) if m else 0.0)
    assert op.condition_number() == (pytest.approx(1.0) if m else np.inf)


@pytest.mark.parametrize("diagonal", [4.0, np.array([4.0, 1.0, 0.25, 9.0, 16.0])], ids=["alpha", "D"])
def test_without_low_rank_part(diagonal):
    cls = LowRankPlusIdentity if np.ndim(diagonal) == 0 else LowRankPlusDiagonal
    op, x, d = cls(np.empty((0, 5)), [], diagonal), rows(3, 5, density=0.6), np.broadcast_to(diagonal, 5)
    assert np.array_equal(op @ x.T, d[:, None] * x.T)
    near(op.solve(x.T), x.T / d[:, None], 1e-15)
    near(op.whiten(x), x / np.sqrt(d), 1e-15)
    near(op.mahalanobis(scipy.sparse.csr_array(x), np.ones(5)), ((x - 1) ** 2 / d).sum(axis=1), 1e-14)
    assert op.condition_number() == pytest.approx(d.max() / d.min())
    assert op.logdet() == pytest.approx(np.log(d).sum())


@both
def test_zero_matrix(cls):
    op, x = cls(np.empty((0, 5)), [], 0.0 if cls is LowRankPlusIdentity else np.zeros(5)), rows(3, 5)
    for zero in (op @ x.T, op.solve(x.T), op.whiten(x), op.mahalanobis(x), op.to_dense(), op.diagonal()):
        assert not np.any(zero)
    assert not np.any(op.mahalanobis(scipy.sparse.csr_array(x)))
    assert (op.logdet(), op.trace(), op.condition_number()) == (0.0, 0.0, np.inf)


@both
def test_eigenvalues_may_be_zero(cls):
    op = cls(np.eye(3)[:2], [0.0, 2.0], 1.0 if cls is LowRankPlusIdentity else np.ones(3))
    near(op.solve(np.ones(3)), [1.0, 1 / 3, 1.0], 1e-15)


@both
@regular_and_singular
def test_distances_do_not_depend_on_the_blocks(cls, monkeypatch, zeros):
    op, x, mean = make(cls, 3, 8, zeros=zeros), rows(23, 8), rows(1, 8, seed=3)[0]
    whole = op.mahalanobis(x, mean)
    monkeypatch.setattr(module, "BLOCK", 40)
    near(op.mahalanobis(x, mean), whole, 1e-14)
    near(op.mahalanobis(scipy.sparse.csr_array(x), mean), whole, 1e-12)


@both
@regular_and_singular
def test_no_method_changes_its_argument(cls, zeros):
    op, x = make(cls, 3, 8, zeros=zeros), rows(5, 8, density=0.5)
    sparse, dense = scipy.sparse.csr_array(x), x.copy()
    for argument in (sparse, dense):
        op.mahalanobis(argument, np.ones(8))
        op.whiten(argument)
        op.solve(argument.T)
        op.dot(argument.T)
    assert np.array_equal(sparse.toarray(), x)
    assert np.array_equal(dense, x)


def test_the_diagonal_is_copied():
    diagonal = np.ones(8)
    LowRankPlusDiagonal(np.empty((0, 8)), [], diagonal).diagonal_part[:] = 0
    assert np.array_equal(diagonal, np.ones(8))


@both
@regular_and_singular
def test_duplicate_sparse_entries_are_summed(cls, zeros):
    twice = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 0], [1, 1, 2])), shape=(1, 5))
    op = make(cls, 2, 5, zeros=zeros)
    near(op.mahalanobis(twice), op.mahalanobis(twice.toarray()), 1e-13)


@both
@regular_and_singular
def test_nan_stays_in_its_row(cls, zeros):
    op, x = make(cls, 3, 8, zeros=zeros), rows(4, 8)
    x[1, 2] = np.nan
    for distances in (op.mahalanobis(x), op.mahalanobis(scipy.sparse.csr_array(x))):
        assert np.isnan(distances).tolist() == [False, True, False, False]


@both
@regular_and_singular
def test_float32_in_float32_out(cls, zeros):
    op = make(cls, 3, 8, zeros=zeros, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        x = rows(4, 8).astype(dtype)
        sparse = scipy.sparse.csr_array(x)
        results = [op @ x.T, op @ x[0], op @ sparse.T, op.solve(x.T), op.solve(x[0]), op.whiten(x)]
        results += [op.whiten(sparse), op.mahalanobis(x), op.mahalanobis(sparse)]
        results += [op.mahalanobis(x, np.zeros(8))]
        assert {result.dtype for result in results} == {np.dtype(dtype)}
    assert added(op).dtype == op.low_rank_eigenvalues.dtype == np.float64


@both
def test_the_matrix_may_exceed_float32(cls):
    """A second moment of float32 rows around 1e30 is 1e60, but the results are in the range of float32 again."""
    op, reference = make(cls, 2, 6, scale=1e60, dtype=np.float32), make(cls, 2, 6)
    x = (1e30 * rows(3, 6)).astype(np.float32)
    near(op.mahalanobis(x), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.mahalanobis(scipy.sparse.csr_array(x)), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.solve(x.T) * 1e30, reference.solve(x.T / 1e30), 1e-5)
    near((op.whiten(x) ** 2).sum(axis=1), reference.mahalanobis(x / 1e30), 1e-5)


@regular_and_singular
def test_no_d_by_d_matrix_is_ever_made(zeros):
    d, r = 20_000, 5
    diagonal = np.ones(d)
    diagonal[0], diagonal[1] = 1e-12, zeros == 0
    op, x = LowRankPlusDiagonal(np.eye(r, d), np.arange(1.0, r + 1), diagonal), rows(2, d)
    tracemalloc.start()
    op.solve(x[0]), op.whiten(x), op.mahalanobis(x), op.logdet(), op.condition_number(), op.diagonal(), op @ x[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * r * d * 8
