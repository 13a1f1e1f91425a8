"""The result does not depend on how rows are split into batches or parts, or on when a sketch is read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import robustfd
from robustfd.sketch import base
from robustfd.sketch.view import unit_rows
from tests.sketch.family import RULES, SKETCHES, fingerprint, made

every_sketch = pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
WIDTHS = {"narrow": 6, "wide": 60}  # with m = 4 and L = 8, sparse rows stay sparse if there are at least 33 columns


def stream(width: str, n: int = 300, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, WIDTHS[width]))
    return X * (rng.random(X.shape) < 0.07) if width == "wide" else X


def read(sketch: Any) -> dict[str, Any]:
    out = {
        "moment": sketch.second_moment().to_dense(),
        "alpha": sketch.alpha_,
        "bound": sketch.error_bound_,
        "norm": sketch.squared_norm_,
        "weight": sketch.weight_sum_,
        "n": sketch.n_samples_seen_,
    }
    return out | ({"mean": sketch.mean_} if sketch.center else {})


def assert_same(one: Any, two: Any, rtol: float = 1e-9) -> None:
    a, b = read(one), read(two)
    for name, value in a.items():
        np.testing.assert_allclose(value, b[name], atol=rtol * a["norm"] if name != "mean" else 1e-12, err_msg=name)


@every_sketch
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("options", [{}, {"center": True}, {"decay": 0.98}, {"center": True, "decay": 0.9}], ids=str)
def test_any_batching_gives_the_same_sketch(make, width, sparse, options):
    X = stream(width)
    X = sp.csr_array(X) if sparse else X
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.0], 300)
    weights[0] = 1.0  # a first batch without any weight is refused
    whole = made(make, **options).fit(X, sample_weight=weights)
    for cuts in ([*range(1, 60), 61], [1, 1, 2, 2, 2, 299], [7, 8, 16, 17, 150], [299]):
        parts = made(make, **options)
        edges = [0, *cuts, 300]
        for start, stop in pairwise(edges):
            parts.partial_fit(X[start:stop], sample_weight=weights[start:stop])
        assert_same(whole, parts)


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 2**32 - 1), L=st.sampled_from([4, 5, 8, 12, 400]), width=st.sampled_from(list(WIDTHS)))
def test_dense_and_sparse_batches_may_alternate(name, seed, L, width):
    rng = np.random.default_rng(seed)
    X = stream(width, 120, seed)
    mixed = RULES[name].make(4, buffer_size=L)
    for batch in np.split(X, np.sort(rng.integers(1, 121, 6))):
        as_given = [lambda x: x, sp.csr_array, sp.csc_matrix, sp.coo_array][rng.integers(4)]
        mixed.partial_fit(as_given(batch))
    assert_same(RULES[name].make(4, buffer_size=L).fit(X), mixed)


@every_sketch
@pytest.mark.parametrize("dtypes", [(int, float), (np.float32, float), (bool, np.float32), (np.uint8, np.int64)])
def test_batches_of_different_types(make, dtypes):
    X = np.random.default_rng(2).integers(0, 2, (30, 6))
    parts = make().partial_fit(X[:9].astype(dtypes[0])).partial_fit(X[9:].astype(dtypes[1]))
    assert_same(make().fit(X.astype(float)), parts)
    assert parts.sketch_.dtype == np.float64


@every_sketch
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("options", [{}, {"center": True, "decay": 0.9}], ids=str)
def test_reading_changes_nothing_that_follows(make, sparse, width, options):
    """Bit for bit."""
    X = stream(width)
    X = sp.csr_array(X) if sparse else X
    silent, read_often = made(make, **options), made(make, **options)
    for start in range(0, 300, 23):
        silent.partial_fit(X[start : start + 23])
        read_often.partial_fit(X[start : start + 23])
        before = fingerprint(read_often)
        read(read_often)
        read_often.bracket_logdet(), read_often.bracket_mahalanobis(X[:2]), read_often.components_
        read_often.covariance(), read_often.relative_error_bound_, read_often.singular_values_
        assert fingerprint(read_often) == before
    assert fingerprint(silent) == fingerprint(read_often)
    np.testing.assert_array_equal(silent.sketch_, read_often.sketch_)


@every_sketch
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_empty_batches_change_nothing(make, dtype):
    X = np.random.default_rng(3).standard_normal((30, 6)).astype(dtype)
    sketch = make().fit(X)
    before, B = fingerprint(sketch), sketch.sketch_
    sketch.partial_fit(np.empty((0, 6)))
    sketch.partial_fit(sp.csr_array((0, 6)))
    sketch.partial_fit(np.ones((3, 6)), sample_weight=np.zeros(3))
    assert fingerprint(sketch) == before
    assert sketch.sketch_.dtype == B.dtype
    np.testing.assert_array_equal(sketch.sketch_, B)


@every_sketch
def test_rows_of_weight_zero_are_ignored(make):
    X = np.random.default_rng(4).standard_normal((50, 6))
    keep = np.random.default_rng(5).random(50) < 0.5
    with_zeros = made(make, decay=0.9, center=True).fit(X, sample_weight=keep.astype(float))
    without = made(make, decay=0.9, center=True).fit(X[keep])
    assert fingerprint(with_zeros) == fingerprint(without)


@every_sketch
def test_fit_starts_over(make):
    X = np.random.default_rng(7).standard_normal((50, 6))
    assert fingerprint(make().fit(np.ones((9, 3))).merge(make()).fit(X)) == fingerprint(make().fit(X))


@pytest.mark.parametrize("name", [name for name in SKETCHES if name != "Oja"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_merging_leaves_the_other_sketch_alone(name, sparse):
    options = [{"random_state": seed} if name == "random projection" else {} for seed in (1, 2)]
    X = stream("wide")
    X = sp.csr_array(X) if sparse else X
    one, two = (SKETCHES[name](**o).fit(part) for o, part in zip(options, (X[:150], X[150:])))
    before = fingerprint(one), fingerprint(two)
    union = one + two
    assert fingerprint(robustfd.merge([one, two])) == fingerprint(union)
    assert (fingerprint(one), fingerprint(two)) == before
    empty = SKETCHES[name](**options[0])
    empty.merge(two)
    empty.partial_fit(X[:5])
    one.merge(two)
    one.partial_fit(X[:50])
    assert fingerprint(two) == before[1]


@every_sketch
def test_continuing_after_a_snapshot_of_mixed_batches_is_bitwise_the_same(make):
    """Dense and sparse batches share the queue, and a restored sketch must process it in the same way."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 60)) * (rng.random((400, 60)) < np.repeat(rng.random(40), 10)[:, None] * 0.3)
    sketch, loaded, start = make(), make(), 0
    while start < 400:
        stop = start + int(rng.integers(1, 20))
        batch = sp.csr_array(X[start:stop]) if rng.random() < 0.6 else X[start:stop]
        sketch.partial_fit(batch)
        loaded.partial_fit(batch)
        loaded = type(loaded).from_bytes(loaded.to_bytes())
        start = stop
    np.testing.assert_array_equal(sketch.sketch_, loaded.sketch_)
    assert sketch.error_bound_ == loaded.error_bound_


