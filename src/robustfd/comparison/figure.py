"""Figure of a comparison: progressive errors over rows, and test errors over settings."""

from typing import Any

import numpy as np

from robustfd.experiments.colours import COLOURS

# Prefix of the learner's name: colour, marker, line width. Learners of the paper have the style of the paper's figures.
STYLES = {
    "SketchedNewton": ("ink", "", 2.4), "RFDSON": ("rfd", "", 1.8), "FD-SON": ("fd", "s", 1.3),
    "AdaGrad": ("oja", "P", 1.3), "gradient descent": ("rp", "v", 1.3), "SGD": ("full", "^", 1.3),
}  # fmt: skip
CONSTANT = ("adagrad", "", 1.2)  # style of the constant prediction
WORST = 1.5  # errors above this multiple of the constant prediction's error are off the scale
MARGIN = 0.1  # margin above and below the data, relative to its range
NEAR_ZERO = 0.4  # the axis starts at 0 if the smallest error is below this fraction of the largest


def draw_comparison(learners: list[dict[str, Any]], about: dict[str, Any]) -> Any:
    """Return a figure of progressive errors against rows and of test errors against settings."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.8), layout="constrained")
    _draw_curves(left, learners, about["learnt"])
    off_scale = _draw_settings(right, learners)
    measure = "share of errors" if "classes" in about else "root mean squared error"
    left.set_ylabel(measure)
    left.set_title("Progressive error: each row predicted before it is learned", fontsize="medium")
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
    """Return the limits of an axis for the curves and all errors that are not far above the constant prediction's."""
    guess = max(each[what] for each in learners if _style(each)["linestyle"] == ":")
    errors = [trial[what] for each in learners for trial in each.get("settings", [each])]
    errors = [error for error in errors if error <= WORST * guess] + (curves or [])
    low, high = min(errors), max(errors)
    margin = MARGIN * (high - low) or 1.0
    return (0.0 if low <= NEAR_ZERO * high else low - margin), high + margin


def _draw_curves(ax: Any, learners: list[dict[str, Any]], rows: int) -> None:
    """Plot the best setting of each learner as a line and the range of all its settings as a band."""
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
    ax.set_xlabel("rows learned (band: all settings tried)")


def _at(x: Any, curve: dict[str, Any]) -> Any:
    """Return the errors at the row counts x, or infinity after the learner has diverged."""
    known = dict(zip(curve["rows"].tolist(), curve["error"].tolist()))
    return [known.get(rows, np.inf) for rows in x.tolist()]


def _draw_settings(ax: Any, learners: list[dict[str, Any]]) -> bool:
    """Plot test errors against settings in multiples of the default. Return whether some are off the scale."""
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
        reached = inside | np.append(inside[1:], False) | np.append(False, inside[:-1])  # a visible line ends here
        ax.plot(x, np.where(reached, np.minimum(y, top), np.nan), markevery=np.flatnonzero(inside).tolist(), **style)
        if not inside.all():  # one line of crosses per learner
            raised += 0.05 * (top - bottom)
            outside = x[~inside]
            crosses = {"linestyle": "", "marker": "x", "markersize": 6, "color": style["color"], "clip_on": False}
            ax.plot(outside, np.full(len(outside), top + raised), **crosses)
    if raised:
        ax.axhline(top, color=COLOURS["grid"][0], linewidth=0.8)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(bottom, top + raised)
    ax.set_yticks([tick for tick in ax.get_yticks() if bottom <= tick <= top])
    ax.set_xlabel("setting, in multiples of its default (horizontal lines: nothing to tune)")
    return raised > 0
