"""One thread of BLAS for small products, where more of them cost time: they wait for each other longer than they work.

BLAS counts its threads for the whole process, so whoever comes first sets the number and whoever leaves last sets it
back: any number of Python threads may be inside at a time, and the caller's setting is as it was afterwards.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@cache
def _pools() -> list[Any]:
    """Return the libraries of BLAS in this process; looking for them takes milliseconds, so it happens once."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread."""
    global _inside
    with _lock:
        if _inside == 0:
            _before[:] = [pool.get_num_threads() for pool in _pools()]
            _set([1] * len(_before))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set(_before)


def _set(counts: list[int]) -> None:
    for pool, count in zip(_pools(), counts):
        pool.set_num_threads(count)
