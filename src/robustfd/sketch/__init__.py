"""Streaming sketches of A'A: the frequent-directions family, random projection, Oja, exact; merging; snapshots."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.sketch.diagonal import DiagonalFrequentDirections
    from robustfd.sketch.exact import ExactSecondMoment
    from robustfd.sketch.frequent_directions import (
        CompensativeFrequentDirections,
        FrequentDirections,
        GreedySketch,
        ParameterizedFrequentDirections,
        RobustFrequentDirections,
    )
    from robustfd.sketch.merging import merge
    from robustfd.sketch.oja import OjaSketch
    from robustfd.sketch.random_projection import RandomProjectionSketch
    from robustfd.sketch.sliding import SlidingFrequentDirections
    from robustfd.sketch.two_sided import TwoSidedFrequentDirections

_HOMES = {
    "diagonal": ("DiagonalFrequentDirections",),
    "exact": ("ExactSecondMoment",),
    "frequent_directions": (
        "CompensativeFrequentDirections",
        "FrequentDirections",
        "GreedySketch",
        "ParameterizedFrequentDirections",
        "RobustFrequentDirections",
    ),
    "merging": ("merge",),
    "oja": ("OjaSketch",),
    "random_projection": ("RandomProjectionSketch",),
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
