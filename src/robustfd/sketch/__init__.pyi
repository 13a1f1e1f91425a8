"""The public names of robustfd.sketch."""

from robustfd.sketch.baselines import OjaSketch as OjaSketch
from robustfd.sketch.baselines import RandomProjectionSketch as RandomProjectionSketch
from robustfd.sketch.exact import ExactSecondMoment as ExactSecondMoment
from robustfd.sketch.frequent_directions import CompensativeFrequentDirections as CompensativeFrequentDirections
from robustfd.sketch.frequent_directions import DiagonalFrequentDirections as DiagonalFrequentDirections
from robustfd.sketch.frequent_directions import FrequentDirections as FrequentDirections
from robustfd.sketch.frequent_directions import GreedySketch as GreedySketch
from robustfd.sketch.frequent_directions import ParameterizedFrequentDirections as ParameterizedFrequentDirections
from robustfd.sketch.frequent_directions import RobustFrequentDirections as RobustFrequentDirections
from robustfd.sketch.frequent_directions import (
    SpectralCompensationFrequentDirections as SpectralCompensationFrequentDirections,
)
from robustfd.sketch.merging import merge as merge
from robustfd.sketch.sliding import SlidingFrequentDirections as SlidingFrequentDirections
from robustfd.sketch.two_sided import TwoSidedFrequentDirections as TwoSidedFrequentDirections
