"""Threads that share a model: many may read it at the same time, or one may change it.

Every public method and property takes the lock of its object. Classes inherit this from `Guarded`, so a new method
cannot forget it. Different objects have different locks, and the core releases Python's global lock, so different
models run in parallel. Threads enter in the order in which they come. A fork waits for the threads that change a model.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from robustfd._core import Lock

Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method, *, shared: bool = False) -> Method:
    """Return the method wrapped so that it holds the lock of its object while it runs, with other readers or alone."""

    @functools.wraps(method)
    def locked(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        lock = self._lock
        enter = lock.acquire_shared if shared else lock.acquire
        try:  # a signal handler may raise as soon as the lock is held
            enter()
            return method(self, *args, **kwargs)
        finally:
            try:  # noqa: SIM105 - nothing may be called before the release
                lock.release()
            except RuntimeError:  # it may have raised before, too
                pass

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


class Guarded:
    """An object that several threads may use."""

    __slots__: tuple[str, ...] = ("_lock",)  # a slot, so that the lock is neither in `vars` nor copied or pickled
    _lock: Any
    _readers: ClassVar[frozenset[str]] = frozenset()  # methods and properties that change nothing; threads share them

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._lock = Lock()  # reentrant, because public methods call each other
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__init__ is not object.__init__:  # whose signature takes milliseconds
            own = list(inspect.signature(cls.__init__).parameters.values())[1:]
            cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # else it would be that of __new__
        for name in dir(cls):
            if name == "__getstate__" or not name.startswith("_"):  # pickle, copy and joblib use the former
                found = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
                shared = name in cls._readers
                if inspect.isfunction(found) and not hasattr(found, "_guarded"):
                    setattr(cls, name, guarded(found, shared=shared))
                elif isinstance(found, property) and found.fget and not hasattr(found.fget, "_guarded"):
                    get = guarded(found.fget, shared=shared)
                    setattr(cls, name, property(get, found.fset, found.fdel, found.__doc__))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:  # a parameter: wait until a running method has finished
            _set_parameter(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


_set_parameter = guarded(object.__setattr__)
Guarded.__slots__ = ()  # scikit-learn refuses to pickle objects whose class names slots; the slot itself stays
