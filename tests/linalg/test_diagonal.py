"""LowRankPlusDiagonal against the dense matrix that it represents."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator, cg, eigsh

from robustfd.linalg import diagonal as module
from robustfd.linalg.diagonal import LowRankPlusDiagonal
from robustfd.linalg.operator import LowRankPlusIdentity

EPS = np.finfo(np.float64).eps
SPARSE = [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array, scipy.sparse.csr_matrix]


def orthonormal(r, d, seed, dtype=np.float64):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))
    return np.ascontiguousarray(q.T).astype(dtype)


def make(r, d, *, seed=0, spread=2.0, scale=1.0, zeros=0, dtype=np.float64):
    """Return an operator with lam and D from 10^-spread to 1, unsorted, times scale; some D are zero."""
    rng = np.random.default_rng(seed + 1)
    lam, diagonal = 10.0 ** rng.uniform(-spread, 0, r), 10.0 ** rng.uniform(-spread, 0, d)
    diagonal[rng.permutation(d)[:zeros]] = 0.0
    return LowRankPlusDiagonal(orthonormal(r, d, seed, dtype), scale * lam, scale * diagonal)


def literal(op):
    """Return V' diag(lam) V + D, literally, in float64."""
    v = op.components.astype(np.float64)
    return v.T @ np.diag(op.low_rank_eigenvalues) @ v + np.diag(op.diagonal_part)


def rows(n, d, seed=7, density=1.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < density)


def near(actual, expected, tolerance):
    """Assert equality up to a relative error in norm."""
    assert np.shape(actual) == np.shape(expected)
    assert np.linalg.norm(np.subtract(actual, expected)) <= tolerance * (np.linalg.norm(expected) + 1e-300)


@st.composite
def operators(draw, singular=False, dtypes=(np.float64, np.float32)):
    d = draw(st.integers(1, 12))
    r, zeros = draw(st.integers(0, d)), draw(st.integers(1, d)) if singular else 0
    return make(r, d, seed=draw(st.integers(0, 10**6)), zeros=zeros, dtype=draw(st.sampled_from(dtypes)))


def tolerance(op):
    return 100 * float(np.finfo(op.dtype).eps) * max(1.0, op.condition_number())


def pseudo_inverse(op):
    """Return M^+ and its rank, from an identity where D is positive and the row space of B where it is zero."""
    m, zero = literal(op), np.flatnonzero(op.diagonal_part == 0)
    _, s, vt = np.linalg.svd(op.components.astype(float)[:, zero] * np.sqrt(op.low_rank_eigenvalues)[:, None])
    basis = vt[: np.count_nonzero(s**2 > len(m) * EPS * op.low_rank_eigenvalues.max(initial=0.0))]
    onto = np.delete(np.eye(len(m)), zero, axis=0)
    onto = np.concatenate([onto, np.zeros((len(basis), len(m)))])
    onto[len(onto) - len(basis) :, zero] = basis
    return onto.T @ np.linalg.inv(onto @ m @ onto.T) @ onto, onto


# ---------------------------------------------------------------- the dense matrix


@given(operators())
def test_dense_form_is_the_definition_and_exactly_symmetric(op):
    dense = op.to_dense()
    assert dense.dtype == op.dtype
    near(dense, literal(op), 10 * np.finfo(op.dtype).eps)
    assert np.array_equal(dense, dense.T)


@given(operators(), st.integers(1, 5))
def test_product_is_that_of_the_dense_matrix(op, k):
    m, d = literal(op), op.shape[0]
    x = rows(d, k).astype(op.dtype)
    tol = 100 * np.finfo(op.dtype).eps
    for product in (op @ x, op.dot(x), op.T @ x, op.H @ x, op.rmatmat(x), (x.T @ op).T):
        near(product, m @ x, tol)
    for product in (op @ x[:, 0], op.matvec(x[:, 0]), op.rmatvec(x[:, 0]), x[:, 0] @ op):
        near(product, m @ x[:, 0], tol)
    near(op @ x[:, :1], m @ x[:, :1], tol)


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("zeros", [0, 3, 8])
def test_product_with_a_sparse_matrix_is_dense_and_the_same(kind, k, zeros):
    op, x = make(3, 8, zeros=zeros), rows(8, k, density=0.4)
    for product in (op @ kind(x), (kind(x.T) @ op).T):
        assert isinstance(product, np.ndarray)
        near(product, literal(op) @ x, 1e-14)


