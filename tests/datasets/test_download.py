"""Downloads from a server that may lie, stall or disconnect give a complete, checked file or a helpful error."""

import bz2
import contextlib
import gzip
import hashlib
import io
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

import numpy as np
import pytest

from robustfd import datasets
from robustfd.datasets import _http
from robustfd.datasets.registry import REGISTRY
from tests.datasets.small import FILE_SETS, files, rows_and_labels, same, shrink_registry


@pytest.fixture
def publish(server, monkeypatch):
    """Return a function that serves a small version of a data set at all its addresses and returns its rows."""

    def put(name, *, n=400, checksum=True, **how):
        x, y = rows_and_labels(name, n)
        contents = files(name, x, y)
        plain = {file.name: content for file, content in zip(datasets.info(name).splits["train"].files, contents)}
        new = shrink_registry(
            monkeypatch, name, contents, x, checksum=checksum, address=lambda a: server.address(PurePosixPath(a).name)
        )
        for file, content in zip(new, contents):
            for address in file.addresses:
                at = PurePosixPath(address)
                if at.suffix == ".zip":
                    buffer = io.BytesIO()
                    with zipfile.ZipFile(buffer, "w") as archive:
                        for member, value in plain.items():
                            archive.writestr(f"folder/{member}", value)
                    body = buffer.getvalue()
                else:
                    body = {".bz2": bz2.compress, ".gz": gzip.compress}.get(at.suffix, bytes)(content)
                server.put(at.name, body, **how)
        return x, y

    return put


