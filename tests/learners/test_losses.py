"""A loss is convex, its slope is its derivative, and its curvature is the largest that Assumption 2 allows."""

from __future__ import annotations

import numpy as np
import pytest

from robustfd.learners.losses import LOSSES, Loss, loss_slope, loss_value
from tests import reference_online as ro

NAMES = list(LOSSES)
DELTA = 0.7
KINKED = {"hinge": 1.0, "absolute": 0.0}


def values(loss: Loss, p: np.ndarray, y: np.ndarray, delta: float = DELTA) -> np.ndarray:
    return np.vectorize(lambda p, y: loss_value(loss.code, p, y, delta))(p, y)


def slopes(loss: Loss, p: np.ndarray, y: np.ndarray, delta: float = DELTA) -> np.ndarray:
    return np.vectorize(lambda p, y: loss_slope(loss.code, p, y, delta))(p, y)


def labels(loss: Loss, bound: float, n: int) -> np.ndarray:
    return np.array([-1.0, 1.0]) if loss.kind == "classification" else np.linspace(-bound, bound, n)


@pytest.mark.parametrize("name", NAMES)
def test_value_and_slope_are_those_of_the_formulas(name: str) -> None:
    value, slope = ro.huber(DELTA) if name == "huber" else ro.LOSSES[name]
    p, y = np.meshgrid(np.linspace(-3, 3, 61), labels(LOSSES[name], 2.0, 9))
    assert values(LOSSES[name], p, y) == pytest.approx(value(p, y), rel=1e-13, abs=1e-15)
    assert slopes(LOSSES[name], p, y) == pytest.approx(slope(p, y), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_slope_is_the_derivative(name: str) -> None:
    loss, h = LOSSES[name], 1e-6
    p, y = np.meshgrid(np.linspace(-2.9, 3.1, 44), labels(loss, 2.0, 7))
    numeric = (values(loss, p + h, y) - values(loss, p - h, y)) / (2 * h)
    smooth = np.ones(p.shape, dtype=bool)
    if name in KINKED:
        smooth = np.abs((y * p if name == "hinge" else p - y) - KINKED[name]) > 2 * h
    assert slopes(loss, p, y)[smooth] == pytest.approx(numeric[smooth], abs=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_is_convex_and_lies_above_its_tangents(name: str) -> None:
    loss = LOSSES[name]
    p = np.linspace(-3, 3, 49)  # the grid contains the kinks 1, -1 and 0
    for y in labels(loss, 2.0, 5):
        value, slope = values(loss, p, y), slopes(loss, p, y)
        assert np.all(value >= 0)
        assert np.all(np.diff(slope) >= -1e-15)
        assert np.all(value[None] >= value[:, None] + slope[:, None] * (p[None] - p[:, None]) - 1e-13)


@pytest.mark.parametrize("name", KINKED)
def test_subgradient_at_a_kink_is_zero(name: str) -> None:
    y = 1.0
    p = 1.0 if name == "hinge" else y
    assert loss_slope(LOSSES[name].code, p, y, DELTA) == 0


def smallest_ratio(loss: Loss, bound: float, labels_bound: float, delta: float) -> float:
    """Return the minimum of 2 (l(q) - l(p) - l'(p)(q - p)) / (l'(p)(q - p))^2 on a grid."""
    grid = np.linspace(-bound, bound, 81)
    least = np.inf
    for y in labels(loss, labels_bound, 9):
        value, slope = values(loss, grid, y, delta), slopes(loss, grid, y, delta)
        step = slope[:, None] * (grid[None] - grid[:, None])
        above = value[None] - value[:, None] - step
        moved = np.abs(step) > 1e-9
        least = min(least, float(np.min(2 * above[moved] / step[moved] ** 2, initial=np.inf)))
    return least


@pytest.mark.parametrize("bound", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("name", NAMES)
def test_curvature_is_valid_and_nearly_the_largest(name: str, bound: float) -> None:
    loss = LOSSES[name]
    for labels_bound in (bound, 0.5):
        for delta in (0.2, 10.0):
            mu = loss.curvature(bound, labels_bound=labels_bound, delta=delta)
            least = smallest_ratio(loss, bound, labels_bound, delta)
            assert mu <= least + 1e-9  # valid
            assert (
                mu >= least / (1 + bound / 10) - 1e-9
            )  # the worst pair of the logistic loss is p = q, which is not on the grid


def test_curvature_of_the_paper() -> None:
    for C in (0.5, 1.0, 3.0):
        assert LOSSES["squared"].curvature(C) == pytest.approx(1 / (8 * C**2))
    assert LOSSES["hinge"].curvature(1.0) == LOSSES["absolute"].curvature(1.0) == LOSSES["huber"].curvature(1.0) == 0


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows(name: str) -> None:
    loss = LOSSES[name]
    for p in (-1e300, -800.0, -1e-300, 0.0, 1e-300, 800.0, 1e300):
        for y in (-1.0, 1.0):
            slope = loss_slope(loss.code, p, y, 1.0)
            value = loss_value(loss.code, p, y, 1.0)
            assert np.isfinite(slope) and not np.isnan(value)
            # the square of 1e300 overflows float64, every other value is finite
            assert np.isfinite(value) or (abs(p) == 1e300 and name in ("squared", "squared_hinge"))
    assert 0 <= loss.curvature(1e300) < 1e-300
    assert loss.curvature(np.inf) == 0


def test_logistic_keeps_its_digits_far_out() -> None:
    code = LOSSES["logistic"].code
    assert loss_value(code, 50.0, 1.0, 1.0) == pytest.approx(np.exp(-50), rel=1e-13)
    assert loss_slope(code, 50.0, 1.0, 1.0) == pytest.approx(-np.exp(-50), rel=1e-13)
    assert loss_value(code, -1e5, 1.0, 1.0) == 1e5
    assert loss_slope(code, -1e5, 1.0, 1.0) == -1


@pytest.mark.parametrize(
    "wrong", [{"bound": 0.0}, {"bound": 1.0, "labels_bound": -1.0}, {"bound": 1.0, "delta": np.nan}]
)
def test_wrong_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="bound and delta must be positive"):
        LOSSES["squared"].curvature(wrong.pop("bound"), **wrong)


def test_names_codes_and_kinds() -> None:
    assert [loss.code for loss in LOSSES.values()] == list(range(6))
    assert all(name == loss.name for name, loss in LOSSES.items())
    assert {loss.kind for loss in LOSSES.values()} == {"classification", "regression", "both"}
