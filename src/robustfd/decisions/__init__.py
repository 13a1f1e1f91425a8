"""Decisions: bandits, and policies evaluated on logs."""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)
