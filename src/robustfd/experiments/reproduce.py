"""Plan and run all cells, and write tables, figures, verdicts and the report."""

import csv
import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from robustfd.experiments import bandits, figures, machine, rivals
from robustfd.experiments.cells import (
    PACKAGES,
    Cell,
    Result,
    Row,
    Store,
    Table,
    Verdict,
    code_digest,
    data_of,
    run_cells,
    select,
    shown,
)
from robustfd.experiments.protocol import ORDERS, SEEDS, Data, describe

PAPER = ("error", "sensitivity", "online", "accuracy", "cost", "regret")
ON_DATA = (*PAPER, "rivals")
EXPERIMENTS = (*ON_DATA, "bandits")
MODULES = {
    "pass": "protocol", "error": "error", "cost": "cost", "regret": "regret", "rivals": "rivals", "bandits": "bandits"
}  # of each kind of cells  # fmt: skip
MARKS = {"holds": ("✓", "holds"), "differs": ("≠", "differs, with a reason"), "fails": ("✗", "does not hold")}


@dataclass(frozen=True)
class Section:
    """The results of one experiment."""

    name: str
    title: str
    claim: str
    rows: list[Row]
    verdicts: list[Verdict]
    figures: list[figures.Figure]
    tables: list[Table]


@dataclass
class Outcome:
    """The outcome of a run: the path of the report, the verdicts, and the cells that failed."""

    report: Path
    verdicts: list[Verdict]
    failed: list[str]
    seconds: float
    cells: int
    kept: int


@dataclass
class ProgressListener:
    """Callbacks for the progress of a run. The defaults do nothing."""

    on_plan: Callable[[Sequence[Cell]], None] = lambda cells: None
    on_end: Callable[[Cell, str], None] = lambda cell, how: None
    on_message: Callable[[str], None] = lambda message: None


def run_cell(cell: Cell) -> Result:
    """Run a cell of any kind and return its result."""
    return import_module(f"robustfd.experiments.{MODULES[cell.kind]}").run(cell)


def reproduce(
    experiments: Sequence[str], data: Sequence[str], out: Path, *, quick: bool, jobs: int, listener: ProgressListener
) -> Outcome:
    """Run `experiments` on data sets and write all results to a folder. Continue where an earlier run stopped.

    `out` gets report.html, results.json, one CSV file per experiment, figures/ and cells/. `quick` means fewer sizes,
    orders and seeds. `jobs` is the number of processes, each with one BLAS thread; 0 and 1 run all cells in this one.
    """
    began, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    modules = {name: import_module(f"robustfd.experiments.{name}") for name in EXPERIMENTS if name in experiments}
    described = []
    for name in dict.fromkeys(data if set(ON_DATA) & set(experiments) else ()):
        listener.on_message(f"reading {name}")
        described.append(describe(name))
    digests = {each.name: each.digest for each in described} | dict.fromkeys(bandits.CASES, "generated")
    store = Store(Path(out) / "cells", digests)
    planned = {
        name: list(dict.fromkeys(cell for each in described for cell in module.cells(each, quick=quick)))
        for name, module in modules.items() if name in ON_DATA
    }  # fmt: skip
    if "bandits" in modules:
        planned["bandits"] = bandits.cells(quick=quick)
    every = list(dict.fromkeys(cell for cells in planned.values() for cell in cells))
    listener.on_plan(every)
    ends: dict[Cell, str] = {}

    def ended(cell: Cell, how: str) -> None:
        ends[cell] = how
        listener.on_end(cell, how)

    results: dict[Cell, Result] = {}
    for timed in (False, True):  # cells that measure time run alone: others would compete for memory bandwidth
        chosen = [cell for cell in every if (cell.kind == "cost") == timed]
        results |= run_cells(chosen, store, run_cell, jobs=min(jobs, 1) if timed else jobs, on_end=ended)
    failed = [f"{cell.kind} {cell.label}: {how}" for cell, how in ends.items() if how not in ("kept", "done")]
    listener.on_message("drawing figures")
    sections = []
    for name, module in modules.items():
        rows = module.table({cell: results[cell] for cell in planned[name] if cell in results})
        parts = [make(rows) if rows else [] for make in (module.verdicts, module.figures, module.display)]
        sections.append(Section(name, module.TITLE, module.CLAIM, rows, *parts))
    about = _about(described, quick=quick, jobs=jobs, began=began, seconds=store.seconds(results))
    report = _write(Path(out), sections, about, failed)
    verdicts = [verdict for section in sections for verdict in section.verdicts]
    kept = list(ends.values()).count("kept")
    return Outcome(report, verdicts, failed, time.perf_counter() - clock, len(every), kept)


