"""One file from one address, going on where an earlier attempt stopped."""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

BLOCK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
RETRIES = 4  # attempts in a row that bring nothing new
PAUSE = 0.5  # seconds before another attempt, doubled each time

Report = Callable[[int, int | None], None]  # bytes there, bytes in all if known


class DownloadError(Exception):
    """An address that does not give its file."""


class _Dropped(Exception):
    """An attempt that ended early; another may go on from there."""


def download(address: str, part: Path, report: Report) -> None:
    """Fetch an address into `part`, behind the bytes that it already has.

    An address that gives nothing at all is given up at once. One that gave something is asked again, for the rest,
    until it has brought nothing new for a number of times. What came stays in `part` for the next call.
    """
    most = first = _size(part)
    failures = 0
    while True:
        try:
            return _attempt(address, part, report)
        except _Dropped as error:
            came = _size(part)
            failures = 0 if came > most else failures + 1
            most = max(most, came)
            if most == first or failures > RETRIES:
                kept = f" ({came} bytes came and are kept: the next call goes on from there)" if came else ""
                raise DownloadError(f"{error}{kept}") from error
            time.sleep(PAUSE * 2**failures)


def _attempt(address: str, part: Path, report: Report) -> None:
    """Fetch the rest of a file, or raise."""
    start = _size(part)
    headers = {"User-Agent": "robustfd", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing behind what is there: all of it, or another file's
                if error.headers.get("Content-Range", "").rpartition("/")[2] == str(start):
                    return None
                part.unlink()
                return _attempt(address, part, report)
            if error.code >= 500:
                raise _Dropped(f"the server answers {error.code} {error.reason}") from error
            raise DownloadError(f"the server answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _Dropped(f"no connection: {getattr(error, 'reason', error)}") from error
    with response:
        start, total = _extent(response, start)
        with open(part, "r+b" if start else "wb") as out:
            out.seek(start)
            out.truncate()
            report(start, total)
            while block := _next_block(response):
                out.write(block)
                report(out.tell(), total)
            out.flush()
            os.fsync(out.fileno())
            end = out.tell()
    if total is not None and end != total:
        raise _Dropped(f"the connection ended after {end} of {total} bytes")
    return None


def _next_block(response: Any) -> bytes:
    try:
        return response.read(BLOCK)
    except (OSError, HTTPException) as error:
        raise _Dropped(f"the connection was lost: {error}") from error


def _extent(response: Any, start: int) -> tuple[int, int | None]:
    """Return where the bytes of an answer belong and how many there are in all; (0, ...) is the whole file."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.partition("-")[0] == str(start):
            return start, int(total) if total.isdigit() else None
        raise DownloadError(f"the server was asked for the bytes from {start} on and sent {span or 'others'}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
