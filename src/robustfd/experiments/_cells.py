"""Cells, the independent jobs that experiments are made of, and the folder that keeps their results."""

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

# What decides the result of a cell beside its settings: these rooms and files of the library, and these packages.
SOURCES = ("linalg", "sketch", "online")
OWN = ("_data", "_hindsight", "_methods", "cost", "error", "regret")
PACKAGES = ("numpy", "scipy", "numba")


@dataclass(frozen=True)
class Cell:
    """One job. `kind` says which function runs it, `effort` about how long that takes, in any unit."""

    kind: str
    data: str
    settings: tuple[tuple[str, Any], ...]
    effort: float = field(default=1.0, compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    @property
    def label(self) -> str:
        """Kind, data and settings as one word, for people."""
        words = (str(value) for _, value in self.settings if value is not None)
        return re.sub(r"[^\w.+-]", "_", "-".join((self.data, *words)))


def cell(kind: str, data: str, *, effort: float, **settings: Any) -> Cell:
    """Return a cell."""
    return Cell(kind, data, tuple(settings.items()), effort)


def code_digest() -> str:
    """Return what identifies the code that results depend on."""
    root = files("robustfd")
    sources = [path for room in SOURCES for path in (root / room).iterdir() if path.name.endswith(".py")]
    sources += [root / "experiments" / f"{name}.py" for name in OWN]
    h = hashlib.sha256()
    for path in sorted(sources, key=str):
        h.update(path.read_bytes())
    return h.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of this library and of those that its numbers come from."""
    return {"robustfd": robustfd.__version__, **{name: version(name) for name in PACKAGES}}


class Store:
    """A folder with one small file for each finished cell, under a name made of all that decides its result."""

    def __init__(self, folder: Path, data: Mapping[str, str]):
        self.folder = folder
        self.data = dict(data)  # name of a data set -> digest of its rows
        self.context = {**versions(), "code": code_digest()}

    def key(self, cell: Cell) -> dict[str, Any]:
        """Return all that decides the result of a cell."""
        return {
            "kind": cell.kind, "data": cell.data, "rows": self.data[cell.data], **self.context,
            "settings": dict(cell.settings),
        }  # fmt: skip

    def path(self, cell: Cell) -> Path:
        """Return where the result of a cell is kept."""
        return self.folder / cell.kind / f"{cell.label}-{_checksum(self.key(cell))}.json"

    def read(self, cell: Cell) -> Result | None:
        """Return the result of a cell; None if it is not there, damaged, or that of another cell."""
        try:
            content = json.loads(self.path(cell).read_text("utf-8"))
            right = content["key"] == self.key(cell) and content["checksum"] == _checksum(content["result"])
            return content["result"] if right else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cell: Cell, result: Result, seconds: float) -> None:
        """Keep a result and how long it took; whoever looks sees all of it or nothing."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        content = {"key": self.key(cell), "checksum": _checksum(result), "result": result, "seconds": seconds}
        draft.write_text(json.dumps(content, allow_nan=False), "utf-8")
        os.replace(draft, path)


def _checksum(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
