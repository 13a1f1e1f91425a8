"""The certificate holds with rounding errors included: the true error is computed with 120 decimal digits."""

from __future__ import annotations

import decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

import robustfd
from robustfd.sketch.rows import Rows
from tests.sketch.family import RULES, Ledger

MAKE = {name: rule.make for name, rule in RULES.items()}
MAKE["exact"] = lambda m, buffer_size=None, solver=None, **options: robustfd.ExactSecondMoment(**options)

exactly = np.vectorize(decimal.Decimal, otypes=[object])


class ExactLedger(Ledger):
    """A ledger whose weights decay without rounding."""

    def add(self, X: np.ndarray, weights: Any = None) -> None:
        decay = decimal.Decimal(self.decay)
        for a, w in zip(X, np.ones(len(X)) if weights is None else weights, strict=True):
            self.weights = [decay * u for u in self.weights]
            self.rows.append(a)
            self.weights.append(decimal.Decimal(float(w)))

    def forget(self, factor: float) -> None:
        self.weights = [decimal.Decimal(factor) * u for u in self.weights]

    def scatter(self, center: bool) -> np.ndarray:
        """Return A'A, of the rows minus their mean if centring."""
        X, w = exactly(np.array(self.rows, dtype=float)), np.array(self.weights, dtype=object)
        T = (w[:, None] * X).T @ X
        if center:
            total = w @ X
            T = T - np.outer(total, total) / w.sum()
        return T


def errors(sketch: Any, T: np.ndarray) -> tuple[float, float]:
    """Return the true error in the spectral norm, of the parts or of the matrix, and that of the squared norm."""
    M = sketch.second_moment()
    V, lam = exactly(np.asarray(sketch.components_, dtype=float)), exactly(sketch._view.lam)
    approximation = (lam[:, None] * V).T @ V if len(V) else 0 * T
    extra = sketch.diagonal_ + sketch.alpha0 if hasattr(sketch, "diagonal_") else np.full(len(T), M.alpha)
    approximation = approximation + np.diag(exactly(extra))
    target = T + np.diag(exactly(np.full(len(T), sketch.alpha0)))
    given = [approximation, exactly(M.to_dense().astype(float))]
    off = float(decimal.Decimal(sketch.squared_norm_) - np.trace(T))
    return max(float(np.linalg.norm((target - each).astype(float), 2)) for each in given), abs(off)


def assert_certified(sketch: Any, ledger: ExactLedger, relative: float = 1e-8) -> None:
    """Assert that the certificate holds and that its allowance for rounding is small."""
    with decimal.localcontext(prec=120):
        T = ledger.scatter(sketch.center)
        error, off = errors(sketch, T)
    assert error <= sketch.error_bound_
    rounding = sketch._view.rounding
    assert off <= rounding
    assert rounding <= relative * sketch.squared_norm_
    low, high = sketch.bracket_eigenvalues()
    values = np.linalg.eigvalsh(T.astype(float))[::-1][: len(low)] + sketch.alpha0
    slack = 1e-14 * (values.max(initial=0.0) + float(np.trace(T)))  # of eigvalsh itself
    assert np.all(low <= values + slack) and np.all(values <= high + slack)


def shifting_rows(rng: np.random.Generator, n: int, d: int, shift: float, density: float) -> np.ndarray:
    """Return rows that jump between levels up to `shift` apart. With density < 1, zero entries stay zero."""
    level = np.zeros((n, d))
    for _ in range(int(rng.integers(1, 4))):
        level[int(rng.integers(0, n)) :] = shift * rng.choice([-1.0, 0.0, 0.3, 1.0], d)
    return (level + rng.standard_normal((n, d))) * (rng.random((n, d)) < density)


