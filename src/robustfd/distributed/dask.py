"""Sketches and learners over Dask's collections. Needs Dask: ``pip install 'robustfd[dask]'``.

Every partition is learnt by a task of its own, and the models are merged as a tree, `fan_in` at a time: no worker ever
holds more than that. Tasks are functions of a plan and a partition, with no state of their own. So a partition that is
computed again, after a worker was lost, counts once.

Rows are a dask array (chunks of numpy or of scipy's CSR), a dask DataFrame, a bag of rows, or a list of delayed blocks.
Targets and weights are of the same kind, with the same partitions. Everything runs on the scheduler that Dask is set to
use: threads, processes, or the workers of a `distributed.Client`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier

try:
    import dask.array as da
    from dask.bag import Bag
    from dask.delayed import Delayed, delayed
except ImportError as error:
    raise ImportError("robustfd.distributed.dask needs Dask: pip install 'robustfd[dask]'") from error

from robustfd.distributed._plan import (
    FAN_IN,
    Plan,
    as_sketch,
    check_targets,
    known_classes,
    output_of,
)
from robustfd.streams import open_stream

__all__ = ["fit", "partial_fit", "predict", "predict_proba", "sketch", "transform"]


def sketch(x: Any, sketch: Any = 50, *, sample_weight: Any = None, fan_in: int = FAN_IN, compute: bool = True) -> Any:
    """Return a sketch of all rows of a collection.

    Parameters
    ----------
    x : dask array, DataFrame, bag, or list of delayed blocks
    sketch : int or sketch, default=50
        The size of a `RobustFrequentDirections`, or a sketch whose parameters are used.
    sample_weight : as x, optional
    fan_in : int, default=8
        How many sketches one task merges.
    compute : bool, default=True
        Whether to compute it now; if not, a `dask.delayed.Delayed` is returned.

    Returns
    -------
    sketch or Delayed

    Examples
    --------
    >>> import dask.array as da, robustfd
    >>> from robustfd.distributed.dask import sketch
    >>> x = da.random.default_rng(0).standard_normal((1000, 20), chunks=(100, 20))
    >>> sketch(x, 8).n_samples_seen_
    1000
    """
    return fit(as_sketch(sketch), x, sample_weight=sample_weight, fan_in=fan_in, compute=compute)


def fit(
    estimator: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
    fan_in: int = FAN_IN,
    compute: bool = True,
) -> Any:
    """Return a new model that has learnt all rows of a collection.

    Each partition is learnt in one pass, in its order, as by `partial_fit`. A learner begins each with its share of the
    prior (`split`). Rows should be shuffled, with 1000 or more in a partition; empty partitions do no harm.

    Parameters
    ----------
    estimator : sketch or estimator
        Its parameters are used. It is not changed.
    x : dask array, DataFrame, bag, or list of delayed blocks
    y : as x, optional
        For a DataFrame also the name of one of its columns, which is left out of the rows.
    sample_weight : as y, optional
    classes : array, optional
        All labels there are. If a classifier gets none, they are looked for first. That takes a pass over y, and if y
        is computed from the same partitions as x, all of these wait in memory for its end.
    fan_in : int, default=8
        How many models one task merges.
    compute : bool, default=True
        Whether to compute it now; if not, a `dask.delayed.Delayed` is returned.

    Returns
    -------
    model or Delayed
    """
    return _fit(estimator, x, y, sample_weight, classes, fan_in, compute, anew=True)


def partial_fit(
    estimator: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
    fan_in: int = FAN_IN,
    compute: bool = True,
) -> Any:
    """Return a new model that has learnt the rows after those that the estimator has learnt before.

    Parameters and result are those of `fit`. A learner continues from its weights in every partition. So this is also
    how to pass over rows again. Each worker receives the model once, and each task makes its part of it.
    """
    return _fit(estimator, x, y, sample_weight, classes, fan_in, compute, anew=False)


def _fit(estimator: Any, x: Any, y: Any, weight: Any, classes: Any, fan_in: int, compute: bool, *, anew: bool) -> Any:
    check_targets(estimator, y, classes)
    if isinstance(y, str):
        x, y = x.drop(columns=[y]), x[y]
    if isinstance(weight, str):
        x, weight = x.drop(columns=[weight]), x[weight]
    rows = _blocks_of_rows(x)
    targets, weights = (_blocks_of_values(name, v, x, len(rows)) for name, v in (("y", y), ("sample_weight", weight)))
    classes = known_classes(estimator, classes, anew=anew)
    plan = Plan(estimator, len(rows), fan_in=fan_in, anew=anew)
    if classes is None and is_classifier(estimator):
        classes = _tree([_labels(block) for block in targets], fan_in, lambda level, node, some: _all_labels(some))
    shared = delayed(plan, traverse=False)
    models = [
        learn_partition(shared, i, block, target, weight, classes)
        for i, (block, target, weight) in enumerate(zip(rows, targets, weights, strict=True))
    ]
    root = _tree(models, fan_in, lambda level, node, some: merge_models(shared, level, node, some))
    model = _finish(shared, root)
    return model.compute() if compute else model


def transform(model: Any, x: Any) -> Any:
    """Return the rows as `model.transform` gives them, lazily: a collection of the same kind as x."""
    return _by_rows(model, x, "transform")


def predict(model: Any, x: Any) -> Any:
    """Return the predictions of rows, lazily: a collection of the same kind as x."""
    return _by_rows(model, x, "predict")


def predict_proba(model: Any, x: Any) -> Any:
    """Return the probabilities of classes, lazily: a collection of the same kind as x, a column for each class."""
    return _by_rows(model, x, "predict_proba")


# -- tasks; their names are what Dask's dashboard shows


@delayed
def learn_partition(plan: Plan, i: int, x: Any, y: Any, weight: Any, classes: Any) -> Any:
    """Return the model of partition i."""
    return plan.learn(i, [(x, *(None if each is None else np.asarray(each) for each in (y, weight)))], classes)


@delayed
def merge_models(plan: Plan, level: int, node: int, models: list[Any]) -> Any:
    """Return the model of a node of the tree."""
    first = node * plan.fan_in
    return plan.merge(level, node, {first + j: model for j, model in enumerate(models)})


@delayed
def _finish(plan: Plan, model: Any) -> Any:
    return plan.finish(model)


@delayed
def _labels(y: Any) -> Any:
    return np.unique(np.asarray(y))


@delayed
def _all_labels(some: list[Any]) -> Any:
    return np.unique(np.concatenate([labels for labels in some if len(labels)] or [np.empty(0)]))


def _tree(nodes: list[Any], fan_in: int, merge: Any) -> Any:
    """Return the root of a tree of tasks over these."""
    level = 0
    while len(nodes) > 1 or level == 0:
        level += 1
        groups = [nodes[i : i + fan_in] for i in range(0, len(nodes), fan_in)]
        nodes = [merge(level, j, group) for j, group in enumerate(groups)]
    return nodes[0]


# -- collections to blocks


def _kind(x: Any) -> str:
    """Return what a collection is, "" if it is none."""
    if isinstance(x, da.Array):
        return "array"
    if isinstance(x, Bag):
        return "bag"
    if isinstance(x, list | tuple) and len(x) and all(isinstance(block, Delayed) for block in x):
        return "delayed"
    return "frame" if hasattr(x, "to_delayed") and hasattr(x, "map_partitions") else ""


def _partitions(x: Any) -> list[Any]:
    """Return the partitions of a collection as tasks."""
    return list(x) if _kind(x) == "delayed" else list(np.ravel(x.to_delayed()))


def _blocks_of_rows(x: Any) -> list[Any]:
    """Return the partitions of rows as tasks."""
    kind = _kind(x)
    if not kind:
        raise TypeError(f"x must be a dask array, DataFrame, bag or a list of delayed blocks, got {type(x).__name__}.")
    if kind == "array":
        if x.ndim != 2:
            raise ValueError(f"x must have two dimensions, got an array of shape {x.shape}.")
        return [_side_by_side(list(row)) if len(row) > 1 else row[0] for row in x.to_delayed()]
    return [_below(block) for block in _partitions(x)] if kind == "bag" else _partitions(x)


def _blocks_of_values(name: str, values: Any, x: Any, n: int) -> list[Any]:
    """Return the partitions of targets or weights as tasks, one for each partition of x."""
    if values is None:
        return [None] * n
    known = isinstance(x, da.Array) and not np.isnan(x.shape[0])
    if known and not _kind(values):
        values = da.from_array(np.asarray(values), chunks=-1)
    if not _kind(values):
        raise TypeError(f"{name} must be a collection of Dask with the partitions of x, got {type(values).__name__}.")
    if known and isinstance(values, da.Array) and not np.isnan(values.shape[0]):
        if values.shape != x.shape[:1]:
            raise ValueError(f"{name} has shape {values.shape}, but x has {x.shape[0]} rows.")
        values = values.rechunk((x.chunks[0],))
    blocks = _partitions(values)
    if len(blocks) != n:
        raise ValueError(f"{name} has {len(blocks)} partitions, but x has {n}.")
    return blocks


@delayed
def _side_by_side(blocks: list[Any]) -> Any:
    return sp.hstack(blocks, "csr") if any(sp.issparse(block) for block in blocks) else np.hstack(blocks)


@delayed
def _below(items: Any) -> Any:
    return _stacked(list(items))


def _stacked(items: list[Any]) -> Any:
    """Return the items of a bag as rows: dicts are hashed, and blocks are put below each other."""
    if not items:
        return np.empty((0, 0))
    if isinstance(items[0], Mapping):
        return sp.vstack([block.X for block in open_stream(items)], "csr")
    if sp.issparse(items[0]):
        return sp.vstack(items, "csr")
    return np.vstack(items)


# -- rows to predictions


def _by_rows(model: Any, x: Any, method: str) -> Any:
    """Return what a method gives for every row, as a collection."""
    if isinstance(model, Delayed):
        raise TypeError("model must be fitted, since the width of the result is not known before: compute it first.")
    kind, shared = _kind(x), delayed(model, traverse=False)
    if kind == "array":
        like = output_of(model, method)
        x = x.rechunk({1: -1}) if x.numblocks[1] > 1 else x
        form = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (x.chunks[0], (like.shape[1],))}
        empty = np.empty((0,) * like.ndim, like.dtype)
        return x.map_blocks(_apply, model=shared, method=method, dtype=like.dtype, meta=empty, **form)
    if kind == "frame":
        return x.map_partitions(_apply_to_frame, shared, method, meta=_apply_to_frame(x._meta_nonempty, model, method))
    if kind == "bag":
        return x.map_partitions(_apply_to_items, model=shared, method=method)
    if kind == "delayed":
        output_of(model, method)
        return [delayed(_apply)(block, shared, method) for block in x]
    raise TypeError(f"x must be a dask array, DataFrame, bag or a list of delayed blocks, got {type(x).__name__}.")


def _apply(x: Any, model: Any, method: str) -> Any:
    if x.shape[0] or hasattr(x, "iloc"):
        return getattr(model, method)(x)
    return output_of(model, method)[:0]  # also of an empty bag, whose width is not known


def _apply_to_items(items: Any, model: Any, method: str) -> list[Any]:
    return list(_apply(_stacked(list(items)), model, method))


def _apply_to_frame(x: Any, model: Any, method: str) -> Any:
    """Return a Series or a DataFrame with the index of the rows."""
    import pandas as pd

    found = _apply(x, model, method)
    if found.ndim == 1:
        return pd.Series(found, index=x.index, name=method)
    names = model.classes_.tolist() if method == "predict_proba" else model.get_feature_names_out()
    return pd.DataFrame(found, index=x.index, columns=list(names))
