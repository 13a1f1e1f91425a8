"""Learning the rows of a call: all of them, or none if there is an error or an interrupt."""

from collections.abc import Callable
from typing import Any

import numpy as np

from robustfd._jobs import count_jobs, side_by_side
from robustfd._validation import check_weights
from robustfd.estimators._rows import Order, in_order, kind_of, one_dimensional, single_row
from robustfd.learners import progress
from robustfd.learners.rows import CsrRows
from robustfd.sketch.merging import merge

Data = tuple[Any, Any, Any]  # rows, targets and weights
UNWEIGHTED, ONE = 1.0, np.array([1.0])  # the default weight of a single row, and the same as a shared read-only array

FEWEST_ROWS = 4096  # per thread; merging models of fewer rows loses accuracy
LEAST_WORK = 2**20  # entries times outputs per thread; with less, merging takes longer than the threads save


def learn_rows(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    reset: bool,
    classes: Any = None,
    whole: bool = False,
    n_jobs: int | None = None,
) -> Any:
    """Check rows and learn them. With `whole`, they are the whole data set and may be shuffled and repeated."""
    jobs = count_jobs("n_jobs", n_jobs)
    after = model._working_copy(reset=reset)
    if not reset and model._kind != "rows":
        raise ValueError(f"This model started with {model._kind}. Continue with learn_one, or call fit to start over.")
    x = after._checked(X, reset=reset, learn=True)
    if y is None:
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None.")
    y = one_dimensional(y, warn=True)
    if len(y) != x.shape[0]:
        raise ValueError(f"y has {len(y)} rows, but X has {x.shape[0]}: inconsistent numbers of samples.")
    y = after._check_targets(y, classes)
    weight = after._weigh_classes(y, check_weights(sample_weight, len(y)), whole=whole)
    if not weight.all():
        if reset and not weight.any():
            raise ValueError("sample_weight must be positive for at least one of the first rows, got only zeros.")
        live = weight > 0
        x, y, weight = x.take(live) if isinstance(x, CsrRows) else x[live], y[live], weight[live]
    orders = after._orders(len(y)) if whole else (None,)
    work = after._outputs * int(x.size if isinstance(x, np.ndarray) else x.nnz)
    jobs = max(min(jobs, len(y) // FEWEST_ROWS, work // LEAST_WORK), 1)
    if reset:
        after._kind = "rows"
        after._begin(x)
        after._progress = progress.start()
    before, undo, after._progress = model.__dict__, after._keep(x), after._progress.copy()
    try:
        for number, order in enumerate(orders):
            judged = number == 0 and not model._relearns  # progressive losses count each row once, before it is learned
            if jobs > 1:
                after = learn_in_parts(after, (x, y, weight), order, jobs, judged=judged)
            else:
                learn_in_order(after, (x, y, weight), order, judged=judged)
            if not after._repeats(number + 1, len(y)):
                break
        if whole:
            after._complete_fit()
        after._check_learned()
        model.__dict__ = after.__dict__
    except BaseException:  # also an interrupt
        undo()
        model.__dict__ = before
        raise
    model._forget_kept()
    return model


def learn_in_order(model: Any, data: Data, order: Order, *, judged: bool) -> None:
    """Learn rows in the given order. With `judged`, they are new to the model."""
    for rows, targets, weights in in_order(*data, order):
        if judged:
            losses, wrong = model._learn_rows(rows, targets, weights)
            progress.tally_judged(losses, wrong, weights, model._progress)
        else:
            model._learn_again(rows, targets, weights)


def learn_in_parts(model: Any, data: Data, order: Order, jobs: int, *, judged: bool) -> Any:
    """Learn parts of the rows in parallel threads and return the merged model."""
    order = np.arange(len(data[1])) if order is None else order
    parts = model.split(jobs)

    def learn(part: Any, some: Order) -> None:
        learn_in_order(part, data, some, judged=judged)
        part._check_learned()

    side_by_side(learn, [(part, order[i::jobs]) for i, part in enumerate(parts)])
    merged = merge(parts)
    if not judged:
        merged._progress = model._progress  # later passes do not change the progressive losses
    del merged._share
    if hasattr(model, "_share"):
        merged._share = model._share
    return merged


def learn_row(model: Any, x: Any, y: Any, sample_weight: float) -> None:
    """Learn one row by way of Python, or leave the model as it was."""
    before, new = model.__dict__.copy(), dict[Any, int]()
    undo: Callable[[], object] = nothing
    try:
        kind = kind_of(model, x)
        fitted = model._begin_row(kind)
        weight = ONE if sample_weight is UNWEIGHTED else check_weights([sample_weight], 1)
        row, new = single_row(model, x, kind, reset=not fitted)
        weight = model._weigh_classes(target := model._check_target(y), weight, whole=False)
        if weight[0] == 0:
            model.__dict__ = before
            return
        if not fitted:
            model._begin(row)
        undo = model._keep(row)
        model._progress = model._progress.copy() if fitted else progress.start()
        if row.shape[1] > model.n_features_in_:
            model.n_features_in_ = row.shape[1]
            if fitted:
                model._widen(row.shape[1])
        losses, wrong = model._learn_rows(row, target, weight)
        progress.tally_judged(losses, wrong, weight, model._progress)
        model._check_learned()
        if new:
            model._vocabulary.update(new)
    except BaseException:  # also an interrupt
        undo()
        model.__dict__ = before
        for name in new:
            model.__dict__.get("_vocabulary", {}).pop(name, None)
        raise
    model._forget_kept()
    model._renew_quick()


def nothing() -> None:
    """Undo nothing."""
