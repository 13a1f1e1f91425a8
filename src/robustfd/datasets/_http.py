"""Resumable download of one file from one address."""

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
RETRIES = 4  # consecutive attempts without progress
PAUSE = 0.5  # seconds before another attempt, doubled each time

Report = Callable[[int, int | None], None]  # bytes downloaded, total bytes if known


class DownloadError(Exception):
    """Raised if a file cannot be downloaded from an address."""


class _NoAnswer(Exception):
    """An attempt without an answer, or with a server error."""


class _ConnectionLost(Exception):
    """An attempt whose answer ended early. Another attempt may continue from there."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects without reading the body of the redirect page, which may be endless."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request for the new address."""
        fp.read = lambda *_: b""  # urllib calls this before it closes the connection
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_Redirects)


def download(address: str, part: Path, report: Report, most: int | None) -> None:
    """Download an address and append to the bytes that are already in `part`.

    `most` is the largest possible size of the file, or None if unknown. It protects against servers that never stop
    sending. If the server never answers, the download fails at once. If the connection is lost later, the rest is
    requested again until several consecutive attempts make no progress. The bytes received stay in `part` for the next
    call.
    """
    longest = _size(part)
    failures, answered = 0, False
    while True:
        try:
            return _attempt(address, part, report, most)
        except (_ConnectionLost, _NoAnswer) as error:
            came = _size(part)
            failures = 0 if came > longest else failures + 1
            longest = max(longest, came)
            answered |= isinstance(error, _ConnectionLost)
            if not answered or failures > RETRIES:
                kept = f" ({came} bytes were received and are kept: the next call continues from there)" if came else ""
                raise DownloadError(f"{error}{kept}") from error
            time.sleep(PAUSE * 2**failures)


def _attempt(address: str, part: Path, report: Report, most: int | None) -> None:
    """Download the rest of a file, or raise."""
    start = _size(part)
    headers = {"User-Agent": "robustfd", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response = _opener.open(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing after `start`: complete, or bytes of a different file
                if error.headers.get("Content-Range", "").rpartition("/")[2] == str(start):
                    return None
                part.unlink()
                return _attempt(address, part, report, most)
            if error.code >= 500:
                raise _NoAnswer(f"the server returned {error.code} {error.reason}") from error
            raise DownloadError(f"the server returned {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _NoAnswer(f"no connection: {getattr(error, 'reason', error)}") from error
    except ValueError as error:  # urllib raises this for answers that are not HTTP and for invalid redirects
        raise DownloadError(f"the server's answer is not valid: {error}") from error
    with response:
        begin, total = _extent(response)
        if begin not in (0, start):
            if not start:
                raise DownloadError("the server sent a part of the file, but the whole file was requested")
            part.unlink()  # not the requested part: download the whole file
            return _attempt(address, part, report, most)
        limit = min((each for each in (total, most) if each is not None), default=None)
        if total is not None and limit != total:
            raise DownloadError(f"the server has {total} bytes, but the file should have at most {limit}")
        with open(part, "r+b" if begin else "wb") as out:
            out.seek(begin)
            out.truncate()
            report(begin, total)
            while block := _next_block(response):
                if limit is not None and out.tell() + len(block) > limit:
                    part.unlink()
                    raise DownloadError(f"the server sends more than the {limit} bytes expected")
                out.write(block)
                report(out.tell(), total)
            out.flush()
            os.fsync(out.fileno())
            end = out.tell()
    if total is not None and end != total:
        raise _ConnectionLost(f"the connection ended after {end} of {total} bytes")
    return None


def _next_block(response: Any) -> bytes:
    try:
        return response.read1(BLOCK)  # read() would wait for a full block and lose the bytes received before an error
    except (OSError, HTTPException) as error:
        raise _ConnectionLost(f"the connection was lost: {error}") from error
    except ValueError as error:  # an invalid chunk length
        raise _ConnectionLost(f"the server's answer is not valid: {error}") from error


def _extent(response: Any) -> tuple[int, int | None]:
    """Return the position of the bytes in an answer (-1 if unknown), and the total size of the file."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        begin = _number(span.partition("-")[0])
        return -1 if begin is None else begin, _number(total)
    return 0, _number(response.headers.get("Content-Length", ""))


def _number(text: str) -> int | None:
    """Return the number in a header, or None if it is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
