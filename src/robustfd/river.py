"""The estimators with River's interface, for its pipelines and metrics.

Needs River: ``pip install 'robustfd[river]'``.
"""

import copy
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self

import numpy as np

try:
    from river import bandit, base
except ImportError as error:
    raise ImportError("robustfd.river needs River: pip install 'robustfd[river]'") from error
try:
    from river.base import AnomalyDetector
except ImportError:  # earlier versions of River
    from river.anomaly.base import AnomalyDetector  # type: ignore[no-redef]

from robustfd import _container
from robustfd.estimators import bandit as contextual
from robustfd.estimators import detector, newton, pca, rfdson, ridge

__all__ = [
    "ContextualBandit",
    "MahalanobisDetector",
    "RFDSONClassifier",
    "RFDSONRegressor",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
    "SketchedRidge",
]


class _Wrapper:
    """Base class of all models here. `_model` is the wrapped scikit-learn estimator."""

    _model: Any

    def _start(self, estimator: Any, **params: Any) -> None:
        """Keep the parameters, as River expects it, and create the wrapped estimator."""
        for name, value in params.items():
            setattr(self, name, value)
        self._model = estimator(**params)

    def _learn_all(self, rows: Iterable[tuple[Any, ...]], learn: Callable[..., Any]) -> None:
        """Learn rows one after the other. An error leaves the model unchanged."""
        before, self._model = self._model, copy.copy(self._model)
        try:
            for row in rows:
                learn(*row)
        except BaseException:
            self._model = before
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to a file. `load` restores it; `robustfd.load` returns it as a scikit-learn estimator."""
        self._model.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model that this class, or the estimator of the same name, saved to a file."""
        model = _container.load(path)
        if type(model).__name__ != cls.__name__:
            raise ValueError(f"{os.fspath(path)} must hold a {cls.__name__}, got a {type(model).__name__}.")
        names = {"seed": "random_state"}  # parameters that River calls differently
        wrapper = cls(**{name: getattr(model, names.get(name, name)) for name in inspect.signature(cls).parameters})
        wrapper._model = model
        return wrapper


class _Supervised(_Wrapper):
    """Base class of the classifiers and regressors."""

    predict_one: Any

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row with label or target y and weight w. New features and classes may appear at any time."""
        self._model.learn_one(x, y, w)

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learn all rows of a DataFrame, as `learn_one` one at a time. An error leaves the model unchanged.

        Parameters
        ----------
        X
            The rows, a DataFrame.
        y
            Their labels or targets, a Series.
        w
            Their weights, 1 by default.
        """
        labels = y.tolist()
        weights = [1.0] * len(labels) if w is None else np.asarray(w, dtype=np.float64).tolist()
        if not len(X) == len(labels) == len(weights):
            raise ValueError(f"X has {len(X)} rows, but there are {len(labels)} in y and {len(weights)} weights.")
        self._learn_all(zip(X.to_dict("records"), labels, weights), self.learn_one)

    def predict_many(self, X: Any) -> Any:
        """Return the predictions for the rows of a DataFrame as a Series; several quantiles as a DataFrame."""
        import pandas as pd

        found = [self.predict_one(row) for row in X.to_dict("records")]
        return (pd.DataFrame if found and isinstance(found[0], dict) else pd.Series)(found, index=X.index)

    @property
    def progressive_loss_(self) -> float:
        """The mean loss over all rows so far. Each row is predicted before it is learned."""
        return float(self._model.progressive_loss_)


class _Classifier(_Supervised, base.MiniBatchClassifier):
    """Base class of the River classifiers."""

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Return the predicted class of a row, or None before the first row was learned."""
        return self._model.predict_one(x)

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each class seen so far."""
        return dict(self._model.predict_proba_one(x))

    def predict_proba_many(self, X: Any) -> Any:
        """Return the class probabilities for the rows of a DataFrame, as a DataFrame with one column per class."""
        import pandas as pd

        return pd.DataFrame([self.predict_proba_one(row) for row in X.to_dict("records")], index=X.index)

    @property
    def progressive_error_(self) -> float:
        """The error rate over all rows so far. Each row is predicted before it is learned."""
        return float(self._model.progressive_error_)


class _Regressor(_Supervised, base.MiniBatchRegressor):
    """Base class of the River regressors."""

    def predict_one(self, x: dict[Any, Any]) -> Any:
        """Return the predicted target of a row, or 0.0 before the first row was learned.

        For a list of quantiles, return a dict of predictions by level.
        """
        return self._model.predict_one(x)


class _Explained(_Wrapper):
    """Base class of the models whose predictions can be explained."""

    def contributions_one(
        self, x: dict[Any, Any], *, by: Literal["column", "value"] = "column", intercept: bool = False
    ) -> dict[Any, Any]:
        """Return what each feature adds to the prediction of a row, by name; for more than two classes, by class.

        Parameters
        ----------
        x
            The row.
        by
            With "value", strings are the features "name=value".
        intercept
            Whether to add the rest of the prediction, as "(intercept)".
        """
        return dict(self._model.contributions_one(x, by=by, intercept=intercept))


