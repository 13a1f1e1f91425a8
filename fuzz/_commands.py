"""Running the command line in this process."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np


def run(*arguments: Any) -> tuple[int, str]:
    """Return the exit status and the output of a command."""
    from robustfd.cli import main

    output, before = io.StringIO(), sys.argv
    sys.argv = ["robustfd", *map(str, arguments)]
    try:
        with redirect_stdout(output), redirect_stderr(output):
            main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
    finally:
        sys.argv = before
    return status, output.getvalue()


def write_rows(path: Path, rng: np.random.Generator, n: int) -> None:
    """Write rows with labels as CSV or LIBSVM text, depending on the suffix."""
    x = rng.standard_normal((n, 4)).round(3)
    y = np.where(x[:, 0] + x[:, 1] > 0, 1, -1)
    y[:2] = 1, -1
    if path.suffix == ".csv":
        lines = ["a,b,c,d,y", *(",".join(map(str, [*row, label])) for row, label in zip(x, y))]
    else:
        lines = [" ".join([str(label), *(f"{j}:{v}" for j, v in enumerate(row, 1))]) for row, label in zip(x, y)]
    path.write_text("\n".join(lines) + "\n")
