"""One thread at a time inside a model: every public method and property takes the lock of its object.

Classes get this by inheriting from `Guarded`, not method by method, so that a new method cannot forget it. Different
objects have different locks, and compiled loops do not hold the lock of the interpreter: they run side by side.
"""

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])

SPECIAL = ("__getstate__",)  # what pickle, copy and joblib read an object by


def guarded(method: Method) -> Method:
    """Return the method so that it holds the lock of its object while it runs."""

    @functools.wraps(method)
    def locked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        lock = self._lock
        lock.acquire()  # half the time of `with`
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return guards_itself(locked)  # type: ignore[return-value]


def guards_itself(method: Method) -> Method:
    """Return a method that takes the lock in its own lines: for single rows the call of a wrapper takes long."""
    method._guarded = True  # type: ignore[attr-defined]
    return method


def guarded_pair(method: Method) -> Method:
    """Return a method that takes another object so that it gets a copy of that: of two locks it holds one at a time.

    Holding both, `a.merge(b)` and `b.merge(a)` would wait for each other.
    """
    locked = guarded(method)

    @functools.wraps(method)
    def with_copy(self: Any, other: Any) -> Any:
        return locked(self, copy.copy(other) if isinstance(other, Guarded) else other)

    return guards_itself(with_copy)  # type: ignore[return-value]


class _Locked:
    """The place of the lock. It is a slot, and so neither a part of `vars` nor of what is copied or pickled."""

    __slots__ = ("_lock",)
    _lock: Any


class Guarded(_Locked):
    """An object that many threads may use: calls on it take turns."""

    __slots__ = ()  # scikit-learn refuses to pickle what says that it has slots

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._lock = threading.RLock()  # it may be taken again: public methods call each other
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # else it would be that of __new__
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
        else:  # a parameter: it waits for the rows that are being learnt
            with self._lock:
                object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))
