"""Properties of every online learner: margins, batches, formats of rows, sample weights, input errors, regret."""

import itertools

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from robustfd import AdaGrad, OnlineGradientDescent, OnlineNewton
from robustfd.learners.newton import ROOTS
from tests import reference_online, reference_regret

M = 4
ALPHA0 = {"rfd": 0.0, "fd": 1.0, "pfd": 1.0, "rp": 10.0, "oja": 10.0, "full": 0.5}


def newtons():
    """Yield every sketch with every projection."""
    for sketch, projection in itertools.product(ALPHA0, ("current", "next", None)):
        learner = OnlineNewton(sketch, M, alpha0=ALPHA0[sketch], projection=projection, random_state=3)
        yield f"{sketch}-{projection}", learner


LEARNERS = {
    **dict(newtons()),
    "rfd-alpha0": OnlineNewton("rfd", M, alpha0=0.5, loss="logistic"),
    "rfd-alg-3": OnlineNewton("rfd", M, projection="next", buffer_size=M, shrink_first=True, loss="squared_hinge"),
    "full-0": OnlineNewton("full", loss="huber", huber_delta=0.7),
    "scfd": OnlineNewton("scfd", M),
    **{f"s-adagrad-{each}": OnlineNewton("s-adagrad", M, rate=0.1, projection=each) for each in ("current", "next")},
    "ada-fd": OnlineNewton("ada-fd", M, alpha0=1.0, rate=0.1, projection=None, loss="logistic"),
    **{f"adagrad-{each}": AdaGrad(0.5, projection=each) for each in ("current", "next", None)},
    **{f"descent-{each}": OnlineGradientDescent(0.05, projection=each) for each in ("current", "next", None)},
    "descent-hinge": OnlineGradientDescent("1/sqrt(t)", scale=0.1, loss="hinge"),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)
every_width = pytest.mark.parametrize(
    "name, d", [(name, d) for name in LEARNERS for d in (9, 600) if d == 9 or not name.startswith("full")]
)  # a full matrix of 600 features is too slow


def make(name):
    return clone(LEARNERS[name])


