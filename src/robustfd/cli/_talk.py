"""What is said: results on standard output, the rest on standard error, errors as one line and an exit status."""

import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from robustfd.cli._parameters import Talk

FAILED, WRONG_USAGE = 1, 2


class Stopped(BaseException):
    """A signal that asks to end, after everything was kept."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum


@contextmanager
def reporting_errors(*, verbose: bool) -> Iterator[None]:
    """End the process with a line about what went wrong, and the exit status that goes with it."""
    with redirect_stderr(_Careless(sys.stderr)):
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            with _ending(verbose):
                yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped(signum, "stopped.")


class _Careless:
    """Standard error as it may be full or closed: what is said there is no reason to stop."""

    def __init__(self, file: Any):
        self._file = file

    def write(self, text: str) -> int:
        """Write, if possible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if possible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.flush()

    def isatty(self) -> bool:
        """Return whether a person looks at it."""
        return self._file is not None and self._file.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def naming(what: Any) -> Iterator[None]:
    """Say in what the system has to say about writing what could not be written."""
    try:
        yield
    except BrokenPipeError:  # nobody has to be told
        raise
    except OSError as error:
        raise OSError(f"{what} could not be written: {error.strerror or error}.") from error


@contextmanager
def _ending(verbose: bool) -> Iterator[None]:
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read the results has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Stopped as stop:
        _fail(str(stop), 128 + stop.signum)
    except KeyboardInterrupt:
        _fail("stopped.", 128 + signal.SIGINT)
    except Exception as error:
        from robustfd._container import SnapshotError
        from robustfd.streams import StreamError

        if verbose:
            traceback.print_exc()
        if isinstance(error, StreamError | SnapshotError | OSError | MemoryError | ArithmeticError | ImportError):
            _fail(_text_of(error), FAILED)
        elif isinstance(error, ValueError | TypeError):
            _fail(_text_of(error), WRONG_USAGE)
        else:
            raise


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return as_options(str(error)) or type(error).__name__


_ARGUMENT = re.compile(
    r"\b(target|weight|id|columns|drop|categories|hash_bits|n_features|zero_based|header|delimiter|missing|"
    r"interactions|on_error|sketch_size|loss|quantile)"
    r"(?:=(\[[^]\n]*\]|'[^'\n]*'|[^\s,;:.()]*)|(?= must be ))"
)


def as_options(message: str) -> str:
    """Return what the library says of its arguments, missing='zero', in the spelling of the command: --missing zero."""

    def option(found: re.Match[str]) -> str:
        name = {"n_features": "features"}.get(found[1], found[1]).replace("_", "-")
        if found[2] in ("True", "False") and found[1] in _SWITCHES:
            return _SWITCHES[found[1]][found[2] == "False"]
        value = ",".join(part.strip("' ") for part in (found[2] or "").strip("[]").split(","))
        return f"--{name} {value}".rstrip()

    return _ARGUMENT.sub(option, message)


_SWITCHES = {"header": ("--header", "--no-header"), "zero_based": ("--zero-based", "--one-based")}


def _fail(message: str, status: int) -> None:
    print(f"robustfd: {message}", file=sys.stderr)
    sys.exit(status)


def say(talk: Talk, message: str) -> None:
    """Say something that is not the result."""
    if not talk.quiet:
        print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Say that something asked for could not be done, also to those who want to hear the result only."""
    print(f"robustfd: warning: {message}", file=sys.stderr, flush=True)


def stderr(talk: Talk) -> Console:
    """Return the console for what is not the result."""
    return Console(stderr=True, quiet=talk.quiet, highlight=False)


class _Results(Console):
    """A console that says so when nobody reads it any more; rich's own would end the process with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console for results; what is not shown to a person is not wrapped."""
    console = _Results(highlight=False)
    return console if console.is_terminal else _Results(highlight=False, width=200)


def tell(talk: Talk, result: Mapping[str, Any], *tables: Table) -> None:
    """Print a result: as JSON, or its plain parts as a table of two columns and then other tables."""
    with naming("Standard output"):
        _print(talk, result, *tables)
        if sys.stdout is not None:
            sys.stdout.flush()


def _print(talk: Talk, result: Mapping[str, Any], *tables: Table) -> None:
    if talk.json:
        print(json.dumps({key: plain(value) for key, value in result.items()}, allow_nan=False))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in result.items():
        if isinstance(value, str | bool | int | float):
            table.add_row(key.replace("_", " "), shown(value))
    console = stdout()
    console.print(table)
    for each in tables:
        title, each.title = each.title, None  # its own would be as narrow as the table
        console.print()
        console.print(title, style="bold")
        console.print(each)


def columns(title: str, rows: Iterable[Iterable[Any]], *heads: str, left: int = 1) -> Table:
    """Return a table: text in the first columns to the left, numbers to the right; without heads one of text."""
    table = Table(title=title, box=None, pad_edge=False, show_header=bool(heads))
    for place, head in enumerate(heads or ("",)):
        table.add_column(head, justify="left" if place < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(shown(value) for value in row))
    return table


def shown(value: Any) -> str:
    """Return a value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: a number that is none becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not -float("inf") < value < float("inf") else value
