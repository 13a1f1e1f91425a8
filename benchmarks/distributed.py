"""Dask and Spark compared with one process, Spark MLlib and Vowpal Wabbit: time and accuracy on the same rows.

Rows are in the memory of the engine before timing starts. The engine's share is the part of the CPU time that is not
spent on learning and merging, which take as long as in one process. MLlib makes many passes over the rows.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustfd
from benchmarks import data, vowpal
from benchmarks.common import report
from robustfd.distributed._plan import Plan

TIMES = 32  # number of copies of the training rows
PARTITIONS = 8
COMPONENTS = 10
Rows = list[dict[str, Any]]


def distributed() -> None:
    """Measure rows per second and accuracy on a9a, and the overhead of the engine."""
    x, y = data.load("a9a")
    order = np.random.default_rng(0).permutation(len(y))
    cut = int(0.7 * len(y))
    train, test = np.tile(order[:cut], TIMES), order[cut:]
    train = np.random.default_rng(1).permutation(train)
    x, y = sp.csr_array(x), y.astype(np.float64)
    whole = (x[train], y[train])
    parts = [(x[rows], y[rows]) for rows in np.array_split(train, PARTITIONS)]

    def accuracy(predict: Callable[[Any], Any]) -> float:
        return 100 * float((np.asarray(predict(x[test])) == y[test]).mean())

    found: Rows = []
    alone, work = _one_process(whole, parts, accuracy, found)
    _on_dask(parts, len(train), alone, work, accuracy, found)
    _on_spark(x, y, train, test, alone, work, accuracy, found)
    if vowpal.available():
        _vowpal(whole, x[test], y[test], found)
    report("distributed", found)


def _line(found: Rows, what: str, value: float, unit: str = "") -> None:
    found.append({"what": what, "value": value, "unit": unit})


def _timed(task: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the best time of a task and its result. The first run is a warm-up, unless `repeats` is 0."""
    start = time.perf_counter()
    result = task()
    times = [] if repeats else [time.perf_counter() - start]
    for _ in range(repeats):
        start = time.perf_counter()
        result = task()
        times.append(time.perf_counter() - start)
    return min(times), result


def _one_process(whole: Any, parts: Any, accuracy: Any, found: Rows) -> tuple[float, float]:
    """Return the seconds of one process for all rows, and for all partitions and their merges."""
    n = len(whole[1])
    took, model = _timed(lambda: robustfd.SketchedNewtonClassifier().partial_fit(*whole, classes=[-1.0, 1.0]))
    _line(found, f"one process, {n:,} rows of a9a", n / took, "rows/s")
    _line(found, "  accuracy", accuracy(model.predict), "%")
    plan = Plan(robustfd.SketchedNewtonClassifier(), len(parts))

    def in_parts() -> Any:
        models = [plan.learn(i, [(*part, None)], [-1.0, 1.0]) for i, part in enumerate(parts)]
        return plan.merge(1, 0, dict(enumerate(models))), sum(len(model.to_bytes()) for model in models)

    work, (model, size) = _timed(in_parts)
    _line(found, f"  {len(parts)} partitions and their merges, in one process", n / work, "rows/s")
    _line(found, "  bytes of the models that are moved", size, "B")
    return took, work


def _share(work: float, took: float, workers: int) -> float:
    return max(0.0, 100 * (1.0 - work / (workers * took)))


def _on_dask(parts: Any, n: int, alone: float, work: float, accuracy: Any, found: Rows) -> None:
    from dask import delayed
    from dask.distributed import Client, LocalCluster

    from robustfd.distributed import dask as on_dask

    for workers in (1, 2):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            rows, targets = ([delayed(f) for f in client.scatter([part[i] for part in parts])] for i in range(2))
            took, model = _timed(
                lambda rows=rows, targets=targets: on_dask.fit(
                    robustfd.SketchedNewtonClassifier(), rows, targets, classes=[-1.0, 1.0]
                )
            )
        _line(found, f"Dask, {workers} workers", n / took, "rows/s")
        _line(found, "  times as fast as one process", alone / took)
        _line(found, "  the engine's share", _share(work, took, workers), "%")
        _line(found, "  accuracy", accuracy(model.predict), "%")


