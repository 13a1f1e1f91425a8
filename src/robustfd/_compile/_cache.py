"""Compiled loops on disk: when they are stale, and what is said where they cannot be kept."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robustfd._compile._clock import watch

_PACKAGE = Path(__file__).parents[1]

# What is compiled holds the code of what it calls, so all sources of the package decide whether it is up to date.
_STAMP = tuple(
    (str(path.relative_to(_PACKAGE)), status.st_mtime, status.st_size)
    for path in sorted(_PACKAGE.rglob("*.py"))
    for status in (path.stat(),)
)

entries: list[Any] = []  # all that Python or compiled loops may call, and that is kept


def kept(make: Callable[..., Any]) -> Any:
    """Return make(cache=True), or make() where nothing can be kept on disk or nobody could tell when it is stale."""
    try:
        made = make(cache=True)
    except RuntimeError as error:  # neither the package's folder nor a user cache can be written
        watch.cannot_keep(error)
        return make()
    # numba itself looks at the one file that the function is in, and would run old code after an upgrade.
    file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        watch.cannot_keep("this version of numba is not known")
        return make()
    file._source_stamp = _STAMP
    _let_fail(made._cache)
    entries.append(made)
    return made


def _let_fail(cache: Any) -> None:
    """Let a full disk be no reason to stop: numba would raise what the system says."""
    save = cache.save_overload

    def save_if_possible(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError as error:
            watch.cannot_keep(error)
            watch.say_where()

    cache.save_overload = save_if_possible


def folder() -> str:
    """Return the folder that compiled loops are kept in, "" if there is none; each room has one of its own in it."""
    paths = [str(Path(made._cache.cache_path)) for made in entries]
    return os.path.commonpath(paths) if paths and not watch.reason else ""
