"""`robustfd train`: a linear model of files, learnt in one pass."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robustfd.cli._guard import READ, WRITE
from robustfd.cli._parameters import Files, Jobs, Keeping, Output, Reading, Talk, command

Task = StrEnum("Task", ["auto", "classification", "regression"])
Learner = StrEnum("Learner", ["newton", "rfdson"])
Loss = StrEnum("Loss", ["squared", "huber", "absolute", "quantile", "poisson"])


@command
def train(
    files: Files,
    output: Output,
    *,
    task: Annotated[Task, typer.Option(help="By default what the labels tell.")] = Task.auto,
    learner: Annotated[
        Learner, typer.Option(help="newton has nothing to tune; rfdson is the algorithm of Luo et al. 2019.")
    ] = Learner.newton,
    sketch_size: Annotated[
        int | None,
        typer.Option(
            "-m",
            "--sketch-size",
            min=0,
            help="Rows of the sketch, 0 for none. By default what pays.",
            show_default=False,
        ),
    ] = None,
    loss: Annotated[
        Loss,
        typer.Option(help="Of regression: huber for outliers, absolute for the median, quantile, poisson for counts."),
    ] = Loss.squared,
    quantile: Annotated[
        float | None,
        typer.Option(metavar="LEVEL", help="Which quantile --loss quantile predicts, 0 to 1.", show_default=False),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="All labels, with commas between them; saves the pass that finds them.", show_default=False),
    ] = None,
    start: Annotated[
        Path | None,
        READ,
        typer.Option(
            "--from", metavar="MODEL", help="Go on with this model: its columns, classes and loss.", show_default=False
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=0.99,
            metavar="SHARE",
            help="Share of rows to judge the model by in the end.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        WRITE,
        typer.Option(
            help="Draw progressive loss and error to this file, anew when rows have doubled.", show_default=False
        ),
    ] = None,
    jobs: Jobs = 1,
    keeping: Keeping,
    reading: Reading,
    talk: Talk,
) -> None:
    """Learn a linear classifier or regression of FILES in one pass, with nothing to tune.

    Progressive loss and error, of rows judged before they were learnt, are printed at 1, 2, 4, ... rows.
    """
    from robustfd.cli._figures import require_picture
    from robustfd.cli._learning import Choices
    from robustfd.cli._talk import tell
    from robustfd.cli._training import Training

    began = time.monotonic()
    if plot is not None:
        require_picture(plot)
    choices = Choices(str(task), str(learner), sketch_size, str(loss), quantile, classes)
    training = Training(files, choices, reading, start=start, holdout=holdout, jobs=jobs, talk=talk)
    report = training.run(output, keeping, plot)
    tell(talk, report.result() | training.judged() | {"seconds": time.monotonic() - began, "file": str(output)})
