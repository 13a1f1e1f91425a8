"""LowRankPlusIdentity and LowRankPlusDiagonal against the dense matrix that they represent."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator, cg, eigsh

from robustfd.linalg import operator as module
from robustfd.linalg.operator import LowRankPlusDiagonal, LowRankPlusIdentity

EPS = np.finfo(np.float64).eps
SPARSE = [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array, scipy.sparse.csr_matrix]
both = pytest.mark.parametrize("cls", [LowRankPlusIdentity, LowRankPlusDiagonal])


def orthonormal(r, d, seed, dtype=np.float64):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))
    return np.ascontiguousarray(q.T).astype(dtype)


def make(cls, r, d, *, seed=0, spread=2.0, scale=1.0, alpha=0.1, zeros=0, dtype=np.float64):
    """Return an operator with lam (and D) from 10^-spread to 1, unsorted, times scale.

    Some entries of D are zero. Then alpha is zero too.
    """
    rng = np.random.default_rng(seed + 1)
    lam, diagonal = 10.0 ** rng.uniform(-spread, 0, r), 10.0 ** rng.uniform(-spread, 0, d)
    diagonal[rng.permutation(d)[:zeros]] = 0.0
    added = diagonal if cls is LowRankPlusDiagonal else alpha * (zeros == 0)
    return cls(orthonormal(r, d, seed, dtype), scale * lam, scale * added)


def added(op):
    """Return the entries of the diagonal matrix."""
    return np.full(op.shape[0], op.alpha) if isinstance(op, LowRankPlusIdentity) else op.diagonal_part


def literal(op):
    """Return V' diag(lam) V + D, literally, in float64."""
    v = op.components.astype(np.float64)
    return v.T @ np.diag(op.low_rank_eigenvalues) @ v + np.diag(added(op))


def rows(n, d, seed=7, density=1.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < density)


def near(actual, expected, tolerance):
    """Assert equality up to a relative error in norm."""
    assert np.shape(actual) == np.shape(expected)
    assert np.linalg.norm(np.subtract(actual, expected)) <= tolerance * (np.linalg.norm(expected) + 1e-300)


@st.composite
def operators(draw, cls, *, singular=False, dtypes=(np.float64, np.float32)):
    d = draw(st.integers(1, 12))
    r, zeros = draw(st.integers(0, d)), draw(st.integers(1, d)) if singular else 0
    alpha, dtype = 10.0 ** draw(st.floats(-4, 2)), draw(st.sampled_from(dtypes))
    return make(cls, r, d, seed=draw(st.integers(0, 10**6)), alpha=alpha, zeros=zeros, dtype=dtype)


def tolerance(op):
    return 100 * float(np.finfo(op.dtype).eps) * max(1.0, op.condition_number())


def pseudo_inverse(op):
    """Return M^+ and its rank, from an identity where D is positive and the row space of B where it is zero."""
    m, zero = literal(op), np.flatnonzero(added(op) == 0)
    _, s, vt = np.linalg.svd(op.components.astype(float)[:, zero] * np.sqrt(op.low_rank_eigenvalues)[:, None])
    basis = vt[: np.count_nonzero(s**2 > len(m) * EPS * op.low_rank_eigenvalues.max(initial=0.0))]
    onto = np.delete(np.eye(len(m)), zero, axis=0)
    onto = np.concatenate([onto, np.zeros((len(basis), len(m)))])
    onto[len(onto) - len(basis) :, zero] = basis
    return onto.T @ np.linalg.inv(onto @ m @ onto.T) @ onto, onto


# ---------------------------------------------------------------- the dense matrix


@both
@given(data=st.data())
def test_dense_form_is_the_definition_and_exactly_symmetric(cls, data):
    op = data.draw(operators(cls))
    dense = op.to_dense()
    assert dense.dtype == op.dtype
    near(dense, literal(op), 10 * np.finfo(op.dtype).eps)
    assert np.array_equal(dense, dense.T)


@both
@given(data=st.data(), k=st.integers(1, 5))
def test_product_is_that_of_the_dense_matrix(cls, data, k):
    op = data.draw(operators(cls))
    m, x, tol = literal(op), rows(op.shape[0], k).astype(op.dtype), 100 * np.finfo(op.dtype).eps
    for product in (op @ x, op.dot(x), op.T @ x, op.H @ x, op.rmatmat(x), (x.T @ op).T):
        near(product, m @ x, tol)
    for product in (op @ x[:, 0], op.matvec(x[:, 0]), op.rmatvec(x[:, 0]), x[:, 0] @ op):
        near(product, m @ x[:, 0], tol)
    near(op @ x[:, :1], m @ x[:, :1], tol)


