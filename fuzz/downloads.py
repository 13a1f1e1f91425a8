"""Downloads from a hostile server.

The promise: whatever one address answers, the next one is tried, and the result is the right file or a `DatasetError`.
No download takes more bytes than the known size of the file plus a margin.
"""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from robustfd.datasets import _http
from robustfd.datasets._errors import DatasetError
from robustfd.datasets._fetch import fetch
from robustfd.datasets.registry import File

SECONDS = 60.0
MARGIN = 1 << 24  # bytes allowed in addition to the size of the file
NONSENSE = (
    "", "-1", "x", "1e9", "99999999999999999999999", "0x10", "1, 2", "12 34", "\xff", "bytes 0-1/x", "bytes */*",
    "bytes 5-2/7", "bytes 0-99999999999999999999/1", "bytes -1-5/10", "chunked", "gzip", "None",
)  # fmt: skip
HEADERS = (
    "Content-Length",
    "Content-Range",
    "ETag",
    "Last-Modified",
    "Content-Encoding",
    "Transfer-Encoding",
    "Location",
)


def case(rng: np.random.Generator, folder: Path) -> str:
    """Download one file from a server that sends nonsense, and then perhaps from an honest one."""
    content = rng.integers(0, 256, int(rng.integers(1, 4000)), np.uint8).tobytes()
    honest, sent = bool(rng.random() < 0.5), [0]
    status = int(rng.choice([200, 206, 301, 302, 304, 404, 416, 500, 204]))
    headers = [
        (str(rng.choice(HEADERS)), str(rng.choice(NONSENSE))) for _ in range(int(rng.integers(0, 4)))
    ]  # fmt: skip
    shape = str(rng.choice(["right", "short", "long", "endless", "none"]))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = str(rng.choice(["HTTP/1.0", "HTTP/1.1"]))

        def do_GET(self) -> None:
            if self.path == "/honest":
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                return
            self.close_connection = True
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value.replace("/", "/") if name != "Location" else "/hostile")
            self.end_headers()
            body = {"right": content, "short": content[:-1], "long": content + b"more", "none": b""}.get(shape)
            while body is None and sent[0] <= 4 * MARGIN:
                self.wfile.write(bytes(1 << 16))
                sent[0] += 1 << 16
            self.wfile.write(body or b"")

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *given: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    pause, _http.PAUSE = _http.PAUSE, 0.0
    try:
        where = f"http://127.0.0.1:{server.server_address[1]}"
        addresses = (f"{where}/hostile", *([f"{where}/honest"] if honest else []))
        file = File("rows.bin", addresses, len(content), hashlib.sha256(content).hexdigest())
        about = f"{status} {headers} {shape}, honest {honest}"
        try:
            path, _ = fetch("rows", file, [folder / f"cache-{rng.integers(1 << 40)}"], progress=False)
            assert path.read_bytes() == content, about
            outcome = "fetched"
        except DatasetError as error:
            assert not honest, f"the honest address was not tried after {about}: {error}"
            outcome = "refused"
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {about}: {error}") from error
        assert sent[0] <= len(content) + 2 * MARGIN, f"{sent[0]:,} bytes were taken of {len(content)}: {about}"
        return outcome
    finally:
        _http.PAUSE = pause
        server.shutdown()
        thread.join()
        server.server_close()
