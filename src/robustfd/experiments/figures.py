"""All figures: colours, panels as PNG and SVG files and inside the report, and the figure of `robustfd compare`."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robustfd.experiments.cells import Row, data_of, power, select, shown

# name: (colour on white, colour on black). The palette of Okabe and Ito, which is safe for colour-blind readers, with
# brighter colours on a dark page.
COLOURS = {
    "ink": ("#22262b", "#e6e8eb"),
    "grid": ("#dcdfe3", "#363b42"),
    "rfd": ("#0072b2", "#58b4ec"),
    "fd": ("#d55e00", "#ff8f45"),
    "cfd": ("#009e74", "#34cfa2"),
    "pfd": ("#b85c93", "#e79cc8"),
    "rp": ("#009e73", "#33cfa1"),
    "oja": ("#c58a00", "#f3bd45"),
    "adagrad": ("#767c84", "#a4abb3"),
    "full": ("#6a51a3", "#b3a1ec"),
    "step0": ("#3b528b", "#8ea6e6"),
    "step1": ("#21818d", "#45b5c4"),
    "step2": ("#27994a", "#5fce7f"),
    "step3": ("#9a8b00", "#d6c63a"),
    "step4": ("#c8522c", "#f58f68"),
}
COLOURS["rfd0"] = COLOURS["ink"]

MARKERS = {"rfd": "o", "fd": "s", "cfd": "^", "pfd": "D", "rp": "v", "oja": "P", "adagrad": "X", "full": "^"}
WIDTH, HEIGHT = 3.5, 2.6  # size of a panel in inches
RIGHT, BOTTOM, TOP = 0.12, 0.46, 0.08  # margins in inches; automatic layout takes longer than drawing
HEADING, LINE = 0.24, 0.2  # heights of a title and of a legend line in inches


@dataclass(frozen=True)
class Style:
    """The style of a line, the same in all figures."""

    label: str
    colour: str
    marker: str = ""
    dash: str = "-"
    width: float = 1.5

    def line(self, **more: Any) -> dict[str, Any]:
        """Return the style as keyword arguments for matplotlib."""
        out = {"color": COLOURS[self.colour][0], "marker": self.marker or None, "linestyle": self.dash}
        return {**out, "linewidth": self.width, "markersize": 4, "markeredgewidth": 0.0, "label": self.label, **more}


@dataclass(frozen=True)
class Figure:
    """Panels, each a title and a function that draws on axes, with a common legend. The report folds some figures."""

    name: str
    title: str
    caption: str
    panels: Sequence[tuple[str, Callable[[Any], None]]]
    legend: Sequence[Style]
    folded: bool = False
    height: float = HEIGHT
    left: float = 0.56  # inches for labels

    @property
    def slug(self) -> str:
        """The name as one word, for files and addresses."""
        return re.sub(r"[^\w.-]+", "-", self.name)


def panels(draw: Callable[[list[Row], Any], None], found: Sequence[Row]) -> list[tuple[str, Callable[[Any], None]]]:
    """Return a panel for each data set, drawn from its rows."""
    return [(shown(name), partial(draw, select(found, data=name))) for name in data_of(found)]


def save(figure: Figure, folder: Path) -> None:
    """Write a figure as PNG and SVG."""
    from matplotlib.lines import Line2D

    folder.mkdir(parents=True, exist_ok=True)
    columns = 2 if len(figure.panels) == 4 else min(3, len(figure.panels))
    lines = -(-len(figure.panels) // columns)
    width, height = WIDTH * columns, figure.height + HEADING
    longest = max((len(style.label) for style in figure.legend), default=1)
    across = max(1, int(width / (0.6 + 0.075 * longest)))  # legend entries per line
    foot = LINE * -(-len(figure.legend) // across) + 0.1
    total = height * lines + HEADING + foot
    with _canvas(width, total) as fig:
        for place, (title, draw) in enumerate(figure.panels):
            down, right = divmod(place, columns)
            ax = _axes(fig, figure, WIDTH * right, foot + height * (lines - 1 - down), draw)
            ax.set_title(title, pad=4)
        handles = [Line2D([], [], **style.line()) for style in figure.legend]
        fig.legend(handles=handles, loc="lower center", ncols=across, borderaxespad=0.2)
        fig.text(0.5, 1 - 0.17 / total, figure.title, ha="center", fontsize=10, fontweight="bold")
        fig.savefig(folder / f"{figure.slug}.png", dpi=150, metadata={"Software": None})
        fig.savefig(folder / f"{figure.slug}.svg", metadata={"Date": None, "Creator": None})


def inline(figure: Figure) -> list[str]:
    """Return the panels as SVG elements for a page that defines the colours as CSS variables."""
    out = []
    for number, (title, draw) in enumerate(figure.panels):
        stream = io.StringIO()
        with _canvas(WIDTH, figure.height) as fig:
            _axes(fig, figure, 0.0, 0.0, draw)
            fig.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        out.append(_adapt(stream.getvalue(), f"{figure.slug}-{number}", title))
    return out


def _axes(fig: Any, figure: Figure, x: float, y: float, draw: Callable[[Any], None]) -> Any:
    """Draw a panel with its lower left corner at x, y, in inches, and return its axes."""
    across, up = WIDTH - figure.left - RIGHT, figure.height - BOTTOM - TOP
    width, height = fig.get_size_inches()
    ax = fig.add_axes(((x + figure.left) / width, (y + BOTTOM) / height, across / width, up / height))
    draw(ax)
    ax.minorticks_off()
    return ax


def key(style: Style) -> str:
    """Return a legend key for a style as a small SVG element."""
    colour = f"var(--{style.colour})"
    dash = {"--": "4 2.5", ":": "1.5 2"}.get(style.dash, "")
    shapes = {
        "o": '<circle cx="13" cy="6" r="3.2"/>',
        "s": '<rect x="10" y="3" width="6" height="6"/>',
        "^": '<path d="M13 2l4 7h-8z"/>',
        "v": '<path d="M13 10l4-7h-8z"/>',
        "D": '<path d="M13 2l4 4-4 4-4-4z"/>',
        "P": '<path d="M11.5 2h3v2.5H17v3h-2.500V10h-3V7.500H9v-3h2.500z"/>',
        "X": '<path d="M9.500 4l1.500-1.500 2 2 2-2L16.500 4l-2 2 2 2-1.500 1.500-2-2-2 2L9.500 8l2-2z"/>',
    }
    line = "" if style.dash == "" else (
        f'<line x1="1" x2="25" y1="6" y2="6" stroke="{colour}" stroke-width="{style.width}" '
        f'stroke-dasharray="{dash}"/>'
    )  # fmt: skip
    shape = shapes.get(style.marker, "")
    return f'<svg class="key" viewBox="0 0 26 12" fill="{colour}" aria-hidden="true">{line}{shape}</svg>'


def numbers(axis: Any, form: str = "{x:g}") -> None:
    """Label a logarithmic axis with few decades at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(form)


