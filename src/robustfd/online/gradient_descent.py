"""Online gradient descent, a baseline for online Newton methods: the learner, its state and its compiled loop."""

from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from robustfd._compile import compiled, loops
from robustfd._validation import check_choice, check_real
from robustfd.linalg.lapack import view_as
from robustfd.online.learner import OnlineLearner
from robustfd.online.rows import Batch, CsrRows, Floats
from robustfd.online.settings import (
    BALL,
    CURRENT,
    DOMAINS,
    NEXT,
    NO_PROJECTION,
    PROJECTIONS,
    SETTINGS,
    SLAB,
    Settings,
    as_array,
    check_rate,
    domain_of,
    rate_and_power,
    rate_at,
    slope_at,
)
from robustfd.online.single_row import EXTREME, FINE, OVERFLOWED, REFRESH, RowState, is_safe, row_of

SMALLEST_SCALE = 1e-8
NORM = np.dtype((np.record, [("scale", np.float64), ("squared", np.float64)]))


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


class DescentModel(NamedTuple):
    """The weights w = scale v; only the ball uses the scale and the squared length of w (a NORM record)."""

    settings: Floats
    seen: Any
    v: Floats
    scalars: Floats


class DescentState(RowState):
    """The state of gradient descent."""

    shapes = {"v": "d", "scalars": "2"}

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.model = DescentModel(as_array(settings), np.zeros(1, np.int64), np.zeros(d), np.array([1.0, 0.0]))

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        return int(learn_gradient_descent(data, indices, indptr, y, weight, margins, self.model, self.kept))

    def _changes_only_features(self) -> bool:
        return self.settings.domain != BALL  # its projection rescales all features

    def weights(self) -> Floats:
        """Return w."""
        return view_as(self.model.scalars, 0, (1,), NORM)[0].scale * self.model.v

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        return {"v": w, "scalars": np.array([1.0, w @ w])}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {}


@compiled
def learn_gradient_descent(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, margins: Any, model: DescentModel, kept: bool
) -> int:
    """Learn from the rows and fill their margins; return FINE, EXTREME or OVERFLOWED.

    Unless the caller has a copy of the model (`kept`), the loop stops before a row with extreme numbers, so that
    nothing has to be undone.

    The update is w -= rate_t g, then the Euclidean projection (Zinkevich 2003). The ball is the same for every row, so
    "current" and "next" both project onto it after the step.
    """
    rows, batch = CsrRows(data, indices, indptr), Batch(y, weight, margins)
    settings, seen = view_as(model.settings, 0, (1,), SETTINGS)[0], model.seen
    slab, ball = settings.domain == SLAB, settings.domain == BALL and settings.projection != NO_PROJECTION
    v, norm = model.v, view_as(model.scalars, 0, (1,), NORM)[0]
    status = FINE
    for i in range(len(batch.y)):
        columns, values = row_of(rows, i)
        p, square, move = 0.0, 0.0, 0.0
        for k in range(len(columns)):
            p += v[columns[k]] * values[k]
            square += values[k] * values[k]
        p *= norm.scale
        if not is_safe(p, slope_at(settings, p, batch.y[i]), batch.weight[i], square):
            status = EXTREME
            if not kept:
                return status
        if slab and settings.projection == NEXT and abs(p) > settings.bound and square > 0.0:
            move = (p - np.copysign(settings.bound, p)) / square
            p = np.copysign(settings.bound, p)
        batch.margins[i] = p
        if not np.isfinite(p):
            return OVERFLOWED
        seen[0] += 1
        step = rate_at(settings, seen[0]) * batch.weight[i] * slope_at(settings, p, batch.y[i])
        after = p - step * square
        if slab and settings.projection == CURRENT and abs(after) > settings.bound and square > 0.0:
            step += (after - np.copysign(settings.bound, after)) / square
        move += step
        if move != 0.0:
            for k in range(len(columns)):
                v[columns[k]] -= move / norm.scale * values[k]
        if ball:
            norm2 = max(norm.squared - move * (2.0 * p - move * square), 0.0)
            if norm2 > settings.bound * settings.bound:
                norm.scale *= settings.bound / np.sqrt(norm2)
                norm2 = settings.bound * settings.bound
            norm.squared = norm2
            if norm.scale < SMALLEST_SCALE or seen[0] % max(REFRESH, len(v)) == 0:
                _unscale(v, norm)
    return status


@loops
def _unscale(v: Any, norm: Any) -> None:
    """Multiply v by its scale, reset the scale to 1, and recompute the squared length."""
    total = 0.0
    for j in range(len(v)):
        v[j] *= norm.scale
        total += v[j] * v[j]
    norm.scale, norm.squared = 1.0, total
