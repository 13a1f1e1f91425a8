"""A download gives a complete, checked file or a helpful error, whatever the server does."""

import bz2
import hashlib
import io
import subprocess
import sys
import threading

import numpy as np
import pytest

from robustfd import datasets
from robustfd.datasets import _files
from robustfd.datasets.registry import REGISTRY
from tests.datasets.small import FILE_SETS, files, rows_and_labels, same, shrink_registry


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", [name for name in FILE_SETS if name != "rcv1-subsets"])
def test_every_data_set_is_downloaded_once(publish, server, name):
    expected = publish(name)
    assert same(datasets.load(name), expected)
    asked = list(server.asked)
    assert asked and len(set(asked)) == len(asked)
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


def test_a_download_needs_an_extra_and_a_file_at_hand_does_not(publish, monkeypatch):
    publish("a9a")
    expected = datasets.load("a9a")
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert same(datasets.load("a9a"), (expected[0].toarray(), expected[1]))
    publish("real-sim")
    with pytest.raises(ImportError, match=r"pip install 'robustfd\[data\]'"):
        datasets.load("real-sim")


# ------------------------------------------------------------------ what does not arrive, or arrives damaged


@pytest.mark.parametrize("name, length, message", [
    ("a9a", True, "bytes read"), ("a9a", False, "wrong checksum"), ("rcv1", False, "damaged"),
])  # fmt: skip
def test_answer_that_is_cut_is_noticed(publish, server, cache, name, length, message):
    publish(name, cut=900, length=length, checksum=name == "a9a")
    with pytest.raises(datasets.DatasetError, match=message):
        datasets.load(name)
    assert names_in(cache) == []
    for served in server.files.values():
        served.cut = None
    datasets.load(name)


def test_wrong_checksum_removes_the_download(publish, server, cache):
    publish("a9a")
    expected = datasets.info("a9a").splits["train"].files[0].sha256
    server.files["a9a"].content = b"+1 1:1\n"
    found = hashlib.sha256(b"+1 1:1\n").hexdigest()
    with pytest.raises(datasets.DatasetError, match=f"a9a has sha256 {found}, expected {expected}"):
        datasets.load("a9a")
    assert names_in(cache) == []


def test_a_data_set_without_an_address_says_how_to_get_it(tmp_path):
    with pytest.raises(
        datasets.DatasetError, match=r"(?s)not published as one file.*docs/datasets.md says how to make"
    ):
        datasets.load("rcv1-subsets", folder=tmp_path)


@pytest.mark.parametrize("content", [b"<html>moved</html>\n", b"+1 1:1\n"])
def test_download_that_does_not_fit_is_removed(publish, server, cache, content):
    publish("real-sim", checksum=False)
    server.files["real-sim.bz2"].content = bz2.compress(content)
    with pytest.raises(datasets.DatasetError, match="download was removed"):
        datasets.load("real-sim")
    assert names_in(cache) == []


@pytest.mark.parametrize("status, words", [(404, "404 Client Error: Not Found"), (503, "503 Server Error")])
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
    shrink_registry(monkeypatch, "rcv1", files("rcv1", x, y), x, address=lambda a: f"{host}/{a.rpartition('/')[2]}")
    with pytest.raises(datasets.DatasetError) as caught:
        datasets.load("rcv1")
    for part in (f"{host}/rcv1_train.binary.bz2: ", "put rcv1_train.binary, ", f"folder {cache}"):
        assert part in str(caught.value)
    assert names_in(cache) == []


def test_silence_is_an_error(publish, monkeypatch):
    gate = threading.Event()
    publish("a9a", gate=gate)
    monkeypatch.setattr(_files, "TIMEOUT", 0.3)
    with pytest.raises(datasets.DatasetError, match="timed out"):
        datasets.load("a9a")
    gate.set()