def decades(axis: Any) -> None:
    """Label a logarithmic axis with powers of ten in plain text."""
    axis.set_major_formatter(lambda value, _: power(value) if value > 0 else "")


def _adapt(svg: str, name: str, title: str) -> str:
    """Return an SVG with the colours and font of the page, unique ids and fewer digits."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    svg = re.sub(r"font-family:[^;\"]*; ?", "", svg)
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\d\.\d)\d+", r"\1", tag[0]), svg)
    for colour, (light, _) in COLOURS.items():
        svg = svg.replace(light, "currentColor" if colour == "ink" else f"var(--{colour})")
    opening = rf'<svg viewBox="\1" role="img" aria-label="{title}">'
    svg = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', opening, svg, count=1)
    return re.sub(r"\s*\n\s*", "\n", svg)


@contextmanager
def _canvas(width: float, height: float) -> Iterator[Any]:
    """Yield an empty matplotlib figure, with the settings of all figures."""
    import matplotlib
    from matplotlib.figure import Figure

    ink, grid = COLOURS["ink"][0], COLOURS["grid"][0]
    settings: Any = {
        "font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8.5, "legend.fontsize": 8.5,
        "text.color": ink, "axes.edgecolor": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink,
        "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.size": 0,
        "ytick.minor.size": 0, "axes.spines.top": False, "axes.spines.right": False,
        "grid.color": grid, "grid.linewidth": 0.6, "legend.frameon": False,
        "svg.fonttype": "none", "svg.hashsalt": "robustfd", "figure.facecolor": "white", "font.family": "DejaVu Sans",
        "axes.grid": True, "axes.axisbelow": True,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield Figure(figsize=(width, height))


# ------------------------------------------------------------------ robustfd compare

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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_curves(left, learners, about["learnt"])
    off_scale = _draw_settings(right, learners)
    left.set_ylabel("share of errors" if "classes" in about else "root mean squared error")
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
