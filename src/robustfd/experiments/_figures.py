"""Figures with several panels, as PNG and SVG files and as inline SVG in the report."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustfd.experiments.colours import COLOURS

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
class Panel:
    """One pair of axes."""

    title: str
    draw: Callable[[Any], None]


@dataclass(frozen=True)
class Figure:
    """Panels with a common legend. A folded figure is collapsed in the report."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    legend: Sequence[Style]
    folded: bool = False
    height: float = HEIGHT
    left: float = 0.56  # inches for labels


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as PNG and SVG and return the paths."""
    plt = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    columns = 2 if len(figure.panels) == 4 else min(3, len(figure.panels))
    lines = -(-len(figure.panels) // columns)
    width, height = WIDTH * columns, figure.height + HEADING
    longest = max((len(style.label) for style in figure.legend), default=1)
    across = max(1, int(width / (0.6 + 0.075 * longest)))  # legend entries per line
    foot = LINE * -(-len(figure.legend) // across) + 0.1
    total = height * lines + HEADING + foot
    with plt.rc_context(_settings()):
        fig = plt.figure(figsize=(width, total))
        for place, panel in enumerate(figure.panels):
            down, right = divmod(place, columns)
            ax = _axes(fig, figure, WIDTH * right, foot + height * (lines - 1 - down), width, total)
            _draw(ax, panel)
            ax.set_title(panel.title, pad=4)
        handles = [plt.Line2D([], [], **style.line()) for style in figure.legend]
        fig.legend(handles=handles, loc="lower center", ncols=across, borderaxespad=0.2)
        fig.text(0.5, 1 - 0.17 / total, figure.title, ha="center", fontsize=10, fontweight="bold")
        paths = [folder / f"{figure.name}.png", folder / f"{figure.name}.svg"]
        fig.savefig(paths[0], dpi=150, metadata={"Software": None})
        fig.savefig(paths[1], metadata={"Date": None, "Creator": None})
        plt.close(fig)
    return paths


def inline(figure: Figure) -> list[str]:
    """Return the panels as SVG elements for a page that defines the colours as CSS variables."""
    plt = _pyplot()
    out = []
    for number, panel in enumerate(figure.panels):
        with plt.rc_context(_settings()):
            fig = plt.figure(figsize=(WIDTH, figure.height))
            _draw(_axes(fig, figure, 0.0, 0.0, WIDTH, figure.height), panel)
            stream = io.StringIO()
            fig.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            plt.close(fig)
        out.append(_adapt(stream.getvalue(), f"{figure.name}-{number}", panel.title))
    return out


def _axes(fig: Any, figure: Figure, x: float, y: float, width: float, height: float) -> Any:
    """Return axes for a panel with its lower left corner at x, y. All lengths are in inches."""
    across, up = WIDTH - figure.left - RIGHT, figure.height - BOTTOM - TOP
    return fig.add_axes(((x + figure.left) / width, (y + BOTTOM) / height, across / width, up / height))


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
    from robustfd.experiments._findings import power

    axis.set_major_formatter(lambda value, _: power(value) if value > 0 else "")


def _draw(ax: Any, panel: Panel) -> None:
    ax.grid(visible=True)
    ax.set_axisbelow(True)
    panel.draw(ax)
    ax.minorticks_off()


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
    svg = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{title}">', svg, count=1
    )
    return re.sub(r"\s*\n\s*", "\n", svg)


def _settings() -> dict[str, Any]:
    ink, grid = COLOURS["ink"][0], COLOURS["grid"][0]
    return {
        "font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8.5, "legend.fontsize": 8.5,
        "text.color": ink, "axes.edgecolor": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink,
        "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.size": 0,
        "ytick.minor.size": 0, "axes.spines.top": False, "axes.spines.right": False,
        "grid.color": grid, "grid.linewidth": 0.6, "legend.frameon": False,
        "svg.fonttype": "none", "svg.hashsalt": "robustfd", "figure.facecolor": "white", "font.family": "DejaVu Sans",
    }  # fmt: skip


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt
