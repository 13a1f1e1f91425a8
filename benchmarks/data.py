"""Real data sets for the benchmarks, from the folder in ROBUSTFD_DATA."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from robustfd import datasets


def folder() -> Path | None:
    """Return the folder with the data sets, or None if it does not exist."""
    path = Path(os.environ.get("ROBUSTFD_DATA", "nowhere"))
    return path if path.is_dir() else None


@cache
def load(name: str) -> tuple[Any, Any]:
    """Return rows and labels: -1 and +1, or classes for mnist and news20. Rows of mnist are scaled to [0, 1]."""
    path = folder()
    if path is None:
        raise FileNotFoundError("Set ROBUSTFD_DATA to a folder with the data sets (see docs/datasets.md).")
    x, y = datasets.load(name, folder=path, download=False)
    return (x / 255.0 if name == "mnist" else x), y
