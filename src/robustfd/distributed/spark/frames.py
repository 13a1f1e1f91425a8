"""Fitting models to Spark DataFrames, and adding predictions as columns."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as f
from pyspark.sql import types
from sklearn.base import is_classifier

from robustfd.distributed._plan import (
    FAN_IN,
    Plan,
    as_sketch,
    check_targets,
    known_classes,
    output_of,
)
from robustfd.distributed.spark.columns import Columns, columns_of, with_known_form

SCHEMA = "node long, model binary"


def sketch(
    df: Any,
    sketch: Any = 50,
    *,
    features: Any = None,
    weight: str | None = None,
    sparse: bool | None = None,
    n_partitions: int | None = None,
    fan_in: int = FAN_IN,
) -> Any:
    """Return a sketch of all rows of a DataFrame.

    Parameters
    ----------
    df : Spark DataFrame
        The rows.
    sketch : int or sketch, default=50
        The size of a `RobustFrequentDirections`, or a sketch whose parameters to use.
    features, weight, sparse, n_partitions, fan_in
        See `fit`.

    Returns
    -------
    sketch
        The sketch of all rows.

    See Also
    --------
    fit : Fit any estimator.
    """
    more: dict[str, Any] = {"weight": weight, "sparse": sparse, "n_partitions": n_partitions, "fan_in": fan_in}
    return fit(as_sketch(sketch), df, features=features, **more)


def fit(estimator: Any, df: Any, **options: Any) -> Any:
    """Return a new model fitted to all rows of a DataFrame.

    Each partition is learned in order in one pass, as by `partial_fit`. Learners start each partition with a share of
    the prior (see `split`). Rows should be shuffled, with at least 1000 per partition. Partitions may be empty.

    Parameters
    ----------
    estimator : sketch or estimator
        The estimator whose parameters to use. It is not changed.
    df : Spark DataFrame
        The rows.
    features : str or list of str, optional
        Numeric columns, or one column of arrays or vectors. The default is the column "features" or, if there is none,
        all numeric columns except label and weight. A null in a numeric column is a missing value (NaN).
    label : str, optional
        The column of targets.
    weight : str, optional
        The column of weights.
    classes : array, optional
        All labels. If a classifier gets none, a first pass over the labels collects them.
    sparse : bool, optional
        Whether vectors become sparse rows. The default is whether the first vector is sparse.
    n_partitions : int, optional
        Number of partitions to shuffle the rows into first. By default, the rows are not shuffled.
    fan_in : int, default=8
        Number of models that one task merges.

    Returns
    -------
    model
        The fitted model.

    See Also
    --------
    partial_fit : Continue with a fitted model.
    """
    return _fit(estimator, df, reset=True, **options)


def partial_fit(estimator: Any, df: Any, **options: Any) -> Any:
    """Return a new model that has learned more rows in addition to those of the estimator.

    The parameters and the return value are those of `fit`. A learner continues from its weights in every partition, so
    this also makes further passes over the same rows possible. Each worker receives the model once, and each task
    splits off its own part.

    See Also
    --------
    fit : Fit from scratch.
    """
    return _fit(estimator, df, reset=False, **options)


def _fit(
    estimator: Any,
    df: Any,
    *,
    reset: bool,
    features: Any = None,
    label: str | None = None,
    weight: str | None = None,
    classes: Any = None,
    sparse: bool | None = None,
    n_partitions: int | None = None,
    fan_in: int = FAN_IN,
) -> Any:
    check_targets(estimator, label, classes)
    columns = with_known_form(columns_of(df, features, label, weight, sparse), df)
    df = df.select(*columns.needed)
    classes = known_classes(estimator, classes, reset=reset)
    if classes is None and is_classifier(estimator):
        found = [row[0] for row in df.select(columns.label).distinct().collect()]
        classes = np.unique(np.array([float(c) if hasattr(c, "as_tuple") else c for c in found if c is not None]))
    if n_partitions is not None:
        df = df.repartition(n_partitions)
    k = max(_count_partitions(df) if n_partitions is None else n_partitions, 1)
    plan = Plan(estimator, k, fan_in=fan_in, reset=reset)
    with _described(df, f"robustfd: {type(estimator).__name__} learns {k} partitions"):
        snapshots = _snapshots(plan, df, columns, classes, type(estimator)).collect()
    if len(snapshots) > 1 or any(row.node for row in snapshots):
        raise RuntimeError(f"Spark planned {k} partitions but read more. Give n_partitions to fix the number.")
    return plan.finish(type(estimator).from_bytes(bytes(snapshots[0].model)) if snapshots else plan.part(0))


@contextmanager
def _described(df: Any, text: str) -> Iterator[None]:
    """Set the job description that Spark's web UI shows."""
    if not hasattr(df, "_jdf"):  # Spark Connect
        yield
        return
    context, name = df.sparkSession.sparkContext, "spark.job.description"
    before = context.getLocalProperty(name)
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(name, before)