def test_product_with_integers_and_complex_numbers():
    op = make(3, 8)
    m = literal(op)
    near(op @ np.arange(8), m @ np.arange(8), 1e-14)
    z = rows(8, 2) + 1j * rows(8, 2, seed=8)
    near(op @ z, m @ z, 1e-14)


def test_scipy_uses_it_as_a_linear_operator():
    op = make(5, 40)
    b = rows(1, 40)[0]
    x, info = cg(op, b, rtol=1e-12)
    assert info == 0
    near(x, op.solve(b), 1e-9)
    near(eigsh(op, k=3, return_eigenvectors=False), np.linalg.eigvalsh(literal(op))[-3:], 1e-9)
    near((aslinearoperator(op) @ op) @ b, op @ (op @ b), 1e-14)


# ---------------------------------------------------------------- the inverse


@given(operators(), st.integers(1, 4))
def test_solve_inverts_the_product(op, k):
    m, tol = literal(op), tolerance(op)
    b = rows(op.shape[0], k).astype(op.dtype)
    near(op.solve(b), np.linalg.solve(m, b), tol)
    near(op.solve(b[:, 0]), np.linalg.solve(m, b[:, 0]), tol)
    near(op.solve(scipy.sparse.csr_array(b)), np.linalg.solve(m, b), tol)
    near(op @ op.solve(b), b, tol)


@given(operators(), st.integers(1, 5))
def test_whitening_makes_the_matrix_the_identity(op, n):
    white = op.whiten(np.eye(op.shape[0], dtype=op.dtype)).T.astype(np.float64)
    near(white @ literal(op) @ white.T, np.eye(op.shape[0]), tolerance(op))
    x = rows(n, op.shape[0], density=0.6).astype(op.dtype)
    near(op.whiten(x), x @ white.T, tolerance(op))
    near(op.whiten(scipy.sparse.csr_array(x)), x @ white.T, tolerance(op))
    near(op.whiten(x[0]), white @ x[0], tolerance(op))
    near((op.whiten(x).astype(float) ** 2).sum(axis=1), op.mahalanobis(x), tolerance(op))


@given(operators(), st.integers(0, 6), st.booleans())
def test_squared_distances_are_the_quadratic_form(op, n, centred):
    d = op.shape[0]
    x, mean = rows(n, d, density=0.6).astype(op.dtype), rows(1, d, seed=3)[0] if centred else None
    e = x - (0.0 if mean is None else mean)
    expected = np.einsum("ij,ij->i", e, np.linalg.solve(literal(op), e.T).T)
    near(op.mahalanobis(x, mean), expected, tolerance(op))
    for kind in SPARSE[:2]:
        near(op.mahalanobis(kind(x), mean), expected, 10 * tolerance(op))
    for row, value in zip(x, expected, strict=True):
        distance = op.mahalanobis(row, mean)
        assert isinstance(distance, float)
        assert distance == pytest.approx(value, rel=tolerance(op), abs=1e-300)


def test_rows_with_this_second_moment_become_white():
    x = rows(200, 6) @ rows(6, 6, seed=1)
    m = x.T @ x
    s, u = np.linalg.eigh(m - np.diag(np.full(6, 1e-3)))
    white = LowRankPlusDiagonal(u.T, s, np.full(6, 1e-3)).whiten(x)
    near(white.T @ white, np.eye(6), 1e-11)


@given(operators())
def test_a_constant_diagonal_is_the_other_operator(op):
    alpha = float(op.diagonal_part.mean())
    ours = LowRankPlusDiagonal(op.components, op.low_rank_eigenvalues, np.full(op.shape[0], alpha))
    theirs = LowRankPlusIdentity(op.components, op.low_rank_eigenvalues, alpha)
    x, tol = rows(3, op.shape[0]), tolerance(ours)
    for name in ("whiten", "mahalanobis"):
        near(getattr(ours, name)(x), getattr(theirs, name)(x), tol)
    near(ours @ x.T, theirs @ x.T, tol)
    near(ours.solve(x.T), theirs.solve(x.T), tol)
    for name in ("logdet", "trace", "condition_number"):
        assert getattr(ours, name)() == pytest.approx(getattr(theirs, name)(), rel=tol, abs=tol)


