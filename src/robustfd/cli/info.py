"""`robustfd info`: the contents of a sketch or model file."""

from pathlib import Path
from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._file_use import WRITE
from robustfd.cli._options import ConsoleOptions, SavedFile
from robustfd.cli._parameters import option

MOST_VALUES = 10  # eigenvalues in the printed table


@command
def info(
    file: SavedFile,
    *,
    plot: Annotated[
        Path | None,
        WRITE,
        option(metavar="FILE", help="Plot the spectrum with its certified bounds."),
    ] = None,
    console: ConsoleOptions,
) -> None:
    """Describe FILE: rows, features, alpha, certified error and spectrum of a sketch. See inspect for models."""
    from robustfd.cli._console import print_result, text_table
    from robustfd.cli._learners import learner_summary
    from robustfd.cli._models import is_sketch, load_file, sketch_of
    from robustfd.cli._plots import draw_spectrum, require_plot
    from robustfd.cli._sketches import sketch_summary

    model = load_file(file).model
    sketch = sketch_of(model)
    if not is_sketch(sketch):
        if plot is not None:
            raise ValueError(f"--plot draws the spectrum of a sketch, and {file} holds a {type(model).__name__}.")
        print_result(console, learner_summary(model))
        return
    if plot is not None:
        require_plot(plot)
    result = sketch_summary(sketch) | {"parameters": sketch.get_params(deep=False)}
    if sketch is not model:
        result |= {"kind": type(model).__name__, "sketch": type(sketch).__name__}
    spectrum = bounded_eigenvalues(sketch)
    rows = [(f"{place}", *each) for place, each in enumerate(spectrum[:MOST_VALUES], 1)]
    more = f" (the first {MOST_VALUES} of {len(spectrum)})" if len(spectrum) > MOST_VALUES else ""
    headers = ("", "estimate", "at least", "at most")
    result["spectrum"] = [dict(zip(("estimate", "least", "most"), each)) for each in spectrum]
    print_result(console, result, text_table(f"Eigenvalues of A'A{more}", rows, *headers))
    if plot is not None:
        draw_spectrum(sketch, spectrum, plot)


def bounded_eigenvalues(sketch: Any) -> list[tuple[float, float, float]]:
    """Return the estimate, the lower and the upper bound of each eigenvalue of A'A + alpha0 I in the sketch."""
    lower, upper = sketch.bracket_eigenvalues()
    estimates = sketch.singular_values_**2 + sketch.alpha_
    return [(float(e), float(low), float(high)) for e, low, high in zip(estimates, lower, upper)]
