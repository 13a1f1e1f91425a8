"""Table 3: time per row, relative to ADAGRAD in the same run."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from robustfd.experiments import protocol
from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, cell, listed, per_data_set, select
from robustfd.experiments.figures import COLOURS, Figure, Style, numbers, panels
from robustfd.experiments.protocol import NAMES, SECONDS, SLIPS_OF_SECONDS, Data, by_method, label, learner, printed

TITLE = "Cost of a row"
CLAIM = "RFD-SON costs as much as FD-SON, O(md) per row, a few times ADAGRAD's O(d) (Table 3)."
ALPHA0 = {"adagrad": 1e5, "rfd": 1e2, "rfd0": 0.0}  # near the best, 1e3 for others; the time does not depend on it


def cells(data: Data, *, quick: bool) -> list[Cell]:
    """Return a cell for each method and m, except for ADAGRAD, which is timed together with each of them."""
    out = []
    for method in NAMES if data.two_classes else ():
        if method == "adagrad" or (method == "full" and data.n_features > protocol.FULL_FEATURES):
            continue
        effort = protocol.passes(data, (method,), order=None)[0].effort
        for m in (None,) if method in protocol.UNSKETCHED else data.sizes:
            repeats = 2 if quick else 5
            out.append(cell("cost", data.name, effort=repeats * effort, method=method, m=m, repeats=repeats))
    return out


def run(cell: Cell) -> Result:
    """Return the best times of a pass of a method and of ADAGRAD, measured alternately."""
    x, y, _, _ = protocol.split(cell.data, None)
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


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each method and m: microseconds per row and ratio to ADAGRAD, in the paper and here."""
    out = []
    for c, r in results.items():
        if c.kind != "cost":
            continue
        sizes = sorted({k["m"] for k in results if k.kind == "cost" and k.data == c.data and k["m"] is not None})
        place = 0 if c["m"] is None else sizes.index(c["m"])
        known, base = printed(SECONDS, c.data, c["method"], place), printed(SECONDS, c.data, "adagrad", 0)
        out.append({
            "data": c.data, "method": c["method"], "m": c["m"],
            "paper_microseconds": None if known is None else 1e6 * known,
            "paper_ratio": None if known is None or base is None else known / base,
            "microseconds": 1e6 * r["seconds"] / r["rows"],
            "adagrad_microseconds": 1e6 * r["adagrad_seconds"] / r["rows"],
            "ratio": r["seconds"] / r["adagrad_seconds"],
        })  # fmt: skip
    return sorted(out, key=lambda row: (row["data"], *by_method(row)))


OURS = Style("ours", "rfd", "o", dash="")
PRINTED = Style("the paper", "ink", "D", dash="")


def figures(found: Sequence[Row]) -> list[Figure]:
    """Return a panel for each data set: time per row as a multiple of ADAGRAD's."""
    caption = (
        "Time per row as a multiple of ADAGRAD's in the same run. Here, ADAGRAD is compiled and touches only the "
        "non-zeros of a row; in the paper it was Matlab. The ratios depend more on ADAGRAD than on the sketches."
    )
    drawn, legend = panels(_draw, found), [PRINTED, OURS]
    return [Figure("cost", "Table 3: cost of a row", caption, drawn, legend, height=4.2, left=1.02)]


def _draw(rows: Sequence[Row], ax: Any) -> None:
    for place, row in enumerate(rows):
        if row["paper_ratio"] is not None:
            ax.plot(row["paper_ratio"], place, color=COLOURS["ink"][0], marker="D", markersize=4.5)
        ax.plot(row["ratio"], place, color=COLOURS["rfd"][0], marker="o", markersize=4)
    ax.set_yticks(range(len(rows)), [label(row) for row in rows])
    ax.invert_yaxis()
    ax.set_xscale("log")
    numbers(ax.xaxis, "{x:g}×")
    ax.set_xlabel("time per row, ADAGRAD = 1×")


@per_data_set
def display(name: str, rows: list[Row]) -> list[Table]:
    """Return Table 3 with our values."""
    shown = ("paper_microseconds", "paper_ratio", "microseconds", "ratio")
    lines = [[NAMES[row["method"]], str(row["m"] or ""), *(_number(row[what]) for what in shown)] for row in rows]
    base = min(row["adagrad_microseconds"] for row in rows)
    return [Table(
        f"{name}: microseconds per row and multiples of ADAGRAD",
        ["method", "m", "paper µs", "paper ×", "ours µs", "ours ×"], lines,
        f"ADAGRAD itself: {base:.2f} µs per row here. {SLIPS_OF_SECONDS}", opened=True,
    )]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@per_data_set
def verdicts(name: str, rows: list[Row]) -> list[Verdict]:
    """Return whether RFD costs as much as FD, and how our times compare with those of the paper."""
    fd = {row["m"]: row["microseconds"] for row in select(rows, method="fd")}
    ratios = {row["m"]: row["microseconds"] / fd[row["m"]] for row in select(rows, method="rfd") if row["m"] in fd}
    if not ratios:
        return []
    words = listed(f"{ratio:.2f} at m = {m}" for m, ratio in ratios.items())
    out = [Verdict(
        "holds" if max(ratios.values()) <= 1.5 else "differs",
        f"{name}: RFD-SON costs as much as FD-SON", f"{words} times FD-SON's time",
    )]  # fmt: skip
    known = [row for row in rows if row["paper_microseconds"] is not None]
    if known:
        faster = [row["paper_microseconds"] / row["microseconds"] for row in known]
        out.append(Verdict(
            "differs", f"{name}: the seconds of Table 3",
            f"a row takes {min(faster):.0f} to {max(faster):.0f} times less time here",
            f"Another machine and compiled code instead of Matlab. {SLIPS_OF_SECONDS}",
        ))  # fmt: skip
    return out