def _about(data: Sequence[Data], *, quick: bool, jobs: int, began: datetime.datetime, seconds: float) -> dict[str, Any]:
    """Return a description of the run: machine, versions, code, seeds and data."""
    return {
        "machine": machine.about(*PACKAGES) | {"code": code_digest()},
        "seeds": {
            "RP and Oja in the order of the file": list(range(SEEDS)), "random orders": list(range(ORDERS)),
            "what they seed": "numpy.random.default_rng(seed)",
        },
        "data": [
            {"name": shown(each.name), "rows": each.n_rows, "features": each.n_features, "digest": each.digest,
             "the paper's": each.is_papers}
            for each in data
        ],
        "quick": quick, "jobs": jobs, "began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 1),
    }  # fmt: skip


def _write(out: Path, sections: Sequence[Section], about: dict[str, Any], failed: Sequence[str]) -> Path:
    """Write CSV files, results.json, figures and the report. Return the path of the report."""
    for section in sections:
        if section.rows:
            with open(out / f"{section.name}.csv", "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, section.rows[0].keys())
                writer.writeheader()
                writer.writerows(section.rows)
        for figure in section.figures:
            figures.save(figure, out / "figures")
    found = {
        section.name: {"verdicts": [asdict(verdict) for verdict in section.verdicts], "rows": section.rows}
        for section in sections
    }
    content = {"about": about, "failed": list(failed), "experiments": found}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (out / "results.json").write_text(text + "\n", "utf-8")
    summary = {"rows": summarise(sections), "machine": about["machine"]}
    (out / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (out / "claims.md").write_text(claims(sections), "utf-8")
    draft = out / ".report.html"
    draft.write_text(page(sections, about, failed), "utf-8")
    return draft.replace(out / "report.html")


def summarise(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Return numbers that pages quote: claims and cells of Table 2 by outcome, errors of newer methods, regrets."""
    claims = Counter(verdict.status for section in sections for verdict in section.verdicts)
    counts: dict[str, float] = {
        "claims": claims.total(),
        "claims that hold": claims["holds"],
        "claims that differ": claims["differs"],
        "claims that fail": claims["fails"],
    }
    table = [row for section in sections if section.name == "accuracy" for row in section.rows]
    found = Counter(row["verdict"] for row in table if row["paper"] is not None)
    counts |= {"cells": found.total(), "cells that are equal": found["equal"]}
    counts["cells within a point or better"] = found["equal"] + found["near"] + found["better"]
    own = select(table, method="rfd0")
    counts |= {f"{row['data']}: accuracy of RFD0-SON, m = {row['m']}": row["ours"] for row in own if row["ours"]}
    tuned = [row for section in sections if section.name == "rivals" for row in section.rows]
    for data in data_of(tuned):
        counts |= {f"{data}: {row['method']}": row["error"] for row in rivals.best(select(tuned, data=data))}
    counts |= bandits.summary([row for section in sections if section.name == "bandits" for row in section.rows])
    return [{"what": what, "value": value} for what, value in counts.items()]


def claims(sections: Sequence[Section]) -> str:
    """Return two tables for pages of the site: the outcome of each claim by data set, and those that do not hold."""
    grid: dict[str, dict[str, Verdict]] = {}
    for verdict in (each for section in sections for each in section.verdicts):
        name, claim = verdict.claim.split(": ", 1)  # claims begin with their data set
        grid.setdefault(claim, {})[name] = verdict
    names = list(dict.fromkeys(name for found in grid.values() for name in found))
    shown = {name: f"{mark}\N{NO-BREAK SPACE}{name}" for name, (mark, _) in MARKS.items()}
    outcomes = [
        [claim, *(shown[found[name].status] if name in found else "" for name in names)]
        for claim, found in grid.items()
    ]
    others = [
        [f"{name}: {claim}", f"{each.found}. {' '.join(each.reason.split())}", each.status]
        for claim, found in grid.items() for name, each in found.items() if each.status != "holds"
    ]  # fmt: skip
    return _markdown(["claim", *names], outcomes) + "\n" + _markdown(["what differs or fails", "here", ""], others)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "".join(f"| {line} |\n" for line in (" | ".join(header), " | ".join(["---"] * len(header)), *lines))


def page(sections: Sequence[Section], about: dict[str, Any], failed: Sequence[str]) -> str:
    """Return the report: one self-contained HTML page with a light and a dark theme."""
    from jinja2 import Environment

    template = (files(__package__) / "report.html").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True).from_string(template).render(
        sections=sections, about=about, failed=failed, colours=figures.COLOURS, marks=MARKS, key=figures.key,
        counts=Counter(verdict.status for section in sections for verdict in section.verdicts),
        panels=lambda figure: zip([title for title, _ in figure.panels], figures.inline(figure)),
    )  # fmt: skip
