"""Online learners that see each row once: sketched Newton methods, first-order baselines and their losses."""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)
