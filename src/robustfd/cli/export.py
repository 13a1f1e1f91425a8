"""`robustfd export`: the numbers of a sketch or a model, for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import WRITE, refuse_overlaps
from robustfd.cli._parameters import Talk, command
from robustfd.cli.info import Model

To = StrEnum("To", ["npz", "csv"])


@command
def export(
    file: Model,
    *,
    to: Annotated[To, typer.Option(help="numpy's .npz of all arrays, or CSV of the sketch or the weights.")] = To.npz,
    output: Annotated[
        Path | None,
        WRITE,
        typer.Option("-o", "--output", help="By default FILE with the other ending.", show_default=False),
    ] = None,
    talk: Talk,
) -> None:
    """Write what is in FILE as arrays: B, alpha, singular values, mean; or weights, intercept and classes."""
    import numpy as np

    from robustfd.cli._models import column_names, load_model, require_folder
    from robustfd.cli._tables import csv_writer, writing
    from robustfd.cli._talk import tell

    model, layout = load_model(file)
    output = output or file.with_suffix(f".{to}")
    refuse_overlaps([file], {"--output": output})  # it may be the default
    require_folder(output)
    arrays = arrays_of(model)
    if to == To.npz:
        with writing(output) as stream:
            np.savez(stream, **arrays)
    else:
        main, lead = ("sketch", []) if "sketch" in arrays else ("coef", ["intercept"])
        name = column_names(model, layout)
        rows = np.atleast_2d(arrays[main])
        if lead:
            rows = np.hstack([np.atleast_1d(arrays["intercept"])[:, None], rows])
        heads = lead + [name(column) for column in range(rows.shape[1] - len(lead))]
        with writing(output) as stream:
            csv_writer(stream)(dict(zip(heads, rows.T)))
    tell(talk, {"file": str(output)} | {name: list(value.shape) for name, value in arrays.items()})


def arrays_of(model: Any) -> dict[str, Any]:
    """Return the arrays of a sketch or a learner by name."""
    import numpy as np

    from robustfd.cli._models import is_sketch, sketch_of

    model = model if hasattr(model, "coef_") else sketch_of(model)

    names = ("sketch", "alpha", "singular_values", "error_bound", "squared_norm", "mean")
    if not is_sketch(model):
        names = ("coef", "intercept", "offset", "classes", "weights", "alpha")
    found = {}
    for name in names:
        try:
            found[name] = np.asarray(getattr(model, f"{name}_"))
        except AttributeError:
            continue
    return found
