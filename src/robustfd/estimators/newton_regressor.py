"""Online regression without tuning, by a mixture of linear experts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from robustfd._core import Judge
from robustfd._guard import guards_itself
from robustfd._validation import check_choice, check_real
from robustfd.estimators.intervals import IntervalRegressor
from robustfd.learners.experts import NumberLoss
from robustfd.learners.rows import Floats

LOSSES = ("squared", "huber", "absolute", "quantile", "poisson")
LOSS_NAMES = {"absolute": "absolute error", "quantile": "pinball loss", "poisson": "Poisson deviance"}


class SketchedNewtonRegressor(IntervalRegressor):
    r"""Online linear regressor that needs one pass and no tuning.

    The method is that of `SketchedNewtonClassifier`, with the squared loss by default. Neither features nor targets
    need scaling: residuals are measured relative to recent ones, so predictions follow any scale and offset of the
    targets. Predictions exceed the range of the targets seen by at most a tenth of that range.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        With "auto", the model chooses the Hessian. An integer m of at least 2 always uses a sketch of m rows, and 0
        uses the diagonal alone. A row costs O(1) per non-zero entry, or O(m) with a sketch.
    loss : {"squared", "huber", "absolute", "quantile", "poisson"}, default="squared"
        "squared" predicts the mean. Residuals above eight times the typical size are clipped to that, so one wild
        target does no harm. "huber" clips them at twice the typical size, for targets with many outliers. "absolute"
        predicts the median and "quantile" a quantile. "poisson" is for counts and other non-negative targets: the
        logarithm of the mean is linear in the features.
    quantile : float or list of float, default=0.5
        The quantile that `loss="quantile"` predicts, between 0 and 1. With a list of increasing levels, one model
        predicts them all, in less than twice the time of one. Predicted quantiles never cross.
    intervals : bool, default=False
        Whether to learn what `predict_interval` needs. Learning then takes 2 to 2.5 times as long.
    expand : {None, "trees", "auto"}, default=None
        Whether to add curves and interactions by boosted trees, as in `SketchedNewtonClassifier`.
    shuffle : bool, default=True
    epochs : int, default=1
    random_state : int, RandomState or None, default=None
        Also as in `SketchedNewtonClassifier`.

    Attributes
    ----------
    coef_ : array of shape (n_features,), or (n_levels, n_features) for a list of quantiles
        The weights. `predict` returns `X @ coef_ + intercept_`, limited to a range near the targets seen, or the
        exponential of it with `loss="poisson"`. Several quantiles are sorted in each row.
    intercept_ : float, or array of shape (n_levels,)
        The intercept.
    hessian_, sketch_size_, experts_, drift_
        As for `SketchedNewtonClassifier`.
    progressive_loss_ : float
        Mean loss over all rows so far: the squared, absolute or pinball loss, or the Poisson deviance. Each row is
        predicted before it is learned. For several quantiles, it is the mean over the levels.
    progressive_ : dict
        The same after 1, 2, 4, ... rows.
    progressive_coverage_, progressive_width_ : dict
        With `intervals=True`: the share of targets that the intervals of each level covered, and their mean width.
    n_samples_seen_, n_features_in_ : int
        Number of rows learned and of features.

    See Also
    --------
    SketchedNewtonClassifier : The same method for classification.
    SketchedRidge : Ridge regression with a fixed penalty and a certified error.
    RFDSONRegressor : The online Newton regressor of the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from robustfd import SketchedNewtonRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SketchedNewtonRegressor(random_state=0).fit(X, y)
    >>> round(model.score(X, y), 1)
    0.5
    """

    def __init__(
        self,
        sketch_size: Literal["auto"] | int = "auto",
        *,
        loss: Literal["squared", "huber", "absolute", "quantile", "poisson"] = "squared",
        quantile: float | Sequence[float] = 0.5,
        intervals: bool = False,
        expand: Literal["trees", "auto"] | None = None,
        shuffle: bool = True,
        epochs: int = 1,
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
        self.intervals = intervals
        self.expand = expand
        self.loss = loss
        self.quantile = quantile
        self.shuffle = shuffle
        self.epochs = epochs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        levels = self.quantile if isinstance(self.quantile, list | tuple) else [self.quantile]
        if any(check_real("quantile", level, 0.0, 1.0) in (0.0, 1.0) for level in levels):
            raise ValueError(f"quantile must be between 0 and 1, got {self.quantile}.")
        if not levels or any(level >= after for level, after in pairwise(levels)):
            raise ValueError(f"quantile must be a level or a list of increasing levels, got {self.quantile}.")
        if self.intervals and self._levels is not None:
            raise ValueError(f"intervals must be False for several quantiles, got True and quantile={self.quantile}.")
        if self.expand is not None and self._levels is not None:
            raise ValueError(
                f"expand must be None for several quantiles, got {self.expand!r} with quantile={self.quantile}."
            )
        super()._check_parameters()

    @property
    def _levels(self) -> tuple[float, ...] | None:
        """The levels of several quantiles, or None for one prediction a row."""
        several = self.loss == "quantile" and isinstance(self.quantile, list | tuple)
        return tuple(map(float, self.quantile)) if several else None  # type: ignore[arg-type]

    @property
    def _outputs(self) -> int:
        return len(self._levels or (0,))

    def _output_labels(self) -> list[Any]:
        return list(self._levels or (None,))

    def _number_loss(self) -> NumberLoss:
        if self.loss == "quantile":
            return NumberLoss(levels=self._levels or (float(self.quantile),))  # type: ignore[arg-type]
        return {
            "squared": NumberLoss(),
            "huber": NumberLoss(huber=2.0),
            "absolute": NumberLoss(levels=(0.5,)),
            "poisson": NumberLoss(counts=True),
        }[self.loss]

    def _check_targets(self, y: Any, classes: Any) -> Floats:
        y = super()._check_targets(y, classes)
        if self.loss == "poisson" and (least := y.min(initial=0.0)) < 0:
            raise ValueError(f"y contains {least:g}, but loss='poisson' is for targets of at least 0.")
        return y

    def _judge(self) -> tuple[dict[Any, int] | None, Judge, float] | None:
        kinds = {"absolute": Judge.absolute, "quantile": Judge.pinball, "poisson": Judge.poisson}
        level = float(self.quantile) if self.loss == "quantile" else 0.0  # type: ignore[arg-type]
        return None, kinds.get(self.loss, Judge.squared), level

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        predicted = self._learn_margins(x, y, weight)
        with np.errstate(over="ignore"):
            return self._losses(y, predicted), np.full(len(y), np.nan)

    def _losses(self, y: Floats, margins: Floats) -> Floats:
        """Return the loss of each row, given its predictions (n, outputs)."""
        if self.loss == "quantile":
            several = y[:, None] - margins
            return np.asarray((several * (np.array(self.quantile) - (several < 0))).mean(axis=1))
        predicted = margins[:, 0]
        residuals = y - predicted
        if self.loss == "absolute":
            return np.abs(residuals)
        if self.loss == "poisson":
            positive = y > 0  # y log(y / predicted) is 0 for y = 0
            logarithms = np.log(np.divide(y, predicted, out=np.ones_like(y), where=positive))
            return 2.0 * (y * logarithms - residuals)
        return np.square(residuals)

    def _loss_name(self) -> str:
        return LOSS_NAMES.get(self.loss, "squared error")

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of each row; for a list of quantiles, an array (n, levels)."""
        margins = self._checked_margins(X)
        return margins[:, 0] if self._levels is None else margins

    @guards_itself
    def predict_one(self, x: Any) -> Any:
        """Return the predicted target of one row in any format of `learn_one`, or 0.0 before the first row.

        For a list of quantiles, return a dict of predictions by level.
        """
        if (levels := self._levels) is None:
            return super().predict_one(x)
        found = self._margins_of_one(x).tolist() if self.__sklearn_is_fitted__() else [0.0] * len(levels)
        return dict(zip(levels, found, strict=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R2; for a list of quantiles, the mean of `sklearn.metrics.d2_pinball_score` over the levels."""
        if (levels := self._levels) is None:
            return float(super().score(X, y, sample_weight))
        from sklearn.metrics import d2_pinball_score

        each = zip(levels, self.predict(X).T, strict=True)
        return float(np.mean([d2_pinball_score(y, p, sample_weight=sample_weight, alpha=level) for level, p in each]))

    @property
    def coef_(self) -> Floats:
        """The weights (n_features,), or (n_levels, n_features) for a list of quantiles."""
        weights = np.ascontiguousarray(self._linear_model()[0].T)
        return weights[0] if self._levels is None else weights

    @property
    def intercept_(self) -> Any:
        """The intercept, or an array (n_levels,) for a list of quantiles."""
        intercepts = self._linear_model()[1]
        return float(intercepts[0]) if self._levels is None else intercepts
