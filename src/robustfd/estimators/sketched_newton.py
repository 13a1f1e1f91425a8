"""Online classification and regression with nothing to tune: experts side by side, mixed by what they earn."""

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_expit
from sklearn.base import ClassifierMixin, RegressorMixin

from robustfd._container import Document, Tensors
from robustfd._validation import check_choice, check_integer
from robustfd.estimators._online import Floats, OnlineEstimator, blocks
from robustfd.estimators._probabilities import SHARPNESS, judge_in_turn, mixed, of_two, sharpened
from robustfd.estimators._targets import OnlineClassifier, OnlineRegressor
from robustfd.online import first_edition, progress
from robustfd.online.rows import CsrRows, as_rows
from robustfd.online.snapshot import Parts
from robustfd.online.untuned import UntunedState

HUBER = {"squared": 8.0, "huber": 2.0}  # recent residuals, from where on one counts in proportion only


class SingleRow(NamedTuple):
    """A sparse row; scipy would take longer to make it than the model to learn it."""

    data: Floats
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    shape: tuple[int, int]


class _Untuned(OnlineEstimator):
    """What classifier and regressor share: the model and its rows."""

    _learnt: ClassVar[tuple[str, ...]] = (*OnlineEstimator._learnt, "_model", "_calibration")
    sketch_size: Literal["auto"] | int
    _model: UntunedState
    n_features_in_: int

    def _check_parameters(self) -> None:
        if isinstance(self.sketch_size, str) and self.sketch_size == "auto":
            return
        if check_integer("sketch_size", self.sketch_size, 0) == 1:
            raise ValueError("sketch_size must be 'auto', 0 (no sketch) or an integer of at least 2, got 1.")

    def _begin_model(self, d: int, outputs: int) -> None:
        sketch = None if isinstance(self.sketch_size, str) else int(self.sketch_size)
        self._model = UntunedState(d, outputs, sketch=sketch, huber=HUBER.get(getattr(self, "loss", "")))

    def _single_row(self, values: Floats, indices: NDArray[np.int32], width: int) -> Any:
        return SingleRow(values, indices, np.array([0, len(indices)]), (1, width))

    def _learn_margins(self, x: Any, y: Any, weight: Floats) -> Floats:
        """Learn rows and return their margins."""
        margins = np.empty((x.shape[0], self._model.outputs))
        if isinstance(x, SingleRow):
            self._model.learn(CsrRows(*x[:3]), y.astype(np.float64), weight, margins)
            return margins
        for part, rows in blocks(x, sparse=sp.issparse(x)):
            rows = as_rows(rows, sparse=sp.issparse(x))
            self._model.learn(rows, y[part].astype(np.float64), weight[part], margins[part])
        return margins

    def _margins(self, x: Any) -> Floats:
        if isinstance(x, SingleRow):
            return self._model.margins(CsrRows(*x[:3]), 1)
        margins = np.empty((x.shape[0], self._model.outputs))
        for part, rows in blocks(x, sparse=sp.issparse(x)):
            margins[part] = self._model.margins(as_rows(rows, sparse=sp.issparse(x)))
        return margins

    def _widen(self, d: int) -> None:
        self._model.widen(d)

    def _linear_model(self) -> tuple[Floats, Floats]:
        """Return weights (n_features, outputs) and intercepts (outputs,) in the units of the features."""
        self._require_rows()
        weights, intercepts = self._model.linear_model()
        return weights[: self.n_features_in_], intercepts

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        return [self._model.pack()]

    def _unpack_states(self, states: list[Parts]) -> None:
        (parts,) = states

        def check(d: int, outputs: int) -> None:
            self._check_sizes(d, outputs, sparse=True)
            if d > 2 * self.n_features_in_:
                raise ValueError(f"room for {d} features, of which {self.n_features_in_} were seen")

        sketch = None if isinstance(self.sketch_size, str) else int(self.sketch_size)
        unpack = first_edition.unpack if first_edition.is_first_edition(parts) else UntunedState.unpack
        self._model = unpack(parts, check, sketch=sketch, huber=HUBER.get(getattr(self, "loss", "")))

    @property
    def hessian_(self) -> str:
        """The form of the Hessian in use: "diagonal", "exact", or "sketch" for a diagonal and a sketch."""
        self._require_rows()
        return self._model.form

    @property
    def sketch_size_(self) -> int:
        """The rows of the sketch in use, 0 if there is none."""
        self._require_rows()
        return self._model.size if self._model.form == "sketch" else 0

    @property
    def singular_values_(self) -> Floats:
        """The lengths of the rows of the sketch after its last shrink, in units of the features; none without one."""
        self._require_rows()
        return np.sqrt(self._model.experts.low_rank.lam)

    @property
    def drift_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows" and "share": the share of experts that forget, mean over all rows since the entry before.

        It is near 0.5 or below while the past is a good guide, and rises when the stream changes.
        """
        self._require_rows()
        return self._model.drift()

    def plot_progress(self, ax: Any = None, label: str | None = None) -> Any:
        """Draw `progressive_` against the number of rows, and `drift_` below; return the axes of the former.

        With `ax` given only `progressive_` is drawn, to it.
        """
        if ax is not None:
            return super().plot_progress(ax=ax, label=label)
        upper, lower = progress.two_panels()
        progress.plot_drift(self.drift_, lower)
        return super().plot_progress(ax=upper, label=label)


class SketchedNewtonClassifier(ClassifierMixin, _Untuned, OnlineClassifier):
    r"""A linear classifier learnt in one pass, with nothing to tune.

    Logistic loss, one against the rest for more than two classes. Linear experts learn side by side. They differ in
    the rate of their steps, in how much of the past their Hessian H remembers, and in how they scale rows. For every
    row each takes a step :math:`w \leftarrow w + s \eta H^{-1} x` that is implicit, so that none can overshoot. The
    prediction is the mean of the experts by the shares they have earned, which follow a stream that changes.

    H is the diagonal for all streams. Experts with a better Hessian are added where they pay: the exact one for few
    features, and for more a diagonal plus a Frequent Directions sketch, :math:`H = D + B'B`. The model looks at what
    they gain when the number of rows doubles, and drops them or makes the sketch larger.

    Features are scaled by what was seen of them, and those that are seldom zero are centred. Outliers, and features
    that change their unit, do no lasting harm. See docs/online-mathematics.md.

    Probabilities are logistic. For more than two classes they are a mixture, by the log losses so far, of three ways
    to make them of margins, from logistic ones divided by their sum to the softmax.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        By default the model decides which Hessian pays. An integer m of at least 2 fixes a sketch of m rows, and 0 the
        diagonal alone. A row costs O(1) for each of its non-zeros, and O(m) with a sketch.

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
    >>> model = SketchedNewtonClassifier().fit(X, y)
    >>> round(model.progressive_error_, 2), round(model.score(X, y), 2)
    (0.04, 0.98)
    """

    def __init__(self, sketch_size: Literal["auto"] | int = "auto"):
        self.sketch_size = sketch_size

    def _begin(self, d: int, *, sparse: bool, growing: bool) -> None:
        outputs = len(self.classes_) if len(self.classes_) > 2 else 1
        self._begin_model(d, outputs)
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
        """The mean effects (1 or n_classes, n_features) of features, in their own units."""
        return np.ascontiguousarray(self._linear_model()[0].T)

    @property
    def intercept_(self) -> Floats:
        """The intercepts (1 or n_classes,) that go with `coef_`."""
        return self._linear_model()[1]


class SketchedNewtonRegressor(RegressorMixin, _Untuned, OnlineRegressor):
    r"""A linear regression learnt in one pass, with nothing to tune: no rates, no scales of features or targets.

    As `SketchedNewtonClassifier`, with the squared loss. Residuals are judged in units of recent ones, so targets that
    are a million times as large, or have any number added, have predictions to match. Predictions stay near the targets
    seen: at most a tenth of their range outside it.

    Parameters
    ----------
    sketch_size : "auto" or int, default="auto"
        As for `SketchedNewtonClassifier`.
    loss : {"squared", "huber"}, default="squared"
        A residual of more than eight times the usual size pulls like one of eight times: one wild target does no
        harm. With "huber" that begins at twice the usual size, for targets with many outliers.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        `predict` is `X @ coef_ + intercept_`, but for rows far outside what was seen: those are kept near it.
    hessian_, sketch_size_, drift_
        As of `SketchedNewtonClassifier`.
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
        self._begin_model(d, 1)

    def _learn_rows(self, x: Any, y: Any, weight: Floats) -> tuple[Floats, Floats]:
        residuals = y - self._learn_margins(x, y, weight)[:, 0]
        with np.errstate(over="ignore"):
            return np.square(residuals), np.full(len(y), np.nan)

    def _loss_name(self) -> str:
        return "squared error"

    @property
    def coef_(self) -> Floats:
        """The weights (n_features,)."""
        return np.ascontiguousarray(self._linear_model()[0][:, 0])

    @property
    def intercept_(self) -> float:
        """The intercept."""
        return float(self._linear_model()[1][0])
