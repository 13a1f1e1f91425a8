"""Sketches and learners on Spark DataFrames. Needs Spark 4 and Java 17: ``pip install 'robustfd[spark]'``.

One task (`mapInArrow`) learns each partition and returns a snapshot of its model. The snapshots are merged in a tree,
`fan_in` at a time, and only the final one goes to the driver. Tasks are pure functions of a plan and their partition. A
partition that is computed again after a failure therefore counts once.

Rows are the numeric columns of a DataFrame, an array column, or a vector column. Sparse vectors stay sparse.
`RobustfdEstimator` and `RobustfdModel` wrap the same functions as stages of a `pyspark.ml.Pipeline`, and `StreamingFit`
learns from a stream via `foreachBatch`.
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("robustfd.distributed.spark needs Spark: pip install 'robustfd[spark]'") from error

from robustfd.distributed.spark.frames import StreamingFit, fit, partial_fit, predict, predict_proba, sketch, transform
from robustfd.distributed.spark.ml import RobustfdEstimator, RobustfdModel

__all__ = [
    "RobustfdEstimator", "RobustfdModel", "StreamingFit", "fit", "partial_fit", "predict", "predict_proba", "sketch",
    "transform",
]  # fmt: skip
