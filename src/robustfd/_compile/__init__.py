"""Compilation of loops with numba, for all packages.

There are three modes, and all give the same results. The default mode uses private parts of numba (_parts.py), which
make the first use several times faster. If one of them is missing, plain `numba.njit` replaces them. With
`NUMBA_DISABLE_JIT=1` nothing is compiled, and every loop runs as plain Python (_python.py).
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numba
from numba.extending import intrinsic, register_jitable

from robustfd._compile import _python, _records, _views
from robustfd._compile._cache import cached, folder
from robustfd._compile._clock import watch as _watch
from robustfd._compile._records import Layout, open_record
from robustfd._compile._views import view, view_as

__all__ = [
    "JIT", "Layout", "cache_folder", "call_plainly", "carray", "compile_seconds", "compiled", "compiled_functions",
    "compiled_routine", "entry", "inner", "loops", "in_llvm", "open_record", "view", "view_as", "why_not_cached",
]  # fmt: skip

JIT = not numba.config.DISABLE_JIT
_parts: ModuleType | None
try:
    from robustfd._compile import _parts
except (ImportError, AttributeError):  # an unsupported version of numba
    _parts = None

_PART: dict[str, Any] = _parts.PART if _parts else {}
_NO_REFCOUNT: dict[str, Any] = _parts.NO_REFCOUNT if _parts else {}
_ENTRY: dict[str, Any] = _parts.ENTRY if _parts else {}

carray = numba.carray if JIT else _python.carray
call_plainly = _python.call
if JIT:
    for _module in (_views, _records):
        (_module.register_inlined if _parts is not None else _module.register_plain)()


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled by numba, cached on disk if a cache folder is writable."""
    if not JIT:
        return _python.entry(function)
    return cached(lambda **cache: numba.njit(nogil=True, error_model="numpy", **_ENTRY, **options, **cache)(function))


def inner(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled for compiled callers only, which takes less time to compile.

    Python must not call the result. It has no Python wrapper, so the call would crash.
    """
    if not JIT:
        return _python.part(function)
    return numba.njit(nogil=True, error_model="numpy", **_PART, **options)(function)


def loops(function: Callable[..., Any]) -> Any:
    """Return the function compiled as by `inner`, for functions that create no arrays except views of their arguments.

    numba counts references to arrays, which can take longer than the loop over a row. Here reference counting is off,
    since the caller holds the arguments. Such a function must not return an array, which would be freed twice, unless
    the array comes from `view` (lapack.py).
    """
    return inner(function, **_NO_REFCOUNT)


def entry(function: Any) -> Any:
    """Return a result of `inner` or `loops` compiled once more, for calls from Python.

    For `loops`, calls are faster as well, because references to the arguments are not counted.
    """
    if not JIT:
        return _python.entry(function)
    given = function.targetoptions
    return compiled(function.py_func, **{name: given[name] for name in _NO_REFCOUNT if name in given})


def compiled_routine(function: Callable[..., None], arguments: str) -> Any:
    """Return the function as a routine that compiled loops call by its `address`.

    Each letter of `arguments` is a pointer: "d" to float64, "l" to int64. A function called by address is compiled
    once. A function called by name is optimized again with every direct or indirect caller, which would take most of
    the compile time.
    """
    if not JIT:
        return _python.Routine(function, arguments)
    kinds = {"d": numba.types.CPointer(numba.float64), "l": numba.types.CPointer(numba.int64)}
    signature = numba.void(*(kinds[letter] for letter in arguments))
    if _parts is not None:
        return _parts.routine(function, signature)
    with _watch.compiling(function):
        return numba.cfunc(signature, error_model="numpy")(function)


def in_llvm(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for functions that generate LLVM code, as for numba's `intrinsic`.

    `plain` is the same function in Python. It is compiled if private parts of numba are missing, and called directly if
    compilation is off.
    """

    def choose(generate: Callable[..., Any]) -> Any:
        if not JIT:
            return plain
        return intrinsic(generate) if _parts is not None else register_jitable(plain)

    return choose


def compile_seconds() -> float:
    """Return the total compile time of this process in seconds; benchmarks should subtract it."""
    return _watch.seconds


def compiled_functions() -> int:
    """Return the number of functions compiled in this process, including inner functions."""
    return _watch.functions


def cache_folder() -> str:
    """Return the folder in which compiled loops are cached, "" if they cannot be cached."""
    return folder()


def why_not_cached() -> str:
    """Return why compiled loops cannot be cached on disk, "" if they are."""
    _watch.warned = True  # the caller reports it
    return _watch.reason
