"""Labels of a command's input: which task they ask for, and which classes there are."""

from typing import Any

import numpy as np

from robustfd.streams import Stream
from robustfd.streams.base import MOST_LABELS

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
    found = np.unique(labels)
    numbers = found.dtype.kind in "iuf"
    whole = numbers and bool(np.all(found == np.floor(found)))
    if task == "auto":
        task = "regression" if numbers and not (whole and len(found) <= MOST_CLASSES) else "classification"
    if task == "regression":
        if not numbers:
            raise ValueError(f"A regression needs numbers as labels, got {found[0]!r}.")
        return task, None
    if numbers and not whole:
        raise ValueError(
            f"Classes must be text or whole numbers, got {found[found != np.floor(found)][0]:g}. Use --task regression."
        )
    if len(found) < 2:
        raise ValueError(f"There is only one label, {found[0]}. Name the others with --classes.")
    return task, found.astype(np.int64) if numbers else found


def labels_for(model: Any, y: Any) -> Any:
    """Return labels in the type that a model uses: classes that are whole numbers as integers."""
    if hasattr(model, "predict_proba") and y.dtype.kind == "f" and np.array_equal(y, np.floor(y)):
        return y.astype(np.int64)
    return y