def stream(n=90, d=9, *, seed=0, density=1.0):
    """Return rows and labels -1 and +1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density) / 3
    y = np.where(X[:, : d // 2 + 1].sum(axis=1) + 0.2 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return X, y


def assert_close(found, expected, tolerance=1e-8):
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max(initial=0.0)))


def assert_equal_models(one, other, tolerance=1e-8):
    """Assert that two learners have the same weights and the same progress."""
    assert one.n_samples_seen_ == other.n_samples_seen_
    assert_close(one.weights_, other.weights_, tolerance)
    for name, column in one.progressive_.items():
        assert_close(column, other.progressive_[name], tolerance)


# -- each row is predicted before it is learned


@every_learner
def test_margins_are_computed_before_the_row_is_learned(name):
    X, y = stream()
    learner, bound = make(name), LEARNERS[name].bound
    for i in range(len(y)):
        before = learner.decision_function(X[i : i + 1])[0] if i else 0.0
        margin = learner.learn(X[i : i + 1], y[i : i + 1])[0]
        if learner.projection != "next":
            assert margin == pytest.approx(before, abs=1e-9)
        else:  # w is projected onto the slab of the row
            assert margin == pytest.approx(np.clip(before, -bound, bound), abs=1e-9)
    assert_close(learner.decision_function(X), X @ learner.weights_, 1e-12)


@every_learner
def test_progress_and_regret_are_sums_over_the_margins(name):
    X, y = stream()
    weight = np.random.default_rng(1).random(len(y)) * (np.arange(len(y)) % 5 > 0)
    learner = make(name)
    margins = learner.learn(X, y, weight)
    huber, w = reference_online.huber(0.7), np.linspace(-1, 1, 9)
    value = (reference_online.LOSSES | {"huber": huber})[learner.loss][0]
    losses, wrong = value(margins, y), (margins > 0) != (y > 0)
    assert learner.n_samples_seen_ == np.count_nonzero(weight)
    assert learner.progressive_loss_ == pytest.approx(weight @ losses / weight.sum())
    assert learner.progressive_error_ == pytest.approx(weight @ wrong / weight.sum())
    assert learner.regret(w, X, y, weight) == pytest.approx(weight @ losses - weight @ value(X @ w, y))
    rows = np.flatnonzero(weight)
    table = learner.progressive_
    assert table["rows"].tolist() == [1, 2, 4, 8, 16, 32, 64, len(rows)]
    for count, loss, error in zip(table["rows"], table["loss"], table["error"], strict=True):
        first = rows[:count]
        assert loss == pytest.approx(weight[first] @ losses[first] / weight[first].sum())
        assert error == pytest.approx(weight[first] @ wrong[first] / weight[first].sum())


# -- batches and formats of rows


@every_width
def test_batches_make_no_difference(name, d):
    X, y = stream(70, d, density=1.0 if d == 9 else 0.02)
    X = X if d == 9 else sp.csr_array(X)
    whole = make(name)
    margins = whole.learn(X, y)
    assert np.isfinite(margins).all() and np.any(margins != 0)
    rng = np.random.default_rng(2)
    for cuts in (range(1, 70), np.sort(rng.integers(0, 71, 9)), np.sort(rng.integers(0, 71, 4))):
        learner = make(name)
        parts = [learner.learn(X[a:b], y[a:b]) for a, b in itertools.pairwise((0, *cuts, 70)) if a < b]
        assert_close(np.concatenate(parts), margins)
        assert_equal_models(learner, whole)


def unsorted(X):
    """Return rows in CSR format with explicit zeros, entries split in two halves, and columns in descending order."""
    data, indices, indptr = [], [], [0]
    for row in X:
        where = np.append(np.flatnonzero(row), [0, len(row) - 1])[::-1]
        values = np.append(row[np.flatnonzero(row)], [0.0, 0.0])[::-1]
        data += [values / 4, 0.75 * values]
        indices += [where, where]
        indptr.append(indptr[-1] + 2 * len(where))
    return sp.csr_array((np.concatenate(data), np.concatenate(indices), indptr), X.shape)


@every_width
def test_sparse_rows_are_the_same_rows(name, d):
    X, y = stream(60, d, density=0.4 if d == 9 else 0.02)
    X[7] = 0.0
    dense = make(name)
    margins = dense.learn(X, y)
    for rows in (sp.csr_array(X), unsorted(X), sp.coo_array(X), sp.csc_matrix(X)):
        stored = [part.copy() for part in (rows.data, rows.nonzero()[0])]
        sparse = make(name)
        assert_close(sparse.learn(rows, y), margins)
        assert_equal_models(sparse, dense)
        assert_close(sparse.decision_function(rows), dense.decision_function(X))
        for before, after in zip(stored, (rows.data, rows.nonzero()[0]), strict=True):
            np.testing.assert_array_equal(before, after)


@every_learner
def test_rows_of_every_type(name, tmp_path):
    X, y = stream(40)
    X = np.round(3 * X)  # integers, which every type can represent
    X[0] = 0
    expected = make(name).learn(X, y)
    locked = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    locked[:] = X
    locked.flush()
    frozen = X.copy()
    frozen.flags.writeable = False
    labels = y.astype(np.int8)
    labels.flags.writeable = False
    for rows in (
        X.astype(np.float32), X.astype(np.int16), np.asfortranarray(X), X[:, ::-1][:, ::-1], X.tolist(), frozen,
        np.memmap(tmp_path / "rows", dtype=np.float64, mode="r", shape=X.shape), sp.csr_array(X.astype(np.int32)),
    ):  # fmt: skip
        assert_close(make(name).learn(rows, labels), expected)


@every_learner
def test_a_learner_from_memory_maps_continues(name, tmp_path):
    X, y = stream(40)
    learner = make(name)
    learner.learn(X[:25], y[:25])
    joblib.dump(learner, tmp_path / "learner")
    restored = joblib.load(tmp_path / "learner", mmap_mode="r")
    assert restored.learn(X[25:], y[25:]).tobytes() == learner.learn(X[25:], y[25:]).tobytes()


# -- weights


@every_learner
def test_a_weight_is_a_factor_of_the_loss(name):
    """4 (w'x - y)^2 = (w'(2 x) - 2 y)^2, with a quarter of the curvature and of the rate."""
    X, y = stream()
    learner = make(name).set_params(loss="squared")
    other = clone(learner).set_params(bound=2 * learner.bound)
    if isinstance(learner, OnlineNewton) and learner.sketch not in ROOTS:
        learner.set_params(curvature=0.1, rate=0.2)
        other.set_params(curvature=0.1 / 4, rate=0.2 / 4)
    assert_close(2 * learner.learn(X, y, np.full(len(y), 4.0)), other.learn(2 * X, 2 * y))
    assert_close(learner.weights_, other.weights_)
    assert learner.progressive_loss_ == pytest.approx(other.progressive_loss_ / 4)


@every_learner
def test_rows_of_weight_zero_get_margins_but_are_not_learned(name):
    X, y = stream()
    absent = np.isin(np.arange(len(y)), [0, 1, 20, 21, 22, 50, 89])
    learner, without = make(name), make(name)
    margins = learner.learn(X, y, np.where(absent, 0.0, 1.0))
    assert_close(margins[~absent], without.learn(X[~absent], y[~absent]))
    assert_equal_models(learner, without)
    before = make(name)
    before.learn(X[2:20], y[2:20])
    assert_close(margins[20:23], before.decision_function(X[20:23]))
    stored = learner.to_bytes()
    learner.learn(X[:5], y[:5], np.zeros(5))
    learner.learn(X[:0], y[:0])
    assert learner.to_bytes() == stored


# -- input errors


X0, Y0 = stream(3)
BAD = {
    "NaN": (np.where(X0[1, 1] == X0, np.nan, X0), Y0, None, "X contains NaN"),
    "infinity": (np.where(X0[1, 1] == X0, np.inf, X0), Y0, None, "X contains infinity"),
    "squares overflow": (np.where(X0[1, 1] == X0, -1e160, X0), Y0, None, "numbers above 1e\\+150 in size"),
    "sparse NaN": (sp.csr_array(np.where(X0[1, 1] == X0, np.nan, X0)), Y0, None, "X contains NaN"),
    "width": (X0[:, :8], Y0, None, "X has 8 features, but .* is expecting 9 features"),
    "one dimension": (X0[0], Y0[:1], None, "Expected 2D array"),
    "strings": (np.full((3, 9), "a"), Y0, None, "could not convert string|dtype='numeric' is not compatible"),
    "too few labels": (X0, Y0[:2], None, "y has shape \\(2,\\), but X has 3 rows"),
    "a column of labels": (X0, Y0[:, None], None, "y has shape \\(3, 1\\), but X has 3 rows"),
    "labels are NaN": (X0, Y0 * [1, np.nan, 1], None, "y contains NaN"),
    "labels are strings": (X0, ["a", "b", "c"], None, "y must hold numbers"),
    "labels overflow": (X0, Y0 * [1, 1e160, 1], None, "1e\\+160"),
    "negative weights": (X0, Y0, [1, -1, 1], "Negative weights"),
    "weights are NaN": (X0, Y0, [1, np.nan, 1], "sample_weight contains NaN"),
    "too few weights": (X0, Y0, [1, 1], "sample_weight has shape"),
    "weights are strings": (X0, Y0, ["1", "1", "1"], "sample_weight must be"),
}


@every_learner
def test_bad_rows_change_nothing(name):
    X, y = stream()
    learner, first = make(name), {what: case for what, case in BAD.items() if what != "width"}
    for what, (rows, labels, weight, message) in first.items():
        with pytest.raises(ValueError, match=message):
            learner.learn(rows, labels, weight)
        assert vars(learner) == vars(make(name)), what
    learner.learn(X[:50], y[:50])
    stored = learner.to_bytes()
    for what, (rows, labels, weight, message) in BAD.items():
        with pytest.raises(ValueError, match=message):
            learner.learn(rows, labels, weight)
        assert learner.to_bytes() == stored, what
    learner.learn(X[50:], y[50:])
    expected = make(name)
    expected.learn(X[:50], y[:50])
    expected.learn(X[50:], y[50:])
    assert learner.to_bytes() == expected.to_bytes()


@every_learner
@pytest.mark.parametrize("what", ["NaN", "infinity", "squares overflow", "labels are NaN", "labels overflow"])
def test_bad_numbers_in_a_single_row_change_nothing(name, what):
    # Single rows take a fast path with fewer checks.
    X, y = stream(20)
    learner = make(name)
    learner.learn(X, y)
    learner.learn(X[:1], y[:1])
    stored, (rows, labels, _, message) = learner.to_bytes(), BAD[what]
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            learner.learn(rows[1:2], labels[1:2])
        assert learner.to_bytes() == stored


@every_learner
def test_reading_is_checked_too(name):
    X, y = stream(20)
    learner = make(name)
    for read in (lambda: learner.weights_, lambda: learner.progressive_, lambda: learner.decision_function(X)):
        with pytest.raises(NotFittedError, match="has seen no rows yet"):
            read()
    learner.learn(X, y)
    for rows, message in ((X[:, :8], "9 features"), (X * np.nan, "NaN"), (X[0], "2D")):
        with pytest.raises(ValueError, match=message):
            learner.decision_function(rows)
    with pytest.raises(ValueError, match="w has shape"):
        learner.regret(np.ones(8), X, y)
    with pytest.raises(ValueError, match="regret needs all of them"):
        learner.regret(np.ones(9), X[:19], y[:19])
    learner.set_params(bound=7.0)
    with pytest.raises(ValueError, match="parameters were changed"):
        learner.learn(X, y)


# -- edge cases


@every_learner
@pytest.mark.parametrize("n, d", [(1, 1), (1, 9), (50, 1), (50, 2), (3, 9)])
def test_few_rows_and_few_features(name, n, d):
    X, y = stream(n, d)
    learner = make(name)
    margins = learner.learn(X, y)
    assert margins[0] == 0
    assert np.isfinite(margins).all() and np.isfinite(learner.weights_).all()
    single = make(name)
    assert_close([single.learn(X[i : i + 1], y[i : i + 1])[0] for i in range(n)], margins)


@every_learner
def test_zero_rows_do_not_change_the_weights(name):
    X, y = stream(40)
    learner = make(name)
    assert np.all(learner.learn(np.zeros((30, 9)), np.ones(30)) == 0)
    assert np.all(learner.weights_ == 0)
    learner.learn(X, y)
    before = learner.weights_
    assert np.all(learner.learn(np.zeros((30, 9)), np.ones(30)) == 0)
    if learner.projection != "next":  # otherwise the projection happens before the next row
        assert_close(learner.weights_, before)
    assert learner.n_samples_seen_ == 100


@pytest.mark.parametrize("name", [name for name in LEARNERS if "oja" not in name])  # its initial directions are random
def test_rows_of_rank_one_are_a_problem_of_one_feature(name):
    rng = np.random.default_rng(5)
    z, y, u = rng.standard_normal((80, 1)), np.where(rng.random(80) < 0.7, 1.0, -1.0), np.eye(1, 9)
    wide, narrow = make(name), make(name)
    np.testing.assert_allclose(wide.learn(z @ u, y), narrow.learn(z, y), rtol=0, atol=1e-9)
    np.testing.assert_allclose(wide.weights_, narrow.weights_[0] * u[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-70, 1e70, 1e149])
@pytest.mark.parametrize("shrink_first", [False, True])
@pytest.mark.parametrize("projection", ["current", "next", None])
@pytest.mark.parametrize("sketch", ["rfd", "full"])
def test_the_scale_of_the_rows_does_not_matter_without_alpha0(sketch, projection, shrink_first, scale):
    X, y = stream()
    usual = OnlineNewton(sketch, M, projection=projection, shrink_first=shrink_first)
    learner = clone(usual)
    assert_close(learner.learn(scale * X, y), usual.learn(X, y), 1e-6)
    assert_close(scale * learner.weights_, usual.weights_, 1e-6)


@every_learner
@pytest.mark.parametrize("scale", [1e-150, 1e149])
def test_rows_of_extreme_scale_are_learned_or_raise_overflow(name, scale):
    X, y = stream(60)
    learner = make(name)
    try:
        margins = learner.learn(scale * X, y)
    except OverflowError:
        assert scale > 1
        assert set(vars(learner)) == set(learner.get_params())
    else:
        assert np.isfinite(margins).all() and np.isfinite(learner.weights_).all()


# -- regret


C = 1.0
CURVED = {"C": C, "L": 4 * C, "mu": 1 / (8 * C**2)}


def linear_stream(n, d, *, noise, seed):
    """Return rows, targets and weights u; targets are u'x plus noise, and both are at most 1 in absolute value."""
    rng = np.random.default_rng(seed)
    X, u = rng.standard_normal((n, d)), rng.standard_normal(d)
    u *= (C - noise) / np.abs(X @ u).max()
    return X, X @ u + rng.uniform(-noise, noise, n), u


