"""The first-order methods that online Newton learning is compared with."""

from operator import attrgetter
from typing import Literal

from robustfd._validation import check_choice, check_real
from robustfd.online._base import RATES, OnlineLearner, State, check_rate
from robustfd.online._first_order import BALL, CURRENT, NEXT, NO_DOMAIN, NO_PROJECTION, SLAB, Settings
from robustfd.online._row_states import AdaGradState, DescentState

PROJECTIONS = {"current": CURRENT, "next": NEXT, None: NO_PROJECTION}
DOMAINS = {"slab": SLAB, "ball": BALL}


class AdaGrad(OnlineLearner):
    r"""ADAGRAD with a diagonal matrix (Duchi et al. 2011), as run by Luo et al. 2019, Section 6.

    .. math:: S_i \leftarrow S_i + g_i^2, \quad h_i = \sqrt{\alpha_0 + S_i}, \quad w_i \leftarrow w_i - g_i / h_i

    and then the projection onto \|w'x\| <= C in the norm of diag(h). A row costs O(1) for each of its non-zeros.

    Parameters
    ----------
    alpha0 : float, default=1.0
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
    bound : float, default=1.0
        C. (A ball would need a pass over all features for every row: not offered.)
    projection : {"current", "next", None}, default="current"
        See `OnlineNewton`.
    huber_delta : float, default=1.0

    Examples
    --------
    >>> import numpy as np
    >>> learner = AdaGrad(alpha0=1.0)
    >>> learner.learn(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0])).round(3)
    array([0.   , 0.894])
    """

    _names = attrgetter("alpha0", "loss", "bound", "projection", "huber_delta")

    def __init__(
        self,
        alpha0: float = 1.0,
        *,
        loss: str = "squared",
        bound: float = 1.0,
        projection: Literal["current", "next"] | None = "current",
        huber_delta: float = 1.0,
    ):
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.projection = projection
        self.huber_delta = huber_delta

    def _check_parameters(self) -> None:
        check_real("alpha0", self.alpha0, 0.0)
        self._check_loss()
        check_real("bound", self.bound, 0.0, open_low=True)
        check_choice("projection", self.projection, tuple(PROJECTIONS))

    def _start(self, d: int, *, sparse: bool) -> State:
        domain = SLAB if self.projection is not None else NO_DOMAIN
        settings = Settings(
            loss=self._check_loss().code, delta=float(self.huber_delta), mu=0.0, rate=1.0, power=0.0,
            alpha0=float(self.alpha0), bound=float(self.bound), domain=domain, projection=PROJECTIONS[self.projection],
        )  # fmt: skip
        return AdaGradState(settings, d, sparse=sparse)


class OnlineGradientDescent(OnlineLearner):
    r"""Online gradient descent (Zinkevich 2003): w <- w - eta_t g, then the nearest point of the domain.

    Parameters
    ----------
    rate : {"1/t", "1/sqrt(t)"} or float, default="1/sqrt(t)"
        eta_t, up to `scale`; a number is a constant one.
    scale : float, default=1.0
        What eta_t is multiplied by.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
    bound : float, default=1.0
        C of the domain.
    projection : {"current", "next", None}, default="current"
        See `OnlineNewton`.
    domain : {"slab", "ball"}, default="slab"
        \|w'x\| <= C for the row at hand, or ||w||_2 <= C.
    huber_delta : float, default=1.0

    Examples
    --------
    >>> import numpy as np
    >>> learner = OnlineGradientDescent(0.25)
    >>> learner.learn(np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, 1.0]))
    array([0.  , 0.5 , 0.75])
    """

    _names = attrgetter("rate", "scale", "loss", "bound", "projection", "domain", "huber_delta")

    def __init__(
        self,
        rate: str | float = "1/sqrt(t)",
        *,
        scale: float = 1.0,
        loss: str = "squared",
        bound: float = 1.0,
        projection: Literal["current", "next"] | None = "current",
        domain: Literal["slab", "ball"] = "slab",
        huber_delta: float = 1.0,
    ):
        self.rate = rate
        self.scale = scale
        self.loss = loss
        self.bound = bound
        self.projection = projection
        self.domain = domain
        self.huber_delta = huber_delta

    def _check_parameters(self) -> None:
        check_rate(self.rate)
        check_real("scale", self.scale, 0.0, open_low=True)
        self._check_loss()
        check_real("bound", self.bound, 0.0, open_low=True)
        check_choice("projection", self.projection, tuple(PROJECTIONS))
        check_choice("domain", self.domain, tuple(DOMAINS))

    def _start(self, d: int, *, sparse: bool) -> State:
        rate, power = RATES[self.rate] if isinstance(self.rate, str) else (float(self.rate), 0.0)
        domain = DOMAINS[self.domain] if self.projection is not None else NO_DOMAIN
        settings = Settings(
            loss=self._check_loss().code, delta=float(self.huber_delta), mu=0.0, rate=self.scale * rate, power=power,
            alpha0=0.0, bound=float(self.bound), domain=domain, projection=PROJECTIONS[self.projection],
        )  # fmt: skip
        return DescentState(settings, d, sparse=sparse)