# ---------------------------------------------------------------- zeros in D


@given(operators(singular=True), st.integers(1, 4))
def test_with_zeros_solve_is_the_pseudo_inverse(op, k):
    inverse, onto = pseudo_inverse(op)
    tol = 1e3 * float(np.finfo(op.dtype).eps) * (1 + np.linalg.norm(inverse, 2) * np.linalg.norm(literal(op), 2))
    b = rows(op.shape[0], k).astype(op.dtype)
    near(op.solve(b), inverse @ b, tol)
    near(op.mahalanobis(b.T), np.einsum("ij,ij->j", b, inverse @ b), tol)
    near(op.mahalanobis(scipy.sparse.csr_array(b.T)), np.einsum("ij,ij->j", b, inverse @ b), 10 * tol)
    white = op.whiten(np.eye(op.shape[0])).T
    near(white.T @ white, inverse, tol)
    projection = white @ literal(op) @ white.T
    near(projection @ projection, projection, tol)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(onto @ literal(op) @ onto.T)[1], abs=tol)
    singular = len(onto) < op.shape[0]
    assert (op.condition_number() == np.inf) is singular
    if not singular:
        near(inverse @ literal(op), np.eye(op.shape[0]), tol)


def test_an_uncovered_column_is_ignored():
    """An unseen feature: D and the column of V are zero, and so are the entries of the pseudo-inverse."""
    op = LowRankPlusDiagonal([[0.6, 0.8, 0.0]], [25.0], [1.0, 2.0, 0.0])
    alone = LowRankPlusDiagonal([[0.6, 0.8]], [25.0], [1.0, 2.0])
    b = np.array([1.0, 2.0, 3.0])
    near(op.solve(b), [*alone.solve(b[:2]), 0.0], 1e-14)
    near(op.whiten(b), [*alone.whiten(b[:2]), 0.0], 1e-14)
    for x in (b[None], scipy.sparse.csr_array(b[None])):
        near(op.mahalanobis(x), [alone.mahalanobis(b[:2])], 1e-14)
    assert op.logdet() == pytest.approx(alone.logdet())
    assert op.condition_number() == np.inf


@pytest.mark.parametrize("r", [1, 3, 8])
def test_without_d_it_is_the_other_operator_without_alpha(r):
    ours = LowRankPlusDiagonal(orthonormal(r, 8, 0), np.arange(1.0, r + 1), np.zeros(8))
    theirs = LowRankPlusIdentity(ours.components, ours.low_rank_eigenvalues)
    x = rows(4, 8)
    near(ours.solve(x.T), theirs.solve(x.T), 1e-13)
    near(ours.whiten(x), theirs.whiten(x), 1e-13)
    near(ours.mahalanobis(x), theirs.mahalanobis(x), 1e-13)
    assert ours.logdet() == pytest.approx(theirs.logdet())
    assert ours.condition_number() == pytest.approx(theirs.condition_number())


def test_negligible_eigenvalues_are_not_inverted_where_d_is_zero():
    tiny = 0.5 * 3 * EPS * 4.0  # half the tolerance
    op = LowRankPlusDiagonal(np.eye(3), [4.0, tiny, 1.0], np.zeros(3))
    near(op.solve(np.ones(3)), [0.25, 0.0, 1.0], 1e-14)
    assert op.mahalanobis(np.ones(3)) == pytest.approx(1.25)
    assert op.logdet() == pytest.approx(np.log(4.0))
    assert op.condition_number() == np.inf
    above = LowRankPlusDiagonal(np.eye(3), [4.0, 4 * tiny, 1.0], np.zeros(3))
    assert above.solve(np.ones(3))[1] == pytest.approx(1 / (4 * tiny))
    covered = LowRankPlusDiagonal(np.eye(3), [4.0, tiny, 1.0], [0.0, tiny, 0.0])  # D makes this column nonsingular
    assert covered.solve(np.ones(3))[1] == pytest.approx(1 / (2 * tiny))