@both
@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("zeros", [0, 3, 8])
def test_product_with_a_sparse_matrix_is_dense_and_the_same(cls, kind, k, zeros):
    op, x = make(cls, 3, 8, zeros=zeros), rows(8, k, density=0.4)
    for product in (op @ kind(x), (kind(x.T) @ op).T):
        assert isinstance(product, np.ndarray)
        near(product, literal(op) @ x, 1e-14)


@both
def test_product_with_a_sparse_vector(cls):
    op, x = make(cls, 3, 8), rows(1, 8, density=0.4)[0]
    sparse = scipy.sparse.coo_array(x)
    if sparse.ndim == 2:
        pytest.skip("this scipy has no sparse vectors")
    near(op @ sparse, literal(op) @ x, 1e-14)
    near(op.solve(sparse), op.solve(x), 1e-14)
    assert op.mahalanobis(sparse) == op.mahalanobis(x)


@both
def test_product_with_integers_and_complex_numbers(cls):
    op = make(cls, 3, 8)
    m, z = literal(op), rows(8, 2) + 1j * rows(8, 2, seed=8)
    near(op @ np.arange(8), m @ np.arange(8), 1e-14)
    near(op @ z, m @ z, 1e-14)


@both
def test_scipy_uses_it_as_a_linear_operator(cls):
    op, b = make(cls, 5, 40), rows(1, 40)[0]
    x, info = cg(op, b, rtol=1e-12)
    assert info == 0
    near(x, op.solve(b), 1e-9)
    near(eigsh(op, k=3, return_eigenvectors=False), np.linalg.eigvalsh(literal(op))[-3:], 1e-9)
    near((aslinearoperator(op) @ op) @ b, op @ (op @ b), 1e-14)


# ---------------------------------------------------------------- the inverse


@both
@given(data=st.data(), k=st.integers(1, 4))
def test_solve_inverts_the_product(cls, data, k):
    op = data.draw(operators(cls))
    m, tol, b = literal(op), tolerance(op), rows(op.shape[0], k).astype(op.dtype)
    near(op.solve(b), np.linalg.solve(m, b), tol)
    near(op.solve(b[:, 0]), np.linalg.solve(m, b[:, 0]), tol)
    near(op.solve(scipy.sparse.csr_array(b)), np.linalg.solve(m, b), tol)
    near(op @ op.solve(b), b, tol)


@both
@given(data=st.data(), n=st.integers(1, 5))
def test_whitening_makes_the_matrix_the_identity(cls, data, n):
    op = data.draw(operators(cls))
    m, tol = literal(op), tolerance(op)
    white = op.whiten(np.eye(op.shape[0], dtype=op.dtype)).T.astype(np.float64)
    near(white @ m @ white.T, np.eye(op.shape[0]), tol)
    if cls is LowRankPlusIdentity:
        near(white, white.T, tol)
    x = rows(n, op.shape[0], density=0.6).astype(op.dtype)
    near(op.whiten(x), x @ white.T, tol)
    near(op.whiten(scipy.sparse.csr_array(x)), x @ white.T, tol)
    near(op.whiten(x[0]), white @ x[0], tol)
    near((op.whiten(x).astype(float) ** 2).sum(axis=1), op.mahalanobis(x), tol)


@both
@given(data=st.data(), n=st.integers(0, 6), centred=st.booleans())
def test_squared_distances_are_the_quadratic_form(cls, data, n, centred):
    op = data.draw(operators(cls))
    d, tol = op.shape[0], tolerance(op)
    x, mean = rows(n, d, density=0.6).astype(op.dtype), rows(1, d, seed=3)[0] if centred else None
    e = x - (0.0 if mean is None else mean)
    expected = np.einsum("ij,ij->i", e, np.linalg.solve(literal(op), e.T).T)
    near(op.mahalanobis(x, mean), expected, tol)
    for kind in SPARSE[:2]:
        # The error of the sparse form is eps ||e||^2 over the smallest eigenvalue, which the condition number covers.
        bound = 10 * tol * (expected + (e * e).sum(axis=1) / np.linalg.norm(literal(op), 2))
        assert np.all(np.abs(op.mahalanobis(kind(x), mean) - expected) <= bound + 1e-300)
    for row, value in zip(x, expected, strict=True):
        distance = op.mahalanobis(row, mean)
        assert isinstance(distance, float)
        assert distance == pytest.approx(value, rel=tol, abs=1e-300)


@both
def test_rows_with_this_second_moment_become_white(cls):
    x = rows(200, 6) @ rows(6, 6, seed=1)
    s, u = np.linalg.eigh(x.T @ x - 1e-3 * np.eye(6))
    white = cls(u.T, s, 1e-3 if cls is LowRankPlusIdentity else np.full(6, 1e-3)).whiten(x)
    near(white.T @ white, np.eye(6), 1e-11)


@given(operators(LowRankPlusDiagonal))
def test_a_constant_diagonal_is_a_multiple_of_the_identity(op):
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


