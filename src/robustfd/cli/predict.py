"""`robustfd predict`: what a model says about rows of files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from robustfd.cli._guard import READ
from robustfd.cli._parameters import Files, Reading, TableOutput, Talk, command

Model = Annotated[
    Path, READ, typer.Argument(metavar="MODEL", help="A file that `robustfd train` wrote.", show_default=False)
]


@command
def predict(
    model: Model,
    files: Files,
    *,
    output: TableOutput = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Also the probability of each class.")] = False,
    reading: Reading,
    talk: Talk,
) -> None:
    """Predict the label of each row of FILES; labels that are there are not looked at."""
    from robustfd.cli._models import load_learner, open_like, without_labels
    from robustfd.cli._pass import report_losses
    from robustfd.cli._tables import table_writer
    from robustfd.cli._talk import tell

    learner, layout, reading = load_learner(model, reading)
    if probabilities and not hasattr(learner, "predict_proba"):
        raise ValueError(f"--probabilities is for classifiers, and {model} holds a {type(learner).__name__}.")
    stream = open_like(files, reading, learner, without_labels(layout))
    stream.wants_ids = True
    name = stream.layout.get("id")  # of the column, in tables
    named = name if isinstance(name, str) and name != "prediction" and not name.startswith("p(") else "id"
    with table_writer(output) as write:
        for block in stream:
            columns: dict[str, Any] = {"prediction": learner.predict(block.X)}
            if probabilities:
                chances = learner.predict_proba(block.X)
                columns |= {f"p({label})": chances[:, k] for k, label in enumerate(learner.classes_.tolist())}
            if block.id is not None:
                columns[named] = block.id
            write(columns)
    report_losses(stream, talk)
    if output is not None:
        tell(talk, {"rows": stream.rows_read, "file": str(output)})
