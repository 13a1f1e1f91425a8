"""The learners that `robustfd train` makes, and the summary of a learner."""

from typing import Any, NamedTuple


class LearnerOptions(NamedTuple):
    """The options of `robustfd train` that choose a learner."""

    task: str = "auto"
    learner: str = "newton"
    sketch_size: int | None = None
    loss: str = "squared"
    quantile: float | None = None
    classes: str | None = None


def make_learner(task: str, options: LearnerOptions) -> Any:
    """Return a new learner for "classification" or "regression"."""
    import robustfd

    _, learner, sketch_size, loss, quantile, _ = options
    kind = "Classifier" if task == "classification" else "Regressor"
    if loss != "squared" and task == "classification":
        raise ValueError(f"--loss {loss} is for regression, and the labels are classes. Add --task regression.")
    if (quantile is None) == (loss == "quantile"):
        raise ValueError("--quantile LEVEL and --loss quantile go together. Give both or none.")
    if learner == "rfdson":
        if loss != "squared":
            raise ValueError(f"--loss {loss} is for the learner newton; rfdson supports only the squared loss.")
        return getattr(robustfd, f"RFDSON{kind}")(**({} if sketch_size is None else {"sketch_size": sketch_size}))
    more: dict[str, Any] = {"loss": loss} if task == "regression" else {}
    if quantile is not None:
        more["quantile"] = quantile
    return getattr(robustfd, f"SketchedNewton{kind}")("auto" if sketch_size is None else sketch_size, **more)


def learner_summary(model: Any) -> dict[str, Any]:
    """Return the classes, counts and progressive errors of a learner."""
    result: dict[str, Any] = {"kind": type(model).__name__}
    if hasattr(model, "classes_"):
        result["classes"] = model.classes_.tolist()
    result |= {"rows": model.n_samples_seen_, "features": model.n_features_in_}
    for name in ("progressive_loss", "progressive_error"):
        if hasattr(model, f"{name}_"):
            result[name] = float(getattr(model, f"{name}_"))
    if hasattr(model, "hessian_"):
        result |= {"hessian": model.hessian_, "sketch_size": model.sketch_size_}
    return result
