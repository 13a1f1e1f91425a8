"""Errors and signals as one line on standard error and an exit status."""

import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from types import FrameType
from typing import Any

FAILED, WRONG_USAGE = 1, 2


class Stopped(BaseException):
    """A signal ended the command, after the command saved its state."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum


@contextmanager
def exit_on_error(*, verbose: bool) -> Iterator[None]:
    """End the process with a one-line message and an exit status if the body raises."""
    with redirect_stderr(_BestEffortStream(sys.stderr)):
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            with _exit_status(verbose):
                yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped(signum, "stopped.")


class _BestEffortStream:
    """Standard error, where a failed write is ignored: a full or closed stream must not end the command."""

    def __init__(self, file: Any):
        self._file = file

    def write(self, text: str) -> int:
        """Write if possible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        if self._file is not None:
            with suppress(OSError):
                self._file.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._file is not None and self._file.isatty()

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


@contextmanager
def _exit_status(verbose: bool) -> Iterator[None]:
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
        from robustfd._container import SnapshotError
        from robustfd.streams import StreamError

        if verbose:
            traceback.print_exc()
        if isinstance(error, StreamError | SnapshotError | OSError | MemoryError | ArithmeticError | ImportError):
            _fail(_message(error), FAILED)
        elif isinstance(error, ValueError | TypeError):
            _fail(_message(error), WRONG_USAGE)
        else:
            raise


def _fail(message: str, status: int) -> None:
    print(f"robustfd: {message}", file=sys.stderr)
    sys.exit(status)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return as_options(str(error)) or type(error).__name__


_ARGUMENT = re.compile(
    r"\b(target|weight|id|columns|drop|categories|hash_bits|n_features|zero_based|header|delimiter|missing|"
    r"interactions|on_error|sketch_size|loss|quantile)"
    r"(?:=(\[[^]\n]*\]|'[^'\n]*'|[^\s,;:.()]*)|(?= must be ))"
)
_SWITCHES = {"header": ("--header", "--no-header"), "zero_based": ("--zero-based", "--one-based")}


def as_options(message: str) -> str:
    """Return a message of the library with its arguments as options: missing='zero' becomes --missing zero."""

    def option(found: re.Match[str]) -> str:
        name = {"n_features": "features"}.get(found[1], found[1]).replace("_", "-")
        if found[2] in ("True", "False") and found[1] in _SWITCHES:
            return _SWITCHES[found[1]][found[2] == "False"]
        value = ",".join(part.strip("' ") for part in (found[2] or "").strip("[]").split(","))
        return f"--{name} {value}".rstrip()

    return _ARGUMENT.sub(option, message)
