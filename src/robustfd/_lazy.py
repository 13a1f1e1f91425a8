"""Imports on first use: the public names of a package, and modules of scipy."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(
    package: str,
    modules: Mapping[str, Sequence[str]],
    *,
    subpackages: Sequence[str] = (),
    extras: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    package : str
        The name of the package.
    modules : dict of str to sequence of str
        The public names that each module of the package defines.
    subpackages : sequence of str
        Subpackages that are attributes of the package.
    extras : sequence of str
        Subpackages with optional dependencies. `dir` does not list them, because importing them may fail.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in subpackages or name in extras:
            return import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{where[name]}"), name)
        except AttributeError as error:  # which `from package import name` would report as a missing name
            raise ImportError(f"{package}.{name} could not be imported: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where, *subpackages})

    return get, names


class _LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class _Sparse(_LazyModule):
    """scipy.sparse, which is not imported to find out that something is not sparse."""

    def issparse(self, x: Any) -> bool:
        """Return whether x is a sparse matrix or array."""
        module = sys.modules.get(self._name)
        return module is not None and bool(module.issparse(x))


scipy_linalg = _LazyModule("scipy.linalg")
scipy_sparse = _Sparse("scipy.sparse")
