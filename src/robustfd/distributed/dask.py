"""Sketches and learners on Dask collections. Needs Dask: ``pip install 'robustfd[dask]'``.

One task learns each partition, and the models are merged in a tree, `fan_in` at a time, so a merge holds at most
`fan_in` models in memory. Tasks are pure functions of a plan and a partition. A partition that is computed again after
a worker failed therefore counts once.

Rows are a dask array (with numpy or scipy CSR chunks), a dask DataFrame, a bag of rows, or a list of delayed blocks.
Targets and weights are collections of the same kind with the same partitions. Everything runs on the configured Dask
scheduler: threads, processes, or the workers of a `distributed.Client`.
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
    is_bandit,
    known_classes,
    known_columns,
    output_of,
)
from robustfd.streams import open_stream

__all__ = ["fit", "partial_fit", "predict", "predict_proba", "sketch", "transform"]


def sketch(x: Any, sketch: Any = 50, *, sample_weight: Any = None, fan_in: int = FAN_IN, compute: bool = True) -> Any:
    """Return a sketch of all rows of a collection.

    Parameters
    ----------
    x : dask array, DataFrame, bag, or list of delayed blocks
        The rows.
    sketch : int or sketch, default=50
        The size of a `RobustFrequentDirections`, or a sketch whose parameters to use.
    sample_weight, fan_in, compute
        See `fit`.

    Returns
    -------
    sketch or Delayed
        The sketch of all rows.

    See Also
    --------
    fit : Fit any estimator.

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
    arms: Any = None,
    probabilities: Any = None,
    fan_in: int = FAN_IN,
    compute: bool = True,
) -> Any:
    """Return a new model fitted to all rows of a collection.

    Each partition is learned in order in one pass, as by `partial_fit`. Learners start each partition with a share of
    the prior (see `split`). Rows should be shuffled, with at least 1000 per partition. Partitions may be empty.

    Parameters
    ----------
    estimator : sketch or estimator
        The estimator whose parameters to use. It is not changed.
    x : dask array, DataFrame, bag, or list of delayed blocks
        The rows.
    y : collection like x, optional
        The targets. For a DataFrame, also the name of a column, which is then not a feature.
    sample_weight : collection like y, optional
        Row weights. For a DataFrame, also the name of a column.
    classes : array, optional
        All labels. If a classifier gets none, a first pass over y collects them. If y is computed from the same
        partitions as x, all these partitions stay in memory until that pass ends.
    arms, probabilities : collections like y, optional
        For a `ContextualBandit`: the arms that were chosen, whose rewards are y, and the probabilities of these
        choices. For a DataFrame, also the names of columns.
    fan_in : int, default=8
        Number of models that one task merges.
    compute : bool, default=True
        Whether to compute the result now. If False, return a `dask.delayed.Delayed`.

    Returns
    -------
    model or Delayed
        The fitted model.

    See Also
    --------
    partial_fit : Continue with a fitted model.

    Examples
    --------
    >>> import dask.array as da
    >>> from robustfd import SketchedPCA
    >>> from robustfd.distributed.dask import fit
    >>> x = da.random.default_rng(0).standard_normal((1000, 20), chunks=(250, 20))
    >>> fit(SketchedPCA(n_components=3), x).n_samples_seen_
    1000
    """
    values = {"y": y, "sample_weight": sample_weight, "arms": arms, "probabilities": probabilities}
    return _fit(estimator, x, values, classes, fan_in, compute, reset=True)


def partial_fit(
    estimator: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
    arms: Any = None,
    probabilities: Any = None,
    fan_in: int = FAN_IN,
    compute: bool = True,
) -> Any:
    """Return a new model that has learned more rows in addition to those of the estimator.

    The parameters and the return value are those of `fit`. A learner continues from its weights in every partition, so
    this also makes further passes over the same rows possible. Each worker receives the model once, and each task
    splits off its own part.

    See Also
    --------
    fit : Fit from scratch.
    """
    values = {"y": y, "sample_weight": sample_weight, "arms": arms, "probabilities": probabilities}
    return _fit(estimator, x, values, classes, fan_in, compute, reset=False)


