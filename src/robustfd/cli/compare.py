"""`robustfd compare`: learners side by side on the user's own files."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import WRITE
from robustfd.cli._parameters import Files, Reading, Talk, command
from robustfd.cli.train import Task

QUESTION = "Do I need tuning on my data?"


@command
def compare(
    files: Files,
    *,
    task: Annotated[Task, typer.Option(help="By default what the labels tell.")] = Task.auto,
    classes: Annotated[
        str | None,
        typer.Option(help="All labels, with commas between them; saves the pass that finds them.", show_default=False),
    ] = None,
    test: Annotated[float, typer.Option(min=0.01, max=0.99, help="Share of rows that are held out.")] = 0.3,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides which rows are held out.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Every second setting only.")] = False,
    plot: Annotated[
        Path | None,
        WRITE,
        typer.Option(help="Draw the comparison to this file: .png, .svg, .pdf, ...", show_default=False),
    ] = None,
    reading: Reading,
    talk: Talk,
) -> None:
    """Do I need tuning on my data? Learners with nothing to tune beside tuned ones, in one pass over FILES.

    SketchedNewton and RFDSON, as `train` makes them, have nothing to tune. FD-SON, AdaGrad, gradient descent and
    scikit-learn's SGD have one setting each, of which 5 values are tried, each a model of its own. To suit these
    values such learners get an intercept, and features scaled by what was seen of them so far: standardised, or
    divided by their largest size if rows are sparse. For RFDSON and for these, what is missing counts as the mean, or
    as 0 if rows are sparse. More than two classes are learnt one against the rest. Targets of a regression are
    standardised for all learners by the first rows. SGD cannot judge row by row and does so a few rows at a time, at
    most 128.

    The progressive error is over all rows that are learnt, each judged before. The test error is that of the models
    after the last row, on rows held out: a random share, at most 20,000 rows and 50 MB. Errors are shares of rows, or
    roots of mean squares.

    SketchedNewton is held against the setting of least progressive error. The answer is "no" if its error is at most
    5 % above (or, for classes, within two standard errors), "a little" up to 25 %, else "yes": by progressive error and
    by test error, and the worse one counts. That best setting is picked afterwards, which flatters it.
    """
    from robustfd.cli._figures import drawn, require_picture, save
    from robustfd.cli._learning import decide_task, known_classes, no_labels, open_labelled
    from robustfd.cli._pass import Bar, report_losses
    from robustfd.cli._talk import columns, say, tell
    from robustfd.comparison.comparison import Comparison
    from robustfd.comparison.verdict import verdict

    began = time.monotonic()
    if plot is not None:
        require_picture(plot)
    stream = open_labelled(files, reading)
    labels, comparison, weighted = known_classes(stream, task, classes), None, False
    with Bar(stream, talk) as bar:
        for block in stream:
            if block.y is None:
                raise no_labels(files, stream)
            if comparison is None:
                chosen, labels = decide_task(task, labels if labels is not None else block.y)
                comparison = Comparison(labels, stream.n_features, share=test, seed=seed, quick=quick)
            comparison.add(block.X, block.y)
            weighted = weighted or block.weight is not None
            bar.moved(stream.position, comparison.shown)
    report_losses(stream, talk)
    if weighted:
        say(talk, "Rows have weights, which are not used here: all rows count alike.")
    if comparison is None:
        raise ValueError("There are no rows to learn from.")
    learners = comparison.learners()
    for name, why in comparison.left_out.items():
        say(talk, f"{name} is left out: {why}")
    counts = {"rows": stream.rows_read, "learnt": comparison.rows, "held_out": comparison.holdout.rows}
    answer = verdict(
        learners, comparison.runs[0][0].name, comparison.rows, comparison.holdout.rows, shares=labels is not None
    )
    result: dict[str, Any] = {
        "task": chosen, **({} if labels is None else {"classes": labels}), **counts, "features": stream.n_features,
        "error": "root of the mean square" if labels is None else "share of rows", "seed": seed,
        "seconds": time.monotonic() - began,
    }  # fmt: skip
    if plot is not None:
        from robustfd.comparison.figure import draw_comparison

        if drawn(lambda: save(draw_comparison(learners, result), plot), plot):
            result["file"] = str(plot)
    result |= {"learners": learners, "left_out": comparison.left_out, "verdict": answer}
    tell(talk, result, *tables(learners), columns(QUESTION, [[each] for each in (answer["words"], *answer["remarks"])]))


def tables(learners: list[dict[str, Any]]) -> list[Any]:
    """Return each learner at its best, and what its setting changes."""
    from robustfd.cli._talk import columns

    at_best = [
        (each["learner"], f"{each['setting']} {each['value']:g}" if each["setting"] else "nothing to tune",
         error(each["progressive_error"]), error(each["test_error"]), f"{each['microseconds_a_row']:.3g}",
         f"{each['seconds']:.3g}")
        for each in learners
    ]  # fmt: skip
    changes = []
    for each in learners:
        if each["setting"]:
            spread, values = each["spread"]["progressive_error"], [trial["value"] for trial in each["settings"]]
            changes.append((
                each["learner"], f"{each['setting']} {values[0]:g} to {values[-1]:g}", str(len(values)),
                *(error(spread[which]) for which in ("best", "default", "median", "worst")),
                f"{sum(trial['seconds'] for trial in each['settings']):.3g}",
            ))  # fmt: skip
    heads = ("learner", "setting", "progressive error", "test error", "µs/row", "seconds")
    more = ("learner", "setting", "tried", "best", "default", "median", "worst", "seconds")
    return [
        columns("Each learner at its best setting", at_best, *heads, left=2),
        columns("Progressive error over the settings that were tried", changes, *more, left=2),
    ]


def error(value: float) -> str:
    """Return an error as a table shows it."""
    return f"{value:.4g}" if value < float("inf") else "diverged"
