"""Online classification and regression with nothing to tune: experts side by side, mixed by what they earn."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from scipy.special import log_expit, xlogy
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_class_weight

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_real
from robustfd.estimators._online import Floats
from robustfd.estimators._probabilities import SHARPNESS, judge_in_turn, mixed, of_two, sharpened
from robustfd.estimators._snapshot import plain_label
from robustfd.estimators._targets import OnlineClassifier, OnlineRegressor
from robustfd.estimators._untuned_estimator import UntunedEstimator
from robustfd.online.mixture import NumberLoss
from robustfd.online.snapshot import Parts

LOSSES = ("squared", "huber", "absolute", "quantile", "poisson")
LOSS_NAMES = {"absolute": "absolute error", "quantile": "pinball loss", "poisson": "Poisson deviance"}


class SketchedNewtonClassifier(ClassifierMixin, UntunedEstimator, OnlineClassifier):
    r"""A linear classifier learnt in one pass, with nothing to tune.

    The loss is logistic, for more than two classes that of the softmax. Linear experts learn side by side. They differ
    in the rate of their steps, in how much of the past their Hessian H remembers, and in how they scale rows. For every
    row each takes a step :math:`w \leftarrow w + s \eta H^{-1} x` that is implicit, so that none can overshoot. The
    prediction is the mean of the experts by the shares they have earned, which follow a stream that changes.

    H is the diagonal for all streams. Experts with a better Hessian are added where they pay: the exact one for few
    features, and for more a diagonal plus a Frequent Directions sketch, :math:`H = D + B'B`. The model looks at what
    they gain when the number of rows doubles, and drops them or makes the sketch larger.

    Features are scaled by what was seen of them, and those that are seldom zero are centred. Outliers, and features
    that change their unit, do no lasting harm. A missing value, NaN, counts as the mean of its feature, and a further
    feature learns what it means that the value is missing. A DataFrame of pandas, polars or pyarrow may have columns of
    text, categories, dates and times: they become the features that the same table has when it is read from a file
    (`robustfd.streams.TableEncoder`; this needs pyarrow). See docs/online-mathematics.md.

    Probabilities are logistic. For more than two classes they are a mixture, by the log losses so far, of three ways
    to make them of margins, from logistic ones divided by their sum to the softmax.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        By default the model decides which Hessian pays. An integer m of at least 2 fixes a sketch of m rows, and 0 the
        diagonal alone. A row costs O(1) for each of its non-zeros, and O(m) with a sketch.
    shuffle : bool, default=True
        Whether `fit` learns the rows in random order. `partial_fit` and `learn_one` never reorder.
    epochs : int, default=1
        How many times `fit` passes over the rows; three times at least if it shuffles fewer than 256. Rows are judged
        in the first pass only.
    class_weight : dict, "balanced" or None, default=None
        What the rows of each class weigh: a dict of weights by class, where others weigh 1, or weights in inverse
        proportion to how often a class occurs. "balanced" is for `fit` only.
    random_state : int, RandomState or None, default=None
        The source of the random order.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1 or n_classes, n_features)
    intercept_ : array of shape (1 or n_classes,)
        The mean effect of each feature, in its own unit: `X @ coef_.T + intercept_` is what `decision_function` would
        be if all rows had the usual length. Some of the experts divide each row by its length, so the two differ.
    hessian_ : {"diagonal", "exact", "sketch"}
    sketch_size_ : int
        The Hessian in use, and the rows of its sketch, 0 if there is none.
    drift_ : dict
        The share of the experts that forget over time: it rises when the stream changes.
    progressive_loss_, progressive_error_ : float
        Log loss and share of errors over all rows so far, each judged before it was learnt.
    progressive_ : dict
        The same at 1, 2, 4, ... rows.
    n_samples_seen_, n_features_in_ : int

    Notes
    -----
    Beyond Luo et al. 2019: its regret bounds do not cover the mixture. The first 64 rows are learnt again whenever
    their number doubles, each time with the statistics of all of them so far; each is judged when it first comes.

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
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
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
                    "class_weight='balanced' needs all rows, as fit has them. "
                    "For partial_fit and learn_one, give a dict of weights by class."
                )
            each = compute_class_weight("balanced", classes=np.arange(len(self.classes_)), y=y)
        else:
            each = np.array([self.class_weight.get(label, 1.0) for label in self.classes_.tolist()], np.float64)
        return weight * each[y]

    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        self._begin_model(d, outputs)
        self._calibration = np.zeros(len(SHARPNESS))

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        classes = len(self.classes_)
        wanted = classes if classes > 2 else 1
        if wanted > self._model.outputs:  # a class that appeared later
            self._model.add_outputs(wanted)
        margins = self._learn_margins(x, y, weight)
        if classes == 2 and len(y) == 1:  # the same numbers in a fifth of the time
            margin, second = margins[0], y.item() == 1
            return -log_expit(margin if second else -margin), np.array([float((margin.item() > 0) != second)])
        wrong = (self._decide(margins) != y).astype(np.float64)
        if wanted > 1:
            losses, self._calibration = judge_in_turn(margins, y, weight, self._calibration)
        else:
            losses = -log_expit(np.where(y == 1, margins[:, 0], -margins[:, 0]))
        return losses if classes > 1 else np.zeros(len(y)), wrong

    def _merge_states(self, other: Any) -> None:
        super()._merge_states(other)
        self._calibration = self._calibration + other._calibration

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        return [part | {"_calibration": self._calibration / k} for part in super()._split_states(k, which)]

    def _loss_name(self) -> str:
        return "log loss"

    def _saved_params(self) -> Document:
        given = self.class_weight  # a list of pairs in a file, where keys of a dict would become text
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
        ((numbers, arrays),) = super()._pack_states()
        return [(numbers, arrays | {"calibration": self._calibration})]

    def _unpack_states(self, states: list[Parts]) -> None:
        self._calibration = states[0].array("calibration", len(SHARPNESS), least=0.0)
        super()._unpack_states(states)

    def _probabilities(self, margins: Floats) -> Floats:
        if len(self.classes_) == 1:
            return np.ones((len(margins), 1))
        return of_two(margins) if margins.shape[1] == 1 else mixed(np.exp(sharpened(margins)), self._calibration)

    @property
    def coef_(self) -> Floats:
        """The mean effects (1 or n_classes, n_features) of features, in their own units."""
        return np.ascontiguousarray(self._linear_model()[0].T)

    @property
    def intercept_(self) -> Floats:
        """The intercepts (1 or n_classes,) that go with `coef_`."""
        return self._linear_model()[1]


