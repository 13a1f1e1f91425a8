"""ADAGRAD, a first-order baseline for online Newton methods: the learner, its state and its compiled loop."""

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
    NEXT,
    PROJECTIONS,
    SETTINGS,
    SLAB,
    Settings,
    as_array,
    domain_of,
    slope_at,
)
from robustfd.online.single_row import EXTREME, FINE, OUTSIDE, OVERFLOWED, Row, RowState, is_safe, row_of


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


class AdaGradModel(NamedTuple):
    """The weights and the sums S of squared gradients."""

    settings: Floats
    seen: Any
    w: Floats
    squares: Floats


class AdaGradState(RowState):
    """The state of ADAGRAD."""

    shapes = {"w": "d", "squares": "d"}

    def __init__(self, settings: Settings, d: int, *, sparse: bool):
        super().__init__(settings, d, sparse=sparse)
        self.model = AdaGradModel(as_array(settings), np.zeros(1, np.int64), np.zeros(d), np.zeros(d))

    def _learn(self, data: Any, indices: Any, indptr: Any, y: Floats, weight: Floats, margins: Floats) -> int:
        return int(learn_adagrad(data, indices, indptr, y, weight, margins, self.model, self.kept))

    def _changes_only_features(self) -> bool:
        return True

    def weights(self) -> Floats:
        """Return w."""
        return self.model.w.copy()

    def _merged_arrays(self, other: Any, w: Floats) -> dict[str, Floats]:
        return {"w": w, "squares": self.model.squares + other.squares}

    def _divided_arrays(self, k: int) -> dict[str, Floats]:
        return {"squares": self.model.squares / k}


@compiled
def learn_adagrad(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, margins: Any, model: AdaGradModel, kept: bool
) -> int:
    """Learn from the rows and fill their margins; return FINE, EXTREME or OVERFLOWED.

    Unless the caller has a copy of the model (`kept`), the loop stops before a row with extreme numbers, so that
    nothing has to be undone.

    The update is S_i += g_i^2, h_i = sqrt(alpha0 + S_i), w_i -= g_i / h_i (Duchi et al. 2011, as run by Luo et al.
    2019), then the projection onto the slab in the norm of diag(h). A ball is not supported: its projection multiplies
    every weight by its own factor h_i / (h_i + nu), and nu depends on all columns.
    """
    rows, batch = CsrRows(data, indices, indptr), Batch(y, weight, margins)
    settings = view_as(model.settings, 0, (1,), SETTINGS)[0]
    if settings.domain == BALL:
        raise ValueError("AdaGrad cannot project onto a ball, use the slab")
    slab, w, squares = settings.domain == SLAB, model.w, model.squares
    status = FINE
    for i in range(len(batch.y)):
        row = row_of(rows, i)
        columns, values = row
        p, square = 0.0, 0.0
        for k in range(len(columns)):
            p += w[columns[k]] * values[k]
            square += values[k] * values[k]
        if not is_safe(p, slope_at(settings, p, batch.y[i]), batch.weight[i], square):
            status = EXTREME
            if not kept:
                return status
        if slab and settings.projection == NEXT:
            p = _clip(settings, row, model, p)
        batch.margins[i] = p
        if not np.isfinite(p):
            return OVERFLOWED
        g = batch.weight[i] * slope_at(settings, p, batch.y[i])
        if g != 0.0:
            p = 0.0
            for k in range(len(columns)):
                j, x = columns[k], values[k]
                squares[j] += (g * x) * (g * x)
                h = np.sqrt(settings.alpha0 + squares[j])
                if h > 0.0:
                    w[j] -= g * x / h
                p += w[j] * x
        if slab and settings.projection == CURRENT:
            _clip(settings, row, model, p)
    return status


@loops
def _clip(settings: Any, row: Row, model: AdaGradModel, p: float) -> float:
    """Project w onto |w'x| <= bound in the norm of diag(h), given p = w'x; return the margin after the projection.

    With alpha0 = 0, a feature that never had a gradient has h = 0, so that moving it costs nothing.
    """
    if not abs(p) > settings.bound:
        return p
    (columns, values), w, squares = row, model.w, model.squares
    along, free, square = 0.0, 0.0, 0.0
    for k in range(len(columns)):
        h, x = np.sqrt(settings.alpha0 + squares[columns[k]]), values[k]
        square += x * x
        if h > 0.0:
            along += x * x / h
        else:
            free += x * x
    moves_free = free > OUTSIDE * square
    if not moves_free and along == 0.0:
        return p
    clipped = np.copysign(settings.bound, p)
    step = (p - clipped) / (free if moves_free else along)
    for k in range(len(columns)):
        j = columns[k]
        h = np.sqrt(settings.alpha0 + squares[j])
        if moves_free:
            w[j] -= step * values[k] if h == 0.0 else 0.0
        elif h > 0.0:
            w[j] -= step * values[k] / h
    return clipped
