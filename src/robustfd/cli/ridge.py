"""`robustfd ridge`: ridge regression of files by a sketch, as a table of weights."""

from typing import Annotated

import typer

from robustfd.cli._parameters import AutoSketchSize, Files, Reading, TableOutput, Talk, command


@command
def ridge(
    files: Files,
    *,
    regularization: Annotated[
        float, typer.Option("-r", "--regularization", min=0.0, help="Multiple of the squared norm of the weights.")
    ] = 1.0,
    sketch_size: AutoSketchSize = None,
    output: TableOutput = None,
    reading: Reading,
    talk: Talk,
) -> None:
    """Write the weights of a ridge regression of the labels of FILES, learnt in one pass and constant memory.

    The table has the intercept and the features whose weight is not 0, by name. The weights are those of ridge
    regression, exactly, with up to 1000 features or a rank below the size of the sketch; else there may be a warning.
    """
    import warnings

    import numpy as np

    from robustfd import SketchedRidge, SketchSizeWarning
    from robustfd.cli._learning import no_labels, open_labelled
    from robustfd.cli._pass import Bar, report_losses
    from robustfd.cli._tables import table_writer
    from robustfd.cli._talk import tell, warn

    model = SketchedRidge(regularization, sketch_size="auto" if sketch_size is None else sketch_size)
    stream = open_labelled(files, reading, takes_missing=False)
    with Bar(stream, talk) as bar:
        for block in stream:
            if block.y is None:
                raise no_labels(files, stream)
            if block.y.dtype.kind not in "iuf":
                raise ValueError(f"Labels like {block.y[0]!r} are no numbers, which a regression needs.")
            model.partial_fit(block.X, block.y.astype(np.float64), sample_weight=block.weight)
            bar.moved(stream.position, dict)
    report_losses(stream, talk)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", SketchSizeWarning)
        used = np.flatnonzero(model.coef_)
    for each in found:
        warn(str(each.message))
    names = np.array(["(intercept)", *map(stream.feature_name, used.tolist())], dtype=object)
    with table_writer(output) as write:
        write({"feature": names, "weight": np.append(float(model.intercept_), model.coef_[used].astype(np.float64))})
    if output is not None:
        counts = {"rows": stream.rows_read, "features": stream.n_features, "intercept": float(model.intercept_)}
        tell(talk, counts | {"error_bound": model.sketch_.error_bound_, "file": str(output)})
