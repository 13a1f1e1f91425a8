"""`robustfd predict`: predictions of a model for rows of files."""

from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._options import ConsoleOptions, Files, InputOptions, ModelFile, TableOutput
from robustfd.cli._parameters import option


@command
def predict(
    model: ModelFile,
    files: Files,
    *,
    output: TableOutput = None,
    probabilities: Annotated[bool, option("--probabilities", help="Also write the probability of each class.")] = False,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Predict the label of each row of FILES with MODEL. Labels in FILES are ignored."""
    from robustfd.cli._console import print_result
    from robustfd.cli._files import accepts_nan, open_for_model, report_skipped
    from robustfd.cli._models import load_learner, without_labels
    from robustfd.cli._tables import table_writer

    (learner, layout, *_), inputs = load_learner(model, inputs)
    if probabilities and not hasattr(learner, "predict_proba"):
        raise ValueError(f"--probabilities is for classifiers, and {model} holds a {type(learner).__name__}.")
    stream = open_for_model(files, inputs, learner, without_labels(layout))
    stream.wants_ids = True
    stream.plain_rows = accepts_nan(learner)
    name = stream.layout.get("id")  # tables have a column of ids with a name
    id_column = name if isinstance(name, str) and name != "prediction" and not name.startswith("p(") else "id"
    with table_writer(output) as write:
        for block in stream:
            columns: dict[str, Any] = {"prediction": learner.predict(block.X)}
            if probabilities:
                found = learner.predict_proba(block.X)
                columns |= {f"p({label})": found[:, k] for k, label in enumerate(learner.classes_.tolist())}
            if block.id is not None:
                columns[id_column] = block.id
            write(columns)
    report_skipped(stream, console)
    if output is not None:
        print_result(console, {"rows": stream.rows_read, "file": str(output)})
