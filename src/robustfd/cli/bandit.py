"""`robustfd bandit train`, `predict` and `evaluate`: contextual bandits on logs of decisions."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from robustfd._jobs import count_jobs
from robustfd.cli._command import Commands, command
from robustfd.cli._console import option_name, print_result, write_errors
from robustfd.cli._files import LAYOUT_OPTIONS, column_options, load_learner, open_files, report_skipped, summary
from robustfd.cli._learning import require_numbers
from robustfd.cli._options import (
    READ,
    WRITE,
    CheckpointOptions,
    ConsoleOptions,
    Files,
    Jobs,
    LogOptions,
    Output,
    argument,
    option,
)
from robustfd.cli._output import open_output
from robustfd.cli._parallel import parallel
from robustfd.cli._pass import Pass, Print
from robustfd.cli.train import Progress
from robustfd.streams import Block, Position, Stream, StreamError

ABOUT = "Contextual bandits: train a policy on a log of decisions, choose arms, evaluate policies on logs."
_COMMANDS = {
    "train": ("bandit", "Train a policy on a log: contexts, chosen arms and their rewards."),
    "predict": ("bandit", "Write the probability of each arm for each context of FILES, as arm:probability,..."),
    "evaluate": ("bandit", "Estimate what POLICY would have earned on the log in FILES, which another one made."),
}
bandit = Commands({"Commands": _COMMANDS}, "bandit", ABOUT)
Policy = Annotated[Path, argument("POLICY", "Model file from `robustfd bandit train`.", READ)]
# Columns of tables, if options do not name them.
_COLUMNS = {
    "target": ("reward",), "cost": ("cost",), "arm": ("arm", "action"), "probability": ("probability", "propensity")
}  # fmt: skip
_EPSILON = (
    "The part of the probability that all arms share equally. Logs that will evaluate policies need some, such as 0.02."
)
_RANGE = "Smallest and largest possible reward. Default: those that the policy has learned from."


@command
def train(
    files: Files,
    output: Output,
    *,
    epsilon: Annotated[float, option(_EPSILON, metavar="SHARE", min=0, max=1)] = 0.0,
    seed: Annotated[int, option("Seed of the choices of the policy.", metavar="N", min=0)] = 0,
    start: Annotated[
        Path | None, option("Continue to train this policy.", "--from", metavar="POLICY", use=READ)
    ] = None,
    jobs: Jobs = 1,
    checkpoints: CheckpointOptions,
    inputs: LogOptions,
    console: ConsoleOptions,
) -> None:
    """Train a policy on a log: contexts, chosen arms and their rewards.

    FILES are Vowpal Wabbit text, action:cost:probability | features, or blocks of lines with the features of arms
    (ADF), or tables with columns of arms and rewards or costs. The reward of a cost is its negative.
    """
    started, jobs = time.monotonic(), count_jobs("--jobs", jobs)
    job = {
        "command": "bandit train", "files": files, "epsilon": epsilon, "seed": seed,
        "from": None if start is None else str(start), **column_options(inputs),
    }  # fmt: skip
    existing = None
    if start is not None:
        existing, inputs = _load(start, inputs)
        if epsilon not in (0.0, existing.model.epsilon):
            raise ValueError(f"--epsilon {epsilon} does not match {existing.model.epsilon} in {start}. Leave it out.")
    with Pass(job, output, checkpoints, console) as run:
        if not run.resumed and existing is not None:
            run.model, run.layout = existing.model, existing.layout
        progress = Progress(console, None, "reward")
        if run.model is not None:
            progress.resumed(run.model)
        more = {} if start is None else {"unseen": "drop"}
        stream = open_log(files, inputs, layout=run.layout, start=run.position, **more)
        stream.parse_threads, stream.plain_rows = jobs, jobs == 1
        _learn(run, stream, progress, files, (epsilon, seed, jobs))
        progress.finished(run.model)
        run.finish(stream)
    print_result(console, summary(run.model) | {"seconds": time.monotonic() - started, "file": str(output)})


def _load(path: Path, inputs: LogOptions) -> tuple[Any, LogOptions]:
    """Return a policy from a file, and the input options for it."""
    loaded, inputs = load_learner(path, inputs, "bandit")
    for name in LAYOUT_OPTIONS:
        if getattr(inputs, name) is not None and loaded.layout is not None:
            raise ValueError(
                f"{option_name(name)} and {path} cannot be combined: the policy already defines its columns."
            )
    if loaded.layout is None:
        inputs = replace(inputs, n_features=loaded.model.n_features_in_)
    return loaded, inputs


def open_log(
    files: list[str], inputs: LogOptions, *, layout: dict[str, Any] | None, start: Position | None = None, **more: Any
) -> Stream:
    """Return a stream of a log. Rows without a decision are skipped."""
    columns: dict[str, Any] = {} if layout is not None else dict(_COLUMNS)
    for given, other in (("target", "cost"), ("cost", "target")):
        if getattr(inputs, given) is not None:
            columns.pop(other, None)
    more = {"unlabelled": "skip"} | columns | more
    return open_files(files, inputs, layout=layout, start=start, accepts_nan=True, **more)


def _learn(run: Pass, stream: Stream, progress: Progress, files: list[str], settings: tuple[float, int, int]) -> None:
    """Learn all rows of a stream."""
    from robustfd.estimators import ContextualBandit

    epsilon, seed, jobs = settings

    def after_block(show: Print) -> None:
        progress.block_learned(run.model, show)

    for block in run.blocks(stream, lambda: progress.figures(run.model), after_block):
        _require_decisions(block, files)
        if run.model is None:
            run.model = ContextualBandit(epsilon=epsilon, random_state=seed)
        run.model = parallel(run.model, jobs)
        found = block.decisions
        assert found is not None
        run.model.partial_fit(block.X, found.chosen(), rewards=block.y)


def _require_decisions(block: Block, files: list[str]) -> None:
    """Raise unless a block has arms and rewards."""
    if block.decisions is None or block.y is None:
        raise ValueError(
            f"{files[0]} has no {'arms' if block.decisions is None else 'rewards'}. Name the columns of a table with "
            "--arm and --reward or --cost. Vowpal Wabbit text needs action:cost:probability before the first | "
            "(--format cb), or blocks of lines (--format adf)."
        )
    require_numbers(block.y)


# -- policies on files


@command
def predict(
    policy: Policy,
    files: Files,
    *,
    output: Annotated[
        Path | None, option("Output file. Default: standard output.", "-o", "--output", use=WRITE)
    ] = None,
    best: Annotated[bool, option("Write only the arm with the best predicted reward.")] = False,
    inputs: LogOptions,
    console: ConsoleOptions,
) -> None:
    """Write the probability of each arm for each context of FILES, as arm:probability,...

    An arm with features of its own is named by its place in its block, from 0. A tag of a row follows after a blank.
    """
    loaded, inputs = _load(policy, inputs)
    model, layout = loaded.model, _without_decisions(loaded.layout)
    stream = open_log(files, inputs, layout=layout, unlabelled="keep", unseen="drop")
    stream.wants_ids = stream.plain_rows = True
    with open_output(output) as file:
        for block, first in _with_rows_before(stream):
            names, chances = _policy(model, block, first, model.predict_rewards if best else model.predict_proba)
            lines = [_line(*row, best) for row in zip(names, chances)]
            if block.id is not None:
                lines = [f"{line} {tag}".rstrip() for line, tag in zip(lines, block.id.tolist())]
            with write_errors("Standard output" if output is None else output):
                file.write("".join(f"{line}\n" for line in lines).encode())
    report_skipped(stream, console)
    if output is not None:
        print_result(console, {"rows": stream.rows_read, "file": str(output)})


def _line(names: Any, values: Any, best: bool) -> str:
    """Return the line of a row."""
    if best:
        return str(names[int(np.argmax(values))])
    return ",".join(f"{name}:{value:.6g}" for name, value in zip(names, values.tolist()))


def _without_decisions(layout: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a layout of a table that does not require the columns of decisions."""
    if layout is None or layout.get("kind") not in ("table", "jsonl"):
        return layout
    return {name: value for name, value in layout.items() if name not in _COLUMNS}


