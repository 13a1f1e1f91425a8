"""Imports on first use of the public names of a package, which its stub lists once for Python and for type checkers."""

import ast
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any


def lazily(
    package: str, *, extras: Sequence[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, whose names are those that `__init__.pyi` imports.

    Names from the package itself are its subpackages, which `__all__` does not list. `dir` does not list `extras`
    either, subpackages with optional dependencies, because importing them may fail.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    lines = [line for line in ast.parse(stub.read_text("utf-8")).body if isinstance(line, ast.ImportFrom)]
    where = {each.name: str(line.module) for line in lines for each in line.names}

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if where[name] == package:
            return import_module(f"{package}.{name}")
        try:
            value = getattr(import_module(where[name]), name)
        except AttributeError as error:  # which `from package import name` would report as a missing name
            raise ImportError(f"{package}.{name} could not be imported: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where.keys() - set(extras)})

    return sorted(name for name in where if where[name] != package), get, names
