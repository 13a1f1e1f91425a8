"""Online gradient descent, a baseline for online Newton methods: the learner and its state."""

from operator import attrgetter
from typing import Any, Literal

import numpy as np

import robustfd._core as _core
from robustfd._validation import check_choice, check_real
from robustfd.learners.learner import OnlineLearner
from robustfd.learners.rows import Floats
from robustfd.learners.settings import DOMAINS, PROJECTIONS, Settings, check_rate, domain_of, rate_and_power
from robustfd.learners.single_row import RowState


class OnlineGradientDescent(OnlineLearner):
    r"""Online gradient descent (Zinkevich 2003): w <- w - eta_t g, then the nearest point of the domain.

    Parameters
    ----------
    rate : {"1/t", "1/sqrt(t)"} or float, default="1/sqrt(t)"
        Learning rate eta_t before `scale` is applied. A float is a constant rate.
    scale : float, default=1.0
        Factor of the learning rate.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
        Loss of a margin and a label.
    bound : float, default=1.0
        C, the bound of the domain.
    projection : {"current", "next", None}, default="current"
        When to project. See `OnlineNewton`.
    domain : {"slab", "ball"}, default="slab"
        \|w'x\| <= C for the current row, or ||w||_2 <= C.
    huber_delta : float, default=1.0
        Margin error at which the Huber loss becomes linear.

    See Also
    --------
    AdaGrad : Gradient steps with one learning rate for each feature.
    OnlineNewton : Newton steps with a sketched Hessian.

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

    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        rate, power = rate_and_power(self.rate)
        settings = Settings(
            loss=self._check_loss().code,
            delta=float(self.huber_delta),
            bound=float(self.bound),
            domain=domain_of(self.domain, self.projection),
            projection=PROJECTIONS[self.projection],
            rate=float(self.scale) * rate,
            power=power,
        )
        return DescentState, (settings, d)


class DescentState(RowState):
    """The state of gradient descent: the weights w = scale v; `scalars` are the scale and the squared length of w."""

    shapes = {"v": "d", "scalars": "2"}

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, self._new_core(settings, d, 0), sparse=sparse)

    @classmethod
    def _new_core(cls, settings: Settings, d: int, m: int) -> Any:
        return _core.GradientDescent(settings.compiled(), d)

    def weights(self) -> Floats:
        """Return w."""
        arrays = self.arrays
        return np.asarray(arrays["scalars"][0] * arrays["v"])

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        return {"v": w, "scalars": np.array([1.0, w @ w])}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {}
