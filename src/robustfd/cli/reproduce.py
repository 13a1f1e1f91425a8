"""`robustfd reproduce`: a report with the tables and figures of the paper, of newer methods, or of linear bandits."""

import json
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustfd.cli._command import command
from robustfd.cli._console import Stopped
from robustfd.cli._options import WRITE, ConsoleOptions, argument, option

SECONDS = 10  # between two lines about the progress, where there is no terminal
What = Literal["all", "error", "sensitivity", "online", "accuracy", "cost", "regret", "rivals", "bandits"]


@command
def reproduce(
    what: Annotated[What, argument("[WHAT]", f"Experiments to run: {', '.join(get_args(What))}.")] = "all",
    data: Annotated[str, option("Data sets, separated by commas.", metavar="A,B,...")] = "a9a,farm-ads",
    out: Annotated[Path, option("Directory for the report and all results.", use=WRITE)] = Path("reproduction"),
    quick: Annotated[bool, option("Fewer sizes, orders and seeds: about a fifteenth of the work.")] = False,
    jobs: Annotated[int, option("Number of processes; 0 runs everything in this one.", metavar="N", min=0)] = 2,
    *,
    console: ConsoleOptions,
) -> None:
    """Reproduce the tables and figures of Luo et al. 2019, and report which of their claims hold.

    Two are not of the paper, nor part of `all`: `rivals`, newer methods with 49 settings each, and `bandits`, the
    regret of linear bandits with sketches, on generated data.

    Each result is saved when it is complete. After an interruption, the same command continues where it stopped.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{error.name} is missing. The report needs an extra: pip install 'robustfd[reproduce]'"
        ) from None
    from robustfd.experiments.reproduce import PAPER, ProgressListener
    from robustfd.experiments.reproduce import reproduce as run

    errors = Console(stderr=True, quiet=console.quiet, highlight=False)
    chosen = PAPER if what == "all" else (what,)
    names = [name.strip() for name in data.split(",") if name.strip()]
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[cells]}"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    try:
        out.mkdir(parents=True, exist_ok=True)
        with Progress(*columns, console=errors) as progress:
            outcome = run(chosen, names, out, quick=quick, jobs=jobs, listener=_listener(progress, ProgressListener))
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT, "stopped. The same command continues where it stopped.") from None
    for verdict in outcome.verdicts:
        colour, mark = {"holds": ("green", "✓"), "differs": ("yellow", "≠"), "fails": ("red", "✗")}[verdict.status]
        errors.print(f"[{colour}]{mark}[/] ", end="")
        errors.print(f"{verdict.claim}: {verdict.found}", markup=False, highlight=False)
    for failure in outcome.failed:
        errors.print(f"failed: {failure}", style="red", markup=False, highlight=False)
    cells = f"{outcome.cells} cells ({outcome.kept} of them from earlier runs)"
    errors.print(f"{cells} in {outcome.seconds:.0f} s", highlight=False)
    if console.json:
        verdicts = [{"status": each.status, "claim": each.claim, "found": each.found} for each in outcome.verdicts]
        print(json.dumps({"report": str(outcome.report), "cells": outcome.cells, "verdicts": verdicts}))
    else:
        print(outcome.report)
    if outcome.failed:
        raise SystemExit(1)


def _listener(progress: Progress, kind: Any) -> Any:
    """Return a listener that advances a bar by the effort of cells, so that the estimate of the time left is good.

    Without a terminal it prints lines instead, at most one in `SECONDS` seconds.
    """
    task = progress.add_task("starting", total=None, cells="")
    show = partial(progress.console.print, highlight=False) if not progress.console.is_terminal else None
    total, spent, done, count, started, shown = 0.0, 0.0, 0, 0, 0.0, 0.0

    def plan(cells: Sequence[Any]) -> None:
        nonlocal total, count, started, shown
        total, count, started = sum(cell.effort for cell in cells), len(cells), time.monotonic()
        shown = started
        progress.update(task, description="running", total=total)
        if show:
            show(f"running {count} cells, the largest first")

    def ended(cell: Any, how: str) -> None:
        nonlocal total, spent, done, shown
        done += 1
        if how == "kept":  # it took no time, so it does not count for the speed
            total -= cell.effort
        else:
            spent += cell.effort
        progress.update(task, total=total, completed=spent, cells=f"{done} of {count} cells")
        now = time.monotonic()
        if show and (now - shown >= SECONDS or done == count):
            left = f", about {(now - started) * (total / spent - 1):.0f} s left" if 0 < spent < total else ""
            show(f"{done} of {count} cells after {now - started:.0f} s{left}")
            shown = now

    def message(text: str) -> None:
        progress.update(task, description=text)
        if show:
            show(text)

    return kind(on_plan=plan, on_end=ended, on_message=message)
