"""`robustfd inspect`: the largest weights of a model by name."""

from typing import Annotated, Any

import typer

from robustfd.cli._parameters import Talk, command
from robustfd.cli.predict import Model


@command
def inspect(
    model: Model,
    *,
    top: Annotated[int, typer.Option("-k", "--top", min=1, help="How many weights of each class.")] = 20,
    talk: Talk,
) -> None:
    """Show the largest weights of MODEL by name, its rows and errors so far, and the spectrum of its sketch."""
    import numpy as np

    from robustfd.cli._learning import about_learner
    from robustfd.cli._models import column_names, load_model
    from robustfd.cli._talk import columns, tell

    learner, layout = load_model(model, "learner")
    result, tables, name = about_learner(learner), [], column_names(learner, layout)
    result |= {"weights": {}, "spectrum": {}}
    for label, weights in weights_by_output(learner).items():
        rows = [(name(column), float(weights[column])) for column in largest(weights, top)]
        result["weights"][label] = [{"feature": feature, "weight": weight} for feature, weight in rows]
        tables.append(columns(f"Weights{of(label)}", rows, "feature", "weight"))
    spectra = np.atleast_2d(learner.singular_values_)
    for label, values in zip(result["weights"] if len(spectra) > 1 else [""], spectra):
        result["spectrum"][label] = values.tolist()
        text = "  ".join(f"{value:.4g}" for value in values if value > 0) or "none yet"
        tables.append(columns(f"Singular values of the sketch{of(label)}", [[text]]))
    tell(talk, result, *tables)


def of(label: str) -> str:
    """Return a label as the end of a title."""
    return f" of {label}" if label else ""


def weights_by_output(learner: Any) -> dict[str, Any]:
    """Return the weights of features by what they speak for: a class, or nothing if there is one output."""
    import numpy as np

    weights = np.atleast_2d(learner.coef_)
    if not hasattr(learner, "classes_"):
        return {"": weights[0]}
    labels = learner.classes_.tolist()
    return {str(labels[1]): weights[0]} if len(weights) == 1 else dict(zip(map(str, labels), weights))


def largest(weights: Any, count: int) -> Any:
    """Return the columns of the weights of largest size, none that are 0."""
    import numpy as np

    order = np.argsort(-np.abs(weights), kind="stable")[:count]
    return order[weights[order] != 0].tolist()
