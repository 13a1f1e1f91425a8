"""The on-disk cache of compiled loops: when entries are stale, and how failures to write are handled."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robustfd._compile._clock import watch

_PACKAGE = Path(__file__).parents[1]

# Compiled code includes the code of its callees, so a change of any source file makes it stale.
_STAMP = tuple(
    (str(path.relative_to(_PACKAGE)), status.st_mtime, status.st_size)
    for path in sorted(_PACKAGE.rglob("*.py"))
    for status in (path.stat(),)
)

entries: list[Any] = []  # all cached functions


def cached(make: Callable[..., Any]) -> Any:
    """Return make(cache=True), or make() if the disk is not writable or stale entries could not be detected."""
    try:
        made = make(cache=True)
    except RuntimeError as error:  # neither the package's folder nor the user's cache is writable
        watch.cannot_cache(error)
        return make()
    # numba only checks the file of the function itself, and would run stale code after an upgrade.
    file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        watch.cannot_cache("this version of numba is not known")
        return make()
    file._source_stamp = _STAMP
    _ignore_write_errors(made._cache)
    entries.append(made)
    return made


def _ignore_write_errors(cache: Any) -> None:
    """Continue without the cache when the disk is full, where numba would raise the OSError."""
    save = cache.save_overload

    def save_if_possible(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError as error:
            watch.cannot_cache(error)
            watch.warn_if_uncached()

    cache.save_overload = save_if_possible


def folder() -> str:
    """Return the folder in which compiled loops are cached, "" if there is none; each package has a subfolder."""
    paths = [str(Path(made._cache.cache_path)) for made in entries]
    return os.path.commonpath(paths) if paths and not watch.reason else ""
