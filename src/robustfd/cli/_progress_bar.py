"""The progress bar of a pass over files."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustfd.cli._console import error_console
from robustfd.cli._files import report_skipped
from robustfd.cli._options import ConsoleOptions
from robustfd.streams import Block, Position, Stream

SECONDS = 0.5  # between two updates
FIGURES_SHARE = 0.05  # of the time for computing figures, which may be slow

Figures = Callable[[], dict[str, str]]  # what a command shows next to the bar, by name


class ProgressBar:
    """Rows read, speed, time left, and the figures of a command. Shown only in a terminal."""

    def __init__(self, stream: Stream, console: ConsoleOptions):
        self._next, self._started, self._first = 0.0, time.monotonic(), stream.position
        total = stream.bytes_total
        # The line has to fit into 80 columns.
        done = (BarColumn(bar_width=12), TextColumn("{task.percentage:>3.0f}%")) if total else (SpinnerColumn(),)
        clock = (TimeRemainingColumn(compact=True), TextColumn("left")) if total else (TimeElapsedColumn(),)
        errors = error_console(console)
        self._progress = Progress(
            *done, TextColumn("{task.fields[rows]}"), TextColumn("{task.fields[speed]}"), *clock,
            TextColumn("{task.fields[figures]}"), console=errors, transient=True,
            disable=console.quiet or not errors.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=total, rows="", speed="", figures="")

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    @property
    def console(self) -> Console:
        """The console to print to while the bar is shown."""
        return self._progress.console

    def update(self, position: Position, figures: Figures) -> None:
        """Show a new position."""
        now = time.monotonic()
        if self._progress.disable or now < self._next:
            return
        seconds = max(now - self._started, 1e-9)
        speed = f"{(position.rows - self._first.rows) / seconds:,.0f} rows/s"
        text = "  ".join(f"{name} {value}" for name, value in figures().items())
        self._next = now + max(SECONDS, (time.monotonic() - now) / FIGURES_SHARE)
        self._progress.update(
            self._task, completed=position.stored, rows=f"{position.rows:,} rows", speed=speed, figures=text
        )


def blocks_with_progress(stream: Stream, console: ConsoleOptions, figures: Figures = dict) -> Iterator[Block]:
    """Yield the blocks of a stream while a progress bar is shown; report skipped rows at the end."""
    with ProgressBar(stream, console) as bar:
        for block in stream:
            yield block
            bar.update(stream.position, figures)
    report_skipped(stream, console)
