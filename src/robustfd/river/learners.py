"""Classifiers and regressors with River's interface."""

from typing import Any, Literal

from robustfd.estimators import newton, newton_regressor, rfdson
from robustfd.river._base import Classifier, Covering, Explained, Regressor


class SketchedNewtonClassifier(Explained, Covering, Classifier):
    """Online logistic classifier without tuning. See `robustfd.SketchedNewtonClassifier`.

    Numbers need no scaling. Strings are treated as categories, or as words if they have several. No scaler or encoder
    is necessary.

    Parameters
    ----------
    sketch_size
        Number of rows of the Hessian's sketch. With "auto", the model chooses the Hessian.
    class_weight
        Weights of the classes. Classes that are not in the dict have weight 1.
    intervals
        Whether to track what `predict_set_one` needs.
    expand
        "trees" or "auto" to add curves and interactions by boosted trees.

    See Also
    --------
    SketchedNewtonRegressor : The same method for regression.
    RFDSONClassifier : The online Newton classifier of the paper.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from robustfd.river import SketchedNewtonClassifier
    >>> metric = evaluate.progressive_val_score(datasets.Phishing(), SketchedNewtonClassifier(), metrics.Accuracy())
    >>> metric.get() > 0.87
    True
    """

    def __init__(
        self,
        sketch_size: Literal["auto"] | int = "auto",
        class_weight: dict[Any, float] | None = None,
        intervals: bool = False,
        expand: Literal["trees", "auto"] | None = None,
    ):
        self._start(
            newton.SketchedNewtonClassifier, sketch_size=sketch_size, class_weight=class_weight, intervals=intervals,
            expand=expand,
        )  # fmt: skip

    def predict_set_one(self, x: dict[Any, Any], level: float = 0.9) -> list[Any]:
        """Return the classes of a row that cover its label with this probability, the most probable first.

        Parameters
        ----------
        x
            The row.
        level
            The share of labels to cover, between 0 and 1.
        """
        return list(self._model.predict_set_one(x, level))


class SketchedNewtonRegressor(Explained, Covering, Regressor):
    """Online linear regressor without tuning. See `robustfd.SketchedNewtonRegressor`.

    Neither features nor targets need scaling. Strings are treated as categories, or as words if they have several.

    Parameters
    ----------
    sketch_size
        Number of rows of the Hessian's sketch. With "auto", the model chooses the Hessian.
    loss
        "squared"; "huber" for targets with outliers; "absolute" for the median; "quantile"; "poisson" for counts.
    quantile
        The quantile that `loss="quantile"` predicts, between 0 and 1, or a list of increasing ones.
    intervals
        Whether to learn what `with_interval=True` needs.
    expand
        "trees" or "auto" to add curves and interactions by boosted trees.

    See Also
    --------
    SketchedNewtonClassifier : The same method for classification.
    RFDSONRegressor : The online Newton regressor of the paper.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from robustfd.river import SketchedNewtonRegressor
    >>> metric = evaluate.progressive_val_score(datasets.TrumpApproval(), SketchedNewtonRegressor(), metrics.MAE())
    >>> metric.get() < 0.4
    True
    """

    def __init__(
        self,
        sketch_size: Literal["auto"] | int = "auto",
        loss: Literal["squared", "huber", "absolute", "quantile", "poisson"] = "squared",
        quantile: float | list[float] = 0.5,
        intervals: bool = False,
        expand: Literal["trees", "auto"] | None = None,
    ):
        self._start(
            newton_regressor.SketchedNewtonRegressor, sketch_size=sketch_size, loss=loss, quantile=quantile,
            intervals=intervals, expand=expand,
        )  # fmt: skip

    def predict_one(self, x: dict[Any, Any], with_interval: bool = False, level: float = 0.9) -> Any:
        """Return the predicted target of a row, or an interval for it, as River's conformal models do.

        Parameters
        ----------
        x
            The row.
        with_interval
            Whether to return a `river.conf.Interval`. Needs `intervals=True`.
        level
            The share of targets that intervals cover, between 0 and 1.
        """
        if not with_interval:
            return super().predict_one(x)
        from river.conf import Interval

        return Interval(*self._model.predict_interval_one(x, level))


class RFDSONClassifier(Classifier):
    """RFD-SON classifier (Luo et al. 2019, Alg. 6). See `robustfd.RFDSONClassifier`.

    It does not scale features: put a scaler before it.

    Parameters
    ----------
    sketch_size
        Number of rows of the Hessian's sketch.
    alpha0
        The Hessian starts as alpha0 I.
    loss
        "squared", "logistic", "squared_hinge" or "hinge".
    bound
        The weights are projected so that -bound <= w'x <= bound.
    fit_intercept
        Whether to add a constant feature of value 1.
    normalize_rows
        Whether to divide each row by its Euclidean norm.

    See Also
    --------
    RFDSONRegressor : The same algorithm for regression.
    SketchedNewtonClassifier : The recommended online classifier.

    Examples
    --------
    >>> from river import preprocessing
    >>> from robustfd.river import RFDSONClassifier
    >>> model = preprocessing.StandardScaler() | RFDSONClassifier()
    >>> for x in (-1.0, 1.0, -2.0, 2.0):
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 3.0})
    True
    """

    def __init__(
        self,
        sketch_size: int = 20,
        alpha0: float = 1.0,
        loss: Literal["squared", "logistic", "squared_hinge", "hinge"] = "squared",
        bound: float = 1.0,
        fit_intercept: bool = True,
        normalize_rows: bool = True,
    ):
        self._start(
            rfdson.RFDSONClassifier, sketch_size=sketch_size, alpha0=alpha0, loss=loss, bound=bound,
            fit_intercept=fit_intercept, normalize_rows=normalize_rows,
        )  # fmt: skip


class RFDSONRegressor(Regressor):
    """RFD-SON regressor (Luo et al. 2019, Alg. 6). See `robustfd.RFDSONRegressor`.

    It does not scale features: put a scaler before it. The scale of the targets does not matter.

    Parameters
    ----------
    sketch_size, alpha0, fit_intercept
        As for `RFDSONClassifier`.
    loss
        "squared", "absolute" or "huber".
    bound
        The weights are projected so that -bound <= w'x <= bound. "auto" uses the largest target so far.

    See Also
    --------
    RFDSONClassifier : The same algorithm for classification.
    SketchedNewtonRegressor : The recommended online regressor.

    Examples
    --------
    >>> from river import preprocessing
    >>> from robustfd.river import RFDSONRegressor
    >>> model = preprocessing.StandardScaler() | RFDSONRegressor()
    >>> for x in range(100):
    ...     model.learn_one({"x": x % 10}, 2.0 * (x % 10))
    >>> model.predict_one({"x": 9}) > model.predict_one({"x": 0})
    True
    """

    def __init__(
        self,
        sketch_size: int = 20,
        alpha0: float = 1.0,
        loss: Literal["squared", "absolute", "huber"] = "squared",
        bound: Literal["auto"] | float = "auto",
        fit_intercept: bool = True,
    ):
        self._start(
            rfdson.RFDSONRegressor, sketch_size=sketch_size, alpha0=alpha0, loss=loss, bound=bound,
            fit_intercept=fit_intercept,
        )  # fmt: skip
