"""`robustfd reproduce`: the paper's tables and figures as a report."""

import json
import signal
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustfd.cli._guard import WRITE
from robustfd.cli._parameters import Talk, command

What = StrEnum("What", ["all", "error", "sensitivity", "online", "accuracy", "cost", "regret"])


@command
def reproduce(
    what: Annotated[What, typer.Argument(help="Which experiments.", show_default=True)] = What["all"],
    data: Annotated[str, typer.Option(help="Data sets, with commas between them.")] = "a9a,farm-ads",
    out: Annotated[Path, WRITE, typer.Option(help="Folder for the report and all results.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, orders and seeds: two minutes.")] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Processes at a time; 0 is this one.")] = 2,
    *,
    talk: Talk,
) -> None:
    """Make the tables and figures of Luo et al. 2019 again, and a report that says what holds.

    Results are kept one by one: stop it at any time, and the same command continues where it was.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("matplotlib is missing. Figures need an extra: pip install 'robustfd[reproduce]'") from None
    from robustfd.cli._talk import Stopped, stderr
    from robustfd.experiments.reproduce import EXPERIMENTS, Watch
    from robustfd.experiments.reproduce import reproduce as run

    console = stderr(talk)
    chosen = EXPERIMENTS if what == "all" else (str(what),)
    names = [name.strip() for name in data.split(",") if name.strip()]
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[cells]}"), TimeElapsedColumn(),
        TextColumn("left:"), TimeRemainingColumn(),
    )  # fmt: skip
    try:
        out.mkdir(parents=True, exist_ok=True)
        with Progress(*columns, console=console) as progress:
            outcome = run(chosen, names, out, quick=quick, jobs=jobs, watch=_watch(progress, Watch))
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT, "stopped. The same command continues where it was.") from None
    for verdict in outcome.verdicts:
        colour, mark = {"holds": ("green", "✓"), "differs": ("yellow", "≠"), "fails": ("red", "✗")}[verdict.status]
        console.print(f"[{colour}]{mark}[/] ", end="")
        console.print(f"{verdict.claim}: {verdict.found}", markup=False, highlight=False)
    for failure in outcome.failed:
        console.print(f"failed: {failure}", style="red", markup=False, highlight=False)
    console.print(
        f"{outcome.cells} cells ({outcome.kept} of them from before) in {outcome.seconds:.0f} s", highlight=False
    )
    if talk.json:
        verdicts = [{"status": each.status, "claim": each.claim, "found": each.found} for each in outcome.verdicts]
        print(json.dumps({"report": str(outcome.report), "cells": outcome.cells, "verdicts": verdicts}))
    else:
        print(outcome.report)
    if outcome.failed:
        raise typer.Exit(1)


def _watch(progress: Progress, kind: Any) -> Any:
    """Return a watcher that moves a bar by the effort of cells, so that the time left is about right."""
    task = progress.add_task("starting", total=None, cells="")
    total, spent, done, count, told = 0.0, 0.0, 0, 0, 0

    def plan(cells: Sequence[Any]) -> None:
        nonlocal total, count
        total, count = sum(cell.effort for cell in cells), len(cells)
        progress.update(task, description="running", total=total)

    def ended(cell: Any, how: str) -> None:
        nonlocal total, spent, done, told
        done += 1
        if how == "kept":  # it took no time, so it says nothing about the speed
            total -= cell.effort
        else:
            spent += cell.effort
        progress.update(task, total=total, completed=spent, cells=f"{done} of {count} cells")
        if not progress.console.is_terminal and 10 * done // count > told:
            told = 10 * done // count
            progress.console.print(f"{done} of {count} cells", highlight=False)

    return kind(plan=plan, ended=ended, says=lambda message: progress.update(task, description=message))
