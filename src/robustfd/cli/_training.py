"""The learner loop of `robustfd train`: a new or an existing model, and rows held out to test it. It prints nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robustfd._jobs import count_jobs
from robustfd.cli._files import LAYOUT_OPTIONS, accepts_nan, column_options, open_labelled, require_labels
from robustfd.cli._labels import decide_task, labels_for, survey_labels
from robustfd.cli._learners import LearnerOptions, make_learner
from robustfd.cli._models import LoadedFile, load_learner
from robustfd.cli._options import CheckpointOptions, ConsoleOptions, InputOptions
from robustfd.cli._parallel import finished, parallel
from robustfd.cli._pass import Pass
from robustfd.cli._progress_bar import Print
from robustfd.cli._scores import scorer_for
from robustfd.streams import Block, Stream, StreamError


class TrainingObserver(Protocol):
    """What a `Trainer` reports to. The model belongs to the trainer; observers only read it."""

    def resumed(self, model: Any) -> None:
        """Training continues with a model that has learned rows before."""

    def task_decided(self, task: str, classes: Any) -> None:
        """The first rows have decided the task of a new model; classes are None for a regression."""

    def figures(self, model: Any) -> dict[str, str]:
        """Return the figures to show next to the progress bar."""

    def block_learned(self, model: Any, show: Print) -> None:
        """The model has learned a block; the console can be printed to."""

    def finished(self, model: Any) -> None:
        """The model has learned all rows and is not yet written."""


class Trainer:
    """One pass over files that makes a model, or continues to train the model in the file `start`."""

    def __init__(
        self, files: list[str], options: LearnerOptions, inputs: InputOptions, *, start: Path | None = None,
        holdout: float | None = None, jobs: int = 1,
    ):  # fmt: skip
        self.files, self.options, self.inputs, self.start = files, options, inputs, start
        self._jobs = count_jobs("--jobs", jobs)
        self._existing: LoadedFile | None = None
        self._holdout: Any = None
        if holdout is not None:
            from robustfd.experiments.compare import Holdout

            self._holdout = Holdout(holdout, seed=0)
        if start is not None:
            self._existing, self.inputs = load_learner(start, inputs)
            _require_same_options(start, self._existing.model, options, inputs)
            if self._existing.layout is None:
                self.inputs = replace(self.inputs, n_features=self._existing.model.n_features_in_)

    def train(
        self, output: Path, checkpoints: CheckpointOptions, console: ConsoleOptions, observer: TrainingObserver
    ) -> Any:
        """Learn from all rows, write the model, and return it."""
        if self._holdout is not None and checkpoints.checkpoint is not None:
            raise ValueError("--holdout and --checkpoint cannot be combined: checkpoints do not store held-out rows.")
        job = {
            "command": "train", "files": self.files, **self.options._asdict(),
            "from": None if self.start is None else str(self.start), **column_options(self.inputs),
        }  # fmt: skip
        with Pass(job, output, checkpoints, console) as run:
            if not run.resumed and self._existing is not None:
                run.model, run.layout = self._existing.model, self._existing.layout
            if run.model is not None:
                run.model = parallel(run.model, self._jobs)
                observer.resumed(run.model)
            stream = self._open(run)
            stream.parse_threads = self._jobs
            if self._holdout is None and self._jobs == 1:
                stream.plain_rows = self.options.learner == "newton" if run.model is None else accepts_nan(run.model)
            self._learn(run, stream, observer)
            if not _has_learned(run.model):
                raise ValueError("There are no rows to learn from.")
            observer.finished(run.model)
            run.model = finished(run.model)
            run.finish(stream)
            return run.model

    def _open(self, run: Pass) -> Stream:
        nan = self.options.learner == "newton" if run.model is None else accepts_nan(run.model)
        unseen = {} if self.start is None else {"unseen": "drop"}
        return open_labelled(self.files, self.inputs, layout=run.layout, start=run.position, accepts_nan=nan, **unseen)

    def _learn(self, run: Pass, stream: Stream, observer: TrainingObserver) -> None:
        """Learn from all rows that are not held out."""
        task, classes = self.options.task, None
        if run.model is None:
            task, classes = survey_labels(stream, task, self.options.classes)

        def figures() -> dict[str, str]:
            return observer.figures(run.model) if _has_learned(run.model) else {}

        def after_block(show: Print) -> None:
            if _has_learned(run.model):
                observer.block_learned(run.model, show)

        for block in run.blocks(stream, figures, after_block):
            require_labels(block, self.files, stream)
            if run.model is None:
                task, classes = decide_task(task, block.y if classes is None else classes)
                run.model = parallel(make_learner(task, self.options), self._jobs)
                observer.task_decided(task, classes)
            if self.start is not None:
                _require_known_labels(self.start, run.model, block)
            if self._holdout is not None:
                block = block.take(self._holdout.keep(block.X, block.y))
            learn_block(run.model, block, classes)

    def holdout_scores(self, model: Any) -> dict[str, Any]:
        """Return the scores of the model on the rows held out, if there are any."""
        if self._holdout is None:
            return {}
        if not self._holdout.rows:
            return {"holdout_rows": 0}
        X, y = self._holdout.all()
        scorer = scorer_for(model)
        scorer.add(X, labels_for(model, y))
        scores = {name: value for name, value in scorer.result().items() if name != "pairs"}
        return {"holdout_rows": len(y)} | {f"holdout_{name}": value for name, value in scores.items()}


def learn_block(model: Any, block: Block, classes: Any) -> None:
    """Let a model learn a block. A new classifier gets its classes from the first block with positive weight."""
    model._undoes = False  # signals wait for the end of a block, and after an error the command does not use the model
    y, weight = labels_for(model, block.y), block.weight
    if not len(y) or (weight is not None and not weight.any()):  # a model cannot start with rows that do not count
        return
    if hasattr(model, "predict_proba"):
        known = None if hasattr(model, "classes_") else classes
        model.partial_fit(block.X, y, classes=known, sample_weight=weight)
    else:
        model.partial_fit(block.X, y, sample_weight=weight)


def _has_learned(model: Any) -> bool:
    return model is not None and hasattr(model, "n_features_in_")


def _require_same_options(path: Path, model: Any, options: LearnerOptions, inputs: InputOptions) -> None:
    """Raise if options contradict the existing model that training continues with."""
    for name in LAYOUT_OPTIONS:
        if getattr(inputs, name) is not None:
            option = {"n_features": "features"}.get(name, name).replace("_", "-")
            raise ValueError(f"--{option} and --from {path} cannot be combined: the model already defines its columns.")
    classifier = hasattr(model, "predict_proba")
    is_newton = type(model).__name__.startswith("SketchedNewton")
    loss = getattr(model, "loss", "squared")
    differs = {
        f"--task {options.task}": options.task not in ("auto", "classification" if classifier else "regression"),
        f"--learner {options.learner}": options.learner == "rfdson" and is_newton,
        f"-m {options.sketch_size}": options.sketch_size not in (None, model.sketch_size),
        f"--loss {options.loss}": options.loss not in ("squared", loss),
        f"--quantile {options.quantile}": options.quantile not in (None, getattr(model, "quantile", None)),
        f"--classes {options.classes}": options.classes is not None
        and options.classes.replace(" ", "").split(",") != list(map(str, getattr(model, "classes_", np.empty(0)))),
    }
    for option, different in differs.items():
        if different:
            raise ValueError(f"{option} does not match the {type(model).__name__} in {path}. Leave it out.")


def _require_known_labels(path: Path, model: Any, block: Block) -> None:
    """Raise if rows have labels that the existing model cannot learn."""
    if not hasattr(model, "predict_proba"):
        if block.y.dtype.kind not in "iuf":
            raise StreamError(f"The regression in {path} needs numbers as labels, got {block.y[0]!r}.")
        return
    known = model.classes_.tolist()
    if other := [label for label in np.unique(block.y).tolist() if label not in known]:
        classes = ", ".join(map(str, known))
        raise StreamError(f"There is a label {other[0]!r}, which is not one of the classes {classes} of {path}.")