# ---------------------------------------------------------------- accuracy


@given(
    st.integers(0, 10**6),
    st.integers(2, 14),
    st.integers(1, 14),
    st.integers(1, 3),
    st.sampled_from([1e-4, 1e-8, 1e-16, 1e-40, 1e-300]),
)
@settings(max_examples=200)
def test_tiny_entries_of_d_do_no_harm_to_a_well_conditioned_matrix(seed, d, r, k, tiny):
    """Dividing by the root of an entry of 1e-16 would lose all digits: the residual is accurate to eps / 1e-8."""
    r = min(r, d)
    op = make(r, d, seed=seed, spread=1.0)
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
    one = make(4, 12, spread=1.0)
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


@pytest.mark.parametrize("tiny", [1e-10, 1e-20])
def test_distance_in_the_span_is_accurate_however_small_the_diagonal(tiny):
    """Here the Woodbury form would lose all digits: eps / 1e-20 is 2e4."""
    op = LowRankPlusDiagonal(np.eye(4)[:2], [4.0, 2.0], tiny * np.arange(1.0, 5.0))
    x = np.array([[2.0, 2.0, 0.0, 0.0]])
    near(op.mahalanobis(x), [3.0], 1e-9)
    near(op.solve(x[0]), [0.5, 1.0, 0.0, 0.0], 1e-9)
    v = orthonormal(3, 50, 4)
    op = LowRankPlusDiagonal(v, [3.0, 2.0, 1.0], np.full(50, tiny))
    x = rows(6, 3) @ v
    near(op.mahalanobis(x), (x @ v.T) ** 2 @ [1 / 3, 1 / 2, 1.0], 1e-4)


def test_full_rank_does_not_divide_by_the_diagonal():
    op = LowRankPlusDiagonal(orthonormal(6, 6, seed=2), np.arange(1.0, 7.0), 1e-30 * np.arange(1.0, 7.0))
    b = rows(1, 6)[0]
    near(op.solve(b), np.linalg.solve(literal(op), b), 1e-13)
    near([op.mahalanobis(b)], [b @ np.linalg.solve(literal(op), b)], 1e-13)
    assert op.condition_number() == pytest.approx(6.0)


@given(st.integers(-498, 498), st.integers(1, 10), st.integers(0, 10), st.booleans(), st.integers(0, 10))
@settings(max_examples=200)
def test_every_scale_gives_the_same_answers(exponent, d, r, centred, zeros):
    """M has scale 4^e and x has scale 2^e. With powers of two, only the decompositions round differently."""
    r, s = min(r, d), 2.0**exponent
    one, op = make(r, d, zeros=min(zeros, d)), make(r, d, zeros=min(zeros, d), scale=s * s)
    x, mean = rows(4, d, density=0.6), rows(1, d, seed=3)[0] if centred else None
    scaled_mean = None if mean is None else s * mean
    near(op.mahalanobis(s * x, scaled_mean), one.mahalanobis(x, mean), 1e-10)
    sparse = scipy.sparse.csr_array
    near(op.mahalanobis(sparse(s * x), scaled_mean), one.mahalanobis(sparse(x), mean), 1e-9)
    near(np.abs(op.whiten(s * x)), np.abs(one.whiten(x)), 1e-10)
    near(op.solve(s * s * x.T), one.solve(x.T), 1e-10)
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


def test_sparse_rows_of_very_different_size_together():
    op, x = make(2, 6), rows(3, 6, density=0.7)
    sizes = np.array([1e-150, 1.0, 1e150])
    near(op.mahalanobis(scipy.sparse.csr_array(sizes[:, None] * x)) / sizes / sizes, op.mahalanobis(x), 1e-12)


# ---------------------------------------------------------------- the spectrum


