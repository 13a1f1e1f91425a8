"""The progress bar of a pass over files."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from robustfd.cli._console import log
from robustfd.cli._files import report_skipped
from robustfd.cli._options import ConsoleOptions
from robustfd.streams import Block, Position, Stream

SECONDS = 0.5  # between two updates
FIGURES_SHARE = 0.05  # of the time for computing figures, which may be slow

Figures = Callable[[], dict[str, str]]  # what a command shows next to the bar, by name
Print = Callable[..., None]  # print(line, bold=False), above the bar


class ProgressBar:
    """Rows read, speed, time left, and the figures of a command. Shown only in a terminal."""

    def __init__(self, stream: Stream, console: ConsoleOptions):
        self._next, self._started, self._first = 0.0, time.monotonic(), stream.position
        self._console = console
        self._progress: Any = None
        if not console.quiet and sys.stderr is not None and sys.stderr.isatty():
            self._progress = _bar(stream.bytes_total)
            self._task = self._progress.add_task("", total=stream.bytes_total, rows="", speed="", figures="")

    def __enter__(self) -> "ProgressBar":
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def print(self, line: str, *, bold: bool = False) -> None:
        """Print a line above the bar."""
        if self._progress is not None:
            self._progress.console.print(line, style="bold" if bold else None, markup=False, highlight=False)
        else:
            log(self._console, line, bold=bold)

    def update(self, position: Position, figures: Figures) -> None:
        """Show a new position."""
        now = time.monotonic()
        if self._progress is None or now < self._next:
            return
        seconds = max(now - self._started, 1e-9)
        speed = f"{(position.rows - self._first.rows) / seconds:,.0f} rows/s"
        text = "  ".join(f"{name} {value}" for name, value in figures().items())
        self._next = now + max(SECONDS, (time.monotonic() - now) / FIGURES_SHARE)
        self._progress.update(
            self._task, completed=position.stored, rows=f"{position.rows:,} rows", speed=speed, figures=text
        )


def _bar(total: int | None) -> Any:
    """Return a bar whose line fits into 80 columns."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    done = (BarColumn(bar_width=12), TextColumn("{task.percentage:>3.0f}%")) if total else (SpinnerColumn(),)
    clock = (TimeRemainingColumn(compact=True), TextColumn("left")) if total else (TimeElapsedColumn(),)
    fields = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rows", "speed", "figures")]
    console = Console(stderr=True, highlight=False)
    return Progress(*done, *fields[:2], *clock, fields[2], console=console, transient=True)


def blocks_with_progress(stream: Stream, console: ConsoleOptions, figures: Figures = dict) -> Iterator[Block]:
    """Yield the blocks of a stream while a progress bar is shown; report skipped rows at the end."""
    with ProgressBar(stream, console) as bar:
        for block in stream:
            yield block
            bar.update(stream.position, figures)
    report_skipped(stream, console)