# ---------------------------------------------------------------- singular matrices


@both
@given(data=st.data(), k=st.integers(1, 4))
def test_a_singular_matrix_has_the_pseudo_inverse(cls, data, k):
    op = data.draw(operators(cls, singular=True))
    (inverse, onto), m = pseudo_inverse(op), literal(op)
    tol = 1e3 * float(np.finfo(op.dtype).eps) * (1 + np.linalg.norm(inverse, 2) * np.linalg.norm(m, 2))
    b = rows(op.shape[0], k).astype(op.dtype)
    expected = np.einsum("ij,ij->j", b, inverse @ b)
    near(op.solve(b), inverse @ b, tol)
    near(op.mahalanobis(b.T), expected, tol)
    near(op.mahalanobis(scipy.sparse.csr_array(b.T)), expected, 10 * tol)
    white = op.whiten(np.eye(op.shape[0])).T
    near(white.T @ white, inverse, tol)
    projection = white @ m @ white.T
    near(projection @ projection, projection, tol)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(onto @ m @ onto.T)[1], abs=tol)
    singular = len(onto) < op.shape[0]
    assert (op.condition_number() == np.inf) is singular
    if not singular:
        near(inverse @ m, np.eye(op.shape[0]), tol)


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


@both
@pytest.mark.parametrize("r", [2, 3])
def test_negligible_eigenvalues_are_not_inverted(cls, r):
    tiny = 0.5 * 3 * EPS * 4.0  # half the tolerance
    zero = 0.0 if cls is LowRankPlusIdentity else np.zeros(3)
    op, above = (cls(np.eye(3)[:r], [4.0, factor * tiny, 1.0][:r], zero) for factor in (1, 4))
    inverse = np.array([0.25, 0.0, 1.0 if r == 3 else 0.0])
    near(op.solve(np.ones(3)), inverse, 1e-15)
    near(np.abs(op.whiten(np.ones(3))), np.sqrt(inverse), 1e-15)
    assert op.mahalanobis(np.ones(3)) == pytest.approx(inverse.sum())
    assert op.logdet() == pytest.approx(np.log(4.0))
    assert op.condition_number() == np.inf
    assert above.solve(np.ones(3))[1] == pytest.approx(1 / (4 * tiny))


def test_a_negligible_eigenvalue_counts_where_d_is_positive():
    tiny = 0.5 * 3 * EPS * 4.0
    op = LowRankPlusDiagonal(np.eye(3), [4.0, tiny, 1.0], [0.0, tiny, 0.0])
    assert op.solve(np.ones(3))[1] == pytest.approx(1 / (2 * tiny))


# ---------------------------------------------------------------- the spectrum


@both
@given(data=st.data())
def test_spectrum_is_that_of_the_dense_matrix(cls, data):
    op = data.draw(operators(cls))
    m, eps = literal(op), float(np.finfo(op.dtype).eps)
    assert op.trace() == pytest.approx(np.trace(m), rel=50 * eps)
    near(op.diagonal(), np.diag(m), 50 * eps)
    assert op.logdet() == pytest.approx(np.linalg.slogdet(m)[1], abs=tolerance(op) * op.shape[0])
    assert op.condition_number() == pytest.approx(np.linalg.cond(m), rel=100 * eps * np.linalg.cond(m))
    if cls is LowRankPlusIdentity:
        s = np.linalg.eigvalsh(m)[::-1]
        assert np.allclose(op.eigenvalues(), s, rtol=0, atol=50 * eps * s[0])
        assert np.all(np.diff(op.eigenvalues()) <= 0)


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("r", [0, 4, 60])
def test_condition_number_of_many_columns(monkeypatch, r, spread):
    """The Lanczos iteration also works if most eigenvalues are equal."""
    op = make(LowRankPlusDiagonal, r, 250, spread=spread)
    monkeypatch.setattr(module, "DENSE", 3)
    assert op.condition_number() == pytest.approx(np.linalg.cond(literal(op)), rel=1e-7)


@pytest.mark.parametrize("d", [20, 300])
def test_condition_number_above_the_limit_of_a_dense_matrix(d):
    for scale in (1e-308, 1e300):
        tiny = LowRankPlusDiagonal(np.eye(1, d), [0.5 * scale], scale * np.linspace(1, 2, d))
        assert tiny.condition_number() == pytest.approx(2.0 * (d - 1) / d, rel=0.1)
    op = LowRankPlusDiagonal(np.eye(2, d), [1e150, 3.0], np.geomspace(1e-150, 1.0, d))
    assert op.condition_number() == pytest.approx(1e150 / op.diagonal().min(), rel=1e-9)


# ---------------------------------------------------------------- as an object