def _count_partitions(df: Any) -> int:
    try:
        return int(df.rdd.getNumPartitions())
    except Exception as error:  # Spark Connect has no RDDs
        if hasattr(df, "_jdf"):
            raise
        raise ValueError("n_partitions must be given with Spark Connect, which does not report it.") from error


def _snapshots(plan: Plan, df: Any, columns: Columns, classes: Any, kind: type[Any]) -> Any:
    """Return a DataFrame with the snapshot of the root: one row, or none if the data has no rows."""

    def learn(batches: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        i = context.partitionId() if context else 0
        if i < plan.partitions:
            model = plan.learn(i, (columns.read(batch) for batch in batches), classes)
            if model.__sklearn_is_fitted__():
                yield pa.RecordBatch.from_pydict(_row(i, model), schema=_ARROW)
        else:  # an unplanned partition; this marker makes the driver raise
            yield pa.RecordBatch.from_pydict({"node": [2**62], "model": [b""]}, schema=_ARROW)

    def merger(level: int) -> Any:
        def merge(key: Any, table: Any) -> Any:
            node = key[0].as_py()
            if node >= 2**32:
                return pa.Table.from_pydict({"node": [2**62], "model": [b""]}, schema=_ARROW)
            pairs = zip(table.column("node").to_pylist(), table.column("model").to_pylist(), strict=True)
            model = plan.merge(level, node, {j: kind.from_bytes(data) for j, data in pairs})
            return pa.Table.from_pydict(_row(node, model), schema=_ARROW)

        return merge

    models = df.mapInArrow(learn, SCHEMA)
    for level, nodes in enumerate(plan.levels[1:], 1):
        parent = f.floor(f.col("node") / plan.fan_in)
        models = models.withColumn("parent", parent).repartition(nodes, "parent")
        models = models.groupBy("parent").applyInArrow(merger(level), SCHEMA)
    return models


_ARROW = pa.schema([("node", pa.int64()), ("model", pa.binary())])


def _row(node: int, model: Any) -> dict[str, list[Any]]:
    return {"node": [node], "model": [model.to_bytes()]}


# -- models to columns


def transform(model: Any, df: Any, *, features: Any = None, output: str = "transformed") -> Any:
    """Return the DataFrame with an added array column, the output of `model.transform`."""
    return _with_column(model, df, "transform", features, output)


def predict(model: Any, df: Any, *, features: Any = None, output: str = "prediction") -> Any:
    """Return the DataFrame with an added column of predictions."""
    return _with_column(model, df, "predict", features, output)


def predict_proba(model: Any, df: Any, *, features: Any = None, output: str = "probability") -> Any:
    """Return the DataFrame with an added array column of class probabilities, in the order of `classes_`."""
    return _with_column(model, df, "predict_proba", features, output)


_TYPES = {"b": types.BooleanType(), "i": types.LongType(), "u": types.LongType(), "f": types.DoubleType()}
_NUMPY = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


def _with_column(model: Any, df: Any, method: str, features: Any, output: str) -> Any:
    if output in df.columns:
        raise ValueError(f"output must be a new column name, got {output!r}, which already exists.")
    like = output_of(model, method)
    if features is None and "features" not in df.columns:
        names = getattr(model, "feature_names_in_", None)
        features = None if names is None else list(names)
    columns = columns_of(df, features, None, None, None)
    kind = like.dtype.kind
    one = _TYPES.get(kind, types.StringType())
    field = types.StructField(output, types.ArrayType(types.DoubleType()) if like.ndim > 1 else one)

    def add(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            x = columns.rows(batch)
            found = getattr(model, method)(x) if len(batch) else like[:0]
            yield _appended(batch, output, _as_arrow(found, kind))

    return df.mapInArrow(add, types.StructType([*df.schema.fields, field]))


def _as_arrow(found: Any, kind: str) -> Any:
    if found.ndim == 1:
        return pa.array(found.astype(_NUMPY[kind])) if kind in _NUMPY else pa.array(found.tolist(), pa.string())
    n, d = found.shape
    ends = pa.array(np.arange(0, n * d + 1, max(d, 1), dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(found.ravel().astype(np.float64)))


def _appended(batch: Any, name: str, values: Any) -> Any:
    schema = batch.schema.append(pa.field(name, values.type))
    return pa.RecordBatch.from_arrays([*batch.columns, values], schema=schema)
