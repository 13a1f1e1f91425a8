"""A model that learns a stream of Spark batch by batch, each batch once, also after a restart."""

import os
from typing import Any

from sklearn.base import is_classifier

from robustfd._container import load_with_notes
from robustfd.distributed._plan import check_targets
from robustfd.distributed.spark import frames

QUERY = "sql.streaming.queryId"  # where Spark says which query a thread works for


class StreamingFit:
    """What `foreachBatch` calls: it learns a batch and saves the model, with the number of the batch in its notes.

    The file is replaced in one step, so that it always has a model and the number of the last batch that is in it.
    Spark hands in a batch again if it was stopped before it could note that the batch was done. Then the number says
    whether it is in the model already.

    Parameters
    ----------
    estimator : sketch or estimator
        Its parameters are used.
    path : str or path
        The file of the running model, at the driver. It must outlive the driver, as must the checkpoint of the stream.
        If there is a model, it goes on.
    **options
        As for `robustfd.distributed.spark.fit`; classifiers need `classes`.

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
            raise ValueError("classes must be given for a stream: all labels there will be.")
        self.estimator, self.path, self.options = estimator, os.fspath(path), options

    def __call__(self, batch: Any, batch_id: int) -> None:
        """Learn a batch, unless it was learnt before."""
        model, notes = self._load()
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY)
        if model is not None:
            if notes.get("query") != query:
                raise ValueError(
                    f"{self.path} has learnt batches of another query, {notes.get('query')}, and this is {query}. "
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
        """The model so far, read from the file; None before the first batch."""
        return self._load()[0]

    def _load(self) -> tuple[Any, dict[str, Any]]:
        if not os.path.exists(self.path):
            return None, {}
        model, notes = load_with_notes(self.path)
        if type(model) is not type(self.estimator):
            raise ValueError(f"{self.path} has a {type(model).__name__}, not a {type(self.estimator).__name__}.")
        return model, notes