def _fit(
    estimator: Any, x: Any, values: dict[str, Any], classes: Any, fan_in: int, compute: bool, *, reset: bool
) -> Any:
    check_targets(estimator, values["y"], classes, values["arms"], values["sample_weight"])
    for name, column in values.items():
        if isinstance(column, str):
            x, values[name] = x.drop(columns=[column]), x[column]
    rows = _blocks_of_rows(x)
    columns = [_blocks_of_values(name, each, x, len(rows)) for name, each in values.items()]
    classes = known_classes(estimator, classes, reset=reset)
    plan = Plan(estimator, len(rows), fan_in=fan_in, reset=reset)
    if classes is None and is_classifier(estimator):
        classes = _tree([_labels(block) for block in columns[0]], fan_in, lambda level, node, some: _all_labels(some))
    shared = delayed(plan, traverse=False)
    blocks = enumerate(zip(rows, *columns, strict=True))
    models = [learn_partition(shared, i, block, list(some), classes) for i, (block, *some) in blocks]
    root = _tree(models, fan_in, lambda level, node, some: merge_models(shared, level, node, some))
    model = shared.finish(root)
    return model.compute() if compute else model


def transform(model: Any, x: Any) -> Any:
    """Return `model.transform` of the rows as a lazy collection of the same kind as x."""
    return _by_rows(model, x, "transform")


def predict(model: Any, x: Any) -> Any:
    """Return the predictions for the rows as a lazy collection of the same kind as x."""
    return _by_rows(model, x, "predict")


def predict_proba(model: Any, x: Any) -> Any:
    """Return the class probabilities as a lazy collection of the same kind as x, with one column per class."""
    return _by_rows(model, x, "predict_proba")


# -- tasks; Dask's dashboard shows their names


@delayed
def learn_partition(plan: Plan, i: int, x: Any, columns: list[Any], classes: Any) -> Any:
    """Return the model of partition i."""
    return plan.learn(i, [(x, *(None if each is None else np.asarray(each) for each in columns))], classes)


@delayed
def merge_models(plan: Plan, level: int, node: int, models: list[Any]) -> Any:
    """Return the model of a node of the tree."""
    first = node * plan.fan_in
    return plan.merge(level, node, {first + j: model for j, model in enumerate(models)})


@delayed
def _labels(y: Any) -> Any:
    return np.unique(np.asarray(y))


@delayed
def _all_labels(some: list[Any]) -> Any:
    return np.unique(np.concatenate([labels for labels in some if len(labels)] or [np.empty(0)]))


def _tree(nodes: list[Any], fan_in: int, merge: Any) -> Any:
    """Return the root of a tree of merge tasks over the nodes."""
    level = 0
    while len(nodes) > 1 or level == 0:
        level += 1
        groups = [nodes[i : i + fan_in] for i in range(0, len(nodes), fan_in)]
        nodes = [merge(level, j, group) for j, group in enumerate(groups)]
    return nodes[0]


# -- collections to blocks


def _kind(x: Any) -> str:
    """Return the kind of a collection, or "" if x is not a Dask collection."""
    if isinstance(x, da.Array):
        return "array"
    if isinstance(x, Bag):
        return "bag"
    if isinstance(x, list | tuple) and len(x) and all(isinstance(block, Delayed) for block in x):
        return "delayed"
    return "frame" if hasattr(x, "to_delayed") and hasattr(x, "map_partitions") else ""


def _kind_of_rows(x: Any) -> str:
    """Return the kind of a collection of rows, or raise."""
    if not (kind := _kind(x)):
        raise TypeError(f"x must be a dask array, DataFrame, bag or a list of delayed blocks, got {type(x).__name__}.")
    return kind


def _partitions(x: Any) -> list[Any]:
    """Return the partitions of a collection as tasks."""
    return list(x) if _kind(x) == "delayed" else list(np.ravel(x.to_delayed()))


