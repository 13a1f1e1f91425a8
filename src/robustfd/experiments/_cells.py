"""Cells, the independent jobs of the experiments, and the folder that stores their results."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import robustfd

Result = dict[str, Any]

# In addition to its settings, the result of a cell depends on these packages and modules, and on these libraries.
SOURCES = ("linalg", "sketch", "learners")
OWN = ("_data", "_hindsight", "_methods", "cost", "error", "regret")
PACKAGES = ("numpy", "scipy")


@dataclass(frozen=True)
class Cell:
    """One job. `kind` selects the function that runs it, and `effort` estimates its run time in any unit."""

    kind: str
    data: str
    settings: tuple[tuple[str, Any], ...]
    effort: float = field(default=1.0, compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    @property
    def label(self) -> str:
        """The data set and the settings as one readable word."""
        words = (str(value) for _, value in self.settings if value is not None)
        return re.sub(r"[^\w.+-]", "_", "-".join((self.data, *words)))


def cell(kind: str, data: str, *, effort: float, **settings: Any) -> Cell:
    """Return a cell with the settings as a tuple."""
    return Cell(kind, data, tuple(settings.items()), effort)


def code_digest() -> str:
    """Return a digest of the code that results depend on."""
    root = files("robustfd")
    sources = [path for package in SOURCES for path in (root / package).iterdir() if path.name.endswith(".py")]
    sources += [root / "experiments" / f"{name}.py" for name in OWN]
    h = hashlib.sha256()
    for path in sorted(sources, key=str):
        h.update(path.read_bytes())
    return h.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of this library and of the numerical libraries it uses."""
    return {"robustfd": robustfd.__version__, **{name: version(name) for name in PACKAGES}}


class Store:
    """A folder with one small file per finished cell. The file name depends on everything that affects the result."""

    def __init__(self, folder: Path, data: Mapping[str, str]):
        self.folder = folder
        self.data = dict(data)  # name of a data set -> digest of its rows
        self.context = {**versions(), "code": code_digest()}

    def key(self, cell: Cell) -> dict[str, Any]:
        """Return everything that affects the result of a cell."""
        return {
            "kind": cell.kind, "data": cell.data, "rows": self.data[cell.data], **self.context,
            "settings": dict(cell.settings),
        }  # fmt: skip

    def path(self, cell: Cell) -> Path:
        """Return the file for the result of a cell."""
        return self.folder / cell.kind / f"{cell.label}-{_checksum(self.key(cell))}.json"

    def read(self, cell: Cell) -> Result | None:
        """Return the result of a cell, or None if it is missing, damaged, or belongs to another cell."""
        try:
            content = json.loads(self.path(cell).read_text("utf-8"))
            right = content["key"] == self.key(cell) and content["checksum"] == _checksum(content["result"])
            return content["result"] if right else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cell: Cell, result: Result, seconds: float) -> None:
        """Store a result and its run time. The file is written atomically."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        content = {"key": self.key(cell), "checksum": _checksum(result), "result": result, "seconds": seconds}
        draft.write_text(json.dumps(content, allow_nan=False), "utf-8")
        os.replace(draft, path)


def _checksum(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
