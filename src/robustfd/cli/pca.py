"""`robustfd pca`: rows of files along the principal components that a sketch knows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import READ
from robustfd.cli._parameters import Files, Reading, TableOutput, Talk, command

Sketch = Annotated[
    Path,
    READ,
    typer.Argument(metavar="SKETCH", help="Made by `robustfd sketch --center` or SketchedPCA.", show_default=False),
]


@command
def pca(
    sketch: Sketch,
    files: Files,
    *,
    components: Annotated[int, typer.Option("-k", "--components", min=1, help="How many components.")] = 10,
    output: TableOutput = None,
    reading: Reading,
    talk: Talk,
) -> None:
    """Write the rows of FILES as k numbers each: along the first principal components of SKETCH."""
    import numpy as np

    from robustfd.cli._models import load_model, open_like
    from robustfd.cli._pass import report_losses
    from robustfd.cli._tables import table_writer
    from robustfd.cli._talk import say, tell

    model, layout = load_model(sketch, "sketch")
    directions, mean, variances, bound = principal(model, components)
    if mean is None:
        say(talk, f"{sketch} was made without --center: components go through the origin, not through the mean.")
    stream = open_like(files, reading, model, layout)
    shift = np.zeros(len(directions)) if mean is None else directions @ mean
    with table_writer(output) as write:
        for block in stream:
            scores = np.asarray(block.X @ directions.T) - shift
            columns: dict[str, Any] = {f"pc{k + 1}": scores[:, k] for k in range(len(directions))}
            write(columns if block.y is None else {"target": block.y, **columns})
    report_losses(stream, talk)
    if output is not None:
        result = {"rows": stream.rows_read, "components": len(directions), "file": str(output)}
        tell(talk, result | {"explained_variance": variances, "explained_variance_error_bound": bound})


def principal(model: Any, k: int) -> tuple[Any, Any, Any, float]:
    """Return the first k directions, the entry of largest size positive in each, mean, variances and their bound."""
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
