"""Private parts of numba that make compilation several times faster.

The import of this module fails if one of them is missing, or if a small test fails with an untested version of numba.
Then none of them is used.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import numba
import numpy as np
from llvmlite.binding import parse_assembly
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.cpu import CPUTargetOptions
from numba.core.registry import cpu_target
from numba.np.arrayobj import populate_array

from robustfd._compile._cache import cached
from robustfd._compile._clock import watch

TESTED = {(0, 68)}  # versions of numba that passed all tests

# numba tries types in the order of their registration. This call registers arrays before strings and lists. If the
# first lookup were in the on-disk cache, the order would differ and the typing of every `a[i]` take ten times as long.
cpu_target.typing_context.refresh()


class PartLibrary(JITCodeLibrary):
    """The code of an inner function: it is optimized as part of each caller, so not on its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        """Generate no machine code, only the variables that numba looks up."""
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        self._codegen._add_module(parse_assembly("\n".join(f"@{name} = common global i64 0" for name in names)))
        self._codegen._engine.finalize_object()
        self._finalized = True


class PartCompiler(Compiler):
    """Compiler of inner functions."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


ENTRY: dict[str, Any] = {"no_cfunc_wrapper": True}
PART: dict[str, Any] = {"pipeline_class": PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
NO_REFCOUNT: dict[str, Any] = {"_nrt": False}


class Routine(CFunc):
    """A routine that reports its compilation to the watch, but not a load from the cache."""

    def _compile_uncached(self) -> Any:
        with watch.compiling(self.__wrapped__):
            return super()._compile_uncached()


def routine(function: Callable[..., None], kind: Any) -> Any:
    """Return a function as a compiled routine with an address; numba's own `cfunc` would not detect stale entries."""

    def make(cache: bool = False) -> Any:
        made = Routine(function, (kind.args, kind.return_type), {}, {"error_model": "numpy"})
        if cache:
            made.enable_caching()
        return made

    made = cached(make)
    made.compile()
    return made


def _add_up(numbers: Any) -> float:
    total = 0.0
    for number in numbers[1:]:
        total += number
    return total


def _check() -> None:
    """Raise an error if an overridden method or an option is missing or has changed."""
    for owner, names in {
        JITCodeLibrary: ("_optimize_final_module", "_finalize_final_module", "enable_object_caching"),
        Compiler: ("compile_extra",),
        CPUTargetOptions: ("_nrt", "no_cpython_wrapper", "no_cfunc_wrapper"),
        CFunc: ("enable_caching", "compile", "_compile_uncached", "address"),
    }.items():
        for name in names:
            getattr(owner, name)
    if not {"array", "data", "shape", "strides", "itemsize", "meminfo"} <= set(signature(populate_array).parameters):
        raise ImportError("numba.np.arrayobj.populate_array has different parameters.")
    if numba.version_info.short not in TESTED:
        _test()


def _test() -> None:
    """Raise an error if an inner function and its caller do not compile, or give a wrong result."""
    try:
        part = numba.njit(nogil=True, error_model="numpy", **PART, **NO_REFCOUNT)(_add_up)
        whole = numba.njit(nogil=True, error_model="numpy", **ENTRY, **NO_REFCOUNT)(lambda numbers: part(numbers))
        right = whole(np.arange(4.0)) == 6.0
    except Exception as error:
        raise ImportError("numba's private parts have changed.") from error
    if not right:
        raise ImportError("numba's private parts give a wrong result.")


if not numba.config.DISABLE_JIT:
    _check()
