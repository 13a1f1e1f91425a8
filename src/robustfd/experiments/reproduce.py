"""All together: cells planned, run, made into tables, figures and verdicts, and written as a report."""

import csv
import datetime
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from robustfd.experiments import _figures, _report
from robustfd.experiments._cells import Cell, Result, Store, versions
from robustfd.experiments._data import Data, describe
from robustfd.experiments._findings import Verdict
from robustfd.experiments._methods import ORDERS, SEEDS
from robustfd.experiments._pool import run_cells

EXPERIMENTS = ("error", "sensitivity", "online", "accuracy", "cost", "regret")
HOMES = {"pass": "_methods", "error": "error", "cost": "cost", "regret": "regret"}


@dataclass
class Outcome:
    """What came of a run: where the report is, what was found, and which cells failed."""

    report: Path
    verdicts: list[Verdict]
    failed: list[str]
    seconds: float
    cells: int
    kept: int


@dataclass
class Watch:
    """Someone who wants to know how far it is; does nothing by itself."""

    plan: Callable[[Sequence[Cell]], None] = lambda cells: None
    ended: Callable[[Cell, str], None] = lambda cell, how: None
    says: Callable[[str], None] = lambda message: None
    failed: list[str] = field(default_factory=list)


def run_cell(cell: Cell) -> Result:
    """Return the result of any cell."""
    home = import_module(f"robustfd.experiments.{HOMES[cell.kind]}")
    result: Result = home.run(cell)
    return result


def reproduce(
    experiments: Sequence[str],
    data: Sequence[str],
    out: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    watch: Watch | None = None,
) -> Outcome:
    """Run experiments on data sets, continue where an earlier run stopped, and write all results into a folder.

    Parameters
    ----------
    experiments : names from `EXPERIMENTS`
    data : names of data sets
    out : folder for report.html, results.json, a CSV file for each experiment, figures/ and cells/
    quick : whether to take fewer sizes, orders and seeds
    jobs : processes at a time, each with one BLAS thread; 0 is this process
    watch : is told how far it is
    """
    watch = watch or Watch()
    began, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    modules = {name: import_module(f"robustfd.experiments.{name}") for name in EXPERIMENTS if name in experiments}
    described = []
    for name in dict.fromkeys(data):
        watch.says(f"reading {name}")
        described.append(describe(name))
    store = Store(Path(out) / "cells", {each.name: each.digest for each in described})
    planned = {
        name: [cell for each in described for cell in module.cells(each, quick=quick)]
        for name, module in modules.items()
    }
    results, kept = _run(planned, modules, store, jobs, watch)
    watch.says("drawing figures")
    sections = []
    for name, module in modules.items():
        own = {cell: results[cell] for cell in dict.fromkeys(planned[name]) if cell in results}
        rows = module.table(own)
        sections.append(_report.Section(
            name, module.TITLE, module.CLAIM, rows, module.verdicts(rows) if rows else [],
            module.figures(rows) if rows else [], module.display(rows) if rows else [],
        ))  # fmt: skip
    about = _about(described, quick=quick, jobs=jobs, began=began, seconds=time.perf_counter() - clock)
    report = _write(Path(out), sections, about, watch.failed)
    total = len({cell for cells in planned.values() for cell in cells})
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    return Outcome(report, verdicts, watch.failed, time.perf_counter() - clock, total, kept)


def _run(
    planned: dict[str, list[Cell]], modules: dict[str, Any], store: Store, jobs: int, watch: Watch
) -> tuple[dict[Cell, Result], int]:
    """Return all results, those that are to be measured alone after the others, and how many were kept from before."""
    alone = {cell for name, cells in planned.items() if getattr(modules[name], "ALONE", False) for cell in cells}
    every = list(dict.fromkeys(cell for cells in planned.values() for cell in cells))
    watch.plan(every)
    kept = 0

    def ended(cell: Cell, how: str) -> None:
        nonlocal kept
        kept += how == "kept"
        if how not in ("kept", "done"):
            watch.failed.append(f"{cell.kind} {cell.label}: {how}")
        watch.ended(cell, how)

    results = run_cells([cell for cell in every if cell not in alone], store, run_cell, jobs=jobs, watch=ended)
    rest = [cell for cell in every if cell in alone]
    results |= run_cells(rest, store, run_cell, jobs=min(jobs, 1), watch=ended)
    return results, kept


def _about(data: Sequence[Data], *, quick: bool, jobs: int, began: datetime.datetime, seconds: float) -> dict[str, Any]:
    """Return what the results were made with."""
    return {
        "versions": {"python": platform.python_version(), **versions()},
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "seeds": {
            "RP and Oja in the order of the file": list(range(SEEDS)), "random orders": list(range(ORDERS)),
            "what they seed": "numpy.random.default_rng(seed)",
        },
        "data": [
            {"name": each.name, "rows": each.n_rows, "features": each.n_features, "digest": each.digest,
             "the paper's": each.is_papers}
            for each in data
        ],
        "quick": quick, "jobs": jobs, "began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 1),
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _write(out: Path, sections: Sequence[_report.Section], about: dict[str, Any], failed: Sequence[str]) -> Path:
    """Write CSV files, results.json, figures and the report; return the report's path."""
    for section in sections:
        if section.rows:
            with open(out / f"{section.name}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, section.rows[0].keys())
                writer.writeheader()
                writer.writerows(section.rows)
        for figure in section.figures:
            _figures.save(figure, out / "figures")
    content = {
        "about": about,
        "failed": list(failed),
        "experiments": {
            section.name: {"verdicts": [asdict(verdict) for verdict in section.verdicts], "rows": section.rows}
            for section in sections
        },
    }
    (out / "results.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8"
    )
    report = out / "report.html"
    draft = out / ".report.html"
    draft.write_text(_report.page(sections, about, failed), "utf-8")
    os.replace(draft, report)
    return report
