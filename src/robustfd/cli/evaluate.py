"""`robustfd evaluate`: how good a model is on rows of files."""

from collections import Counter
from typing import Any

from robustfd.cli._parameters import Files, Reading, Talk, command
from robustfd.cli.predict import Model

MOST = 20  # classes up to which there is a table of which were taken for which


@command
def evaluate(model: Model, files: Files, *, reading: Reading, talk: Talk) -> None:
    """Judge MODEL on the labelled rows of FILES: error and log loss, or squared and absolute error and R2."""
    from robustfd.cli._learning import TARGETS, labels_of, no_labels
    from robustfd.cli._models import load_learner, open_like
    from robustfd.cli._pass import report_losses
    from robustfd.cli._talk import columns, tell

    learner, layout, reading = load_learner(model, reading)
    target = TARGETS if layout is None else None
    stream = open_like(files, reading, learner, layout, target=target, unlabelled="skip")
    judge = judge_of(learner)
    for block in stream:
        if block.y is None:
            raise no_labels(files, stream)
        judge.add(block.X, labels_of(learner, block.y))
    report_losses(stream, talk)
    result, tables = judge.result(), []
    if isinstance(judge, Classes) and len(judge.labels()) <= MOST:
        labels = judge.labels()
        rows = [(truth, *(judge.pairs[truth, said] for said in labels)) for truth in labels]
        tables = [
            columns("Rows of each class (down), and what they were taken for (across)", rows, "", *map(str, labels))
        ]
    tell(talk, {"model": str(model), "rows": stream.rows_read} | result, *tables)


def judge_of(learner: Any) -> Any:
    """Return what judges a learner block by block."""
    return Classes(learner) if hasattr(learner, "predict_proba") else Numbers(learner)


class Classes:
    """Errors and log loss of a classifier, block by block."""

    def __init__(self, learner: Any):
        self.learner, self.n, self.loss = learner, 0, 0.0
        self.pairs: Counter[tuple[Any, Any]] = Counter()  # of true and predicted label

    def add(self, X: Any, y: Any) -> None:
        """Judge some rows; a label that the model does not know has the probability it would give to it, 0."""
        import numpy as np

        chances, known = self.learner.predict_proba(X), self.learner.classes_.tolist()
        place = {label: k for k, label in enumerate(known)}
        right = np.array([chances[i, place[label]] if label in place else 0.0 for i, label in enumerate(y.tolist())])
        self.n += len(y)
        self.loss -= float(np.log(np.maximum(right, np.finfo(float).tiny)).sum())
        self.pairs.update(zip(y.tolist(), self.learner.predict(X).tolist()))

    def labels(self) -> list[Any]:
        """Return all labels, those of the model first."""
        known = self.learner.classes_.tolist()
        return known + sorted({truth for truth, _ in self.pairs} - set(known), key=str)

    def result(self) -> dict[str, Any]:
        """Return the figures."""
        wrong = sum(count for (truth, said), count in self.pairs.items() if truth != said)
        table = [{"truth": t, "prediction": p, "rows": c} for (t, p), c in sorted(self.pairs.items(), key=str)]
        return {"accuracy": 1 - wrong / self.n, "error": wrong / self.n, "log_loss": self.loss / self.n, "pairs": table}


class Numbers:
    """Errors of a regression, block by block."""

    def __init__(self, learner: Any):
        self.learner, self.n = learner, 0
        self.square = self.absolute = self.mean = self.spread = 0.0

    def add(self, X: Any, y: Any) -> None:
        """Judge some rows; the spread of targets about their mean is brought along (Chan et al. 1979)."""
        import numpy as np

        y = y.astype(float)
        residual = y - self.learner.predict(X)
        self.square += float(np.square(residual).sum())
        self.absolute += float(np.abs(residual).sum())
        shift, total = float(y.mean()) - self.mean, self.n + len(y)
        self.spread += float(np.square(y - y.mean()).sum()) + shift**2 * self.n * len(y) / total
        self.mean += shift * len(y) / total
        self.n = total

    def result(self) -> dict[str, Any]:
        """Return the figures."""
        r2 = 1 - self.square / self.spread if self.spread > 0 else None
        mean_square = self.square / self.n
        return {
            "mean_squared_error": mean_square,
            "root": mean_square**0.5,
            "mean_absolute_error": self.absolute / self.n,
            "r2": r2,
        }
