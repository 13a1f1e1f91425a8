"""One thread of BLAS inside this library: more of them cost time, as they wait for each other longer than they work.

Most BLAS count their threads for the whole process. So whoever comes first sets the number and whoever leaves last
sets it back: any number of Python threads may be inside at a time, and the caller's setting is as it was afterwards. An
OpenBLAS over OpenMP counts for each Python thread, which then does the same by itself.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from typing import Any, NamedTuple

import scipy.linalg  # noqa: F401 - has a BLAS of its own, which must be there when they are looked for
from threadpoolctl import ThreadpoolController


class _Pool(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], Any]


class _Depth:
    inside = 0  # how many have come and not left
    before: tuple[int, ...] = ()


class _OwnDepth(threading.local, _Depth):
    """The same, for each thread."""


_lock = threading.Lock()
_shared, _own = _Depth(), _OwnDepth()


@cache
def _pools() -> tuple[list[_Pool], list[_Pool]]:
    """Return the BLAS that count for the process and those that count for a thread; looking takes milliseconds."""
    shared: list[_Pool] = []
    own: list[_Pool] = []
    for found in ThreadpoolController().select(user_api="blas").lib_controllers:
        per_thread = getattr(found, "threading_layer", "") == "openmp"
        pool = None if per_thread else _openblas(found.filepath)
        (own if per_thread else shared).append(pool or _Pool(found.get_num_threads, found.set_num_threads))
    return shared, own


def _openblas(path: str) -> _Pool | None:
    """Return OpenBLAS's own functions: those of threadpoolctl 3.8 work only in the first thread that calls them."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for before in ("", "scipy_"):
        for after in ("", "64_", "_64"):
            names = (f"{before}openblas_{verb}_num_threads{after}" for verb in ("get", "set"))
            functions = [getattr(library, name, None) for name in names]
            if all(functions):
                return _Pool(*functions)  # type: ignore[arg-type]
    return None


def _enter(depth: _Depth, pools: list[_Pool]) -> None:
    if depth.inside == 0:
        depth.before = tuple(pool.get() for pool in pools)
        _set(pools, depth.before, 1)
    depth.inside += 1


def _leave(depth: _Depth, pools: list[_Pool]) -> None:
    depth.inside -= 1
    if depth.inside == 0:
        _set(pools, depth.before, None)


def _set(pools: list[_Pool], counts: tuple[int, ...], to: int | None) -> None:
    for pool, count in zip(pools, counts, strict=True):
        if count != 1:
            pool.set(count if to is None else to)


class _OneBlasThread(ContextDecorator):
    def __enter__(self) -> None:
        shared, own = _pools()
        with _lock:
            _enter(_shared, shared)
        _enter(_own, own)

    def __exit__(self, *error: object) -> None:
        shared, own = _pools()
        _leave(_own, own)
        with _lock:
            _leave(_shared, shared)


_one = _OneBlasThread()


def one_blas_thread() -> _OneBlasThread:
    """Return what holds BLAS to one thread: `with one_blas_thread():`, or `@one_blas_thread()` over a function."""
    return _one


def _after_fork() -> None:
    """Begin anew in a child process: other threads, which may have been inside or held the lock, are not there."""
    global _lock
    _lock = threading.Lock()
    if _shared.inside > _own.inside:
        _shared.inside = _own.inside
        if _own.inside == 0:
            _set(_pools()[0], _shared.before, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
