"""`robustfd outliers`: Mahalanobis distances of rows, and which of them are outliers."""

from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._options import AutoSketchSize, ConsoleOptions, Files, InputOptions, TableOutput
from robustfd.cli._parameters import option


@command
def outliers(
    files: Files,
    *,
    contamination: Annotated[
        float | None,
        option(help="Share of rows that are outliers, up to 0.5. Default: estimated from the distances."),
    ] = None,
    sketch_size: AutoSketchSize = None,
    output: TableOutput = None,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Write the squared Mahalanobis distance of each row of FILES, and whether the row is an outlier.

    FILES are read twice: the first pass sketches the covariance. Name a column of labels with --target to ignore it.
    """
    from robustfd import MahalanobisDetector
    from robustfd.cli._console import print_result
    from robustfd.cli._files import open_files
    from robustfd.cli._progress_bar import blocks_with_progress
    from robustfd.cli._tables import table_writer

    stream = open_files(files, inputs)
    if not stream.can_be_reread:
        raise ValueError("Outliers need two passes, and standard input can be read only once. Name a file.")
    model = MahalanobisDetector(
        "auto" if sketch_size is None else sketch_size,
        contamination="auto" if contamination is None else contamination,
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
