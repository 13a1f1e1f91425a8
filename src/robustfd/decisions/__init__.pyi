"""The public names of robustfd.decisions."""

from robustfd.decisions.linear import SketchedLinUCB as SketchedLinUCB
from robustfd.decisions.policies import PolicyEvaluation as PolicyEvaluation
from robustfd.decisions.policies import evaluate_policy as evaluate_policy
