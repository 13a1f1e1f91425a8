"""Streaming matrix sketches that certify their own error, and estimators over them."""

from robustfd.estimators.detector import MahalanobisDetector
from robustfd.estimators.pca import SketchedPCA
from robustfd.estimators.ridge import SketchedRidge
from robustfd.linalg.operator import LowRankPlusIdentity
from robustfd.linalg.optimum import frobenius_optimum, spectral_optimum
from robustfd.sketch._base import load
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
from robustfd.sketch.snapshot import SnapshotError

__version__ = "0.1.0"

__all__ = [
    "CompensativeFrequentDirections",
    "ExactSecondMoment",
    "FrequentDirections",
    "GreedySketch",
    "LowRankPlusIdentity",
    "MahalanobisDetector",
    "OjaSketch",
    "ParameterizedFrequentDirections",
    "RandomProjectionSketch",
    "RobustFrequentDirections",
    "SketchedPCA",
    "SketchedRidge",
    "SnapshotError",
    "frobenius_optimum",
    "load",
    "merge",
    "spectral_optimum",
]
