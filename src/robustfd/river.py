"""The online estimators as River knows them: `learn_one` and `predict_one` of dicts, in pipelines and in metrics.

Needs River: ``pip install 'robustfd[river]'``.
"""

import copy
import inspect
import os
from typing import Any, Literal, Self

import numpy as np

try:
    from river import base
except ImportError as error:
    raise ImportError("robustfd.river needs River: pip install 'robustfd[river]'") from error

from robustfd import _container
from robustfd.estimators import rfdson, sketched_newton

__all__ = ["RFDSONClassifier", "RFDSONRegressor", "SketchedNewtonClassifier", "SketchedNewtonRegressor"]


class _Wrapper:
    """What classifiers and regressors of River share, over an estimator of scikit-learn, `_model`."""

    _model: Any
    predict_one: Any

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learn the rows of a DataFrame, as `learn_one` would one after the other, but all of them or none.

        y has their labels or targets, and w their weights, 1 by default.
        """
        labels = y.tolist()
        weights = [1.0] * len(labels) if w is None else np.asarray(w, dtype=np.float64).tolist()
        if not len(X) == len(labels) == len(weights):
            raise ValueError(f"X has {len(X)} rows, but there are {len(labels)} in y and {len(weights)} weights.")
        model = copy.copy(self._model)
        for row, label, weight in zip(X.to_dict("records"), labels, weights):
            model.learn_one(row, label, weight)
        self._model = model

    def predict_many(self, X: Any) -> Any:
        """Return a Series of what `predict_one` says of each row of a DataFrame."""
        import pandas as pd

        return pd.Series([self.predict_one(row) for row in X.to_dict("records")], index=X.index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to a file. `load` of this class reads it, and `robustfd.load` as scikit-learn's estimator."""
        self._model.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model that was saved to a file, by this class or by the estimator of the same name."""
        model = _container.load(path)
        if type(model).__name__ != cls.__name__:
            raise ValueError(f"{os.fspath(path)} has a {type(model).__name__}, not a {cls.__name__}.")
        wrapper = cls(**{name: getattr(model, name) for name in inspect.signature(cls).parameters})
        wrapper._model = model
        return wrapper

    @property
    def progressive_loss_(self) -> float:
        """The mean loss over all rows so far, each judged before it was learnt."""
        return float(self._model.progressive_loss_)


class _Classifier(_Wrapper, base.MiniBatchClassifier):
    """A classifier of River."""

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row of label y and weight w; features and classes may appear at any time."""
        self._model.learn_one(x, y, w)

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Return the class of a row, None before the first was learnt."""
        return self._model.predict_one(x)

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class so far."""
        return dict(self._model.predict_proba_one(x))

    def predict_proba_many(self, X: Any) -> Any:
        """Return a DataFrame of what `predict_proba_one` says of each row of another, with a column for each class."""
        import pandas as pd

        return pd.DataFrame([self.predict_proba_one(row) for row in X.to_dict("records")], index=X.index)

    @property
    def progressive_error_(self) -> float:
        """The share of errors among all rows so far, each judged before it was learnt."""
        return float(self._model.progressive_error_)


class _Regressor(_Wrapper, base.MiniBatchRegressor):
    """A regressor of River."""

    def learn_one(self, x: dict[Any, Any], y: float, w: float = 1.0) -> None:
        """Learn a row of target y and weight w; features may appear at any time."""
        self._model.learn_one(x, y, w)

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Return the predicted target of a row, 0 before the first was learnt."""
        return float(self._model.predict_one(x))


class SketchedNewtonClassifier(_Classifier):
    """Online logistic classification with nothing to tune: see `robustfd.SketchedNewtonClassifier`.

    Numbers need no scaling, and strings are categories: no scaler or encoder has to come before it.

    Parameters
    ----------
    sketch_size
        Rows of the sketch of the Hessian; by default the model decides which Hessian pays.
    class_weight
        Weights of the rows by class; classes that are not there weigh 1.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from robustfd.river import SketchedNewtonClassifier
    >>> metric = evaluate.progressive_val_score(datasets.Phishing(), SketchedNewtonClassifier(), metrics.Accuracy())
    >>> metric.get() > 0.87
    True
    """

    def __init__(self, sketch_size: Literal["auto"] | int = "auto", class_weight: dict[Any, float] | None = None):
        self.sketch_size = sketch_size
        self.class_weight = class_weight
        self._model = sketched_newton.SketchedNewtonClassifier(sketch_size, class_weight=class_weight)


class SketchedNewtonRegressor(_Regressor):
    """Online linear regression with nothing to tune: see `robustfd.SketchedNewtonRegressor`.

    Neither features nor targets need scaling, and strings are categories.

    Parameters
    ----------
    sketch_size
        Rows of the sketch of the Hessian; "auto" is 20.
    loss
        "squared"; "huber" for targets with outliers; "absolute" for the median; "quantile"; "poisson" for counts.
    quantile
        The level of the quantile that `loss="quantile"` predicts.

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
        quantile: float = 0.5,
    ):
        self.sketch_size = sketch_size
        self.loss = loss
        self.quantile = quantile
        self._model = sketched_newton.SketchedNewtonRegressor(sketch_size, loss=loss, quantile=quantile)


class RFDSONClassifier(_Classifier):
    """RFD-SON (Luo et al. 2019, Alg. 6), the paper's learner: see `robustfd.RFDSONClassifier`.

    It takes features as they are: put a scaler before it.

    Parameters
    ----------
    sketch_size
        Rows of the sketch of the Hessian.
    alpha0
        The Hessian starts from alpha0 I.
    loss
        "squared", "logistic", "squared_hinge" or "hinge".
    bound
        Weights are kept to -bound <= w'x <= bound.
    fit_intercept
        Whether a feature of value 1 is added.
    normalize_rows
        Whether each row is divided by its Euclidean length.
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
        self.sketch_size = sketch_size
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.fit_intercept = fit_intercept
        self.normalize_rows = normalize_rows
        self._model = rfdson.RFDSONClassifier(
            sketch_size,
            alpha0=alpha0,
            loss=loss,
            bound=bound,
            fit_intercept=fit_intercept,
            normalize_rows=normalize_rows,
        )


class RFDSONRegressor(_Regressor):
    """RFD-SON (Luo et al. 2019, Alg. 6) for numbers: see `robustfd.RFDSONRegressor`.

    It takes features as they are: put a scaler before it. The scale of targets does not matter.

    Parameters
    ----------
    sketch_size
        Rows of the sketch of the Hessian.
    alpha0
        The Hessian starts from alpha0 I.
    loss
        "squared", "absolute" or "huber".
    bound
        Weights are kept to -bound <= w'x <= bound; "auto" is the largest target so far.
    fit_intercept
        Whether a feature of value 1 is added.
    """

    def __init__(
        self,
        sketch_size: int = 20,
        alpha0: float = 1.0,
        loss: Literal["squared", "absolute", "huber"] = "squared",
        bound: Literal["auto"] | float = "auto",
        fit_intercept: bool = True,
    ):
        self.sketch_size = sketch_size
        self.alpha0 = alpha0
        self.loss = loss
        self.bound = bound
        self.fit_intercept = fit_intercept
        self._model = rfdson.RFDSONRegressor(
            sketch_size, alpha0=alpha0, loss=loss, bound=bound, fit_intercept=fit_intercept
        )
