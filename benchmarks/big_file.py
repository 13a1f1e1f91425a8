"""`robustfd sketch` of a text file that is larger than its memory: MB per second and peak memory."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import report, zipf_rows
from benchmarks.sketch_speed import _row

D, NNZ, M = 20_000, 100, 50
MOST_MEMORY = 400  # MB


def big_file(size: int = 2_000_000_000) -> None:
    """Write a LIBSVM file of 2 GB and sketch it as users do. It is read twice, first to count the features."""
    if shutil.disk_usage(tempfile.gettempdir()).free < 2 * size:
        print(f"\nbig_file: skipped, it needs {2 * size / 1e9:g} GB of disk")
        return
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.svm"
        write(rows, size)
        size = rows.stat().st_size
        command = [sys.executable, "-m", "robustfd", "sketch", str(rows), "-m", str(M), "-q", "-o", f"{rows}.rfd"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as started:
            _, status, used = os.wait4(started.pid, 0)  # the peak includes that of this process, which is smaller
            seconds = time.perf_counter() - began
            started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            raise RuntimeError(f"robustfd sketch ended with {started.returncode}")
    memory = used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    shape = f"{size / 1e9:.2f} GB of LIBSVM text, {D} features, {NNZ} a row, m = {M}"
    report(
        "big_file",
        [
            _row(f"{shape}: robustfd sketch", seconds, "s"),
            _row("  of the file, start-up and counting counted", size / 1e6 / seconds, "MB/s"),
            _row("  most resident memory", memory, "MB", most=MOST_MEMORY),
        ],
    )


def write(path: Path, size: int) -> None:
    """Write a file of about `size` bytes by repeating a few megabytes of lines."""
    x = zipf_rows(4000, D, NNZ)
    lines = []
    for begin, end in zip(x.indptr, x.indptr[1:]):
        entries = zip(x.indices[begin:end].tolist(), x.data[begin:end].tolist())
        lines.append(f"{begin % 2} " + " ".join(f"{column + 1}:{value:.4g}" for column, value in entries) + "\n")
    text = "".join(lines).encode()
    with open(path, "wb") as file:
        for _ in range(-(-size // len(text))):
            file.write(text)
