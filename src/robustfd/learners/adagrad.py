"""ADAGRAD, a first-order baseline for online Newton methods: the learner and its state."""

from operator import attrgetter
from typing import Any, Literal

import robustfd._core as _core
from robustfd._validation import check_choice, check_real
from robustfd.learners.learner import OnlineLearner
from robustfd.learners.rows import Floats
from robustfd.learners.settings import PROJECTIONS, Settings, domain_of
from robustfd.learners.single_row import RowState


class AdaGrad(OnlineLearner):
    r"""ADAGRAD with a diagonal matrix (Duchi et al. 2011), as run by Luo et al. 2019, Section 6.

    .. math:: S_i \leftarrow S_i + g_i^2, \quad h_i = \sqrt{\alpha_0 + S_i}, \quad w_i \leftarrow w_i - g_i / h_i

    Each step ends with the projection onto \|w'x\| <= C in the norm of diag(h). The cost of a row is proportional to
    its number of non-zeros.

    Parameters
    ----------
    alpha0 : float, default=1.0
        Initial value of every diagonal entry, at least 0.
    loss : {"squared", "logistic", "squared_hinge", "hinge", "absolute", "huber"}, default="squared"
        Loss of a margin and a label.
    bound : float, default=1.0
        C, the largest absolute margin. A ball is not supported: it would need a pass over all features for each row.
    projection : {"current", "next", None}, default="current"
        Row whose margin the projection bounds. See `OnlineNewton`.
    huber_delta : float, default=1.0
        Margin error at which the Huber loss becomes linear.

    See Also
    --------
    OnlineGradientDescent : Gradient descent with one learning rate for all features.
    OnlineNewton : Newton steps with a sketched Hessian.

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

    def _plan(self, d: int) -> tuple[type[Any], tuple[Any, ...]]:
        settings = Settings(
            loss=self._check_loss().code,
            delta=float(self.huber_delta),
            bound=float(self.bound),
            domain=domain_of("slab", self.projection),
            projection=PROJECTIONS[self.projection],
            alpha0=float(self.alpha0),
        )
        return AdaGradState, (settings, d)


class AdaGradState(RowState):
    """The state of ADAGRAD: the weights and the sums S of squared gradients."""

    shapes = {"w": "d", "squares": "d"}

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, self._new_core(settings, d, 0), sparse=sparse)

    @classmethod
    def _new_core(cls, settings: Settings, d: int, m: int) -> Any:
        return _core.AdaGrad(settings.compiled(), d)

    def weights(self) -> Floats:
        """Return w."""
        return self.arrays["w"].copy()

    def _merged_arrays(self, other: dict[str, Floats], w: Floats) -> dict[str, Floats]:
        return {"w": w, "squares": self.arrays["squares"] + other["squares"]}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {"squares": self.arrays["squares"] / k}