@given(operators())
def test_spectrum_is_that_of_the_dense_matrix(op):
    m, eps = literal(op), float(np.finfo(op.dtype).eps)
    assert op.trace() == pytest.approx(np.trace(m), rel=50 * eps)
    near(op.diagonal(), np.diag(m), 50 * eps)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1], abs=tolerance(op) * op.shape[0])
    assert op.condition_number() == pytest.approx(np.linalg.cond(m), rel=100 * eps * np.linalg.cond(m))


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("r", [0, 4, 60])
def test_condition_number_of_many_columns(monkeypatch, r, spread):
    """The Lanczos iteration also works if most eigenvalues are equal."""
    op = make(r, 250, spread=spread)
    monkeypatch.setattr(module, "DENSE", 3)
    assert op.condition_number() == pytest.approx(np.linalg.cond(literal(op)), rel=1e-7)


@pytest.mark.parametrize("d", [20, 300])
def test_condition_number_above_the_limit_of_a_dense_matrix(d):
    for scale in (1e-308, 1e300):
        tiny = LowRankPlusDiagonal(np.eye(1, d), [0.5 * scale], scale * np.linspace(1, 2, d))
        assert tiny.condition_number() == pytest.approx(2.0 * (d - 1) / d, rel=0.1)
    op = LowRankPlusDiagonal(np.eye(2, d), [1e150, 3.0], np.geomspace(1e-150, 1.0, d))
    assert op.condition_number() == pytest.approx(1e150 / op.diagonal().min(), rel=1e-9)


# ---------------------------------------------------------------- the corners


@pytest.mark.parametrize("r", [0, 1])
@pytest.mark.parametrize("diagonal", [0.0, 0.5])
def test_one_dimension(r, diagonal):
    m = 2.0 * r + diagonal
    op = LowRankPlusDiagonal(np.ones((r, 1)), [2.0] * r, [diagonal])
    inverse = 1 / m if m else 0.0
    assert (op @ [3.0])[0] == 3 * m
    assert op.solve([3.0])[0] == pytest.approx(3 * inverse)
    assert abs(op.whiten([3.0])[0]) == pytest.approx(3 * np.sqrt(inverse))
    assert op.mahalanobis([3.0]) == pytest.approx(9 * inverse)
    assert op.mahalanobis(scipy.sparse.csr_array([[3.0]]))[0] == pytest.approx(9 * inverse)
    assert op.logdet() == pytest.approx(np.log(m) if m else 0.0)
    assert op.condition_number() == (pytest.approx(1.0) if m else np.inf)


def test_a_diagonal_alone():
    diagonal = np.array([4.0, 1.0, 0.25, 9.0, 16.0])
    op = LowRankPlusDiagonal(np.empty((0, 5)), [], diagonal)
    x = rows(3, 5, density=0.6)
    near(op @ x.T, diagonal[:, None] * x.T, 1e-15)
    near(op.solve(x.T), x.T / diagonal[:, None], 1e-15)
    near(op.whiten(x), x / np.sqrt(diagonal), 1e-15)
    near(op.mahalanobis(scipy.sparse.csr_array(x), np.ones(5)), ((x - 1) ** 2 / diagonal).sum(axis=1), 1e-14)
    assert op.condition_number() == pytest.approx(64.0)
    assert op.logdet() == pytest.approx(np.log(diagonal).sum())


def test_zero_matrix():
    op = LowRankPlusDiagonal(np.empty((0, 5)), [], np.zeros(5))
    x = rows(3, 5)
    for zero in (op @ x.T, op.solve(x.T), op.whiten(x), op.mahalanobis(x), op.to_dense(), op.diagonal()):
        assert not np.any(zero)
    assert not np.any(op.mahalanobis(scipy.sparse.csr_array(x)))
    assert (op.logdet(), op.trace(), op.condition_number()) == (0.0, 0.0, np.inf)


def test_eigenvalues_may_be_zero():
    op = LowRankPlusDiagonal(np.eye(3)[:2], [0.0, 2.0], [1.0, 1.0, 1.0])
    near(op.solve(np.ones(3)), [1.0, 1 / 3, 1.0], 1e-15)


@pytest.mark.parametrize("zeros", [0, 2])
def test_distances_do_not_depend_on_the_blocks(monkeypatch, zeros):
    op, x, mean = make(3, 8, zeros=zeros), rows(23, 8), rows(1, 8, seed=3)[0]
    whole = op.mahalanobis(x, mean)
    monkeypatch.setattr(module, "BLOCK", 40)
    near(op.mahalanobis(x, mean), whole, 1e-14)
    near(op.mahalanobis(scipy.sparse.csr_array(x), mean), whole, 1e-12)


