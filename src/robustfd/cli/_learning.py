"""What commands that learn or judge share: labels, learners, and the lines about progress."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import Progress

from robustfd.cli._parameters import Reading, Talk
from robustfd.cli._pass import open_files
from robustfd.cli._talk import stderr
from robustfd.streams import Block, Position, Stream
from robustfd.streams._base import MOST_LABELS

MOST_CLASSES = 100  # distinct whole numbers, above which labels are taken to be numbers
TARGETS = ("target", "label", "class", "y")  # columns that hold the labels if none is named


def open_labelled(
    files: list[str],
    reading: Reading,
    *,
    layout: dict[str, Any] | None = None,
    start: Position | None = None,
    takes_missing: bool = True,
    **more: Any,
) -> Stream:
    """Return a stream with labels; in tables they are in the column named, or one whose name says so."""
    more |= {"target": None if layout else TARGETS, "unlabelled": "skip", "takes_missing": takes_missing}
    return open_files(files, reading, layout=layout, start=start, **more)


def no_labels(files: list[str], stream: Stream) -> ValueError:
    """Return the error for rows without labels."""
    names = [stream.feature_name(column) for column in range(min(stream.n_features, 20))]
    return ValueError(f"{files[0]} has no labels. --target says which column they are in: {', '.join(names)}, ...")


def known_classes(stream: Stream, task: str, classes: str | None) -> Any:
    """Return all labels there will be, as far as they matter and can be known before the first row; else None."""
    if task == "regression":
        return None
    if classes is not None:
        return np.array([_label(each) for each in classes.split(",")])
    if not all(each.can_be_reread for each in stream.inputs):
        return None
    found = stream.survey().labels
    if found is None:
        if task == "classification":
            raise ValueError(f"There are more than {MOST_LABELS} different labels, too many for a classification.")
        return np.array([0.5])  # as numbers that are no classes
    return np.array(sorted(found))


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
            raise ValueError(f"Labels like {found[0]!r} are no numbers, which a regression needs.")
        return task, None
    if numbers and not whole:
        raise ValueError(f"Labels like {found[found != np.floor(found)][0]:g} are no classes: use --task regression.")
    if len(found) < 2:
        raise ValueError(f"There is one label only, {found[0]}; --classes says which others there will be.")
    return task, found.astype(np.int64) if numbers else found


def labels_of(model: Any, y: Any) -> Any:
    """Return labels as the model has them."""
    if hasattr(model, "predict_proba") and y.dtype.kind == "f" and np.array_equal(y, np.floor(y)):
        return y.astype(np.int64)
    return y


class Choices(NamedTuple):
    """What `robustfd train` was told about the learner."""

    task: str = "auto"
    learner: str = "newton"
    sketch_size: int | None = None
    loss: str = "squared"
    quantile: float | None = None
    classes: str | None = None


def make_learner(task: str, choices: Choices) -> Any:
    """Return a learner of no rows."""
    import robustfd

    _, learner, sketch_size, loss, quantile, _ = choices

    kind = "Classifier" if task == "classification" else "Regressor"
    if loss != "squared" and task == "classification":
        raise ValueError(f"--loss {loss} is for regression, and the labels are classes; --task regression changes it.")
    if (quantile is None) == (loss == "quantile"):
        raise ValueError("--quantile LEVEL and --loss quantile go together: give both or none.")
    if learner == "rfdson":
        if loss != "squared":
            raise ValueError(f"--loss {loss} is for the learner newton; rfdson has the squared loss only.")
        return getattr(robustfd, f"RFDSON{kind}")(**({} if sketch_size is None else {"sketch_size": sketch_size}))
    more: dict[str, Any] = {"loss": loss} if task == "regression" else {}
    if quantile is not None:
        more["quantile"] = quantile
    return getattr(robustfd, f"SketchedNewton{kind}")("auto" if sketch_size is None else sketch_size, **more)


class Report:
    """The lines about progress at 1, 2, 4, ... rows, as Vowpal Wabbit prints them."""

    def __init__(self, talk: Talk, plot: Path | None, model: Any):
        self.model, self.talk, self.plot = model, talk, plot
        self.printed = 0 if model is None else len(model.progressive_["rows"])
        self._draws = plot is not None  # until it fails

    def learn(self, block: Block, classes: Any) -> None:
        """Learn rows; in the first call classes are what there will be."""
        y, weight = labels_of(self.model, block.y), block.weight
        if not len(y) or (
            weight is not None and not weight.any()
        ):  # nothing to learn, and a model cannot begin with that
            return
        if hasattr(self.model, "predict_proba"):
            known = None if hasattr(self.model, "classes_") else classes
            self.model.partial_fit(block.X, y, classes=known, sample_weight=weight)
        else:
            self.model.partial_fit(block.X, y, sample_weight=weight)

    @property
    def begun(self) -> bool:
        """Whether rows were learnt."""
        return self.model is not None and hasattr(self.model, "n_features_in_")

    def shown(self) -> dict[str, str]:
        """Return what is shown beside the bar."""
        if not self.begun:
            return {}
        table = self.model.progressive_
        return {what: f"{table[what][-1]:.4g}" for what in ("loss", "error") if what in table}

    def lines(self, progress: Progress | None) -> None:
        """Print what is new at doubling numbers of rows."""
        if not self.begun:
            return
        table = self.model.progressive_
        rows = table["rows"].tolist()
        whole = len(rows) - (rows[-1] & (rows[-1] - 1) != 0)  # the last one may be of any number of rows
        if progress is not None and self.printed >= whole:
            return
        console = progress.console if progress is not None else stderr(self.talk)
        if self.printed == 0:
            heads = ["rows", "loss", "since last"] + (["error", "since last"] if "error" in table else [])
            console.print("".join(f"{head:>12}" for head in heads), style="bold", highlight=False)
        for k in range(self.printed, whole if progress is not None else len(rows)):
            cells = [f"{rows[k]:>12,}"]
            for what in ("loss", "error"):
                if what in table:
                    before, sum_before = (rows[k - 1], rows[k - 1] * table[what][k - 1]) if k else (0, 0.0)
                    since = (rows[k] * table[what][k] - sum_before) / (rows[k] - before)
                    cells += [f"{table[what][k]:>12.5g}", f"{abs(since):>12.5g}"]
            console.print("".join(cells), highlight=False)
        self.printed = whole if progress is not None else len(rows)
        if progress is not None and self._draws:
            self._draws = self.draw()

    def last(self) -> None:
        """Print the line of the last row."""
        if not self.begun:
            raise ValueError("There are no rows to learn from.")
        if self.printed < len(self.model.progressive_["rows"]):
            self.lines(None)

    def draw(self) -> bool:
        """Draw the picture that was asked for, if there is one; return whether that went well."""
        if self.plot is None:
            return True
        from robustfd.cli._figures import draw_progress, drawn

        path = self.plot
        return drawn(lambda: draw_progress(self.model, path), path)

    def result(self) -> dict[str, Any]:
        """Return what came out."""
        return about_learner(self.model)


def about_learner(model: Any) -> dict[str, Any]:
    """Return what there is to say about a learner."""
    result: dict[str, Any] = {"kind": type(model).__name__}
    if hasattr(model, "classes_"):
        result["classes"] = model.classes_.tolist()
    result |= {"rows": model.n_samples_seen_, "features": model.n_features_in_}
    for name in ("progressive_loss", "progressive_error"):
        if hasattr(model, f"{name}_"):
            result[name] = float(getattr(model, f"{name}_"))
    if hasattr(model, "hessian_"):
        result |= {"hessian": model.hessian_, "sketch_size": model.sketch_size_}
    return result
