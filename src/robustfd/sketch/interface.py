"""Private names of this package that other packages of robustfd use."""

from robustfd.sketch._base import BLOCK, EPS32, BaseSketch, View, padded, unit_rows
from robustfd.sketch._blocks import WindowedSums
from robustfd.sketch._centring import exact_mean, shift_mean
from robustfd.sketch._engine import State
from robustfd.sketch._rows import LARGEST_NORM
from robustfd.sketch._window import RAW

__all__ = [
    "BLOCK", "EPS32", "LARGEST_NORM", "RAW", "BaseSketch", "State", "View", "WindowedSums", "exact_mean", "padded",
    "shift_mean", "unit_rows",
]  # fmt: skip
