"""Figures 3 and 4: test error after one pass against alpha0."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from robustfd.experiments.cells import Cell, Result, Row, Table, Verdict, listed, per_data_set, power, select
from robustfd.experiments.figures import COLOURS, MARKERS, Figure, Style, decades
from robustfd.experiments.protocol import NAMES, UNSKETCHED, by_method, passes

TITLE = "Sensitivity to α₀"
CLAIM = (
    "RFD₀-SON does well with nothing to tune, while ADAGRAD, FD-, PFD-, RP- and Oja-SON are very sensitive to α₀ "
    "(Figures 3 and 4)."
)
Lines = Sequence[Sequence[Row]]
Groups = dict[tuple[str, int | None], list[Row]]  # by method and m
SMALL = 1.0  # the largest alpha0 that counts as small
UNMOVED = ("a9a", "gisette", "sido0", "farm-ads")  # "The choice of the hyperparameter almost has no effect" on these

cells = partial(passes, order=None)  # a pass for every method, m and alpha0, in the order of the file


def table(results: Mapping[Cell, Result]) -> list[Row]:
    """Return a row for each method, m and alpha0: the test error (mean over seeds), or None if a run diverged."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for c, r in results.items():
        if c.kind == "pass" and c["order"] is None:
            groups.setdefault((c.data, c["method"], c["m"], c["alpha0"]), []).append(r)
    out = []
    for (data, method, m, alpha0), found in groups.items():
        errors = [100 - r["accuracy"] for r in found if not r["diverged"]]
        diverged = len(found) - len(errors)
        out.append({
            "data": data, "method": method, "m": m, "alpha0": alpha0, "runs": len(found), "diverged": diverged,
            "test_error": float(np.mean(errors)) if not diverged else None,
        })  # fmt: skip
    return out


STYLES = {
    method: Style(name, method, MARKERS.get(method, ""), width=2.2 if method in ("rfd", "rfd0") else 1.3)
    for method, name in NAMES.items()
}


@per_data_set
def figures(name: str, rows: list[Row]) -> list[Figure]:
    """Return a figure for each data set, a panel for each m."""
    sizes = sorted({row["m"] for row in rows if row["m"] is not None})
    return [Figure(
        f"sensitivity-{name}", f"Test error on {name} against α₀",
        "Test error after one pass over 70 % of the rows, in the order of the file. RFD₀-SON has no α₀ and is a "
        "horizontal line. Crosses at the top: the run diverged.",
        [(f"{name}, m = {m}", partial(_draw, rows, m)) for m in sizes],
        [STYLES[method] for method in NAMES if select(rows, method=method)],
    )]  # fmt: skip


def _draw(rows: Sequence[Row], m: int, ax: Any) -> None:
    errors = [row["test_error"] for row in rows if row["test_error"] is not None]
    low, high = min(errors, default=0.0), max(errors, default=1.0)
    top = high + 0.04 * (high - low)
    for method in NAMES:
        line = select(rows, method=method, m=None if method in UNSKETCHED else m)
        style = STYLES[method]
        if method == "rfd0":
            for row in line:
                if row["test_error"] is not None:
                    ax.axhline(row["test_error"], color=COLOURS["ink"][0], linewidth=style.width, zorder=2.5)
            continue
        x = [row["alpha0"] for row in line]
        y = [np.nan if row["test_error"] is None else row["test_error"] for row in line]
        ax.plot(x, y, **style.line(zorder=3 if method == "rfd" else 2))
        diverged = [row["alpha0"] for row in line if row["test_error"] is None]
        if diverged:  # each method that diverges has a line of its own above all errors
            top += 0.05 * (high - low)
            ax.plot(diverged, [top] * len(diverged), linestyle="", marker="x", markersize=4.5, color=COLOURS[method][0])
    ax.set_ylim(low - 0.05 * (high - low), top + 0.05 * (high - low))
    ax.set_xscale("log")
    decades(ax.xaxis)
    ax.set_xlabel("α₀")
    ax.set_ylabel("test error, %")


@per_data_set
def display(name: str, rows: list[Row]) -> list[Table]:
    """Return, for each method, the best and the worst test error, and how many alpha0 are near the best."""
    lines = []
    for (method, m), line in _lines(rows).items():
        errors = [row["test_error"] for row in line if row["test_error"] is not None]
        shown = ["diverged", "", ""]
        if errors:
            near = sum(error <= min(errors) + 1 for error in errors)
            shown = [f"{min(errors):.2f}", f"{max(errors):.2f}", f"{near} of {len(line)}"]
        lines.append([NAMES[method], str(m or ""), *shown, str(len(line) - len(errors))])
    header = ["method", "m", "best %", "worst %", "α₀ within 1 point of best", "diverged"]
    return [Table(f"{name}: test error over all α₀", header, lines)]


