"""Every algorithm equals its transcription in tests/reference.py, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import robustfd
from tests import reference as ref
from tests.sketch.family import RULES, Rule

M = 5
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
every_buffer = pytest.mark.parametrize("L", [M, 2 * M, 3 * M])
dense_and_sparse = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alpha0": {"alpha0": 3.0},
    "decay": {"decay": 0.95},
    "centred": {"center": True},
    "centred decay": {"center": True, "decay": 0.9, "alpha0": 0.5},
}
every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def stream(sparse: bool, n: int = 73, seed: int = 0) -> np.ndarray:
    """Return rows for the dense code path or for that of wide sparse rows (more than 4 L columns)."""
    rng = np.random.default_rng(seed)
    if not sparse:
        return rng.standard_normal((n, 11)) / np.arange(1, 12) + 0.1
    return rng.standard_normal((n, 12 * M + 10)) * (rng.random((n, 12 * M + 10)) < 0.06)


def given_as(X: np.ndarray, sparse: bool) -> Any:
    return sp.csr_array(X) if sparse else X


def assert_equals_transcription(rule: Rule, sketch: Any, expected: ref.Result) -> None:
    """Compare the read-out of a sketch with that of a transcription that has not been read yet."""
    out = ref.compensate(expected) if rule.compensated else ref.final(expected)
    tol = 1e-11 * max(1.0, expected.squared_norm)
    np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, out.B.T @ out.B, atol=tol)
    np.testing.assert_allclose(rule.delta(sketch), out.Delta, atol=tol)
    np.testing.assert_allclose(sketch.alpha_, out.alpha, atol=tol)
    np.testing.assert_allclose(sketch.squared_norm_, out.squared_norm, atol=tol)
    np.testing.assert_allclose(sketch.weight_sum_, out.weight, rtol=1e-12)
    if out.mean is not None:
        np.testing.assert_allclose(sketch.mean_, out.mean, atol=1e-13)
    if rule.diagonal:
        np.testing.assert_allclose(sketch.diagonal_, out.R, atol=tol)
        np.testing.assert_allclose(sketch.error_bound_, ref.diagonal_error_bound(out.R, out.Delta), atol=tol)


@every_rule
@every_buffer
@every_variant
@dense_and_sparse
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_sketch_equals_its_transcription(rule: Rule, L, options, sparse, weighted):
    X = stream(sparse, seed=weighted)
    weights = np.random.default_rng(2).choice([0.0, 0.25, 1.0, 7.5], len(X)) if weighted else np.ones(len(X))
    weights[0] = 1.0  # first rows without any weight are refused
    expected = rule.transcription(X, M, L, weights=weights, **options)
    for solver in ("auto", "svd"):
        sketch = rule.make(M, buffer_size=L, solver=solver, **options)
        for k in np.split(np.arange(len(X)), [1, 2, 30]):
            sketch.partial_fit(given_as(X[k], sparse), sample_weight=weights[k])
        assert_equals_transcription(rule, sketch, expected)


@every_rule
@every_buffer
@dense_and_sparse
@pytest.mark.parametrize("n", [1, M, 2 * M, 4 * M - 2])
def test_first_shrinks_come_at_the_same_rows_as_in_the_transcription(rule: Rule, L, n, sparse):
    X = stream(sparse, n=n, seed=3)
    assert_equals_transcription(rule, rule.make(M, buffer_size=L).fit(given_as(X, sparse)), rule.transcription(X, M, L))


@every_rule
@every_buffer
@every_variant
@dense_and_sparse
def test_merging_and_continuing_equals_its_transcription(rule: Rule, L, options, sparse):
    X, Y, Z = (stream(sparse, n, seed) for seed, n in ((4, 40), (5, 31), (6, 50)))
    one, two = (rule.make(M, buffer_size=L, **options).fit(given_as(part, sparse)) for part in (X, Y))
    one.forget(0.5)
    expected = ref.merge(
        ref.forget(rule.transcription(X, M, L, **options), 0.5), rule.transcription(Y, M, L, **options)
    )
    one.merge(two)
    one.partial_fit(given_as(Z, sparse))
    assert_equals_transcription(rule, one, rule.transcription(Z, M, L, start=expected, **options))


@every_rule
@dense_and_sparse
@pytest.mark.parametrize("center", [False, True])
def test_explicit_forgetting_equals_its_transcription(rule: Rule, sparse, center):
    X, Y = stream(sparse, 37, seed=7), stream(sparse, 52, seed=8)
    sketch = rule.make(M, center=center).fit(given_as(X, sparse)).forget(0.3).forget(0.9)
    expected = ref.forget(rule.transcription(X, M, 2 * M, center=center), 0.27)
    assert_equals_transcription(rule, sketch, expected)
    sketch.partial_fit(given_as(Y, sparse))
    assert_equals_transcription(rule, sketch, rule.transcription(Y, M, 2 * M, start=expected, center=center))


@every_rule
@dense_and_sparse
def test_rank_deficient_rows_do_not_move_later_shrinks(rule: Rule, sparse):
    """After a shrink step B counts as m - 1 rows, including zero rows, so the next one follows L - m + 1 rows later."""
    X = stream(sparse, 60, seed=9)
    X[:20] = X[0]
    sketch = rule.make(M).fit(given_as(X, sparse))
    assert_equals_transcription(rule, sketch, rule.transcription(X, M, 2 * M))


def test_parameterized_with_one_shrunk_value_is_greedy():
    X = stream(False)
    pfd, greedy = robustfd.ParameterizedFrequentDirections(5, beta=0.2).fit(X), robustfd.GreedySketch(5).fit(X)
    np.testing.assert_array_equal(pfd.sketch_, greedy.sketch_)
    assert pfd.error_bound_ == greedy.error_bound_


def test_parameterized_rounds_beta_m_as_intended():
    """0.29 * 100 is 28.99... in floating point: 29 values shrink."""
    X = np.random.default_rng(10).standard_normal((220, 130))
    sketch = robustfd.ParameterizedFrequentDirections(100, beta=0.29, buffer_size=100).fit(X[:101])
    expected = ref.final(ref.parameterized_frequent_directions(X[:101], 100, 100, beta=0.29))
    np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, expected.B.T @ expected.B, atol=1e-9)
    assert ref.n_shrunk(0.29, 100) == 29


@every_variant
@dense_and_sparse
@pytest.mark.parametrize("weighted", [False, True])
def test_oja_equals_its_transcription(options, sparse, weighted):
    X = 0.5 * stream(sparse, 150, seed=11)
    weights = np.random.default_rng(12).choice([0.0, 0.5, 2.0], len(X)) if weighted else np.ones(len(X))
    weights[0] = 1.0  # first rows without any weight are refused
    sketch = robustfd.OjaSketch(M, random_state=0, **options)
    start = robustfd.OjaSketch(M, random_state=0, **options)._start(X.shape[1]).vt.T
    np.testing.assert_allclose(start @ start.T, np.eye(M), atol=1e-14)
    for k in (slice(0, 1), slice(1, 100), slice(100, 150)):
        sketch.partial_fit(given_as(X[k], sparse), sample_weight=weights[k])
    loop = {key: value for key, value in options.items() if key != "alpha0"}
    expected = ref.oja(X, start, weights, **loop)
    np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, expected.B.T @ expected.B, atol=1e-9)
    assert sketch.alpha_ == options.get("alpha0", 0.0)
    np.testing.assert_allclose(sketch.squared_norm_, np.trace(ref.target(X, weights, **loop)), rtol=1e-11)


@every_variant
@dense_and_sparse
@pytest.mark.parametrize("weighted", [False, True])
def test_random_projection_equals_its_transcription(options, sparse, weighted, monkeypatch):
    """The random numbers are recorded. Row t of R belongs to the t-th row of positive weight."""
    drawn = []

    class Recorded:
        def __init__(self, bits):
            self.generator = np.random.default_rng(bits)

        def standard_normal(self, size):
            drawn.append(self.generator.standard_normal(size))
            return drawn[-1]

    X = stream(sparse, 600, seed=13)
    weights = np.random.default_rng(14).choice([0.0, 0.5, 2.0], len(X)) if weighted else np.ones(len(X))
    weights[0] = 1.0  # first rows without any weight are refused
    sketch = robustfd.RandomProjectionSketch(M, random_state=0, **options)
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "Generator", Recorded)
        for k in (slice(0, 1), slice(1, 100), slice(100, 600)):
            sketch.partial_fit(given_as(X[k], sparse), sample_weight=weights[k])
    R = np.concatenate(drawn)
    assert R.shape == (np.count_nonzero(weights), M)
    loop = {key: value for key, value in options.items() if key != "alpha0"}
    B = ref.random_projection(X, R, weights, **loop)
    np.testing.assert_allclose(sketch.sketch_.T @ sketch.sketch_, B.T @ B, atol=1e-11 * sketch.squared_norm_)
    assert abs(R.mean()) < 0.1
    assert abs(R.std() - 1) < 0.1


def test_random_projections_of_parts_merge_to_a_projection_of_the_whole():
    """Unbiased: the mean of B'B over many merged pairs is A'A."""
    X = stream(False, 30, seed=15)
    total = np.zeros((11, 11))
    for seed in range(200):
        one = robustfd.RandomProjectionSketch(20, random_state=2 * seed, center=True).fit(X[:12])
        two = robustfd.RandomProjectionSketch(20, random_state=2 * seed + 1, center=True).fit(X[12:])
        total += (one + two).second_moment().to_dense() / 200
    T = ref.target(X, center=True)
    assert np.linalg.norm(total - T, 2) <= 0.1 * np.linalg.norm(T, 2)
