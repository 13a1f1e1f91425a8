"""Spark: a real session gives the results of one process, even if a task fails. Streams continue after a restart."""

import os
import sys
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

import robustfd
from tests.distributed.parts import assert_same, cut, java_version, log_of_a_bandit, merged_here, sizes, true_error

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

from pyspark.ml import Pipeline, PipelineModel  # noqa: E402
from pyspark.ml.feature import VectorAssembler  # noqa: E402
from pyspark.ml.linalg import Vectors, VectorUDT  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from robustfd.distributed import spark as on_spark  # noqa: E402
from robustfd.distributed.spark.columns import Columns  # noqa: E402

WORDS = ["no", "yes"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONWARNINGS", "ignore")  # for the workers
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "400",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
        builder = SparkSession.builder.master("local[2,2]").appName("robustfd")  # a task may fail once
        for name, value in settings.items():
            builder = builder.config(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 6))
    return x, np.where(x @ rng.standard_normal(6) > 0, "yes", "no")


def frame(spark, x, k, **more):
    """Return a DataFrame of vectors in the k partitions of `cut`."""
    vectors = [Vectors.sparse(x.shape[1], r.indices, r.data) if sp.issparse(x) else Vectors.dense(r) for r in each(x)]
    items = list(zip(vectors, *(values.tolist() for values in more.values()), strict=True))
    parts = [items[a:b] for a, b in pairwise(np.cumsum([0, *sizes(x.shape[0], k)]))]
    schema = spark.createDataFrame(items[:1], ["features", *more]).schema
    return spark.createDataFrame(spark.sparkContext.parallelize(parts, k).flatMap(lambda part: part), schema)


def each(x):
    return (x[[i]] for i in range(x.shape[0])) if sp.issparse(x) else x


@pytest.mark.parametrize(("name", "partitions"), [("mnist", (2, 7)), ("a9a", (1, 64))])
def test_certificates_bound_the_true_error(spark, request, name, partitions):
    x = request.getfixturevalue(name)[0][:200]
    for k in partitions:
        sketch = robustfd.RobustFrequentDirections(10)
        made = on_spark.sketch(frame(spark, x, k), sketch)
        assert_same(made, merged_here(sketch, cut(x, k)))
        assert true_error(made, x) <= made.error_bound_ <= made.squared_norm_ / 5


def test_learners_are_those_of_one_machine_also_when_a_task_fails(spark, rows, tmp_path):
    x, y = rows
    flag, df = str(tmp_path / "failed"), frame(spark, x, 5, label=y)

    def fails_once(batches):
        for batch in batches:
            yield batch
            if not os.path.exists(flag):
                with open(flag, "w"):
                    pass
                raise RuntimeError("once")

    estimator = robustfd.SketchedNewtonClassifier()
    here = merged_here(estimator, cut(x, 5), cut(y, 5), WORDS)
    made = on_spark.fit(estimator, df.mapInArrow(fails_once, df.schema), label="label", classes=WORDS)
    assert os.path.exists(flag)
    assert_same(made, here)
    trees = robustfd.SketchedNewtonClassifier(expand="trees", random_state=0)
    assert_same(on_spark.fit(trees, df, label="label", classes=WORDS), merged_here(trees, cut(x, 5), cut(y, 5), WORDS))

    found = on_spark.predict_proba(made, on_spark.predict(made, df)).collect()
    assert [row.prediction for row in found] == made.predict(x).tolist()
    assert [row.label for row in found] == y.tolist()
    np.testing.assert_allclose([row.probability for row in found], made.predict_proba(x), rtol=1e-9)


def test_columns_of_numbers_arrays_and_vectors_give_the_same(spark, rows):
    x, _ = rows
    table = pd.DataFrame(x[:600], columns=list("abcdef")).assign(w=np.arange(600) % 3, t=x[:600, 0])
    table["list"] = x[:600].tolist()
    df = spark.createDataFrame(table).coalesce(1)
    weight = table["w"].to_numpy()
    here = robustfd.ExactSecondMoment().fit(x[:600], sample_weight=weight)
    names = list("abcdef")
    vectors = VectorAssembler(inputCols=names, outputCol="features").transform(df)
    for made in (
        on_spark.sketch(df.drop("list", "t"), robustfd.ExactSecondMoment(), weight="w"),
        on_spark.sketch(df, robustfd.ExactSecondMoment(), features=names, weight="w", n_partitions=3),
        on_spark.sketch(df, robustfd.ExactSecondMoment(), features="list", weight="w"),
        on_spark.sketch(vectors, robustfd.ExactSecondMoment(), weight="w"),
        on_spark.sketch(vectors, robustfd.ExactSecondMoment(), weight="w", sparse=True),
    ):
        np.testing.assert_allclose(made.second_moment() @ np.eye(6), here.second_moment() @ np.eye(6), rtol=1e-9)
        assert made.n_samples_seen_ == here.n_samples_seen_
    model = on_spark.fit(robustfd.SketchedNewtonRegressor(), df, features=names, label="t")
    again = on_spark.partial_fit(model, df, features=names, label="t")
    assert (model.n_samples_seen_, again.n_samples_seen_) == (600, 1200)
    pca = robustfd.SketchedPCA(2, sketch_size=6).fit(x)
    found = on_spark.transform(pca, df, features=names).select("transformed").collect()
    np.testing.assert_allclose([row[0] for row in found], pca.transform(x[:600]), rtol=1e-9, atol=1e-9)


