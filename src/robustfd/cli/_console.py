"""Printing, and errors as one line and an exit status. Results go to standard output, all else to standard error."""

import io
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from robustfd.cli._options import ConsoleOptions

FAILED, WRONG_USAGE = 1, 2


# -- messages and results


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
            print(json.dumps(as_json(result), allow_nan=False))
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
    forms = [f"{'<' if k < left else '>'}{width}" for k, width in enumerate(widths)]
    return Table(title, ["  ".join(map(format, line, forms)).rstrip() for line in lines])


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


# -- errors and signals


class Stopped(BaseException):
    """A signal ended the command, after the command saved its state."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum


@contextmanager
def exit_on_error(*, verbose: bool = False) -> Iterator[None]:
    """End the process with a one-line message and an exit status if the body raises."""
    with redirect_stderr(_BestEffortStream(sys.stderr)):
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            yield
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader of the results has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + signal.SIGPIPE)
        except Stopped as stop:
            _fail(str(stop), 128 + stop.signum)
        except KeyboardInterrupt:
            _fail("stopped.", 128 + signal.SIGINT)
        except Exception as error:
            if verbose:
                traceback.print_exc()
            status = _status(error)
            if status is None:
                raise
            _fail(_message(error), status)
        finally:
            signal.signal(signal.SIGTERM, before)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(signum, "stopped.")


def _fail(message: str, status: int) -> NoReturn:
    print(f"robustfd: {message}", file=sys.stderr)
    sys.exit(status)


def _status(error: Exception) -> int | None:
    """Return the exit status for an error, None for one that should not occur."""
    from robustfd._container import SnapshotError
    from robustfd.streams import StreamError

    if isinstance(error, StreamError | SnapshotError | OSError | MemoryError | ArithmeticError | ImportError):
        return FAILED
    return WRONG_USAGE if isinstance(error, ValueError | TypeError) else None


class _BestEffortStream:
    """Standard error, where a failed write is ignored: a full or closed stream must not end the command."""

    def __init__(self, file: Any):
        self._file = file if file is not None else io.StringIO()

    def write(self, text: str) -> int:
        """Write if possible."""
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def write_errors(name: Any) -> Iterator[None]:
    """Add the name of the file to any error of the operating system about writing."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone; that needs no message
        raise
    except OSError as error:
        raise OSError(f"{name} could not be written: {error.strerror or error}.") from error


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, MemoryError):
        what = str(error).partition(" for an array")[0] or "Not enough memory"
        return (
            f"{what}. A model takes memory for each column. Use fewer columns, or a smaller --hash-bits or --features."
        )
    return as_options(str(error)) or type(error).__name__


_ARGUMENT = re.compile(
    r"\b(target|weight|id|columns|drop|categories|hash_bits|n_features|zero_based|header|delimiter|decimal|missing|"
    r"interactions|on_error|sketch_size|loss|quantile|max_columns|max_line_bytes)"
    r"(?:=(\[[^]\n]*\]|'[^'\n]*'|[^\s,;:.()]*)|(?= must be ))"
)
_SWITCHES = {"header": ("--header", "--no-header"), "zero_based": ("--zero-based", "--one-based")}


def as_options(message: str) -> str:
    """Return a message of the library with its arguments as options: missing='zero' becomes --missing zero."""

    def option(found: re.Match[str]) -> str:
        if found[2] in ("True", "False") and found[1] in _SWITCHES:
            return _SWITCHES[found[1]][found[2] == "False"]
        value = ",".join(each.strip("' ") for each in (found[2] or "").strip("[]").split(","))
        return f"{option_name(found[1])} {value}".rstrip()

    return _ARGUMENT.sub(option, message)


def option_name(parameter: str) -> str:
    """Return the option that sets a parameter of the library."""
    return "--" + {"n_features": "features"}.get(parameter, parameter).replace("_", "-")
