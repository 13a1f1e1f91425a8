"""scikit-learn imported without what it imports itself and uses for nothing that the command does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def import_scikit_learn() -> None:
    """Import scikit-learn, in half the time: scipy.stats takes half a second, and pandas a fifth."""
    if "scipy.stats" not in sys.modules:
        sys.modules["scipy.stats"] = _Later("scipy.stats")
    with _absent("pandas"):
        import sklearn  # noqa: F401


class _Later(ModuleType):
    """A module that is imported when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _absent(name: str) -> Iterator[None]:
    """Let imports go on as where this package is not installed, unless it is imported already.

    scikit-learn can do without pandas. With a `_Later` it could not: it asks for `DataFrame` with every matrix.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
