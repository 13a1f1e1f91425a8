"""Private names of this package that other packages of robustfd use."""

from robustfd.sketch._base import BLOCK, BaseSketch, View, padded
from robustfd.sketch._blocks import WindowedSums
from robustfd.sketch._engine import State
from robustfd.sketch._window import RAW

__all__ = ["BLOCK", "RAW", "BaseSketch", "State", "View", "WindowedSums", "padded"]
