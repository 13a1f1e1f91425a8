"""The public names of robustfd.decisions."""

from robustfd.decisions.bandit import ContextualBandit as ContextualBandit
from robustfd.decisions.linear import SketchedLinUCB as SketchedLinUCB
from robustfd.decisions.policies import PolicyEvaluation as PolicyEvaluation
from robustfd.decisions.policies import evaluate_policy as evaluate_policy
