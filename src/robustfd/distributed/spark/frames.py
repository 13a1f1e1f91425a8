"""Models on Spark DataFrames: fits, predictions as columns, and learning from streams."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as f
from pyspark.sql import types
from sklearn.base import is_classifier

from robustfd._container import load_with_notes
from robustfd.distributed._plan import FAN_IN, Plan, as_sketch, check_targets, known_classes, output_of
from robustfd.distributed.spark.columns import Columns, columns_of, with_known_form

SNAPSHOT = pa.schema([("node", pa.int64()), ("model", pa.binary())])  # a model and its place in the tree
SCHEMA = "node long, model binary"  # the same for Spark
UNPLANNED = 2**62  # the node of a partition that the plan does not have
QUERY = "sql.streaming.queryId"  # local property that holds the id of the running query


# -- DataFrames to models


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
    more: dict[str, Any] = {"features": features, "weight": weight, "sparse": sparse}
    return fit(as_sketch(sketch), df, n_partitions=n_partitions, fan_in=fan_in, **more)


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
        all numeric columns except label and weight. A null in a numeric column is a missing value (NaN). The model
        remembers the names of numeric columns. `partial_fit`, `predict` and the others find them by name, and ignore
        all other columns.
    label : str, optional
        The column of targets.
    weight : str, optional
        The column of weights.
    arm, probability : str, optional
        For a `ContextualBandit`: the columns of the arms that were chosen, whose rewards are in `label`, and of the
        probabilities of these choices.
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
    arm: str | None = None,
    probability: str | None = None,
    classes: Any = None,
    sparse: bool | None = None,
    n_partitions: int | None = None,
    fan_in: int = FAN_IN,
) -> Any:
    check_targets(estimator, label, classes, arm, weight)
    before = None if reset or not estimator.__sklearn_is_fitted__() else estimator
    roles: dict[str, Any] = {"label": label, "weight": weight, "arm": arm, "probability": probability}
    columns = columns_of(df, features, **roles, sparse=sparse, model=before)
    columns = with_known_form(columns, df)
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
        if i >= plan.partitions:  # this marker makes the driver raise
            yield pa.RecordBatch.from_pydict({"node": [UNPLANNED], "model": [b""]}, schema=SNAPSHOT)
            return
        model = plan.learn(i, (columns.read(batch) for batch in batches), classes)
        if model.__sklearn_is_fitted__():
            yield pa.RecordBatch.from_pydict({"node": [i], "model": [model.to_bytes()]}, schema=SNAPSHOT)

    def merger(level: int) -> Any:
        def merge(key: Any, table: Any) -> Any:
            node, found = key[0].as_py(), {"node": [UNPLANNED], "model": [b""]}
            if node < 2**32:
                pairs = zip(table.column("node").to_pylist(), table.column("model").to_pylist(), strict=True)
                model = plan.merge(level, node, {j: kind.from_bytes(data) for j, data in pairs})
                found = {"node": [node], "model": [model.to_bytes()]}
            return pa.Table.from_pydict(found, schema=SNAPSHOT)

        return merge

    models = df.mapInArrow(learn, SCHEMA)
    for level, nodes in enumerate(plan.levels[1:], 1):
        parent = f.floor(f.col("node") / plan.fan_in)
        models = models.withColumn("parent", parent).repartition(nodes, "parent")
        models = models.groupBy("parent").applyInArrow(merger(level), SCHEMA)
    return models


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


_TYPES: dict[str, tuple[Any, Any]] = {  # of Spark and numpy, by the kind of numpy's type
    "b": (types.BooleanType(), np.bool_),
    "i": (types.LongType(), np.int64),
    "u": (types.LongType(), np.int64),
    "f": (types.DoubleType(), np.float64),
}


def _with_column(model: Any, df: Any, method: str, features: Any, output: str) -> Any:
    if output in df.columns:
        raise ValueError(f"output must be a new column name, got {output!r}, which already exists.")
    like = output_of(model, method)
    columns = columns_of(df, features, model=model)
    kind = like.dtype.kind
    one = _TYPES[kind][0] if kind in _TYPES else types.StringType()
    field = types.StructField(output, types.ArrayType(types.DoubleType()) if like.ndim > 1 else one)

    def add(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            x = columns.rows(batch)
            values = _as_arrow(getattr(model, method)(x) if len(batch) else like[:0], kind)
            schema = batch.schema.append(pa.field(output, values.type))
            yield pa.RecordBatch.from_arrays([*batch.columns, values], schema=schema)

    return df.mapInArrow(add, types.StructType([*df.schema.fields, field]))


def _as_arrow(found: Any, kind: str) -> Any:
    if found.ndim == 1:
        return pa.array(found.astype(_TYPES[kind][1])) if kind in _TYPES else pa.array(found.tolist(), pa.string())
    n, d = found.shape
    ends = pa.array(np.arange(0, n * d + 1, max(d, 1), dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(found.ravel().astype(np.float64)))


# -- streams to models


class StreamingFit:
    """Callback for `foreachBatch` that learns each batch exactly once and saves the model.

    The snapshot also stores the number of the last batch, and the file is replaced atomically. If Spark stops before it
    commits a batch, it delivers the batch again. The stored number then shows that the model already includes it.

    Parameters
    ----------
    estimator : sketch or estimator
        The estimator whose parameters to use.
    path : str or path
        The model file on the driver. If it exists, learning continues from it. Keep it, like the checkpoint of the
        stream, on storage that outlives the driver.
    **options
        Options of `robustfd.distributed.spark.fit`. Classifiers need `classes`.

    See Also
    --------
    robustfd.distributed.spark.partial_fit : Learn from one DataFrame.

    Examples
    --------
    >>> query = (  # doctest: +SKIP
    ...     spark.readStream.schema(schema).parquet("rows")
    ...     .writeStream.foreachBatch(StreamingFit(RobustFrequentDirections(50), "model.rfd"))
    ...     .option("checkpointLocation", "checkpoint").start()
    ... )
    """

    def __init__(self, estimator: Any, path: Any, **options: Any):
        check_targets(estimator, *(options.get(name) for name in ("label", "classes", "arm", "weight")))
        if is_classifier(estimator) and options.get("classes") is None:
            raise ValueError("classes must be given for a stream: all labels that can occur.")
        self.estimator, self.path, self.options = estimator, os.fspath(path), options

    def __call__(self, batch: Any, batch_id: int) -> None:
        """Learn a batch unless the model already includes it."""
        model, notes = self._load()
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY)
        if model is not None:
            if notes.get("query") != query:
                raise ValueError(
                    f"{self.path} belongs to another query, {notes.get('query')}; this is {query}. "
                    "Was the checkpoint of the stream deleted? Use the old checkpoint, or another path."
                )
            if batch_id <= notes["batch"]:
                return
        if batch.isEmpty():
            return
        model = partial_fit(self.estimator if model is None else model, batch, **self.options)
        model.save(self.path, notes={"batch": int(batch_id), "query": query})

    @property
    def model(self) -> Any:
        """The current model, read from the file, or None before the first batch."""
        return self._load()[0]

    def _load(self) -> tuple[Any, dict[str, Any]]:
        if not os.path.exists(self.path):
            return None, {}
        model, notes = load_with_notes(self.path)
        if type(model) is not type(self.estimator):
            raise ValueError(f"{self.path} must hold a {type(self.estimator).__name__}, got a {type(model).__name__}.")
        return model, notes