def _with_rows_before(stream: Stream) -> Iterator[tuple[Block, int]]:
    """Yield blocks, each with the number of rows before it."""
    rows = 0
    for block in stream:
        yield block, rows
        rows += block.X.shape[0]


def _policy(model: Any, block: Block, first: int, predict: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the names of the arms of each row, and what a method of a policy says about them."""
    found = block.decisions
    if found is None or found.arms is None:
        if not model.arms_:
            raise ValueError("This policy knows arms by their features. Give blocks of lines, one for each arm (ADF).")
        names = sorted(model.arms_, key=lambda name: (isinstance(name, str), name))
        return [names] * block.X.shape[0], predict(block.X)[:, [model.arms_.index(name) for name in names]]
    some: list[Any] = [found.of_row(i) for i in range(block.X.shape[0])]
    if found.has_features:
        if model.arms_:
            raise ValueError("This policy knows arms by their names, and the arms of this file have features.")
        return [range(each.shape[0]) for each in some], predict(block.X, some)
    some = [each.tolist() or model.arms_ for each in some]
    known = set(model.arms_)
    for i, names in enumerate(some):
        for name in names:
            if name not in known:
                raise _unknown(model, first + i, name)
    return some, predict(block.X, some)


def _unknown(model: Any, row: int, name: Any) -> StreamError:
    return StreamError(
        f"row {row} (from 0) has the arm {name!r}, which the policy cannot choose; it has {model.arms_!r:.60}."
    )


@command
def evaluate(
    policy: Policy,
    files: Files,
    *,
    level: Annotated[float, option("The probability that the interval covers the value.", metavar="LEVEL")] = 0.95,
    reward_range: Annotated[str | None, option(_RANGE, metavar="LOW,HIGH")] = None,
    inputs: LogOptions,
    console: ConsoleOptions,
) -> None:
    """Estimate what POLICY would have earned on the log in FILES, which another one made.

    The log needs the probabilities of its choices. IPS, SNIPS and DR estimate the mean reward; DR uses the predictions
    of POLICY, which must not have learned the log. The interval holds for any weights.
    """
    from robustfd.decisions import PolicyEvaluation

    loaded, inputs = _load(policy, inputs)
    model = loaded.model
    low, high = _range(reward_range, model)
    evaluation = PolicyEvaluation(level=level, reward_range=(low, high))
    stream = open_log(files, inputs, layout=loaded.layout, unseen="drop")
    stream.plain_rows = True
    for block, first in _with_rows_before(stream):
        _require_decisions(block, files)
        found = block.decisions
        assert found is not None
        for i in np.flatnonzero(np.isnan(found.probability))[:1]:
            raise StreamError(f"row {first + i} (from 0) has no probability. Without it no log can evaluate policies.")
        for i in np.flatnonzero((block.y < low) | (block.y > high))[:1]:
            raise StreamError(
                f"row {first + i} (from 0) has the reward {block.y[i]:g}, outside of [{low:g}, {high:g}]. Give the "
                "range of all possible rewards with --reward-range LOW,HIGH."
            )
        names, chances = _policy(model, block, first, model.predict_proba)
        _, rewards = _policy(model, block, first, model.predict_rewards)
        places = [_place(model, first + i, each, arm) for i, (each, arm) in enumerate(zip(names, found.arm.tolist()))]
        chosen = np.array([row[k] for row, k in zip(chances, places)])
        predicted = np.array([row[k] for row, k in zip(rewards, places)])
        values = np.array([p @ r for p, r in zip(chances, rewards)])
        evaluation.update(chosen, block.y, found.probability, (predicted, values))
    report_skipped(stream, console)
    ends = evaluation.interval
    print_result(
        console,
        {"policy": str(policy), "rows": evaluation.n_rows, "ips": evaluation.ips, "snips": evaluation.snips,
         "dr": evaluation.dr, "level": level, "interval_low": ends[0], "interval_high": ends[1],
         "effective_rows": evaluation.effective_rows, "largest_weight": evaluation.largest_weight},
    )  # fmt: skip


def _place(model: Any, row: int, names: Any, arm: Any) -> int:
    """Return the place of the chosen arm among the arms of a row."""
    if isinstance(names, range):
        return int(arm)
    if arm not in names:
        raise _unknown(model, row, arm)
    return int(names.index(arm))


def _range(given: str | None, model: Any) -> tuple[float, float]:
    """Return the range of rewards: the given one, or what the policy has learned from."""
    if given is None:
        low, high = model._range.tolist()
        if not low < high:
            raise ValueError("The policy has seen no two different rewards. Give --reward-range LOW,HIGH.")
        return low, high
    try:
        low, high = (float(end) for end in given.split(","))
    except ValueError:
        raise ValueError(f"--reward-range must be two numbers, LOW,HIGH, got {given!r}.") from None
    return low, high