def test_a_model_finds_its_columns_by_name(spark, rows, tmp_path):
    x, y = rows
    table = pd.DataFrame(x[:, [0, 1]], columns=["age", "income"]).assign(bought=(y == "yes").astype(int))
    df = spark.createDataFrame(table).coalesce(2)
    model = on_spark.fit(robustfd.SketchedNewtonClassifier(), df, label="bought")
    assert model.feature_names_in_.tolist() == ["age", "income"]
    model.save(tmp_path / "model.rfd")
    model = robustfd.load(tmp_path / "model.rfd")
    expected = model.predict(table[["age", "income"]]).tolist()
    vectors = VectorAssembler(inputCols=["bought"], outputCol="features").transform(df)
    for other in (df, df.select("bought", "income", "age"), vectors):
        assert [row.prediction for row in on_spark.predict(model, other).collect()] == expected
    assert on_spark.partial_fit(model, df.withColumn("more", df.age), label="bought").n_samples_seen_ == 3000
    with pytest.raises(ValueError, match="There is no column 'income'. The columns are age, bought"):
        on_spark.predict(model, df.drop("income"))
    with pytest.raises(ValueError, match=r"that the model has learned, \['age', 'income'\], got \['age', 'bought'\]"):
        on_spark.predict(model, df, features=["age", "bought"])
    with pytest.raises(ValueError, match="must be different columns, got 'age' twice"):
        on_spark.fit(robustfd.SketchedNewtonClassifier(), df, features=["age", "income"], label="age")
    unnamed = robustfd.SketchedNewtonClassifier().fit(x[:, :2], table["bought"])
    with pytest.raises(ValueError, match="features must name 2 columns, .* got 3: age, income, bought"):
        on_spark.predict(unnamed, df)
    assert on_spark.partial_fit(unnamed, df, features=["age", "income"], label="bought").n_samples_seen_ == 3000
    sketch = on_spark.sketch(df, robustfd.RobustFrequentDirections(2), features=["income", "age"])
    assert on_spark.partial_fit(sketch, df).n_samples_seen_ == 3000


