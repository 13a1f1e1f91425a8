"""The sketches that `robustfd sketch` makes, and the summary of a sketch."""

from dataclasses import replace
from enum import StrEnum
from typing import Any

from robustfd.cli._options import InputOptions

METHODS = {
    "rfd": "RobustFrequentDirections", "fd": "FrequentDirections", "pfd": "ParameterizedFrequentDirections",
    "cfd": "CompensativeFrequentDirections", "greedy": "GreedySketch", "diagonal": "DiagonalFrequentDirections",
    "rp": "RandomProjectionSketch", "oja": "OjaSketch", "exact": "ExactSecondMoment",
}  # fmt: skip
Method = StrEnum("Method", ["rfd", "fd", "pfd", "cfd", "greedy", "diagonal", "rp", "oja", "exact"])


def sketch_type(
    method: Method, decay: float, window: float | None, time: str | None, inputs: InputOptions
) -> tuple[Any, InputOptions]:
    """Return the class of the sketch, and the input options; raise if the options contradict each other."""
    import robustfd

    if window is None:
        if time is not None:
            raise ValueError(f"--time {time} needs --window, which counts in its units.")
        return getattr(robustfd, METHODS[method]), inputs
    if method != Method.rfd or decay != 1.0:
        raise ValueError("--window cannot be combined with --method or --decay: it is a method of its own.")
    if time is None:
        return robustfd.SlidingFrequentDirections, inputs
    if inputs.target is not None:
        raise ValueError("--time and --target cannot be combined. Name the features with --columns instead.")
    return robustfd.SlidingFrequentDirections, replace(inputs, target=time)


def sketch_summary(model: Any) -> dict[str, Any]:
    """Return the counts and the certified error of a sketch."""
    window = {"window": model.window, "now": model.now_} if hasattr(model, "window") else {}
    return window | {
        "kind": type(model).__name__,
        "rows": model.n_samples_seen_,
        "features": model.n_features_in_,
        "rank": len(model.singular_values_),
        "alpha": model.alpha_,
        "error_bound": model.error_bound_,
        "relative_error_bound": model.relative_error_bound_,
        "squared_norm": model.squared_norm_,
    }
