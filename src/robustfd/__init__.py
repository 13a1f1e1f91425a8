"""Streaming matrix sketches that certify their own error, online learning without tuning, and estimators over both."""

from robustfd._lazy import lazily

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazily(__name__, extras=("river", "distributed"))
