"""Running Vowpal Wabbit (the package vowpalwabbit) on text files inside this process."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


def available() -> bool:
    """Return whether the package is installed."""
    try:
        import vowpalwabbit  # noqa: F401
    except ImportError:
        return False
    return True


def lines(x: Any) -> list[str]:
    """Return the rows in Vowpal Wabbit's text format, without labels."""
    x = sp.csr_array(x)
    return [
        "| " + " ".join(f"{j}:{v:.9g}" for j, v in zip(x.indices[a:b].tolist(), x.data[a:b].tolist(), strict=True))
        for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)
    ]


def run(options: str, d: int, path: Path, *, predictions: Path | None = None) -> tuple[float, Any]:
    """Return the seconds of one pass over a file, and the predictions if a path for them is given."""
    from vowpalwabbit import Workspace

    bits = max(18, int(np.ceil(np.log2(d + 1))) + 1)
    where = f"-p {predictions}" if predictions is not None else ""
    start = time.perf_counter()
    Workspace(f"--quiet --no_stdin -b {bits} -d {path} {where} {options}").finish()
    took = time.perf_counter() - start
    if predictions is None:
        return took, None
    return took, np.array([float(line.split()[0]) for line in predictions.read_text().splitlines()])
