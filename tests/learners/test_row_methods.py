"""The compiled methods without blocks equal their transcriptions, for dense and CSR rows and any batch size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from robustfd._core import solve_projection
from robustfd.learners import states
from robustfd.learners.losses import LOSSES
from robustfd.learners.newton import PROJECTIONS
from tests import reference_online as ro
from tests.reference import Array

M = 4
STATES = {
    "adagrad": states.AdaGradState,
    "descent": states.DescentState,
    "rp": states.ProjectionState,
    "oja": states.OjaState,
}
FIRST_ORDER, RANDOM = (pytest.mark.parametrize("method", each) for each in (["adagrad", "descent"], ["rp", "oja"]))
FORMS = pytest.mark.parametrize("form", ["dense", "sparse"])
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES)
EVERY_PROJECTION = pytest.mark.parametrize("projection", PROJECTIONS)


class Trained(NamedTuple):
    w: Array
    margins: Array
    B: Array | None  # of RP-SON and Oja-SON


def settings(*, loss: str = "squared", projection: str | None = "current", **chosen: Any) -> states.Settings:
    """Return the default settings of a transcription, updated by the chosen ones."""
    start = {"delta": 1.0, "mu": 1 / 8, "rate": 1.0, "power": 1.0, "alpha0": 0.0, "bound": 1.0}
    return states.Settings(loss=LOSSES[loss].code, projection=PROJECTIONS[projection], **(start | chosen))


def normals(n: int) -> Array:
    return np.random.default_rng(7).standard_normal((n, M))


def directions(d: int, m: int = M) -> Array:
    return np.linalg.qr(np.random.default_rng(7).standard_normal((d, m)))[0].T


def rows_in(form: str, X: Array) -> Any:
    """Return the rows in the format of compiled loops, dense or sparse."""
    if form == "dense":
        return np.ascontiguousarray(X)
    S = sparse.csr_array(X)
    return S.data, S.indices.astype(np.int32), S.indptr.astype(np.int64)


def train(
    method: str, X: Array, y: Array, *, form: str = "sparse", weight: Any = None, batch: int = 10**6, m: int = M,
    **chosen: Any,
) -> Trained:  # fmt: skip
    """Let a learner of the compiled core learn in batches."""
    sizes = (X.shape[1], m if method in ("rp", "oja") else 0)
    state = STATES[method](settings(**chosen), *sizes, sparse=form == "sparse")
    if method == "oja":
        state.arrays["yt"][:] = directions(X.shape[1], m).T
    weight, margins, normal = np.ones(len(y)) if weight is None else weight, np.zeros(len(y)), normals(len(y))
    for i in range(0, len(y), batch):
        j = slice(i, i + batch)
        more = (normal[j],) if method == "rp" else ()
        assert state.core.learn(rows_in(form, X[j]), y[j], weight[j], margins[j], None, *more) == len(y[j])
    arrays, B = state.arrays, None
    if method == "rp":
        B = arrays["bt"].T.copy()
    elif method == "oja":
        B = np.sqrt(arrays["energy"])[:, None] * (arrays["f"] @ arrays["yt"].T)
    return Trained(state.weights(), margins, B)


def transcribed(method: str, X: Array, y: Array, *, projection: str | None = "current", **options: Any) -> ro.Run:
    options |= {"projection": projection, "domain": "slab" if projection else "none"}
    if method == "rp":
        return ro.rp_son(X, y, normals(len(X)), **options)
    if method == "oja":
        return ro.oja_son(X, y, directions(X.shape[1]), **options)
    return {"adagrad": ro.adagrad, "descent": ro.ogd}[method](X, y, **options)


def assert_equal(trained: Trained, it: ro.Run) -> None:
    for mine, its in [(trained.margins, it.margins), (trained.w, it.w), (trained.B, it.B)]:
        atol = 1e-13 * max(it.condition, 1e3) * max(1.0, np.abs(its).max())
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=atol)


def stream(n: int = 120, d: int = 20, seed: int = 0, loss: str = "squared_hinge") -> tuple[Array, Array]:
    """Return sparse rows of different lengths, some of them zero or repeated, and noisy labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3) * rng.choice([0.3, 1.0, 3.0], (n, 1))
    X[5], X[6:9] = 0.0, X[4]
    z = X @ rng.standard_normal(d) / 3 + 0.3 * rng.standard_normal(n)
    return X, np.clip(z, -1, 1) if LOSSES[loss].kind == "regression" else np.where(z > 0, 1.0, -1.0)


def short_rows(*args: Any, **options: Any) -> tuple[Array, Array]:
    """Return the stream with rows of about unit length; with longer rows and a small alpha0 the learners diverge."""
    X, y = stream(*args, **options)
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.sqrt(np.maximum(length, 1e-300)) / np.sqrt(length.max()), y


# -- the transcriptions


