"""Pictures that commands draw."""

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


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file that is whole at any moment."""
    from robustfd.cli._tables import writing

    suffix = path.suffix.lstrip(".") or "png"
    with writing(path) as file:
        figure.savefig(file, format=suffix, dpi=150)
    require_matplotlib().close(figure)


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
