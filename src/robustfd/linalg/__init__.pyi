"""The public names of robustfd.linalg."""

from robustfd.linalg.operator import LowRankPlusDiagonal as LowRankPlusDiagonal
from robustfd.linalg.operator import LowRankPlusIdentity as LowRankPlusIdentity
from robustfd.linalg.optimum import frobenius_optimum as frobenius_optimum
from robustfd.linalg.optimum import spectral_optimum as spectral_optimum
