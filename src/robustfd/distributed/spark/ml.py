"""An estimator and its model as stages of `pyspark.ml` pipelines. Pipelines can save and load them."""

import os
from typing import Any

import numpy as np
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasOutputCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasWeightCol,
)
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import functions as f

from robustfd._container import Saved, from_parameters_json, parameters_as_json
from robustfd.distributed._plan import FAN_IN, check_estimator
from robustfd.distributed.spark import frames


class _Columns(HasFeaturesCol, HasLabelCol, HasWeightCol, HasPredictionCol, HasProbabilityCol, HasOutputCol):
    """Column name parameters that the estimator and its model share."""


class RobustfdEstimator(Estimator, _Columns, DefaultParamsReadable, DefaultParamsWritable):
    """A sketch or an estimator as a pipeline stage. `fit` returns a `RobustfdModel`.

    Parameters
    ----------
    estimator : sketch or estimator
        The estimator whose parameters to use.
    featuresCol, labelCol, weightCol : str
        Columns of the rows (numbers, arrays or vectors), targets and weights. Only estimators that need labels use
        labelCol.
    predictionCol, probabilityCol, outputCol : str
        Columns that the model adds. Classifiers add predictionCol and probabilityCol, regressors predictionCol, and
        transformers outputCol.
    classes : list, optional
        All labels. If a classifier gets none, a first pass over the labels collects them.
    nPartitions : int, default=0
        Number of partitions to shuffle the rows into first. 0 does not shuffle.
    fanIn : int, default=8
        Number of models that one task merges.

    See Also
    --------
    RobustfdModel : The fitted stage.
    """

    template = Param(Params._dummy(), "template", "class and parameters, as JSON", TypeConverters.toString)
    classes = Param(Params._dummy(), "classes", "all labels", TypeConverters.toList)
    nPartitions = Param(
        Params._dummy(), "nPartitions", "partitions to shuffle rows into, 0 for none", TypeConverters.toInt
    )
    fanIn = Param(Params._dummy(), "fanIn", "number of models that one task merges", TypeConverters.toInt)

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        estimator: Any = None,
        featuresCol: str = "features",
        labelCol: str = "label",
        weightCol: str | None = None,
        predictionCol: str = "prediction",
        probabilityCol: str = "probability",
        outputCol: str = "transformed",
        classes: Any = None,
        nPartitions: int = 0,
        fanIn: int = FAN_IN,
    ):
        super().__init__()
        self._setDefault(outputCol="transformed", nPartitions=0, fanIn=FAN_IN)
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        if (estimator := given.pop("estimator", None)) is not None:
            check_estimator(estimator)
            given["template"] = parameters_as_json(estimator)
        if "classes" in given:
            given["classes"] = np.asarray(given["classes"]).tolist()
        self._set(**given)

    def getEstimator(self) -> Any:
        """Return a new unfitted estimator with the parameters of this stage."""
        return from_parameters_json(self.getOrDefault("template"))

    def _fit(self, dataset: Any) -> "RobustfdModel":
        estimator = self.getEstimator()
        needs_label = estimator.__sklearn_tags__().target_tags.required
        model = frames.fit(
            estimator,
            dataset,
            features=self.getFeaturesCol(),
            label=self.getLabelCol() if needs_label else None,
            weight=self.getWeightCol() if self.isDefined("weightCol") else None,
            classes=self.getOrDefault("classes") if self.isDefined("classes") else None,
            n_partitions=self.getOrDefault("nPartitions") or None,
            fan_in=self.getOrDefault("fanIn"),
        )
        return self._copyValues(RobustfdModel(model))


class RobustfdModel(Model, _Columns, MLReadable, MLWritable):
    """The fitted stage of a `RobustfdEstimator`.

    `model` is the robustfd object, and `transform` adds its output columns.

    See Also
    --------
    RobustfdEstimator : The stage that creates it.
    """

    def __init__(self, model: Any = None):
        super().__init__()
        self._setDefault(outputCol="transformed")
        self.model = model

    def _transform(self, dataset: Any) -> Any:
        features, made = self.getFeaturesCol(), False
        if hasattr(self.model, "predict"):
            dataset, made = frames.predict(self.model, dataset, features=features, output=self.getPredictionCol()), True
        for method, name in (("predict_proba", self.getProbabilityCol()), ("transform", self.getOutputCol())):
            if hasattr(self.model, method):
                dataset = getattr(frames, method)(self.model, dataset, features=features, output=name)
                dataset, made = dataset.withColumn(name, array_to_vector(f.col(name))), True
        if not made:
            raise TypeError(f"A {type(self.model).__name__} can neither predict nor transform. Use its `model`.")
        return dataset

    def write(self) -> "MLWriter":
        """Return a writer that saves this model to a folder."""
        return _Writer(self)

    @classmethod
    def read(cls) -> "MLReader[Any]":
        """Return a reader that loads a model from a folder."""
        return _Reader()


class _Writer(MLWriter):
    def __init__(self, instance: Any):
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession)
        data = self.sparkSession.createDataFrame([(bytearray(self.instance.model.to_bytes()),)], "model binary")
        data.coalesce(1).write.parquet(os.path.join(path, "model"))


class _Reader(MLReader[Any]):
    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        row = self.sparkSession.read.parquet(os.path.join(path, "model")).first()
        instance = RobustfdModel(Saved.from_bytes(bytes(row.model)))
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        return instance
