"""Streaming matrix sketches that certify their own error, online learning without tuning, and estimators over both."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd._container import SnapshotError, load
    from robustfd.decisions import PolicyEvaluation, SketchedLinUCB, evaluate_policy
    from robustfd.estimators import (
        MahalanobisDetector,
        RFDSONClassifier,
        RFDSONRegressor,
        SketchedNewtonClassifier,
        SketchedNewtonRegressor,
        SketchedPCA,
        SketchedRidge,
        SketchSizeWarning,
    )
    from robustfd.learners import AdaGrad, OnlineGradientDescent, OnlineNewton
    from robustfd.linalg import LowRankPlusDiagonal, LowRankPlusIdentity, frobenius_optimum, spectral_optimum
    from robustfd.sketch import (
        CompensativeFrequentDirections,
        DiagonalFrequentDirections,
        ExactSecondMoment,
        FrequentDirections,
        GreedySketch,
        OjaSketch,
        ParameterizedFrequentDirections,
        RandomProjectionSketch,
        RobustFrequentDirections,
        SlidingFrequentDirections,
        TwoSidedFrequentDirections,
        merge,
    )

__version__ = "0.1.0"

# The public names, by the package that defines them.
_NAMES = {
    "_container": ("SnapshotError", "load"),
    "decisions": ("PolicyEvaluation", "SketchedLinUCB", "evaluate_policy"),
    "estimators": (
        "MahalanobisDetector",
        "SketchSizeWarning",
        "SketchedPCA",
        "RFDSONClassifier",
        "RFDSONRegressor",
        "SketchedRidge",
        "SketchedNewtonClassifier",
        "SketchedNewtonRegressor",
    ),
    "linalg": ("LowRankPlusDiagonal", "LowRankPlusIdentity", "frobenius_optimum", "spectral_optimum"),
    "learners": ("AdaGrad", "OnlineGradientDescent", "OnlineNewton"),
    "sketch": (
        "DiagonalFrequentDirections",
        "ExactSecondMoment",
        "CompensativeFrequentDirections",
        "FrequentDirections",
        "GreedySketch",
        "ParameterizedFrequentDirections",
        "RobustFrequentDirections",
        "merge",
        "OjaSketch",
        "RandomProjectionSketch",
        "SlidingFrequentDirections",
        "TwoSidedFrequentDirections",
    ),
}
_SUBPACKAGES = ("datasets", "decisions", "estimators", "linalg", "learners", "sketch", "streams")

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
    "PolicyEvaluation",
    "RFDSONClassifier",
    "RFDSONRegressor",
    "RandomProjectionSketch",
    "RobustFrequentDirections",
    "SketchSizeWarning",
    "SketchedLinUCB",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
    "SketchedRidge",
    "SlidingFrequentDirections",
    "SnapshotError",
    "TwoSidedFrequentDirections",
    "evaluate_policy",
    "frobenius_optimum",
    "load",
    "merge",
    "spectral_optimum",
]

__getattr__, __dir__ = lazily(__name__, _NAMES, subpackages=_SUBPACKAGES, extras=("river", "distributed"))