def names_in(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


@pytest.mark.parametrize("name", FILE_SETS)
def test_every_data_set_is_downloaded_once(publish, server, name):
    expected = publish(name)
    assert same(datasets.load(name), expected)
    asked = list(server.asked)
    assert asked and all(span is None for _, span in asked) and len(set(asked)) == len(asked)
    assert same(datasets.load(name), expected) and same(datasets.load(name, download=False), expected)
    assert server.asked == asked


def test_download_goes_to_the_folder_that_was_given(publish, tmp_path, cache):
    expected = publish("real-sim")
    assert same(datasets.load("real-sim", folder=tmp_path / "new" / "folder"), expected)
    assert names_in(tmp_path / "new" / "folder") == ["real-sim.bz2"] and not cache.exists()


def test_users_own_folder_is_never_downloaded_to(publish, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("ROBUSTFD_DATA", str(tmp_path / "mine"))
    publish("a9a")
    datasets.load("a9a")
    assert names_in(cache) == ["a9a"] and not (tmp_path / "mine").exists()


@pytest.mark.parametrize("reset", [False, True], ids=["truncated", "reset"])
def test_dropped_connection_goes_on_where_it_stopped(publish, server, cache, reset):
    expected = publish("a9a", cuts=[5000, 3000], reset=reset)
    assert same(datasets.load("a9a"), expected)
    if not reset:
        assert server.asked == [("a9a", None), ("a9a", "bytes=5000-"), ("a9a", "bytes=8000-")]
    assert server.asked[0] == ("a9a", None) and len(server.asked) == 3  # a reset may lose unread bytes
    assert names_in(cache) == ["a9a"]


def test_next_call_goes_on_where_the_last_one_gave_up(publish, server, cache, monkeypatch):
    expected = publish("a9a", cuts=[5000, 0])
    monkeypatch.setattr(_http, "RETRIES", 0)
    with pytest.raises(datasets.DatasetError, match=r"ended after 5000 of .*\(5000 bytes were received and are kept"):
        datasets.load("a9a")
    assert names_in(cache) == ["a9a.part"]
    assert same(datasets.load("a9a"), expected)
    assert server.asked[-1] == ("a9a", "bytes=5000-") and names_in(cache) == ["a9a"]


def test_server_that_never_finishes_is_given_up(publish, server, cache):
    publish("a9a", cuts=[5000] + 99 * [0])
    with pytest.raises(datasets.DatasetError, match="5000 bytes were received and are kept"):
        datasets.load("a9a")
    assert len(server.asked) == 2 + _http.RETRIES
    assert names_in(cache) == ["a9a.part"]


def test_server_without_ranges_starts_over(publish, server):
    expected = publish("a9a", cuts=[5000], ranges=False)
    assert same(datasets.load("a9a"), expected)
    assert server.asked == [("a9a", None), ("a9a", "bytes=5000-")]


def test_server_that_sends_another_part_starts_over(publish, server):
    expected = publish("a9a", cuts=[5000], shift=7)
    assert same(datasets.load("a9a"), expected)
    assert server.asked == [("a9a", None), ("a9a", "bytes=5000-"), ("a9a", None)]


def test_complete_part_is_not_fetched_again(publish, server, cache):
    expected = publish("a9a")
    cache.mkdir(parents=True)
    content = server.files["/data/a9a"].content
    (cache / "a9a.part").write_bytes(content)
    assert same(datasets.load("a9a"), expected)
    assert server.asked == [("a9a", f"bytes={len(content)}-")]


@pytest.mark.parametrize("old", [b"x" * 5000, b"x" * 10**6], ids=["shorter", "longer"])
def test_part_of_another_edition_starts_over(publish, server, cache, old):
    expected = publish("a9a")
    cache.mkdir(parents=True)
    (cache / "a9a.part").write_bytes(old)
    assert same(datasets.load("a9a"), expected)
    assert server.asked == [("a9a", f"bytes={len(old)}-"), ("a9a", None)]
    assert names_in(cache) == ["a9a"]


@pytest.mark.parametrize("name", ["a9a", "rcv1"])
def test_answer_without_a_length_that_is_cut_is_noticed(publish, cache, name):
    publish(name, cuts=[900], length=False, checksum=name == "a9a")
    with pytest.raises(datasets.DatasetError, match="wrong checksum" if name == "a9a" else "damaged"):
        datasets.load(name)
    assert names_in(cache) == []
    datasets.load(name)


def test_wrong_checksum_removes_the_download(publish, server, cache):
    publish("a9a")
    expected = datasets.info("a9a").splits["train"].files[0].sha256
    server.files["/data/a9a"].content = b"+1 1:1\n"
    found = hashlib.sha256(b"+1 1:1\n").hexdigest()
    with pytest.raises(datasets.DatasetError, match=f"a9a has sha256 {found}, expected {expected}"):
        datasets.load("a9a")
    assert names_in(cache) == []


def test_next_address_is_tried(publish, server):
    expected = publish("farm-ads")
    server.files["/data/farm+ads.zip"].status = 404
    assert same(datasets.load("farm-ads"), expected)
    assert [path for path, _ in server.asked] == ["farm+ads.zip", "farm-ads-vect"]


@pytest.mark.parametrize("status, words", [(404, "404 Not Found"), (403, "403 Forbidden"), (503, "503 Service")])
def test_answer_that_is_an_error_is_reported(publish, server, cache, status, words):
    publish("real-sim", status=status)
    with pytest.raises(datasets.DatasetError) as caught:
        datasets.load("real-sim")
    for part in (server.address("real-sim.bz2"), words, "real-sim.xz", str(cache), "ROBUSTFD_DATA"):
        assert part in str(caught.value)
    assert len(server.asked) == 1 and names_in(cache) == []


@pytest.mark.parametrize("host", ["http://127.0.0.1:9", "http://nowhere.invalid"], ids=["refused", "no such name"])
def test_no_network_says_which_file_to_put_where(monkeypatch, cache, host):
    x, y = rows_and_labels("rcv1")
    shrink_registry(monkeypatch, "rcv1", files("rcv1", x, y), x, address=lambda a: f"{host}/{PurePosixPath(a).name}")
    with pytest.raises(datasets.DatasetError) as caught:
        datasets.load("rcv1")
    for part in (f"{host}/rcv1_train.binary.bz2: no connection", "put rcv1_train.binary, ", f"folder {cache}"):
        assert part in str(caught.value)
    assert names_in(cache) == []


def test_silence_is_an_error(publish, server, monkeypatch):
    gate = threading.Event()
    publish("a9a", gate=gate)
    monkeypatch.setattr(_http, "TIMEOUT", 0.3)
    monkeypatch.setattr(_http, "RETRIES", -1)
    with pytest.raises(datasets.DatasetError, match="timed out"):
        datasets.load("a9a")
    gate.set()


def test_folder_that_cannot_be_made_is_an_error(publish, tmp_path):
    publish("a9a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(datasets.DatasetError, match="file/below cannot be written to.*put a9a, "):
        datasets.load("a9a", folder=tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "name, kept", [("real-sim", {"real-sim"}), ("sido0", {"sido0_train.data", "sido0_train.targets"})]
)
def test_first_checksum_is_kept_where_none_is_known(publish, server, cache, name, kept):
    expected = publish(name, checksum=False)
    assert same(datasets.load(name), expected)
    records = {path.stem: path.read_text().split() for path in cache.glob("*.sha256")}
    assert set(records) == kept and all(len(sha) == 64 and file == stem for stem, (sha, file) in records.items())
    assert same(datasets.load(name), expected)


def test_later_reads_must_agree_with_the_first_checksum(publish, server, cache):
    publish("real-sim", checksum=False)
    datasets.load("real-sim")
    path = cache / "real-sim.bz2"
    other = bz2.decompress(path.read_bytes()).replace(b"1:", b"1:0", 1)  # the same numbers as different bytes
    path.write_bytes(bz2.compress(other))
    with pytest.raises(datasets.DatasetError, match="wrong checksum.*stored in .*real-sim.sha256"):
        datasets.load("real-sim")
    assert path.exists()
    path.unlink()
    server.files["/data/real-sim.bz2"].content = bz2.compress(other)
    with pytest.raises(datasets.DatasetError, match="wrong checksum.*download was removed"):
        datasets.load("real-sim")
    assert names_in(cache) == ["real-sim.sha256"]
    (cache / "real-sim.sha256").unlink()
    datasets.load("real-sim")


@pytest.mark.parametrize("content", [bz2.compress(b"<html>moved</html>\n"), bz2.compress(b"+1 1:1\n")])
def test_download_that_does_not_fit_is_removed(publish, server, cache, content):
    publish("real-sim", checksum=False)
    server.files["/data/real-sim.bz2"].content = content
    with pytest.raises(datasets.DatasetError, match="download was removed"):
        datasets.load("real-sim")
    assert names_in(cache) == []


def test_no_part_is_ever_seen_under_the_final_name(publish, server, cache):
    gate = threading.Event()
    expected = publish("a9a", gate=gate)
    results = []
    thread = threading.Thread(target=lambda: results.append(datasets.load("a9a")))
    thread.start()
    assert server.files["/data/a9a"].halfway.wait(60)
    assert set(names_in(cache)) <= {"a9a.part"}
    with pytest.raises(datasets.DatasetError, match="a9a is not in"):
        datasets.load("a9a", download=False)
    gate.set()
    thread.join()
    assert same(results[0], expected) and names_in(cache) == ["a9a"]


PROCESS = """
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from robustfd import datasets
from robustfd.datasets.registry import REGISTRY, File, Split
address, sha256, n, nonzeros = sys.argv[1:]
REGISTRY["a9a"] = replace(REGISTRY["a9a"], n_features=9, splits={
    "train": Split(int(n), (File("a9a", (address,), None, sha256),), int(nonzeros))})
print("ready", flush=True)
x, y = datasets.load("a9a")
print(x.sum(), y.sum())
"""


def test_of_two_processes_one_downloads_and_the_other_waits(publish, server, cache):
    gate = threading.Event()
    x, y = publish("a9a", gate=gate)
    file = REGISTRY["a9a"].splits["train"].files[0]
    arguments = [file.addresses[0], file.sha256, str(len(x)), str(np.count_nonzero(x))]
    results = []
    thread = threading.Thread(target=lambda: results.append(datasets.load("a9a")))
    thread.start()
    with subprocess.Popen([sys.executable, "-c", PROCESS, *arguments], stdout=subprocess.PIPE, text=True) as other:
        assert server.files["/data/a9a"].halfway.wait(60)
        assert other.stdout.readline() == "ready\n"
        time.sleep(0.2)  # the other process waits for the lock
        assert other.poll() is None
        gate.set()
        assert other.communicate(timeout=30)[0] == f"{x.sum()} {y.sum()}\n"
    thread.join()
    assert same(results[0], (x, y))
    assert server.asked == [("a9a", None)] and names_in(cache) == ["a9a"]


# -- a malicious or broken server may send anything, and the next address is tried


@pytest.fixture
def two_mirrors(publish, server):
    """Return the expected rows, and a function that makes the first of two addresses misbehave."""
    expected = publish("farm-ads")

    def first(**how):
        served = server.files["/data/farm+ads.zip"]
        for name, value in how.items():
            setattr(served, name, value)
        return served

    return expected, first


HEADERS = [
    {"Content-Length": "many"}, {"Content-Length": "-5"}, {"Content-Length": "\xb2\xb3"}, {"Content-Length": "1e3"},
    {"Content-Length": ""}, {"Content-Length": 5000 * "9"}, {"Content-Length": "99999999999999999999"},
    {"Transfer-Encoding": "chunked"}, {"Content-Range": "bytes \xb2-9/\xb3"}, {"Content-Type": 60000 * "x"},
]  # fmt: skip
RAW = [
    b"", b"\0" * 100, b"HTTP/1.1\r\n\r\n", b"HTTP/9.9 abc def\r\n\r\n", b"HTTP/1.1 200 OK", b"220 smtp ready\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://a b:x/\r\n\r\n",
    b"HTTP/1.1 302 Found\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: ftp://\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + 200 * b"A: b\r\n" + b"\r\n", b"HTTP/1.1 200 OK\r\n" + 10**5 * b"A" + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    b"HTTP/1.1 416 No\r\nContent-Range: bytes */\xb2\r\n\r\n", b"HTTP/1.1 206 Part\r\n\r\nabc",
]  # fmt: skip


@pytest.mark.parametrize("headers", HEADERS, ids=lambda headers: "-".join(*headers.items())[:30])
@pytest.mark.parametrize("part", [False, True], ids=["all", "rest"])
def test_headers_that_make_no_sense(two_mirrors, cache, headers, part):
    """The bytes come from this address or from the next one."""
    expected, first = two_mirrors
    content = first(headers=headers).content
    if part:
        cache.mkdir(parents=True)
        (cache / "farm+ads.zip.part").write_bytes(content[: len(content) // 2])
    assert same(datasets.load("farm-ads"), expected)


@pytest.mark.parametrize("span", [
    "", "bytes", "bytes \xb2-9/\xb3", "bytes -/", "bytes 5-4/3", "bytes 0-9/*", "items 0-9/10", "bytes */*",
    f"bytes 0-9/{5000 * '9'}",
])  # fmt: skip
def test_a_part_of_who_knows_what(two_mirrors, cache, span):
    expected, first = two_mirrors
    content = first(headers={"Content-Range": span}).content
    cache.mkdir(parents=True)
    (cache / "farm+ads.zip.part").write_bytes(content[: len(content) // 2])
    assert same(datasets.load("farm-ads"), expected)


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw)[2:40])
@pytest.mark.parametrize("part", [False, True], ids=["all", "rest"])
def test_an_answer_that_is_no_http(two_mirrors, server, cache, raw, part):
    expected, first = two_mirrors
    content = first(raw=raw).content
    if part:
        cache.mkdir(parents=True)
        (cache / "farm+ads.zip.part").write_bytes(content[: len(content) // 2])
    assert same(datasets.load("farm-ads"), expected)
    assert server.asked[-1][0] == "farm-ads-vect"


def known_size(monkeypatch, name, size):
    """Set the size of the file in the registry."""
    split = datasets.info(name).splits["train"]
    files_ = (replace(split.files[0], size=size), *split.files[1:])
    splits = {**datasets.info(name).splits, "train": replace(split, files=files_)}
    monkeypatch.setitem(REGISTRY, name, replace(datasets.info(name), splits=splits))


@pytest.mark.parametrize("name", ["a9a", "real-sim"], ids=["plain", "compressed"])
@pytest.mark.parametrize("headers", [{}, {"Content-Length": "many"}], ids=["no length", "no number"])
def test_a_body_does_not_grow_beyond_the_size_that_is_known(publish, server, cache, monkeypatch, name, headers):
    x, y = publish(name, endless=True, length=False, headers=headers)
    known_size(monkeypatch, name, len(files(name, x, y)[0]))
    with pytest.raises(datasets.DatasetError, match="sends more than the [0-9]+ bytes"):
        datasets.load(name)
    assert names_in(cache) == []
    assert all(served.sent < 10**7 for served in server.files.values())


def test_a_length_beyond_the_size_that_is_known_is_refused_at_once(publish, server, cache, monkeypatch):
    x, y = publish("a9a", headers={"Content-Length": str(10**12)})
    known_size(monkeypatch, "a9a", len(files("a9a", x, y)[0]))
    with pytest.raises(datasets.DatasetError, match="the server has 1000000000000 bytes"):
        datasets.load("a9a")
    assert names_in(cache) == []


def test_a_rest_that_is_longer_than_it_says(publish, server, cache):
    """A partial answer states the total size, and may not state its own."""
    publish("a9a", endless=True, length=False)
    content = server.files["/data/a9a"].content
    cache.mkdir(parents=True)
    (cache / "a9a.part").write_bytes(content[:1000])
    with pytest.raises(datasets.DatasetError, match=f"sends more than the {len(content)} bytes"):
        datasets.load("a9a")
    assert names_in(cache) == [] and server.files["/data/a9a"].sent < 10**7


def test_a_few_bytes_that_unpack_to_very_many(publish, server, cache, monkeypatch):
    x, y = publish("real-sim")
    known_size(monkeypatch, "real-sim", len(files("real-sim", x, y)[0]))
    server.files["/data/real-sim.bz2"].content = bz2.compress(bytes(10**8))
    with pytest.raises(datasets.DatasetError, match="real-sim has more than the [0-9]+ bytes it should have"):
        datasets.load("real-sim")
    assert names_in(cache) == []


def test_the_page_of_a_redirection_is_not_read(tmp_path):
    """The body of a redirect may be endless."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/there":
                self.send_response(200)
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"there")
                return
            self.send_response(302)
            self.send_header("Location", "/there")
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(1000):  # 100 MB, far more than the socket buffers
                    self.wfile.write(b"x" * 100_000)
                    sent.append(100_000)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _http.download(f"http://127.0.0.1:{server.server_port}/here", tmp_path / "part", lambda *_: None, None)
    finally:
        server.shutdown()
        server.server_close()
    assert (tmp_path / "part").read_bytes() == b"there"
    assert sum(sent) < 50_000_000
