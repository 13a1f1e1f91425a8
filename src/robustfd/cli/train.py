"""`robustfd train`: a linear model from files, learned in one pass or several."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

import robustfd
from robustfd._jobs import count_jobs
from robustfd.cli._command import command
from robustfd.cli._console import log, option_name, print_result
from robustfd.cli._files import (
    LAYOUT_OPTIONS,
    LoadedFile,
    accepts_nan,
    column_options,
    coverage_tables,
    load_learner,
    open_labelled,
    require_labels,
    summary,
)
from robustfd.cli._learning import decide_task, labels_for, learn_block, scorer_for, survey_labels
from robustfd.cli._options import (
    READ,
    WRITE,
    CheckpointOptions,
    Classes,
    ConsoleOptions,
    Files,
    InputOptions,
    Jobs,
    Output,
    Task,
    option,
)
from robustfd.cli._options import sketch_size as sketch_size_option
from robustfd.cli._output import new_figure, require_plot, try_to_draw
from robustfd.cli._parallel import parallel
from robustfd.cli._pass import Pass, Print
from robustfd.cli._passes import held_out, learn_in_passes
from robustfd.streams import Block, Position, Stream, StreamError

Learner = Literal["newton", "rfdson"]
Expand = Literal["trees", "auto"]
Loss = Literal["squared", "huber", "absolute", "quantile", "poisson"]
FIGURES = ("loss", "error")

_LEARNER = "newton has nothing to tune; rfdson is the algorithm of Luo et al. 2019."
_LOSS = (
    "Loss of a regression: squared, huber (resists outliers), absolute (fits medians), quantile, or poisson (fits "
    "counts)."
)
_QUANTILE = "Quantile for --loss quantile, from 0 to 1, or several, such as 0.1,0.5,0.9."
_SKETCH_SIZE = "Rows of the sketch, 0 for none. Default: chosen during training."
_INTERVALS = "Also learn intervals of numbers, or sets of classes, for predict --interval."
_EXPAND = "Add curves and interactions by boosted trees: trees, or auto to do so only where it helps."
_HOLDOUT = "Hold out this share of the rows, and test the model on them."
_PASSES = (
    "Learn the files N times, hold out every tenth row, and write the model of the pass with the lowest loss on them."
)
_PLOT = "Plot progressive loss and error to this file; updated whenever the rows double."


@command
def train(
    files: Files,
    output: Output,
    *,
    task: Task = "auto",
    learner: Annotated[Learner, option(_LEARNER, metavar="NAME")] = "newton",
    sketch_size: Annotated[int | None, sketch_size_option(_SKETCH_SIZE, least=0)] = None,
    loss: Annotated[Loss, option(_LOSS, metavar="LOSS")] = "squared",
    quantile: Annotated[str | None, option(_QUANTILE, metavar="LEVELS")] = None,
    intervals: Annotated[bool, option(_INTERVALS)] = False,
    expand: Annotated[Expand | None, option(_EXPAND, metavar="HOW")] = None,
    classes: Classes = None,
    start: Annotated[Path | None, option("Continue to train this model.", "--from", metavar="MODEL", use=READ)] = None,
    holdout: Annotated[float | None, option(_HOLDOUT, metavar="SHARE", min=0.01, max=0.99)] = None,
    passes: Annotated[int, option(_PASSES, metavar="N", min=1)] = 1,
    plot: Annotated[Path | None, option(_PLOT, metavar="FILE", use=WRITE)] = None,
    jobs: Jobs = 1,
    checkpoints: CheckpointOptions,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Train a linear classifier or regression on FILES in one pass, without tuning.

    Progressive loss and error, where each row is predicted before it is learned, are printed at 1, 2, 4, ... rows.
    """
    started = time.monotonic()
    require_plot(plot)
    if holdout is not None and checkpoints.checkpoint is not None:
        raise ValueError("--holdout and --checkpoint cannot be combined: checkpoints do not store held-out rows.")
    if holdout is not None and passes > 1:
        raise ValueError("--holdout and --passes cannot be combined: with several passes, every tenth row is held out.")
    if intervals and passes > 1:
        raise ValueError(
            "--intervals and --passes cannot be combined: intervals need rows that the model has not seen."
        )
    options = LearnerOptions(task, learner, sketch_size, loss, _levels(quantile), intervals, expand, classes)
    training = Training(files, options, inputs, start, holdout, count_jobs("--jobs", jobs), passes)
    progress = Progress(console, plot)
    model = training.run(output, checkpoints, console, progress)
    progress.draw(model)  # only now, because the model file is more important
    scores = training.holdout_scores(model)
    if scores.get("holdout_rows") == 0:
        log(console, "There are too few rows to hold any out.")
    result = summary(model) | scores
    result |= {"seconds": time.monotonic() - started, "file": str(output)}
    print_result(console, result, *coverage_tables(result))