class _Covering(_Wrapper):
    """Base class of the models with intervals or sets."""

    @property
    def progressive_coverage_(self) -> dict[float, float]:
        """The share of rows so far that their interval or set covered, by level. Needs `intervals=True`."""
        return dict(self._model.progressive_coverage_)

    @property
    def progressive_width_(self) -> dict[float, float]:
        """The mean width of these intervals, or the mean number of classes in these sets, by level."""
        return dict(self._model.progressive_width_)


class SketchedNewtonClassifier(_Explained, _Covering, _Classifier):
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
            newton.SketchedNewtonClassifier,
            sketch_size=sketch_size,
            class_weight=class_weight,
            intervals=intervals,
            expand=expand,
        )

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


class SketchedNewtonRegressor(_Explained, _Covering, _Regressor):
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
            newton.SketchedNewtonRegressor,
            sketch_size=sketch_size,
            loss=loss,
            quantile=quantile,
            intervals=intervals,
            expand=expand,
        )

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


class RFDSONClassifier(_Classifier):
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


class RFDSONRegressor(_Regressor):
    """RFD-SON regressor (Luo et al. 2019, Alg. 6). See `robustfd.RFDSONRegressor`.

    It does not scale features: put a scaler before it. The scale of the targets does not matter.

    Parameters
    ----------
    sketch_size
        Number of rows of the Hessian's sketch.
    alpha0
        The Hessian starts as alpha0 I.
    loss
        "squared", "absolute" or "huber".
    bound
        The weights are projected so that -bound <= w'x <= bound. "auto" uses the largest target so far.
    fit_intercept
        Whether to add a constant feature of value 1.

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


class SketchedRidge(_Regressor):
    """Ridge regression. See `robustfd.SketchedRidge`.

    New features may appear at any time. Absent features are 0, and a string is a feature "name=value" of value 1.

    Parameters
    ----------
    regularization
        The penalty on the squared coefficients.
    sketch_size
        Number of rows of the sketch; 50 with "auto". The solution is exact while there are fewer features.
    fit_intercept
        Whether to fit an intercept.
    decay
        Factor applied to the weight of all earlier rows before each new row.

    See Also
    --------
    SketchedNewtonRegressor : Online regression without a penalty to choose.

    Examples
    --------
    >>> from robustfd.river import SketchedRidge
    >>> model = SketchedRidge(regularization=0.1)
    >>> for x in range(20):
    ...     model.learn_one({"x": x}, 2.0 * x)
    >>> round(model.predict_one({"x": 30}))
    60
    """

    def __init__(
        self,
        regularization: float = 1.0,
        sketch_size: Literal["auto"] | int = "auto",
        fit_intercept: bool = True,
        decay: float = 1.0,
    ):
        self._start(
            ridge.SketchedRidge, regularization=regularization, sketch_size=sketch_size, fit_intercept=fit_intercept,
            decay=decay,
        )  # fmt: skip

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row with target y and weight w. New features may appear at any time."""
        self._model._learn_one(x, w, [y])

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Return the predicted target of a row, or 0.0 before the first row was learned."""
        if not self._model.__sklearn_is_fitted__():
            return 0.0
        model, row, _ = self._model._single_row(x)
        return float((row @ model.coef_)[0] + model.intercept_)


class SketchedPCA(_Wrapper, base.MiniBatchTransformer):
    """Principal components. See `robustfd.SketchedPCA`.

    New features may appear at any time. Absent features are 0, and a string is a feature "name=value" of value 1.

    Parameters
    ----------
    n_components
        The number of components. They are numbered from 0 in `transform_one`.
    sketch_size
        Number of rows of the sketch, with "auto" 2 n_components + 50. The components are exact while there are fewer
        features.
    decay
        Factor applied to the weight of all earlier rows before each new row.

    Examples
    --------
    >>> from robustfd.river import SketchedPCA
    >>> model = SketchedPCA(n_components=1)
    >>> for k in range(20):
    ...     model.learn_one({"x": k, "y": 2 * k})
    >>> round(model.transform_one({"x": 9.5, "y": 19 + 5**0.5})[0], 3)
    2.0
    """

    n_components: int

    def __init__(self, n_components: int = 2, sketch_size: Literal["auto"] | int = "auto", decay: float = 1.0):
        self._start(pca.SketchedPCA, n_components=n_components, sketch_size=sketch_size, decay=decay)

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn a row. New features may appear at any time."""
        self._model._learn_one(x, 1.0)

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """Return the coordinates of a row along the components; 0.0 where there is no component yet."""
        found = dict.fromkeys(range(self.n_components), 0.0)
        if self._model.__sklearn_is_fitted__():
            model, row, _ = self._model._single_row(x)
            found |= enumerate((row @ (v := model._components()).T - v @ model.mean_)[0].tolist())
        return found

    def learn_many(self, X: Any) -> None:
        """Learn all rows of a DataFrame, as `learn_one` one at a time. An error leaves the model unchanged."""
        self._learn_all(((row,) for row in X.to_dict("records")), self.learn_one)

    def transform_many(self, X: Any) -> Any:
        """Return the coordinates of the rows of a DataFrame as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([self.transform_one(row) for row in X.to_dict("records")], index=X.index)


class MahalanobisDetector(_Wrapper, AnomalyDetector):
    """Anomaly detector by Mahalanobis distance. See `robustfd.MahalanobisDetector`.

    New features may appear at any time. Absent features are 0, and a string is a feature "name=value" of value 1.

    Parameters
    ----------
    sketch_size
        Number of rows of the sketch; 50 with "auto". The covariance is exact while there are fewer features.
    decay
        Factor applied to the weight of all earlier rows before each new row.

    Examples
    --------
    >>> from robustfd.river import MahalanobisDetector
    >>> model = MahalanobisDetector()
    >>> for k in range(50):
    ...     model.learn_one({"x": k % 7, "y": k % 5})
    >>> model.score_one({"x": 3, "y": 9}) > model.score_one({"x": 3, "y": 2})
    True
    """

    def __init__(self, sketch_size: Literal["auto"] | int = "auto", decay: float = 1.0):
        self._start(detector.MahalanobisDetector, sketch_size=sketch_size, decay=decay)

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn a row. New features may appear at any time."""
        self._model.learn_one(x)

    def score_one(self, x: dict[Any, Any]) -> float:
        """Return the squared Mahalanobis distance of a row: the higher, the less normal. 0.0 before the first row."""
        return float(self._model.score_one(x))


