"""`robustfd evaluate`: scores of a model on labelled rows."""

from robustfd.cli._command import command
from robustfd.cli._options import ConsoleOptions, Files, InputOptions, ModelFile

MOST_CLASSES = 20  # up to which the confusion matrix is printed


@command
def evaluate(model: ModelFile, files: Files, *, inputs: InputOptions, console: ConsoleOptions) -> None:
    """Score MODEL on the labelled rows of FILES: error and log loss, or squared error, absolute error and R2."""
    from robustfd.cli._console import print_result, text_table
    from robustfd.cli._files import TARGETS, open_for_model, report_skipped, require_labels
    from robustfd.cli._labels import labels_for
    from robustfd.cli._models import load_learner
    from robustfd.cli._scores import ClassificationScorer, scorer_for

    (learner, layout, *_), inputs = load_learner(model, inputs)
    target = TARGETS if layout is None else None
    stream = open_for_model(files, inputs, learner, layout, target=target, unlabelled="skip")
    scorer = scorer_for(learner)
    for block in stream:
        require_labels(block, files, stream)
        scorer.add(block.X, labels_for(learner, block.y))
    report_skipped(stream, console)
    tables = []
    if isinstance(scorer, ClassificationScorer) and len(labels := scorer.labels()) <= MOST_CLASSES:
        rows = [(truth, *(scorer.pairs[truth, predicted] for predicted in labels)) for truth in labels]
        tables = [text_table("Rows by true class (down) and predicted class (across)", rows, "", *map(str, labels))]
    print_result(console, {"model": str(model), "rows": stream.rows_read} | scorer.result(), *tables)
