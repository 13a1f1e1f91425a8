"""Scikit-learn estimators on top of the sketches and the online learners.

This layer validates input and follows scikit-learn's conventions. The mathematics is in the layers below.
"""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.estimators._sketched import SketchSizeWarning
    from robustfd.estimators.detector import MahalanobisDetector
    from robustfd.estimators.newton import SketchedNewtonClassifier, SketchedNewtonRegressor
    from robustfd.estimators.pca import SketchedPCA
    from robustfd.estimators.rfdson import RFDSONClassifier, RFDSONRegressor
    from robustfd.estimators.ridge import SketchedRidge

_NAMES = {
    "_sketched": ("SketchSizeWarning",),
    "detector": ("MahalanobisDetector",),
    "pca": ("SketchedPCA",),
    "rfdson": ("RFDSONClassifier", "RFDSONRegressor"),
    "ridge": ("SketchedRidge",),
    "newton": ("SketchedNewtonClassifier", "SketchedNewtonRegressor"),
}

__all__ = [
    "MahalanobisDetector",
    "RFDSONClassifier",
    "RFDSONRegressor",
    "SketchSizeWarning",
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "SketchedPCA",
    "SketchedRidge",
]

__getattr__, __dir__ = lazily(__name__, _NAMES)
