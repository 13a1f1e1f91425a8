"""`robustfd sketch`: a sketch of the rows of files."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import robustfd
from robustfd._jobs import count_jobs
from robustfd.cli._command import command
from robustfd.cli._console import print_result
from robustfd.cli._files import column_options, open_files, summary
from robustfd.cli._options import CheckpointOptions, ConsoleOptions, Files, InputOptions, Jobs, Output, option
from robustfd.cli._options import sketch_size as sketch_size_option
from robustfd.cli._parallel import merged, parallel
from robustfd.cli._pass import Pass

METHODS = {
    "rfd": "RobustFrequentDirections", "fd": "FrequentDirections", "pfd": "ParameterizedFrequentDirections",
    "cfd": "CompensativeFrequentDirections", "scfd": "SpectralCompensationFrequentDirections",
    "greedy": "GreedySketch", "diagonal": "DiagonalFrequentDirections",
    "rp": "RandomProjectionSketch", "oja": "OjaSketch", "exact": "ExactSecondMoment",
}  # fmt: skip
Method = Literal["rfd", "fd", "pfd", "cfd", "scfd", "greedy", "diagonal", "rp", "oja", "exact"]


@command
def sketch(
    files: Files,
    output: Output,
    *,
    sketch_size: Annotated[int, sketch_size_option("Rows of the sketch. More rows are more accurate.")] = 50,
    method: Annotated[Method, option(f"Sketching method: {', '.join(METHODS)}.", metavar="NAME")] = "rfd",
    center: Annotated[bool, option("Subtract the mean: for covariances and PCA.")] = False,
    alpha0: Annotated[float, option("Start from this multiple of the identity.", min=0.0)] = 0.0,
    decay: Annotated[float, option("Multiply the sketch of earlier rows by this before each row.")] = 1.0,
    seed: Annotated[int | None, option("Seed of randomised methods.")] = None,
    window: Annotated[float | None, option("Sketch only this many recent rows, or units of --time.")] = None,
    time: Annotated[str | None, option("Column of times for --window; not a feature.", metavar="COLUMN")] = None,
    jobs: Jobs = 1,
    checkpoints: CheckpointOptions,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Sketch the rows A of FILES in one pass and constant memory: A'A ~ B'B + alpha I, with a certified error."""
    jobs = count_jobs("--jobs", jobs)
    if window is not None and (method != "rfd" or decay != 1.0):
        raise ValueError("--window cannot be combined with --method or --decay: it is a method of its own.")
    if time is not None:
        if window is None:
            raise ValueError(f"--time {time} needs --window, which counts in its units.")
        if inputs.target is not None:
            raise ValueError("--time and --target cannot be combined. Name the features with --columns instead.")
        inputs = replace(inputs, target=time)
    kind = getattr(robustfd, METHODS[method] if window is None else "SlidingFrequentDirections")
    given: dict[str, Any] = {
        "sketch_size": sketch_size, "center": center, "alpha0": alpha0, "decay": decay, "random_state": seed,
        "window": window,
    }  # fmt: skip
    job = {"command": "sketch", "files": files, "method": method, **given, **column_options(inputs)}
    with Pass(job, output, checkpoints, console) as run:
        if not run.resumed:
            known = kind._get_param_names()
            run.model = kind(**{name: value for name, value in given.items() if name in known})
        stream = open_files(files, inputs, layout=run.layout, start=run.position)
        run.model = parallel(run.model, jobs, lambda: stream.rows_expected)
        stream.parse_threads = jobs

        def figures() -> dict[str, str]:
            now = merged(run.model)
            return {"alpha": f"{now.alpha_:.3g}", "error <=": f"{now.relative_error_bound_:.2%}"}

        for block in run.blocks(stream, figures):
            times = {} if time is None else {"times": block.y}
            run.model.partial_fit(block.X, sample_weight=block.weight, **times)
        run.finish(stream)
    print_result(console, summary(run.model) | {"file": str(output)})
