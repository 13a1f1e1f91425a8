"""Decisions: bandits, and policies evaluated on logs."""

from typing import TYPE_CHECKING

from robustfd._lazy import lazily

if TYPE_CHECKING:
    from robustfd.decisions.bandit import ContextualBandit

_HOMES = {"bandit": ("ContextualBandit",)}

__all__ = ["ContextualBandit"]

__getattr__, __dir__ = lazily(__name__, _HOMES)
