"""Several passes over files, with every tenth row held out, as in Vowpal Wabbit. The best pass makes the model."""

from collections.abc import Callable
from typing import Any

import numpy as np

from robustfd.cli._console import as_json, log
from robustfd.cli._files import load_file, report_skipped
from robustfd.cli._learning import labels_for, scorer_for
from robustfd.cli._pass import Pass
from robustfd.streams import Stream

PERIOD = 10  # every tenth row is held out

Open = Callable[[Any], Stream]  # opens the files at a position, None for the beginning


def held_out(first: int, rows: int) -> Any:
    """Return a mask of the held-out rows among some rows, with `first` rows before them. No pass learns them."""
    return np.arange(first + 1, first + rows + 1) % PERIOD == 0


def learn_in_passes(run: Pass, passes: int, open_files: Open, learn: Callable[[Stream], None]) -> dict[str, Any]:
    """Learn in passes, write the model of the best one, and return its scores and those of all passes.

    The output has the best model so far after each pass. A checkpoint at the end of each pass makes it possible to
    resume while the held-out rows are read.
    """
    if run.passes and not run.output.exists():
        raise ValueError(
            f"{run.output}, the model of the best pass so far, is gone. Remove the checkpoint to start over."
        )
    while True:
        stream = open_files(run.position)
        if not stream.can_be_reread:
            raise ValueError(
                f"--passes {passes} needs files that can be read again, and {stream.inputs[0].name} is a pipe."
            )
        learn(stream)
        run.end_pass()
        run.passes.append({"pass": len(run.passes) + 1} | _scores(run.model, open_files(None)))
        best = _best(run.passes)
        _log(run, best is run.passes[-1])
        if best is run.passes[-1]:
            run.write()
        if len(run.passes) == passes:
            break
        run.position = None
    report_skipped(stream, run.console)
    if best is not run.passes[-1]:
        run.model = load_file(run.output).model
    run.remove_checkpoint()
    scores = {name: value for name, value in best.items() if name != "pass"}
    return {"passes": run.passes, "best_pass": best["pass"]} | scores


def _log(run: Pass, is_best: bool) -> None:
    """Print the scores of the last pass."""
    last = run.passes[-1]
    if not last["holdout_rows"]:
        log(run.console, f"pass {last['pass']}: there are too few rows to hold any out. The last pass makes the model.")
        return
    found, error = f"pass {last['pass']}: loss {last['holdout_loss']:.5g}", ""
    if "holdout_error" in last:
        error = f", error {last['holdout_error']:.5g}"
    best = " (best so far)" if is_best else ""
    log(run.console, f"{found}{error} on the {last['holdout_rows']:,} rows held out{best}")


def _best(passes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first pass of the smallest loss; the last pass if no row is held out."""
    return min(passes, key=lambda each: each["holdout_loss"]) if passes[0]["holdout_rows"] else passes[-1]


def _scores(model: Any, stream: Stream) -> dict[str, Any]:
    """Return the scores of a model on the rows held out."""
    scorer, first, loss = scorer_for(model), 0, 0.0
    for block in stream:
        held = block.take(held_out(first, block.X.shape[0]))
        first += block.X.shape[0]
        if len(held.y):
            y = labels_for(model, held.y)
            scorer.add(held.X, y)
            loss += 0.0 if hasattr(model, "predict_proba") else float(_losses(model, held.X, y.astype(float)).sum())
    if not scorer.n:
        return {"holdout_rows": 0}
    scores = {name: as_json(value) for name, value in scorer.result().items() if name != "pairs"}
    mean = scores["log_loss"] if "log_loss" in scores else loss / scorer.n
    mean = mean if mean < np.inf else np.finfo(float).max  # checkpoints store finite numbers only
    return {"holdout_rows": scorer.n, "holdout_loss": float(mean)} | {
        f"holdout_{name}": scores[name] for name in scores
    }


def _losses(model: Any, X: Any, y: Any) -> Any:
    """Return the loss of each row, by which passes are compared: that of the model; absolute for the Huber loss."""
    predicted, loss = model.predict(X), getattr(model, "loss", "squared")
    if loss == "quantile":
        residual = (y - predicted.T).T
        losses = residual * (np.array(model.quantile) - (residual < 0))
        return losses if losses.ndim == 1 else losses.mean(axis=1)
    if loss == "poisson":
        return predicted - y * np.log(np.maximum(predicted, np.finfo(float).tiny))
    return np.abs(y - predicted) if loss in ("absolute", "huber") else np.square(y - predicted)
