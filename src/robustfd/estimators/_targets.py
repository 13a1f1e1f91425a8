"""Online estimators by what they predict: classes, whose labels become numbers and back, or numbers."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from robustfd.estimators._online import Floats, OnlineEstimator
from robustfd.online import progress

LARGEST = 1e150  # squares of larger targets overflow


class OnlineClassifier(OnlineEstimator):
    """Labels to numbers and back."""

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, n_jobs: int | None = None) -> Self:
        """Forget everything and learn X.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : array of shape (n,)
            Strings, integers, booleans, or floats that are whole numbers.
        sample_weight : array of shape (n,), optional
            Weights of the losses: a row of weight 3 counts about as three that come at different times. A row of weight
            0 is left out.
        n_jobs : int, optional
            Number of parts of the rows that are learned in parallel, in threads, and merged; -1 for the number of
            cores. A part has at least 4096 rows and 1,048,576 entries, counted once for each class if there are more
            than two. The model is nearly as good as that of one pass, but not the same.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, anew=True, whole=True, n_jobs=n_jobs)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows after those that came before; how they are cut into batches does not matter.

        Parameters and result are those of `fit`, and

        classes : array, optional
            All classes there will be. Needed in the first call; afterwards it may be left out.
        """
        first = not self.__sklearn_is_fitted__()
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit: all labels there will be.")
        return self._learn(X, y, sample_weight, anew=first, classes=classes)

    def _check_targets(self, y: Any, classes: Any) -> NDArray[np.int64]:
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity, which are no labels.")
        check_classification_targets(y)
        if not hasattr(self, "classes_"):
            self.classes_ = np.unique(y if classes is None else column_or_1d(classes))
            if len(self.classes_) < 2:
                name = "y has" if classes is None else "classes has"
                raise ValueError(f"{name} one class only, {self.classes_}; a classifier needs two at least.")
        elif classes is not None and set(np.asarray(classes).tolist()) != set(self.classes_.tolist()):
            raise ValueError(f"classes={classes!r} differs from those of the first call, {self.classes_}.")
        return self._indices(y)

    def _check_target(self, y: Any) -> NDArray[np.int64]:
        if type(y) in (int, str, bool) and (place := self._class_places().get(y)) is not None:
            return np.array([place])
        label = np.asarray([y])
        whole = label.dtype.kind in "biuU" or isinstance(y, str)
        if label.ndim != 1 or not (whole or (label.dtype.kind == "f" and float(y).is_integer())):
            raise ValueError(f"y must be one label, a string, an integer or a boolean, got {y!r:.60}.")
        if not hasattr(self, "classes_"):
            self.classes_ = label
        elif getattr(self, "_classes_open", False) and _plain(y) not in self.classes_.tolist():
            if isinstance(y, str) != isinstance(self.classes_[0], str):
                raise ValueError(
                    f"y is {y!r}, but labels so far were {self.classes_!r}: strings and numbers do not mix."
                )
            self.classes_ = np.append(self.classes_, label)
        return self._indices(label)

    def _class_places(self) -> dict[Any, int]:
        """Return the place of each label in `classes_`; {} before the first."""
        classes = getattr(self, "classes_", None)
        before = getattr(self, "_places", None)
        if before is None or before[0] is not classes:
            places = {} if classes is None else {label: index for index, label in enumerate(classes.tolist())}
            self._places = before = (classes, places)
        return before[1]

    def _indices(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of labels in `classes_`."""
        order = np.argsort(self.classes_, kind="stable")
        if len(y) > len(order):
            found = order[np.minimum(np.searchsorted(self.classes_, y, sorter=order), len(order) - 1)]
            if np.array_equal(self.classes_[found], y):
                return np.asarray(found, np.int64)
        place = self._class_places()
        try:
            return np.fromiter((place[label] for label in y.tolist()), np.int64, len(y))
        except KeyError as error:
            raise ValueError(
                f"y contains {error.args[0]!r}, which is not among the classes {self.classes_!r}."
            ) from None

    @abstractmethod
    def _probabilities(self, margins: Floats) -> Floats:
        """Return the probabilities (n, classes) that go with margins."""

    def decision_function(self, X: Any) -> Floats:
        """Return margins: of the second class if there are two (n,), else of each class (n, classes)."""
        margins = self._judge(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, in the order of `classes_`."""
        return self._probabilities(self._judge(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row."""
        chosen = self._decide(self._judge(X))
        return np.asarray(self.classes_[chosen])

    def _decide(self, margins: Floats) -> NDArray[np.int64]:
        if margins.shape[1] == 1:
            return (margins[:, 0] > 0).astype(np.int64) if len(self.classes_) > 1 else np.zeros(len(margins), np.int64)
        return np.asarray(margins.argmax(axis=1))

    def predict_one(self, x: Any) -> Any:
        """Return the class of one row, given as to `learn_one`; None before the first row."""
        if not self.__sklearn_is_fitted__():
            return None
        margins, labels = self._margins_of_one(x).tolist(), list(self._class_places())
        if len(margins) > 1:
            return labels[margins.index(max(margins))]
        return labels[int(margins[0] > 0 and len(labels) > 1)]

    def predict_proba_one(self, x: Any) -> dict[Any, float]:
        """Return the probability of each class, for one row, given as to `learn_one`; {} before the first row."""
        if not self.__sklearn_is_fitted__():
            return {}
        chances = self._probabilities(self._margins_of_one(x)[None])[0]
        return dict(zip(self.classes_.tolist(), chances.tolist(), strict=True))

    @property
    def progressive_error_(self) -> float:
        """The share of rows so far that were judged wrongly, each before it was learnt."""
        self._require_rows()
        return progress.share_of_errors(self._progress)


class OnlineRegressor(OnlineEstimator):
    """Targets are numbers."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, n_jobs: int | None = None) -> Self:
        """Forget everything and learn X.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
            Weights of the losses: a row of weight 3 counts about as three that come at different times. A row of weight
            0 is left out.
        n_jobs : int, optional
            Number of parts of the rows that are learned in parallel, in threads, and merged; -1 for the number of
            cores. A part has at least 4096 rows and 1,048,576 entries, counted once for each class if there are more
            than two. The model is nearly as good as that of one pass, but not the same.

        Returns
        -------
        self
        """
        return self._learn(X, y, sample_weight, anew=True, whole=True, n_jobs=n_jobs)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows after those that came before; how they are cut into batches does not matter.

        Parameters and result are those of `fit`.
        """
        return self._learn(X, y, sample_weight, anew=not self.__sklearn_is_fitted__())

    def _check_targets(self, y: Any, classes: Any) -> Floats:
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold numbers, got an array of {y.dtype}: {y!r:.60}.") from None
        if not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity. Every target must be a finite number.")
        if (largest := np.abs(y).max(initial=0.0)) > LARGEST:
            raise ValueError(f"y contains {largest:g} in size; numbers above {LARGEST:g} cannot be squared.")
        return y

    def _check_target(self, y: Any) -> Floats:
        target = np.asarray([y])
        if target.ndim != 1 or target.dtype.kind not in "biuf":
            raise ValueError(f"y must be a number, got {y!r:.60}.")
        return self._check_targets(target, None)

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of each row."""
        return self._judge(X)[:, 0]

    def predict_one(self, x: Any) -> float:
        """Return the predicted target of one row, given as to `learn_one`; 0 before the first row."""
        if not self.__sklearn_is_fitted__():
            return 0.0
        return float(self._margins_of_one(x)[0])

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows" and "loss": progressive means at 1, 2, 4, ... rows and at the last."""
        table = super().progressive_
        del table["error"]
        return table


def _plain(label: Any) -> Any:
    """Return a label as Python has it."""
    return label.item() if isinstance(label, np.generic) else label
