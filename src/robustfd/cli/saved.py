"""`robustfd merge`, `info` and `export`: files of sketches and models."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from robustfd.cli._command import command, refuse_overlaps
from robustfd.cli._console import print_result, text_table
from robustfd.cli._files import column_names, is_sketch, load_file, sketch_of, summary
from robustfd.cli._options import READ, WRITE, ConsoleOptions, Output, SavedFile, argument, option
from robustfd.cli._output import csv_writer, new_figure, open_output, require_plot, require_writable, save_figure
from robustfd.sketch.merging import merge as merge_models
from robustfd.streams.layout import NUMBER, names_in, with_names, without_names

MOST_VALUES = 10  # eigenvalues in the printed table


@command
def merge(
    parts: Annotated[list[Path], argument("FILES", "Files from `robustfd sketch`, or from `robustfd train`.", READ)],
    output: Output,
    *,
    console: ConsoleOptions,
) -> None:
    """Merge sketches or models of parts of the rows into one of all rows. Certified errors of sketches add up."""
    require_writable(output)
    loaded = [load_file(path) for path in parts]
    first = loaded[0]
    for path, each in zip(parts, loaded):
        if type(each.model) is not type(first.model):
            kinds = type(each.model).__name__, type(first.model).__name__
            raise ValueError(f"{path} holds a {kinds[0]}, and {parts[0]} a {kinds[1]}.")
        same_columns = without_names(each.layout or {}) == without_names(first.layout or {})
        if not same_columns or each.missing != first.missing:
            raise ValueError(f"{path} has other columns than {parts[0]}: they were read differently.")
    result, layout = merge_models([each.model for each in loaded]), first.layout
    for each in loaded[1:]:
        layout = layout and with_names(layout, names_in(each.layout or {}))
    result.save(output, notes={"layout": layout} | ({} if first.missing is None else {"missing": first.missing}))
    print_result(console, summary(result) | {"files": len(loaded), "file": str(output)})


@command
def info(
    file: SavedFile,
    *,
    plot: Annotated[
        Path | None, option("Plot the spectrum with its certified bounds.", metavar="FILE", use=WRITE)
    ] = None,
    console: ConsoleOptions,
) -> None:
    """Describe FILE: rows, features, alpha, certified error and spectrum of a sketch. See inspect for models."""
    model = load_file(file).model
    sketch = sketch_of(model)
    if not is_sketch(sketch):
        if plot is not None:
            raise ValueError(f"--plot draws the spectrum of a sketch, and {file} holds a {type(model).__name__}.")
        print_result(console, summary(model))
        return
    require_plot(plot)
    result = summary(sketch) | {"parameters": sketch.get_params(deep=False)}
    if sketch is not model:
        result |= {"kind": type(model).__name__, "sketch": type(sketch).__name__}
    spectrum = np.column_stack([sketch.singular_values_**2 + sketch.alpha_, *sketch.bracket_eigenvalues()]).tolist()
    rows = [(f"{place}", *each) for place, each in enumerate(spectrum[:MOST_VALUES], 1)]
    more = f" (the first {MOST_VALUES} of {len(spectrum)})" if len(spectrum) > MOST_VALUES else ""
    result["spectrum"] = [dict(zip(("estimate", "least", "most"), each)) for each in spectrum]
    headers = ("", "estimate", "at least", "at most")
    print_result(console, result, text_table(f"Eigenvalues of A'A{more}", rows, *headers))
    if plot is not None:
        save_figure(_spectrum_figure(sketch, spectrum), plot)


def _spectrum_figure(sketch: Any, spectrum: list[list[float]]) -> Any:
    """Return a plot of the eigenvalues of a sketch (estimate, lower and upper bound)."""
    figure = new_figure()
    ax = figure.subplots()
    place, (estimate, lower, upper) = range(1, len(spectrum) + 1), zip(*spectrum)
    ax.fill_between(place, lower, upper, alpha=0.25, step="mid", label="certified bounds")
    ax.plot(place, estimate, "o-", markersize=3, label="estimate")
    if sketch.alpha_ > 0:
        ax.axhline(sketch.alpha_, color="0.5", linestyle=":", label=f"alpha = {sketch.alpha_:.4g}")
    ax.set_yscale("log")
    ax.xaxis.get_major_locator().set_params(integer=True)
    title = f"{type(sketch).__name__}: {sketch.n_samples_seen_:,} rows, {sketch.n_features_in_:,} features"
    ax.set_title(title, fontsize="medium")
    ax.set_xlabel("eigenvalue")
    ax.set_ylabel("eigenvalues of A'A")
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


@command
def export(
    file: SavedFile,
    *,
    to: Annotated[
        Literal["npz", "csv", "onnx"],
        option("All arrays as .npz, the sketch or the weights as CSV, or a model that predicts as ONNX."),
    ] = "npz",
    output: Annotated[
        Path | None, option("Output file. Default: FILE with the new suffix.", "-o", "--output", use=WRITE)
    ] = None,
    console: ConsoleOptions,
) -> None:
    """Write the arrays in FILE: B, alpha, singular values and mean, or weights, intercept and classes.

    With --to onnx, write a model that predicts in any ONNX runtime (needs the package onnx).
    """
    model, layout, *_ = load_file(file)
    output = output or file.with_suffix(f".{to}")
    refuse_overlaps([file], {"--output": output})  # again, because it may be the default
    require_writable(output)
    if to == "onnx":
        data = _onnx(model, layout or {}).SerializeToString()
        with open_output(output) as stream:
            stream.write(data)
        print_result(console, {"file": str(output), "bytes": len(data)})
        return
    arrays = _arrays(model)
    with open_output(output) as stream:
        if to == "npz":
            np.savez(stream, **arrays)
        else:
            csv_writer(stream)(_columns(arrays, column_names(model, layout)))
    print_result(console, {"file": str(output)} | {name: list(value.shape) for name, value in arrays.items()})


def _onnx(model: Any, layout: dict[str, Any]) -> Any:
    """Return the model as an ONNX graph; raise if the columns of its input are not numbers."""
    of_numbers = all(each["type"] == NUMBER for each in layout["columns"]) if layout.get("kind") == "table" else True
    if not hasattr(model, "to_onnx"):
        raise TypeError(f"A {type(model).__name__} cannot be exported to ONNX, because it makes no predictions.")
    if layout.get("hash_bits") is not None or layout.get("kind") == "interactions" or not of_numbers:
        raise ValueError(
            f"This {type(model).__name__} cannot be exported to ONNX, because its columns are hashed or encoded text, "
            "dates or products of columns. Only models of numeric columns can be."
        )
    return model.to_onnx()


def _columns(arrays: dict[str, Any], name: Any) -> dict[str, Any]:
    """Return the columns of the sketch, or the intercept and the weights of each feature."""
    if "sketch" in arrays:
        return {name(column): values for column, values in enumerate(arrays["sketch"].T)}
    weights = {name(column): values for column, values in enumerate(np.atleast_2d(arrays["coef"]).T)}
    return {"intercept": np.atleast_1d(arrays["intercept"])} | weights


def _arrays(model: Any) -> dict[str, Any]:
    """Return the arrays of a sketch or a learner by name."""
    model = model if hasattr(model, "coef_") else sketch_of(model)
    names = ("sketch", "alpha", "singular_values", "error_bound", "squared_norm", "mean")
    if not is_sketch(model):
        names = ("coef", "intercept", "offset", "classes", "weights", "alpha")
    found = {}
    for name in names:
        try:
            found[name] = np.asarray(getattr(model, f"{name}_"))
        except AttributeError:
            continue
    return found
