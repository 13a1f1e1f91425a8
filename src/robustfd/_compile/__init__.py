"""The one place where loops are compiled, for every room.

There are three ways to compile, and all give the same results. The usual one uses private parts of numba (_parts.py),
which make the first use several times shorter. Where one of them is missing, plain `numba.njit` takes their place. And
with `NUMBA_DISABLE_JIT=1` nothing is compiled: every loop runs as the Python that it is written in (_python.py).
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numba
from numba.extending import intrinsic, register_jitable

from robustfd._compile import _python, _records, _views
from robustfd._compile._cache import folder, kept
from robustfd._compile._clock import watch as _watch
from robustfd._compile._records import Layout, open_record
from robustfd._compile._views import view, view_as

__all__ = [
    "JIT", "Layout", "cache_folder", "call_plainly", "carray", "compile_seconds", "compiled", "compiled_functions",
    "compiled_routine", "entry", "inner", "loops", "in_llvm", "open_record", "view", "view_as", "why_nothing_is_kept",
]  # fmt: skip

JIT = not numba.config.DISABLE_JIT
_parts: ModuleType | None
try:
    from robustfd._compile import _parts
except (ImportError, AttributeError):  # another numba
    _parts = None

_PART: dict[str, Any] = _parts.PART if _parts else {}
_UNCOUNTED: dict[str, Any] = _parts.UNCOUNTED if _parts else {}
_ENTRY: dict[str, Any] = _parts.ENTRY if _parts else {}

carray = numba.carray if JIT else _python.carray
call_plainly = _python.call
if JIT:
    for _way in (_views, _records):
        (_way.let_see_through if _parts is not None else _way.let_compile)()


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled by numba, cached on disk where there is a place to write to."""
    if not JIT:
        return _python.entry(function)
    return kept(lambda **keep: numba.njit(nogil=True, error_model="numpy", **_ENTRY, **options, **keep)(function))


def inner(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled for callers that are compiled themselves: quicker to make.

    Python must not call it: it has no entry for Python, and the call would crash.
    """
    if not JIT:
        return _python.part(function)
    return numba.njit(nogil=True, error_model="numpy", **_PART, **options)(function)


def loops(function: Callable[..., Any]) -> Any:
    """Return the function compiled as by `inner`, for functions that make no arrays but views of those handed in.

    numba counts references to arrays, and for a view of a row that can take longer than the loop over it. Here it
    does not: the caller holds what is handed in. Nor may such a function return an array, which would be let go twice,
    unless it comes from `view` (lapack.py).
    """
    return inner(function, **_UNCOUNTED)


def entry(function: Any) -> Any:
    """Return what `inner` or `loops` returned, compiled once more for Python to call.

    Of `loops` also that is quicker: nothing is made for numba to count references to the arguments.
    """
    if not JIT:
        return _python.entry(function)
    given = function.targetoptions
    return compiled(function.py_func, **{name: given[name] for name in _UNCOUNTED if name in given})


def compiled_routine(function: Callable[..., None], arguments: str) -> Any:
    """Return the function as a routine that compiled loops call by its `address`: a letter of `arguments` is a pointer.

    "d" is to float64 and "l" to int64. What is called by address is compiled once; what is called by name is
    optimised again with every caller, and callers of callers, which would take most of the time of a first use.
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
    """Return a decorator for a function that numba's `intrinsic` takes, written in LLVM's own words.

    `plain` does the same in Python. It is compiled where private parts are missing, and called where nothing is
    compiled.
    """

    def choose(generate: Callable[..., Any]) -> Any:
        if not JIT:
            return plain
        return intrinsic(generate) if _parts is not None else register_jitable(plain)

    return choose


def compile_seconds() -> float:
    """Return how long compiling has taken in this process; who measures speed has to take it off."""
    return _watch.seconds


def compiled_functions() -> int:
    """Return how many functions were compiled in this process, parts of others among them."""
    return _watch.functions


def cache_folder() -> str:
    """Return the folder that compiled loops are kept in, "" if they cannot be kept."""
    return folder()


def why_nothing_is_kept() -> str:
    """Return why compiled loops cannot be kept on disk, "" if they are."""
    _watch.said = True  # whoever asks says it
    return _watch.reason
