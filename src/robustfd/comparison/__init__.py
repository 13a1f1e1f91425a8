"""Learners side by side on one stream of rows: is tuning worth its while?"""

from robustfd.comparison.comparison import Comparison, Holdout
from robustfd.comparison.verdict import verdict

__all__ = ["Comparison", "Holdout", "verdict"]
