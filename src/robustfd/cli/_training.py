"""What `robustfd train` does: a new model or one to go on with, and rows that are held out to judge it by."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robustfd._jobs import count_jobs
from robustfd.cli._learning import Choices, Report, decide_task, known_classes, make_learner, no_labels, open_labelled
from robustfd.cli._models import load_learner, takes_missing
from robustfd.cli._parameters import Keeping, Reading, Talk
from robustfd.cli._pass import Pass, columns_of
from robustfd.cli._talk import say
from robustfd.cli._team import as_one, in_parts
from robustfd.streams import Block, StreamError

COLUMNS = ("columns", "drop", "categories", "hash_bits", "n_features", "zero_based", "interactions")


class Training:
    """One pass over files that makes a model, or goes on with one."""

    def __init__(
        self, files: list[str], choices: Choices, reading: Reading, *, start: Path | None, holdout: float | None,
        jobs: int = 1, talk: Talk,
    ):  # fmt: skip
        self.files, self.choices, self.reading, self.talk, self.start = files, choices, reading, talk, start
        self.model: Any = None
        self._jobs = count_jobs("--jobs", jobs)
        self._layout: dict[str, Any] | None = None
        self._holdout: Any = None
        self._share = holdout
        if holdout is not None:
            from robustfd.comparison import Holdout

            self._holdout = Holdout(holdout, seed=0)
        if start is not None:
            self.model, self._layout, self.reading = load_learner(start, reading)
            _refuse_others(start, self.model, choices, reading)
            if self._layout is None:
                self.reading = replace(self.reading, n_features=self.model.n_features_in_)

    def run(self, output: Path, keeping: Keeping, plot: Path | None) -> Report:
        """Learn all rows and write the model; return the account of it."""
        if self._share is not None and keeping.checkpoint is not None:
            raise ValueError("--holdout and --checkpoint cannot be given together: rows held out are in no checkpoint.")
        start = None if self.start is None else str(self.start)
        job = {
            "command": "train", "files": self.files, **self.choices._asdict(), "from": start, **columns_of(self.reading)
        }  # fmt: skip
        run = Pass(job, output, keeping, self.talk)
        if run.resumed:
            self.model = run.model = in_parts(run.model, self._jobs)
        elif self.model is not None:
            self.model = in_parts(self.model, self._jobs)
            run.model, run.layout = self.model, self._layout
        report = Report(self.talk, plot, self.model)
        self._learn(run, report)
        report.draw()  # now that the model is safe
        return report

    def _learn(self, run: Pass, report: Report) -> None:
        """Learn all rows but those held out, and write the model."""
        fine = self.choices.learner == "newton" if self.model is None else takes_missing(self.model)
        known = {} if self.start is None else {"unseen": "drop"}
        stream = open_labelled(
            self.files, self.reading, layout=run.layout, start=run.position, takes_missing=fine, **known
        )
        new = self.model is None
        labels = known_classes(stream, self.choices.task, self.choices.classes) if new else None
        for block in run.blocks(stream, report.shown, report.lines):
            if block.y is None:
                raise no_labels(self.files, stream)
            if self.model is None:
                task, labels = decide_task(self.choices.task, labels if labels is not None else block.y)
                self.model = run.model = report.model = in_parts(make_learner(task, self.choices), self._jobs)
                say(self.talk, f"{task}: {_said(labels)}")
            if self.start is not None:
                _require_labels(self.start, self.model, block)
            report.learn(self._learnt(block), labels)
        report.last()
        self.model = run.model = report.model = as_one(self.model)
        run.finish(stream)

    def _learnt(self, block: Block) -> Block:
        """Return the rows of a block that are learnt."""
        return block if self._holdout is None else block.take(self._holdout.keep(block.X, block.y))

    def judged(self) -> dict[str, Any]:
        """Return how good the model is on the rows held out, if there are any."""
        if self._holdout is None:
            return {}
        if not self._holdout.rows:
            say(self.talk, "There are so few rows that none was held out.")
            return {"holdout_rows": 0}
        from robustfd.cli._learning import labels_of
        from robustfd.cli.evaluate import judge_of

        X, y = self._holdout.all()
        judge = judge_of(self.model)
        judge.add(X, labels_of(self.model, y))
        figures = {name: value for name, value in judge.result().items() if name != "pairs"}
        return {"holdout_rows": len(y)} | {f"holdout_{name}": value for name, value in figures.items()}


def _said(labels: Any) -> str:
    return "labels are numbers" if labels is None else f"classes {', '.join(map(str, labels))}"


def _refuse_others(path: Path, model: Any, choices: Choices, reading: Reading) -> None:
    """Raise if options say something about a model to go on with that is decided already."""
    for name in COLUMNS:
        if getattr(reading, name) is not None:
            option = {"n_features": "features"}.get(name, name).replace("_", "-")
            raise ValueError(f"--{option} and --from {path}, which says that already: give one of them only.")
    classifier = hasattr(model, "predict_proba")
    is_newton = type(model).__name__.startswith("SketchedNewton")
    loss = getattr(model, "loss", "squared")
    wrong = {
        f"--task {choices.task}": choices.task not in ("auto", "classification" if classifier else "regression"),
        f"--learner {choices.learner}": choices.learner == "rfdson" and is_newton,
        f"-m {choices.sketch_size}": choices.sketch_size not in (None, model.sketch_size),
        f"--loss {choices.loss}": choices.loss not in ("squared", loss),
        f"--quantile {choices.quantile}": choices.quantile not in (None, getattr(model, "quantile", None)),
        f"--classes {choices.classes}": choices.classes is not None
        and choices.classes.replace(" ", "").split(",") != list(map(str, getattr(model, "classes_", np.empty(0)))),
    }
    for option, differs in wrong.items():
        if differs:
            raise ValueError(f"{option} is not what the {type(model).__name__} in {path} is: leave it out.")


def _require_labels(path: Path, model: Any, block: Block) -> None:
    """Raise if rows have labels that a model to go on with cannot have."""
    if not hasattr(model, "predict_proba"):
        if block.y.dtype.kind not in "iuf":
            raise StreamError(f"Labels like {block.y[0]!r} are no numbers, which the regression in {path} needs.")
        return
    known = model.classes_.tolist()
    if other := [label for label in np.unique(block.y).tolist() if label not in known]:
        raise StreamError(f"There is a label {other[0]!r}, and {path} knows the classes {', '.join(map(str, known))}.")
