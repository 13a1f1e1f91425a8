"""Online classification and regression with nothing to tune: implicit Newton steps at several rates on one sketch."""

from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import log_expit
from sklearn.base import ClassifierMixin, RegressorMixin

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_integer
from robustfd.estimators._online import Floats, OnlineEstimator, blocks
from robustfd.estimators._probabilities import SHARPNESS, judge_in_turn, mixed, of_two, sharpened
from robustfd.estimators._targets import OnlineClassifier, OnlineRegressor
from robustfd.online._features import INTERCEPT, LENGTH, MEAN
from robustfd.online.rows import as_rows
from robustfd.online.snapshot import Parts
from robustfd.online.untuned import UntunedState
from robustfd.online.untuned_snapshot import pack_untuned, sizes_of_untuned, unpack_untuned

NARROW = 8  # features up to which a smaller sketch, as exact, serves
HUBER = 2.0  # residuals of late, from where on they count in proportion only
DENSE = 512  # features up to which sparse rows are made dense, a few at a time


class _Untuned(OnlineEstimator):
    """What classifier and regressor share: the model and its rows."""

    _learnt: ClassVar[tuple[str, ...]] = (*OnlineEstimator._learnt, "_model", "_calibration")
    sketch_size: Literal["auto"] | int
    _model: UntunedState
    n_features_in_: int

    def _check_parameters(self) -> None:
        if not (isinstance(self.sketch_size, str) and self.sketch_size == "auto"):
            check_integer("sketch_size", self.sketch_size, 2)

    def _begin_model(self, d: int, outputs: int, *, sparse: bool, growing: bool, huber: float | None = None) -> None:
        m = self.sketch_size
        if isinstance(m, str):
            m = 10 if d <= NARROW and not growing else 20
        self._model = UntunedState(d, int(m), outputs, sparse=growing or (sparse and d > DENSE), huber=huber)

    def _learn_margins(self, x: Any, y: Any, weight: Floats) -> Floats:
        """Learn rows and return their margins."""
        model = self._model
        margins = np.empty((x.shape[0], model.outputs))
        model.expect(x.shape[0])
        for part, rows in blocks(x, sparse=model.sparse):
            rows = as_rows(rows, sparse=model.sparse)
            try:
                with np.errstate(over="raise", invalid="raise"):
                    model.learn(rows, y[part].astype(np.float64), weight[part], margins[part])
                fine = bool(np.isfinite(margins[part]).all())
            except (FloatingPointError, np.linalg.LinAlgError):
                fine = False
            if not fine:
                model.mix.losses[:] = np.nan  # so that nothing is learnt or predicted any more
                raise OverflowError(
                    f"The numbers of {type(self).__name__} overflowed, and it can learn no more: there are features, "
                    "weights or targets of too different sizes."
                )
        return margins

    def _margins(self, x: Any) -> Floats:
        margins = np.empty((x.shape[0], self._model.outputs))
        for part, rows in blocks(x, sparse=self._model.sparse):
            margins[part] = self._model.margins(as_rows(rows, sparse=self._model.sparse))
        return margins

    def _widen(self, d: int) -> None:
        self._model.widen(d)

    def _weights(self) -> Floats:
        self._require_rows()
        return self._model.weights()[: 1 + self.n_features_in_]

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        return [pack_untuned(self._model)]

    def _unpack_states(self, states: list[Parts]) -> None:
        (parts,) = states
        d, m, outputs = sizes_of_untuned(parts)
        self._check_sizes(d, outputs, sparse=(sparse := parts.flag("sparse")))
        if self.sketch_size not in ("auto", m):
            raise ValueError(f"{m} rows in a sketch of {self.sketch_size}")
        huber = {None: None, "squared": np.inf, "huber": HUBER}[getattr(self, "loss", None)]
        self._model = UntunedState(d, m, outputs, sparse=sparse, huber=huber)
        unpack_untuned(self._model, parts)

    @property
    def singular_values_(self) -> Floats:
        """The lengths (sketch_size - 1,) of the rows of the sketch, of scaled rows, after the last shrink; 0 before."""
        self._require_rows()
        return np.sqrt(self._model.mix.lam)

    @property
    def offset_(self) -> Floats:
        """What is subtracted from each feature."""
        self._weights()
        return self._model.features.table[1 : 1 + self.n_features_in_, MEAN].copy()


