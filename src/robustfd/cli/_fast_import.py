"""A faster import of scikit-learn, without packages that it imports and the command line does not use."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def import_scikit_learn() -> None:
    """Import scikit-learn in half the time. scipy.stats takes half a second and pandas a fifth."""
    if "scipy.stats" not in sys.modules:
        sys.modules["scipy.stats"] = _LazyModule("scipy.stats")
    with _hidden("pandas"):
        import sklearn  # noqa: F401


class _LazyModule(ModuleType):
    """A module that is imported on first use of one of its attributes."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make imports of a package fail as if it were not installed, unless it is already imported.

    scikit-learn works without pandas. A `_LazyModule` would not help: scikit-learn looks up `DataFrame` for every
    matrix that it checks.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
