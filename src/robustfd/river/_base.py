"""What the models with River's interface share."""

import copy
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, Self

import numpy as np
from river import base

from robustfd import _container


class Wrapper:
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


class Supervised(Wrapper):
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


class Classifier(Supervised, base.MiniBatchClassifier):
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


class Regressor(Supervised, base.MiniBatchRegressor):
    """Base class of the River regressors."""

    def predict_one(self, x: dict[Any, Any]) -> Any:
        """Return the predicted target of a row, or 0.0 before the first row was learned.

        For a list of quantiles, return a dict of predictions by level.
        """
        return self._model.predict_one(x)


class Explained(Wrapper):
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


class Covering(Wrapper):
    """Base class of the models with intervals or sets."""

    @property
    def progressive_coverage_(self) -> dict[float, float]:
        """The share of rows so far that their interval or set covered, by level. Needs `intervals=True`."""
        return dict(self._model.progressive_coverage_)

    @property
    def progressive_width_(self) -> dict[float, float]:
        """The mean width of these intervals, or the mean number of classes in these sets, by level."""
        return dict(self._model.progressive_width_)
