"""The one place where loops are compiled."""

import contextlib
import sys
import time
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import parse_assembly
from numba.core import event
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from robustfd._plain import plain, plain_entry, plain_routine

SWITCHED_OFF = bool(numba.config.DISABLE_JIT)  # by NUMBA_DISABLE_JIT=1: loops run as Python

# numba tries the types it knows in the order in which they were made known. Here arrays come before strings and lists;
# were something looked up in the cache on disk first, every `a[i]` would be typed ten times as slowly.
cpu_target.typing_context.refresh()

_PACKAGE = Path(__file__).parent

# What is compiled holds the code of what it calls, so all sources of the package decide whether it is up to date.
_STAMP = tuple(
    (str(path.relative_to(_PACKAGE)), status.st_mtime, status.st_size)
    for path in sorted(_PACKAGE.rglob("*.py"))
    for status in (path.stat(),)
)


def compiled(function: Callable[..., Any], **options: bool) -> Any:
    """Return the function compiled by numba, cached on disk where there is a place to write to."""
    if SWITCHED_OFF:
        return plain_entry(function)
    options |= {"nogil": True, "no_cfunc_wrapper": True}
    try:
        return _stamped(numba.njit(cache=True, error_model="numpy", **options)(function))
    except RuntimeError:  # neither the package's folder nor a user cache can be written
        return numba.njit(error_model="numpy", **options)(function)


class _PartLibrary(JITCodeLibrary):
    """The code of a function that is only a part of others: with each of them it is optimised, so not on its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        """Make no machine code either, only the variables that numba will look for."""
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        self._codegen._add_module(parse_assembly("\n".join(f"@{name} = common global i64 0" for name in names)))
        self._codegen._engine.finalize_object()
        self._finalized = True


class _PartCompiler(Compiler):
    """What numba compiles parts by."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


def inner(function: Callable[..., Any], **options: bool) -> Any:
    """Return the function compiled for callers that are compiled themselves: quicker to make.

    Python must not call it: it has no entry for Python, and the call would crash.
    """
    if SWITCHED_OFF:
        return plain(function)
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(nogil=True, error_model="numpy", pipeline_class=_PartCompiler, **options)(function)


def loops(function: Callable[..., Any]) -> Any:
    """Return the function compiled as by `inner`, for functions that make no arrays but views of those handed in.

    numba counts references to arrays, and for a view of a row that can take longer than the loop over it. Here it
    does not: the caller holds what is handed in. Nor may such a function return an array, which would be let go twice,
    unless it comes from `view` (lapack.py).
    """
    return inner(function, _nrt=False)


def entry(function: Any) -> Any:
    """Return what `inner` or `loops` returned, compiled once more for Python to call.

    Of `loops` also that is quicker: nothing is made for numba to count references to the arguments.
    """
    if SWITCHED_OFF:
        return plain_entry(function)
    return compiled(function.py_func, _nrt=function.targetoptions.get("_nrt", True))


def in_llvm(python: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the decorator for what is written in LLVM's own words; `python` does the same where numba is off."""
    return (lambda _: python) if SWITCHED_OFF else intrinsic


def compiled_routine(function: Callable[..., None], arguments: str) -> Any:
    """Return the function as a routine that compiled loops call by address: a letter of `arguments` is a pointer.

    "d" is to float64 and "l" to int64. What is called by address is compiled once; what is called by name is
    optimised again with every caller, and callers of callers, which would take most of the time of a first use.
    """
    if SWITCHED_OFF:
        return plain_routine(function, arguments)
    kinds = {"d": numba.types.CPointer(numba.float64), "l": numba.types.CPointer(numba.int64)}
    signature = numba.void(*(kinds[letter] for letter in arguments))
    routine = CFunc(function, (signature.args, signature.return_type), {}, {"error_model": "numpy"})
    with contextlib.suppress(RuntimeError):
        routine.enable_caching()
        _stamped(routine)
    _watch.begin()
    try:
        routine.compile()
    finally:
        _watch.end()
    return routine


def compile_seconds() -> float:
    """Return how long compiling has taken in this process; who measures speed has to take it off."""
    return _watch.seconds


class _Watch(event.Listener):
    """Says once why the first call takes so long, and adds up how long compiling takes."""

    def __init__(self) -> None:
        self.made = parent_process() is not None  # one voice is enough, and it is not a worker's
        self.seconds, self._began, self._depth = 0.0, 0.0, 0

    def begin(self) -> None:
        """Take note that compiling begins, perhaps of what is needed by something else that is being compiled."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        """Take note that it ends."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began

    def on_start(self, event: Any) -> None:
        self.begin()
        function = event.data["dispatcher"].py_func
        if not self.made and function.__module__.startswith("robustfd."):
            self.made = True
            print("robustfd: compiling its inner loops, which takes some seconds, once", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        self.end()


_watch = _Watch()
event.register("numba:compile", _watch)


def _stamped(dispatcher: Any) -> Any:
    # numba itself looks at the one file that the function is in, and would run old code after an upgrade.
    with contextlib.suppress(AttributeError):
        dispatcher._cache._cache_file._source_stamp = _STAMP
    return dispatcher
