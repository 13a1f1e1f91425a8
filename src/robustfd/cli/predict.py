"""`robustfd predict`, `evaluate` and `inspect`: what a model predicts, how well, and by which features."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from robustfd.cli._command import command
from robustfd.cli._console import Table, print_result, text_table
from robustfd.cli._files import (
    TARGETS,
    accepts_nan,
    column_names,
    coverage_tables,
    layout_of_table,
    load_file,
    load_learner,
    open_for_model,
    report_skipped,
    require_labels,
    summary,
)
from robustfd.cli._learning import ClassificationScorer, labels_for, scorer_for
from robustfd.cli._options import ConsoleOptions, Files, InputOptions, ModelFile, TableOutput, option
from robustfd.cli._output import table_writer
from robustfd.streams import Block, Stream
from robustfd.streams.crossing import namer
from robustfd.streams.layout import Layout, names_in, signer

MOST_COLUMNS = 1000  # of features without a table, up to which contributions are written
MOST_CLASSES = 20  # up to which the confusion matrix is printed
_INTERVAL = (
    "Also write intervals that cover this share of the labels, from 0 to 1, as columns low and high; for classes a "
    "column set. Needs a model of train --intervals."
)


@command
def predict(
    model: ModelFile,
    files: Files,
    *,
    output: TableOutput = None,
    probabilities: Annotated[bool, option("Also write the probability of each class.")] = False,
    interval: Annotated[float | None, option(_INTERVAL, metavar="LEVEL")] = None,
    contributions: Annotated[bool, option("Also write what each column of FILES adds to the prediction.")] = False,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Predict the label of each row of FILES with MODEL. Labels in FILES are ignored.

    Contributions and the intercept of a row sum to the prediction: to the margin of a class, the predicted number, or
    the logarithm of a count. Only the untuned learners have them.
    """
    (learner, layout, *_), inputs = load_learner(model, inputs)
    if probabilities and not hasattr(learner, "predict_proba"):
        raise ValueError(f"--probabilities is for classifiers, and {model} holds a {type(learner).__name__}.")
    if interval is not None:
        if not getattr(learner, "intervals", False):
            raise ValueError(f"--interval needs a model of train --intervals, and {model} holds one without.")
        if not 0 < interval < 1:
            raise ValueError(f"--interval must be between 0 and 1, both excluded, got {interval:g}.")
    stream = open_for_model(files, inputs, learner, _without_labels(layout))
    stream.wants_ids = True
    stream.plain_rows = accepts_nan(learner) and not contributions
    explain = _explainer(model, learner, layout, stream) if contributions else None
    name = stream.layout.get("id")  # tables have a column of ids with a name
    taken = ("prediction", "p(", "low", "high", "set", "contribution(", "intercept")
    id_column = name if isinstance(name, str) and not name.startswith(taken) else "id"
    with table_writer(output) as write:
        for block in stream:
            columns = _predictions(learner, block.X)
            if probabilities:
                found = learner.predict_proba(block.X)
                columns |= {f"p({label})": found[:, k] for k, label in enumerate(learner.classes_.tolist())}
            if interval is not None:
                columns |= _within(learner, block.X, interval)
            if explain is not None:
                columns |= explain(block)
            if block.id is not None:
                columns[id_column] = block.id
            write(columns)
    report_skipped(stream, console)
    if output is not None:
        print_result(console, {"rows": stream.rows_read, "file": str(output)})


def _predictions(learner: Any, X: Any) -> dict[str, Any]:
    """Return the column of predictions, or one for each of several quantiles."""
    found = learner.predict(X)
    if found.ndim == 1:
        return {"prediction": found}
    return {f"prediction({level:g})": found[:, k] for k, level in enumerate(learner.quantile)}


def _within(learner: Any, x: Any, level: float) -> dict[str, Any]:
    """Return the columns of intervals, or of sets: labels with a space between them."""
    if not hasattr(learner, "predict_set"):
        low, high = learner.predict_interval(x, level).T
        return {"low": low, "high": high}
    labels = [str(label) for label in learner.classes_.tolist()]
    found = learner.predict_set(x, level)
    return {"set": np.array([" ".join(label for label, inside in zip(labels, row) if inside) for row in found])}


def _explainer(
    path: Path, learner: Any, layout: dict[str, Any] | None, stream: Stream
) -> Callable[[Block], dict[str, Any]]:
    """Return a function from blocks of a stream to the contributions of their columns, and the rest of predictions."""
    if not hasattr(learner, "contributions"):
        raise ValueError(f"--contributions is for the untuned learners, and {path} holds a {type(learner).__name__}.")
    from robustfd.estimators.explain import by_column, by_feature, rests

    table = Layout.from_json(stream.layout) if stream.layout.get("kind") == "table" else None
    if table is not None:
        stream.groups = tuple(column.name for column in table.texts)
        names = [column.name for column in table.columns]
    elif stream.n_features <= MOST_COLUMNS:
        names = [namer(layout or stream.layout)(column) for column in range(stream.n_features)]
    else:
        raise ValueError(
            f"--contributions is for tables, and for at most {MOST_COLUMNS} features. {path} has {stream.n_features}."
        )
    labels = learner._output_labels()
    of = ["" if label is None else f", {label}" for label in labels]

    def explain(block: Block) -> dict[str, Any]:
        found = by_feature(learner, block.X, block.parts)
        rest = rests(learner, block.X, found)
        if table is not None:
            found = by_column(table, names_in(layout or {}), found, block.parts)
        dense = [each if isinstance(each, np.ndarray) else each.toarray() for each in found]
        columns: dict[str, Any] = {}
        for label, end, values, left in zip(labels, of, dense, rest.T):
            columns |= {f"contribution({name}{end})": values[:, k] for k, name in enumerate(names)}
            columns["intercept" if label is None else f"intercept({label})"] = left
        return columns

    return explain


