"""The harness of `make fuzz`: a case is its number, failures and crashes are found, and the rest goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import _run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_a_case_is_its_number():
    first, again, other = (_run.rng_of("files", number, 0).random() for number in (3, 3, 4))
    assert first == again != other
    assert _run.rng_of("threads", 3, 0).random() != first != _run.rng_of("files", 3, 1).random()


@pytest.mark.parametrize("target", _run.TARGETS)
def test_every_target_states_its_promise(target):
    module = __import__(f"fuzz.{target}", fromlist=["case"])
    assert "promise" in module.__doc__
    assert module.SECONDS > 0 and callable(module.case)


TOY = '''
"""The promise: 7 and 8 never come."""
import os, signal
SECONDS = 1.0

def case(rng, folder):
    number = int(rng.integers(1000))
    assert number % 5 != 0, f"a multiple of 5: {number}"
    if number % 7 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if number % 11 == 0:
        while True:
            pass
    return "even" if number % 2 == 0 else "odd"
'''
RUN = """
import sys
import fuzz, fuzz._run
fuzz.__path__.append(sys.argv[1])
if __name__ == "__main__":
    failures = fuzz._run.run(float(sys.argv[2]), 0, 1, ("toy",))
    sys.exit(1 if failures else 0)
"""


def test_failures_and_crashes_are_found_and_the_rest_goes_on(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "run.py").write_text(RUN)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path, "4"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path), *sys.path])},
    )  # fmt: skip
    expected = [int(_run.rng_of("toy", number, 0).integers(1000)) for number in range(40)]
    failing = [k for k, value in enumerate(expected) if value % 5 == 0 or value % 7 == 0]
    assert done.returncode == 1, done.stderr
    for number in failing[:2]:
        assert f"toy:{number} --seed 0" in done.stdout
    assert "multiple of 5" in done.stdout
    assert f"ended with {-signal.SIGKILL}" in done.stdout
    assert "odd" in done.stdout and "even" in done.stdout


def test_a_case_that_takes_too_long_is_a_failure(tmp_path, monkeypatch):
    class Endless:
        SECONDS = 0.05

        @staticmethod
        def case(rng, folder):
            while True:
                pass

    def ring(signum, frame):
        raise _run.TooLong

    monkeypatch.setattr(_run, "import_module", lambda name: Endless)
    before = signal.signal(signal.SIGPROF, ring)
    try:
        assert _run.judge("endless", 0, 0, tmp_path)[3] == "FAILURE"
    finally:
        signal.signal(signal.SIGPROF, before)


def test_one_case_of_the_quick_targets(tmp_path):
    for target in ("refused", "certificates"):
        result = _run.judge(target, 0, 0, tmp_path)
        assert result[:2] == (target, 0)
        assert result[3] != "FAILURE", result[4]
