"""Losses of a linear model: value and slope in the margin p = w'x, and the curvature mu of the regret bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustfd._core import loss_slope, loss_value, loss_values
from robustfd.learners.rows import LARGEST

__all__ = ["LOSSES", "Loss", "check_labels", "loss_slope", "loss_value", "loss_values"]


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
    for loss in (  # the codes are those of the compiled core
        Loss("squared", 0, "both", "(p - y)^2", _NUMBERS, _squared),
        Loss("logistic", 1, "classification", "log(1 + exp(-y p))", _CLASSES, _logistic),
        Loss("squared_hinge", 2, "classification", "max(0, 1 - y p)^2", _CLASSES, _squared_hinge),
        Loss("hinge", 3, "classification", "max(0, 1 - y p)", _CLASSES, _straight),
        Loss("absolute", 4, "regression", "|p - y|", _NUMBERS, _straight),
        Loss("huber", 5, "regression", "r^2 for |r| <= delta, else delta (2|r| - delta), r = p - y", _NUMBERS, _huber),
    )
}


def check_labels(loss: str, y: Any, n: int) -> NDArray[np.float64]:
    """Return the labels of n rows as floats; raise an error unless they are valid for the loss of this name."""
    y = np.asarray(y)
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}, but X has {n} rows: expected shape ({n},).")
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must hold numbers, got an array of {y.dtype}: {y!r:.60}.")
    y = np.ascontiguousarray(y, dtype=np.float64)
    if not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity. Every label must be a finite number.")
    if (largest := np.abs(y).max(initial=0.0)) > LARGEST:
        raise ValueError(f"y contains {largest:g} in size; numbers above {LARGEST:g} cannot be squared.")
    if LOSSES[loss].kind == "classification" and not np.isin(y, (-1.0, 1.0)).all():
        odd = y[~np.isin(y, (-1.0, 1.0))][0]
        raise ValueError(f"y must hold -1 and +1 only for loss={loss!r}, got {odd:g}.")
    return y
