"""Public names of a package, each imported when it is first asked for: nobody waits for what they do not use."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

Homes = Mapping[str, Sequence[str]]


def lazily(
    package: str, homes: Homes, *, rooms: Sequence[str] = (), extras: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    `homes` says which names the modules of the package have, and `rooms` which modules are names themselves. Those of
    `extras` are too, but `dir` does not list them: they need an extra, and who looks at every name may not have it.
    """
    where = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name in rooms or name in extras:
            return import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f"{package}.{where[name]}"), name)
        except AttributeError as error:  # `from package import name` would say that there is no such name
            raise ImportError(f"{package}.{name} could not be imported: {error}") from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where, *rooms})

    return get, names
