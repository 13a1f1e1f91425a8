"""Labels, tasks and scores of learners."""

from collections import Counter
from typing import Any

import numpy as np

from robustfd.streams import Block, Stream
from robustfd.streams.scan import MOST_LABELS

MOST_CLASSES = 100  # distinct whole numbers; with more, they count as numbers


def survey_labels(stream: Stream, task: str, classes: str | None) -> tuple[str, Any]:
    """Return the task and all labels, as far as they can be known before the first row.

    The labels are None for a regression, and for input that can be read only once.
    """
    if task == "regression":
        return task, None
    if classes is not None:
        return task, np.array([_label(each) for each in classes.split(",")])
    if not all(each.can_be_reread for each in stream.inputs):
        return task, None
    labels = stream.survey().labels
    if labels is not None:
        return task, np.array(sorted(labels))
    if task == "classification":
        raise ValueError(f"There are more than {MOST_LABELS} different labels, too many for a classification.")
    return "regression", None


def _label(text: str) -> Any:
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        return text


def decide_task(task: str, labels: Any) -> tuple[str, Any]:
    """Return "classification" and its classes, or "regression" and None."""
    found, _ = np.unique(labels, return_index=True)  # with an index, it does not import numpy.ma
    numbers = found.dtype.kind in "iuf"
    whole = numbers and bool(np.all(found == np.floor(found)))
    if task == "auto":
        task = "regression" if numbers and not (whole and len(found) <= MOST_CLASSES) else "classification"
    if task == "regression":
        require_numbers(found)
        return task, None
    if numbers and not whole:
        raise ValueError(
            f"Classes must be text or whole numbers, got {found[found != np.floor(found)][0]:g}. Use --task regression."
        )
    if len(found) < 2:
        raise ValueError(f"There is only one label, {found[0]}. Name the others with --classes.")
    return task, found.astype(np.int64) if numbers else found


def require_numbers(labels: Any) -> None:
    """Raise if labels are text, for a regression."""
    if labels.dtype.kind not in "iuf":
        raise ValueError(f"A regression needs numbers as labels, got {labels[0]!r}.")


def labels_for(model: Any, y: Any) -> Any:
    """Return labels in the type that a model uses: classes that are whole numbers as integers."""
    if hasattr(model, "predict_proba") and y.dtype.kind == "f" and np.array_equal(y, np.floor(y)):
        return y.astype(np.int64)
    return y


def learn_block(model: Any, block: Block, classes: Any, *, again: bool = False) -> None:
    """Let a model learn a block, which an earlier pass has learned if it does so `again`.

    A new classifier gets its classes from the first block with positive weight.
    """
    model._undoes = False  # signals wait for the end of a block, and after an error the command does not use the model
    model._relearns = again
    y, weight = labels_for(model, block.y), block.weight
    if not len(y) or (weight is not None and not weight.any()):  # a model cannot start with rows that do not count
        return
    known = {}
    if hasattr(model, "predict_proba"):
        known["classes"] = None if hasattr(model, "classes_") else classes
    model.partial_fit(block.X, y, sample_weight=weight, **known)


def scorer_for(learner: Any) -> "ClassificationScorer | RegressionScorer | QuantileScorer":
    """Return the scorer of a classifier, of a regressor or of several quantiles."""
    if hasattr(learner, "predict_proba"):
        return ClassificationScorer(learner)
    return QuantileScorer(learner) if getattr(learner, "_levels", None) else RegressionScorer(learner)


class ClassificationScorer:
    """Accuracy, log loss and confusion matrix of a classifier."""

    def __init__(self, learner: Any):
        self.learner, self.n, self.loss = learner, 0, 0.0
        self.pairs: Counter[tuple[Any, Any]] = Counter()  # of true and predicted label

    def add(self, X: Any, y: Any) -> None:
        """Score some rows. A label that the model does not have gets the probability 0."""
        probabilities, known = self.learner.predict_proba(X), self.learner.classes_.tolist()
        place = {label: k for k, label in enumerate(known)}
        right = [probabilities[i, place[label]] if label in place else 0.0 for i, label in enumerate(y.tolist())]
        self.n += len(y)
        self.loss -= float(np.log(np.maximum(np.array(right), np.finfo(float).tiny)).sum())
        self.pairs.update(zip(y.tolist(), self.learner.predict(X).tolist()))

    def labels(self) -> list[Any]:
        """Return all labels, those of the model first."""
        known = self.learner.classes_.tolist()
        return known + sorted({truth for truth, _ in self.pairs} - set(known), key=str)

    def result(self) -> dict[str, Any]:
        """Return the scores."""
        wrong = sum(count for (truth, predicted), count in self.pairs.items() if truth != predicted)
        table = [{"truth": t, "prediction": p, "rows": c} for (t, p), c in sorted(self.pairs.items(), key=str)]
        return {"accuracy": 1 - wrong / self.n, "error": wrong / self.n, "log_loss": self.loss / self.n, "pairs": table}


class RegressionScorer:
    """Squared error, absolute error and R2 of a regressor."""

    def __init__(self, learner: Any):
        self.learner, self.n = learner, 0
        self.square = self.absolute = self.mean = self.spread = 0.0

    def add(self, X: Any, y: Any) -> None:
        """Score some rows. The spread of the targets about their mean is updated as in Chan et al. 1979."""
        y = y.astype(float)
        residual = y - self.learner.predict(X)
        self.square += float(np.square(residual).sum())
        self.absolute += float(np.abs(residual).sum())
        shift, total = float(y.mean()) - self.mean, self.n + len(y)
        self.spread += float(np.square(y - y.mean()).sum()) + shift**2 * self.n * len(y) / total
        self.mean += shift * len(y) / total
        self.n = total

    def result(self) -> dict[str, Any]:
        """Return the scores."""
        r2 = 1 - self.square / self.spread if self.spread > 0 else None
        mean_square = self.square / self.n
        return {
            "mean_squared_error": mean_square,
            "root": mean_square**0.5,
            "mean_absolute_error": self.absolute / self.n,
            "r2": r2,
        }


class QuantileScorer:
    """Pinball loss of several quantiles, and how many targets are below each."""

    def __init__(self, learner: Any):
        self.learner, self.levels, self.n = learner, np.array(learner._levels), 0
        self.losses, self.below = np.zeros(len(self.levels)), np.zeros(len(self.levels))

    def add(self, X: Any, y: Any) -> None:
        """Score some rows."""
        residual = y.astype(float)[:, None] - self.learner.predict(X)
        self.losses += (residual * (self.levels - (residual < 0))).sum(axis=0)
        self.below += (residual < 0).sum(axis=0)
        self.n += len(y)

    def result(self) -> dict[str, Any]:
        """Return the scores."""
        below = {f"below_{level:g}": share for level, share in zip(self.levels, (self.below / self.n).tolist())}
        return {"pinball_loss": float(self.losses.mean() / self.n), **below}
