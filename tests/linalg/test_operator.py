"""LowRankPlusIdentity against the dense matrix that it represents."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator, cg, eigsh

from robustfd.linalg import operator as module
from robustfd.linalg.operator import LowRankPlusIdentity

EPS = np.finfo(np.float64).eps
SPARSE = [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array, scipy.sparse.csr_matrix]


def orthonormal(r, d, seed, dtype=np.float64):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))
    return np.ascontiguousarray(q.T).astype(dtype)


def make(r, d, alpha, *, seed=0, spread=3.0, scale=1.0, dtype=np.float64):
    """Return an operator with low-rank eigenvalues from scale * 10^-spread to scale, unsorted."""
    lam = scale * 10.0 ** np.random.default_rng(seed + 1).uniform(-spread, 0, r)
    return LowRankPlusIdentity(orthonormal(r, d, seed, dtype), lam, alpha * scale)


def literal(op):
    """Return V' diag(lam) V + alpha I, literally, in float64."""
    v = op.components.astype(np.float64)
    return v.T @ np.diag(op.low_rank_eigenvalues) @ v + op.alpha * np.eye(op.shape[0])


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
    r = draw(st.integers(0, d))
    alpha = 0.0 if singular else 10.0 ** draw(st.floats(-4, 2))
    dtype = draw(st.sampled_from(dtypes))
    return make(r, d, alpha, seed=draw(st.integers(0, 10**6)), dtype=dtype)


def tolerance(op):
    kappa = op.condition_number() if op.alpha > 0 else 1e3
    return 100 * float(np.finfo(op.dtype).eps) * max(1.0, kappa)


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
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_product_with_a_sparse_matrix_is_dense_and_the_same(kind, k, alpha):
    op, x = make(3, 8, alpha), rows(8, k, density=0.4)
    for product in (op @ kind(x), (kind(x.T) @ op).T):
        assert isinstance(product, np.ndarray)
        near(product, literal(op) @ x, 1e-14)


def test_product_with_a_sparse_vector():
    op, x = make(3, 8, 0.3), rows(1, 8, density=0.4)[0]
    sparse = scipy.sparse.coo_array(x)
    if sparse.ndim == 2:
        pytest.skip("this scipy has no sparse vectors")
    near(op @ sparse, literal(op) @ x, 1e-14)
    near(op.solve(sparse), op.solve(x), 1e-14)
    assert op.mahalanobis(sparse) == op.mahalanobis(x)


def test_product_with_integers_and_complex_numbers():
    op, m = make(3, 8, 0.3), literal(make(3, 8, 0.3))
    near(op @ np.arange(8), m @ np.arange(8), 1e-14)
    z = rows(8, 2) + 1j * rows(8, 2, seed=8)
    near(op @ z, m @ z, 1e-14)


def test_scipy_uses_it_as_a_linear_operator():
    op = make(5, 40, 0.1)
    b = rows(1, 40)[0]
    x, info = cg(op, b, rtol=1e-12)
    assert info == 0
    near(x, op.solve(b), 1e-9)
    near(eigsh(op, k=3, return_eigenvectors=False)[::-1], op.eigenvalues()[:3], 1e-9)
    near((aslinearoperator(op) @ op) @ b, op @ (op @ b), 1e-14)


# ---------------------------------------------------------------- the inverse


@given(operators(), st.integers(1, 4))
def test_solve_inverts_the_product(op, k):
    m, tol = literal(op), tolerance(op)
    b = rows(op.shape[0], k).astype(op.dtype)
    near(op.solve(b), np.linalg.solve(m, b), tol)
    near(op.solve(b[:, 0]), np.linalg.solve(m, b[:, 0]), tol)
    near(op @ op.solve(b), b, tol)


@given(operators(singular=True), st.integers(1, 4))
def test_without_alpha_solve_is_the_pseudo_inverse(op, k):
    b = rows(op.shape[0], k).astype(op.dtype)
    cutoff = 1e-5 if op.dtype == np.float32 else 1e-10
    near(op.solve(b), np.linalg.pinv(literal(op), rcond=cutoff, hermitian=True) @ b, tolerance(op))


