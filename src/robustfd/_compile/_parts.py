"""numba's private parts, by which the first use is several times shorter.

Importing this fails if one of them is missing, or if a numba that nobody has tried cannot do a small thing with them.
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

from robustfd._compile._cache import kept
from robustfd._compile._clock import watch

TRIED = {(0, 68)}  # versions of numba that all tests were run with

# numba tries the types it knows in the order in which they were made known. Here arrays come before strings and lists;
# were something looked up in the cache on disk first, every `a[i]` would be typed ten times as slowly.
cpu_target.typing_context.refresh()


class PartLibrary(JITCodeLibrary):
    """The code of a function that is only a part of others: with each of them it is optimised, so not on its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        """Make no machine code either, only the variables that numba will look for."""
        names = [v.name for v in self._final_module.global_variables if v.name.startswith("_ZN08NumbaEnv")]
        self._codegen._add_module(parse_assembly("\n".join(f"@{name} = common global i64 0" for name in names)))
        self._codegen._engine.finalize_object()
        self._finalized = True


class PartCompiler(Compiler):
    """What numba compiles parts by."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


ENTRY: dict[str, Any] = {"no_cfunc_wrapper": True}
PART: dict[str, Any] = {"pipeline_class": PartCompiler, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
UNCOUNTED: dict[str, Any] = {"_nrt": False}


class Routine(CFunc):
    """A routine that says when it is compiled, and not when it is read from disk."""

    def _compile_uncached(self) -> Any:
        with watch.compiling(self.__wrapped__):
            return super()._compile_uncached()


def routine(function: Callable[..., None], kind: Any) -> Any:
    """Return a function as a compiled routine with an address; numba's own `cfunc` cannot be told when it is stale."""

    def make(cache: bool = False) -> Any:
        made = Routine(function, (kind.args, kind.return_type), {}, {"error_model": "numpy"})
        if cache:
            made.enable_caching()
        return made

    made = kept(make)
    made.compile()
    return made


def _add_up(numbers: Any) -> float:
    total = 0.0
    for number in numbers[1:]:
        total += number
    return total


def _check() -> None:
    """Fail if what is overridden, or an option, is not what it was."""
    for owner, names in {
        JITCodeLibrary: ("_optimize_final_module", "_finalize_final_module", "enable_object_caching"),
        Compiler: ("compile_extra",),
        CPUTargetOptions: ("_nrt", "no_cpython_wrapper", "no_cfunc_wrapper"),
        CFunc: ("enable_caching", "compile", "_compile_uncached", "address"),
    }.items():
        for name in names:
            getattr(owner, name)
    if not {"array", "data", "shape", "strides", "itemsize", "meminfo"} <= set(signature(populate_array).parameters):
        raise ImportError("numba.np.arrayobj.populate_array takes other arguments.")
    if numba.version_info.short not in TRIED:
        _try()


def _try() -> None:
    """Fail if a part and its caller cannot be compiled, or compute something else."""
    try:
        part = numba.njit(nogil=True, error_model="numpy", **PART, **UNCOUNTED)(_add_up)
        whole = numba.njit(nogil=True, error_model="numpy", **ENTRY, **UNCOUNTED)(lambda numbers: part(numbers))
        right = whole(np.arange(4.0)) == 6.0
    except Exception as error:
        raise ImportError("numba's private parts have changed.") from error
    if not right:
        raise ImportError("numba's private parts do something else.")


if not numba.config.DISABLE_JIT:
    _check()
