"""Printing: results on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from robustfd.cli._errors import write_errors
from robustfd.cli._options import ConsoleOptions


def log(console: ConsoleOptions, message: str, *, bold: bool = False) -> None:
    """Print a message that is not the result, unless --quiet."""
    if not console.quiet:
        click.echo(click.style(message, bold=True) if bold else message, file=sys.stderr)


def warn(message: str) -> None:
    """Print a warning, also with --quiet."""
    print(f"robustfd: warning: {message}", file=sys.stderr, flush=True)


class Table(NamedTuple):
    """A title and the lines below it."""

    title: str
    lines: list[str]


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
    scalars = {
        key.replace("_", " "): value for key, value in result.items() if isinstance(value, str | bool | int | float)
    }
    width = max(map(len, scalars), default=0)
    for name, value in scalars.items():
        click.echo(click.style(f"{name:{width}}", bold=True) + f"  {formatted(value)}")
    for table in tables:
        click.echo()
        for line in (click.style(table.title, bold=True), *table.lines):
            click.echo(line)


def text_table(title: str, rows: Iterable[Iterable[Any]], *headers: str, left: int = 1) -> Table:
    """Return a table whose first `left` columns are aligned to the left."""
    cells = [[formatted(value) for value in row] for row in rows]
    lines = [list(headers), *cells] if headers else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return Table(title, [_line(line, widths, left) for line in lines])


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    aligned = [f"{cell:{'<' if k < left else '>'}{width}}" for k, (cell, width) in enumerate(zip(cells, widths))]
    return "  ".join(aligned).rstrip()


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
