import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from robustfd._container import load_with_notes
from robustfd.streams import open_stream

ROOT = Path(__file__).parents[2]
PATIENCE = 60  # seconds
BLOCK = 2000  # bytes: small, so that a small file has many blocks
SMALL_BLOCKS = f"""
from robustfd import cli
from robustfd.streams import open_stream
open_stream.__kwdefaults__["block_bytes"] = {BLOCK}
cli.script()
"""


def libsvm_text(X, y):
    """Return rows as LIBSVM text, with all digits."""
    lines = []
    for row, label in zip(X, y, strict=True):
        lines.append(" ".join([f"{label:.17g}", *(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row))]))
    return "\n".join(lines) + "\n"


def until(holds):
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.001)


def rows_kept(path):
    """Return the rows of a checkpoint."""
    return load_with_notes(path)[1]["checkpoint"]["position"]["rows"]


class Done(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def run(monkeypatch, capfd):
    """The command in this process: arguments in, exit status and both outputs back."""
    from robustfd.cli import main

    def call(*arguments, stdin: bytes | None = b""):
        monkeypatch.setattr(sys, "argv", ["robustfd", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        return Done(status, *capfd.readouterr())

    return call


def execute(*arguments, stdin=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **environment):
    """Run the command as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "robustfd", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, **environment}, input=stdin, stdout=stdout, stderr=stderr, timeout=300,
    )  # fmt: skip
    return Done(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


def start(folder, *arguments, **more):
    """Start the command in a folder, with small blocks. Its messages are in `stderr`."""
    command = [sys.executable, "-c", SMALL_BLOCKS, *map(str, arguments)]
    if threading.current_thread() is threading.main_thread():  # a shell starts background jobs that ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(open_stream.__kwdefaults__, "block_bytes", BLOCK)


@pytest.fixture(scope="package")
def rows():
    """400 rows of 12 features, a third of them zero, and labels -1 and 1."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 12)) * (rng.random((400, 12)) < 0.7)
    y = np.where(X @ rng.standard_normal(12) + 0.3 * rng.standard_normal(400) > 0, 1.0, -1.0)
    return X, y


@pytest.fixture
def svm(tmp_path, rows):
    path = tmp_path / "rows.svm"
    path.write_text(libsvm_text(*rows))
    return path
