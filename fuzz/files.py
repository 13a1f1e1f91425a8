"""Damaged and made-up files, and snapshots whose checksum is right and whose content is not.

The promise: whatever is in a file, it is read, or refused with `SnapshotError`, `StreamError` or the system's
`OSError`, in little memory and time. What was found goes, once it is mended, to tests/data/fuzz.
"""

import resource
import sys
from pathlib import Path

import numpy as np

from tests.fuzzing import judge, make_case, warm_up

MEMORY = 1 << 30  # bytes that a file may take, above those that the process has at first
SECONDS = 10.0  # of computing
__all__ = ["SECONDS", "case", "prepare"]


def prepare(folder: Path) -> None:
    """Import and compile everything."""
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
    """Return the most bytes that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
