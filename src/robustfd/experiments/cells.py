"""What experiments are made of: cells, the independent jobs; the store of their results; tables and verdicts."""

import hashlib
import json
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib.metadata import version
from importlib.resources import files
from math import log10
from pathlib import Path
from typing import Any, Literal, TypeVar

import robustfd
from robustfd import _core
from robustfd.linalg.threads import THREADS, one_blas_thread

Result = dict[str, Any]
Row = dict[str, Any]
T = TypeVar("T")

# In addition to its settings, the result of a cell depends on these packages and modules, and on these libraries.
SOURCES = ("linalg", "sketch", "learners", "decisions")
OWN = ("protocol", "cost", "error", "regret", "rivals", "bandits")
PACKAGES = ("numpy", "scipy")
# Other rows of the same corpus, for a data set of the paper that is not at hand. Every table and figure says so.
STAND_INS = {"rcv1-subsets": "rcv1"}


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
    """Return a digest of the code that results depend on, with the compiled core."""
    root = files("robustfd")
    sources = [path for package in SOURCES for path in (root / package).iterdir() if path.name.endswith(".py")]
    sources += [root / "experiments" / f"{name}.py" for name in OWN]
    core = [
        path for folder in ("core", "bindings") for path in (Path(robustfd.__file__).parents[1] / folder).rglob("*.*pp")
    ]
    sources += core or [Path(_core.__file__)]  # in a checkout its sources, as a new build may have other bytes
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

    def seconds(self, cells: Iterable[Cell]) -> float:
        """Return the time that finished cells took, now or in earlier runs."""
        return sum(json.loads(self.path(cell).read_text("utf-8"))["seconds"] for cell in cells)

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


# ------------------------------------------------------------------ running


def run_cells(
    cells: Iterable[Cell], store: Store, run: Callable[[Cell], Result], *, jobs: int,
    on_end: Callable[[Cell, str], None],
) -> dict[Cell, Result]:  # fmt: skip
    """Return the result of each cell that succeeds. Cells in the store do not run again.

    `on_end` is called for each cell with "kept" (from the store), "done", or an error message. Cells run in `jobs`
    processes with one BLAS thread each. One job runs in this process, and 0 does so with the caller's threads.
    """
    results: dict[Cell, Result] = {}
    to_do: dict[Cell, None] = {}
    for cell in cells:
        if (stored := store.read(cell)) is None:
            to_do[cell] = None
        elif cell not in results:
            results[cell] = stored
            on_end(cell, "kept")
    # Longest first, so that no long cell runs alone at the end.
    ordered = sorted(to_do, key=lambda cell: -cell.effort)
    work = partial(_run_and_store, store=store, run=run)
    try:
        with one_blas_thread() if jobs == 1 else nullcontext():
            for cell, outcome in _in_processes(work, ordered, jobs) if jobs > 1 else map(work, ordered):
                to_do.pop(cell)
                if isinstance(outcome, str):
                    on_end(cell, outcome)
                else:
                    results[cell] = outcome
                    on_end(cell, "done")
    except BrokenExecutor as error:  # a process was killed, perhaps by the system for lack of memory
        for cell in to_do:
            on_end(cell, f"{type(error).__name__}: {error}")
    return results


def _in_processes(work: Callable[[Cell], T], cells: Iterable[Cell], jobs: int) -> Iterator[T]:
    """Yield the results of `work` for each cell, in the order in which they are complete."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)
    try:
        for done in as_completed([pool.submit(work, cell) for cell in cells]):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start_worker() -> None:
    """Give a worker one BLAS thread, and make it exit immediately on Ctrl-C and when its parent process ends."""
    os.environ.update(dict.fromkeys(THREADS, "1"))  # numpy, which reads them, is not imported yet
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def exit_with_parent() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def _run_and_store(cell: Cell, store: Store, run: Callable[[Cell], Result]) -> tuple[Cell, Result | str]:
    """Run a cell, store its result and return it, or return the message of its error."""
    start = time.perf_counter()
    try:
        result = run(cell)
        store.write(cell, result, time.perf_counter() - start)
        return cell, result
    except Exception as error:
        return cell, f"{type(error).__name__}: {error}"


# ------------------------------------------------------------------ findings


@dataclass(frozen=True)
class Verdict:
    """A claim and its outcome. "differs" means not as printed in the paper, with one reason per line."""

    status: Literal["holds", "differs", "fails"]
    claim: str
    found: str
    reason: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    opened: bool = False


def select(rows: Sequence[Row], /, **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def data_of(rows: Sequence[Row]) -> list[str]:
    """Return the distinct data set names of the rows, in order."""
    return list(dict.fromkeys(row["data"] for row in rows))


def shown(name: str) -> str:
    """Return the name of a data set for tables, figures and verdicts."""
    return f"{name}, a stand-in for {STAND_INS[name]}" if name in STAND_INS else name


def per_data_set(function: Callable[[str, list[Row]], list[T]]) -> Callable[[Sequence[Row]], list[T]]:
    """Return a function of the rows of all data sets, given one of a name and the rows of that data set."""

    @wraps(function)
    def of_all(found: Sequence[Row]) -> list[T]:
        return [each for name in data_of(found) for each in function(shown(name), select(found, data=name))]

    return of_all


def listed(words: Iterable[Any], most: int = 8) -> str:
    """Return words joined by commas. After `most` words, give only the number of the others."""
    shown = [str(word) for word in words]
    return ", ".join([*shown[:most], *([f"{len(shown) - most} more"] if len(shown) > most else [])])


def power(value: float) -> str:
    """Return a power of ten as text such as 10⁻³. 0, 1 and 10 stay plain numbers."""
    if value in (0.0, 1.0, 10.0):
        return f"{value:g}"
    return "10" + str(round(log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
