"""The compiled RP-SON and Oja-SON equal their transcriptions, for dense and CSR rows and any batch size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from robustfd._core import solve_projection
from robustfd.learners.losses import LOSSES
from robustfd.learners.oja import OjaState
from robustfd.learners.random_projection import ProjectionState
from tests import reference_online as ro
from tests.learners.test_first_order import PROJECTIONS, run, settings, stream
from tests.reference import Array

M = 4


class Trained(NamedTuple):
    w: Array
    margins: Array
    B: Array


def normals(n: int, seed: int = 7) -> Array:
    return np.random.default_rng(seed).standard_normal((n, M))


def start(d: int, seed: int = 7, m: int = M) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, m)))[0].T


def projection(
    X: Array, y: Array, *, form: str = "sparse", weight: Any = None, batch: int = 10**6, **chosen: Any
) -> Trained:
    state = ProjectionState(settings(**chosen), X.shape[1], M, np.random.default_rng(), sparse=form == "sparse")
    margins = run(state.core, X, y, form, weight, batch, normals(len(X)))
    return Trained(state.weights(), margins, state.arrays["bt"].T.copy())


def oja(
    X: Array, y: Array, *, form: str = "sparse", weight: Any = None, batch: int = 10**6, m: int = M, **chosen: Any
) -> Trained:
    state = OjaState(settings(**chosen), X.shape[1], m, np.random.default_rng(), sparse=form == "sparse")
    state.arrays["yt"][:] = start(X.shape[1], m=m).T
    margins = run(state.core, X, y, form, weight, batch)
    arrays = state.arrays
    return Trained(state.weights(), margins, np.sqrt(arrays["energy"])[:, None] * (arrays["f"] @ arrays["yt"].T))


def transcription(learner: Any, X: Array, y: Array, **options: Any) -> ro.Run:
    if learner is projection:
        return ro.rp_son(X, y, normals(len(X)), **options)
    return ro.oja_son(X, y, start(X.shape[1]), **options)


def assert_equal(trained: Trained, it: ro.Run) -> None:
    for mine, its in [(trained.margins, it.margins), (trained.w, it.w), (trained.B, it.B)]:
        atol = 1e-13 * max(it.condition, 1e3) * max(1.0, np.abs(its).max())
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=atol)


LEARNERS = pytest.mark.parametrize("learner", [projection, oja])


def rows(n: int = 120, d: int = 20, seed: int = 0, labels: str = "classes") -> tuple[Array, Array]:
    """Return the stream with rows of about unit length; with longer rows and a small alpha0 the learners diverge."""
    X, y = stream(n, d, seed, labels)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.sqrt(np.maximum(length, 1e-300)) / np.sqrt(length.max()), y


@LEARNERS
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("domain", ["none", "slab"])
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_is_the_transcription(learner: Any, form: str, domain: str, loss: str) -> None:
    X, y = rows(labels="numbers" if LOSSES[loss].kind == "regression" else "classes")
    weight = np.random.default_rng(1).exponential(size=len(X))
    for which in PROJECTIONS:
        for alpha0 in (0.7, 10.0):
            chosen = {"loss": loss, "domain": domain, "alpha0": alpha0, "projection": which, "bound": 0.5}
            it = transcription(learner, X, y, weight=weight, **chosen)
            assert np.abs(it.margins).max() < 20
            assert_equal(learner(X, y, form=form, weight=weight, **chosen), it)


@LEARNERS
@pytest.mark.parametrize("seed", range(4))
def test_pseudo_inverse_when_alpha0_is_zero(learner: Any, seed: int) -> None:
    """Every margin is projected, since these learners diverge without projection when alpha0 = 0."""
    X, y = rows(40, seed=seed)
    it = transcription(learner, X, y, projection="next")
    assert_equal(learner(X, y, projection="next"), it)
    first = transcription(learner, X[:3], y[:3])
    assert_equal(learner(X[:3], y[:3]), first)


@pytest.mark.parametrize("rank", [0, 1, 3, M])
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 5.0])
def test_solutions_are_those_of_the_explicit_matrix(rank: int, alpha: float) -> None:
    rng = np.random.default_rng(rank)
    for inside in (False, True):
        B = rng.standard_normal((M, rank)) @ rng.standard_normal((rank, 9)) * [[1.0], [1e-4], [10.0], [1.0]]
        x = rng.standard_normal(M) @ B if inside and rank else rng.standard_normal(9)
        coef_x, coef_b, kappa, outside_b, n0 = solve_projection(alpha, B @ B.T, B @ x, x @ x)
        stack = np.vstack([B, np.sqrt(alpha) * np.eye(9)])  # H = stack' stack, more accurate than H itself
        inverse = np.linalg.pinv(stack, rcond=1e-10)
        expected = inverse @ (inverse.T @ x)
        scale = np.abs(expected).max()
        assert coef_x * x + B.T @ coef_b == pytest.approx(expected, rel=1e-6, abs=1e-9 * scale)
        assert kappa == pytest.approx(x @ expected, rel=1e-6)
        if alpha == 0:
            x0 = x - np.linalg.pinv(B, rcond=1e-9) @ B @ x
            assert x - B.T @ outside_b == pytest.approx(x0, abs=1e-7 * np.abs(x).max())
            assert n0 == pytest.approx(0.0 if inside and rank else x0 @ x0, rel=1e-6)
        else:
            assert n0 == 0


@LEARNERS
@pytest.mark.parametrize("alpha0", [0.0, 1.0])
def test_batches_do_not_matter(learner: Any, alpha0: float) -> None:
    X, y = rows()
    whole = learner(X, y, alpha0=alpha0, projection="next")
    for batch in (1, 7):
        again = learner(X, y, alpha0=alpha0, batch=batch, projection="next")
        assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))


@LEARNERS
def test_long_streams_do_not_drift(learner: Any) -> None:
    X, y = rows(2500, d=6, seed=3)
    it = transcription(learner, X, y, alpha0=2.0)
    assert_equal(learner(X, y, alpha0=2.0), it)


@pytest.mark.parametrize("scale", [1e-3, 10.0, 1e3])
def test_directions_of_oja_stay_orthonormal_at_any_scale(scale: float) -> None:
    X, y = rows(300, seed=2)
    it = ro.oja_son(scale * X, y, start(20), alpha0=10 * scale**2)
    trained = oja(scale * X, y, alpha0=10 * scale**2)
    gram, energy = trained.B @ trained.B.T, (trained.B**2).sum(1)
    assert np.abs(gram / np.sqrt(np.outer(energy, energy)) - np.eye(M)).max() < 1e-11
    np.testing.assert_allclose(trained.margins, it.margins, rtol=1e-6, atol=1e-8)


@LEARNERS
def test_zero_rows_change_nothing_but_the_count(learner: Any) -> None:
    X, y = rows(30)
    X[10:20] = 0.0
    for alpha0 in (0.0, 1.0):
        it = transcription(learner, X, y, alpha0=alpha0, projection="next")
        assert_equal(learner(X, y, alpha0=alpha0, projection="next"), it)
    nothing = learner(0 * X, y)
    assert not nothing.w.any() and not nothing.margins.any()


def test_as_many_directions_as_columns() -> None:
    X, y = rows(60, d=3)
    assert_equal(oja(X, y, m=3, alpha0=1.0), ro.oja_son(X, y, start(3, m=3), alpha0=1.0))


@pytest.mark.parametrize("kind", [ProjectionState, OjaState])
def test_overflow_is_reported(kind: Any) -> None:
    X, y = np.full((50, 2), 1e200), np.ones(50)
    state = kind(settings(domain="none", alpha0=1.0), 2, M, np.random.default_rng(0), sparse=False)
    assert state.learn(X, y, np.ones(50), np.zeros(50), None) < 50


@LEARNERS
def test_a_ball_is_refused(learner: Any) -> None:
    X, y = rows(10)
    with pytest.raises(ValueError, match="cannot project onto a ball"):
        learner(X, y, domain="ball")
