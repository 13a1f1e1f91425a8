"""`robustfd ridge`: ridge regression from a sketch, as a table of weights."""

from typing import Annotated

from robustfd.cli._command import command
from robustfd.cli._options import AutoSketchSize, ConsoleOptions, Files, InputOptions, TableOutput
from robustfd.cli._parameters import option


@command
def ridge(
    files: Files,
    *,
    regularization: Annotated[
        float, option("-r", "--regularization", min=0.0, help="Multiple of the squared norm of the weights.")
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
    import warnings

    import numpy as np

    from robustfd import SketchedRidge, SketchSizeWarning
    from robustfd.cli._console import print_result, warn
    from robustfd.cli._files import open_labelled, require_labels, require_numeric_labels
    from robustfd.cli._progress_bar import blocks_with_progress
    from robustfd.cli._tables import table_writer

    model = SketchedRidge(regularization, sketch_size="auto" if sketch_size is None else sketch_size)
    stream = open_labelled(files, inputs, accepts_nan=False)
    for block in blocks_with_progress(stream, console):
        require_labels(block, files, stream)
        require_numeric_labels(block)
        model.partial_fit(block.X, block.y.astype(np.float64), sample_weight=block.weight)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SketchSizeWarning)
        used = np.flatnonzero(model.coef_)
    for each in caught:
        warn(str(each.message))
    names = np.array(["(intercept)", *map(stream.feature_name, used.tolist())], dtype=object)
    with table_writer(output) as write:
        write({"feature": names, "weight": np.append(float(model.intercept_), model.coef_[used].astype(np.float64))})
    if output is not None:
        counts = {"rows": stream.rows_read, "features": stream.n_features, "intercept": float(model.intercept_)}
        print_result(console, counts | {"error_bound": model.sketch_.error_bound_, "file": str(output)})
