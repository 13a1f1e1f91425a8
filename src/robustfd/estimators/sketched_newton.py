"""Online classification and regression with nothing to tune: experts side by side, mixed by what they earn."""

import numbers
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import log_expit, xlogy
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, compute_class_weight

from robustfd._container import Document, Tensors, plain
from robustfd._validation import check_choice, check_integer, check_real
from robustfd.estimators._missing import first_gaps, with_indicators
from robustfd.estimators._online import Floats, OnlineEstimator, blocks
from robustfd.estimators._probabilities import SHARPNESS, judge_in_turn, mixed, of_two, sharpened
from robustfd.estimators._single_rows import IS_MISSING, Names, SingleRow, names_of
from robustfd.estimators._snapshot import plain_label
from robustfd.estimators._targets import OnlineClassifier, OnlineRegressor
from robustfd.online import first_edition, progress, untuned_merging
from robustfd.online.mixture import NumberLoss
from robustfd.online.rows import LARGEST, CsrRows, as_rows
from robustfd.online.snapshot import Parts
from robustfd.online.untuned import SPARE, UntunedState
from robustfd.online.untuned_merging import with_features_at

LOSSES = ("squared", "huber", "absolute", "quantile", "poisson")
USUAL = 0.75  # a number that more than this share of dicts has is missing where it is not
FEW_ROWS = 256  # one pass over fewer is too short
LOSS_NAMES = {"absolute": "absolute error", "quantile": "pinball loss", "poisson": "Poisson deviance"}


