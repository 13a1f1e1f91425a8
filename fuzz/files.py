"""Damaged and invalid files, including snapshots with a correct checksum and invalid content.

The promise: any file is either read, or rejected with `SnapshotError`, `StreamError` or an `OSError` of the system,
with little memory and time. Add files that exposed a bug to tests/data/fuzz.
"""

import resource
import sys
from pathlib import Path

import numpy as np

from tests.fuzzing import judge, make_case, warm_up

MEMORY = 1 << 30  # bytes that reading a file may take in addition to the initial size of the process
SECONDS = 10.0  # CPU time
__all__ = ["SECONDS", "case", "prepare"]


def prepare(folder: Path) -> None:
    """Import everything."""
    warm_up(folder)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Read one file."""
    one, before = make_case(int(rng.integers(1 << 31)), int(rng.integers(1 << 31))), _peak()
    (folder / "about.txt").write_text(f"{one.reader} {one.name} {one.options}\n")
    (folder / "data").write_bytes(one.data)
    outcome = judge(one, folder)
    assert _peak() - before <= MEMORY, f"It took {(_peak() - before) / 1e9:.1f} GB."
    return f"{one.reader} {outcome}"


def _peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
