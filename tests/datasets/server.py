"""A local web server that can misbehave on request and records all requests."""

import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENDLESS = 1 << 28  # bytes after which a test counts as failed


@dataclass
class Served:
    """A file and how it is served."""

    content: bytes
    cuts: list[int] = field(default_factory=list)  # the first, second, ... answer ends after this many bytes
    reset: bool = False  # a cut resets the connection instead of closing it
    ranges: bool = True
    length: bool = True  # whether the answer has a Content-Length
    status: int = 200
    shift: int = 0  # a partial answer starts this many bytes too late
    gate: threading.Event | None = None  # the answer waits in the middle until this is set
    headers: dict[str, str] = field(default_factory=dict)  # replace the true headers
    raw: bytes | None = None  # the complete raw answer, which may violate HTTP
    endless: bool = False  # repeats the content until the client disconnects
    sent: int = 0  # bytes sent of an endless answer
    halfway: threading.Event = field(default_factory=threading.Event)


class Server:
    """Serves files by path. `asked` has the path and the Range header of every request."""

    def __init__(self):
        self.files: dict[str, Served] = {}
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *args: None
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/data/{name}"

    def put(self, name: str, content: bytes, **how) -> Served:
        self.files[f"/data/{name}"] = Served(content, **how)
        return self.files[f"/data/{name}"]

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def answer(self, handler):
        span = handler.headers.get("Range")
        self.asked.append((handler.path.removeprefix("/data/"), span))
        served = self.files.get(handler.path)
        if served is None or served.status >= 400:
            return handler.send_error(served.status if served else 404)
        if served.raw is not None:
            return handler.wfile.write(served.raw)
        start, total = 0, len(served.content)
        if span and served.ranges:
            start = int(span.removeprefix("bytes=").rstrip("-"))
            if start >= total:
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{total}")
                handler.send_header("Content-Length", "0")
                return handler.end_headers()
            start += served.shift
            handler.send_response(206)
            headers = {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
        else:
            handler.send_response(200)
            headers = {}
        if served.length:
            headers["Content-Length"] = str(total - start)
        for name, value in (headers | served.headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        while served.endless and served.sent < ENDLESS:
            served.sent += handler.wfile.write(served.content)
        body = served.content[start:]
        cut = served.cuts.pop(0) if served.cuts else None
        if served.gate is not None:
            handler.wfile.write(body[: len(body) // 2])
            served.halfway.set()
            served.gate.wait(60)
            body = body[len(body) // 2 :]
        handler.wfile.write(body[:cut])
        if cut is not None and served.reset:
            time.sleep(0.2)  # give the client time to read, as a reset discards unread bytes
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
        return None
