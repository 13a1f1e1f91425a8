"""Online classifiers and regressors: checks of targets, predictions, probabilities."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from robustfd._core import NOISE, STEEPNESS
from robustfd._guard import guards_itself
from robustfd._sklearn import ClassifierMixin, RegressorMixin
from robustfd.estimators._online import OnlineEstimator
from robustfd.estimators._rows import one_dimensional
from robustfd.learners import progress
from robustfd.learners.rows import Floats

LARGEST = 1e150  # squares of larger targets overflow
FEW = 32  # labels that are faster to look up one by one

# One-vs-rest margins become probabilities proportional to p / (1 - p)^t, where p is the expit of the margin. With t = 0
# this is exact if each p is exact; with t = 1 it is the softmax of the margins. The log losses decide between them.
SHARPNESS = np.array([0.0, 0.5, 1.0])


class OnlineClassifier(ClassifierMixin, OnlineEstimator):
    """Base class of online classifiers. It encodes labels as integers and decodes predictions."""

    _has_classes = True
    _sharpness = SHARPNESS
    classes_: NDArray[Any]

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows. The result does not depend on the batch sizes.

        Parameters
        ----------
        X : array, sparse matrix, memory map or DataFrame of shape (n, d)
            The rows.
        y : array of shape (n,)
            The labels.
        classes : array, optional
            All labels that can occur. Required in the first call, optional later.
        sample_weight : array of shape (n,), optional
            Weights of the losses.

        Returns
        -------
        self
        """
        first = not self.__sklearn_is_fitted__()
        if first and classes is None:
            raise ValueError("classes must be given in the first call of partial_fit: all labels that can occur.")
        return self._learn(X, y, sample_weight, reset=first, classes=classes)

    def _check_targets(self, y: Any, classes: Any) -> NDArray[np.int64]:
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity. Labels must be finite.")
        _require_labels("y", y)
        if classes is not None:
            _require_labels("classes", np.asarray(classes, dtype=object))
            classes = one_dimensional(classes)
        known = classes is not None or hasattr(self, "classes_")
        for labels in (y,) if classes is None else (y, classes):
            # The check of scikit-learn is slow for a few rows, and warns if many labels are different.
            if labels.dtype.kind not in "biuU" and not (known and _are_whole(labels)):
                from sklearn.utils.multiclass import check_classification_targets

                check_classification_targets(labels)
        if not hasattr(self, "classes_"):
            self.classes_, _ = np.unique(y if classes is None else classes, return_index=True)  # without numpy.ma
            if len(self.classes_) < 2:
                name = "y has" if classes is None else "classes has"
                raise ValueError(f"{name} only one class, {self.classes_}. A classifier needs at least two.")
        elif classes is not None and set(classes.tolist()) != set(self.classes_.tolist()):
            raise ValueError(f"classes must be those of the first call, {self.classes_}, got {classes!r}.")
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
        elif getattr(self, "_classes_open", False) and label.tolist()[0] not in self.classes_.tolist():
            if isinstance(y, str) != isinstance(self.classes_[0], str):
                raise ValueError(
                    f"y must be of the type of the labels so far, {self.classes_!r}, got {y!r}. "
                    "Strings and numbers cannot be mixed."
                )
            self.classes_ = np.append(self.classes_, label)
        return self._indices(label)

    def _class_places(self) -> dict[Any, int]:
        """Return the index of each label in `classes_`, or {} before the first label."""
        classes = getattr(self, "classes_", None)
        before = getattr(self, "_places", None)
        if before is None or before[0] is not classes:
            labels = [] if classes is None else classes.tolist()
            self._places = before = (classes, {label: index for index, label in enumerate(labels)})
        return before[1]

    def _indices(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of labels in `classes_`."""
        place = self._class_places()
        if len(y) < FEW and None not in (places := [place.get(label) for label in y.tolist()]):
            return np.array(places, np.int64)
        order = np.argsort(self.classes_, kind="stable")
        if len(y) > len(order):
            found = order[np.minimum(np.searchsorted(self.classes_, y, sorter=order), len(order) - 1)]
            if np.array_equal(self.classes_[found], y):
                return np.asarray(found, np.int64)
        try:
            return np.fromiter((place[label] for label in y.tolist()), np.int64, len(y))
        except KeyError as error:
            raise ValueError(f"y contains {error}, which is not among the classes {self.classes_!r}.") from None

    @abstractmethod
    def _probabilities(self, margins: Floats) -> Floats:
        """Return the probabilities (n, classes) for margins."""

    @property
    def _outputs(self) -> int:
        return len(self.classes_) if len(self.classes_) > 2 else 1

    def decision_function(self, X: Any) -> Floats:
        """Return the margins: (n,) for the second of two classes, (n, classes) for more classes."""
        margins = self._checked_margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities (n, classes), in the order of `classes_`."""
        return self._probabilities(self._checked_margins(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of each row."""
        chosen = self._decide(self._checked_margins(X))
        return np.asarray(self.classes_[chosen])

    def _decide(self, margins: Floats) -> NDArray[np.int64]:
        if margins.shape[1] == 1:
            return (margins[:, 0] > 0).astype(np.int64) if len(self.classes_) > 1 else np.zeros(len(margins), np.int64)
        return np.asarray(margins.argmax(axis=1))

    @guards_itself
    def predict_one(self, x: Any) -> Any:
        """Return the predicted class of one row in any format of `learn_one`, or None before the first row."""
        quick = self.__dict__.get("_quick")
        if quick is not None and (label := quick.predict(x)) is not None:
            return label
        if not self.__sklearn_is_fitted__():
            return None
        margins, labels = self._margins_of_one(x).tolist(), list(self._class_places())
        if len(margins) > 1:
            return labels[margins.index(max(margins))]
        return labels[int(margins[0] > 0 and len(labels) > 1)]

    def predict_proba_one(self, x: Any) -> dict[Any, float]:
        """Return the class probabilities of one row in any format of `learn_one`, or {} before the first row."""
        if not self.__sklearn_is_fitted__():
            return {}
        chances = self._probabilities(self._margins_of_one(x)[None])[0]
        return dict(zip(self._class_places(), chances.tolist(), strict=True))

    @property
    def progressive_error_(self) -> float:
        """The error rate over all rows so far. Each row is predicted before it is learned."""
        return progress.share_of_errors(self._require_rows()._progress)


class OnlineRegressor(RegressorMixin, OnlineEstimator):
    """Base class of online regressors."""

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from more rows. The result does not depend on the batch sizes.

        The parameters and the return value are those of `fit`, without `n_jobs`.
        """
        return self._learn(X, y, sample_weight, reset=not self.__sklearn_is_fitted__())

    def _check_targets(self, y: Any, classes: Any) -> Floats:
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold numbers, got an array of {y.dtype}: {y!r:.60}.") from None
        if not np.isfinite(y).all():
            raise ValueError("y contains NaN or infinity. Targets must be finite.")
        if (largest := np.abs(y).max(initial=0.0)) > LARGEST:
            raise ValueError(f"y must be at most {LARGEST:g} in absolute value, got {largest:g}. Scale the targets.")
        return y

    def _check_target(self, y: Any) -> Floats:
        target = np.asarray([y])
        if target.ndim != 1 or target.dtype.kind not in "biuf":
            raise ValueError(f"y must be a number, got {y!r:.60}.")
        return self._check_targets(target, None)

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of each row."""
        return self._checked_margins(X)[:, 0]

    @guards_itself
    def predict_one(self, x: Any) -> float:
        """Return the predicted target of one row in any format of `learn_one`, or 0.0 before the first row."""
        quick = self.__dict__.get("_quick")
        if quick is not None and (predicted := quick.predict(x)) is not None:
            return predicted
        if not self.__sklearn_is_fitted__():
            return 0.0
        return float(self._margins_of_one(x)[0])

    @property
    def progressive_(self) -> dict[str, NDArray[Any]]:
        """Arrays "rows" and "loss": the progressive mean loss after 1, 2, 4, ... rows and after the last."""
        table = super().progressive_
        del table["error"]
        return table


def _require_labels(name: str, labels: NDArray[Any]) -> None:
    """Raise if a label is missing, or if text and numbers are mixed, which numpy can neither compare nor sort."""
    if labels.dtype.kind != "O":
        return
    kinds = set(map(type, labels.tolist()))
    numbers = {kind for kind in kinds if issubclass(kind, float | np.floating)}
    suspects = numbers | {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType", "NaTType")}
    for place, label in enumerate(labels.tolist() if suspects else ()):
        if type(label) in suspects and (type(label) not in numbers or label != label):
            raise ValueError(
                f"{name} contains a missing label, {label!r}, at {place} (from 0). "
                "Leave out such rows, or give them a label of their own."
            )
    if len({issubclass(kind, str) for kind in kinds}) > 1:
        raise ValueError(f"{name} must have labels of one type, got {', '.join(sorted(k.__name__ for k in kinds))}.")


def _are_whole(labels: NDArray[Any]) -> bool:
    """Return whether labels are whole numbers, or text as objects."""
    if labels.dtype.kind == "O":
        return all(isinstance(label, str) for label in labels.tolist())
    return labels.dtype.kind == "f" and bool((np.isfinite(labels) & (labels == np.floor(labels))).all())


# -- class margins to probabilities


def sharpened(margins: Floats) -> Floats:
    """Return the log probabilities (3, n, classes) for margins (n, classes), one slice per sharpness."""
    top = margins.max(axis=1, keepdims=True)
    return np.asarray(_exponents(margins, top) - _log_sums(margins, top)[:, :, None])


def _exponents(margins: Floats, top: Floats) -> Floats:
    """Return log p - t log(1 - p) of margins for each sharpness t, up to terms that all classes of a row share.

    `top` is the largest margin of a row. Subtracting its share keeps the numbers small.
    """
    least, linear = -np.logaddexp(0.0, -margins) - np.minimum(top, 0.0), margins - top
    return np.stack([(1.0 - t) * least + t * linear for t in SHARPNESS])


def _log_sums(margins: Floats, top: Floats) -> Floats:
    """Return the logarithms (3, n) of the sums of the exponentials of `_exponents`, with two exponentials a margin."""
    grown, e = np.exp(margins - top), np.exp(-np.abs(margins))
    p = np.where(top > 0, np.where(margins > 0, 1.0, e), grown) / (1.0 + e)
    return np.log(np.stack([p.sum(axis=1), np.sqrt(p * grown).sum(axis=1), grown.sum(axis=1)]))


def recalibrated(margins: Floats, share: Floats) -> Floats:
    """Return the probabilities (n, 2) for margins (n, 1): the mixture of the maps in src/core/calibration.hpp."""
    p, noise = margins[:, 0], np.array(NOISE)
    size, clean = np.abs(p), share * (1.0 - noise)
    likely = np.full(len(p), share @ noise / 2.0)
    unlikely = likely.copy()
    for steepness in sorted(set(STEEPNESS)):
        e = np.exp(-steepness * size)  # never overflows
        part = clean[np.equal(STEEPNESS, steepness)].sum() / (1.0 + e)
        likely += part
        unlikely += part * e
    chances = np.column_stack([np.where(p > 0, unlikely, likely), np.where(p > 0, likely, unlikely)])
    return np.asarray(chances / share.sum())


def mixed(chances: Floats, losses: Floats) -> Floats:
    """Return the mean of chances (3, ...) over the first axis, with exponential weights from losses (3,)."""
    share = np.exp(losses.min() - losses)
    return np.asarray(np.tensordot(share / share.sum(), chances, 1))


def progressive_losses(margins: Floats, y: NDArray[np.int64], weight: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """Return the log loss of each row under the mixture weighted by the earlier rows, and the updated losses (3,)."""
    each, total, share = _shares(margins, y, weight, losses)
    least = each.min(axis=0)
    loss = least - np.log((share * np.exp(least - each)).sum(axis=0) / share.sum(axis=0))
    return loss, total[:, -1].copy()


def progressive_chances(margins: Floats, y: NDArray[np.int64], weight: Floats, losses: Floats) -> Floats:
    """Return the probabilities (n, classes) under the same mixtures."""
    share = _shares(margins, y, weight, losses)[2]
    parts = zip(share / share.sum(axis=0), np.exp(sharpened(margins)), strict=True)
    return np.asarray(sum(each[:, None] * chances for each, chances in parts))


def _shares(margins: Floats, y: Any, weight: Floats, losses: Floats) -> tuple[Floats, Floats, Floats]:
    """Return losses (3, n) of rows, their sums (3, n + 1) from `losses` on, and the shares (3, n) before each row."""
    top = margins.max(axis=1, keepdims=True)
    each = _log_sums(margins, top) - _exponents(margins[np.arange(len(y)), y], top[:, 0])
    total = np.cumsum(np.column_stack([losses, weight * each]), axis=1)
    return each, total, np.exp(total[:, :-1].min(axis=0) - total[:, :-1])


def nearest_distribution(v: Floats) -> Floats:
    """Project each row of v (n, classes) to the simplex: return max(v - t, 0) with t such that it sums to 1."""
    v = np.maximum(v - v.max(axis=1, keepdims=True), -1.0)  # entries more than 1 below the largest become 0 anyway
    falling = -np.sort(-v, axis=1)
    count = np.arange(1, v.shape[1] + 1)
    t = (np.cumsum(falling, axis=1) - 1.0) / count
    last = (falling > t).sum(axis=1) - 1  # index of the last class with a positive probability
    return np.maximum(v - t[np.arange(len(v)), last][:, None], 0.0)