@given(operators(), st.integers(0, 5))
def test_whitening_is_the_symmetric_inverse_root(op, n):
    s, u = np.linalg.eigh(literal(op))
    root = u / np.sqrt(s) @ u.T
    x = rows(n, op.shape[0]).astype(op.dtype)
    near(op.whiten(x), x @ root, tolerance(op))
    near(op.whiten(scipy.sparse.csr_array(x)), x @ root, tolerance(op))
    for row in x:
        near(op.whiten(row), root @ row, tolerance(op))


def test_whitened_rows_have_second_moment_identity():
    x = rows(200, 6) @ rows(6, 6, seed=1)
    s, u = np.linalg.eigh(x.T @ x)
    white = LowRankPlusIdentity(u[:, 2:].T, s[2:] - s[:2].mean(), s[:2].mean()).whiten(x)
    moment = white.T @ white
    near(u[:, 2:].T @ moment @ u[:, 2:], np.eye(4), 1e-12)
    assert np.trace(moment) == pytest.approx(6.0)  # the two others share one alpha, which is correct on average


def test_without_alpha_whitening_drops_directions_without_variance():
    op = make(3, 8, 0.0)
    x = rows(5, 8)
    near(op.whiten(x) @ op.whiten(x).T, x @ np.linalg.pinv(literal(op), rcond=1e-10) @ x.T, 1e-10)
    off_span = x - x @ op.components.T @ op.components
    assert np.abs(op.whiten(off_span)).max() < 1e-12


@given(operators(), st.integers(0, 6), st.booleans())
def test_squared_distances_are_the_quadratic_form(op, n, centred):
    d = op.shape[0]
    x, mean = rows(n, d, density=0.6).astype(op.dtype), rows(1, d, seed=3)[0] if centred else None
    e = x - (0.0 if mean is None else mean)
    expected = np.einsum("ij,ij->i", e, np.linalg.solve(literal(op), e.T).T)
    near(op.mahalanobis(x, mean), expected, tolerance(op))
    for kind in SPARSE[:2]:
        # The error of the sparse form is eps ||e||^2 / alpha, which the condition number covers.
        bound = tolerance(op) * (expected + (e * e).sum(axis=1) / op.eigenvalues()[0])
        assert np.all(np.abs(op.mahalanobis(kind(x), mean) - expected) <= bound + 1e-300)
    for row, value in zip(x, expected, strict=True):
        distance = op.mahalanobis(row, mean)
        assert isinstance(distance, float)
        assert distance == pytest.approx(value, rel=tolerance(op), abs=1e-300)


def test_without_alpha_distances_use_the_pseudo_inverse():
    op, x, mean = make(3, 8, 0.0), rows(5, 8, density=0.5), rows(1, 8, seed=3)[0]
    e = x - mean
    expected = np.diag(e @ np.linalg.pinv(literal(op), rcond=1e-10) @ e.T)
    near(op.mahalanobis(x, mean), expected, 1e-10)
    near(op.mahalanobis(scipy.sparse.csr_array(x), mean), expected, 1e-10)


def test_distances_do_not_depend_on_the_blocks(monkeypatch):
    op, x, mean = make(3, 8, 0.1), rows(23, 8), rows(1, 8, seed=3)[0]
    whole = op.mahalanobis(x, mean)
    monkeypatch.setattr(module, "BLOCK", 40)
    near(op.mahalanobis(x, mean), whole, 1e-14)


def test_no_method_changes_its_argument():
    op, x = make(3, 8, 0.1), rows(5, 8, density=0.5)
    sparse, dense = scipy.sparse.csr_array(x), x.copy()
    for argument in (sparse, dense):
        op.mahalanobis(argument, np.ones(8))
        op.whiten(argument)
        op.solve(argument.T)
        op.dot(argument.T)
    assert np.array_equal(sparse.toarray(), x)
    assert np.array_equal(dense, x)


def test_duplicate_sparse_entries_are_summed():
    twice = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 0], [1, 1, 2])), shape=(1, 5))
    op = make(2, 5, 0.5)
    near(op.mahalanobis(twice), op.mahalanobis(twice.toarray()), 1e-13)


