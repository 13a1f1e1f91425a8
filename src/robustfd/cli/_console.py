"""Printing: results on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from robustfd.cli._errors import write_errors
from robustfd.cli._options import ConsoleOptions


def log(console: ConsoleOptions, message: str) -> None:
    """Print a message that is not the result, unless --quiet."""
    if not console.quiet:
        print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Print a warning, also with --quiet."""
    print(f"robustfd: warning: {message}", file=sys.stderr, flush=True)


def error_console(console: ConsoleOptions) -> Console:
    """Return the console on standard error."""
    return Console(stderr=True, quiet=console.quiet, highlight=False)


class _ResultConsole(Console):
    """A console that raises BrokenPipeError if its reader has gone, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _result_console() -> Console:
    """Return the console for results. Lines are wrapped only in a terminal."""
    console = _ResultConsole(highlight=False)
    return console if console.is_terminal else _ResultConsole(highlight=False, width=200)


def print_result(console: ConsoleOptions, result: Mapping[str, Any], *tables: Table) -> None:
    """Print a result as JSON, or its scalars as a table of two columns, followed by other tables."""
    with write_errors("Standard output"):
        if console.json:
            print(json.dumps({key: as_json(value) for key, value in result.items()}, allow_nan=False))
        else:
            _print_tables(result, tables)
        if sys.stdout is not None:
            sys.stdout.flush()


def _print_tables(result: Mapping[str, Any], tables: Iterable[Table]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in result.items():
        if isinstance(value, str | bool | int | float):
            table.add_row(key.replace("_", " "), formatted(value))
    console = _result_console()
    console.print(table)
    for each in tables:
        title, each.title = each.title, None  # rich would wrap it at the width of the table
        console.print()
        console.print(title, style="bold")
        console.print(each)


def text_table(title: str, rows: Iterable[Iterable[Any]], *headers: str, left: int = 1) -> Table:
    """Return a table whose first `left` columns are aligned to the left. Without headers it has one column."""
    table = Table(title=title, box=None, pad_edge=False, show_header=bool(headers))
    for place, header in enumerate(headers or ("",)):
        table.add_column(header, justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(formatted(value) for value in row))
    return table


def formatted(value: Any) -> str:
    """Return a value as text for people: 12,345 or 0.12346 or yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def as_json(value: Any) -> Any:
    """Return a value that JSON can represent; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    return None if isinstance(value, float) and not -float("inf") < value < float("inf") else value
