"""The command line `robustfd`. Needs the extra `cli`."""

import gc
import os
import sys
from itertools import pairwise
from typing import NoReturn

__all__ = ["main", "script"]

# Commands by panel of the help, in order: their modules, and the first paragraphs of their own help.
COMMANDS = {
    "Sketches": {
        "sketch": ("sketch", "Sketch the rows A of FILES in one pass and constant memory: A'A ~ B'B + alpha I, with a "
                   "certified error."),
        "merge": ("saved", "Merge sketches or models of parts of the rows into one of all rows. Certified errors of "
                  "sketches add up."),
        "info": ("saved", "Describe FILE: rows, features, alpha, certified error and spectrum of a sketch. See inspect "
                 "for models."),
        "export": ("saved", "Write the arrays in FILE: B, alpha, singular values and mean, or weights, intercept and "
                   "classes."),
        "pca": ("analyses", "Project the rows of FILES onto the first k principal components of SKETCH, and write the "
                "k scores of each row."),
        "ridge": ("analyses", "Write the weights of a ridge regression on the labels of FILES, from one pass in "
                  "constant memory."),
        "outliers": ("analyses", "Write the squared Mahalanobis distance of each row of FILES, and whether the row is "
                     "an outlier."),
    },
    "Learning": {
        "train": ("train", "Train a linear classifier or regression on FILES in one pass, without tuning."),
        "predict": ("predict", "Predict the label of each row of FILES with MODEL. Labels in FILES are ignored."),
        "evaluate": ("predict", "Score MODEL on the labelled rows of FILES."),
        "inspect": ("predict", "Show the most important features of MODEL, its progressive errors, and the spectrum of "
                    "its sketch."),
        "bandit": ("bandit", "Contextual bandits: train a policy on a log of decisions, choose arms, evaluate policies "
                   "on logs."),
        "compare": ("compare", "Compare learners that need no tuning with tuned ones on FILES, in one pass: do I need "
                    "tuning on my data?"),
    },
    "Paper": {
        "reproduce": ("reproduce", "Reproduce the tables and figures of Luo et al. 2019, and report which of their "
                      "claims hold."),
    },
}  # fmt: skip
_WITHOUT_SCIKIT_LEARN = ("train", "bandit", "predict", "evaluate", "inspect", "merge", "info", "export", "sketch")
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def script() -> NoReturn:
    """Run the command line as a process, and exit without Python's usual cleanup.

    All output is written by then, and a thread that waits for standard input would block the cleanup.
    """
    gc.disable()  # modules are no garbage; the command starts with it again
    if sys.argv[1:2] in (["train"], ["bandit"]) and not any(name in os.environ for name in _THREADS):
        # A learner's matrices are small: BLAS threads would wait for each other and for the thread that reads.
        os.environ.update(dict.fromkeys(_THREADS, "1"))
    if sys.argv[1:2] == ["train"]:
        from robustfd.streams.scan import start

        # While everything else is imported. What follows an option is probably its value.
        names = (name for before, name in pairwise(sys.argv[1:]) if "-" not in (before[:1], name[:1]))
        start(next(names, ""))
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
        except OSError:  # messages are not the result
            status = status or int(stream is sys.stdout)
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
