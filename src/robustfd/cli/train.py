"""`robustfd train`: a linear model of files, learnt in one pass."""

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from robustfd.cli._guard import WRITE
from robustfd.cli._parameters import Files, Keeping, Output, Reading, Talk, command

Task = StrEnum("Task", ["auto", "classification", "regression"])
Learner = StrEnum("Learner", ["newton", "rfdson"])
Loss = StrEnum("Loss", ["squared", "huber"])


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
    loss: Annotated[Loss, typer.Option(help="Of regression; huber for targets with outliers.")] = Loss.squared,
    classes: Annotated[
        str | None,
        typer.Option(help="All labels, with commas between them; saves the pass that finds them.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None,
        WRITE,
        typer.Option(
            help="Draw progressive loss and error to this file, anew when rows have doubled.", show_default=False
        ),
    ] = None,
    keeping: Keeping,
    reading: Reading,
    talk: Talk,
) -> None:
    """Learn a linear classifier or regression of FILES in one pass, with nothing to tune.

    Progressive loss and error, of rows judged before they were learnt, are printed at 1, 2, 4, ... rows.
    """
    from robustfd.cli._figures import require_picture
    from robustfd.cli._learning import (
        Report,
        decide_task,
        known_classes,
        make_learner,
        no_labels,
        open_labelled,
    )
    from robustfd.cli._pass import Pass, columns_of
    from robustfd.cli._talk import say, tell

    began = time.monotonic()
    if plot is not None:
        require_picture(plot)
    job = {
        "command": "train", "files": files, "task": str(task), "learner": str(learner), "sketch_size": sketch_size,
        "loss": str(loss), "classes": classes, **columns_of(reading),
    }  # fmt: skip
    run = Pass(job, output, keeping, talk)
    stream = open_labelled(files, reading, layout=run.layout, start=run.position)
    report = Report(talk, plot, run.model if run.resumed else None)
    labels = None if run.resumed else known_classes(stream, task, classes)
    for block in run.blocks(stream, report.shown, report.lines):
        if block.y is None:
            raise no_labels(files, stream)
        if report.model is None:
            chosen, labels = decide_task(task, labels if labels is not None else block.y)
            run.model = report.model = make_learner(chosen, str(learner), sketch_size, str(loss))
            say(
                talk,
                f"{chosen}: "
                + (f"classes {', '.join(map(str, labels))}" if labels is not None else "labels are numbers"),
            )
        report.learn(block, labels)
    report.last()
    run.finish(stream)
    report.draw()  # now that the model is safe
    tell(talk, report.result() | {"seconds": time.monotonic() - began, "file": str(output)})
