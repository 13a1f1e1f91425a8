"""The command `robustfd` in processes that start at once: forked from one that has imported everything.

They are real processes, with their own standard files, limits and exit status, and can be killed. What a real start
does beside, to import, takes seconds; `REAL` is for the tests that want that too.
"""

import contextlib
import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
REAL = [sys.executable, "-m", "robustfd"]
BLOCK = 4096  # bytes of a file that are read at once: small, so that a small file has many blocks
PATIENCE = 60.0  # seconds after which a test gives up


class Job:
    """A command that runs, or has ended."""

    def __init__(self, server, pid, folder):
        self.server, self.pid, self.folder = server, pid, folder

    def kill(self, signum=signal.SIGKILL):
        os.kill(self.pid, signum)  # nobody else gets its number before `wait` has asked for its status

    def wait(self):
        """Return itself with `status`, negative if a signal ended it, and what it said."""
        self.status = self.server.ask({"wait": self.pid})
        self.out, self.err = ((self.folder / f".{name}").read_text() for name in ("stdout", "stderr"))
        return self


class Warm:
    """The process that commands are forked from."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.warm"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.read() == "ready"

    def read(self):
        line = self.process.stdout.readline()
        assert line, "the process that commands are forked from has ended"
        return json.loads(line)

    def ask(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.read()

    def start(self, folder, *arguments, **how):
        """Start a command in a folder; `how` is what `_become` knows of."""
        pid = self.ask({"folder": str(folder), "arguments": [str(each) for each in arguments], **how})
        return Job(self, pid, Path(folder))

    def run(self, folder, *arguments, **how):
        """Run a command to its end."""
        return self.start(folder, *arguments, **how).wait()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE)


def until(holds, job=None):
    """Wait until something holds or the job has ended; return whether it holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if job is not None and job.server.ask({"ended": job.pid}):
            return holds()
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.001)
    return True


def write_rows(path, n, d=20, seed=0):
    """Write a LIBSVM file of n rows of two classes."""
    import numpy as np

    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.3, rng.integers(-40, 41, (n, d)) / 8, 0.0)
    X[0, -1] = 1.0  # the last feature occurs
    y = np.where(X[:, 0] - X[:, 1] + rng.standard_normal(n) > 0, 1, -1)
    with open(path, "w") as file:
        for label, row in zip(y.tolist(), X.tolist()):
            print(label, *(f"{j}:{value:g}" for j, value in enumerate(row, 1) if value), file=file)
    return path


def _serve():
    """Read requests from standard input, and fork for each that is a command."""
    from robustfd.cli import main

    with tempfile.TemporaryDirectory() as folder:
        rows, model = str(write_rows(Path(folder) / "rows.svm", 300)), str(Path(folder) / "model")
        checkpoint = ("--checkpoint", f"{model}.checkpoint", "--every", "1", "-q")
        for arguments in (
            ("train", rows, "-o", model, "-m", "5", *checkpoint),
            ("train", rows, "-o", model, "-m", "5", "--task", "regression", "--learner", "rfdson", *checkpoint),
            ("predict", model, rows),
            ("sketch", rows, "-o", model, "-m", "5", *checkpoint),
            ("info", model),
        ):
            sys.argv = ["robustfd", *arguments]
            with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                main()
    gc.freeze()  # else the first collection after a fork copies all there is
    _answer("ready")
    ended = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "arguments" in request:
            child = os.fork()
            if child == 0:
                _become(**request)
                _end(main)
            _answer(child)
        elif "ended" in request:
            pid = request["ended"]
            if pid not in ended and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                ended[pid] = True
            _answer(pid in ended)
        else:
            _answer(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]))


def _end(main):
    """Run the command and end as Python does, without the second that it takes to tidy up what was imported."""
    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except OSError:
            status = status or 120
    os._exit(status or 0)


def _answer(what):
    print(json.dumps(what), flush=True)


def _become(folder, arguments, stdin=os.devnull, stdout=None, stderr=None, block=BLOCK, largest_file=None):
    """Make this process one that has just been started."""
    from robustfd.streams import inputs, open_stream

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    for target, path, flags in (
        (0, stdin, os.O_RDONLY),
        (1, stdout or ".stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, stderr or ".stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        handle = os.open(path, flags)
        os.dup2(handle, target)
        os.close(handle)
    for name in (".stdout", ".stderr"):
        Path(name).touch()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond is an error then, not the end
    open_stream.__kwdefaults__["block_bytes"] = inputs._AT_ONCE = block
    sys.argv = ["robustfd", *arguments]


if __name__ == "__main__":
    _serve()
