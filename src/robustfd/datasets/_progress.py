"""Progress of downloads on a terminal: a rich progress bar if rich is installed, otherwise a line of text."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from robustfd.datasets._http import Report

SECONDS_BETWEEN = 0.1


@contextmanager
def progress_bar(label: str, *, wanted: bool) -> Iterator[Report]:
    """Yield a function to call with the bytes downloaded and the total."""
    if not wanted or not _on_terminal():
        yield lambda done, total: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        with _line(label) as report:
            yield report
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def notify(text: str, *, wanted: bool) -> None:
    """Print a message for a user at a terminal."""
    if wanted and _on_terminal():
        print(text, file=sys.stderr)


@contextmanager
def _line(label: str) -> Iterator[Report]:
    """Yield a report function that rewrites one line."""
    last = -SECONDS_BETWEEN

    def report(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN or done == total:
            last = now
            share = f" of {total / 1e6:.1f} MB, {done / total:4.0%}" if total else " MB"
            print(f"\r{label}: {done / 1e6:.1f}{share}", end="", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        print(file=sys.stderr)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
