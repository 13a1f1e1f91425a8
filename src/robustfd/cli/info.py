"""`robustfd info`: what is in a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import READ, WRITE
from robustfd.cli._parameters import Talk, command

Model = Annotated[Path, READ, typer.Argument(metavar="FILE", help="A sketch or a model.", show_default=False)]
MOST = 10  # singular values in the table


@command
def info(
    file: Model,
    *,
    plot: Annotated[
        Path | None, WRITE, typer.Option(help="Draw the spectrum and its certificate to this file.", show_default=False)
    ] = None,
    talk: Talk,
) -> None:
    """Tell what is in FILE: rows, features, alpha, certified error and spectrum of a sketch; see inspect for models."""
    from robustfd.cli._figures import draw_spectrum, require_picture
    from robustfd.cli._learning import about_learner
    from robustfd.cli._models import is_sketch, load_model, sketch_of
    from robustfd.cli._talk import columns, tell
    from robustfd.cli.sketch import summary

    whole, _ = load_model(file)
    model = sketch_of(whole)
    if not is_sketch(model):
        if plot is not None:
            raise ValueError(f"--plot draws the spectrum of a sketch, and {file} holds a {type(model).__name__}.")
        tell(talk, about_learner(model))
        return
    if plot is not None:
        require_picture(plot)
    result = summary(model) | {"parameters": model.get_params(deep=False)}
    if model is not whole:
        result |= {"kind": type(whole).__name__, "sketch": type(model).__name__}
    spectrum = brackets(model)
    rows = [(f"{place}", *each) for place, each in enumerate(spectrum[:MOST], 1)]
    more = f" (the first {MOST} of {len(spectrum)})" if len(spectrum) > MOST else ""
    heads = ("", "estimate", "at least", "at most")
    result["spectrum"] = [dict(zip(("estimate", "least", "most"), each)) for each in spectrum]
    tell(talk, result, columns(f"Eigenvalues of A'A{more}", rows, *heads))
    if plot is not None:
        draw_spectrum(model, spectrum, plot)


def brackets(model: Any) -> list[tuple[float, float, float]]:
    """Return for each eigenvalue of A'A + alpha0 I that the sketch knows of an estimate and what it lies between."""
    lower, upper = model.bracket_eigenvalues()
    estimates = model.singular_values_**2 + model.alpha_
    return [(float(e), float(low), float(high)) for e, low, high in zip(estimates, lower, upper)]