@pytest.mark.parametrize("alpha0", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("m, noise, scale", [(2, 0.0, 1.0), (4, 0.0, 0.1), (2, 0.3, 10.0), (4, 0.3, 1.0)])
def test_regret_is_below_the_bounds(m, noise, scale, alpha0):
    """Luo et al. 2019, Theorem 5, and Theorem 7 for alpha0 = 0, as corrected in tests/reference_regret.py."""
    X, y, u = linear_stream(150, 6, noise=noise, seed=m)
    X, u = scale * X, u / scale
    learner = OnlineNewton("rfd", m, alpha0=alpha0, projection="next", buffer_size=m, shrink_first=True)
    margins = learner.learn(X, y)
    run = reference_online.algorithm_3(X, y, m, alpha0=alpha0)
    assert_close(margins, run.margins, 1e-6)
    assert learner.alpha_ == pytest.approx(run.alpha, rel=1e-6)
    theorem = reference_regret.theorem_5 if alpha0 else reference_regret.theorem_7
    for w in (u, 0 * u, 0.5 * u[::-1]):
        w = w / max(1.0, np.abs(X @ w).max())
        assert learner.regret(w, X, y) <= theorem(run, w, corrected=True, **CURVED)
    assert learner.regret(u, X, y) > 1.0  # the bound is not trivial


def test_regret_grows_like_a_logarithm():
    """Theorem 5 for a curved loss. With square-root growth, 512 times the rows would have 22 times the regret."""
    X, y, u = linear_stream(2**14, 6, noise=0.3, seed=0)
    learner, few = OnlineNewton("rfd", 4, alpha0=1e-3), 2**5
    learner.learn(X[:few], y[:few])
    early = learner.regret(u, X[:few], y[:few])
    learner.learn(X[few:], y[few:])
    assert early > 10
    assert learner.regret(u, X, y) < 3 * early
