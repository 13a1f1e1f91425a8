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


class _Silent(Exception):
    """An attempt that got no answer, or that of a server in trouble."""


class _Dropped(Exception):
    """An attempt whose answer ended early; another may go on from there."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Goes to where a server redirects to, without reading the page that says so, which may be endless."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request of the new address."""
        fp.read = lambda *_: b""  # what urllib calls before it closes the connection
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_Redirects)


def download(address: str, part: Path, report: Report, most: int | None) -> None:
    """Fetch an address into `part`, behind the bytes that it already has.

    `most` is how many bytes the file can have, None if that is not known: a server may send bytes without end.
    An address that never answers is given up at once. One that did is asked again, for the rest, until it has brought
    nothing new for a number of times. What came stays in `part` for the next call.
    """
    longest = _size(part)
    failures, answered = 0, False
    while True:
        try:
            return _attempt(address, part, report, most)
        except (_Dropped, _Silent) as error:
            came = _size(part)
            failures = 0 if came > longest else failures + 1
            longest = max(longest, came)
            answered |= isinstance(error, _Dropped)
            if not answered or failures > RETRIES:
                kept = f" ({came} bytes came and are kept: the next call goes on from there)" if came else ""
                raise DownloadError(f"{error}{kept}") from error
            time.sleep(PAUSE * 2**failures)


def _attempt(address: str, part: Path, report: Report, most: int | None) -> None:
    """Fetch the rest of a file, or raise."""
    start = _size(part)
    headers = {"User-Agent": "robustfd", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response = _opener.open(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:  # nothing behind what is there: all of it, or another file's
                if error.headers.get("Content-Range", "").rpartition("/")[2] == str(start):
                    return None
                part.unlink()
                return _attempt(address, part, report, most)
            if error.code >= 500:
                raise _Silent(f"the server answers {error.code} {error.reason}") from error
            raise DownloadError(f"the server answers {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _Silent(f"no connection: {getattr(error, 'reason', error)}") from error
    except ValueError as error:  # what urllib makes of an answer that is no HTTP, and of an address it leads on to
        raise DownloadError(f"the server's answer makes no sense: {error}") from error
    with response:
        begin, total = _extent(response)
        if begin not in (0, start):
            if not start:
                raise DownloadError("the server sends a part where all was asked for")
            part.unlink()  # not the part that was asked for: all, then
            return _attempt(address, part, report, most)
        limit = min((each for each in (total, most) if each is not None), default=None)
        if total is not None and limit != total:
            raise DownloadError(f"the server has {total} bytes, and there should be at most {limit}")
        with open(part, "r+b" if begin else "wb") as out:
            out.seek(begin)
            out.truncate()
            report(begin, total)
            while block := _next_block(response):
                if limit is not None and out.tell() + len(block) > limit:
                    part.unlink()
                    raise DownloadError(f"the server sends more than the {limit} bytes that there should be")
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
        return response.read1(BLOCK)  # what has come: read would wait for more, and lose it to an error
    except (OSError, HTTPException) as error:
        raise _Dropped(f"the connection was lost: {error}") from error
    except ValueError as error:  # a length of a chunk that is none
        raise _Dropped(f"the server's answer makes no sense: {error}") from error


def _extent(response: Any) -> tuple[int, int | None]:
    """Return where the bytes of an answer belong (-1: not known), and how many the file has in all."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        begin = _number(span.partition("-")[0])
        return -1 if begin is None else begin, _number(total)
    return 0, _number(response.headers.get("Content-Length", ""))


def _number(text: str) -> int | None:
    """Return the number in a header, None if it is none: what is there may be anything."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
