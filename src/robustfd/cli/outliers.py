"""`robustfd outliers`: how far each row of files is from the others, and which are too far."""

from typing import Annotated, Any

import typer

from robustfd.cli._parameters import AutoSketchSize, Files, Reading, TableOutput, Talk, command


@command
def outliers(
    files: Files,
    *,
    contamination: Annotated[
        float | None,
        typer.Option(
            help="Share of rows that are outliers, up to 0.5; by default what their distances tell.", show_default=False
        ),
    ] = None,
    sketch_size: AutoSketchSize = None,
    output: TableOutput = None,
    reading: Reading,
    talk: Talk,
) -> None:
    """Write the squared Mahalanobis distance of each row of FILES, and whether it is an outlier.

    FILES are read twice: the covariance is sketched first. Labels are not looked at if --target names their column.
    """
    from robustfd import MahalanobisDetector
    from robustfd.cli._pass import Bar, open_files, report_losses
    from robustfd.cli._tables import table_writer
    from robustfd.cli._talk import tell

    stream = open_files(files, reading)
    if not stream.can_be_reread:
        raise ValueError("Outliers are found in a second pass, and standard input can be read only once: name a file.")
    model = MahalanobisDetector(
        "auto" if sketch_size is None else sketch_size,
        contamination="auto" if contamination is None else contamination,
    )
    with Bar(stream, talk) as bar:
        for block in stream:
            model.partial_fit(block.X, sample_weight=block.weight)
            bar.moved(stream.position, dict)
    report_losses(stream, talk)
    stream.wants_ids, found = True, 0
    with table_writer(output) as write:
        for block in stream:
            distance = model.mahalanobis(block.X)
            far = -distance < model.offset_
            found += int(far.sum())
            columns: dict[str, Any] = {"distance": distance, "outlier": far.astype(int)}
            write(columns if block.id is None else {**columns, "id": block.id})
    if output is not None:
        tell(talk, {"rows": stream.rows_read, "outliers": found, "file": str(output)})
