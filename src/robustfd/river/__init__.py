"""The estimators with River's interface, for its pipelines and metrics.

Needs River: ``pip install 'robustfd[river]'``.
"""

try:
    import river  # noqa: F401
except ImportError as error:
    raise ImportError("robustfd.river needs River: pip install 'robustfd[river]'") from error

from robustfd.river.learners import RFDSONClassifier, RFDSONRegressor, SketchedNewtonClassifier, SketchedNewtonRegressor
from robustfd.river.policy import ContextualBandit
from robustfd.river.sketches import MahalanobisDetector, SketchedPCA, SketchedRidge

__all__ = [
    "ContextualBandit", "MahalanobisDetector", "RFDSONClassifier", "RFDSONRegressor", "SketchedNewtonClassifier",
    "SketchedNewtonRegressor", "SketchedPCA", "SketchedRidge",
]  # fmt: skip