@every_sketch
def test_equal_states_give_equal_bytes(make):
    sketch = make().fit(stream("narrow"))
    assert len({sketch.to_bytes() for _ in range(20)}) == 1


@pytest.mark.parametrize("kind", [robustfd.RobustFrequentDirections, robustfd.TwoSidedFrequentDirections])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_are_read_without_forming_the_sketch(kind, center, sparse, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((130, 400)) * (rng.random((130, 400)) < 0.02)
    sketch = kind(6, center=center).fit(sp.csr_array(X) if sparse else X)
    numbers = [sketch.alpha_, sketch.error_bound_, sketch.squared_norm_, sketch.weight_sum_, *sketch.singular_values_]
    lower, upper = sketch.bracket_eigenvalues()
    assert "components" not in vars(sketch._view) and np.all(lower <= upper)
    B = sketch.sketch_
    np.testing.assert_allclose(np.linalg.norm(B, axis=1), sketch.singular_values_)
    again = [sketch.alpha_, sketch.error_bound_, sketch.squared_norm_, sketch.weight_sum_, *sketch.singular_values_]
    assert numbers == again
    assert np.array_equal(sketch.components_, sketch.components_)
    sketch.partial_fit(X[:7])  # reading in place must not affect the state
    np.testing.assert_array_equal(
        sketch.sketch_, kind(6, center=center).fit(np.vstack([X, X[:7]])).sketch_ if not sparse else sketch.sketch_
    )


@pytest.mark.parametrize("least", [1e-3, 1e-7, 1e-12, 1e-17])
@pytest.mark.parametrize("order", ["C", "F"])
def test_unit_rows_are_orthogonal(least, order):
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((200, 8)))[0].T
    lam = np.geomspace(1.0, least, 8)
    b = np.sqrt(lam)[:, None] * q + 1e-16 * rng.standard_normal((8, 200))
    b = np.asarray(b, order=order)
    before = b.copy()
    v = unit_rows(b, lam)
    np.testing.assert_array_equal(b, before)
    np.testing.assert_allclose(v @ v.T, np.eye(8), atol=1e-14 if least < 1e-6 else 1e-11)
    assert np.all(np.einsum("ij,ij->i", v, q)[: np.count_nonzero(lam > 1e-10)] > 0.999)
    np.testing.assert_allclose(unit_rows(b, lam, fresh=True), v, atol=1e-12)


# ------------------------------------------------------------- parts of the rows in parallel

PARALLEL = {
    "rfd": lambda: robustfd.RobustFrequentDirections(6),
    "centred": lambda: robustfd.FrequentDirections(6, center=True),
    "rp": lambda: robustfd.RandomProjectionSketch(6, random_state=0),
    "exact": robustfd.ExactSecondMoment,
}


@pytest.mark.parametrize("name", PARALLEL)
@pytest.mark.parametrize("sparse", [False, True])
def test_parallel_parts_are_merged(name, sparse, monkeypatch):
    monkeypatch.setattr(base, "MIN_ROWS_PER_PART", 100)
    X = np.random.default_rng(0).standard_normal((300, 10))
    x = sp.csr_array(X) if sparse else X
    weight = np.arange(300.0)
    weight[100:200] = 0.0  # one of the three parts has no rows
    sketch = PARALLEL[name]().fit(x, sample_weight=weight, n_jobs=3)
    cuts = [slice(0, 100), slice(200, 300)]
    parts = [part.fit(x[some], sample_weight=weight[some]) for part, some in zip(PARALLEL[name]().split(2), cuts)]
    expected = robustfd.merge(parts)
    np.testing.assert_allclose(sketch.sketch_, expected.sketch_, rtol=1e-9, atol=1e-9)
    assert sketch.n_samples_seen_ == expected.n_samples_seen_ == 199
    assert sketch.get_params() == PARALLEL[name]().get_params()
    assert sketch.fit(x).n_samples_seen_ == 300
    sketch.partial_fit(x)


def test_parallel_fits_refuse_decay_and_bad_numbers_of_jobs():
    X = np.ones((10, 3))
    with pytest.raises(ValueError, match="order of the rows"):
        robustfd.FrequentDirections(3, decay=0.9).fit(X, n_jobs=2)
    with pytest.raises(ValueError, match="n_jobs must be"):
        robustfd.FrequentDirections(3).fit(X, n_jobs=0)