def test_dense_and_sparse_vectors_may_be_mixed():
    x = np.array([[0.0, 2.0, 0.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    vectors = [Vectors.sparse(3, [1], [2.0]), Vectors.dense(x[1]), Vectors.sparse(3, [], []), Vectors.dense(x[3])]
    fields = [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
    rows = [
        dict(zip(("type", "size", "indices", "values"), VectorUDT().serialize(each), strict=True)) for each in vectors
    ]
    batch = pa.RecordBatch.from_pydict({"features": pa.array(rows, pa.struct(fields))})
    for some in (slice(0, 4), slice(1, 3), slice(1, 2), slice(0, 0)):
        part = batch.slice(some.start, some.stop - some.start)
        found = Columns(("features",), "vector", None).rows(part)
        assert sp.issparse(found) == bool(some.stop - some.start > 1)
        if part.num_rows:
            np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, x[some])
            np.testing.assert_array_equal(Columns(("features",), "vector", False).rows(part), x[some])
            assert sp.issparse(Columns(("features",), "vector", True).rows(part))


def test_a_pipeline_is_saved_and_loaded(spark, rows, tmp_path):
    x, y = rows
    df = spark.createDataFrame(pd.DataFrame(x, columns=list("abcdef")).assign(label=(y == "yes") * 1.0)).coalesce(2)
    pipeline = Pipeline(
        stages=[
            VectorAssembler(inputCols=list("abcdef"), outputCol="features"),
            on_spark.RobustfdEstimator(estimator=robustfd.SketchedNewtonClassifier(sketch_size=3), nPartitions=2),
        ]
    )
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline"))
    assert loaded.getStages()[-1].getEstimator().sketch_size == 3
    model = loaded.fit(df)
    scored = model.transform(df).select("label", "prediction", "probability").collect()
    assert np.mean([row.label == row.prediction for row in scored]) > 0.9
    model.write().overwrite().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert again.stages[-1].model.to_bytes() == model.stages[-1].model.to_bytes()
    assert again.transform(df).select("label", "prediction", "probability").collect() == scored
    sketch = on_spark.RobustfdEstimator(estimator=robustfd.RobustFrequentDirections(4)).fit(
        VectorAssembler(inputCols=list("abcdef"), outputCol="features").transform(df)
    )
    assert sketch.model.n_samples_seen_ == 1500
    with pytest.raises(TypeError, match="can neither predict nor transform"):
        sketch.transform(df)


def test_a_stream_counts_no_batch_twice(spark, rows, tmp_path):
    x, y = rows
    folder, checkpoint = tmp_path / "in", str(tmp_path / "checkpoint")
    table = pd.DataFrame(x, columns=list("abcdef")).assign(label=y)
    folder.mkdir()
    options = {"features": list("abcdef"), "label": "label", "classes": WORDS}
    fit = on_spark.StreamingFit(robustfd.SketchedNewtonClassifier(), tmp_path / "model", **options)
    seen = []

    def run(function, checkpoint=checkpoint):
        source = spark.readStream.schema("a double, b double, c double, d double, e double, f double, label string")
        stream = source.option("maxFilesPerTrigger", "1").parquet(str(folder)).writeStream.foreachBatch(function)
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def dies_after_the_model_is_saved(batch, batch_id):
        fit(batch, batch_id)
        seen.append(batch_id)
        if batch_id == 1:
            raise RuntimeError("before Spark notes that the batch is done")

    for i in range(3):
        table[i * 500 : (i + 1) * 500].to_parquet(folder / f"{i}.parquet")
    with pytest.raises(Exception, match="before Spark notes that the batch is done"):
        run(dies_after_the_model_is_saved)
    assert seen == [0, 1] and fit.model.n_samples_seen_ == 1000

    again = on_spark.StreamingFit(robustfd.SketchedNewtonClassifier(), tmp_path / "model", **options)

    def goes_on(batch, batch_id):
        again(batch, batch_id)
        seen.append(batch_id)

    run(goes_on)
    assert seen == [0, 1, 1, 2]  # Spark delivered batch 1 twice
    assert again.model.n_samples_seen_ == 1500
    assert (again.model.predict(table.drop(columns="label")) == y).mean() > 0.9
    with pytest.raises(Exception, match="belongs to another query"):
        run(again, str(tmp_path / "other"))
    with pytest.raises(ValueError, match="classes must be given for a stream"):
        on_spark.StreamingFit(robustfd.SketchedNewtonClassifier(), tmp_path / "model", label="label")


def test_bad_input_is_refused_by_a_sentence(spark):
    df = spark.createDataFrame([(1.0, "a", [1.0]), (2.0, "b", [1.0, 2.0])], ["x", "y", "list"])
    for options, message in (
        ({"features": "z"}, "There is no column 'z'. The columns are x, y, list"),
        ({"features": "y"}, "The column 'y' must hold numbers, arrays or vectors, got type string"),
        ({"features": ["x", "list"]}, "features must be numeric columns, or one column"),
        ({"features": []}, "features must name at least one column"),
    ):
        with pytest.raises(ValueError, match=message):
            on_spark.sketch(df, 5, **options)
    with pytest.raises(Exception, match="The arrays in 'list' must have one length, got lengths 1 to 2"):
        on_spark.sketch(df.coalesce(1), 5, features="list")
    with pytest.raises(ValueError, match="SketchedNewtonClassifier needs targets"):
        on_spark.fit(robustfd.SketchedNewtonClassifier(), df)
    with pytest.raises(ValueError, match="partitions are empty"):
        on_spark.sketch(df.where("x > 5"), 5, features="x")
    with pytest.raises(ValueError, match="output must be a new column name, got 'y'"):
        on_spark.predict(robustfd.RFDSONRegressor().fit([[1.0], [2.0]], [1.0, 2.0]), df, features="x", output="y")


def test_bandits_learn_columns(spark):
    x, arm, reward, p = log_of_a_bandit()
    table = pd.DataFrame(x, columns=list("wxyz")).assign(arm=arm, reward=reward, p=p)
    df, bandit = spark.createDataFrame(table), robustfd.ContextualBandit(random_state=0)
    roles = {"label": "reward", "arm": "arm", "probability": "p", "n_partitions": 3}
    made = on_spark.fit(bandit, df, **roles)
    assert made.feature_names_in_.tolist() == list("wxyz") and made.n_samples_seen_ == 1200
    assert sorted(made.arms_) == ["a", "b", "c"] and made.progressive_reward_ == pytest.approx(reward.mean())
    chosen = np.array([row.prediction for row in on_spark.predict(made, df).collect()])
    right = np.where(x[:, 0] > 0, chosen == "b", chosen != "b")
    assert right.mean() > 0.9
    assert on_spark.partial_fit(made, df, **roles).n_samples_seen_ == 2400
    with pytest.raises(ValueError, match="needs arms"):
        on_spark.fit(bandit, df, label="reward")