@pytest.mark.parametrize("zeros", [0, 2])
def test_no_method_changes_its_argument(zeros):
    op, x, diagonal = make(3, 8, zeros=zeros), rows(5, 8, density=0.5), np.ones(8)
    sparse, dense = scipy.sparse.csr_array(x), x.copy()
    for argument in (sparse, dense):
        op.mahalanobis(argument, np.ones(8))
        op.whiten(argument)
        op.solve(argument.T)
        op.dot(argument.T)
    assert np.array_equal(sparse.toarray(), x)
    assert np.array_equal(dense, x)
    LowRankPlusDiagonal(op.components, op.low_rank_eigenvalues, diagonal).diagonal_part[:] = 0
    assert np.array_equal(diagonal, np.ones(8))


def test_duplicate_sparse_entries_are_summed():
    twice = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 0], [1, 1, 2])), shape=(1, 5))
    for op in (make(2, 5), make(2, 5, zeros=2)):
        near(op.mahalanobis(twice), op.mahalanobis(twice.toarray()), 1e-13)


@pytest.mark.parametrize("zeros", [0, 2])
def test_nan_stays_in_its_row(zeros):
    op, x = make(3, 8, zeros=zeros), rows(4, 8)
    x[1, 2] = np.nan
    for distances in (op.mahalanobis(x), op.mahalanobis(scipy.sparse.csr_array(x))):
        assert np.isnan(distances).tolist() == [False, True, False, False]


