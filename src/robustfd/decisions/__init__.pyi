"""The public names of robustfd.decisions."""

from robustfd.decisions.bandit import ContextualBandit as ContextualBandit
