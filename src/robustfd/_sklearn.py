"""scikit-learn's base classes, or stand-ins for processes that need no scikit-learn.

Importing scikit-learn takes longer than most commands of the command line, which use the estimators and nothing else of
it. Such a command calls `do_without` first, and the estimators then inherit from the stand-ins below.
"""

import inspect
import sys
from typing import TYPE_CHECKING, Any

_without = False


def do_without() -> None:
    """Use the stand-ins in this process, unless scikit-learn is imported already."""
    global _without
    _without = "sklearn" not in sys.modules


class _Estimator:
    """The parameters of an estimator, which are the arguments of its constructor."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        names = inspect.signature(cls.__init__).parameters
        return sorted(name for name in names if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def set_params(self, **params: Any) -> Any:
        """Set parameters."""
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Mixin:
    """A mixin without methods."""


class _NotFitted(ValueError, AttributeError):
    """The model has seen no rows."""


if TYPE_CHECKING:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError


_STAND_INS = {
    "BaseEstimator": _Estimator,
    "ClassifierMixin": _Mixin,
    "RegressorMixin": _Mixin,
    "NotFittedError": _NotFitted,
}


def __getattr__(name: str) -> Any:
    if name not in _STAND_INS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _without:
        return _STAND_INS[name]
    from sklearn import base, exceptions

    return getattr(exceptions if name == "NotFittedError" else base, name)


__all__ = ["BaseEstimator", "ClassifierMixin", "NotFittedError", "RegressorMixin", "do_without"]