@both
@given(data=st.data(), c=st.floats(1e-3, 1e3))
def test_scaled_operator_is_the_multiple(cls, data, c):
    op = data.draw(operators(cls))
    near(op.scaled(c).to_dense(), c * literal(op), 10 * np.finfo(op.dtype).eps)
    assert op.scaled(c).dtype == op.dtype
    assert type(op.scaled(c)) is cls


@both
@pytest.mark.parametrize("used", [False, True])
def test_pickle_and_repr(cls, used):
    op = make(cls, 3, 8)
    distance = op.mahalanobis(np.ones(8)) if used else None
    again = pickle.loads(pickle.dumps(op))
    assert np.array_equal(again.to_dense(), op.to_dense())
    assert distance is None or again.mahalanobis(np.ones(8)) == distance
    assert (again.shape, again.dtype) == (op.shape, op.dtype)
    assert repr(again) == repr(op)
    rest = "plus 0.1 I" if cls is LowRankPlusIdentity else "a diagonal of 0.0"
    for part in (cls.__name__, "8x8", "rank 3", rest, "float64"):
        assert part in repr(op)
    assert "rank 0" in repr(cls(np.empty((0, 1)), [], 1.0 if cls is LowRankPlusIdentity else [1.0]))


@both
@pytest.mark.parametrize(
    ("components", "eigenvalues", "message"),
    [
        (np.ones(2), [1.0], r"components has shape \(2,\), expected \(r, d\)"),
        (np.empty((0, 0)), [], r"components has shape \(0, 0\)"),
        (np.eye(3, 2), [1.0] * 3, r"components has shape \(3, 2\).*r <= d"),
        (1j * np.eye(2), [1.0, 1.0], "components is of type complex128, expected real"),
        ([["a", "b"]], [1.0], "components is of type .*, expected real"),
        ([[np.nan, 1.0]], [1.0], "components must be finite"),
        ([[1.0, 0.0], [np.inf, 1.0]], [1.0, 1.0], "components must be finite"),
        ([[3.0, 4.0]], [1.0], "orthonormal rows: row 0 has norm 5 "),
        ([[1.0, 0.0], [0.6, 0.8]], [1.0, 1.0], "not orthogonal"),
        (np.eye(2), [1.0], r"eigenvalues has shape \(1,\), expected \(2,\)"),
        (np.eye(2), np.eye(2), r"eigenvalues has shape \(2, 2\), expected \(2,\)"),
        (np.eye(2), [1.0, -2.0], r"eigenvalues\[1\] is -2.0, expected >= 0"),
        (np.eye(2), [np.nan, 1.0], r"eigenvalues\[0\] is nan"),
        (np.eye(2), [np.inf, 1.0], r"eigenvalues\[0\] is inf"),
    ],
)
def test_bad_low_rank_parts_are_refused(cls, components, eigenvalues, message):
    with pytest.raises(ValueError, match=message):
        cls(components, eigenvalues, 0.5 if cls is LowRankPlusIdentity else np.ones(2))


@pytest.mark.parametrize(
    ("cls", "added", "message"),
    [
        (LowRankPlusIdentity, 1e308, r"eigenvalues\[0\] is 1e\+308.*with alpha added"),
        (LowRankPlusIdentity, -1.0, "alpha is -1.0, expected a finite number >= 0"),
        (LowRankPlusIdentity, np.nan, "alpha is nan"),
        (LowRankPlusIdentity, np.inf, "alpha is inf"),
        (LowRankPlusIdentity, "1", "alpha is '1'"),
        (LowRankPlusIdentity, None, "alpha is None"),
        (LowRankPlusDiagonal, [1e308, 1.0], r"eigenvalues\[0\] is 1e\+308.*with the diagonal added"),
        (LowRankPlusDiagonal, 1.0, r"diagonal has shape \(\), expected \(2,\)"),
        (LowRankPlusDiagonal, [1.0], r"diagonal has shape \(1,\), expected \(2,\)"),
        (LowRankPlusDiagonal, np.eye(2), r"diagonal has shape \(2, 2\), expected \(2,\)"),
        (LowRankPlusDiagonal, [1.0, -1.0], r"diagonal\[1\] is -1.0, expected >= 0 and finite"),
        (LowRankPlusDiagonal, [np.nan, 1.0], r"diagonal\[0\] is nan"),
        (LowRankPlusDiagonal, [1.0, np.inf], r"diagonal\[1\] is inf"),
        (LowRankPlusDiagonal, ["a", "b"], "diagonal is of type .*, expected real"),
        (LowRankPlusDiagonal, None, "diagonal is of type object, expected real"),
    ],
)
def test_bad_diagonal_parts_are_refused(cls, added, message):
    with pytest.raises(ValueError, match=message):
        cls(np.eye(2), [1e308, 1.0], added)


@both
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
def test_bad_arguments_are_refused(cls, call, message):
    with pytest.raises(ValueError, match=message):
        call(make(cls, 2, 5))
