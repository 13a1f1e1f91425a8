"""Plots that commands draw."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any


def require_matplotlib() -> Any:
    """Return matplotlib's pyplot, set to draw to files; raise if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("matplotlib is missing. Plots need an extra: pip install 'robustfd[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def require_plot(path: Path) -> None:
    """Raise now, rather than after the pass, if a plot cannot be drawn to this file. It draws an empty one."""
    from robustfd.cli._files import require_writable

    plt = require_matplotlib()
    figure = plt.figure(figsize=(1, 1))
    try:
        known = figure.canvas.get_supported_filetypes()
        if _format(path) not in known:
            suffixes = ", ".join(f".{each}" for each in sorted(known))
            raise ValueError(f"The name of {path} must end with one of {suffixes}, which selects the format.")
        require_writable(path)
        figure.savefig(io.BytesIO(), format=_format(path))
    finally:
        plt.close(figure)


def try_to_draw(draw: Callable[[], None], path: Path) -> bool:
    """Draw, and return whether that worked. If not, print a warning: a plot must not cost the results."""
    from robustfd.cli._console import warn

    try:
        draw()
    except Exception as error:
        warn(f"The plot {path} could not be drawn: {str(error) or type(error).__name__}")
        return False
    return True


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file, which is replaced only when the new one is complete."""
    from robustfd.cli._files import open_output

    try:
        with open_output(path) as file:
            figure.savefig(file, format=_format(path), dpi=150)
    finally:
        require_matplotlib().close(figure)


def _format(path: Path) -> str:
    """Return the image format that the name of a file selects."""
    return path.suffix.lstrip(".").lower() or "png"


def draw_progress(model: Any, path: Path) -> None:
    """Draw progressive loss and error against the number of rows."""
    plt = require_matplotlib()
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    model.plot_progress(ax=ax)
    save_figure(figure, path)


def draw_spectrum(model: Any, spectrum: list[tuple[float, float, float]], path: Path) -> None:
    """Draw the eigenvalues of a sketch (estimate, lower and upper bound)."""
    plt = require_matplotlib()
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    place = range(1, len(spectrum) + 1)
    estimate, lower, upper = ([each[k] for each in spectrum] for k in range(3))
    ax.fill_between(place, lower, upper, alpha=0.25, step="mid", label="certified bounds")
    ax.plot(place, estimate, "o-", markersize=3, label="estimate")
    if model.alpha_ > 0:
        ax.axhline(model.alpha_, color="0.5", linestyle=":", label=f"alpha = {model.alpha_:.4g}")
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("eigenvalue")
    ax.set_title(
        f"{type(model).__name__}: {model.n_samples_seen_:,} rows, {model.n_features_in_:,} features", fontsize="medium"
    )
    ax.set_ylabel("eigenvalues of A'A")
    ax.grid(alpha=0.3)
    ax.legend()
    save_figure(figure, path)
