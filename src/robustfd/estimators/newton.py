"""Online classification without tuning, by a mixture of linear experts."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from robustfd._container import Document, Tensors
from robustfd._core import FIRST_SHARE, Judge, recalibrate
from robustfd._validation import check_real
from robustfd.estimators._targets import (
    SHARPNESS,
    mixed,
    progressive_chances,
    progressive_losses,
    recalibrated,
    sharpened,
)
from robustfd.estimators._transfer import plain_label
from robustfd.estimators.intervals import SetClassifier
from robustfd.learners.rows import Floats
from robustfd.learners.snapshot import Parts

TWICE = (8, 100)  # `fit` learns rows twice if there are so many for each feature: fewer are remembered, more are enough
LEAST_SHARE = 1e-12  # of a map in merged calibrations: the product of many shares may be 0


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

    Probabilities are recalibrated: they are a mixture of several mappings from margins to probabilities, weighted by
    the log losses so far. For two classes the logistic probability counts alone until another mapping, less or more
    certain or with noisy labels, has a clearly lower loss; predicted labels stay the same. For more classes the three
    mappings range from normalised logistic probabilities to the softmax.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        With "auto", the model chooses the Hessian. An integer m of at least 2 always uses a sketch of m rows, and 0
        uses the diagonal alone. A row costs O(1) per non-zero entry, or O(m) with a sketch.
    shuffle : bool, default=True
        Whether `fit` learns the rows in random order. `partial_fit` and `learn_one` never reorder.
    epochs : int, default=1
        Number of passes of `fit` over the rows. If it shuffles, there are at least three over fewer than 256 rows, and
        at least two over 8 to 100 rows a feature. Only the first pass counts for the progressive losses, and decides
        how much each expert of the mixture counts.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes. A dict maps classes to weights; classes that are not in it have weight 1. "balanced"
        weights classes inversely to their frequency and works with `fit` only.
    intervals : bool, default=False
        Whether to track what `predict_set` needs.
    expand : {None, "trees", "auto"}, default=None
        Whether to add curves and interactions, for tables of up to 1024 numbers and categories. "trees" grows boosted
        trees from stored rows and learns from their sums and leaves, too; "auto" does so while that lowers the loss by
        at least half a percent. Learning takes 7 to 11 times as long.
    random_state : int, RandomState or None, default=None
        Seed or generator for shuffling; an integer is also the seed of trees.

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
    experts_ : dict
        The share of each kind of expert in predictions: "slow" and "fast" diagonal Hessians, "bettors" and experts with
        a "flat prior" (for rare features, and few rows of many useless ones), those with an "exact" Hessian and the
        factor of its prior (small for strongly correlated features), or with a "sketch". Kinds that do not help are
        dropped, and missing here.
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
        expand: Literal["trees", "auto"] | None = None,
        random_state: Any = None,
    ):
        self.sketch_size = sketch_size
        self.intervals = intervals
        self.expand = expand
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

    def _output_labels(self) -> list[Any]:
        return self.classes_.tolist() if self._outputs > 1 else [None]

    def _repeats(self, passes: int, n: int) -> bool:
        few = self.shuffle and self.expand is None and TWICE[0] <= n / max(self._model.d, 1) < TWICE[1]
        return (few and passes == 1) or super()._repeats(passes, n)

    def _judge(self) -> tuple[dict[Any, int] | None, Judge, float] | None:
        simple = len(self.classes_) == 2 and self.class_weight is None and len(self._calibration) == len(FIRST_SHARE)
        return (self._class_places(), Judge.classes, 0.0) if simple else None

    def _begin(self, x: Any) -> None:
        super()._begin(x)
        self._calibration = self._first_calibration()

    def _first_calibration(self) -> Floats:
        """Return shares of the mappings of two classes, or losses of those of more, before the first row."""
        return np.zeros(len(SHARPNESS)) if self._outputs > 1 else np.array(FIRST_SHARE)

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        if self._outputs > self._model.outputs:  # a new class appeared
            self._model.add_outputs(self._outputs)
            if self.expand is not None:
                self._expansion.add_outputs(self._outputs)
            if len(self._calibration) != len(SHARPNESS):
                self._calibration = self._first_calibration()
        margins = self._learn_margins(x, y, weight)
        if margins.shape[1] > 1:
            before = self._calibration
            losses, self._calibration = progressive_losses(margins, y, weight, before)
            if self._tracks():
                self._track_labels(progressive_chances(margins, y, weight, before), y, weight)
            return losses, (margins.argmax(axis=1) != y).astype(np.float64)
        if len(self.classes_) == 1:
            self._track_labels(np.ones((len(y), 1)), y, weight)
            return np.zeros(len(y)), np.zeros(len(y))
        margin, losses, chances = margins[:, 0].copy(), np.empty(len(y)), np.empty((len(y), 2))
        self._calibration = self._calibration.copy()
        recalibrate(self._calibration, margin, y.astype(np.float64), weight, losses, chances)
        self._track_labels(chances, y, weight)
        return losses, ((margin > 0) != (y == 1)).astype(np.float64)

    def _learn_again(self, x: Any, y: Any, weight: Floats) -> None:
        margins = self._learn_margins(x, y, weight, new=False)
        if margins.shape[1] > 1:  # with few rows of many classes, counting known rows too is better
            self._calibration = progressive_losses(margins, y, weight, self._calibration)[1]

    def _merge_states(self, other: Any) -> None:
        super()._merge_states(other)
        self._calibration = self._pooled([self._calibration, other._calibration], 1.0)

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        part = {"_calibration": self._pooled([self._calibration], 1.0 / k)}
        return [each | part for each in super()._split_states(k, which)]

    def _pooled(self, parts: list[Floats], times: float) -> Floats:
        """Return the calibration after all rows of the parts, each of which counts `times` times."""
        if self._outputs > 1:
            return np.asarray(times * np.sum(parts, axis=0))
        first = np.log(FIRST_SHARE)
        evidence = first + times * np.sum(np.log(parts) - first, axis=0)
        share = np.maximum(np.exp(evidence - evidence.max()), LEAST_SHARE)
        return np.asarray(share / share.sum())

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
        self._calibration = states[0].array("calibration", len(self._first_calibration()), least=0.0)
        if self._outputs == 1 and not (self._calibration > 0.0).all():
            raise ValueError("a share of the calibration is not positive")
        super()._unpack_states(states)

    def _probabilities(self, margins: Floats) -> Floats:
        if len(self.classes_) == 1:
            return np.ones((len(margins), 1))
        if margins.shape[1] == 1:
            return recalibrated(margins, self._calibration)
        return mixed(np.exp(sharpened(margins)), self._calibration)

    @property
    def coef_(self) -> Floats:
        """The mean effects of the features (1 or n_classes, n_features), in their own units."""
        return np.ascontiguousarray(self._linear_model()[0].T)

    @property
    def intercept_(self) -> Floats:
        """The intercepts (1 or n_classes,) that belong to `coef_`."""
        return self._linear_model()[1]
