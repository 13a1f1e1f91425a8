"""The public names of robustfd.estimators."""

from robustfd.estimators._sketched import SketchSizeWarning as SketchSizeWarning
from robustfd.estimators.bandit import ContextualBandit as ContextualBandit
from robustfd.estimators.detector import MahalanobisDetector as MahalanobisDetector
from robustfd.estimators.newton import SketchedNewtonClassifier as SketchedNewtonClassifier
from robustfd.estimators.newton_regressor import SketchedNewtonRegressor as SketchedNewtonRegressor
from robustfd.estimators.pca import SketchedPCA as SketchedPCA
from robustfd.estimators.rfdson import RFDSONClassifier as RFDSONClassifier
from robustfd.estimators.rfdson import RFDSONRegressor as RFDSONRegressor
from robustfd.estimators.ridge import SketchedRidge as SketchedRidge
