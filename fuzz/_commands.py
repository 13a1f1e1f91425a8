"""The command line in this process, for targets that use it."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np


def run(*arguments: Any) -> tuple[int, str]:
    """Return the exit status of a command, and what it said."""
    from robustfd.cli import main

    said, before = io.StringIO(), sys.argv
    sys.argv = ["robustfd", *map(str, arguments)]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    finally:
        sys.argv = before
    return status, said.getvalue()


def write_rows(path: Path, rng: np.random.Generator, n: int) -> None:
    """Write rows with labels as CSV or LIBSVM text, by the end of the name."""
    x = rng.standard_normal((n, 4)).round(3)
    y = np.where(x[:, 0] + x[:, 1] > 0, 1, -1)
    y[:2] = 1, -1
    if path.suffix == ".csv":
        lines = ["a,b,c,d,y", *(",".join(map(str, [*row, label])) for row, label in zip(x, y))]
    else:
        lines = [" ".join([str(label), *(f"{j}:{v}" for j, v in enumerate(row, 1))]) for row, label in zip(x, y)]
    path.write_text("\n".join(lines) + "\n")