class SketchedNewtonRegressor(RegressorMixin, UntunedEstimator, OnlineRegressor):
    r"""A linear regression learnt in one pass, with nothing to tune: no rates, no scales of features or targets.

    As `SketchedNewtonClassifier`, with the squared loss. Residuals are judged in units of recent ones, so targets that
    are a million times as large, or have any number added, have predictions to match. Predictions stay near the targets
    seen: at most a tenth of their range outside it.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        As for `SketchedNewtonClassifier`.
    loss : {"squared", "huber", "absolute", "quantile", "poisson"}, default="squared"
        "squared" predicts the mean. A residual of more than eight times the usual size pulls like one of eight times,
        so one wild target does no harm. With "huber" that begins at twice the usual size, for targets with many
        outliers. "absolute" predicts the median and "quantile" a quantile. "poisson" is for counts and other targets
        of at least 0: the logarithm of the mean is linear in the features.
    quantile : float, default=0.5
        The level of the quantile that `loss="quantile"` predicts, between 0 and 1.
    shuffle, epochs, random_state
        As for `SketchedNewtonClassifier`.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        `predict` is `X @ coef_ + intercept_`, but for rows far outside what was seen: those are kept near it. With
        `loss="poisson"` it is the exponential of that.
    hessian_, sketch_size_, drift_
        As of `SketchedNewtonClassifier`.
    progressive_loss_ : float
        Mean loss over all rows so far, each predicted before it was learnt: the squared, absolute or pinball loss, or
        the Poisson deviance.
    progressive_ : dict
        The same at 1, 2, 4, ... rows.
    n_samples_seen_, n_features_in_ : int

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
        shuffle: bool = True,
        epochs: int = 1,
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
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

    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        self._begin_model(d, 1)

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
            return 2.0 * (xlogy(y, y) - xlogy(y, predicted) - residuals)
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
