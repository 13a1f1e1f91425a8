"""Scores of a learner on labelled rows, block by block."""

from collections import Counter
from typing import Any

import numpy as np


def scorer_for(learner: Any) -> Any:
    """Return the scorer of a classifier or of a regressor."""
    return ClassificationScorer(learner) if hasattr(learner, "predict_proba") else RegressionScorer(learner)


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