@per_data_set
def verdicts(name: str, rows: list[Row]) -> list[Verdict]:
    """Return whether RFD-SON is insensitive to alpha0, the others are not, and RFD0-SON is as good as tuned ones."""
    lines = _lines(rows)
    spread = {key: _spread(line) for key, line in lines.items()}
    own = [line for key, line in lines.items() if key[0] == "rfd"]
    if not own:
        return []
    calm = [key for key in spread if key[0] not in ("rfd", "rfd0") and spread[key] <= 1]
    diverged = [key for key in spread if spread[key] == np.inf]
    baselines = sum(key[0] not in ("rfd", "rfd0") for key in spread)
    within = listed(NAMES[method] + (f" m = {m}" if m else "") for method, m in calm)
    return [
        _small(name, own),
        *([_unmoved(name, own)] if rows[0]["data"] in UNMOVED else []),
        Verdict(
            "holds" if not calm else "differs",
            f"{name}: all baselines are very sensitive to α₀",
            f"{baselines - len(calm)} of {baselines} move by more than 1 point; {len(diverged)} diverge for some α₀",
            f"Within 1 point over the whole grid: {within}." if calm else "",
        ),
        _untuned(name, lines),
    ]  # fmt: skip


def _small(name: str, own: Lines) -> Verdict:
    """Return whether RFD-SON does well with every small alpha0, which the paper says of all its data sets."""
    behind = max(_worst([row for row in line if row["alpha0"] <= SMALL]) - _best(line) for line in own)
    return Verdict(
        "holds" if behind <= 1.5 else "differs",
        f"{name}: RFD-SON usually does well with a small α₀",
        f"for α₀ from {power(1e-3)} to {power(SMALL)} at most {behind:.2f} points behind its best α₀",
    )


def _unmoved(name: str, own: Lines) -> Verdict:
    """Return whether no alpha0 of the paper's grid matters for RFD-SON."""
    moved = max(_spread(line) for line in own)
    grid = sorted({row["alpha0"] for line in own for row in line})
    calm = [a for a in grid if all(_spread([row for row in line if row["alpha0"] <= a]) <= 1 for line in own)]
    return Verdict(
        "holds" if moved <= 1 else "fails",
        f"{name}: the choice of α₀ has almost no effect on RFD-SON",
        f"test error moves by {moved:.2f} points over the paper's grid, {power(grid[0])} to {power(grid[-1])}",
        "" if moved <= 1 else
        f"It moves by at most 1 point up to {power(max(calm, default=0.0))}. Large α₀ make every method worse: the "
        "Hessian is at least α₀ I, and unit steps hardly move w.",
    )  # fmt: skip


def _untuned(name: str, lines: Groups) -> Verdict:
    """Return how RFD0-SON without tuning compares with the others at each alpha0."""
    beaten = total = 0
    behind = 0.0
    for (method, m), line in lines.items():
        for own in (lines[key][0] for key in lines if key[0] == "rfd0" and m in (None, key[1])):
            mine = own["test_error"]
            if method == "rfd0" or mine is None:
                continue
            beaten += sum(row["test_error"] is None or row["test_error"] >= mine for row in line)
            total += len(line)
            behind = max(behind, mine - _best(line))
    return Verdict(
        "holds" if behind <= 1.5 else "differs",
        f"{name}: RFD₀-SON does well without tuning",
        f"at least as good as {beaten} of {total} settings of the other methods, and at most {behind:.2f} points "
        "behind the best α₀ of any method, which was chosen on the test rows",
    )


def _lines(rows: Sequence[Row]) -> Groups:
    """Return the rows of each method and m, sorted by alpha0."""
    lines: Groups = {}
    for row in sorted(rows, key=lambda row: (*by_method(row), row["alpha0"])):
        lines.setdefault((row["method"], row["m"]), []).append(row)
    return lines


def _best(line: Sequence[Row]) -> float:
    """Return the least test error, or infinity if all runs diverged."""
    return min((row["test_error"] for row in line if row["test_error"] is not None), default=np.inf)


def _worst(line: Sequence[Row]) -> float:
    """Return the largest test error, or infinity if a run diverged."""
    return max((np.inf if row["test_error"] is None else row["test_error"] for row in line), default=0.0)


def _spread(line: Sequence[Row]) -> float:
    """Return the worst minus the best test error, or infinity if a run diverged."""
    best = _best(line)
    return float(_worst(line) - best) if best < np.inf else np.inf