class SketchedNewtonClassifier(ClassifierMixin, _Untuned, OnlineClassifier):
    r"""A linear classifier learnt in one pass, with nothing to tune.

    Logistic loss, one against the rest for more than two classes. Features are scaled, and those that are seldom
    zero centred, by what was seen of them; the Hessian of the loss is kept as

    .. math:: H = D + B'B,

    B a Frequent Directions sketch of the rows, weighted by the curvature of the loss, and D a diagonal to which
    shrinks put back what they take away, where they took it: the diagonal of H is exact at all times. For every row
    the steps :math:`w \leftarrow w + s \eta H^{-1} x` are implicit, so that none can overshoot, and are taken at
    five rates eta side by side; the prediction is their mixture, by exponential weights of their recent losses. See
    docs/mathematics.md. The sketch pays where features are correlated; on sparse text the diagonal does nearly as well.

    Probabilities are logistic. For more than two classes they are a mixture, by the log losses so far, of three ways
    to make them of margins, from logistic ones divided by their sum to the softmax.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        m, rows of the sketch: 20, or 10 for up to 8 features. A row costs O(m) for each of its non-zeros and
        O(m^2), whatever the number of features.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    coef_ : array of shape (1 or n_classes, n_features)
    intercept_ : array of shape (1 or n_classes,)
        Of rows as they are scaled and centred: `decision_function` is r (x - offset_)'coef_ + intercept_, with a
        scale r of the row that is about 1 over its length in units of the features.
    offset_ : array of shape (n_features,)
    progressive_loss_, progressive_error_ : float
        Log loss and share of errors over all rows so far, each judged before it was learnt.
    progressive_ : dict
        The same at 1, 2, 4, ... rows.
    n_samples_seen_, n_features_in_ : int

    Notes
    -----
    Beyond Luo et al. 2019: its regret bounds do not cover the diagonal, nor the mixture. What the first rows are
    (four times the size of the sketch) is learnt again a few times while they come, each time with the scales of all
    of them so far.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from robustfd import SketchedNewtonClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SketchedNewtonClassifier().fit(X, y)
    >>> round(model.progressive_error_, 2), round(model.score(X, y), 2)
    (0.04, 0.98)
    """

    def __init__(self, sketch_size: Literal["auto"] | int = "auto"):
        self.sketch_size = sketch_size

    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        self._begin_model(d, outputs, sparse=sparse, growing=growing)
        self._calibration = np.zeros(len(SHARPNESS))

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        wanted = len(self.classes_) if len(self.classes_) > 2 else 1
        if wanted > self._model.outputs:  # a class that appeared later
            self._model.add_outputs(wanted)
        margins = self._learn_margins(x, y, weight)
        wrong = (self._decide(margins) != y).astype(np.float64)
        if wanted > 1:
            losses, self._calibration = judge_in_turn(margins, y, weight, self._calibration)
        else:
            losses = -log_expit(np.where(y == 1, margins[:, 0], -margins[:, 0]))
        return losses if len(self.classes_) > 1 else np.zeros(len(y)), wrong

    def _loss_name(self) -> str:
        return "log loss"

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
        """The weights (1 or n_classes, n_features) of centred rows."""
        return np.ascontiguousarray(self._weights()[1:].T)

    @property
    def intercept_(self) -> Floats:
        """The intercepts (1 or n_classes,)."""
        return INTERCEPT * self._weights()[0]


class SketchedNewtonRegressor(RegressorMixin, _Untuned, OnlineRegressor):
    r"""A linear regression learnt in one pass, with nothing to tune: no rates, no scales of features or targets.

    As `SketchedNewtonClassifier`, with the squared loss: residuals are judged in units of those of late, so that
    targets a million times as large, or with any number added, have predictions a million times as large, or with
    that number added.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        m, rows of the sketch: 20, or 10 for up to 8 features.
    loss : {"squared", "huber"}, default="squared"
        With "huber" residuals beyond twice the usual count, and pull, only in proportion: for targets with outliers.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    offset_ : array of shape (n_features,)
        `predict` is (x - offset_)'coef_ + intercept_. Where most numbers of the first rows are zero, rows are also
        scaled each on its own: see `SketchedNewtonClassifier`.
    progressive_loss_ : float
        Mean squared error over all rows so far, each predicted before it was learnt.
    progressive_ : dict
        The same at 1, 2, 4, ... rows.
    n_samples_seen_, n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from robustfd import SketchedNewtonRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SketchedNewtonRegressor().fit(X, y)
    >>> round(model.score(X, y), 1)
    0.5
    """

    def __init__(self, sketch_size: Literal["auto"] | int = "auto", *, loss: Literal["squared", "huber"] = "squared"):
        self.sketch_size = sketch_size
        self.loss = loss

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, ("squared", "huber"))
        super()._check_parameters()

    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        huber = np.inf if self.loss == "squared" else HUBER
        self._begin_model(d, 1, sparse=sparse, growing=growing, huber=huber)

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        residuals = y - self._learn_margins(x, y, weight)[:, 0]
        with np.errstate(over="ignore"):
            return np.square(residuals), np.full(len(y), np.nan)

    def _loss_name(self) -> str:
        return "squared error"

    @property
    def coef_(self) -> Floats:
        """The weights (n_features,) of centred rows."""
        length = self._model.features.totals[LENGTH]
        return self._weights()[1:, 0] * (length if length > 0 else 1.0)

    @property
    def intercept_(self) -> float:
        """The intercept."""
        return float(INTERCEPT * self._weights()[0, 0] + self._model.offset)
