"""Limit BLAS to one thread inside this library. The matrices are small, so more threads cost more time than they save.

Most BLAS libraries have one thread count per process. So the first Python thread that enters sets it to 1, and the last
one that leaves restores it. Any number of Python threads may be inside at the same time, and the caller's setting is
unchanged afterwards. OpenBLAS with OpenMP has a count per Python thread; each thread sets and restores its own.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from typing import Any, NamedTuple

THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")  # set by the command line


class _Pool(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], Any]


class _Nesting:
    inside = 0  # number of active `with` blocks
    saved: tuple[int, ...] = ()


class _ThreadNesting(threading.local, _Nesting):
    """The same, one per Python thread."""


_lock = threading.Lock()
_shared, _own = _Nesting(), _ThreadNesting()


@cache
def _pools() -> tuple[list[_Pool], list[_Pool]]:
    """Return the BLAS libraries with a count per process and those with a count per thread. Takes milliseconds."""
    if all(os.environ.get(name) == "1" for name in THREADS):
        return [], []  # they have one thread anyway
    import scipy.linalg  # noqa: F401 - scipy ships its own BLAS, which must be loaded before the search
    from threadpoolctl import ThreadpoolController

    shared: list[_Pool] = []
    own: list[_Pool] = []
    for found in ThreadpoolController().select(user_api="blas").lib_controllers:
        per_thread = getattr(found, "threading_layer", "") == "openmp"
        pool = None if per_thread else _openblas(found.filepath)
        (own if per_thread else shared).append(pool or _Pool(found.get_num_threads, found.set_num_threads))
    return shared, own


def _openblas(path: str) -> _Pool | None:
    """Return OpenBLAS's own functions, because threadpoolctl 3.8's work only in the first thread that calls them."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_", "_64"):
            names = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            functions = [getattr(library, name, None) for name in names]
            if all(functions):
                return _Pool(*functions)  # type: ignore[arg-type]
    return None


def _acquire(nesting: _Nesting, pools: list[_Pool]) -> None:
    if nesting.inside == 0:
        nesting.saved = tuple(pool.get() for pool in pools)
        _set(pools, nesting.saved, 1)
    nesting.inside += 1


def _release(nesting: _Nesting, pools: list[_Pool]) -> None:
    nesting.inside -= 1
    if nesting.inside == 0:
        _set(pools, nesting.saved, None)


def _set(pools: list[_Pool], counts: tuple[int, ...], to: int | None) -> None:
    for pool, count in zip(pools, counts, strict=True):
        if count != 1:
            pool.set(count if to is None else to)


class one_blas_thread(ContextDecorator):  # with the name of a function, as contextlib.suppress
    """A context manager, also usable as a decorator, that limits BLAS to one thread."""

    def __enter__(self) -> None:
        shared, own = _pools()
        with _lock:
            _acquire(_shared, shared)
        _acquire(_own, own)

    def __exit__(self, *error: object) -> None:
        shared, own = _pools()
        _release(_own, own)
        with _lock:
            _release(_shared, shared)


def _after_fork() -> None:
    """Reset the state in a child process, where other threads that were inside or held the lock no longer exist."""
    global _lock
    _lock = threading.Lock()
    if _shared.inside > _own.inside:
        _shared.inside = _own.inside
        if _own.inside == 0:
            _set(_pools()[0], _shared.saved, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