def test_folder_that_cannot_be_made_is_an_error(publish, tmp_path):
    publish("a9a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(datasets.DatasetError, match="file/below cannot be written to.*put a9a, "):
        datasets.load("a9a", folder=tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["a9a", "real-sim"], ids=["plain", "compressed"])
def test_a_download_does_not_grow_beyond_the_size_that_is_known(publish, server, cache, name):
    publish(name, endless=True, length=False, size=True)
    with pytest.raises(datasets.DatasetError, match="sends more than the [0-9]+ bytes"):
        datasets.load(name)
    assert names_in(cache) == []
    assert all(served.sent < 10**7 for served in server.files.values())


def test_a_few_bytes_that_unpack_to_very_many(publish, server, cache):
    publish("real-sim", size=True)
    server.files["real-sim.bz2"].content = bz2.compress(bytes(10**8))
    with pytest.raises(datasets.DatasetError, match="real-sim has more than the [0-9]+ bytes it should have"):
        datasets.load("real-sim")
    assert names_in(cache) == []


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("raw", [
    b"", b"\0" * 100, b"HTTP/1.1\r\n\r\n", b"HTTP/9.9 abc def\r\n\r\n", OK[:-2], b"220 smtp ready\r\n",
    b"HTTP/1.1 404 No\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://a b:x/\r\n\r\n", b"HTTP/1.1 302 Found\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: ftp://\r\n\r\n", OK + 200 * b"A: b\r\n" + b"\r\n",
    OK + 10**5 * b"A" + b"\r\n\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc", OK + b"Content-Length: many\r\n\r\nabc",
    OK + b"Content-Length: -5\r\n\r\nabc", OK + b"Content-Length: \xb2\xb3\r\n\r\nabc",
], ids=lambda raw: repr(raw)[2:40])  # fmt: skip
def test_next_address_is_tried_whatever_the_first_one_answers(publish, server, raw):
    expected = publish("farm-ads")
    server.files["farm+ads.zip"].raw = raw
    assert same(datasets.load("farm-ads"), expected)
    assert server.asked[-1] == "farm-ads-vect"


# ------------------------------------------------------------------ checksums that are not in the registry


@pytest.mark.parametrize(
    "name, stems", [("real-sim", {"real-sim"}), ("sido0", {"sido0_train.data", "sido0_train.targets"})]
)
def test_first_checksum_is_kept_where_none_is_known(publish, cache, name, stems):
    expected = publish(name, checksum=False)
    assert same(datasets.load(name), expected)
    records = {path.stem: path.read_text().split() for path in cache.glob("*.sha256")}
    assert set(records) == stems and all(len(sha) == 64 and file == stem for stem, (sha, file) in records.items())
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
    server.files["real-sim.bz2"].content = bz2.compress(other)
    with pytest.raises(datasets.DatasetError, match="wrong checksum.*download was removed"):
        datasets.load("real-sim")
    assert names_in(cache) == ["real-sim.sha256"]
    (cache / "real-sim.sha256").unlink()
    datasets.load("real-sim")


# ------------------------------------------------------------------ several at once

PROCESS = """
import sys
from dataclasses import replace
from robustfd import datasets
from robustfd.datasets.registry import REGISTRY, File, Split
address, sha256, n, nonzeros = sys.argv[1:]
REGISTRY["a9a"] = replace(REGISTRY["a9a"], n_features=9, splits={
    "train": Split(int(n), (File("a9a", (address,), None, sha256),), int(nonzeros))})
x, y = datasets.load("a9a")
print(x.sum(), y.sum())
"""


def test_two_processes_at_once_get_complete_files_and_no_part_has_the_final_name(publish, server, cache):
    gate = threading.Event()
    x, y = publish("a9a", gate=gate)
    file = REGISTRY["a9a"].splits["train"].files[0]
    arguments = [file.addresses[0], file.sha256, str(len(x)), str(np.count_nonzero(x))]
    results = []
    thread = threading.Thread(target=lambda: results.append(datasets.load("a9a")))
    thread.start()
    assert server.halfway.wait(60)
    assert all(name.startswith(".") for name in names_in(cache))
    with pytest.raises(datasets.DatasetError, match="a9a is not in"):
        datasets.load("a9a", download=False)
    with subprocess.Popen([sys.executable, "-c", PROCESS, *arguments], stdout=subprocess.PIPE, text=True) as other:
        gate.set()
        assert other.communicate(timeout=60)[0] == f"{x.sum()} {y.sum()}\n"
    thread.join()
    assert same(results[0], (x, y)) and names_in(cache) == ["a9a"]


# ------------------------------------------------------------------ progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stderr, rich, options, expected", [
    (Terminal, True, {}, "real-sim.bz2"), (Terminal, False, {}, "Downloading real-sim.bz2\n"),
    (io.StringIO, True, {}, None), (Terminal, True, {"progress": False}, None), (lambda: None, True, {}, None),
])  # fmt: skip
def test_progress_is_shown_on_a_terminal_only(publish, monkeypatch, capsys, stderr, rich, options, expected):
    publish("real-sim", n=4000)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stderr", stderr())
    datasets.load("real-sim", **options)
    shown = sys.stderr.getvalue() if sys.stderr else ""
    assert expected in shown if expected else shown == ""
    assert capsys.readouterr().out == ""
