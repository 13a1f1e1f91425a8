"""`robustfd compare`: several learners on the user's own files."""

import time
from pathlib import Path
from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._console import log, print_result, text_table
from robustfd.cli._files import open_labelled, require_labels
from robustfd.cli._learning import decide_task, survey_labels
from robustfd.cli._options import WRITE, Classes, ConsoleOptions, Files, InputOptions, Task, option
from robustfd.cli._output import require_plot, try_to_draw
from robustfd.cli._pass import blocks_with_progress

QUESTION = "Do I need tuning on my data?"


@command
def compare(
    files: Files,
    *,
    task: Task = "auto",
    classes: Classes = None,
    test: Annotated[float, option("Share of rows to hold out.", min=0.01, max=0.99)] = 0.3,
    seed: Annotated[int, option("Seed of the choice of rows to hold out.", min=0, max=2**32 - 1)] = 0,
    quick: Annotated[bool, option("Try only every second setting.")] = False,
    plot: Annotated[Path | None, option("Plot the comparison to this file.", metavar="FILE", use=WRITE)] = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Compare learners that need no tuning with tuned ones on FILES, in one pass: do I need tuning on my data?

    SketchedNewton and RFDSON, as `train` makes them, have nothing to tune. FD-SON, AdaGrad, gradient descent and
    scikit-learn's SGD have one setting each. Five values of it are tried, each with its own model. These learners get
    an intercept and scaled features: standardised, or divided by the largest absolute value so far if rows are sparse.
    For RFDSON and the tuned learners, a missing value counts as the mean, or as 0 if rows are sparse. More than two
    classes are learned one against the rest. Targets of a regression are standardised for all learners by the first
    rows. SGD predicts a few rows at a time, at most 128; all others predict row by row.

    The progressive error is over all training rows, each predicted before it is learned. The test error is that of the
    final models on held-out rows: a random share, at most 20,000 rows and 50 MB. Errors are shares of rows, or roots of
    mean squares.

    SketchedNewton is compared with the setting that has the lowest progressive error. The answer is "no" if its error
    is at most 5 % larger (or, for classes, within two standard errors), "a little" up to 25 %, else "yes". Progressive
    error and test error are both compared, and the worse answer counts. The best setting is chosen in hindsight, which
    favours the tuned learners.
    """
    from robustfd.experiments.compare import Comparison, verdict

    started = time.monotonic()
    require_plot(plot)
    stream = open_labelled(files, inputs)
    chosen, labels = survey_labels(stream, task, classes)
    comparison: Comparison | None = None
    weighted = False

    def figures() -> dict[str, str]:
        return {} if comparison is None else comparison.progress_fields()

    for block in blocks_with_progress(stream, console, figures):
        require_labels(block, files, stream)
        if comparison is None:
            chosen, labels = decide_task(chosen, block.y if labels is None else labels)
            comparison = Comparison(labels, stream.n_features, share=test, seed=seed, quick=quick)
        comparison.add(block.X, block.y)
        weighted = weighted or block.weight is not None
    if weighted:
        log(console, "Weights of rows are ignored here: all rows count the same.")
    if comparison is None:
        raise ValueError("There are no rows to learn from.")
    learners = comparison.learners()
    for name, why in comparison.left_out.items():
        log(console, f"{name} is left out: {why}")
    counts = {"rows": stream.rows_read, "learnt": comparison.rows, "held_out": comparison.holdout.rows}
    main = comparison.runs[0][0].name
    answer = verdict(learners, main, comparison.rows, comparison.holdout.rows, shares=labels is not None)
    result: dict[str, Any] = {
        "task": chosen, **({} if labels is None else {"classes": labels}), **counts, "features": stream.n_features,
        "error": "root of the mean square" if labels is None else "share of rows", "seed": seed,
        "seconds": time.monotonic() - started,
    }  # fmt: skip
    if plot is not None:
        from robustfd.experiments.figures import draw_comparison

        if try_to_draw(lambda: draw_comparison(learners, result), plot):
            result["file"] = str(plot)
    result |= {"learners": learners, "left_out": comparison.left_out, "verdict": answer}
    remarks = text_table(QUESTION, [[each] for each in (answer["words"], *answer["remarks"])])
    print_result(console, result, *_tables(learners), remarks)


def _tables(learners: list[dict[str, Any]]) -> list[Any]:
    """Return a table of each learner at its best setting, and one of the effect of the setting."""
    at_best = [
        (each["learner"], f"{each['setting']} {each['value']:g}" if each["setting"] else "nothing to tune",
         _error(each["progressive_error"]), _error(each["test_error"]), f"{each['microseconds_a_row']:.3g}",
         f"{each['seconds']:.3g}")
        for each in learners
    ]  # fmt: skip
    changes = []
    for each in learners:
        if each["setting"]:
            spread, values = each["spread"]["progressive_error"], [trial["value"] for trial in each["settings"]]
            changes.append((
                each["learner"], f"{each['setting']} {values[0]:g} to {values[-1]:g}", str(len(values)),
                *(_error(spread[which]) for which in ("best", "default", "median", "worst")),
                f"{sum(trial['seconds'] for trial in each['settings']):.3g}",
            ))  # fmt: skip
    headers = ("learner", "setting", "progressive error", "test error", "µs/row", "seconds")
    more = ("learner", "setting", "tried", "best", "default", "median", "worst", "seconds")
    return [
        text_table("Each learner at its best setting", at_best, *headers, left=2),
        text_table("Progressive error over the settings that were tried", changes, *more, left=2),
    ]


def _error(value: float) -> str:
    """Return an error as text for a table."""
    return f"{value:.4g}" if value < float("inf") else "diverged"