class _Untuned(OnlineEstimator):
    """What classifier and regressor share: the model and its rows."""

    _learnt: ClassVar[tuple[str, ...]] = (
        *OnlineEstimator._learnt,
        "_model",
        "_calibration",
        "_missing",
        "_usual",
        "_names",
        "_encoder",
    )
    _takes_missing = _takes_tables = True
    sketch_size: Literal["auto"] | int
    shuffle: bool
    epochs: int
    random_state: Any
    _model: UntunedState
    _usual: set[Any]  # names of numbers that most dicts have
    _names: Names | None  # those of the last dict, if all are known and none of them is missing
    _missing: list[int]  # columns in which a value was missing, in the order of the features that say so
    n_features_in_: int

    def _check_parameters(self) -> None:
        check_choice("shuffle", self.shuffle, (True, False))
        check_integer("epochs", self.epochs, 1)
        check_random_state(self.random_state)
        if isinstance(self.sketch_size, str) and self.sketch_size == "auto":
            return
        if check_integer("sketch_size", self.sketch_size, 0) == 1:
            raise ValueError("sketch_size must be 'auto', 0 (no sketch) or an integer of at least 2, got 1.")

    def _begin_model(self, d: int, outputs: int) -> None:
        sketch = None if isinstance(self.sketch_size, str) else int(self.sketch_size)
        share = getattr(self, "_share", 1.0)
        self._model = UntunedState(d, outputs, sketch=sketch, loss=self._number_loss(), share=share)
        self._missing, self._usual = [], set()

    def _number_loss(self) -> NumberLoss | None:
        """Return the loss if targets are numbers."""
        return None

    def _saved_params(self) -> Document:
        params = self.get_params(deep=False)
        if not isinstance(self.random_state, numbers.Integral):
            params["random_state"] = None  # a generator cannot be saved
        return plain({name: value for name, value in params.items() if name != "class_weight"})

    def _orders(self, n: int) -> Iterator[NDArray[np.int64] | None]:
        random = check_random_state(self.random_state)
        for _ in range(max(self.epochs, 3 if self.shuffle and n < FEW_ROWS else 1)):
            yield random.permutation(n) if self.shuffle else None

    def _row_of(self, x: Any, kind: Any, *, known_only: bool = False) -> tuple[Any, dict[Any, int]]:
        if kind != "dicts":
            return super()._row_of(x, kind, known_only=known_only)
        before = getattr(self, "_names", None)
        if before is not None and (row := before.row_of(x, self.n_features_in_, LARGEST)) is not None:
            return row, {}
        absent = getattr(self, "_usual", set()) - x.keys()
        if not absent and self._kind == "dicts":
            self._names = names_of(x, self._vocabulary)
        return super()._row_of({**x, **dict.fromkeys(absent)} if absent else x, kind, known_only=known_only)

    def _note_usual(self) -> None:
        """Find the names of numbers that most dicts have, whenever the number of rows has doubled."""
        rows = self._model.seen
        if self._kind == "dicts" and rows >= 8 and rows & (rows - 1) == 0:
            often = self._model.experts.features.table["count"][1:] > USUAL * rows
            names = [name for name, j in self._vocabulary.items() if often[j]]
            self._usual = {n for n in names if "=" not in str(n) and not str(n).endswith(IS_MISSING)}
            self._names = None  # it may lack one of them

    def _single_row(self, values: Floats, indices: NDArray[np.int32], width: int) -> Any:
        return SingleRow(values, indices, np.array([0, len(indices)]), (1, width))

    def _learn_margins(self, x: Any, y: Any, weight: Floats) -> Floats:
        """Learn rows and return their margins."""
        margins = np.empty((x.shape[0], self._model.outputs))
        if isinstance(x, SingleRow):
            self._model.learn(CsrRows(*x[:3]), y.astype(np.float64), weight, margins)
            self._note_usual()
            return margins
        for part, rows in blocks(x, sparse=sp.issparse(x)):
            for some, whole in self._with_new_indicators(as_rows(rows, sparse=sp.issparse(x))):
                here = slice(part.start + some.start, part.start + some.stop)
                self._model.learn(whole, y[here].astype(np.float64), weight[here], margins[here])
        return margins

    def _with_new_indicators(self, x: Any) -> Iterator[tuple[slice, Any]]:
        """Yield rows with features for what is missing, cut where a value is missing in a column for the first time.

        So a new feature comes with its row, however rows are cut into batches.
        """
        n, begin, new = x.shape[0], 0, first_gaps(x, self._missing)
        for row, columns in [*new, (n, [])]:
            if row > begin:
                rows = x if (begin, row) == (0, n) else x[begin:row]
                yield slice(begin, row), with_indicators(rows, self._missing)
            if columns:
                self._missing = [*self._missing, *columns]
                self._model.widen(self.n_features_in_ + len(self._missing), growing=False)
            begin = row

    def _margins(self, x: Any) -> Floats:
        if isinstance(x, SingleRow):
            return self._model.margins(CsrRows(*x[:3]), 1, alone=True)  # the caller holds the lock
        margins = np.empty((x.shape[0], self._model.outputs))
        for part, rows in blocks(x, sparse=sp.issparse(x)):
            rows = with_indicators(as_rows(rows, sparse=sp.issparse(x)), self._missing)
            margins[part] = self._model.margins(rows)
        return margins

    def contributions(self, X: Any) -> Any:
        """Return what each feature adds to the prediction of each row.

        With `intercept_` the contributions of a row sum to `decision_function`, for a regression to `predict`. What
        is added because a value is missing counts as the contribution of its column.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, n_features)

        Returns
        -------
        array or sparse array of shape (n, n_features)
            Sparse if X is. For more than two classes it is a list of them, one for each class.
        """
        self._require_rows()
        x, d = self._checked(X), self.n_features_in_
        found: list[list[Any]] = [[] for _ in range(self._model.outputs)]
        for _, rows in blocks(x, sparse=sp.issparse(x)):
            rows = with_indicators(as_rows(rows, sparse=sp.issparse(x)), self._missing)
            indptr, which, parts = self._model.contributions(rows)
            columns = np.append(np.arange(d), self._missing)[which].astype(np.int64)
            for c, each in enumerate(found):
                entries = parts[:, c], columns.copy(), indptr.copy()  # what is summed below is changed in place
                sums = sp.csr_array(entries, shape=(rows.shape[0], d))
                sums.sum_duplicates()
                each.append(sums if sp.issparse(x) else sums.toarray())
        results = [sp.vstack(each, "csr") if sp.issparse(x) else np.vstack(each) for each in found]
        return results[0] if len(results) == 1 else results

    @property
    def effects_(self) -> Floats:
        """What features usually add to predictions (1 or n_classes, n_features + columns in which values were missing).

        That is the weight times the root mean square of the feature, less its mean if it is seldom 0, times the share
        of rows where it is not 0. The last features are those of `missing_columns_`: that a value is missing there.
        """
        self._require_rows()
        return np.ascontiguousarray(self._model.effects()[: self.n_features_in_ + len(self._missing)].T)

    @property
    def missing_columns_(self) -> NDArray[np.int64]:
        """The columns in which a value was missing, in the order in which that first occurred."""
        self._require_rows()
        return np.array(self._missing, np.int64)

    def _widen(self, d: int) -> None:
        self._model.widen(d)

    # -- merging

    @property
    def share_(self) -> float:
        """The part of the prior that this model has: 1, or 1/k if it is one of k that `split` gave."""
        return self._model.share if self.__sklearn_is_fitted__() else getattr(self, "_share", 1.0)

    def _take_share(self, share: float) -> None:
        if self.__sklearn_is_fitted__() and share > 0:
            self._model = untuned_merging.with_more_prior(self._model, share)

    def _split_states(self, k: int, which: Sequence[int]) -> list[dict[str, Any]]:
        return [{"_model": model} for model in untuned_merging.split(self._model, k, which)]

    def _merge_states(self, other: Any) -> None:
        here, there, width = self._join_features(other)
        room = max(self._model.d, other._model.d, width)
        one, two = (
            model if np.array_equal(places, np.arange(len(places))) else with_features_at(model, places, room)
            for model, places in ((self._model, here), (other._model, there))
        )
        self._model = untuned_merging.merge(one, two, room)

    def _join_features(self, other: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Take in the features of another model; return where those of both will be, and how many there are."""
        if self._kind == "dicts":
            names, known = dict(self._vocabulary), len(self._vocabulary)
            places = [names.setdefault(name, len(names)) for name in other._vocabulary]
            self._vocabulary, self._usual = names, self._usual | other._usual
            self.n_features_in_ = max(self.n_features_in_, len(names))
            return np.arange(known), np.array(places, np.int64), self.n_features_in_
        self.n_features_in_ = d = max(self.n_features_in_, other.n_features_in_)
        before = [self._missing, other._missing]
        if before[0] != before[1]:  # the same whichever model is first
            self._missing = sorted({*before[0], *before[1]})
        here, there = (np.array([*range(d), *(d + self._missing.index(j) for j in each)], np.int64) for each in before)
        return here, there, d + len(self._missing)

    def _linear_model(self) -> tuple[Floats, Floats]:
        """Return weights (n_features, outputs) and intercepts (outputs,) in the units of the features."""
        self._require_rows()
        weights, intercepts = self._model.linear_model()
        return weights[: self.n_features_in_], intercepts

    def _pack_states(self) -> list[tuple[Document, Tensors]]:
        numbers, arrays = self._model.pack()
        usual = [self._vocabulary[name] for name in self._usual]
        more = {"missing": self._missing, "usual": sorted(usual)}
        return [(numbers, arrays | {name: np.array(some, np.int32) for name, some in more.items() if some})]

    def _unpack_states(self, states: list[Parts]) -> None:
        (parts,) = states
        columns: dict[str, list[int]] = {"missing": [], "usual": []}
        for name in columns:
            if parts.has(name):
                n, most = parts.shape(name, 1)[0], self.n_features_in_ - 1
                columns[name] = parts.array(name, n, dtype=np.int32, least=0, most=most).tolist()
                if len(set(columns[name])) != n or self._kind != ("rows" if name == "missing" else "dicts"):
                    raise ValueError(f"{name} makes no sense")
        self._missing, names = columns["missing"], list(getattr(self, "_vocabulary", ()))
        self._usual = {names[j] for j in columns["usual"]}

        def check(d: int, outputs: int) -> None:
            inputs = self.n_features_in_ + len(self._missing)
            self._check_sizes(d if not self._missing or d < inputs else self.n_features_in_, outputs, sparse=True)
            if d > 2 * inputs + SPARE:
                raise ValueError(f"room for {d} features, of which {inputs} were seen")

        sketch = None if isinstance(self.sketch_size, str) else int(self.sketch_size)
        unpack = first_edition.unpack if first_edition.is_first_edition(parts) else UntunedState.unpack
        self._model = unpack(parts, check, sketch=sketch, loss=self._number_loss())

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
        wanted = len(self.classes_) if len(self.classes_) > 2 else 1
        if wanted > self._model.outputs:  # a class that appeared later
            self._model.add_outputs(wanted)
        margins = self._learn_margins(x, y, weight)
        if wanted == len(y) == 1 < len(self.classes_):  # the same numbers in a fifth of the time
            margin, second = margins[0, 0], y[0] == 1
            return np.array([-log_expit(margin if second else -margin)]), np.array([float((margin > 0) != second)])
        wrong = (self._decide(margins) != y).astype(np.float64)
        if wanted > 1:
            losses, self._calibration = judge_in_turn(margins, y, weight, self._calibration)
        else:
            losses = -log_expit(np.where(y == 1, margins[:, 0], -margins[:, 0]))
        return losses if len(self.classes_) > 1 else np.zeros(len(y)), wrong

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


class SketchedNewtonRegressor(RegressorMixin, _Untuned, OnlineRegressor):
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
