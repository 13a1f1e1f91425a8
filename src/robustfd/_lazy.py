"""Imports on first use of the public names of a package."""

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
