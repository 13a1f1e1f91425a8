"""Estimators over sketches with River's interface."""

from typing import Any, Literal

from river import base

try:
    from river.base import AnomalyDetector
except ImportError:  # earlier versions of River
    from river.anomaly.base import AnomalyDetector  # type: ignore[no-redef]

from robustfd.estimators import detector, pca, ridge
from robustfd.river._base import Regressor, Wrapper


class SketchedRidge(Regressor):
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


class SketchedPCA(Wrapper, base.MiniBatchTransformer):
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


class MahalanobisDetector(Wrapper, AnomalyDetector):
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
