"""Scans of files of LIBSVM text for labels and indices. A command may start one before it imports everything else."""

import os
import stat
from pathlib import Path
from threading import Thread

from robustfd._core import FileScan

MOST_LABELS = 1000  # distinct labels; with more, targets count as numbers
_PIECE = 1 << 26  # bytes between two moments at which a signal can interrupt, and all that is scanned ahead

Scanned = tuple[int, list[float], int, int]  # the number of rows, their labels, the smallest and the largest index
_Version = tuple[int, ...]  # which file, and of what time
_started: dict[_Version, tuple[FileScan, Thread]] = {}


def start(name: str) -> None:
    """Start to scan a file in a second thread if it is a regular one. Its format need not be known.

    A scan of text in other formats ends in the first line.
    """
    try:
        version, regular = _version(os.stat(name))
    except (OSError, ValueError):
        return
    if regular:
        scan = FileScan(name, MOST_LABELS + 1)
        thread = Thread(target=scan.advance, args=(_PIECE,), name="robustfd-scan", daemon=True)
        _started[version] = scan, thread
        thread.start()


def scan_file(path: Path) -> Scanned | None:
    """Return what is in a file of labelled rows, None if there is anything unusual, such as a comment."""
    if (started := _started.pop(_version(path.stat())[0], None)) is not None:
        scan, thread = started
        thread.join()
    else:
        scan = FileScan(path, MOST_LABELS + 1)
    while scan.advance(_PIECE):
        pass
    return scan.result()


def _version(status: os.stat_result) -> tuple[_Version, bool]:
    """Return the version of a file, and whether it is a regular one."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), stat.S_ISREG(status.st_mode)
