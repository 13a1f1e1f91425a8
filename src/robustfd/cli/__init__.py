"""The command line `robustfd`. Needs the extra `cli`."""

import os
import sys
from typing import NoReturn

__all__ = ["main", "script"]

# Commands by panel of the help, in order, and their modules.
COMMANDS = {
    "Sketches": {
        "sketch": "sketch", "merge": "saved", "info": "saved", "export": "saved", "pca": "analyses",
        "ridge": "analyses", "outliers": "analyses",
    },
    "Learning": {
        "train": "train", "predict": "predict", "evaluate": "predict", "inspect": "predict", "compare": "compare",
    },
    "Paper": {"reproduce": "reproduce"},
}  # fmt: skip
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
        import click  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        sys.exit(f"robustfd: {error.name} is missing. The command needs an extra: pip install 'robustfd[cli]'")
    from robustfd.cli._command import Commands

    try:
        Commands(COMMANDS).main(prog_name="robustfd")
    except OSError as error:  # from printing the help or the version; commands handle their own errors
        print(f"robustfd: Standard output could not be written: {error.strerror}.", file=sys.stderr)
        sys.exit(1)
