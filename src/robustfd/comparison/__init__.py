"""Comparison of learners on one stream of rows: is tuning worthwhile?"""

from robustfd.comparison.comparison import Comparison, Holdout
from robustfd.comparison.verdict import verdict

__all__ = ["Comparison", "Holdout", "verdict"]
