"""The settings of the paper's learners as one record: loss, learning rate, domain and shrink rule."""

from typing import Any, NamedTuple

from robustfd._core import PaperSettings
from robustfd._validation import check_choice, check_real

NO_DOMAIN, SLAB, BALL = range(3)  # Settings.domain
NO_PROJECTION, CURRENT, NEXT = range(3)  # Settings.projection: onto K_t after the step, or K_{t+1} before predicting
DOMAINS = {"slab": SLAB, "ball": BALL}
PROJECTIONS = {"current": CURRENT, "next": NEXT, None: NO_PROJECTION}
RATES = {"1/t": (1.0, 1.0), "1/sqrt(t)": (1.0, 0.5)}  # eta_t = first / t^second


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
    shrink_first: bool = False  # whether the row that fills a block takes its step after the shrink
    shrunk: int = 0  # how many of the m largest eigenvalues a shrink reduces
    added: float = 0.0  # a shrink by delta increases alpha by this number times delta

    def compiled(self) -> PaperSettings:
        """Return the settings as the compiled core expects them."""
        return PaperSettings(**self._asdict())


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