def test_distance_in_the_span_is_accurate_however_small_alpha():
    """Here ||x||^2 - ||V x||^2 and the Woodbury form would lose all digits: eps / alpha is 2e4."""
    op = LowRankPlusIdentity(np.eye(4)[:2], [4.0, 2.0], 1e-20)
    x = np.array([[2.0, 2.0, 0.0, 0.0]])
    near(op.mahalanobis(x), [3.0], 1e-14)
    near(op.solve(x[0]), [0.5, 1.0, 0.0, 0.0], 1e-14)
    op = make(3, 50, 1e-20, seed=4)
    x = rows(6, 3) @ op.components
    expected = np.einsum("ij,j->i", (x @ op.components.T) ** 2, 1 / op.low_rank_eigenvalues)
    near(op.mahalanobis(x), expected, 1e-6)


def test_nan_stays_in_its_row():
    op, x = make(3, 8, 0.1), rows(4, 8)
    x[1, 2] = np.nan
    for distances in (op.mahalanobis(x), op.mahalanobis(scipy.sparse.csr_array(x))):
        assert np.isnan(distances).tolist() == [False, True, False, False]


# ---------------------------------------------------------------- the spectrum


@given(operators())
def test_spectrum_is_that_of_the_dense_matrix(op):
    m, eps = literal(op), float(np.finfo(op.dtype).eps)
    s = np.linalg.eigvalsh(m)[::-1]
    assert np.allclose(op.eigenvalues(), s, rtol=0, atol=50 * eps * s[0])
    assert np.all(np.diff(op.eigenvalues()) <= 0)
    assert op.trace() == pytest.approx(np.trace(m), rel=50 * eps)
    near(op.diagonal(), np.diag(m), 50 * eps)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1], abs=tolerance(op) * op.shape[0])
    assert op.condition_number() == pytest.approx(np.linalg.cond(m), rel=tolerance(op))


@given(operators(singular=True))
def test_without_alpha_logdet_is_that_of_the_kept_directions(op):
    r, d = op.components.shape
    assert op.logdet() == pytest.approx(np.log(op.low_rank_eigenvalues).sum(), abs=1e-10)
    assert op.condition_number() == np.inf if r < d else op.condition_number() < 1e4


@pytest.mark.parametrize("r", [2, 3])
def test_without_alpha_negligible_eigenvalues_are_not_inverted(r):
    tiny = 0.5 * 3 * EPS * 4.0  # half the tolerance
    op = LowRankPlusIdentity(np.eye(3)[:r], [4.0, tiny, 1.0][:r])
    kept = np.array([0.25, 0.0, 1.0 if r == 3 else 0.0])
    assert np.array_equal(op.solve(np.ones(3)), kept)
    assert np.array_equal(op.whiten(np.ones(3)), np.sqrt(kept))
    assert op.mahalanobis(np.ones(3)) == kept.sum()
    assert op.logdet() == pytest.approx(np.log(4.0))
    assert op.condition_number() == np.inf
    above = LowRankPlusIdentity(np.eye(3)[:r], [4.0, 4 * tiny, 1.0][:r])
    assert above.solve(np.ones(3))[1] == 1 / (4 * tiny)


# ---------------------------------------------------------------- the corners


@pytest.mark.parametrize("r", [0, 1])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_one_dimension(r, alpha):
    m = 2.0 * r + alpha
    op = LowRankPlusIdentity(np.ones((r, 1)), [2.0] * r, alpha)
    inverse = 1 / m if m else 0.0
    assert (op @ [3.0])[0] == 3 * m
    assert op.solve([3.0])[0] == pytest.approx(3 * inverse)
    assert op.whiten([3.0])[0] == pytest.approx(3 * np.sqrt(inverse))
    assert op.mahalanobis([3.0]) == pytest.approx(9 * inverse)
    assert op.mahalanobis(scipy.sparse.csr_array([[3.0]]))[0] == pytest.approx(9 * inverse)
    assert op.logdet() == pytest.approx(np.log(m) if m else 0.0)
    assert op.condition_number() == (1.0 if m else np.inf)