@given(
    name=st.sampled_from(list(MAKE)),
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(4, 3, 40), (4, 9, 5), (2, 13, 3), (3, 30, 6), (5, 6, 60)]),  # m, d, buffer
    log_shift=st.floats(0, 12),
    decay=st.sampled_from([1.0, 0.999, 0.9, 0.8, 0.5]),
    weighted=st.sampled_from(["no", "any", "first tiny", "last huge"]),
    kind=st.sampled_from(["double", "single", "sparse", "sparse with a full column"]),
    solver=st.sampled_from(["auto", "svd"]),
    center=st.sampled_from([True, True, True, False]),
    parts=st.integers(1, 3),
    alpha0=st.sampled_from([0.0, 1.0, 1e9, 1e20]),
)
@example("FD", 2758, (4, 3, 40), 3.0, 0.999, "last huge", "sparse with a full column", "auto", True, 2, 0.0)
def test_certificate_holds_with_rounding(
    name, seed, shape, log_shift, decay, weighted, kind, solver, center, parts, alpha0
):
    """Level shifts of 1 to 1e12, decays of 0.5 to 1, weights of 1e-12 to 1e12, any rows, batches and merging."""
    rng, (m, d, buffer) = np.random.default_rng(seed), shape
    whole, total = None, None
    for _ in range(parts):
        n = int(rng.integers(1, 120))
        X = shifting_rows(rng, n, d, 10**log_shift, 0.2 if kind.startswith("sparse") else 1.0)
        if kind.endswith("column"):
            X[:, 0] = 10**log_shift + rng.standard_normal(n)
        X = X.astype(np.float32) if kind == "single" else X
        w = np.ones(n)
        if weighted == "any":
            w = 10 ** rng.uniform(-12, 12, n)
        elif weighted != "no":
            w[0 if weighted == "first tiny" else -1] = 1e-12 if weighted == "first tiny" else 1e12
        sketch = MAKE[name](m, buffer_size=buffer, solver=solver, decay=decay, center=center, alpha0=alpha0)
        ledger = ExactLedger(d, decay)
        with decimal.localcontext(prec=120):
            for batch, weights in zip(*(np.array_split(each, min(n, 3)) for each in (X, w)), strict=True):
                sketch.partial_fit(sp.csr_array(batch) if kind.startswith("sparse") else batch, sample_weight=weights)
                ledger.add(batch, weights)
            if whole is None or total is None:
                whole, total = sketch, ledger
            else:
                whole.merge(sketch)
                total.merge(ledger)
    assert_certified(whole, total)


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize(("m", "d", "buffer"), [(20, 5, 200), (4, 24, 12)], ids=["columns", "rows"])
@pytest.mark.parametrize("decay", [0.8, 1.0])
def test_a_level_shift_leaves_no_error(name, m, d, buffer, decay):
    """Regression: after a shift by 1e7, error_bound_ was 0, the true error 2 %, and squared_norm_ 1 % off."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, d))
    X[205:] += 1e7
    sketch, ledger = MAKE[name](m, buffer_size=buffer, center=True, decay=decay).fit(X), ExactLedger(d, decay)
    with decimal.localcontext(prec=120):
        ledger.add(X)
    assert_certified(sketch, ledger, relative=1e-11)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", MAKE)
def test_a_first_row_of_tiny_weight_leaves_no_error(name, sparse):
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((100, 40)) * (rng.random((100, 40)) < 0.1), np.ones(100)
    X[0], w[0] = 0.0, 1e-12
    X[1:, :3] += 1e7
    sketch, ledger = MAKE[name](4, buffer_size=8, center=True), ExactLedger(40)
    sketch.fit(sp.csr_array(X) if sparse else X, sample_weight=w)
    with decimal.localcontext(prec=120):
        ledger.add(X, w)
    assert_certified(sketch, ledger, relative=1e-10)


def test_a_mean_far_away_does_not_drift():
    """With 10,000 rows at 1e12, where an ulp is 1e-4, the mean and the variances are correct to 1e-10."""
    rng = np.random.default_rng(2)
    X = 1e12 + np.round(rng.standard_normal((10_000, 3)) * 2**12) / 2**12  # exactly representable there
    for make in (robustfd.ExactSecondMoment, lambda **options: robustfd.FrequentDirections(6, **options)):
        sketch = make(center=True)
        for batch in np.array_split(X, 100):
            sketch.partial_fit(batch)
        Y = X - 1e12
        np.testing.assert_allclose(sketch.covariance().to_dense(), np.cov(Y.T), atol=1e-10)
        np.testing.assert_array_equal(sketch.mean_, 1e12 + Y.mean(axis=0))


def test_factors_have_the_rounding_errors_of_newer_rows_only():
    """The decay of an old row is accurate to a few ulps per newer row."""
    decay = np.random.default_rng(0).uniform(0.3, 0.9, 300)
    older, factors = Rows(np.zeros((300, 1)), np.ones(300), decay).decay_scales()
    exact = Fraction(1)
    for k, factor in enumerate([*factors[::-1], older]):
        off = abs(float(Fraction(float(factor)) ** 2 / exact - 1))
        assert off <= 4 * (k + 1) * np.finfo(float).eps
        if k < 300:
            exact *= Fraction(float(decay[::-1][k]))
