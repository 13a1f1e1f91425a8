"""Decisions: bandits with sketched confidence, and policies evaluated on logs."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.decisions.linear import SketchedLinUCB
    from robustfd.decisions.policies import PolicyEvaluation, evaluate_policy

_HOMES = {"linear": ("SketchedLinUCB",), "policies": ("PolicyEvaluation", "evaluate_policy")}

__all__ = ["PolicyEvaluation", "SketchedLinUCB", "evaluate_policy"]

__getattr__, __dir__ = lazily(__name__, _HOMES)
