"""Forks while other threads learn and read.

The promise: the child gets whole models, and its calls do not hang.
"""

import os
import threading
import time
from pathlib import Path

import numpy as np

from fuzz.threads import CALLS, read, setting, started, steps

SECONDS = 60.0
APART = True
FORKS = 5
PATIENCE = 30.0  # seconds that a child may take


def case(rng: np.random.Generator, folder: Path) -> str:
    """Fork at random moments."""
    name, model, rows, y = setting(rng)
    alone = started(model, name, rows, y)
    expected = {read(alone, rows).tobytes() for _ in steps(alone, name, rows, y, CALLS)}
    model = started(model, name, rows, y)
    learning = threading.Thread(target=lambda: list(steps(model, name, rows, y, CALLS)), daemon=True)
    learning.start()
    for _ in range(FORKS):
        time.sleep(float(rng.random()) * 0.01)
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = 0 if read(model, rows).tobytes() in expected else 1
            finally:
                os._exit(code)
        until = time.monotonic() + PATIENCE
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.002)
        if ended == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert ended != (0, 0), f"{name}: the child hangs"
        assert ended[1] == 0, f"{name}: the child ended with {ended[1]}: not the model between two calls, or an error"
    learning.join()
    return name
