"""Scikit-learn estimators on top of the sketches and the online learners.

This layer validates input and follows scikit-learn's conventions. The mathematics is in the layers below.
"""

from robustfd._lazy import lazily

__all__, __getattr__, __dir__ = lazily(__name__)
