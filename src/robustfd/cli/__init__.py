"""The command line `robustfd`, one module per command. Needs the extra `cli`."""

import os
import sys
from importlib import import_module
from typing import Annotated, NoReturn

__all__ = ["main", "script"]

# Commands by panel of the help, in order.
_COMMANDS = {
    "Sketches": ("sketch", "merge", "info", "export", "pca", "ridge", "outliers"),
    "Learning": ("train", "predict", "evaluate", "inspect", "compare"),
    "Paper": ("reproduce",),
}
_WITHOUT_SCIKIT_LEARN = ("train", "predict", "evaluate", "inspect", "merge", "info", "export", "sketch")
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def script() -> NoReturn:
    """Run the command line as a process, and exit without Python's usual cleanup.

    All output is written by then, and a thread that waits for standard input would block the cleanup.
    """
    if sys.argv[1:2] == ["train"] and not any(name in os.environ for name in _THREADS):
        # A learner's matrices are small: BLAS threads would wait for each other and for the thread that reads.
        os.environ.update(dict.fromkeys(_THREADS, "1"))
    if sys.argv[1:2] and sys.argv[1] in _WITHOUT_SCIKIT_LEARN:
        from robustfd._sklearn import do_without

        do_without()
    try:
        main()
        status = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            status = status or 1
    os._exit(status)


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        sys.exit(f"robustfd: {error.name} is missing. The command needs an extra: pip install 'robustfd[cli]'")
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    about.__annotations__["version"] = Annotated[bool, typer.Option("--version", help="Print the version.")]
    app.callback(epilog=EPILOG, invoke_without_command=True)(about)
    wanted = {name for names in _COMMANDS.values() for name in names} & set(sys.argv[1:2])
    for panel, names in _COMMANDS.items():
        for name in wanted.intersection(names) if wanted else names:  # without importing the other commands
            module = name.replace("-", "_")
            app.command(name, rich_help_panel=panel)(getattr(import_module(f"robustfd.cli.{module}"), module))
    try:
        app()
    except OSError as error:  # from printing the help or the version; commands handle their own errors
        print(f"robustfd: Standard output could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(1)


EPILOG = (
    "Results go to standard output, everything else to standard error. Exit status: 0 success; 1 failure (data that "
    "cannot be read, a full disk, a damaged file); 2 wrong usage; 130 or 143 stopped by a signal, after saving the "
    "checkpoint."
)


def about(version: bool = False) -> None:
    """Streaming matrix sketches that certify their own error, and online learning without tuning."""
    if version:
        from robustfd import __version__

        print(__version__)
