"""Learning from a Spark stream batch by batch, exactly once, including after a restart."""

import os
from typing import Any

from sklearn.base import is_classifier

from robustfd._container import load_with_notes
from robustfd.distributed._plan import check_targets
from robustfd.distributed.spark import frames

QUERY = "sql.streaming.queryId"  # local property that holds the id of the running query


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
        check_targets(estimator, options.get("label"), options.get("classes"))
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
        model = frames.partial_fit(self.estimator if model is None else model, batch, **self.options)
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
