"""`robustfd inspect`: the features of a model by name, those that matter most first."""

from typing import Annotated, Any

import typer

from robustfd.cli._parameters import Talk, command
from robustfd.cli.predict import Model


@command
def inspect(
    model: Model,
    *,
    top: Annotated[int, typer.Option("-k", "--top", min=1, help="How many features of each class.")] = 20,
    talk: Talk,
) -> None:
    """Show the features that matter most to MODEL, its rows and errors so far, and the spectrum of its sketch.

    The effect of a feature is what it usually adds to a prediction: its weight times its usual size, less its mean if
    it is seldom 0, and the share of rows where it is not 0. Features of RFDSON are ranked by weight.
    """
    import numpy as np

    from robustfd.cli._learning import about_learner
    from robustfd.cli._models import column_names, load_model
    from robustfd.cli._talk import columns, tell
    from robustfd.streams._names import signer

    learner, layout = load_model(model, "learner")
    result, tables, name = about_learner(learner), [], column_names(learner, layout)
    sign = signer(layout or {})  # a feature of the sign -1 has weight and effect turned round
    result |= {"weights": {}, "spectrum": {}}
    effects = by_output(learner, learner.effects_) if hasattr(learner, "effects_") else {}
    for label, weights in by_output(learner, learner.coef_).items():
        rows = []
        for column in largest(effects.get(label, weights), top):
            known = column < len(weights)
            called = (
                name(column) if known else f"{name(int(learner.missing_columns_[column - len(weights)]))} is missing"
            )
            effect = {"effect": sign(column) * float(effects[label][column])} if effects else {}
            weight = sign(column) * float(weights[column]) if known else None
            rows.append({"feature": called, **effect, "weight": weight})
        result["weights"][label] = rows
        cells = [["" if each is None else each for each in row.values()] for row in rows]
        tables.append(columns(f"Features{of(label)}", cells, *(rows[0] if rows else ("feature",))))
    spectra = np.atleast_2d(learner.singular_values_)
    for label, values in zip(result["weights"] if len(spectra) > 1 else [""], spectra):
        result["spectrum"][label] = values.tolist()
        text = "  ".join(f"{value:.4g}" for value in values if value > 0) or "none yet"
        tables.append(columns(f"Singular values of the sketch{of(label)}", [[text]]))
    tell(talk, result, *tables)


def of(label: str) -> str:
    """Return a label as the end of a title."""
    return f" of {label}" if label else ""


def by_output(learner: Any, values: Any) -> dict[str, Any]:
    """Return weights or effects of features by what they speak for: a class, or nothing if there is one output."""
    import numpy as np

    values = np.atleast_2d(values)
    if not hasattr(learner, "classes_"):
        return {"": values[0]}
    labels = learner.classes_.tolist()
    return {str(labels[1]): values[0]} if len(values) == 1 else dict(zip(map(str, labels), values))


def largest(weights: Any, count: int) -> Any:
    """Return the columns of the weights of largest size, none that are 0."""
    import numpy as np

    order = np.argsort(-np.abs(weights), kind="stable")[:count]
    return order[weights[order] != 0].tolist()
