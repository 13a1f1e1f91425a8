import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.cli.warm import Warm

ROOT = Path(__file__).parents[2]
PATIENCE = 60  # seconds


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

    def call(*arguments, stdin: bytes = b""):
        monkeypatch.setattr(sys, "argv", ["robustfd", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        return Done(status, *capfd.readouterr())

    return call


@pytest.fixture
def execute():
    """The command as a process of its own."""

    def call(*arguments, stdin: bytes | None = None, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "robustfd", *map(str, arguments)],
            cwd=ROOT, env={**os.environ, **environment}, input=stdin, capture_output=True, timeout=300,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
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


@pytest.fixture(scope="package")
def warm():
    """Where commands are started without waiting for their imports."""
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    server = Warm()
    yield server
    server.close()
