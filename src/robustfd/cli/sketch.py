"""`robustfd sketch`: a sketch of the rows of files."""

from typing import Annotated, Any

from robustfd.cli._command import command
from robustfd.cli._options import (
    CheckpointOptions,
    ConsoleOptions,
    Files,
    InputOptions,
    Jobs,
    Output,
    SketchSize,
)
from robustfd.cli._parameters import option
from robustfd.cli._sketches import Method, sketch_summary, sketch_type


@command
def sketch(
    files: Files,
    output: Output,
    *,
    sketch_size: SketchSize = 50,
    method: Annotated[Method, option(metavar="NAME", help=f"Sketching method: {', '.join(Method)}.")] = Method.rfd,
    center: Annotated[bool, option("--center", help="Subtract the mean: for covariances and PCA.")] = False,
    alpha0: Annotated[float, option(min=0.0, help="Start from this multiple of the identity.")] = 0.0,
    decay: Annotated[float, option(help="Multiply the sketch of earlier rows by this before each row.")] = 1.0,
    seed: Annotated[int | None, option(help="Seed of randomised methods.")] = None,
    window: Annotated[
        float | None,
        option(help="Sketch only this many recent rows, or units of --time."),
    ] = None,
    time: Annotated[
        str | None,
        option(metavar="COLUMN", help="Column of times for --window; not a feature."),
    ] = None,
    jobs: Jobs = 1,
    checkpoints: CheckpointOptions,
    inputs: InputOptions,
    console: ConsoleOptions,
) -> None:
    """Sketch the rows A of FILES in one pass and constant memory: A'A ~ B'B + alpha I, with a certified error."""
    from robustfd._jobs import count_jobs
    from robustfd.cli._console import print_result
    from robustfd.cli._files import column_options, open_files
    from robustfd.cli._parallel import finished, merged, parallel
    from robustfd.cli._pass import Pass

    jobs = count_jobs("--jobs", jobs)
    kind, inputs = sketch_type(method, decay, window, time, inputs)
    given: dict[str, Any] = {
        "sketch_size": sketch_size, "center": center, "alpha0": alpha0, "decay": decay, "random_state": seed,
        "window": window,
    }  # fmt: skip
    known = kind._get_param_names()
    job = {"command": "sketch", "files": files, "method": str(method), **given, **column_options(inputs)}
    with Pass(job, output, checkpoints, console) as run:
        if not run.resumed:
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
        run.model = finished(run.model)
        run.finish(stream)
    print_result(console, sketch_summary(run.model) | {"file": str(output)})
