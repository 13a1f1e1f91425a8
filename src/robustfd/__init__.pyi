"""The public names of robustfd."""

from robustfd import datasets as datasets
from robustfd import decisions as decisions
from robustfd import distributed as distributed
from robustfd import estimators as estimators
from robustfd import learners as learners
from robustfd import linalg as linalg
from robustfd import river as river
from robustfd import sketch as sketch
from robustfd import streams as streams
from robustfd._container import SnapshotError as SnapshotError
from robustfd._container import load as load
from robustfd.decisions import PolicyEvaluation as PolicyEvaluation
from robustfd.decisions import SketchedLinUCB as SketchedLinUCB
from robustfd.decisions import evaluate_policy as evaluate_policy
from robustfd.estimators import ContextualBandit as ContextualBandit
from robustfd.estimators import MahalanobisDetector as MahalanobisDetector
from robustfd.estimators import RFDSONClassifier as RFDSONClassifier
from robustfd.estimators import RFDSONRegressor as RFDSONRegressor
from robustfd.estimators import SketchedNewtonClassifier as SketchedNewtonClassifier
from robustfd.estimators import SketchedNewtonRegressor as SketchedNewtonRegressor
from robustfd.estimators import SketchedPCA as SketchedPCA
from robustfd.estimators import SketchedRidge as SketchedRidge
from robustfd.estimators import SketchSizeWarning as SketchSizeWarning
from robustfd.learners import AdaGrad as AdaGrad
from robustfd.learners import OnlineGradientDescent as OnlineGradientDescent
from robustfd.learners import OnlineNewton as OnlineNewton
from robustfd.linalg import LowRankPlusDiagonal as LowRankPlusDiagonal
from robustfd.linalg import LowRankPlusIdentity as LowRankPlusIdentity
from robustfd.linalg import frobenius_optimum as frobenius_optimum
from robustfd.linalg import spectral_optimum as spectral_optimum
from robustfd.sketch import CompensativeFrequentDirections as CompensativeFrequentDirections
from robustfd.sketch import DiagonalFrequentDirections as DiagonalFrequentDirections
from robustfd.sketch import ExactSecondMoment as ExactSecondMoment
from robustfd.sketch import FrequentDirections as FrequentDirections
from robustfd.sketch import GreedySketch as GreedySketch
from robustfd.sketch import OjaSketch as OjaSketch
from robustfd.sketch import ParameterizedFrequentDirections as ParameterizedFrequentDirections
from robustfd.sketch import RandomProjectionSketch as RandomProjectionSketch
from robustfd.sketch import RobustFrequentDirections as RobustFrequentDirections
from robustfd.sketch import SlidingFrequentDirections as SlidingFrequentDirections
from robustfd.sketch import SpectralCompensationFrequentDirections as SpectralCompensationFrequentDirections
from robustfd.sketch import TwoSidedFrequentDirections as TwoSidedFrequentDirections
from robustfd.sketch import merge as merge

__version__: str
