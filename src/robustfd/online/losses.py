"""Losses of a linear model: value and slope in the margin p = w'x, and the curvature mu of the regret bounds.

Compiled functions receive the loss as an integer code, because numba cannot cache functions with function arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log1p
from typing import Any, Literal

from robustfd._compile import entry, loops

# Within this distance of a kink the slope is 0. A projection often puts a margin exactly on the label or on the edge of
# the hinge. Rounding error must not decide between the slopes on the two sides.
KINK = 1e-9

SQUARED, LOGISTIC, SQUARED_HINGE, HINGE, ABSOLUTE, HUBER = range(6)


@entry
@loops
def loss_value(code: int, p: float, y: float, delta: float) -> float:
    """Return l(p) for the label y; `delta` is the threshold of the Huber loss, ignored by the others."""
    if code == LOGISTIC:
        z = y * p
        return log1p(exp(-z)) if z > 0.0 else log1p(exp(z)) - z
    if code in (HINGE, SQUARED_HINGE):
        short = max(0.0, 1.0 - y * p)
        return short if code == HINGE else short * short
    r = abs(p - y)
    if code == ABSOLUTE:
        return r
    if code == HUBER and r > delta:
        return delta * (2.0 * r - delta)
    return r * r


@entry
@loops
def loss_slope(code: int, p: float, y: float, delta: float) -> float:
    """Return l'(p) for the label y; within KINK of a kink (hinge, absolute) return the subgradient 0."""
    if code == LOGISTIC:
        z = y * p
        # exp is applied to negative numbers only, since it would overflow for large positive ones
        return -y * exp(-z) / (1.0 + exp(-z)) if z > 0.0 else -y / (1.0 + exp(z))
    if code == SQUARED_HINGE:
        return -2.0 * y * max(0.0, 1.0 - y * p)
    if code == HINGE:
        return -y if y * p < 1.0 - KINK else 0.0
    r = p - y
    if code == ABSOLUTE:
        near = KINK * max(1.0, abs(y))
        return 1.0 if r > near else (-1.0 if r < -near else 0.0)
    if code == HUBER:
        r = min(max(r, -delta), delta)
    return 2.0 * r


@entry
@loops
def loss_values(code: int, p: Any, y: Any, delta: float, out: Any) -> None:
    """Fill `out` with the losses of margins p."""
    for i in range(len(p)):
        out[i] = loss_value(code, p[i], y[i], delta)


@dataclass(frozen=True)
class Loss:
    """A loss l(p) of the margin p and a label y.

    Attributes
    ----------
    name : str
        Name, as in the parameter `loss` of the learners.
    code : int
        Code of the loss in compiled functions.
    kind : {"classification", "regression", "both"}
        Task for which the loss is meant.
    formula : str
        l(p) as text.
    labels : str
        Valid labels, as text.

    Examples
    --------
    >>> LOSSES["hinge"].formula
    'max(0, 1 - y p)'
    """

    name: str
    code: int
    kind: Literal["classification", "regression", "both"]
    formula: str
    labels: str
    _curvature: Callable[[float, float, float], float]

    def curvature(self, bound: float, *, labels_bound: float | None = None, delta: float = 1.0) -> float:
        """Return the largest mu with l(q) >= l(p) + l'(p)(q - p) + (mu/2) (l'(p)(q - p))^2 for all |p|, |q| <= bound.

        This is Assumption 2 of Luo et al. 2019 (which has a misprint in the sign of mu), for the worst label: -1 or +1
        for classification, |y| <= labels_bound (default: bound) for regression. The result is 0 if the loss has linear
        pieces in this range, or if the range is unbounded.

        Parameters
        ----------
        bound : float
            Largest absolute margin, above 0.
        labels_bound : float, optional
            Largest absolute label in regression. Default is `bound`.
        delta : float, default=1.0
            Threshold of the Huber loss.

        Returns
        -------
        mu : float

        Examples
        --------
        >>> LOSSES["squared"].curvature(1.0)
        0.125
        """
        labels_bound = bound if labels_bound is None else labels_bound
        if not (bound > 0 and labels_bound >= 0 and delta > 0):
            raise ValueError(
                f"bound and delta must be positive and labels_bound not negative; got bound={bound!r}, "
                f"labels_bound={labels_bound!r}, delta={delta!r}"
            )
        return self._curvature(bound, labels_bound, delta)


def _squared(bound: float, labels_bound: float, delta: float) -> float:
    # The condition is (q - p)^2 >= (mu/2) 4 (p - y)^2 (q - p)^2.
    largest = bound + labels_bound
    return 0.5 / largest / largest


def _logistic(bound: float, labels_bound: float, delta: float) -> float:
    # l'' / l'^2 = exp(y p) is smallest at y p = -bound, and the condition is weaker for q far from p.
    return exp(-bound)


def _squared_hinge(bound: float, labels_bound: float, delta: float) -> float:
    # The worst pair is y p = -bound and y q = bound. For y q > 1 the loss is flat, which makes the condition stronger.
    if bound <= 1.0:
        return 0.5 / (1.0 + bound) ** 2
    return (3.0 - 1.0 / bound) / (8.0 * bound * (1.0 + bound))


def _straight(bound: float, labels_bound: float, delta: float) -> float:
    return 0.0


def _huber(bound: float, labels_bound: float, delta: float) -> float:
    return _squared(bound, labels_bound, delta) if bound + labels_bound <= delta else 0.0


_NUMBERS, _CLASSES = "real numbers, |y| <= bound for the regret bound", "-1 and +1"

LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("squared", SQUARED, "both", "(p - y)^2", _NUMBERS, _squared),
        Loss("logistic", LOGISTIC, "classification", "log(1 + exp(-y p))", _CLASSES, _logistic),
        Loss("squared_hinge", SQUARED_HINGE, "classification", "max(0, 1 - y p)^2", _CLASSES, _squared_hinge),
        Loss("hinge", HINGE, "classification", "max(0, 1 - y p)", _CLASSES, _straight),
        Loss("absolute", ABSOLUTE, "regression", "|p - y|", _NUMBERS, _straight),
        Loss(
            "huber", HUBER, "regression", "r^2 for |r| <= delta, else delta (2|r| - delta), r = p - y", _NUMBERS, _huber
        ),
    )
}