def test_multiple_of_the_identity():
    op = LowRankPlusIdentity(np.empty((0, 5)), [], 4.0)
    x = rows(3, 5, density=0.6)
    assert np.array_equal(op @ x.T, 4 * x.T)
    assert np.array_equal(op.solve(x.T), x.T / 4)
    assert np.array_equal(op.whiten(x), x / 2)
    near(op.mahalanobis(scipy.sparse.csr_array(x), np.ones(5)), ((x - 1) ** 2).sum(axis=1) / 4, 1e-14)
    assert op.condition_number() == 1.0
    assert op.logdet() == pytest.approx(5 * np.log(4))


def test_zero_matrix():
    op = LowRankPlusIdentity(np.empty((0, 5)), [])
    x = rows(3, 5)
    for zero in (op @ x.T, op.solve(x.T), op.whiten(x), op.mahalanobis(x), op.to_dense(), op.diagonal()):
        assert not np.any(zero)
    assert not np.any(op.mahalanobis(scipy.sparse.csr_array(x)))
    assert (op.logdet(), op.trace(), op.condition_number()) == (0.0, 0.0, np.inf)


def test_full_rank_does_not_divide_by_alpha():
    """r = d: the residual is pure rounding error, and divided by 1e-30 it would dominate the result."""
    op = LowRankPlusIdentity(orthonormal(6, 6, seed=2), np.arange(1.0, 7.0), 1e-30)
    b = rows(1, 6)[0]
    near(op.solve(b), np.linalg.solve(literal(op), b), 1e-13)
    near([op.mahalanobis(b)], [b @ np.linalg.solve(literal(op), b)], 1e-13)
    assert op.condition_number() == pytest.approx(6.0)


@given(st.integers(-498, 498), st.integers(1, 10), st.integers(0, 10), st.booleans(), st.data())
@settings(max_examples=200)
def test_every_scale_gives_the_same_answers(exponent, d, r, centred, data):
    """M has scale 4^e and x has scale 2^e. With powers of two, even the rounding must be the same."""
    r, s, alpha = min(r, d), 2.0**exponent, data.draw(st.sampled_from([0.0, 1e-3, 1.0]))
    one = make(r, d, alpha)
    op = LowRankPlusIdentity(one.components, s * s * one.low_rank_eigenvalues, s * s * one.alpha)
    x, mean = rows(4, d, density=0.6), rows(1, d, seed=3)[0] if centred else None
    scaled_mean = None if mean is None else s * mean
    near(op.whiten(s * x), one.whiten(x), 1e-13)
    near(op.mahalanobis(s * x, scaled_mean), one.mahalanobis(x, mean), 1e-13)
    sparse = scipy.sparse.csr_array
    near(op.mahalanobis(sparse(s * x), scaled_mean), one.mahalanobis(sparse(x), mean), 1e-10)
    near(op.solve(s * s * x.T), one.solve(x.T), 1e-13)
    near((op @ x.T) / s / s, one @ x.T, 1e-13)
    near(op.to_dense() / s / s, one.to_dense(), 1e-13)
    near(op.diagonal() / s / s, one.diagonal(), 1e-13)
    rank = d if alpha else r
    assert op.logdet() == pytest.approx(one.logdet() + 2 * exponent * rank * np.log(2), abs=1e-8)
    assert op.condition_number() == pytest.approx(one.condition_number())


def test_sparse_rows_of_very_different_size_together():
    op, x = make(2, 6, 0.1), rows(3, 6, density=0.7)
    sizes = np.array([1e-150, 1.0, 1e150])
    near(op.mahalanobis(scipy.sparse.csr_array(sizes[:, None] * x)) / sizes / sizes, op.mahalanobis(x), 1e-12)


