"""The compiled first-order learners equal their transcriptions, for dense and CSR rows and any batch size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from robustfd.learners import settings as fo
from robustfd.learners.adagrad import AdaGradState
from robustfd.learners.gradient_descent import DescentState
from robustfd.learners.losses import LOSSES
from tests import reference_online as ro
from tests.reference import Array

DOMAINS = {"none": fo.NO_DOMAIN, "slab": fo.SLAB, "ball": fo.BALL}
PROJECTIONS = {"current": fo.CURRENT, "next": fo.NEXT}


def settings(**chosen: Any) -> fo.Settings:
    """Return the default settings of a transcription, updated by the chosen ones."""
    loss, domain, projection = (
        chosen.pop(k, v) for k, v in [("loss", "squared"), ("domain", "slab"), ("projection", "current")]
    )
    start = {"delta": 1.0, "mu": 1 / 8, "rate": 1.0, "power": 1.0, "alpha0": 0.0, "bound": 1.0}
    return fo.Settings(
        loss=LOSSES[loss].code, domain=DOMAINS[domain], projection=PROJECTIONS[projection], **(start | chosen)
    )


def stream(n: int = 120, d: int = 20, seed: int = 0, labels: str = "classes") -> tuple[Array, Array]:
    """Return sparse rows of different lengths, some of them zero or repeated, and noisy labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3) * rng.choice([0.3, 1.0, 3.0], (n, 1))
    X[5], X[6:9] = 0.0, X[4]
    z = X @ rng.standard_normal(d) / 3 + 0.3 * rng.standard_normal(n)
    return X, np.where(z > 0, 1.0, -1.0) if labels == "classes" else np.clip(z, -1, 1)


def rows_in(form: str, X: Array) -> Any:
    """Return the rows in the format of compiled loops, dense or sparse."""
    if form == "dense":
        return np.ascontiguousarray(X)
    S = sparse.csr_array(X)
    return S.data, S.indices.astype(np.int32), S.indptr.astype(np.int64)


def run(core: Any, X: Array, y: Array, form: str, weight: Array | None, batch: int, normal: Any = None) -> Array:
    """Let a learner of the compiled core learn in batches, and return the margins."""
    weight, margins = np.ones(len(y)) if weight is None else weight, np.zeros(len(y))
    for i in range(0, len(y), batch):
        j = slice(i, i + batch)
        more = () if normal is None else (normal[j],)
        assert core.learn(rows_in(form, X[j]), y[j], weight[j], margins[j], None, *more) == len(y[j])
    return margins


def adagrad(X: Array, y: Array, *, form: str = "sparse", weight: Array | None = None, batch: int = 1000, **chosen: Any):
    state = AdaGradState(settings(**chosen), X.shape[1], sparse=form == "sparse")
    margins = run(state.core, X, y, form, weight, batch)
    return state.weights(), margins


def descent(X: Array, y: Array, *, form: str = "sparse", weight: Array | None = None, batch: int = 1000, **chosen: Any):
    state = DescentState(settings(**chosen), X.shape[1], sparse=form == "sparse")
    margins = run(state.core, X, y, form, weight, batch)
    return state.weights(), margins


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("domain", ["none", "slab"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("alpha0", [0.0, 2.0])
def test_adagrad_is_its_transcription(form: str, domain: str, loss: str, alpha0: float) -> None:
    X, y = stream(labels="numbers" if LOSSES[loss].kind == "regression" else "classes")
    weight = np.random.default_rng(1).exponential(size=len(X))
    for projection in PROJECTIONS:
        chosen = {"loss": loss, "domain": domain, "alpha0": alpha0, "projection": projection, "bound": 0.8}
        its = ro.adagrad(X, y, weight=weight, **chosen)
        w, margins = adagrad(X, y, form=form, weight=weight, **chosen)
        np.testing.assert_allclose(margins, its.margins, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(w, its.w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("domain", ["none", "slab", "ball"])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_descent_is_its_transcription(form: str, domain: str, loss: str) -> None:
    X, y = stream(labels="numbers" if LOSSES[loss].kind == "regression" else "classes")
    weight = np.random.default_rng(1).exponential(size=len(X))
    for projection in ["current"] if domain == "ball" else PROJECTIONS:
        for rate, power in [(1.0, 1.0), (0.3, 0.5)]:
            chosen = {"loss": loss, "domain": domain, "projection": projection, "bound": 0.6}
            its = ro.ogd(X, y, weight=weight, rate=lambda t, r=rate, p=power: r / t**p, **chosen)
            w, margins = descent(X, y, form=form, weight=weight, rate=rate, power=power, **chosen)
            scale = np.abs(its.margins).max()
            np.testing.assert_allclose(margins, its.margins, rtol=1e-8, atol=1e-11 * scale)
            np.testing.assert_allclose(w, its.w, rtol=1e-8, atol=1e-11 * scale)


@pytest.mark.parametrize("learner", [adagrad, descent])
@pytest.mark.parametrize("domain", ["none", "slab", "ball"])
def test_batches_do_not_matter(learner: Any, domain: str) -> None:
    if learner is adagrad and domain == "ball":
        pytest.skip("AdaGrad does not support a ball")
    X, y = stream()
    w, margins = learner(X, y, domain=domain)
    for batch in (1, 7):
        again = learner(X, y, domain=domain, batch=batch)
        assert np.array_equal(again[0], w) and np.array_equal(again[1], margins)


def test_weights_stay_in_the_ball_on_long_streams() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20_000, 3))
    w, margins = descent(X, rng.choice([-1.0, 1.0], len(X)), domain="ball", bound=0.05, rate=10.0, power=0.25)
    assert np.linalg.norm(w) <= 0.05 * (1 + 1e-12)
    assert np.all(np.abs(margins) <= 0.05 * np.linalg.norm(X, axis=1) * (1 + 1e-9))


def test_adagrad_refuses_a_ball() -> None:
    X, y = stream()
    with pytest.raises(ValueError, match="cannot project onto a ball"):
        adagrad(X, y, domain="ball")


@pytest.mark.parametrize("kind", [AdaGradState, DescentState])
def test_overflow_is_reported(kind: Any) -> None:
    X, y = np.full((50, 2), 1e160), np.ones(50)
    state = kind(settings(domain="none", alpha0=0.0 if kind is AdaGradState else 1.0), 2, sparse=False)
    if kind is AdaGradState:
        X = X / 1e10  # its steps are at most 1, so the weights start from large values
        state.arrays["w"][:] = 1e200
    state.begin()
    assert state.learn(X, y, np.ones(50), np.zeros(50), None) < 50
    assert state.core.extreme
    state.rollback()
    assert np.isfinite(state.weights()).all()


def test_adagrad_gives_the_accuracy_of_the_paper(a9a) -> None:
    """Luo et al. 2019, Table 2: 83.4783 % for ADAGRAD on a9a."""
    X, y = a9a
    n = int(0.7 * X.shape[0])
    state = AdaGradState(settings(alpha0=1e6), 123, sparse=True)
    run(state.core, X[:n], y[:n], "sparse", None, n)
    assert 100 * np.mean((X[n:] @ state.weights() > 0) == (y[n:] > 0)) == pytest.approx(83.4783, abs=5e-5)