class ContextualBandit(_Wrapper, bandit.base.ContextualPolicy):
    """Bandit policy without an exploration parameter. See `robustfd.ContextualBandit`.

    It works in `bandit.evaluate` and `bandit.evaluate_offline`. Contexts are dicts of numbers and strings, or None.
    Neither they nor the rewards need scaling, and no burn-in is necessary: arms without rewards are uncertain.

    Parameters
    ----------
    epsilon
        The part of the probability that all arms share equally, for logs that evaluate other policies.
    reward_range
        The smallest and the largest reward. By default, those seen so far.
    costs
        Whether the numbers given as rewards are costs.
    seed
        Seed of the choices.

    Examples
    --------
    >>> from robustfd.river import ContextualBandit
    >>> policy = ContextualBandit(seed=0)
    >>> for day in range(200):
    ...     context = {"weekend": day % 7 > 4}
    ...     arm = policy.pull(["news", "sport"], context=context)
    ...     policy.update(arm, context, float((arm == "sport") == context["weekend"]))
    >>> policy.predict_proba_one({"weekend": True})["sport"] > 0.5
    True
    >>> policy.progressive_reward_ > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 0.0,
        reward_range: tuple[float, float] | None = None,
        costs: bool = False,
        seed: int | None = None,
    ):
        bandit.base.ContextualPolicy.__init__(self)
        self._start(
            contextual.ContextualBandit, epsilon=epsilon, reward_range=reward_range, costs=costs, random_state=seed
        )
        self.seed = seed

    def __repr__(self) -> str:
        table: Any = super().__repr__  # it needs a row
        return str(table() if self._rewards else base.Base.__repr__(self))

    def _pull(self, arm_ids: Iterable[Any], context: dict[Any, Any] | None = None) -> Any:
        return self._model.choose_one({} if context is None else context, list(arm_ids))[0]

    def update(self, arm_id: Any, context: Any, *reward_args: Any, **reward_kwargs: Any) -> None:
        """Learn the reward of an arm in a context, as `update(arm_id, context, reward)`.

        `update(arm_id, reward)`, the call for policies without contexts, learns the reward in an empty context.
        """
        if not reward_args:
            context, reward_args = None, (context,)
        (reward,) = reward_args
        reward = float(reward) if isinstance(reward, int) else reward
        self._model.learn_one({} if context is None else context, arm_id, reward)
        rank: Any = super().update
        rank(arm_id, context, -reward if self._model.costs else reward, **reward_kwargs)

    def predict_proba_one(self, x: dict[Any, Any] | None, arm_ids: Iterable[Any] | None = None) -> dict[Any, float]:
        """Return the probability with which `pull` pulls each arm, by default of all arms seen so far."""
        arms = None if arm_ids is None else list(arm_ids)
        return dict(self._model.predict_proba_one({} if x is None else x, arms))

    def contributions_one(
        self,
        x: dict[Any, Any],
        arm_id: Any,
        *,
        by: Literal["column", "value"] = "column",
        intercept: bool = False,
    ) -> dict[Any, float]:
        """Return what each feature of a context adds to the log-odds of a good reward of an arm."""
        return dict(self._model.contributions_one(x, arm_id, by=by, intercept=intercept))

    @property
    def progressive_reward_(self) -> float:
        """The mean reward so far."""
        return float(self._model.progressive_reward_)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the policy that this class, or the estimator of the same name, saved. `ranking` starts anew."""
        policy = super().load(path)
        policy._counts.update(policy._model.n_pulls_)
        policy._n = policy._model.n_samples_seen_
        return policy
