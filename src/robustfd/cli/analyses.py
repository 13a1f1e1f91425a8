"""`robustfd pca`, `ridge` and `outliers`: analyses by sketches, written as tables."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import robustfd
from robustfd.cli._command import command
from robustfd.cli._console import log, print_result, warn
from robustfd.cli._files import (
    load_file,
    open_files,
    open_for_model,
    open_labelled,
    report_skipped,
    require_labels,
    sketch_of,
)
from robustfd.cli._learning import require_numbers
from robustfd.cli._options import (
    READ,
    AutoSketchSize,
    ConsoleOptions,
    Files,
    InputOptions,
    TableOutput,
    argument,
    option,
)
from robustfd.cli._output import table_writer
from robustfd.cli._pass import blocks_with_progress


@command
def pca(
    sketch: Annotated[Path, argument("SKETCH", "File from `robustfd sketch --center` or SketchedPCA.", READ)],
    files: Files,
    *,
    components: Annotated[int, option("Number of components.", "-k", "--components", min=1)] = 10,
    output: TableOutput = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Project the rows of FILES onto the first k principal components of SKETCH, and write the k scores of each row."""
    model, layout, *_ = load_file(sketch, "sketch")
    directions, mean, variances, bound = _principal_components(model, components)
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


def _principal_components(model: Any, k: int) -> tuple[Any, Any, Any, float]:
    """Return the first k directions, the mean, the explained variances and their error bound.

    The sign of a direction is such that its entry of largest absolute value is positive.
    """
    analysis, model = model, sketch_of(model)
    known = analysis if hasattr(analysis, "explained_variance_") else model
    directions = np.asarray(known.components_, dtype=np.float64)
    if k > len(directions):
        raise ValueError(f"-k must be at most {len(directions)}, the rows of the sketch, got {k}.")
    directions = directions[:k]
    if known is not model:
        bound = analysis.explained_variance_error_bound_
        return directions, analysis.mean_, analysis.explained_variance_[:k], bound
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(k), largest])[:, None]
    mean, freedom = model.mean_ if model.center else None, max(model.weight_sum_ - 1, 1)
    variances = (np.square(model.singular_values_[:k]) + model.alpha_ - model.alpha0) / freedom
    return directions, mean, variances, model.error_bound_ / freedom


@command
def ridge(
    files: Files,
    *,
    regularization: Annotated[
        float, option("Multiple of the squared norm of the weights.", "-r", "--regularization", min=0.0)
    ] = 1.0,
    sketch_size: AutoSketchSize = None,
    output: TableOutput = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Write the weights of a ridge regression on the labels of FILES, from one pass in constant memory.

    The table has the intercept and the features with a nonzero weight, by name. The weights are exact with up to 1000
    features, or if the rank is below the size of the sketch. Otherwise the command may print a warning.
    """
    model = robustfd.SketchedRidge(regularization, sketch_size="auto" if sketch_size is None else sketch_size)
    stream = open_labelled(files, inputs, accepts_nan=False)
    for block in blocks_with_progress(stream, console):
        require_labels(block, files, stream)
        require_numbers(block.y)
        model.partial_fit(block.X, block.y.astype(np.float64), sample_weight=block.weight)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", robustfd.SketchSizeWarning)
        used = np.flatnonzero(model.coef_)
    for each in caught:
        warn(str(each.message))
    names = np.array(["(intercept)", *map(stream.feature_name, used.tolist())], dtype=object)
    with table_writer(output) as write:
        write({"feature": names, "weight": np.append(float(model.intercept_), model.coef_[used].astype(np.float64))})
    if output is not None:
        counts = {"rows": stream.rows_read, "features": stream.n_features, "intercept": float(model.intercept_)}
        print_result(console, counts | {"error_bound": model.sketch_.error_bound_, "file": str(output)})


@command
def outliers(
    files: Files,
    *,
    contamination: Annotated[
        float | None, option("Share of rows that are outliers, up to 0.5. Default: estimated from the distances.")
    ] = None,
    sketch_size: AutoSketchSize = None,
    output: TableOutput = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Write the squared Mahalanobis distance of each row of FILES, and whether the row is an outlier.

    FILES are read twice: the first pass sketches the covariance. Name a column of labels with --target to ignore it.
    """
    stream = open_files(files, inputs)
    if not stream.can_be_reread:
        raise ValueError("Outliers need two passes, and standard input can be read only once. Name a file.")
    model = robustfd.MahalanobisDetector(
        "auto" if sketch_size is None else sketch_size, contamination="auto" if contamination is None else contamination
    )
    for block in blocks_with_progress(stream, console):
        model.partial_fit(block.X, sample_weight=block.weight)
    stream.wants_ids, found = True, 0
    with table_writer(output) as write:
        for block in stream:
            distance = model.mahalanobis(block.X)
            is_outlier = -distance < model.offset_
            found += int(is_outlier.sum())
            columns: dict[str, Any] = {"distance": distance, "outlier": is_outlier.astype(int)}
            write(columns if block.id is None else {**columns, "id": block.id})
    if output is not None:
        print_result(console, {"rows": stream.rows_read, "outliers": found, "file": str(output)})
