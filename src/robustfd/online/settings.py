"""The settings of the paper's learners as one record: loss, learning rate, domain and shrink rule."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustfd._compile import loops
from robustfd._validation import check_choice, check_real
from robustfd.online.losses import loss_slope

Floats = NDArray[np.float64]

NO_DOMAIN, SLAB, BALL = range(3)  # Settings.domain
NO_PROJECTION, CURRENT, NEXT = range(3)  # Settings.projection: onto K_t after the step, or K_{t+1} before predicting
DOMAINS = {"slab": SLAB, "ball": BALL}
PROJECTIONS = {"current": CURRENT, "next": NEXT, None: NO_PROJECTION}
RATES = {"1/t": (1.0, 1.0), "1/sqrt(t)": (1.0, 0.5)}  # eta_t = first / t^second
NO_GRADIENT = 1e-9  # a slope this small, relative to the label, is rounding error of a margin that equals its label


class Settings(NamedTuple):
    """The settings of a learner. The rate at row t is rate / t^power."""

    loss: int
    delta: float  # threshold of the Huber loss
    bound: float
    domain: int
    projection: int
    mu: float = 0.0
    rate: float = 1.0
    power: float = 0.0
    alpha0: float = 0.0
    shrink_first: int = 0  # whether the row that fills a block takes its step after the shrink
    shrunk: int = 0  # how many of the m largest eigenvalues a shrink reduces
    added: float = 0.0  # a shrink by delta increases alpha by this number times delta


# The same fields as a record in an array: passing a named tuple to a compiled function takes far longer.
SETTINGS = np.dtype(
    (np.record, [(name, np.int64 if kind is int else np.float64) for name, kind in Settings.__annotations__.items()])
)


def as_array(settings: Settings) -> Floats:
    """Return the settings as a float array, for `view_as(..., SETTINGS)`."""
    return np.array([tuple(settings)], SETTINGS).view(np.float64)


def domain_of(domain: str, projection: str | None) -> int:
    """Return the code of a domain, NO_DOMAIN if there is no projection."""
    return DOMAINS[domain] if projection is not None else NO_DOMAIN


def rate_and_power(rate: str | float) -> tuple[float, float]:
    """Return rate and power of eta_t = rate / t^power."""
    return RATES[rate] if isinstance(rate, str) else (float(rate), 0.0)


def check_rate(rate: Any) -> None:
    """Raise an error unless rate is a known name or a number, at least 0."""
    if isinstance(rate, str):
        check_choice("rate", rate, tuple(RATES))
    else:
        check_real("rate", rate, 0.0)


@loops
def slope_at(settings: Any, p: float, y: float) -> float:
    """Return the slope of the loss at the margin p, or exactly 0 if it is rounding error."""
    slope = loss_slope(settings.loss, p, y, settings.delta)
    return slope if abs(slope) > NO_GRADIENT * max(1.0, abs(y)) else 0.0


@loops
def rate_at(settings: Any, t: int) -> float:
    """Return the learning rate at row t, counted from 1."""
    if settings.power == 1.0:  # computing a power takes longer than the rest of a short row
        return settings.rate / t
    return settings.rate / float(t) ** settings.power