class LearnerOptions(NamedTuple):
    """The options that choose a learner."""

    task: str
    learner: str
    sketch_size: int | None
    loss: str
    quantile: float | list[float] | None
    intervals: bool
    expand: str | None
    classes: str | None


def _levels(text: str | None) -> float | list[float] | None:
    """Return the level of one quantile, or a list of several."""
    if text is None:
        return None
    try:
        levels = [float(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"--quantile must be a number from 0 to 1, or several with commas, got {text!r}.") from None
    return levels[0] if len(levels) == 1 else levels


def make_learner(task: str, options: LearnerOptions) -> Any:
    """Return a new learner for "classification" or "regression"."""
    _, learner, sketch_size, loss, quantile, intervals, expand, _ = options
    kind = "Classifier" if task == "classification" else "Regressor"
    if loss != "squared" and task == "classification":
        raise ValueError(f"--loss {loss} is for regression, and the labels are classes. Add --task regression.")
    if (quantile is None) == (loss == "quantile"):
        raise ValueError("--quantile LEVELS and --loss quantile go together. Give both or none.")
    if learner == "rfdson":
        if intervals:
            raise ValueError("--intervals is for the learner newton; rfdson has no intervals.")
        if expand is not None:
            raise ValueError(f"--expand {expand} is for the learner newton; rfdson has no trees.")
        if loss != "squared":
            raise ValueError(f"--loss {loss} is for the learner newton; rfdson supports only the squared loss.")
        return getattr(robustfd, f"RFDSON{kind}")(**({} if sketch_size is None else {"sketch_size": sketch_size}))
    more: dict[str, Any] = {"loss": loss} if task == "regression" else {}
    if quantile is not None:
        more["quantile"] = quantile
    if intervals:
        more["intervals"] = True
    if expand is not None:
        more["expand"] = expand
    return getattr(robustfd, f"SketchedNewton{kind}")("auto" if sketch_size is None else sketch_size, **more)


class Training:
    """One pass over files that makes a model, or continues to train the model in the file `start`."""

    def __init__(
        self, files: list[str], options: LearnerOptions, inputs: InputOptions, start: Path | None,
        holdout: float | None, jobs: int, passes: int,
    ):  # fmt: skip
        self.files, self.options, self.inputs, self.start, self.jobs = files, options, inputs, start, jobs
        self.passes, self._scores = passes, dict[str, Any]()
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

    def run(self, output: Path, checkpoints: CheckpointOptions, console: ConsoleOptions, progress: "Progress") -> Any:
        """Learn from all rows, write the model, and return it."""
        job = {
            "command": "train", "files": self.files, **self.options._asdict(),
            "from": None if self.start is None else str(self.start), "passes": self.passes,
            **column_options(self.inputs),
        }  # fmt: skip
        with Pass(job, output, checkpoints, console) as run:
            if not run.resumed and self._existing is not None:
                run.model, run.layout = self._existing.model, self._existing.layout
            nan = self.options.learner == "newton" if run.model is None else accepts_nan(run.model)
            if run.model is not None:
                progress.resumed(run.model)

            def open_files(start: Position | None) -> Stream:
                stream = open_labelled(
                    self.files, self.inputs, layout=run.layout, start=start, accepts_nan=nan,
                    **({} if self.start is None else {"unseen": "drop"}),
                )  # fmt: skip
                stream.parse_threads = self.jobs
                stream.plain_rows = nan and self._holdout is None and self.jobs == self.passes == 1
                stream.wants_codes = bool(self.options.expand or getattr(run.model, "expand", None))
                return stream

            def learn(stream: Stream) -> None:
                self._learn(run, stream, progress)
                if not _has_learned(run.model):
                    raise ValueError("There are no rows to learn from.")
                if self.options.expand is not None and self.jobs == 1:
                    run.model._complete_fit()

            if self.passes > 1:
                self._scores = learn_in_passes(run, self.passes, open_files, learn)
            else:
                stream = open_files(run.position)
                learn(stream)
                progress.finished(run.model)
                run.finish(stream)
            return run.model

    def _learn(self, run: Pass, stream: Stream, progress: "Progress") -> None:
        """Learn from all rows that are not held out."""
        task, classes = self.options.task, None
        if run.model is None:
            task, classes = survey_labels(stream, task, self.options.classes)

        def figures() -> dict[str, str]:
            return progress.figures(run.model) if _has_learned(run.model) else {}

        def after_block(show: Print) -> None:
            if _has_learned(run.model):
                progress.block_learned(run.model, show)

        for block in run.blocks(stream, figures, after_block):
            require_labels(block, self.files, stream)
            if run.model is None:
                task, classes = decide_task(task, block.y if classes is None else classes)
                run.model = make_learner(task, self.options)
                progress.task_decided(task, classes)
            run.model = parallel(run.model, self.jobs)
            if self.start is not None:
                _require_known_labels(self.start, run.model, block)
            if self._holdout is not None:
                block = block.take(self._holdout.keep(block.X, block.y))
            if self.passes > 1:
                assert run.position is not None
                block = block.take(~held_out(run.position.rows, block.X.shape[0]))
            learn_block(run.model, block, classes, again=bool(run.passes))

    def holdout_scores(self, model: Any) -> dict[str, Any]:
        """Return the scores of the model on the rows held out, if there are any."""
        if self._holdout is None:
            return self._scores
        if not self._holdout.rows:
            return {"holdout_rows": 0}
        X, y = self._holdout.all()
        scorer = scorer_for(model)
        scorer.add(X, labels_for(model, y))
        scores = {name: value for name, value in scorer.result().items() if name != "pairs"}
        return {"holdout_rows": len(y)} | {f"holdout_{name}": value for name, value in scores.items()}


def _has_learned(model: Any) -> bool:
    return model is not None and hasattr(model, "n_features_in_")


def _require_same_options(path: Path, model: Any, options: LearnerOptions, inputs: InputOptions) -> None:
    """Raise if options contradict the existing model that training continues with."""
    for name in LAYOUT_OPTIONS:
        if getattr(inputs, name) is not None:
            raise ValueError(
                f"{option_name(name)} and --from {path} cannot be combined: the model already defines its columns."
            )
    classifier = hasattr(model, "predict_proba")
    is_newton = type(model).__name__.startswith("SketchedNewton")
    loss = getattr(model, "loss", "squared")
    differs = {
        f"--task {options.task}": options.task not in ("auto", "classification" if classifier else "regression"),
        f"--learner {options.learner}": options.learner == "rfdson" and is_newton,
        f"-m {options.sketch_size}": options.sketch_size not in (None, model.sketch_size),
        f"--loss {options.loss}": options.loss not in ("squared", loss),
        f"--quantile {options.quantile}": options.quantile not in (None, getattr(model, "quantile", None)),
        "--intervals": options.intervals and not getattr(model, "intervals", False),
        f"--expand {options.expand}": options.expand not in (None, getattr(model, "expand", None)),
        f"--classes {options.classes}": options.classes is not None
        and options.classes.replace(" ", "").split(",") != list(map(str, getattr(model, "classes_", np.empty(0)))),
    }
    for given, different in differs.items():
        if different:
            raise ValueError(f"{given} does not match the {type(model).__name__} in {path}. Leave it out.")


def _require_known_labels(path: Path, model: Any, block: Block) -> None:
    """Raise if rows have labels that the existing model cannot learn."""
    if not hasattr(model, "predict_proba"):
        if block.y.dtype.kind not in "iuf":
            raise StreamError(f"The regression in {path} needs numbers as labels, got {block.y[0]!r}.")
        return
    known = model.classes_.tolist()
    if other := [label for label in sorted(set(block.y.tolist())) if label not in known]:
        classes = ", ".join(map(str, known))
        raise StreamError(f"There is a label {other[0]!r}, which is not one of the classes {classes} of {path}.")


class Progress:
    """Print progressive loss and error at 1, 2, 4, ... rows, as Vowpal Wabbit does, and redraw the plot as often."""

    def __init__(self, console: ConsoleOptions, plot: Path | None, loss: str = "loss"):
        self._console, self._plot, self._called = console, plot, {"loss": loss}
        self._printed = 0  # entries of the table `progressive_`
        self._redraw = plot is not None  # until a plot fails

    def resumed(self, model: Any) -> None:
        """Skip the lines of rows learned before."""
        self._printed = len(model.progressive_["rows"])

    def task_decided(self, task: str, classes: Any) -> None:
        """Print the task."""
        about = "labels are numbers" if classes is None else f"classes {', '.join(map(str, classes))}"
        log(self._console, f"{task}: {about}")

    def figures(self, model: Any) -> dict[str, str]:
        """Return the current loss and error."""
        table = model.progressive_
        return {self._called.get(name, name): f"{table[name][-1]:.4g}" for name in FIGURES if name in table}

    def block_learned(self, model: Any, show: Print) -> None:
        """Print the new lines at powers of two, and redraw the plot if there are any."""
        if model.n_samples_seen_.bit_length() <= self._printed:  # reading the table waits for parallel workers
            return
        rows = model.progressive_["rows"].tolist()
        complete = len(rows) - (rows[-1] & (rows[-1] - 1) != 0)  # the last entry is of any number of rows
        if self._printed < complete:
            self._print(model.progressive_, complete, show)
            if self._redraw:
                self._redraw = self.draw(model)

    def finished(self, model: Any) -> None:
        """Print the line of the last row."""
        table = model.progressive_
        if self._printed < len(table["rows"]):
            self._print(table, len(table["rows"]), partial(log, self._console))

    def _print(self, table: Any, end: int, show: Print) -> None:
        """Print the entries of a table that are new, up to an end."""
        names = [name for name in FIGURES if name in table]
        if self._printed == 0:
            called = [self._called.get(name, name) for name in names]
            headers = ["rows", *(header for name in called for header in (name, "since last"))]
            show("".join(f"{header:>12}" for header in headers), bold=True)
        rows = table["rows"].tolist()
        for k in range(self._printed, end):
            cells = [f"{rows[k]:>12,}"]
            for name in names:
                before, sum_before = (rows[k - 1], rows[k - 1] * table[name][k - 1]) if k else (0, 0.0)
                since = (rows[k] * table[name][k] - sum_before) / (rows[k] - before)
                cells += [f"{table[name][k]:>12.5g}", f"{since + 0.0:>12.5g}"]
            show("".join(cells))
        self._printed = end

    def draw(self, model: Any) -> bool:
        """Draw the plot, if there is one; return whether that worked."""
        return self._plot is None or try_to_draw(partial(progress_figure, model), self._plot)


def progress_figure(model: Any) -> Any:
    """Return a plot of progressive loss and error against the number of rows."""
    figure = new_figure()
    model.plot_progress(ax=figure.subplots())
    return figure
