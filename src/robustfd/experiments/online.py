"""Figures 5 to 11: online error rate over the pass, each method against RFD0-SON."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, per_data_set, power, select
from robustfd.experiments.figures import COLOURS, Figure, Style
from robustfd.experiments.protocol import ALPHAS, NAMES, UNSKETCHED, by_method, passes

TITLE = "Online error over the pass"
CLAIM = "In progressive error, RFD₀-SON keeps up with every method at its best α₀ (Figures 5 to 11)."
SHOWN = ALPHAS[::2]

cells = partial(passes, order=None)  # a pass for every method, m and alpha0, in the order of the file


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each point of each curve. Runs that diverged have no rows."""
    out = []
    for c, r in results.items():
        if c.kind != "pass" or c["order"] is not None or c["seed"] not in (None, 0) or r["diverged"]:
            continue
        for t, error in zip(r["curve"]["rows"], r["curve"]["error"]):
            out.append({
                "data": c.data, "method": c["method"], "m": c["m"], "alpha0": c["alpha0"], "rows": t,
                "online_error": error,
            })  # fmt: skip
    return out


STYLES = {alpha0: Style(f"α₀ = {power(alpha0)}", f"step{i}", width=1.2) for i, alpha0 in enumerate(SHOWN)}
UNTUNED = Style("RFD₀-SON", "rfd0", width=2.2)


@per_data_set
def figures(name: str, rows: list[Row]) -> list[Figure]:
    """Return, for each data set, FULL-ON and ADAGRAD against RFD0-SON, and one figure of the five sketches per m."""
    *smaller, largest = sorted({row["m"] for row in rows if row["m"] is not None})
    caption = "Error rate over the rows so far, each predicted before it is learned. Runs that diverged have no curve."
    legend = [UNTUNED, *STYLES.values()]
    panels = [
        (f"{NAMES[method]} (RFD₀-SON: m = {largest})", partial(_draw, rows, method, largest))
        for method in UNSKETCHED if select(rows, method=method)
    ]  # fmt: skip
    title = f"Online error on {name}: methods without a sketch"
    out = [Figure(f"online-{name}-unsketched", title, caption, panels, legend)]
    for m in (largest, *reversed(smaller)):
        sketched = ("fd", "pfd", "rp", "oja", "rfd")
        panels = [(f"{NAMES[method]}, m = {m}", partial(_draw, rows, method, m)) for method in sketched]
        title = f"Online error on {name}, m = {m}"
        out.append(Figure(f"online-{name}-m{m}", title, caption, panels, legend, folded=m != largest))
    return out


def _draw(rows: Sequence[Row], method: str, m: int, ax: Any) -> None:
    own = select(rows, method=method, m=None if method in UNSKETCHED else m)
    for alpha0, style in STYLES.items():
        line = select(own, alpha0=alpha0)
        ax.plot([row["rows"] for row in line], [row["online_error"] for row in line], **style.line())
    line = select(rows, method="rfd0", m=m)
    ax.plot([row["rows"] for row in line], [row["online_error"] for row in line], **UNTUNED.line())
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rows seen")
    ax.set_ylabel("online error, %")
    ends = [row["online_error"] for row in own + line]
    if ends:
        ax.set_ylim(0.8 * min(ends), min(60, 1.05 * max(ends)))
    ax.axhline(0, color=COLOURS["grid"][0], linewidth=0)


@per_data_set
def display(name: str, rows: list[Row]) -> list[Table]:
    """Return the online error of the whole pass: RFD0-SON, and each method with its best and worst alpha0."""
    lines = []
    for (method, m), ends in _ends(rows).items():
        best = min(ends, key=lambda alpha0: ends[alpha0])
        worst = f"{max(ends.values()):.2f}" if len(ends) > 1 else ""
        lines.append([
            NAMES[method], str(m or ""), f"{ends[best]:.2f}", power(best) if method != "rfd0" else "none", worst,
        ])  # fmt: skip
    header = ["method", "m", "best %", "at α₀", "worst finite %"]
    return [Table(f"{name}: online error of the whole pass", header, lines)]


@per_data_set
def verdicts(name: str, rows: list[Row]) -> list[Verdict]:
    """Return how far RFD0-SON is behind (or ahead of) each method at its best alpha0, and the settings it beats."""
    every = _ends(rows)
    mine = {m: next(iter(ends.values())) for (method, m), ends in every.items() if method == "rfd0"}
    gaps, won, total = {}, 0, 0
    for (method, m), ends in every.items():
        own = min(mine.values()) if m is None else mine.get(m)
        if method == "rfd0" or own is None:
            continue
        gaps[NAMES[method] + (f", m = {m}" if m else "")] = own - min(ends.values())
        won += sum(value >= own for value in ends.values())
        total += len(ends)
    if not gaps:
        return []
    worst = max(gaps, key=lambda key: gaps[key])
    return [Verdict(
        "holds" if gaps[worst] <= 1.5 else "differs",
        f"{name}: RFD₀-SON keeps up over the pass with every method at its best α₀",
        f"ahead of {won} of {total} settings that did not diverge; furthest behind {worst} at its best α₀, by "
        f"{gaps[worst]:.2f} points",
        "" if gaps[worst] <= 1.5 else "The best α₀ is known only after the pass; RFD₀-SON needs no setting.",
    )]  # fmt: skip


def _ends(rows: Sequence[Row]) -> dict[tuple[str, int | None], dict[float, float]]:
    """Return {(method, m): {alpha0: the error of the whole pass}}."""
    ends: dict[tuple[str, int | None], dict[float, float]] = {}
    for row in sorted(rows, key=lambda row: (*by_method(row), row["rows"])):
        ends.setdefault((row["method"], row["m"]), {})[row["alpha0"]] = row["online_error"]
    return ends