@contextmanager
def _session(cores: int) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "2g").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _frame(session: Any, x: Any, y: Any, rows: Any, partitions: int) -> Any:
    """Return a cached Spark DataFrame."""
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import functions as f

    x = x[rows]
    d, entries = x.shape[1], zip(x.indptr[:-1], x.indptr[1:], y[rows].tolist(), strict=True)
    items = [(Vectors.sparse(d, x.indices[a:b], x.data[a:b]), (label + 1) / 2) for a, b, label in entries]
    df = session.createDataFrame(session.sparkContext.parallelize(items, partitions), ["features", "label"])
    df = df.crossJoin(session.range(TIMES)).drop("id").repartition(partitions, f.rand(0))
    df = df.sortWithinPartitions(f.rand(1)).cache()  # copies of a row must not be adjacent
    df.count()
    return df


def _on_spark(x: Any, y: Any, train: Any, test: Any, alone: float, work: float, accuracy: Any, found: Rows) -> None:
    from robustfd.distributed import spark as on_spark

    n, learner = len(train), robustfd.SketchedNewtonClassifier()
    for cores in (1, 2):
        with _session(cores) as session:
            df = _frame(session, x, y, np.unique(train), PARTITIONS)
            options = {"label": "label", "classes": [0.0, 1.0]}
            took, model = _timed(lambda df=df, options=options: on_spark.fit(learner, df, **options))
            _line(found, f"Spark, {cores} cores", n / took, "rows/s")
            _line(found, "  times as fast as one process", alone / took)
            _line(found, "  the engine's share", _share(work, took, cores), "%")
            _line(found, "  accuracy", accuracy(lambda rows, model=model: 2 * model.predict(rows) - 1), "%")
            if cores == 2:
                _mllib(df, x, y, test, found)


def _mllib(df: Any, x: Any, y: Any, test: Any, found: Rows) -> None:
    """Measure MLlib's logistic regression and PCA, and our PCA, on the same DataFrame."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import PCA

    from robustfd.distributed import spark as on_spark

    n = df.count()
    took, model = _timed(lambda: LogisticRegression(maxIter=100).fit(df), 0)
    margin = x[test] @ model.coefficients.toArray() + model.intercept
    _line(found, f"MLlib's LogisticRegression, 2 cores, {model.summary.totalIterations} iterations", n / took, "rows/s")
    _line(found, "  accuracy", 100 * float(((margin > 0) == (y[test] > 0)).mean()), "%")
    took, theirs = _timed(lambda: PCA(k=COMPONENTS, inputCol="features", outputCol="out").fit(df))
    _line(found, f"MLlib's PCA of {COMPONENTS} components, 2 cores", n / took, "rows/s")
    _line(found, "  variance explained", 100 * float(np.sum(theirs.explainedVariance.toArray())), "%")
    took, ours = _timed(lambda: on_spark.fit(robustfd.SketchedPCA(COMPONENTS), df))
    _line(found, f"SketchedPCA of {COMPONENTS} components, 2 cores", n / took, "rows/s")
    _line(found, "  variance explained", 100 * float(np.sum(ours.explained_variance_ratio_)), "%")


def _vowpal(whole: Any, x: Any, y: Any, found: Rows) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows, tests, saved = (Path(folder) / name for name in ("rows", "tests", "model"))
        for path, (some, labels) in ((rows, whole), (tests, (x, y))):
            path.write_text("\n".join(f"{t:g} {line}" for t, line in zip(labels, vowpal.lines(some), strict=True)))
        d = x.shape[1]
        took, _ = vowpal.run(f"--loss_function logistic -f {saved}", d, rows)
        _, margin = vowpal.run(f"-t -i {saved}", d, tests, predictions=Path(folder) / "p")
    _line(found, "Vowpal Wabbit, one process, its text format", len(whole[1]) / took, "rows/s")
    _line(found, "  accuracy", 100 * float(((margin > 0) == (y > 0)).mean()), "%")