def _blocks_of_rows(x: Any) -> list[Any]:
    """Return the partitions of rows as tasks."""
    kind = _kind_of_rows(x)
    if kind == "array":
        if x.ndim != 2:
            raise ValueError(f"x must have two dimensions, got an array of shape {x.shape}.")
        return [_side_by_side(list(row)) if len(row) > 1 else row[0] for row in x.to_delayed()]
    return [delayed(_stacked)(block) for block in _partitions(x)] if kind == "bag" else _partitions(x)


def _blocks_of_values(name: str, values: Any, x: Any, n: int) -> list[Any]:
    """Return the partitions of targets or weights as tasks, one for each partition of x."""
    if values is None:
        return [None] * n
    known = isinstance(x, da.Array) and not np.isnan(x.shape[0])
    if known and not _kind(values):
        values = da.from_array(np.asarray(values), chunks=-1)
    if not _kind(values):
        raise TypeError(f"{name} must be a Dask collection with the partitions of x, got {type(values).__name__}.")
    if known and isinstance(values, da.Array) and not np.isnan(values.shape[0]):
        if values.shape != x.shape[:1]:
            raise ValueError(f"{name} must have shape {x.shape[:1]}, as x has {x.shape[0]} rows, got {values.shape}.")
        values = values.rechunk((x.chunks[0],))
    blocks = _partitions(values)
    if len(blocks) != n:
        raise ValueError(f"{name} has {len(blocks)} partitions, but x has {n}.")
    return blocks


@delayed
def _side_by_side(blocks: list[Any]) -> Any:
    return sp.hstack(blocks, "csr") if any(sp.issparse(block) for block in blocks) else np.hstack(blocks)


def _stacked(items: Any) -> Any:
    """Return the items of a bag as rows. Dicts are hashed; arrays and sparse blocks are stacked."""
    items = list(items)
    if not items:
        return np.empty((0, 0))
    if isinstance(items[0], Mapping):
        return sp.vstack([block.X for block in open_stream(items)], "csr")
    if sp.issparse(items[0]):
        return sp.vstack(items, "csr")
    return np.vstack(items)


# -- rows to predictions


def _by_rows(model: Any, x: Any, method: str) -> Any:
    """Return the output of a method for every row, as a collection."""
    if isinstance(model, Delayed):
        raise TypeError("model must be a fitted model, got a Delayed. Compute it first.")
    kind, shared = _kind_of_rows(x), delayed(model, traverse=False)
    if kind == "array":
        like = output_of(model, method)
        x = x.rechunk({1: -1}) if x.numblocks[1] > 1 else x
        form = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (x.chunks[0], (like.shape[1],))}
        empty = np.empty((0,) * like.ndim, like.dtype)
        return x.map_blocks(_apply, model=shared, method=method, dtype=like.dtype, meta=empty, **form)
    if kind == "frame":
        if (known := known_columns(model)) is not None:  # as on Spark, x may have others, such as the targets
            x = x[[name for name in known if name in x.columns]]
        return x.map_partitions(_apply_to_frame, shared, method, meta=_apply_to_frame(x._meta_nonempty, model, method))
    if kind == "bag":
        return x.map_partitions(_apply_to_items, model=shared, method=method)
    output_of(model, method)  # raises if the model cannot do this
    return [delayed(_apply)(block, shared, method) for block in x]


def _apply(x: Any, model: Any, method: str) -> Any:
    if x.shape[0] or hasattr(x, "iloc"):
        return getattr(model, method)(x)
    return output_of(model, method)[:0]  # the width of an empty bag is unknown


def _apply_to_items(items: Any, model: Any, method: str) -> list[Any]:
    return list(_apply(_stacked(items), model, method))


def _apply_to_frame(x: Any, model: Any, method: str) -> Any:
    """Return the output as a Series or a DataFrame with the index of the rows."""
    import pandas as pd

    found = _apply(x, model, method)
    if found.ndim == 1:
        return pd.Series(found, index=x.index, name=method)
    if method == "transform":
        names = model.get_feature_names_out()
    elif method == "predict_proba":
        names = model.arms_ if is_bandit(model) else model.classes_.tolist()
    else:
        names = model._output_labels()
    return pd.DataFrame(found, index=x.index, columns=list(names))
