"""SIGINT and SIGTERM during a pass: the pass ends between two blocks, with its state saved."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class DeferredSignals:
    """A context in which the first SIGINT or SIGTERM is recorded, and a second one ends the process."""

    def __init__(self) -> None:
        self.caught, self._waiting = 0, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "DeferredSignals":
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._record)
        return self

    def __exit__(self, *_: Any) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _record(self, signum: int, frame: FrameType | None) -> None:
        self.caught = signum
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        if self._waiting:
            raise _Interrupted

    def interruptible(self, wait: Callable[[], Any]) -> Any:
        """Return the result of `wait`, or None if a signal arrives before or during the call."""
        try:
            self._waiting = True
            return None if self.caught else wait()
        except _Interrupted:
            return None
        finally:
            self._waiting = False


class _Interrupted(BaseException):
    """A signal arrived while the pass was waiting for input."""
