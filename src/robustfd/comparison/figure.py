"""The picture of a comparison: errors as rows come, and what settings change."""

from typing import Any

import numpy as np

from robustfd.experiments.colours import COLOURS

# Learner, as far as its name matters: colour, marker, width of its line. Those of the paper's figures look as there.
STYLES = {
    "SketchedNewton": ("ink", "", 2.4), "RFDSON": ("rfd", "", 1.8), "FD-SON": ("fd", "s", 1.3),
    "AdaGrad": ("oja", "P", 1.3), "gradient descent": ("rp", "v", 1.3), "SGD": ("full", "^", 1.3),
}  # fmt: skip
CONSTANT = ("adagrad", "", 1.2)  # of what says the same of every row
WORST = 1.5  # times the error of a guess: what is worse is not worth the room
ROOM = 0.1  # of what should be seen of an axis, above and below
NEAR_ZERO = 0.4  # of the largest error: if the least is below, the axis begins with 0


def draw_comparison(learners: list[dict[str, Any]], about: dict[str, Any]) -> Any:
    """Return a figure of progressive errors against rows, and of test errors against settings."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.8), layout="constrained")
    _draw_curves(left, learners, about["learnt"])
    off_scale = _draw_settings(right, learners)
    measure = "share of errors" if "classes" in about else "root mean squared error"
    left.set_ylabel(measure)
    left.set_title("Progressive error: each row judged before it is learnt", fontsize="medium")
    off = "  (×: off the scale, or diverged)" if off_scale else ""
    right.set_title(f"Test error: {about['held_out']:,} rows held out{off}", fontsize="medium")
    for ax in (left, right):
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure


def _style(learner: dict[str, Any]) -> dict[str, Any]:
    found = [style for name, style in STYLES.items() if learner["learner"].startswith(name)]
    colour, marker, width = found[0] if found else CONSTANT
    return {
        "color": COLOURS[colour][0], "marker": marker or None, "markersize": 5, "linewidth": width,
        "linestyle": "-" if found else ":", "zorder": 3 if width > 2 else 2,
    }  # fmt: skip


def _limits(learners: list[dict[str, Any]], what: str, curves: list[float] | None = None) -> tuple[float, float]:
    """Return the ends of an axis for curves, and for all errors but those that are much worse than a guess."""
    guess = max(each[what] for each in learners if _style(each)["linestyle"] == ":")
    errors = [trial[what] for each in learners for trial in each.get("settings", [each])]
    errors = [error for error in errors if error <= WORST * guess] + (curves or [])
    low, high = min(errors), max(errors)
    room = ROOM * (high - low) or 1.0
    return (0.0 if low <= NEAR_ZERO * high else low - room), high + room


def _draw_curves(ax: Any, learners: list[dict[str, Any]], rows: int) -> None:
    """Draw the best setting of each learner, and the range of all of them as a band."""
    first = min(16, rows)
    seen = [each["curve"]["error"][each["curve"]["rows"] >= first] for each in learners if not each["diverged"]]
    bottom, top = _limits(learners, "progressive_error", np.concatenate(seen).tolist())
    for each in learners:
        style = _style(each)
        trials = each.get("settings", [each])
        x = each["curve"]["rows"]
        every = np.array([_at(x, trial["curve"]) for trial in trials])
        if len(trials) > 1:
            ax.fill_between(x, every.min(axis=0), np.minimum(every.max(axis=0), 2 * top), color=style["color"],
                            alpha=0.10, linewidth=0)  # fmt: skip
        shown = x >= first
        name = f"{each['learner']}, {each['setting']} {each['value']:g}" if each["setting"] else each["learner"]
        name += " (diverged)" if each["diverged"] else ""
        ax.plot(x[shown], each["curve"]["error"][shown], label=name, **style)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlim(first, 1.06 * rows)
    ax.set_ylim(bottom, top)
    ax.set_xlabel("rows learnt (band: all settings that were tried)")


def _at(x: Any, curve: dict[str, Any]) -> Any:
    """Return errors at numbers of rows; infinite beyond the last, where a learner has diverged."""
    known = dict(zip(curve["rows"].tolist(), curve["error"].tolist()))
    return [known.get(rows, np.inf) for rows in x.tolist()]


def _draw_settings(ax: Any, learners: list[dict[str, Any]]) -> bool:
    """Draw test errors against settings, in multiples of the default; return whether some are above the axis."""
    bottom, top = _limits(learners, "test_error")
    raised = 0.0
    for each in learners:
        style = _style(each)
        if not each["setting"]:
            ax.axhline(each["test_error"], **style)
            continue
        x = np.array([trial["value"] / each["default"] for trial in each["settings"]])
        y = np.array([trial["test_error"] for trial in each["settings"]])
        inside = y <= top
        reached = inside | np.append(inside[1:], False) | np.append(False, inside[:-1])  # a line goes there
        ax.plot(x, np.where(reached, np.minimum(y, top), np.nan), markevery=np.flatnonzero(inside).tolist(), **style)
        if not inside.all():  # crosses of each learner on a line of their own
            raised += 0.05 * (top - bottom)
            gone = x[~inside]
            crosses = {"linestyle": "", "marker": "x", "markersize": 6, "color": style["color"], "clip_on": False}
            ax.plot(gone, np.full(len(gone), top + raised), **crosses)
    if raised:
        ax.axhline(top, color=COLOURS["grid"][0], linewidth=0.8)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(bottom, top + raised)
    ax.set_yticks([tick for tick in ax.get_yticks() if bottom <= tick <= top])
    ax.set_xlabel("setting, in multiples of its default (level lines: nothing to tune)")
    return raised > 0
