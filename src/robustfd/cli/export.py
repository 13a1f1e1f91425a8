"""`robustfd export`: the arrays of a sketch or a model, for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._file_use import WRITE, refuse_overlaps
from robustfd.cli._options import ConsoleOptions, SavedFile
from robustfd.cli._parameters import option

To = StrEnum("To", ["npz", "csv"])


@command
def export(
    file: SavedFile,
    *,
    to: Annotated[To, option(help="All arrays as .npz, or the sketch or the weights as CSV.")] = To.npz,
    output: Annotated[
        Path | None,
        WRITE,
        option("-o", "--output", help="Output file. Default: FILE with the new suffix."),
    ] = None,
    console: ConsoleOptions,
) -> None:
    """Write the arrays in FILE: B, alpha, singular values and mean, or weights, intercept and classes."""
    import numpy as np

    from robustfd.cli._console import print_result
    from robustfd.cli._files import open_output, require_writable
    from robustfd.cli._models import column_names, load_file
    from robustfd.cli._tables import csv_writer

    model, layout, *_ = load_file(file)
    output = output or file.with_suffix(f".{to}")
    refuse_overlaps([file], {"--output": output})  # again, because it may be the default
    require_writable(output)
    arrays = arrays_of(model)
    if to == To.npz:
        with open_output(output) as stream:
            np.savez(stream, **arrays)
    else:
        main, lead = ("sketch", []) if "sketch" in arrays else ("coef", ["intercept"])
        name = column_names(model, layout)
        rows = np.atleast_2d(arrays[main])
        if lead:
            rows = np.hstack([np.atleast_1d(arrays["intercept"])[:, None], rows])
        headers = lead + [name(column) for column in range(rows.shape[1] - len(lead))]
        with open_output(output) as stream:
            csv_writer(stream)(dict(zip(headers, rows.T)))
    print_result(console, {"file": str(output)} | {name: list(value.shape) for name, value in arrays.items()})


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
