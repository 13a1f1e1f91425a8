"""Signal handlers that raise while a model learns or is read.

The promise: the model is that before the call or that after it, and any thread can use it.
"""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.threads import setting, started, steps

SECONDS = 60.0
APART = True
TIMES = 15


class Stop(BaseException):
    """An interrupt, such as Ctrl-C."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Interrupt calls at random moments."""
    name, model, rows, y = setting(rng)
    model = started(model, name, rows, y)
    signal.signal(signal.SIGALRM, _stop)
    stopped = 0
    for _ in range(TIMES):
        before, began = model.to_bytes(), time.perf_counter()
        after = _learned(type(model).from_bytes(before), name, rows, y).to_bytes()
        took = time.perf_counter() - began
        try:
            signal.setitimer(signal.ITIMER_REAL, took * rng.random() + 1e-6)
            _learned(model, name, rows, y)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except Stop:
            stopped += 1
        other = threading.Thread(target=model.to_bytes, daemon=True)
        other.start()
        other.join(20.0)
        assert not other.is_alive(), f"{name}: the lock is still held"
        assert model.to_bytes() in (before, after), f"{name}: a part of a call remains"
    return f"{name} {'stopped' if stopped else 'whole'}"


def _stop(signum: int, frame: Any) -> None:
    raise Stop


def _learned(model: Any, name: str, rows: Any, y: Any) -> Any:
    for _ in steps(model, name, rows, y, 1):
        pass
    return model
