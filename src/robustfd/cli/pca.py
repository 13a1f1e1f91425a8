"""`robustfd pca`: rows of files projected onto the principal components of a sketch."""

from pathlib import Path
from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._file_use import READ
from robustfd.cli._options import ConsoleOptions, Files, InputOptions, TableOutput
from robustfd.cli._parameters import argument, option

Sketch = Annotated[
    Path,
    READ,
    argument("SKETCH", help="File from `robustfd sketch --center` or SketchedPCA."),
]


@command
def pca(
    sketch: Sketch,
    files: Files,
    *,
    components: Annotated[int, option("-k", "--components", min=1, help="Number of components.")] = 10,
    output: TableOutput = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Project the rows of FILES onto the first k principal components of SKETCH, and write the k scores of each row."""
    import numpy as np

    from robustfd.cli._console import log, print_result
    from robustfd.cli._files import open_for_model, report_skipped
    from robustfd.cli._models import load_file
    from robustfd.cli._tables import table_writer

    model, layout, *_ = load_file(sketch, "sketch")
    directions, mean, variances, bound = principal_components(model, components)
    if mean is None:
        log(console, f"{sketch} was made without --center: components go through the origin, not through the mean.")
    stream = open_for_model(files, inputs, model, layout)
    shift = np.zeros(len(directions)) if mean is None else directions @ mean
    with table_writer(output) as write:
        for block in stream:
            scores = np.asarray(block.X @ directions.T) - shift
            columns: dict[str, Any] = {f"pc{k + 1}": scores[:, k] for k in range(len(directions))}
            write(columns if block.y is None else {"target": block.y, **columns})
    report_skipped(stream, console)
    if output is not None:
        result = {"rows": stream.rows_read, "components": len(directions), "file": str(output)}
        print_result(console, result | {"explained_variance": variances, "explained_variance_error_bound": bound})


def principal_components(model: Any, k: int) -> tuple[Any, Any, Any, float]:
    """Return the first k directions, the mean, the explained variances and their error bound.

    The sign of a direction is such that its entry of largest absolute value is positive.
    """
    import numpy as np

    from robustfd.cli._models import sketch_of

    analysis, model = model, sketch_of(model)
    known = analysis if hasattr(analysis, "explained_variance_") else model
    directions = np.asarray(known.components_, dtype=np.float64)
    if k > len(directions):
        raise ValueError(f"-k must be at most {len(directions)}, the rows of the sketch, got {k}.")
    directions = directions[:k]
    if known is analysis and known is not model:
        bound = analysis.explained_variance_error_bound_
        return directions, analysis.mean_, analysis.explained_variance_[:k], bound
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(k), largest])[:, None]
    mean, freedom = model.mean_ if model.center else None, max(model.weight_sum_ - 1, 1)
    variances = (np.square(model.singular_values_[:k]) + model.alpha_ - model.alpha0) / freedom
    return directions, mean, variances, model.error_bound_ / freedom
