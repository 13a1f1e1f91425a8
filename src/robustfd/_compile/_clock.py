"""How long compiling takes, and what is said about it."""

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
except ImportError:  # another numba: nothing is said, and no time is taken off
    event = None


class Watch:
    """Says once why the first call takes so long, and adds up how long compiling takes."""

    def __init__(self) -> None:
        self.made = self.said = parent_process() is not None  # one voice is enough, and it is not a worker's
        self.seconds, self.functions, self.reason = 0.0, 0, ""
        self._began, self._depth, self._collects, self._lock = 0.0, 0, True, threading.Lock()

    @contextmanager
    def compiling(self, function: Callable[..., Any]) -> Iterator[None]:
        """Take note that a function is compiled, perhaps for something else that is being compiled."""
        self.begin(function)
        try:
            yield
        finally:
            self.end()

    def begin(self, function: Callable[..., Any]) -> None:
        """Take note that compiling begins."""
        with self._lock:
            if self._depth == 0:
                self._began = time.perf_counter()
                # numba makes millions of objects and drops few: to look for them takes a sixth of the time.
                self._collects = gc.isenabled()
                gc.disable()
            self._depth += 1
        if function.__module__.startswith("robustfd."):
            self.functions += 1
            if not self.made:
                self.made = True
                _say("compiling its inner loops, which takes some seconds, once" if not self.reason else _UNKEPT)
            self.say_where()

    def end(self) -> None:
        """Take note that it ends."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._began
                if self._collects:
                    gc.enable()

    def cannot_keep(self, reason: Any) -> None:
        """Take note why what is compiled cannot be kept on disk."""
        self.reason = self.reason or str(reason)

    def say_where(self) -> None:
        """Say once, if compiled loops cannot be kept, why and what to do."""
        if self.reason and not self.said:
            self.said = True
            _say(f"compiled loops cannot be kept on disk ({self.reason}). Set NUMBA_CACHE_DIR to a folder of your own.")


_UNKEPT = "compiling its inner loops, which takes some seconds, in every process"


def _say(message: str) -> None:
    print(f"robustfd: {message}", file=sys.stderr, flush=True)


watch = Watch()

if event is not None:

    class _Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            watch.begin(event.data["dispatcher"].py_func)

        def on_end(self, event: Any) -> None:
            watch.end()

    event.register("numba:compile", _Listener())
