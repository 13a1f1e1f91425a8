"""Pictures that commands draw."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any


def require_matplotlib() -> Any:
    """Return matplotlib's pyplot, drawing to files only; raise if it is not there."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("matplotlib is missing. Pictures need an extra: pip install 'robustfd[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def require_picture(path: Path) -> None:
    """Raise now rather than after the pass if a picture cannot be drawn there: an empty one is drawn, to nowhere."""
    from robustfd.cli._models import require_folder

    plt = require_matplotlib()
    figure = plt.figure(figsize=(1, 1))
    try:
        known = figure.canvas.get_supported_filetypes()
        if _kind(path) not in known:
            endings = ", ".join(f".{each}" for each in sorted(known))
            raise ValueError(f"{path} should end with one of {endings}, which says what to draw.")
        require_folder(path)
        figure.savefig(io.BytesIO(), format=_kind(path))
    finally:
        plt.close(figure)


def drawn(draw: Callable[[], None], path: Path) -> bool:
    """Draw, and return whether it went well: if not, there is a warning, because results matter more than pictures."""
    from robustfd.cli._talk import warn

    try:
        draw()
    except Exception as error:
        warn(f"The picture {path} could not be drawn: {str(error) or type(error).__name__}")
        return False
    return True


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file that is whole at any moment."""
    from robustfd.cli._tables import writing

    try:
        with writing(path) as file:
            figure.savefig(file, format=_kind(path), dpi=150)
    finally:
        require_matplotlib().close(figure)


def _kind(path: Path) -> str:
    """Return the kind of picture that the name of a file asks for."""
    return path.suffix.lstrip(".").lower() or "png"


def draw_progress(model: Any, path: Path) -> None:
    """Draw progressive loss and error against rows."""
    plt = require_matplotlib()
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    model.plot_progress(ax=ax)
    save(figure, path)


def draw_spectrum(model: Any, spectrum: list[tuple[float, float, float]], path: Path) -> None:
    """Draw the eigenvalues that a sketch knows of, with what they certainly lie between."""
    plt = require_matplotlib()
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    place = range(1, len(spectrum) + 1)
    estimate, least, most = ([each[k] for each in spectrum] for k in range(3))
    ax.fill_between(place, least, most, alpha=0.25, step="mid", label="certainly in here")
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
    save(figure, path)