def _without_labels(layout: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a layout of a table that does not require the columns of labels and weights."""
    if layout is not None and layout.get("kind") == "interactions" and isinstance(layout.get("of"), dict):
        return layout | {"of": _without_labels(layout["of"])}
    if layout is None or layout.get("kind") != "table":
        return layout
    return {name: value for name, value in layout.items() if name not in ("target", "weight")}


@command
def evaluate(model: ModelFile, files: Files, *, inputs: InputOptions, console: ConsoleOptions) -> None:
    """Score MODEL on the labelled rows of FILES.

    The scores are error and log loss; squared error, absolute error and R2; or, for several quantiles, their mean
    pinball loss and the share of the labels below each.
    """
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


@command
def inspect(
    model: ModelFile,
    *,
    top: Annotated[int, option("Number of features per class.", "-k", "--top", min=1)] = 20,
    console: ConsoleOptions,
) -> None:
    """Show the most important features of MODEL, its progressive errors, and the spectrum of its sketch.

    The effect of a feature is its typical contribution to a prediction: its weight times its typical size. The mean is
    subtracted from features that are rarely 0, and the effect of others is scaled by the share of rows where they are
    not 0. Features of RFDSON are ranked by weight.
    """
    learner, layout, *_ = load_file(model, "learner")
    layout = layout_of_table(learner) if layout is None else layout
    result = summary(learner)
    tables = coverage_tables(result)
    result |= {"weights": {}, "spectrum": {}}
    effects = _by_output(learner, learner.effects_) if hasattr(learner, "effects_") else {}
    name, sign = column_names(learner, layout), signer(layout or {})
    for label, weights in _by_output(learner, learner.coef_).items():
        rows = []
        for column in _largest(effects.get(label, weights), top):
            # Hashing flips the sign of some features. Their weights and effects are shown for the original values.
            effect = {"effect": sign(column) * float(effects[label][column])} if effects else {}
            if column < len(weights):
                feature, weight = name(column), sign(column) * float(weights[column])
            else:
                feature, weight = f"{name(int(learner.missing_columns_[column - len(weights)]))} is missing", None
            rows.append({"feature": feature, **effect, "weight": weight})
        result["weights"][label] = rows
        cells = [["" if each is None else each for each in row.values()] for row in rows]
        tables.append(text_table(f"Features{_of(label)}", cells, *(rows[0] if rows else ("feature",))))
    spectra = np.atleast_2d(learner.singular_values_)
    for label, values in zip(result["weights"] if len(spectra) > 1 else [""], spectra):
        result["spectrum"][label] = values.tolist()
        text = "  ".join(f"{value:.4g}" for value in values if value > 0) or "none yet"
        tables.append(text_table(f"Singular values of the sketch{_of(label)}", [[text]]))
    if "experts" in result:
        title = "Kinds of experts and their shares in predictions"
        shares = sorted(((share, kind) for kind, share in result["experts"].items()), reverse=True)
        tables.append(text_table(title, [(kind, share) for share, kind in shares]))
    if getattr(learner, "expand", None) is not None:
        tables += _tree_tables(learner, result)
    print_result(console, result, *tables)


def _tree_tables(learner: Any, result: dict[str, Any]) -> list[Table]:
    """Add what trees do to the result, and return it as tables."""
    gains = {
        " x ".join(map(str, key)) if isinstance(key, tuple) else str(key): value
        for key, value in learner.interactions_.items()
    }
    result["interactions"] = gains
    shares = list(result["expansion"].items())
    tables = [text_table("Learners and their shares in predictions", shares)]
    if gains:
        tables.append(text_table("Columns, and pairs of columns, in the gains of the trees", list(gains.items())))
    return tables


def _of(label: str) -> str:
    """Return a label as the end of a title."""
    return f" of {label}" if label else ""


def _by_output(learner: Any, values: Any) -> dict[str, Any]:
    """Return weights or effects of features by class or by quantile; "" for a regression with one output."""
    values = np.atleast_2d(values)
    if not hasattr(learner, "classes_"):
        return {"": values[0]} if len(values) == 1 else dict(zip(map(str, learner.quantile), values))
    labels = learner.classes_.tolist()
    return {str(labels[1]): values[0]} if len(values) == 1 else dict(zip(map(str, labels), values))


def _largest(weights: Any, count: int) -> list[int]:
    """Return the columns of the weights with the largest absolute values, without zeros."""
    order = np.argsort(-np.abs(weights), kind="stable")[:count]
    found: list[int] = order[weights[order] != 0].tolist()
    return found