@pytest.mark.parametrize("zeros", [0, 2])
def test_float32_in_float32_out(zeros):
    op = make(3, 8, zeros=zeros, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        x = rows(4, 8).astype(dtype)
        sparse = scipy.sparse.csr_array(x)
        results = [op @ x.T, op @ x[0], op @ sparse.T, op.solve(x.T), op.solve(x[0]), op.whiten(x)]
        results += [op.whiten(sparse), op.mahalanobis(x), op.mahalanobis(sparse)]
        results += [op.mahalanobis(x, np.zeros(8))]
        assert {result.dtype for result in results} == {np.dtype(dtype)}
    assert op.diagonal_part.dtype == op.low_rank_eigenvalues.dtype == np.float64


def test_the_matrix_may_exceed_float32():
    """A second moment of float32 rows around 1e30 is 1e60, but the results are in the range of float32 again."""
    op, reference = make(2, 6, scale=1e60, dtype=np.float32), make(2, 6)
    x = (1e30 * rows(3, 6)).astype(np.float32)
    near(op.mahalanobis(x), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.mahalanobis(scipy.sparse.csr_array(x)), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.solve(x.T) * 1e30, reference.solve(x.T / 1e30), 1e-5)
    near((op.whiten(x) ** 2).sum(axis=1), reference.mahalanobis(x / 1e30), 1e-5)


@pytest.mark.parametrize("zeros", [0, 1])
def test_no_d_by_d_matrix_is_ever_made(zeros):
    d, r = 20_000, 5
    v = np.zeros((r, d))
    v[np.arange(r), np.arange(r)] = 1.0
    diagonal = np.ones(d)
    diagonal[0], diagonal[1] = 1e-12, 1.0 - zeros
    op, x = LowRankPlusDiagonal(v, np.arange(1.0, r + 1), diagonal), rows(2, d)
    tracemalloc.start()
    op.solve(x[0]), op.whiten(x), op.mahalanobis(x), op.logdet(), op.condition_number(), op.diagonal(), op @ x[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * r * d * 8


# ---------------------------------------------------------------- as an object


@given(operators(), st.floats(1e-3, 1e3))
def test_scaled_operator_is_the_multiple(op, c):
    near(op.scaled(c).to_dense(), c * literal(op), 10 * np.finfo(op.dtype).eps)
    assert op.scaled(c).dtype == op.dtype
    assert type(op.scaled(c)) is LowRankPlusDiagonal


@pytest.mark.parametrize("used", [False, True])
def test_pickle_and_repr(used):
    op = make(3, 8)
    distance = op.mahalanobis(np.ones(8)) if used else None
    again = pickle.loads(pickle.dumps(op))
    assert np.array_equal(again.to_dense(), op.to_dense())
    assert distance is None or again.mahalanobis(np.ones(8)) == distance
    assert (again.shape, again.dtype) == (op.shape, op.dtype)
    assert repr(again) == repr(op)
    for part in ("LowRankPlusDiagonal", "8x8", "rank 3", "a diagonal of 0.0", "float64"):
        assert part in repr(op)
    assert "rank 0" in repr(LowRankPlusDiagonal(np.empty((0, 2)), [], [1.0, 1.0]))


@pytest.mark.parametrize(
    ("components", "eigenvalues", "diagonal", "message"),
    [
        (np.ones(3), [1.0], np.ones(3), r"components has shape \(3,\), expected \(r, d\)"),
        (np.eye(3, 2), [1.0] * 3, np.ones(2), r"components has shape \(3, 2\).*r <= d"),
        (1j * np.eye(2), [1.0, 1.0], np.ones(2), "components is of type complex128, expected real"),
        ([[3.0, 4.0]], [1.0], np.ones(2), "orthonormal rows: row 0 has norm 5 "),
        (np.eye(2), [1.0], np.ones(2), r"eigenvalues has shape \(1,\), expected \(2,\)"),
        (np.eye(2), [1.0, -2.0], np.ones(2), r"eigenvalues\[1\] is -2.0, expected >= 0"),
        (np.eye(2), [1e308, 1.0], [1e308, 1.0], r"eigenvalues\[0\] is 1e\+308.*with the diagonal added"),
        (np.eye(2), [1.0, 1.0], 1.0, r"diagonal has shape \(\), expected \(2,\)"),
        (np.eye(2), [1.0, 1.0], [1.0], r"diagonal has shape \(1,\), expected \(2,\)"),
        (np.eye(2), [1.0, 1.0], np.eye(2), r"diagonal has shape \(2, 2\), expected \(2,\)"),
        (np.eye(2), [1.0, 1.0], [1.0, -1.0], r"diagonal\[1\] is -1.0, expected >= 0 and finite"),
        (np.eye(2), [1.0, 1.0], [np.nan, 1.0], r"diagonal\[0\] is nan"),
        (np.eye(2), [1.0, 1.0], [1.0, np.inf], r"diagonal\[1\] is inf"),
        (np.eye(2), [1.0, 1.0], ["a", "b"], "diagonal is of type .*, expected real"),
        (np.eye(2), [1.0, 1.0], None, "diagonal is of type object, expected real"),
    ],
)
def test_constructor_errors(components, eigenvalues, diagonal, message):
    with pytest.raises(ValueError, match=message):
        LowRankPlusDiagonal(components, eigenvalues, diagonal)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op: op.solve(np.ones(3)), r"b has shape \(3,\), expected \(5,\) or \(5, k\)"),
        (lambda op: op.solve(np.ones((2, 5))), r"b has shape \(2, 5\)"),
        (lambda op: op.solve(np.ones((5, 1, 1))), r"b has shape"),
        (lambda op: op.whiten(np.ones((5, 2))), r"X has shape \(5, 2\), expected \(n, 5\) or \(5,\)"),
        (lambda op: op.mahalanobis(np.ones((2, 4))), r"X has shape \(2, 4\)"),
        (lambda op: op.mahalanobis(scipy.sparse.csr_array((2, 4))), r"X has shape \(2, 4\)"),
        (lambda op: op.mahalanobis(np.ones((2, 5)), np.ones(4)), r"mean has shape \(4,\), expected \(5,\)"),
        (lambda op: op.mahalanobis(1j * np.ones(5)), "X is of type complex128"),
        (lambda op: op.scaled(0.0), "c is 0.0, expected a finite number > 0"),
        (lambda op: op.scaled(np.inf), "c is inf"),
        (lambda op: op.scaled("2"), "c is '2'"),
        (lambda op: op @ np.ones(4), "dimension mismatch"),
    ],
)
def test_method_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(make(2, 5))
