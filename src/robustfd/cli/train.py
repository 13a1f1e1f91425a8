"""`robustfd train`: a linear model from files, learned in one pass."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from robustfd.cli._command import command
from robustfd.cli._file_use import READ, WRITE
from robustfd.cli._options import (
    CheckpointOptions,
    Classes,
    ConsoleOptions,
    Files,
    InputOptions,
    Jobs,
    Output,
    Task,
    TaskOption,
)
from robustfd.cli._parameters import option

Learner = StrEnum("Learner", ["newton", "rfdson"])
Loss = StrEnum("Loss", ["squared", "huber", "absolute", "quantile", "poisson"])


@command
def train(
    files: Files,
    output: Output,
    *,
    task: TaskOption = Task.auto,
    learner: Annotated[
        Learner,
        option(metavar="NAME", help="newton has nothing to tune; rfdson is the algorithm of Luo et al. 2019."),
    ] = Learner.newton,
    sketch_size: Annotated[
        int | None,
        option(
            "-m",
            "--sketch-size",
            metavar="ROWS",
            min=0,
            help="Rows of the sketch, 0 for none. Default: chosen during training.",
        ),
    ] = None,
    loss: Annotated[
        Loss,
        option(
            metavar="LOSS",
            help="Loss of a regression: squared, huber (resists outliers), absolute (fits medians), quantile, or "
            "poisson (fits counts).",
        ),
    ] = Loss.squared,
    quantile: Annotated[
        float | None,
        option(metavar="LEVEL", help="Quantile for --loss quantile, from 0 to 1."),
    ] = None,
    classes: Classes = None,
    start: Annotated[
        Path | None,
        READ,
        option("--from", metavar="MODEL", help="Continue to train this model."),
    ] = None,
    holdout: Annotated[
        float | None,
        option(
            min=0.01, max=0.99, metavar="SHARE", help="Hold out this share of the rows, and test the model on them."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        WRITE,
        option(metavar="FILE", help="Plot progressive loss and error to this file; updated whenever the rows double."),
    ] = None,
    jobs: Jobs = 1,
    checkpoints: CheckpointOptions,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Train a linear classifier or regression on FILES in one pass, without tuning.

    Progressive loss and error, where each row is predicted before it is learned, are printed at 1, 2, 4, ... rows.
    """
    from robustfd.cli._console import log, print_result
    from robustfd.cli._learners import LearnerOptions, learner_summary
    from robustfd.cli._plots import require_plot
    from robustfd.cli._training import Trainer
    from robustfd.cli._training_printer import TrainingPrinter

    started = time.monotonic()
    if plot is not None:
        require_plot(plot)
    options = LearnerOptions(str(task), str(learner), sketch_size, str(loss), quantile, classes)
    trainer = Trainer(files, options, inputs, start=start, holdout=holdout, jobs=jobs)
    printer = TrainingPrinter(console, plot)
    model = trainer.train(output, checkpoints, console, printer)
    printer.draw(model)  # only now, because the model file is more important
    scores = trainer.holdout_scores(model)
    if scores.get("holdout_rows") == 0:
        log(console, "There are too few rows to hold any out.")
    result = learner_summary(model) | scores
    print_result(console, result | {"seconds": time.monotonic() - started, "file": str(output)})
