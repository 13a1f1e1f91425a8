"""`robustfd inspect`: the features of a model by name, the most important first."""

from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._options import ConsoleOptions, ModelFile
from robustfd.cli._parameters import option


@command
def inspect(
    model: ModelFile,
    *,
    top: Annotated[int, option("-k", "--top", min=1, help="Number of features per class.")] = 20,
    console: ConsoleOptions,
) -> None:
    """Show the most important features of MODEL, its progressive errors, and the spectrum of its sketch.

    The effect of a feature is its typical contribution to a prediction: its weight times its typical size. The mean is
    subtracted from features that are rarely 0, and the effect of others is scaled by the share of rows where they are
    not 0. Features of RFDSON are ranked by weight.
    """
    import numpy as np

    from robustfd.cli._console import print_result, text_table
    from robustfd.cli._learners import learner_summary
    from robustfd.cli._models import column_names, load_file
    from robustfd.streams.layout import signer

    learner, layout, *_ = load_file(model, "learner")
    result, tables = learner_summary(learner), []
    result |= {"weights": {}, "spectrum": {}}
    effects = by_output(learner, learner.effects_) if hasattr(learner, "effects_") else {}
    name, sign = column_names(learner, layout), signer(layout or {})
    for label, weights in by_output(learner, learner.coef_).items():
        rows = []
        for column in largest(effects.get(label, weights), top):
            # Hashing flips the sign of some features. Their weights and effects are shown for the original values.
            effect = {"effect": sign(column) * float(effects[label][column])} if effects else {}
            if column < len(weights):
                feature, weight = name(column), sign(column) * float(weights[column])
            else:
                feature, weight = f"{name(int(learner.missing_columns_[column - len(weights)]))} is missing", None
            rows.append({"feature": feature, **effect, "weight": weight})
        result["weights"][label] = rows
        cells = [["" if each is None else each for each in row.values()] for row in rows]
        tables.append(text_table(f"Features{of(label)}", cells, *(rows[0] if rows else ("feature",))))
    spectra = np.atleast_2d(learner.singular_values_)
    for label, values in zip(result["weights"] if len(spectra) > 1 else [""], spectra):
        result["spectrum"][label] = values.tolist()
        text = "  ".join(f"{value:.4g}" for value in values if value > 0) or "none yet"
        tables.append(text_table(f"Singular values of the sketch{of(label)}", [[text]]))
    print_result(console, result, *tables)


def of(label: str) -> str:
    """Return a label as the end of a title."""
    return f" of {label}" if label else ""


def by_output(learner: Any, values: Any) -> dict[str, Any]:
    """Return weights or effects of features by class; the class is "" for a regression."""
    import numpy as np

    values = np.atleast_2d(values)
    if not hasattr(learner, "classes_"):
        return {"": values[0]}
    labels = learner.classes_.tolist()
    return {str(labels[1]): values[0]} if len(values) == 1 else dict(zip(map(str, labels), values))


def largest(weights: Any, count: int) -> Any:
    """Return the columns of the weights with the largest absolute values, without zeros."""
    import numpy as np

    order = np.argsort(-np.abs(weights), kind="stable")[:count]
    return order[weights[order] != 0].tolist()
