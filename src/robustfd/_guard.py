"""One thread at a time inside a model: every public method and property acquires the lock of its object.

Classes inherit this from `Guarded`, so a new method cannot forget it. Different objects have different locks, and
compiled loops release Python's global lock, so different models run in parallel.
"""

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

SPECIAL = ("__getstate__",)  # used by pickle, copy and joblib


def guarded(method: Method) -> Method:
    """Return the method wrapped so that it holds the lock of its object while it runs."""

    @functools.wraps(method)
    def locked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        lock = self._lock
        lock.acquire()  # takes half the time of `with`
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return guards_itself(locked)  # type: ignore[return-value]


def guards_itself(method: Method) -> Method:
    """Mark a method that acquires the lock itself. A wrapper would be slow for single rows."""
    method._guarded = True  # type: ignore[attr-defined]
    return method


def guarded_pair(method: Method) -> Method:
    """Wrap a method that uses a second object: it gets a copy of it, and never holds two locks at once.

    With two locks, `a.merge(b)` and `b.merge(a)` in two threads would deadlock.
    """
    locked = guarded(method)

    @functools.wraps(method)
    def with_copy(self: Any, other: Any) -> Any:
        return locked(self, copy.copy(other) if isinstance(other, Guarded) else other)

    return guards_itself(with_copy)  # type: ignore[return-value]


class _Locked:
    """Storage of the lock, in a slot, so that it is neither in `vars` nor copied or pickled."""

    __slots__ = ("_lock",)
    _lock: Any


class Guarded(_Locked):
    """An object that several threads may use: its methods run one at a time."""

    __slots__ = ()  # scikit-learn refuses to pickle classes with slots

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._lock = threading.RLock()  # reentrant, because public methods call each other
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # otherwise it would be that of __new__
        for name in dir(cls):
            if name in SPECIAL or not name.startswith("_"):
                found = inspect.getattr_static(cls, name)
                if inspect.isfunction(found) and not hasattr(found, "_guarded"):
                    setattr(cls, name, guarded(found))
                elif isinstance(found, property) and found.fget and not hasattr(found.fget, "_guarded"):
                    setattr(cls, name, property(guarded(found.fget), found.fset, found.fdel, found.__doc__))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:  # a parameter: wait until a running method has finished
            with self._lock:
                object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))