def test_float32_in_float32_out():
    op = make(3, 8, 0.1, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        x = rows(4, 8).astype(dtype)
        sparse = scipy.sparse.csr_array(x)
        results = [op @ x.T, op @ x[0], op @ sparse.T, op.solve(x.T), op.solve(x[0]), op.whiten(x)]
        results += [op.whiten(sparse), op.mahalanobis(x), op.mahalanobis(sparse)]
        results += [op.mahalanobis(x, np.zeros(8))]
        assert {result.dtype for result in results} == {np.dtype(dtype)}
    assert op.eigenvalues().dtype == op.low_rank_eigenvalues.dtype == np.float64


def test_eigenvalues_may_exceed_float32():
    """A second moment of float32 rows around 1e30 is 1e60, but the results are in the range of float32 again."""
    op = make(2, 6, 0.1, scale=1e60, dtype=np.float32)
    x = (1e30 * rows(3, 6)).astype(np.float32)
    reference = make(2, 6, 0.1, scale=1.0)
    near(op.whiten(x), reference.whiten(x / 1e30), 1e-5)
    near(op.mahalanobis(x), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.mahalanobis(scipy.sparse.csr_array(x)), reference.mahalanobis(x / 1e30), 1e-5)
    near(op.solve(x.T) * 1e30, reference.solve(x.T / 1e30), 1e-5)


# ---------------------------------------------------------------- as an object


@given(operators(), st.floats(1e-3, 1e3))
def test_scaled_operator_is_the_multiple(op, c):
    near(op.scaled(c).to_dense(), c * literal(op), 10 * np.finfo(op.dtype).eps)
    assert op.scaled(c).dtype == op.dtype


def test_pickle_and_repr():
    op = make(3, 8, 0.25)
    again = pickle.loads(pickle.dumps(op))
    assert np.array_equal(again.to_dense(), op.to_dense())
    assert (again.alpha, again.shape, again.dtype) == (op.alpha, op.shape, op.dtype)
    assert repr(again) == repr(op)
    for part in ("LowRankPlusIdentity", "8x8", "rank 3", "0.25 I", "float64"):
        assert part in repr(op)
    assert "rank 0" in repr(LowRankPlusIdentity(np.empty((0, 2)), []))


@pytest.mark.parametrize(
    ("components", "eigenvalues", "alpha", "message"),
    [
        (np.ones(3), [1.0], 0.0, r"components has shape \(3,\), expected \(r, d\)"),
        (np.empty((0, 0)), [], 0.0, r"components has shape \(0, 0\)"),
        (np.eye(3, 2), [1.0] * 3, 0.0, r"components has shape \(3, 2\).*r <= d"),
        (1j * np.eye(2), [1.0, 1.0], 0.0, "components is of type complex128, expected real"),
        ([["a", "b"]], [1.0], 0.0, "components is of type .*, expected real"),
        ([[np.nan, 1.0]], [1.0], 0.0, "components must be finite"),
        ([[1.0, 0.0], [np.inf, 1.0]], [1.0, 1.0], 0.0, "components must be finite"),
        ([[3.0, 4.0]], [1.0], 0.0, "orthonormal rows: row 0 has norm 5 "),
        ([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]], [1.0, 1.0], 0.0, "not orthogonal"),
        (np.eye(2), [1.0], 0.0, r"eigenvalues has shape \(1,\), expected \(2,\)"),
        (np.eye(2), np.eye(2), 0.0, r"eigenvalues has shape \(2, 2\), expected \(2,\)"),
        (np.eye(2), [1.0, -2.0], 0.0, r"eigenvalues\[1\] is -2.0, expected >= 0"),
        (np.eye(2), [np.nan, 1.0], 0.0, r"eigenvalues\[0\] is nan"),
        (np.eye(2), [np.inf, 1.0], 0.0, r"eigenvalues\[0\] is inf"),
        (np.eye(2), [1e308, 1.0], 1e308, r"eigenvalues\[0\] is 1e\+308.*with alpha added"),
        (np.eye(2), [1.0, 1.0], -1.0, "alpha is -1.0, expected a finite number >= 0"),
        (np.eye(2), [1.0, 1.0], np.nan, "alpha is nan"),
        (np.eye(2), [1.0, 1.0], np.inf, "alpha is inf"),
        (np.eye(2), [1.0, 1.0], "1", "alpha is '1'"),
        (np.eye(2), [1.0, 1.0], None, "alpha is None"),
    ],
)
def test_constructor_errors(components, eigenvalues, alpha, message):
    with pytest.raises(ValueError, match=message):
        LowRankPlusIdentity(components, eigenvalues, alpha)


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
        (lambda op: op.scaled(-1), "c is -1"),
        (lambda op: op.scaled(np.inf), "c is inf"),
        (lambda op: op.scaled("2"), "c is '2'"),
        (lambda op: op @ np.ones(4), "dimension mismatch"),
    ],
)
def test_method_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(make(2, 5, 0.5))
