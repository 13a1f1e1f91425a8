"""Online classification and regression without tuning, by a mixture of linear experts."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from robustfd._container import Document, Tensors
from robustfd._core import Judge
from robustfd._validation import check_choice, check_real
from robustfd.estimators._online import Floats
from robustfd.estimators._targets import (
    SHARPNESS,
    mixed,
    of_two,
    progressive_chances,
    progressive_losses,
    sharpened,
)
from robustfd.estimators._transfer import plain_label
from robustfd.estimators.intervals import IntervalRegressor, SetClassifier
from robustfd.learners.experts import NumberLoss
from robustfd.learners.snapshot import Parts

LOSSES = ("squared", "huber", "absolute", "quantile", "poisson")
LOSS_NAMES = {"absolute": "absolute error", "quantile": "pinball loss", "poisson": "Poisson deviance"}


class SketchedNewtonClassifier(SetClassifier):
    r"""Online linear classifier that needs one pass and no tuning.

    The loss is logistic for two classes and softmax for more. Several linear experts learn in parallel. They differ in
    learning rate, in how fast their Hessian H forgets, and in how they scale rows. For every row, each expert takes an
    implicit step :math:`w \leftarrow w + s \eta H^{-1} x`, which cannot overshoot. The prediction is a weighted mean of
    the experts. The weights depend on their recent losses, so the model follows drift.

    There are always experts with a diagonal H. The model adds experts with a better Hessian where they help: the exact
    one for few features, and a diagonal plus a Frequent Directions sketch, :math:`H = D + B'B`, for more. Each time the
    number of rows has doubled, the model checks their gain and drops them or enlarges the sketch.

    The model scales features by their statistics so far and centres those that are rarely zero. Outliers and features
    that change their unit do no lasting harm. A missing value (NaN) is replaced by the mean of its feature, and an
    additional indicator feature learns the effect of the missing value. pandas, polars and pyarrow tables may have
    columns of text, categories, dates and times. They become the same features as when the table is read from a file
    (`robustfd.streams.TableEncoder`, which needs pyarrow). Read more in
    :doc:`The mathematics of online learning </online-mathematics>`.

    Probabilities are logistic for two classes. For more, they are a mixture of three mappings from margins to
    probabilities, weighted by the log losses so far. The mappings range from normalised logistic probabilities to the
    softmax.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        With "auto", the model chooses the Hessian. An integer m of at least 2 always uses a sketch of m rows, and 0
        uses the diagonal alone. A row costs O(1) per non-zero entry, or O(m) with a sketch.
    shuffle : bool, default=True
        Whether `fit` learns the rows in random order. `partial_fit` and `learn_one` never reorder.
    epochs : int, default=1
        Number of passes of `fit` over the rows, at least three if it shuffles fewer than 256 rows. Only the first pass
        counts for the progressive losses.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. A dict maps classes to weights; classes that are not in it have weight 1. "balanced"
        weights classes inversely to their frequency and works with `fit` only.
    intervals : bool, default=False
        Whether to track what `predict_set` needs.
    random_state : int, RandomState or None, default=None
        Seed or generator for shuffling.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels.
    coef_ : array of shape (1 or n_classes, n_features)
        The mean effect of each feature, in its own unit. `X @ coef_.T + intercept_` approximates `decision_function`:
        some experts divide each row by its norm, so the two are equal only for rows of typical norm.
    intercept_ : array of shape (1 or n_classes,)
        The intercepts that belong to `coef_`.
    hessian_ : {"diagonal", "exact", "sketch"}
        The Hessian in use.
    sketch_size_ : int
        The number of sketch rows in use, 0 without a sketch.
    drift_ : dict
        The weight of the experts that forget, over time. It rises when the stream drifts.
    progressive_loss_, progressive_error_ : float
        Mean log loss and error rate over all rows so far. Each row is predicted before it is learned.
    progressive_ : dict
        The same after 1, 2, 4, ... rows.
    progressive_coverage_, progressive_width_ : dict
        With `intervals=True`: the share of labels that the sets of each level covered, and their mean size.
    n_samples_seen_, n_features_in_ : int
        Number of rows learned and of features.

    See Also
    --------
    SketchedNewtonRegressor : The same method for regression.
    RFDSONClassifier : The online Newton classifier of the paper.
    sklearn.linear_model.SGDClassifier : Stochastic gradient descent with a learning rate to tune.

    Notes
    -----
    The method goes further than Luo et al. 2019: the regret bounds of the paper do not cover the mixture. The first 64
    rows are learned again each time their number doubles, with the feature statistics of all rows so far. Progressive
    losses use the first prediction of each row.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from robustfd import SketchedNewtonClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SketchedNewtonClassifier(random_state=0).fit(X, y)
    >>> round(model.progressive_error_, 2), round(model.score(X, y), 2)
    (0.04, 0.99)
    """

    def __init__(
        self,
        sketch_size: Literal["auto"] | int = "auto",
        *,
        shuffle: bool = True,
        epochs: int = 1,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        intervals: bool = False,
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
        self.intervals = intervals
        self.shuffle = shuffle
        self.epochs = epochs
        self.class_weight = class_weight
        self.random_state = random_state

    def _check_parameters(self) -> None:
        given = self.class_weight
        if isinstance(given, dict):
            for label, weight in given.items():
                check_real(f"class_weight[{label!r}]", weight, 0.0)
        elif given is not None and given != "balanced":
            raise ValueError(f"class_weight must be a dict of weights by class, 'balanced' or None, got {given!r}.")
        super()._check_parameters()

    def _weigh_classes(self, y: Any, weight: Floats, *, whole: bool) -> Floats:
        if self.class_weight is None:
            return weight
        if self.class_weight == "balanced":
            if not whole:
                raise ValueError(
                    "class_weight must be a dict or None for partial_fit and learn_one, got 'balanced', "
                    "which needs all rows. Call fit, or give a dict of weights by class."
                )
            from sklearn.utils import compute_class_weight

            each = compute_class_weight("balanced", classes=np.arange(len(self.classes_)), y=y)
        else:
            each = np.array([self.class_weight.get(label, 1.0) for label in self.classes_.tolist()], np.float64)
        return weight * each[y]

    def _judge(self) -> tuple[dict[Any, int] | None, Judge, float] | None:
        simple = len(self.classes_) == 2 and self.class_weight is None
        return (self._class_places(), Judge.classes, 0.0) if simple else None

    def _begin(self, x: Any) -> None:
        super()._begin(x)
        self._calibration = np.zeros(len(SHARPNESS))

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        if self._outputs > self._model.outputs:  # a new class appeared
            self._model.add_outputs(self._outputs)
        margins = self._learn_margins(x, y, weight)
        if margins.shape[1] > 1:
            before = self._calibration
            losses, self._calibration = progressive_losses(margins, y, weight, before)
            if self._tracks():
                self._track_labels(progressive_chances(margins, y, weight, before), y, weight)
            return losses, (margins.argmax(axis=1) != y).astype(np.float64)
        if self._tracks():
            self._track_labels(self._probabilities(margins), y, weight)
        if len(self.classes_) == 1:
            return np.zeros(len(y)), np.zeros(len(y))
        margin, second = margins[:, 0], y == 1
        return np.logaddexp(0.0, np.where(second, -margin, margin)), ((margin > 0) != second).astype(np.float64)

    def _merge_states(self, other: Any) -> None:
        super()._merge_states(other)
        self._calibration = self._calibration + other._calibration

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        return [part | {"_calibration": self._calibration / k} for part in super()._split_states(k, which)]

    def _loss_name(self) -> str:
        return "log loss"

    def _saved_params(self) -> Document:
        given = self.class_weight  # saved as a list of pairs, because JSON turns dict keys into strings
        if isinstance(given, dict):
            pairs: Any = [[plain_label("The label", label), float(weight)] for label, weight in given.items()]
        else:
            pairs = given
        return super()._saved_params() | {"class_weight": pairs}

    @classmethod
    def _from_params(cls, params: Document) -> Self:
        if isinstance(given := params.get("class_weight"), list):
            params = params | {"class_weight": dict(given)}
        return cls(**params)

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        (numbers, arrays), *others = super()._pack_states()
        return [(numbers, arrays | {"calibration": self._calibration}), *others]

    def _unpack_states(self, states: list[Parts]) -> None:
        self._calibration = states[0].array("calibration", len(SHARPNESS), least=0.0)
        super()._unpack_states(states)

    def _probabilities(self, margins: Floats) -> Floats:
        if len(self.classes_) == 1:
            return np.ones((len(margins), 1))
        return of_two(margins) if margins.shape[1] == 1 else mixed(np.exp(sharpened(margins)), self._calibration)

    @property
    def coef_(self) -> Floats:
        """The mean effects of the features (1 or n_classes, n_features), in their own units."""
        return np.ascontiguousarray(self._linear_model()[0].T)

    @property
    def intercept_(self) -> Floats:
        """The intercepts (1 or n_classes,) that belong to `coef_`."""
        return self._linear_model()[1]


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
    quantile : float, default=0.5
        The quantile that `loss="quantile"` predicts, between 0 and 1.
    intervals : bool, default=False
        Whether to learn what `predict_interval` needs. Learning then takes about twice as long.
    shuffle : bool, default=True
        Whether `fit` learns the rows in random order. `partial_fit` and `learn_one` never reorder.
    epochs : int, default=1
        Number of passes of `fit` over the rows, at least three if it shuffles fewer than 256 rows. Only the first pass
        counts for the progressive losses.
    random_state : int, RandomState or None, default=None
        Seed or generator for shuffling.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
        The weights. `predict` returns `X @ coef_ + intercept_`, limited to a range near the targets seen, or the
        exponential of it with `loss="poisson"`.
    intercept_ : float
        The intercept.
    hessian_ : {"diagonal", "exact", "sketch"}
        The Hessian in use.
    sketch_size_ : int
        The number of sketch rows in use, 0 without a sketch.
    drift_ : dict
        The weight of the experts that forget, over time. It rises when the stream drifts.
    progressive_loss_ : float
        Mean loss over all rows so far: the squared, absolute or pinball loss, or the Poisson deviance. Each row is
        predicted before it is learned.
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
        quantile: float = 0.5,
        intervals: bool = False,
        shuffle: bool = True,
        epochs: int = 1,
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
        self.intervals = intervals
        self.loss = loss
        self.quantile = quantile
        self.shuffle = shuffle
        self.epochs = epochs
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        if check_real("quantile", self.quantile, 0.0, 1.0) in (0.0, 1.0):
            raise ValueError(f"quantile must be between 0 and 1, got {self.quantile}.")
        super()._check_parameters()

    def _number_loss(self) -> NumberLoss:
        return {
            "squared": NumberLoss(),
            "huber": NumberLoss(huber=2.0),
            "absolute": NumberLoss(level=0.5),
            "quantile": NumberLoss(level=float(self.quantile)),
            "poisson": NumberLoss(counts=True),
        }[self.loss]

    def _check_targets(self, y: Any, classes: Any) -> Floats:
        y = super()._check_targets(y, classes)
        if self.loss == "poisson" and (least := y.min(initial=0.0)) < 0:
            raise ValueError(f"y contains {least:g}, but loss='poisson' is for targets of at least 0.")
        return y

    def _judge(self) -> tuple[dict[Any, int] | None, Judge, float] | None:
        kinds = {"absolute": Judge.absolute, "quantile": Judge.pinball, "poisson": Judge.poisson}
        return None, kinds.get(self.loss, Judge.squared), float(self.quantile)

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        predicted = self._learn_margins(x, y, weight)[:, 0]
        with np.errstate(over="ignore"):
            return self._losses(y, predicted), np.full(len(y), np.nan)

    def _losses(self, y: Floats, predicted: Floats) -> Floats:
        """Return the loss of each prediction."""
        residuals = y - predicted
        if self.loss == "absolute":
            return np.abs(residuals)
        if self.loss == "quantile":
            return residuals * (self.quantile - (residuals < 0))
        if self.loss == "poisson":
            positive = y > 0  # y log(y / predicted) is 0 for y = 0
            logarithms = np.log(np.divide(y, predicted, out=np.ones_like(y), where=positive))
            return 2.0 * (y * logarithms - residuals)
        return np.square(residuals)

    def _loss_name(self) -> str:
        return LOSS_NAMES.get(self.loss, "squared error")

    @property
    def coef_(self) -> Floats:
        """The weights (n_features,)."""
        return np.ascontiguousarray(self._linear_model()[0][:, 0])

    @property
    def intercept_(self) -> float:
        """The intercept."""
        return float(self._linear_model()[1][0])
