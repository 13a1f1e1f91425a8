"""Streaming matrix sketches that certify their own error, online learning without tuning, and estimators over both."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustfd._container import SnapshotError, load
    from robustfd.estimators.detector import MahalanobisDetector
    from robustfd.estimators.pca import SketchedPCA
    from robustfd.estimators.rfdson import RFDSONClassifier, RFDSONRegressor
    from robustfd.estimators.ridge import SketchedRidge
    from robustfd.estimators.sketched_newton import SketchedNewtonClassifier, SketchedNewtonRegressor
    from robustfd.linalg.diagonal import LowRankPlusDiagonal
    from robustfd.linalg.operator import LowRankPlusIdentity
    from robustfd.linalg.optimum import frobenius_optimum, spectral_optimum
    from robustfd.online.adagrad import AdaGrad
    from robustfd.online.gradient_descent import OnlineGradientDescent
    from robustfd.online.newton import OnlineNewton
    from robustfd.sketch.diagonal import DiagonalFrequentDirections
    from robustfd.sketch.exact import ExactSecondMoment
    from robustfd.sketch.frequent_directions import (
        CompensativeFrequentDirections,
        FrequentDirections,
        GreedySketch,
        ParameterizedFrequentDirections,
        RobustFrequentDirections,
    )
    from robustfd.sketch.merge import merge
    from robustfd.sketch.oja import OjaSketch
    from robustfd.sketch.random_projection import RandomProjectionSketch
    from robustfd.sketch.sliding import SlidingFrequentDirections

__version__ = "0.1.0"

# Where each public name lives; a module is imported when a name of it is first asked for, so that nobody waits for
# what they do not use.
_HOMES = {
    "_container": ("SnapshotError", "load"),
    "estimators.detector": ("MahalanobisDetector",),
    "estimators.pca": ("SketchedPCA",),
    "estimators.rfdson": ("RFDSONClassifier", "RFDSONRegressor"),
    "estimators.ridge": ("SketchedRidge",),
    "estimators.sketched_newton": ("SketchedNewtonClassifier", "SketchedNewtonRegressor"),
    "linalg.diagonal": ("LowRankPlusDiagonal",),
    "linalg.operator": ("LowRankPlusIdentity",),
    "linalg.optimum": ("frobenius_optimum", "spectral_optimum"),
    "online.adagrad": ("AdaGrad",),
    "online.gradient_descent": ("OnlineGradientDescent",),
    "online.newton": ("OnlineNewton",),
    "sketch.diagonal": ("DiagonalFrequentDirections",),
    "sketch.exact": ("ExactSecondMoment",),
    "sketch.frequent_directions": (
        "CompensativeFrequentDirections",
        "FrequentDirections",
        "GreedySketch",
        "ParameterizedFrequentDirections",
        "RobustFrequentDirections",
    ),
    "sketch.merge": ("merge",),
    "sketch.oja": ("OjaSketch",),
    "sketch.random_projection": ("RandomProjectionSketch",),
    "sketch.sliding": ("SlidingFrequentDirections",),
}

__all__ = [
    "AdaGrad",
    "CompensativeFrequentDirections",
    "DiagonalFrequentDirections",
    "ExactSecondMoment",
    "FrequentDirections",
    "GreedySketch",
    "LowRankPlusDiagonal",
    "LowRankPlusIdentity",
    "MahalanobisDetector",
    "OjaSketch",
    "OnlineGradientDescent",
    "OnlineNewton",
    "ParameterizedFrequentDirections",
    "RFDSONClassifier",
    "RFDSONRegressor",
    "RandomProjectionSketch",
    "RobustFrequentDirections",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
    "SketchedRidge",
    "SlidingFrequentDirections",
    "SnapshotError",
    "frobenius_optimum",
    "load",
    "merge",
    "spectral_optimum",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            try:
                value = getattr(import_module(f"robustfd.{home}"), name)
            except AttributeError as error:  # `from robustfd import name` would say that there is no such name
                raise ImportError(f"robustfd.{name} could not be imported: {error}") from error
            globals()[name] = value
            return value
    raise AttributeError(f"module 'robustfd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
