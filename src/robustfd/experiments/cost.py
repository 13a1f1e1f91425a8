"""Table 3: time per row, relative to ADAGRAD in the same run."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from robustfd.experiments import paper
from robustfd.experiments._cells import Cell, Result, cell
from robustfd.experiments._data import Data, split
from robustfd.experiments._figures import Figure, Panel, Style, numbers
from robustfd.experiments._findings import Row, Table, Verdict, data_of, listed, select
from robustfd.experiments._methods import FULL_FEATURES, NAMES, UNSKETCHED, learner, passes
from robustfd.experiments.colours import COLOURS

TITLE = "Cost of a row"
CLAIM = "RFD-SON costs as much as FD-SON, O(md) per row, a few times ADAGRAD's O(d) (Table 3)."
ALPHA0 = {"adagrad": 1e5, "rfd": 1e2, "rfd0": 0.0}  # near the best, 1e3 for others; the time does not depend on it
ALONE = True  # run one cell at a time, as another one would compete for memory bandwidth

# ------------------------------------------------------------------ cells


def cells(data: Data, *, quick: bool) -> list[Cell]:
    """Return a cell for each method and m, except for ADAGRAD, which is timed together with each of them."""
    if not data.two_classes:
        return []
    out = []
    for method in NAMES:
        if method == "adagrad" or (method == "full" and data.n_features > FULL_FEATURES):
            continue
        effort = passes(data, (method,), order=None)[0].effort
        for m in (None,) if method in UNSKETCHED else data.sizes:
            repeats = 2 if quick else 5
            out.append(cell("cost", data.name, effort=repeats * effort, method=method, m=m, repeats=repeats))
    return out


# ------------------------------------------------------------------ run


def run(cell: Cell) -> Result:
    """Return the best times of a pass of a method and of ADAGRAD, measured alternately."""
    x, y, _, _ = split(cell.data, None)
    method, m = cell["method"], cell["m"]
    best = {method: float("inf"), "adagrad": float("inf")}
    for name in best:  # imports before timing
        learner(name, m, ALPHA0.get(name, 1e3), 0).learn(x[:200], y[:200])
    for _ in range(cell["repeats"]):
        for name in best:
            model = learner(name, m, ALPHA0.get(name, 1e3), 0)
            start = time.perf_counter()
            model.learn(x, y)
            best[name] = min(best[name], time.perf_counter() - start)
    return {"seconds": best[method], "adagrad_seconds": best["adagrad"], "rows": len(y)}


# ------------------------------------------------------------------ table


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each method and m: microseconds per row and ratio to ADAGRAD, in the paper and here."""
    out = []
    for c, r in results.items():
        if c.kind != "cost":
            continue
        sizes = sorted({k["m"] for k in results if k.kind == "cost" and k.data == c.data and k["m"] is not None})
        place = 0 if c["m"] is None else sizes.index(c["m"])
        printed, base = (
            paper.printed("seconds", c.data, method, p) for method, p in ((c["method"], place), ("adagrad", 0))
        )
        out.append({
            "data": c.data, "method": c["method"], "m": c["m"],
            "paper_microseconds": None if printed is None else 1e6 * printed,
            "paper_ratio": None if printed is None or base is None else printed / base,
            "microseconds": 1e6 * r["seconds"] / r["rows"],
            "adagrad_microseconds": 1e6 * r["adagrad_seconds"] / r["rows"],
            "ratio": r["seconds"] / r["adagrad_seconds"],
        })  # fmt: skip
    order = {method: place for place, method in enumerate(NAMES)}
    return sorted(out, key=lambda row: (row["data"], order[row["method"]], row["m"] or 0))


# ------------------------------------------------------------------ figures

OURS = Style("ours", "rfd", "o", dash="")
PRINTED = Style("the paper", "ink", "D", dash="")


def figures(found: Sequence[Row]) -> list[Figure]:
    """Return a panel for each data set: time per row as a multiple of ADAGRAD's."""
    panels = [Panel(name, partial(_draw, select(found, data=name))) for name in data_of(found)]
    caption = (
        "Time per row as a multiple of ADAGRAD's in the same run. Here, ADAGRAD is compiled and touches only the "
        "non-zeros of a row; in the paper it was Matlab. The ratios depend more on ADAGRAD than on the sketches."
    )
    return [Figure("cost", "Table 3: cost of a row", caption, panels, [PRINTED, OURS], height=4.2, left=1.02)]


def _draw(rows: Sequence[Row], ax: Any) -> None:
    for place, row in enumerate(rows):
        if row["paper_ratio"] is not None:
            ax.plot(row["paper_ratio"], place, color=COLOURS["ink"][0], marker="D", markersize=4.5)
        ax.plot(row["ratio"], place, color=COLOURS["rfd"][0], marker="o", markersize=4)
    ax.set_yticks(range(len(rows)), [NAMES[row["method"]] + (f", {row['m']}" if row["m"] else "") for row in rows])
    ax.invert_yaxis()
    ax.set_xscale("log")
    numbers(ax.xaxis, "{x:g}×")
    ax.set_xlabel("time per row, ADAGRAD = 1×")


# ------------------------------------------------------------------ verdicts


def display(found: Sequence[Row]) -> list[Table]:
    """Return Table 3 with our values."""
    out = []
    for name in data_of(found):
        lines = [
            [
                NAMES[row["method"]], str(row["m"] or ""), _number(row["paper_microseconds"]),
                _number(row["paper_ratio"]), _number(row["microseconds"]), _number(row["ratio"]),
            ]
            for row in select(found, data=name)
        ]  # fmt: skip
        base = min(row["adagrad_microseconds"] for row in select(found, data=name))
        out.append(Table(
            f"{name}: microseconds per row and multiples of ADAGRAD",
            ["method", "m", "paper µs", "paper ×", "ours µs", "ours ×"], lines,
            f"ADAGRAD itself: {base:.2f} µs per row here. {paper.numbers()['slips']['seconds']}", opened=True,
        ))  # fmt: skip
    return out


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def verdicts(found: Sequence[Row]) -> list[Verdict]:
    """Return whether RFD costs as much as FD, and how our times compare with those of the paper."""
    out = []
    for name in data_of(found):
        rows = select(found, data=name)
        fd = {row["m"]: row["microseconds"] for row in select(rows, method="fd")}
        ratios = {row["m"]: row["microseconds"] / fd[row["m"]] for row in select(rows, method="rfd") if row["m"] in fd}
        if not ratios:
            continue
        words = [f"{ratio:.2f} at m = {m}" for m, ratio in ratios.items()]
        out.append(Verdict(
            "holds" if max(ratios.values()) <= 1.5 else "differs",
            f"{name}: RFD-SON costs as much as FD-SON", f"{listed(words)} times FD-SON's time",
        ))  # fmt: skip
        known = [row for row in rows if row["paper_microseconds"] is not None]
        if known:
            faster = [row["paper_microseconds"] / row["microseconds"] for row in known]
            out.append(Verdict(
                "differs", f"{name}: the seconds of Table 3",
                f"a row takes {min(faster):.0f} to {max(faster):.0f} times less time here",
                "Another machine and compiled code instead of Matlab. " + paper.numbers()["slips"]["seconds"],
            ))  # fmt: skip
    return out
