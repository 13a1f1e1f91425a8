"""Streaming sketches of A'A: the frequent-directions family, random projection, Oja, exact; merging; snapshots.

References that docstrings in this package cite:

- Chan, Golub and LeVeque 1983: Algorithms for computing the sample variance. Amer. Statist. 37.
- Desai, Ghashami and Phillips 2016: Improved practical matrix sketching with guarantees. IEEE TKDE 28.
- Ghashami, Liberty, Phillips and Woodruff 2016: Frequent directions: simple and deterministic matrix sketching. SIAM J.
  Comput. 45.
- Luo et al. 2016: Efficient second order online learning by sketching. NeurIPS 29.
- Luo et al. 2019: Robust frequent directions with application in online learning. J. Mach. Learn. Res. 20.
- Welford 1962: Note on a method for calculating corrected sums of squares and products. Technometrics 4.
- Yin et al. 2024: Optimal matrix sketching over sliding windows. VLDB.
"""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.sketch.baselines import OjaSketch, RandomProjectionSketch
    from robustfd.sketch.exact import ExactSecondMoment
    from robustfd.sketch.frequent_directions import (
        CompensativeFrequentDirections,
        DiagonalFrequentDirections,
        FrequentDirections,
        GreedySketch,
        ParameterizedFrequentDirections,
        RobustFrequentDirections,
    )
    from robustfd.sketch.merging import merge
    from robustfd.sketch.sliding import SlidingFrequentDirections
    from robustfd.sketch.two_sided import TwoSidedFrequentDirections

_HOMES = {
    "baselines": ("OjaSketch", "RandomProjectionSketch"),
    "exact": ("ExactSecondMoment",),
    "frequent_directions": (
        "CompensativeFrequentDirections",
        "DiagonalFrequentDirections",
        "FrequentDirections",
        "GreedySketch",
        "ParameterizedFrequentDirections",
        "RobustFrequentDirections",
    ),
    "merging": ("merge",),
    "sliding": ("SlidingFrequentDirections",),
    "two_sided": ("TwoSidedFrequentDirections",),
}

__all__ = [
    "CompensativeFrequentDirections",
    "DiagonalFrequentDirections",
    "ExactSecondMoment",
    "FrequentDirections",
    "GreedySketch",
    "OjaSketch",
    "ParameterizedFrequentDirections",
    "RandomProjectionSketch",
    "RobustFrequentDirections",
    "SlidingFrequentDirections",
    "TwoSidedFrequentDirections",
    "merge",
]

__getattr__, __dir__ = lazily(__name__, _HOMES)
