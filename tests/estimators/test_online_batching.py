"""The result does not depend on batch sizes, single rows, dense or sparse format, or integer weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.online_faces import assert_same, at_once, every_face, in_batches, targets

TOLERANCE = 1e-7  # learning is exact, but the largest learning rates amplify rounding errors, so streams are short


@every_face
@given(
    seed=st.integers(0, 2**32 - 1),
    classes=st.sampled_from([2, 4]),
    cuts=st.lists(st.integers(1, 150), max_size=6).map(sorted),
    kind=st.sampled_from(["dense", "narrow", "sparse"]),
)
def test_batches_do_not_matter(make, classification, seed, classes, cuts, kind):
    X, y = targets(classification, n=150, classes=classes, seed=seed, density=1.0 if kind == "dense" else 0.4)
    if classification:
        y[:classes] = np.arange(classes)
    if kind != "dense":
        X = sp.csr_array(X)
    if kind == "sparse":
        X = sp.hstack([X, sp.csr_array((150, 600))], format="csr")
    assert_same(in_batches(make(), X, y, cuts), at_once(make(), X, y), X, tolerance=TOLERANCE)


@every_face
def test_learn_one_of_arrays(make, classification):
    X, y = targets(classification)
    if classification:
        y[:3] = np.arange(3)
    whole, one = at_once(make(), X, y), make()
    for row, target in zip(X, y, strict=True):
        assert one.learn_one(row, target) is one
    # Predictions before a class appeared differ, and they have a small effect on probabilities.
    skip = () if not classification else ("progressive loss", "progressive error", "proba", "within", "coverage")
    if ("RFD" in str(one) or "trees" in str(one)) and classification:  # the margins of later rows differ, too
        skip = ("coef", "intercept", "predict", "margins", *skip)
    assert_same(one, whole, X, tolerance=TOLERANCE, skip=skip)


@every_face
def test_learn_one_goes_on_where_batches_end(make, classification):
    X, y = targets(classification)
    whole, parts = at_once(make(), X, y), in_batches(make(), X[:100], y[:100], [37], classes=np.unique(y))
    for i in range(100, 150):
        parts.learn_one(X[i], y[i])
    for i in range(150, 160):
        parts.learn_one((np.arange(8), X[i]), y[i])
    assert_same(parts.partial_fit(X[160:], y[160:]), whole, X, tolerance=TOLERANCE)


@every_face
@pytest.mark.parametrize("density", [1.0, 0.4])
@pytest.mark.parametrize("wide", [False, True])
def test_sparse_equals_dense(make, classification, density, wide, monkeypatch):
    X, y = targets(classification, density=density)
    if not wide:
        monkeypatch.setattr("robustfd.estimators.rfdson.NARROW", 0)
    else:
        X = np.hstack([X, np.zeros((200, 600))])
    dense, sparse = make().fit(X, y), make().fit(sp.csr_array(X), y)
    assert_same(sparse, dense, X, tolerance=TOLERANCE)
    rest = sp.csr_array(X[:50])
    assert_same(sparse.partial_fit(X[:50], y[:50]), dense.partial_fit(rest, y[:50]), X, tolerance=TOLERANCE)
    for name in ("predict", "decision_function", "predict_proba"):
        if hasattr(dense, name):
            a, b = getattr(dense, name)(X), getattr(dense, name)(sp.csr_array(X))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@every_face
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_every_sparse_format(make, classification, container):
    X, y = targets(classification, density=0.4)
    assert_same(make().fit(container(X), y), make().fit(sp.csr_array(X), y), X)


@every_face
def test_rows_of_weight_zero_are_left_out(make, classification):
    X, y = targets(classification)
    weight = (np.arange(200) + 1) % 3  # integer weights are allowed
    some = weight > 0
    model = in_batches(make(), X, y, [1, 50, 51], weight=weight)
    assert_same(model, in_batches(make(), X[some], y[some], [70], weight=weight[some], classes=np.unique(y)), X,
                tolerance=TOLERANCE)  # fmt: skip
    assert model.n_samples_seen_ == some.sum()
    assert_same(make().fit(X, y, sample_weight=np.ones(200)), make().fit(X, y), X)


@every_face
def test_a_row_of_more_weight_counts_for_more(make, classification):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 5)), rng.integers(0, 2, 300)  # independent of each other
    X[:, 0] = 1.0
    light, even, heavy = (make().fit(X, y, sample_weight=np.where(y == 1, w, 1.0)) for w in (0.1, 1.0, 10.0))
    guess = [(m.decision_function if classification else m.predict)(X).mean() for m in (light, even, heavy)]
    assert guess[0] < guess[1] < guess[2]


@every_face
def test_learn_one_with_weights(make, classification):
    X, y = targets(classification, classes=2)
    weight = np.random.default_rng(1).integers(0, 3, 200) / 2
    weight[0] = 1.0
    y_first = np.unique(y)
    one = make()
    one.partial_fit(X[:1], y[:1], **({"classes": y_first} if classification else {}))
    for row, target, w in zip(X[1:], y[1:], weight[1:], strict=True):
        one.learn_one(row, target, w)
    assert_same(one, at_once(make(), X, y, weight), X, tolerance=TOLERANCE)


@every_face
def test_rows_may_change_after_they_were_learned(make, classification):
    X, y = targets(classification)
    whole, model, buffer, target = at_once(make(), X, y), make(), np.empty((1, 8)), np.empty(1, y.dtype)
    for i in range(200):
        buffer[0], target[0] = X[i], y[i]
        model.partial_fit(buffer, target, **({"classes": np.unique(y)} if classification else {}))
    assert_same(model, whole, X, tolerance=TOLERANCE)
    model = make()
    for start in range(0, 200, 7):
        rows = sp.csr_array(X[start : start + 7])
        model.partial_fit(rows, y[start : start + 7], **({"classes": np.unique(y)} if classification else {}))
        rows.data[:] = np.nan
    assert_same(model, whole, X, tolerance=TOLERANCE)
