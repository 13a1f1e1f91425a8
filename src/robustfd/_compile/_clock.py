"""Compile times, and messages about compilation on stderr."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import Any

try:
    from numba.core import event
except ImportError:  # an unsupported version of numba: no messages, no compile times
    event = None


class Watch:
    """Measures compile times, and prints one message that explains why the first call is slow."""

    def __init__(self) -> None:
        self.made = self.warned = parent_process() is not None  # only the main process prints
        self.seconds, self.functions, self.reason = 0.0, 0, ""
        self._began, self._depth, self._collects, self._lock = 0.0, 0, True, threading.Lock()

    @contextmanager
    def compiling(self, function: Callable[..., Any]) -> Iterator[None]:
        """Measure the compilation of a function, which may be nested in another."""
        self.begin(function)
        try:
            yield
        finally:
            self.end()

    def begin(self, function: Callable[..., Any]) -> None:
        """Record the beginning of a compilation."""
        with self._lock:
            if self._depth == 0:
                self._began = time.perf_counter()
                # numba creates millions of objects and few garbage cycles: collection takes a sixth of the time.
                self._collects = gc.isenabled()
                gc.disable()
            self._depth += 1
        if function.__module__.startswith("robustfd."):
            self.functions += 1
            if not self.made:
                self.made = True
                _print("compiling its inner loops. This takes a few seconds, once." if not self.reason else _UNCACHED)
            self.warn_if_uncached()

    def end(self) -> None:
        """Record the end of a compilation."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._began
                if self._collects:
                    gc.enable()

    def cannot_cache(self, reason: Any) -> None:
        """Record why compiled loops cannot be cached on disk."""
        self.reason = self.reason or str(reason)

    def warn_if_uncached(self) -> None:
        """Print once why compiled loops cannot be cached and what to do, if that is the case."""
        if self.reason and not self.warned:
            self.warned = True
            _print(
                f"compiled loops cannot be cached on disk ({self.reason}). Set NUMBA_CACHE_DIR to a folder of your own."
            )


_UNCACHED = "compiling its inner loops. This takes a few seconds in every process."


def _print(message: str) -> None:
    print(f"robustfd: {message}", file=sys.stderr, flush=True)


watch = Watch()

if event is not None:

    class _Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            watch.begin(event.data["dispatcher"].py_func)

        def on_end(self, event: Any) -> None:
            watch.end()

    event.register("numba:compile", _Listener())
