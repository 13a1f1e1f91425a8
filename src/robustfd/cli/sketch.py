"""`robustfd sketch`: rows of files, summed up as a sketch."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from robustfd.cli._parameters import Files, Jobs, Keeping, Output, Reading, SketchSize, Talk, command

METHODS = {
    "rfd": "RobustFrequentDirections", "fd": "FrequentDirections", "pfd": "ParameterizedFrequentDirections",
    "cfd": "CompensativeFrequentDirections", "greedy": "GreedySketch", "diagonal": "DiagonalFrequentDirections",
    "rp": "RandomProjectionSketch", "oja": "OjaSketch", "exact": "ExactSecondMoment",
}  # fmt: skip
Method = StrEnum("Method", ["rfd", "fd", "pfd", "cfd", "greedy", "diagonal", "rp", "oja", "exact"])


@command
def sketch(
    files: Files,
    output: Output,
    *,
    sketch_size: SketchSize = 50,
    method: Annotated[Method, typer.Option(help="Which sketch.")] = Method.rfd,
    center: Annotated[bool, typer.Option("--center", help="Subtract the mean: for covariances and PCA.")] = False,
    alpha0: Annotated[float, typer.Option(min=0.0, help="Start from this multiple of the identity.")] = 0.0,
    decay: Annotated[float, typer.Option(help="Before each row all that is older is multiplied by this.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="For methods that are random.", show_default=False)] = None,
    window: Annotated[
        float | None,
        typer.Option(help="Sketch the last so many rows only; with --time, units of it.", show_default=False),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of times that --window counts by; no feature.", show_default=False),
    ] = None,
    jobs: Jobs = 1,
    keeping: Keeping,
    reading: Reading,
    talk: Talk,
) -> None:
    """Sketch the rows of FILES in one pass and constant memory: A'A is about B'B + alpha I, with a certified error."""
    import robustfd
    from robustfd._jobs import count_jobs
    from robustfd.cli._pass import Pass, columns_of, open_files
    from robustfd.cli._talk import tell
    from robustfd.cli._team import Team, as_one, in_parts

    jobs = count_jobs("--jobs", jobs)
    kind, reading = sketch_kind(robustfd, method, decay, window, time, reading)
    given: dict[str, Any] = {
        "sketch_size": sketch_size, "center": center, "alpha0": alpha0, "decay": decay, "random_state": seed,
        "window": window,
    }  # fmt: skip
    known = kind._get_param_names()
    job = {"command": "sketch", "files": files, "method": str(method), **given, **columns_of(reading)}
    run = Pass(job, output, keeping, talk)
    if not run.resumed:
        run.model = kind(**{name: value for name, value in given.items() if name in known})
    run.model = in_parts(run.model, jobs)
    stream = open_files(files, reading, layout=run.layout, start=run.position)

    def show() -> dict[str, str]:
        now = run.model.merged() if isinstance(run.model, Team) else run.model
        return {"alpha": f"{now.alpha_:.3g}", "error <=": f"{now.relative_error_bound_:.2%}"}

    for block in run.blocks(stream, show, lambda _: None):
        times = {} if time is None else {"times": block.y}
        run.model.partial_fit(block.X, sample_weight=block.weight, **times)
    run.model = as_one(run.model)
    run.finish(stream)
    tell(talk, summary(run.model) | {"file": str(output)})


def sketch_kind(
    robustfd: Any, method: Method, decay: float, window: float | None, time: str | None, reading: Reading
) -> tuple[Any, Reading]:
    """Return the class of the sketch, and how files are read; raise if options do not go together."""
    if window is None:
        if time is not None:
            raise ValueError(f"--time {time} is what --window counts by: add --window, or leave it out.")
        return getattr(robustfd, METHODS[method]), reading
    if method != Method.rfd or decay != 1.0:
        raise ValueError("--window is a method of its own, by which rows leave: leave out --method and --decay.")
    if time is None:
        return robustfd.SlidingFrequentDirections, reading
    if reading.target is not None:
        raise ValueError("--time and --target cannot be given together: name the features with --columns instead.")
    return robustfd.SlidingFrequentDirections, replace(reading, target=time)


def summary(model: Any) -> dict[str, Any]:
    """Return what there is to say about a sketch, and how certain it is."""
    moving = {"window": model.window, "now": model.now_} if hasattr(model, "window") else {}
    return moving | {
        "kind": type(model).__name__,
        "rows": model.n_samples_seen_,
        "features": model.n_features_in_,
        "rank": len(model.singular_values_),
        "alpha": model.alpha_,
        "error_bound": model.error_bound_,
        "relative_error_bound": model.relative_error_bound_,
        "squared_norm": model.squared_norm_,
    }
