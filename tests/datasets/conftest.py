"""A separate folder for each test, without real data, and a local web server that can misbehave on request."""

import bz2
import gzip
import io
import threading
import zipfile
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

import pytest

from robustfd import datasets
from tests.datasets.small import files, rows_and_labels, shrink_registry

ENDLESS = 1 << 28  # bytes after which a test counts as failed


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the cache folder, which is in the folder of the test and does not exist yet."""
    monkeypatch.delenv("ROBUSTFD_DATA", raising=False)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    return datasets.cache_folder()


@dataclass
class Served:
    """A file and how it is served."""

    content: bytes
    cut: int | None = None  # the answer ends after this many bytes
    length: bool = True  # whether the answer has a Content-Length
    status: int = 200
    gate: threading.Event | None = None  # the answer waits in the middle until this is set
    raw: bytes | None = None  # the complete raw answer, which may violate HTTP
    endless: bool = False  # repeats the content until the client disconnects
    sent: int = 0  # bytes sent of an endless answer


class Server:
    """Serves files by name. `asked` has the name in every request."""

    def __init__(self):
        self.files, self.asked, self.halfway = {}, [], threading.Event()
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

    def address(self, published):
        return f"http://127.0.0.1:{self.http.server_address[1]}/{PurePosixPath(published).name}"

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def answer(self, handler):
        name = handler.path.removeprefix("/")
        self.asked.append(name)
        served = self.files.get(name)
        if served is None or served.status >= 400:
            return handler.send_error(served.status if served else 404)
        if served.raw is not None:
            return handler.wfile.write(served.raw)
        handler.send_response(200)
        if served.length:
            handler.send_header("Content-Length", str(len(served.content)))
        handler.end_headers()
        while served.endless and served.sent < ENDLESS:
            served.sent += handler.wfile.write(served.content)
        half = len(served.content) // 2
        handler.wfile.write(served.content[:half][: served.cut])
        if served.gate is not None:
            self.halfway.set()
            served.gate.wait(60)
        return handler.wfile.write(served.content[half : served.cut])


@pytest.fixture
def server():
    """Yield a server and close it after the test."""
    it = Server()
    yield it
    it.close()


@pytest.fixture
def publish(server, monkeypatch):
    """Return a function that serves a small version of a data set at all its addresses and returns its rows."""

    def put(name, *, n=400, checksum=True, size=False, **how):
        x, y = rows_and_labels(name, n)
        contents = files(name, x, y)
        new = shrink_registry(monkeypatch, name, contents, x, checksum=checksum, size=size, address=server.address)
        archive = zipped({f"folder/{file.name}": content for file, content in zip(new, contents)})
        for file, content in zip(new, contents):
            for address in file.addresses:
                suffix = PurePosixPath(address).suffix
                pack = {".bz2": bz2.compress, ".gz": gzip.compress, ".zip": lambda _: archive}.get(suffix, bytes)
                server.files[PurePosixPath(address).name] = Served(pack(content), **how)
        return x, y

    return put


def zipped(contents: dict[str, bytes]) -> bytes:
    """Return a zip archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return buffer.getvalue()