@FORMS
@EVERY_PROJECTION
@EVERY_LOSS
@FIRST_ORDER
def test_first_order_methods_are_their_transcriptions(method: str, loss: str, projection: str, form: str) -> None:
    X, y = stream(loss=loss)
    chosen = {"weight": np.random.default_rng(1).exponential(size=len(X)), "loss": loss, "projection": projection}
    if method == "adagrad":
        cases = [({"alpha0": alpha0}, {"alpha0": alpha0}) for alpha0 in (0.0, 2.0)]
    else:
        cases = [({"rate": r, "power": p}, {"rate": lambda t, r=r, p=p: r / t**p}) for r, p in [(1.0, 1.0), (0.3, 0.5)]]
    for mine, its in cases:
        it = transcribed(method, X, y, bound=0.6, **chosen, **its)
        trained = train(method, X, y, form=form, bound=0.6, **chosen, **mine)
        atol = 1e-11 * max(1.0, np.abs(it.margins).max())
        np.testing.assert_allclose(trained.margins, it.margins, rtol=1e-8, atol=atol)
        np.testing.assert_allclose(trained.w, it.w, rtol=1e-8, atol=atol)


@FORMS
@EVERY_PROJECTION
@EVERY_LOSS
@RANDOM
def test_random_sketches_are_their_transcriptions(method: str, loss: str, projection: str, form: str) -> None:
    X, y = short_rows(loss=loss)
    weight = np.random.default_rng(1).exponential(size=len(X))
    for alpha0 in (0.7, 10.0):
        chosen = {"loss": loss, "alpha0": alpha0, "projection": projection, "bound": 0.5, "weight": weight}
        it = transcribed(method, X, y, **chosen)
        assert np.abs(it.margins).max() < 20
        assert_equal(train(method, X, y, form=form, **chosen), it)


@RANDOM
@pytest.mark.parametrize("seed", range(4))
def test_pseudo_inverse_when_alpha0_is_zero(method: str, seed: int) -> None:
    """Every margin is projected, since these learners diverge without projection when alpha0 = 0."""
    X, y = short_rows(40, seed=seed)
    assert_equal(train(method, X, y, projection="next"), transcribed(method, X, y, projection="next"))
    assert_equal(train(method, X[:3], y[:3]), transcribed(method, X[:3], y[:3]))


@RANDOM
def test_long_streams_do_not_drift(method: str) -> None:
    X, y = short_rows(2500, d=6, seed=3)
    assert_equal(train(method, X, y, alpha0=2.0), transcribed(method, X, y, alpha0=2.0))


@RANDOM
def test_zero_rows_change_nothing_but_the_count(method: str) -> None:
    X, y = short_rows(30)
    X[10:20] = 0.0
    for alpha0 in (0.0, 1.0):
        chosen = {"alpha0": alpha0, "projection": "next"}
        assert_equal(train(method, X, y, **chosen), transcribed(method, X, y, **chosen))
    nothing = train(method, 0 * X, y)
    assert not nothing.w.any() and not nothing.margins.any()


def test_as_many_directions_as_columns() -> None:
    X, y = short_rows(60, d=3)
    assert_equal(train("oja", X, y, m=3, alpha0=1.0), ro.oja_son(X, y, directions(3, 3), alpha0=1.0))


@pytest.mark.parametrize("scale", [1e-3, 10.0, 1e3])
def test_directions_of_oja_stay_orthonormal_at_any_scale(scale: float) -> None:
    X, y = short_rows(300, seed=2)
    it = ro.oja_son(scale * X, y, directions(20), alpha0=10 * scale**2)
    trained = train("oja", scale * X, y, alpha0=10 * scale**2)
    gram, energy = trained.B @ trained.B.T, (trained.B**2).sum(1)
    assert np.abs(gram / np.sqrt(np.outer(energy, energy)) - np.eye(M)).max() < 1e-11
    np.testing.assert_allclose(trained.margins, it.margins, rtol=1e-6, atol=1e-8)


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


# -- all methods


@pytest.mark.parametrize("method", STATES)
@pytest.mark.parametrize("projection", ["next", "current", None])
def test_batches_make_no_difference_to_the_last_bit(method: str, projection: str | None) -> None:
    X, y = short_rows()
    whole = train(method, X, y, alpha0=1.0, projection=projection)
    for batch in (1, 7):
        again = train(method, X, y, alpha0=1.0, projection=projection, batch=batch)
        assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))


@pytest.mark.parametrize("method", STATES)
def test_overflow_is_reported_and_reverted(method: str) -> None:
    X, y = np.full((50, 5), 1e160), np.ones(50)
    alpha0 = 0.0 if method == "adagrad" else 1.0
    sizes = (5, M) if method in ("rp", "oja") else (5,)
    state = STATES[method](settings(projection=None, alpha0=alpha0), *sizes, sparse=False)
    if method == "adagrad":
        X = X / 1e10  # its steps are at most 1, so the weights start from large values
        state.arrays["w"][:] = 1e200
    before = {name: array.copy() for name, array in state.arrays.items()}
    state.begin()
    assert state.learn(X, y, np.ones(50), np.zeros(50), None) < 50
    assert state.core.extreme
    state.rollback()
    assert all(np.array_equal(array, before[name]) for name, array in state.arrays.items())
